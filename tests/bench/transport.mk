# SPDX-License-Identifier: Apache-2.0
# The transport beside bare MPI; the figures are JSON lines.
$(BUILD)/bench_transport: $(BUILD)/obj/tests/bench/bench_transport.o $(call objs,$(call layer_src,base) $(call layer_src,net))
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
test-built: $(BUILD)/bench_transport # cases_transport.py
bench-transport: $(BUILD)/bench_transport ## round trip, stream and idle CPU, through shared memory and TCP
	$(MPI_ENV) timeout -k 5 120 mpirun --tune configs/openmpi.conf -n 2 $<
	$(MPI_ENV) timeout -k 5 120 mpirun --tune configs/openmpi.conf --mca btl tcp,self -n 2 $<
.PHONY: bench-transport
