# SPDX-License-Identifier: Apache-2.0
# Kernels of other CPUs against the reference: one program without libraries, built for the CPU and run by an emulator.

CROSS_SRC := tests/cross/compare.c tests/cross/compare_sweeps.c tests/cross/compare_quantisers.c \
  tests/cross/compare_low_rank.c
CROSS_CODEC := $(wildcard common/codec/*kernels*.c)
CROSS_BASE  := common/base/cpu.c
CROSS_FLAGS := -std=c11 $(OPT) $(WARN) -D_GNU_SOURCE -I. -ffp-contract=off -fno-math-errno

# Packages by name; installed the way of `deps`.
cross-deps:
	@$(MAKE) --no-print-directory -s deps PACKAGES="$(NEED)"

# ---- this CPU ------------------------------------------------------------------------------------------------------
$(BUILD)/compare-kernels: $(call objs,$(CROSS_SRC) tests/cross/compare_main.c $(CROSS_CODEC) $(CROSS_BASE))
	$(CC) $(LDFLAGS) -o $@ $^

test-kernels: $(BUILD)/compare-kernels ## vector kernels of this CPU against the reference
	@for level in neon avx2 avx512; do for ask in 0 1 2; do \
	  TERSE_ASK=$$ask $(BUILD)/compare-kernels $$level; s=$$?; [ $$s = 0 ] || [ $$s = 3 ] || exit 1; done; done

# ---- NEON under qemu-user ------------------------------------------------------------------------------------------------
NEON_CC  := aarch64-linux-gnu-gcc
NEON_RUN := qemu-aarch64-static
NEON_OBJ := $(patsubst %.c,$(BUILD)/neon/%.o,$(CROSS_SRC) tests/cross/compare_main.c $(CROSS_BASE) \
              $(filter-out %_avx2.c %_avx512.c,$(CROSS_CODEC)))
$(BUILD)/neon/%.o: %.c
	@mkdir -p $(@D)
	$(NEON_CC) $(CROSS_FLAGS) -MMD -MP -c -o $@ $<
$(BUILD)/neon/compare-kernels: $(NEON_OBJ)
	$(NEON_CC) -static -o $@ $^
-include $(NEON_OBJ:.o=.d)

test-neon: ## NEON kernels against the reference, under qemu-user
	@$(MAKE) --no-print-directory -s cross-deps NEED="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static"
	@$(MAKE) --no-print-directory -s $(BUILD)/neon/compare-kernels
	$(NEON_RUN) $(BUILD)/neon/compare-kernels neon

# ---- AVX-512 on the machine that bochs emulates: no operating system, a boot sector and the program behind it ------------
BARE_OBJ := $(BUILD)/bare/tests/cross/bare_entry.o $(patsubst %.c,$(BUILD)/bare/%.o,$(CROSS_SRC) tests/cross/bare_main.c \
              $(filter-out %_neon.c,$(CROSS_CODEC)))
# A limit for an emulator that hangs; under load it takes many times the minutes that it takes alone.
BARE_SECONDS := 3000
$(BUILD)/bare/%_avx2.o: ISA := -O3 -mavx2 -mfma -mbmi2 -mlzcnt -mpopcnt -mf16c
$(BUILD)/bare/%_avx512.o: ISA := -O3 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mbmi2 -mlzcnt -mpopcnt -mf16c
$(BUILD)/bare/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CROSS_FLAGS) -fno-pic -fno-stack-protector -fno-tree-loop-distribute-patterns -mno-red-zone $(ISA) -MMD -MP -c -o $@ $<
$(BUILD)/bare/%.o: %.S
	@mkdir -p $(@D)
	$(CC) -c -o $@ $<
$(BUILD)/bare/program.bin: $(BARE_OBJ) tests/cross/bare.ld
	$(CC) -nostdlib -static -no-pie -Wl,--build-id=none -Wl,--no-warn-rwx-segments -Wl,-T,tests/cross/bare.ld -o $(@:.bin=.elf) $(BARE_OBJ)
	objcopy -O binary -j .all $(@:.bin=.elf) $@
$(BUILD)/bare/disk.img: $(BUILD)/bare/program.bin tests/cross/bare_boot.S
	$(CC) -c -DSECTORS=$$(( ($$(stat -c %s $<) + 511) / 512 )) -o $(@D)/boot.o tests/cross/bare_boot.S
	ld -Ttext 0x7C00 --oformat binary -o $(@D)/boot.bin $(@D)/boot.o
	cat $(@D)/boot.bin $< > $@
	truncate -s 10321920 $@
-include $(BARE_OBJ:.o=.d)

# Nothing to emulate where the CPU has it: then test-kernels compares the same kernels, with ties of halves besides.
HAS_AVX512 := $(shell grep -qs avx512dq /proc/cpuinfo && grep -qs avx512vl /proc/cpuinfo && echo yes)
test-avx512: $(if $(HAS_AVX512),test-avx512-here,test-avx512-bochs) ## AVX-512 kernels against the reference; where the CPU has none, on a machine that bochs emulates (minutes)

test-avx512-here: $(BUILD)/compare-kernels
	@echo "this CPU has AVX-512: nothing is emulated (make test-avx512-bochs does)"
	@for ask in 0 1 2; do TERSE_ASK=$$ask $(BUILD)/compare-kernels avx512 || exit 1; done

test-avx512-bochs:
	@$(MAKE) --no-print-directory -s cross-deps NEED="bochs bochs-term bochsbios vgabios"
	@$(MAKE) --no-print-directory -s $(BUILD)/bare/disk.img
	@sed 's|@DISK@|$(BUILD)/bare/disk.img|; s|@LOG@|$(BUILD)/bare/bochs.log|' tests/cross/bochsrc.in > $(BUILD)/bare/bochsrc
	@rm -f $(BUILD)/bare/disk.img.lock
	@echo c > $(BUILD)/bare/commands
	@timeout -k 5 $(BARE_SECONDS) nice bochs -q -f $(BUILD)/bare/bochsrc -rc $(BUILD)/bare/commands < /dev/null > $(BUILD)/bare/output 2>&1; \
	  grep -a '^kernels:\|^DIFFERENT\|^this\|^a kernel\|^verdict' $(BUILD)/bare/output; \
	  grep -aq '^verdict: passed' $(BUILD)/bare/output || { tail -20 $(BUILD)/bare/bochs.log >&2; exit 1; }

.PHONY: cross-deps test-kernels test-neon test-avx512 test-avx512-here test-avx512-bochs
