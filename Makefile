# SPDX-License-Identifier: Apache-2.0
# `make help` lists the targets. Variants build beside each other: SAN=asan|tsan, CC=clang, BUILD=dir.

CC      := gcc
SAN     :=
WERROR  :=
BUILD   := build$(if $(SAN),-$(SAN))$(if $(filter clang%,$(CC)),-clang)
PREFIX  := /usr/local
VERSION := 0.1.0
# Which common layers a development build of one test links (make unit-one).
LAYERS  := base codec wire net contract config metrics

PACKAGES := gcc make pkg-config libopenmpi-dev openmpi-bin openssh-client libuv1-dev protobuf-c-compiler \
  libprotobuf-c-dev check libcyaml-dev libyaml-dev libjansson-dev libzstd-dev zlib1g-dev libopenblas-dev \
  liblapacke-dev libsodium-dev libxxhash-dev dataset-fashion-mnist python3-minimal

PKGS := ompi-c libuv libprotobuf-c libcyaml yaml-0.1 jansson libzstd zlib libxxhash openblas
have_pkg := $(shell command -v pkg-config)
ifneq ($(have_pkg),)
DEP_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
DEP_LIBS   := $(shell pkg-config --libs $(PKGS) 2>/dev/null)
CHECK_LIBS := $(shell pkg-config --libs check 2>/dev/null)
endif
ARCH := $(shell uname -m)

WARN := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla $(if $(WERROR),-Werror)
OPT  := -O2 -g
SAN_FLAGS := $(if $(filter asan,$(SAN)),-fsanitize=address$(comma)undefined -fno-omit-frame-pointer -fno-sanitize-recover=undefined) \
             $(if $(filter tsan,$(SAN)),-fsanitize=thread)
comma := ,
SAN_FLAGS := $(strip $(SAN_FLAGS))
CFLAGS   := -std=c11 $(OPT) $(WARN)
CPPFLAGS := -D_GNU_SOURCE -I. -I$(BUILD)/gen $(patsubst -I%,-isystem %,$(DEP_CFLAGS))
ALL_CFLAGS := $(CFLAGS) -fPIC -fvisibility=hidden -ffp-contract=off -fno-math-errno -pthread $(SAN_FLAGS)
LDLIBS   := $(DEP_LIBS) -lm -pthread -ldl
LDFLAGS  := -Wl,--as-needed $(SAN_FLAGS)

# ---- sources: found, not listed ------------------------------------------------------------------------------------
layer_src  = $(wildcard common/$(1)/*.c)
COMMON_LAYERS := base codec wire net contract config metrics
CLI_SRC     := $(call layer_src,cli)
CLIENT_SRC  := $(wildcard worker/client/*.c)
WORKER_SRC  := $(wildcard worker/trainer/*.c worker/models/*.c worker/data/*.c)
SERVER_SRC  := $(wildcard server/*.c)
SERVER_CORE := $(filter-out server/main.c server/loop.c,$(SERVER_SRC))
UNIT_SRC    := $(wildcard tests/unit/test_*.c)
UNIT_SUPPORT := $(filter-out tests/unit/test_% tests/unit/runner.c,$(wildcard tests/unit/*.c))
SIM_SUPPORT := $(wildcard tests/sim/*.c)
ifneq ($(ARCH),x86_64)
DROP_SRC := $(wildcard common/*/*_avx2.c common/*/*_avx512.c)
endif
ifneq ($(ARCH),aarch64)
DROP_SRC += $(wildcard common/*/*_neon.c)
endif

objs = $(patsubst %.c,$(BUILD)/obj/%.o,$(filter-out $(DROP_SRC),$(1)))
GEN := $(BUILD)/gen/terse.pb-c.h
GEN_OBJ := $(BUILD)/obj/gen/terse.pb-c.o
COMMON_OBJ := $(foreach l,$(COMMON_LAYERS),$(call objs,$(call layer_src,$(l)))) $(GEN_OBJ)

# ---- programs --------------------------------------------------------------------------------------------------------
PROGRAMS := $(BUILD)/terse $(BUILD)/terse-server $(BUILD)/terse-worker
LIBS     := $(BUILD)/libterse.a $(BUILD)/libterse.so

.DEFAULT_GOAL := all
all: $(PROGRAMS) $(LIBS) ## build everything (into build/)

$(BUILD)/terse: $(call objs,$(CLI_SRC)) $(COMMON_OBJ)
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(BUILD)/terse-server: $(call objs,$(SERVER_SRC)) $(COMMON_OBJ)
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
$(BUILD)/obj/%_avx2.o: ISA := -mavx2 -mbmi2 -mlzcnt -mpopcnt -mf16c
$(BUILD)/obj/%_avx512.o: ISA := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mbmi2 -mlzcnt -mpopcnt -mf16c
$(BUILD)/obj/%.o: %.c | $(GEN)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(ALL_CFLAGS) $(ISA) -MMD -MP -c -o $@ $<

# ---- unit tests: one file a module, found by name ---------------------------------------------------------------------
$(BUILD)/gen/test_list.h: $(UNIT_SRC)
	@mkdir -p $(@D)
	@for t in $(basename $(notdir $(UNIT_SRC))); do echo "X($$t)"; done > $@
$(BUILD)/obj/tests/unit/runner.o: $(BUILD)/gen/test_list.h
TEST_OBJ := $(call objs,tests/unit/runner.c $(UNIT_SRC) $(UNIT_SUPPORT) $(SIM_SUPPORT)) \
            $(call objs,$(SERVER_CORE) $(CLIENT_SRC)) $(COMMON_OBJ)
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

clean: ## remove what was built
	rm -rf build build-*

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' Makefile | awk -F'|' '{printf "  make %-14s %s\n", $$1, $$2}' | sed 's/make   /make /'

.PHONY: all unit-one clean help
-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
