# SPDX-License-Identifier: Apache-2.0
# `make bench`: every figure beside its yardstick of the same run. Nothing else should run meanwhile.
$(BUILD)/bench_idle: $(BUILD)/obj/tests/bench/bench_idle.o $(BUILD)/libterse.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
IDLE_SECONDS := 60
bench-idle: all $(BUILD)/bench_idle ## CPU of idle servers and workers over IDLE_SECONDS
	BUILD=$(BUILD) $(MPI_ENV) python3 tests/bench/bench_idle.py $(IDLE_SECONDS)
$(BUILD)/bench_optimizer: $(call objs,tests/bench/bench_optimizer.c $(wildcard server/optimizer*.c) server/slice_math.c) $(COMMON_OBJ)
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
bench-optimizer: $(BUILD)/bench_optimizer ## each optimizer's step beside a sweep of the same memory traffic
	$(BUILD)/bench_optimizer
bench-codec: $(BUILD)/terse ## encode and decode of every family of pipelines, beside the bare sweep
	$(BUILD)/terse bench codec
bench-codec-levels: $(BUILD)/terse ## encode and decode over the sweep at AVX2 and AVX-512, medians of five runs, beside their bounds (20 minutes)
	BUILD=$(BUILD) python3 tests/bench/bench_codec_levels.py
readme-table: $(BUILD)/terse ## README's codec table, from a fresh benchmark
	BUILD=$(BUILD) python3 tests/tools/readme_codec_table.py
bench-memory: all ## memory of a server at 100 M parameters, sparse, by optimizer (2 minutes, 8 GB)
	BUILD=$(BUILD) $(MPI_ENV) python3 tests/bench/bench_memory.py
.PHONY: bench-memory
bench-checkpoint: all ## how late a server's loop is during a checkpoint of 100 M parameters, beside outside one (2 minutes, 4 GB)
	BUILD=$(BUILD) $(MPI_ENV) python3 tests/bench/bench_checkpoint.py
.PHONY: bench-checkpoint
bench: deps ## all benchmarks: codec, optimizers, transport, server, memory, networks, idle CPU (a quarter of an hour; keep the machine quiet)
	@$(MAKE) --no-print-directory -s all
	@$(MAKE) --no-print-directory -s bench-codec bench-optimizer bench-transport bench-server bench-memory bench-checkpoint bench-net bench-idle

.PHONY: bench bench-codec bench-optimizer bench-codec-levels bench-idle readme-table

# ---- whole rounds over networks, and what one server takes -------------------------------------------------------------
$(BUILD)/bench_round: $(call objs,tests/bench/bench_round.c $(wildcard worker/models/*.c worker/data/*.c)) $(BUILD)/libterse.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
test-built: $(BUILD)/bench_round # cases_stream.py
$(BUILD)/bench_allreduce: $(BUILD)/obj/tests/bench/bench_allreduce.o
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
bench-net: all $(BUILD)/bench_round $(BUILD)/bench_allreduce ## rounds over shaped links between network namespaces (root), beside Open MPI's all-reduce
	BUILD=$(BUILD) python3 tests/bench/bench_net.py
bench-sites: all ## two sites behind slow links, with and without relays (root)
	BUILD=$(BUILD) python3 tests/bench/bench_sites.py
.PHONY: bench-net bench-sites
$(BUILD)/bench_push_pull: $(BUILD)/obj/tests/bench/bench_push_pull.o
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(BUILD)/obj/tests/bench/bench_push_pull.o: ISA := -O3
$(BUILD)/bench_requests: $(BUILD)/obj/tests/bench/bench_requests.o $(BUILD)/libterse.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
bench-server: all $(BUILD)/bench_round $(BUILD)/bench_push_pull $(BUILD)/bench_requests ## what one server takes: dense stream, sparse rounds, small requests
	BUILD=$(BUILD) python3 tests/bench/bench_push_pull.py
	BUILD=$(BUILD) python3 tests/bench/bench_requests.py
bench-replicas: all $(BUILD)/bench_round ## what servers.replicas costs a round, dense and sparse
	BUILD=$(BUILD) python3 tests/bench/bench_replicas.py
.PHONY: bench-server bench-replicas
