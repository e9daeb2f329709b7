# SPDX-License-Identifier: Apache-2.0
# The transport's own system test: a program, run by cases_transport.py.
$(BUILD)/transport_check: $(BUILD)/obj/tests/system/transport_check.o $(call objs,$(call layer_src,base) $(call layer_src,net))
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
test-built: $(BUILD)/transport_check
