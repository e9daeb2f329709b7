# SPDX-License-Identifier: Apache-2.0
# Fuzz targets (tests/fuzz/fuzz_*.c): `make fuzz` with libFuzzer, `make fuzz-replay` the corpus alone, in make test.

FUZZ_NAMES  := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_LAYERS := base codec wire contract ckpt
FUZZ_RUNS   := 200000
FUZZ_OBJ    := $(foreach l,$(FUZZ_LAYERS),$(call objs,$(call layer_src,$(l)))) $(GEN_OBJ) \
               $(call objs,tests/unit/pipeline_generator.c)
FUZZ_LIBS   := $(shell pkg-config --libs libprotobuf-c libzstd libxxhash jansson libsodium 2>/dev/null) -lm -pthread
FUZZ_SAN    := address,undefined

$(BUILD)/fuzz/replay-%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(BUILD)/obj/tests/fuzz/replay_main.o $(FUZZ_OBJ)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(FUZZ_LIBS)
$(BUILD)/fuzz/run-%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(FUZZ_OBJ)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(FUZZ_LIBS)

fuzz-replay-built: $(foreach t,$(FUZZ_NAMES),$(BUILD)/fuzz/replay-$(t))

fuzz-replay: fuzz-replay-built ## run the fuzz corpus once
	@for t in $(FUZZ_NAMES); do find tests/fuzz/corpus/$$t -type f 2>/dev/null | sort | xargs -r $(BUILD)/fuzz/replay-$$t || exit 1; done

fuzz: ## fuzz each target FUZZ_RUNS times under ASan and UBSan (needs clang)
	@$(MAKE) --no-print-directory -s CC=clang BUILD=build-fuzz fuzz-run FUZZ_RUNS=$(FUZZ_RUNS) \
	  SAN_FLAGS="-fsanitize=fuzzer-no-link,$(FUZZ_SAN) -fno-sanitize-recover=undefined -fno-omit-frame-pointer"

# New inputs stay in the build; what is worth keeping is copied into tests/fuzz/corpus by hand.
fuzz-run: $(foreach t,$(FUZZ_NAMES),$(BUILD)/fuzz/run-$(t))
	@for t in $(FUZZ_NAMES); do \
	  mkdir -p $(BUILD)/fuzz/corpus/$$t tests/fuzz/corpus/$$t; echo "fuzz: $$t"; \
	  nice $(BUILD)/fuzz/run-$$t -runs=$(FUZZ_RUNS) -max_len=2048 -rss_limit_mb=1024 -timeout=10 -print_final_stats=1 \
	    -artifact_prefix=$(BUILD)/fuzz/found-$$t- $(BUILD)/fuzz/corpus/$$t tests/fuzz/corpus/$$t \
	    > $(BUILD)/fuzz/$$t.log 2>&1 || { tail -60 $(BUILD)/fuzz/$$t.log; exit 1; }; \
	  grep number_of_executed_units $(BUILD)/fuzz/$$t.log; done

.PHONY: fuzz fuzz-run fuzz-replay fuzz-replay-built
