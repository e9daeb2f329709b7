# SPDX-License-Identifier: Apache-2.0
# `make help` lists the targets. Variants build beside each other: SAN=asan|tsan, CC=clang, BUILD=dir.

CC      := gcc
SAN     :=
WERROR  :=
# How many tests run beside each other (make test, make unit).
AT_ONCE := $(shell n=$$(nproc 2>/dev/null || echo 1); [ $$n -gt 2 ] && n=2; echo $$n)
# System cases wait for deadlines half of their time.
CASES_AT_ONCE := $(shell echo $$(($(AT_ONCE) > 1 ? $(AT_ONCE) + 1 : 1)))
BUILD   := build$(if $(SAN),-$(SAN))$(if $(filter clang%,$(CC)),-clang)
PREFIX  := /usr/local
VERSION := 0.1.0
COMMON_LAYERS := base codec wire net contract ckpt keep config metrics
# Which of them a development build of one test links (make unit-one).
LAYERS  := $(COMMON_LAYERS)

PACKAGES := gcc make pkg-config libopenmpi-dev openmpi-bin openssh-client libuv1-dev protobuf-c-compiler \
  libprotobuf-c-dev check libcyaml-dev libyaml-dev libjansson-dev libzstd-dev zlib1g-dev libopenblas-dev \
  liblapacke-dev libxxhash-dev libsodium-dev dataset-fashion-mnist python3 git

PKGS := ompi-c pmix libuv libprotobuf-c libcyaml yaml-0.1 jansson libzstd zlib libxxhash libsodium openblas
have_pkg := $(shell command -v pkg-config)
ifneq ($(have_pkg),)
DEP_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
DEP_LIBS   := $(shell pkg-config --libs $(PKGS) 2>/dev/null)
CHECK_LIBS := $(shell pkg-config --libs check 2>/dev/null)
endif
ARCH := $(shell uname -m)

WARN := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla $(if $(WERROR),-Werror)
OPT  := -O2 -g
comma := ,
SAN_FLAGS := $(if $(filter asan,$(SAN)),-fsanitize=address$(comma)undefined -fno-omit-frame-pointer -fno-sanitize-recover=undefined) \
             $(if $(filter tsan,$(SAN)),-fsanitize=thread)
SAN_FLAGS := $(strip $(SAN_FLAGS))
CFLAGS   := -std=c11 $(OPT) $(WARN)
CPPFLAGS := -D_GNU_SOURCE -I. -I$(BUILD)/gen $(patsubst -I%,-isystem %,$(DEP_CFLAGS))
ALL_CFLAGS := $(CFLAGS) -fPIC -fvisibility=hidden -ffp-contract=off -fno-math-errno -pthread $(SAN_FLAGS)
SAN_ENV  := $(if $(filter asan,$(SAN)),ASAN_OPTIONS=detect_leaks=1 CK_FORK=no) $(if $(filter tsan,$(SAN)),TSAN_OPTIONS=ignore_noninstrumented_modules=1 CK_FORK=no)
LDLIBS   := $(DEP_LIBS) -lm -pthread -ldl
LDFLAGS  := -Wl,--as-needed $(SAN_FLAGS)

# ---- sources: found, not listed ------------------------------------------------------------------------------------
layer_src  = $(wildcard common/$(1)/*.c)
CLI_SRC     := $(call layer_src,cli)
CLIENT_SRC  := $(wildcard worker/client/*.c)
WORKER_SRC  := $(wildcard worker/trainer/*.c worker/models/*.c worker/data/*.c)
WORKER_CORE := $(filter-out worker/trainer/worker_main.c,$(WORKER_SRC))
SERVER_SRC  := $(wildcard server/*.c)
RELAY_SRC   := $(call layer_src,relay)
RELAY_CORE  := $(filter-out common/relay/relay_main.c,$(RELAY_SRC))
SERVER_CORE := $(filter-out server/main.c server/loop.c,$(SERVER_SRC))
UNIT_SRC    := $(wildcard tests/unit/test_*.c)
UNIT_SUPPORT := $(filter-out tests/unit/test_% tests/unit/runner.c,$(wildcard tests/unit/*.c))
SIM_SUPPORT := $(wildcard tests/sim/*.c)
ifneq ($(ARCH),x86_64)
DROP_SRC := $(wildcard common/*/*_avx2.c common/*/*_avx512.c server/*_avx2.c server/*_avx512.c)
endif
ifneq ($(ARCH),aarch64)
DROP_SRC += $(wildcard common/*/*_neon.c)
endif

