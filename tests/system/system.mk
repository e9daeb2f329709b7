# SPDX-License-Identifier: Apache-2.0
# The transport's own system test: a program, run by cases_transport.py.
$(BUILD)/transport_check: $(BUILD)/obj/tests/system/transport_check.o $(call objs,$(call layer_src,base) $(call layer_src,net))
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
test-built: $(BUILD)/transport_check
# Somebody at a daemon's door who says anything, run by cases_attach.py.
$(BUILD)/knock: $(BUILD)/obj/tests/system/knock.o $(call objs,$(call layer_src,base) $(call layer_src,net))
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
test-built: $(BUILD)/knock
# Of gradients that a step sends from where they lie, run by cases_lend.py.
$(BUILD)/lend_check: $(BUILD)/obj/tests/system/lend_check.o $(BUILD)/libterse.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
test-built: $(BUILD)/lend_check

# System tests of a sanitizer's build: a case in which any process had something reported fails. One at a time, so that it
# is known whose it is. What is not Terse's own is left out by the lists beside this file.
SAN_LOG     := $(abspath $(BUILD))/sanitizer
SAN_OPTIONS := log_path=$(SAN_LOG):suppressions=$(abspath tests/system/$(SAN).supp)
SYSTEM_ENV  := $(if $(filter asan,$(SAN)),ASAN_OPTIONS=detect_leaks=1:log_path=$(SAN_LOG) LSAN_OPTIONS=$(SAN_OPTIONS):print_suppressions=0 UBSAN_OPTIONS=print_stacktrace=1:log_path=$(SAN_LOG)) \
               $(if $(filter tsan,$(SAN)),TSAN_OPTIONS=ignore_noninstrumented_modules=1:$(SAN_OPTIONS)) \
               $(if $(SAN),TERSE_SANITIZER_LOG=$(SAN_LOG) TERSE_TEST_PATIENCE=$(if $(filter tsan,$(SAN)),5,2))
CASES :=
system: all $(BUILD)/fault_worker $(BUILD)/clock_jump.so $(BUILD)/ledger_worker $(BUILD)/join_worker $(BUILD)/transport_check $(BUILD)/lend_check $(BUILD)/knock $(BUILD)/bench_round $(BUILD)/bench_transport ## system tests alone (SAN=asan or tsan; CASES="join-* keep-*" for some)
	$(SYSTEM_ENV) BUILD=$(BUILD) python3 tests/system/run.py --at-once $(if $(SAN),1,$(CASES_AT_ONCE)) $(CASES)
.PHONY: system
