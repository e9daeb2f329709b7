# SPDX-License-Identifier: Apache-2.0
# The fault matrix: its worker, and a clock that jumps (matrix.py; a part of it is in the system tests).
$(BUILD)/fault_worker: $(BUILD)/obj/tests/fault/fault_worker.o $(BUILD)/libterse.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(BUILD)/clock_jump.so: tests/fault/clock_jump.c
	$(CC) -std=c11 -O2 -fPIC -shared -D_GNU_SOURCE $(WARN) -o $@ $<
$(BUILD)/ledger_worker: $(BUILD)/obj/tests/fault/ledger_worker.o $(BUILD)/libterse.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
test-built: $(BUILD)/fault_worker $(BUILD)/clock_jump.so $(BUILD)/ledger_worker
$(BUILD)/join_worker: $(BUILD)/obj/tests/fault/join_worker.o $(BUILD)/libterse.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
test-built: $(BUILD)/join_worker
