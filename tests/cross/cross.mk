# SPDX-License-Identifier: Apache-2.0
# Kernels of other CPUs against the reference: one program without libraries, built for the CPU and run by an emulator.

CROSS_SRC := tests/cross/compare.c tests/cross/compare_sweeps.c tests/cross/compare_quantisers.c tests/cross/compare_low_rank.c
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
	@for level in neon avx2 avx512; do $(BUILD)/compare-kernels $$level; s=$$?; [ $$s = 0 ] || [ $$s = 3 ] || exit 1; done

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

.PHONY: cross-deps test-kernels test-neon
