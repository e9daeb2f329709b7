# SPDX-License-Identifier: Apache-2.0
# `make bench`: every figure beside its yardstick of the same run. Nothing else should run meanwhile.
$(BUILD)/bench_idle: $(BUILD)/obj/tests/bench/bench_idle.o $(BUILD)/libterse.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
IDLE_SECONDS := 60
bench-idle: all $(BUILD)/bench_idle ## CPU of idle servers and workers over IDLE_SECONDS
	BUILD=$(BUILD) $(MPI_ENV) python3 tests/bench/bench_idle.py $(IDLE_SECONDS)
bench-codec: $(BUILD)/terse ## encode and decode of every family of pipelines, beside the bare sweep
	$(BUILD)/terse bench codec
readme-table: $(BUILD)/terse ## README's codec table, from a fresh benchmark
	BUILD=$(BUILD) python3 tests/tools/readme_codec_table.py
bench: deps ## all benchmarks: codec, transport, idle CPU (minutes; keep the machine quiet)
	@$(MAKE) --no-print-directory -s all
	@$(MAKE) --no-print-directory -s bench-codec bench-transport bench-idle

.PHONY: bench bench-codec bench-idle readme-table