objs = $(patsubst %.c,$(BUILD)/obj/%.o,$(filter-out $(DROP_SRC),$(1)))
GEN := $(BUILD)/gen/terse.pb-c.h
GEN_OBJ := $(BUILD)/obj/gen/terse.pb-c.o
COMMON_OBJ := $(foreach l,$(COMMON_LAYERS),$(call objs,$(call layer_src,$(l)))) $(GEN_OBJ)

# ---- programs --------------------------------------------------------------------------------------------------------
PROGRAMS := $(BUILD)/terse $(BUILD)/terse-server $(BUILD)/terse-worker $(BUILD)/terse-relay
LIBS     := $(BUILD)/libterse.a $(BUILD)/libterse.so

.DEFAULT_GOAL := all
all: $(PROGRAMS) $(LIBS) ## build everything (into build/)

$(BUILD)/terse: $(call objs,$(CLI_SRC)) $(COMMON_OBJ)
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(BUILD)/terse-server: $(call objs,$(SERVER_SRC)) $(COMMON_OBJ)
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(BUILD)/terse-relay: $(call objs,$(RELAY_SRC) $(SERVER_CORE) server/loop.c) $(BUILD)/libterse.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(BUILD)/terse-worker: $(call objs,$(WORKER_SRC)) $(BUILD)/libterse.a
	$(CC) $(LDFLAGS) -rdynamic -o $@ $^ $(LDLIBS)
$(BUILD)/libterse.a: $(call objs,$(CLIENT_SRC)) $(COMMON_OBJ)
	rm -f $@ && ar rcs $@ $^
$(BUILD)/libterse.so: $(call objs,$(CLIENT_SRC)) $(COMMON_OBJ)
	$(CC) $(LDFLAGS) -shared -Wl,-soname,libterse.so.0 -Wl,--no-undefined -o $@ $^ $(LDLIBS)

# ---- compiling -------------------------------------------------------------------------------------------------------
$(BUILD)/gen/terse.pb-c.c: proto/terse.proto
	@mkdir -p $(@D)
	protoc-c --proto_path=proto --c_out=$(@D) $<
$(GEN): $(BUILD)/gen/terse.pb-c.c ;
$(GEN_OBJ): $(BUILD)/gen/terse.pb-c.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(filter-out -W%,$(ALL_CFLAGS)) -MMD -MP -c -o $@ $<
$(BUILD)/obj/server/optimizer_kernels_scalar.o: ISA := -O3
$(BUILD)/obj/%_avx2.o: ISA := -O3 -mavx2 -mfma -mbmi2 -mlzcnt -mpopcnt -mf16c
$(BUILD)/obj/%_avx512.o: ISA := -O3 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mbmi2 -mlzcnt -mpopcnt -mf16c
$(BUILD)/obj/%.o: %.c | $(GEN)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(ALL_CFLAGS) $(ISA) -MMD -MP -c -o $@ $<

# ---- unit tests: one file a module, found by name ---------------------------------------------------------------------
$(BUILD)/gen/test_list.h: $(UNIT_SRC)
	@mkdir -p $(@D)
	@for t in $(basename $(notdir $(UNIT_SRC))); do echo "X($$t)"; done > $@
$(BUILD)/obj/tests/unit/runner.o: $(BUILD)/gen/test_list.h
TEST_OBJ := $(call objs,tests/unit/runner.c $(UNIT_SRC) $(UNIT_SUPPORT) $(SIM_SUPPORT)) \
            $(call objs,$(SERVER_CORE) $(RELAY_CORE) $(CLIENT_SRC) $(WORKER_CORE)) $(COMMON_OBJ)
$(BUILD)/unit-tests: $(TEST_OBJ)
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS) $(CHECK_LIBS)

# Development: one test file against some layers, `make unit-one T=test_bytes LAYERS="base"`.
EXTRA :=
unit-one: $(call objs,$(wildcard tests/unit/$(T).c) $(UNIT_SUPPORT) $(EXTRA)) $(foreach l,$(LAYERS),$(call objs,$(call layer_src,$(l)))) $(GEN_OBJ)
	@mkdir -p $(BUILD)/one
	@echo "X($(T))" > $(BUILD)/one/test_list.h
	$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -I$(BUILD)/one -DTEST_LIST='"$(BUILD)/one/test_list.h"' -c -o $(BUILD)/one/runner.o tests/unit/runner.c
	$(CC) $(LDFLAGS) -o $(BUILD)/one/$(T) $(BUILD)/one/runner.o $^ $(LDLIBS) $(CHECK_LIBS)
	$(BUILD)/one/$(T)

# ---- examples ---------------------------------------------------------------------------------------------------------
EXAMPLE_PROGRAMS := $(patsubst worker/examples/%.c,$(BUILD)/examples/%,$(filter-out worker/examples/plugin_%,$(wildcard worker/examples/*.c)))
EXAMPLE_PLUGINS  := $(patsubst worker/examples/%.c,$(BUILD)/examples/%.so,$(wildcard worker/examples/plugin_*.c))
all: $(EXAMPLE_PROGRAMS) $(EXAMPLE_PLUGINS)
# As a user's build would find it.
$(BUILD)/obj/worker/examples/%.o: CPPFLAGS += -Iworker
$(BUILD)/examples/%.so: $(BUILD)/obj/worker/examples/%.o
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -shared -o $@ $^ -lm
$(BUILD)/examples/%: $(BUILD)/obj/worker/examples/%.o $(BUILD)/libterse.a
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
.SECONDARY:

# ---- what users call ----------------------------------------------------------------------------------------------------
# Root may not start mpirun without saying so twice; nobody else needs it.
MPI_ENV := $(if $(filter 0,$(shell id -u)),OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1) OPENBLAS_NUM_THREADS=1
CONFIG  := configs/fashion-mnist.yaml
SERVERS := 2
WORKERS := 4
# Overrides for both sides, as SET="training.epochs=2 push.default=topk:0.01 | int8": a word without = belongs to the
# value before it. ARGS: more words for the workers.
SET     :=
ARGS    :=
empty   :=
SETS     = $(if $(SET),--set '$(subst @NEXT@,,$(subst $(empty) @NEXT@,' --set ',$(strip $(foreach s,$(SET),$(if $(findstring =,$(s)),@NEXT@)$(s)))))')
SUMMARY_ARG = $(filter --summary=%,$(subst --summary ,--summary=,$(strip $(ARGS))))
SUMMARY  = $(patsubst --summary=%,%,$(lastword --summary=$(BUILD)/summary.json $(SUMMARY_ARG)))

RUN_STARTED = $(BUILD)/run.started.$(shell echo $$PPID)# of this make: several may run at once

# mpirun ends with 0 whatever happened when recovery is on. The summary is what a run writes last, and only on success.
run: deps ## the main job: Fashion-MNIST, 2 servers, 4 workers, compressed both ways
	@$(MAKE) --no-print-directory -s all
	@$(BUILD)/terse check $(CONFIG) $(SETS) > /dev/null
	@touch $(RUN_STARTED)
	$(MPI_ENV) mpirun --tune configs/openmpi.conf -n $(SERVERS) $(BUILD)/terse-server $(CONFIG) $(SETS) : -n $(WORKERS) $(BUILD)/terse-worker $(CONFIG) $(SETS) $(if $(SUMMARY_ARG),,--summary $(SUMMARY)) $(ARGS)
	@new=; { [ -e $(SUMMARY) ] && [ ! -f $(SUMMARY) ]; } || [ $(SUMMARY) -nt $(RUN_STARTED) ] && new=yes; rm -f $(RUN_STARTED); \
	  [ "$$new" ] || { echo "make run: it failed, no new $(SUMMARY) was written; the messages above say why" >&2; exit 1; }

test: deps ## all tests: layers, unit, fuzz corpus, system over mpirun (minutes)
	@$(MAKE) --no-print-directory -s test-built

test-built: all $(BUILD)/unit-tests
	python3 tests/tools/check_layers.py $(BUILD)
	python3 tests/tools/check_source.py
	$(BUILD)/unit-tests --at-once $(AT_ONCE)
	$(MAKE) --no-print-directory -s fuzz-replay BUILD=$(BUILD)
	BUILD=$(BUILD) python3 tests/system/run.py --at-once $(CASES_AT_ONCE)

LONG_SEEDS := 10000
LONG_PARTS :=
test-long: deps ## what takes longer: all of the codec's contract, 10,000 clusters, every fault, half an hour of a daemon, other CPUs' kernels (LONG_PARTS=... for some)
	@$(MAKE) --no-print-directory -s all $(BUILD)/unit-tests $(BUILD)/compare-kernels $(BUILD)/fault_worker $(BUILD)/clock_jump.so $(BUILD)/ledger_worker
	@$(MAKE) --no-print-directory -s fuzz-replay-built
	@python3 tests/tools/run_long.py $(BUILD) $(LONG_SEEDS) $(LONG_PARTS)

unit: $(BUILD)/unit-tests ## unit tests alone (SAN=asan or tsan for the sanitizers)
	$(SAN_ENV) $(BUILD)/unit-tests --at-once $(AT_ONCE)

deps: ## install the Debian packages that are missing
	@missing=""; for p in $(PACKAGES); do \
	  dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q '^install ok installed' || missing="$$missing $$p"; done; \
	[ -z "$$missing" ] && exit 0; \
	command="apt-get install -y --no-install-recommends$$missing"; \
	if [ "$$(id -u)" = 0 ]; then as=""; elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then as="sudo "; \
	else echo "Packages are missing and this user cannot install them. Run once, as root:" >&2; echo "  apt-get update && $$command" >&2; exit 1; fi; \
	echo "installing:$$missing"; \
	$${as}apt-get update -qq && $${as}env DEBIAN_FRONTEND=noninteractive $$command >$${TMPDIR:-/tmp}/terse-deps.$$$$.log 2>&1 \
	  || { cat $${TMPDIR:-/tmp}/terse-deps.$$$$.log >&2; exit 1; }; rm -f $${TMPDIR:-/tmp}/terse-deps.$$$$.log

install: all ## programs, library, headers, terse.pc and openmpi.conf into PREFIX (default /usr/local; DESTDIR is honoured)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include/terse
	install -m 755 $(PROGRAMS) $(DESTDIR)$(PREFIX)/bin
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/terse configs/openmpi.conf
	install -m 644 $(BUILD)/libterse.a $(DESTDIR)$(PREFIX)/lib
	install -m 755 $(BUILD)/libterse.so $(DESTDIR)$(PREFIX)/lib/libterse.so.$(VERSION)
	ln -sf libterse.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/libterse.so.0
	ln -sf libterse.so.0 $(DESTDIR)$(PREFIX)/lib/libterse.so
	install -m 644 common/base/terse_status.h worker/terse_model.h $(DESTDIR)$(PREFIX)/include/terse
	sed 's|"common/base/terse_status.h"|"terse_status.h"|' worker/terse.h > $(DESTDIR)$(PREFIX)/include/terse/terse.h
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|; s|@PRIVATE_LIBS@|$(LDLIBS)|' worker/terse.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/terse.pc
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || PATH="$$PATH:/usr/sbin:/sbin" ldconfig # so that the library is found

-include $(wildcard tests/*/*.mk)

clean: ## remove what was built
	rm -rf build build-*

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  \1|\2/p' Makefile $(sort $(wildcard tests/*/*.mk)) | awk -F'|' '{printf "  make %-16s %s\n", $$1, $$2}' | sed 's/make   /make /'

.PHONY: all unit-one clean help run test test-built test-long unit deps install
-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
