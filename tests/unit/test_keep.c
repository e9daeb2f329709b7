/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is kept survives SIGKILL at any instruction. A child pushes through the real client; it is killed after a random
 * time, or single-stepped to a random instruction of a push; what it leaves is compared with a reference that knows
 * nothing of files: every element as before the interrupted push, or with the gradient in it, or, where the packet
 * counts as sent, as after it. Gradients are small integers, so where the pipeline is exact sums are, too.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "common/keep/keep_file.h"
#include "tests/unit/client_stage.h"

#define TENSORS 2
#define STEPS 60u
#define LOG_ROOM ((size_t)32 << 20)
#define MOMENTUM 0.5f

#define MOST_ELEMS 70000
static size_t tensor_elems[TENSORS] = {MOST_ELEMS, 300}; /* as large as two halves at work side by side take; or small */

/* What the played server has accepted, in memory that the child shares. */
typedef struct {
    _Atomic uint64_t used;
    atomic_bool began; /* the first step is done */
    uint8_t bytes[LOG_ROOM];
} accepted_log;

typedef struct {
    uint32_t slice, len;
    uint64_t step;
} accepted;

typedef struct {
    const char *pipeline;
    const char *more;     /* one override, or NULL */
    bool momentum;
    bool exact;           /* sums of integers stay exact */
} keep_case;

static const keep_case cases[] = {
    {"topk:0.01 | fp32 | rice", NULL, false, true},
    {"topk:0.01 | int8 | rice", NULL, true, false},
    {"topk:0.2 | fp16 | zstd:1", NULL, true, true},
    {"randomk:0.05 | fp16", NULL, false, true},
    {"fp16", NULL, false, true},
    {"int8", NULL, false, false},
    {"fp32 | zstd:1", NULL, false, true},
    {"sign", NULL, false, false},
    {"natural", NULL, false, false},
    {"powersgd:1 | fp16", NULL, false, false},
    {"int8:tensor", NULL, false, false},
    {"topk:0.01 | fp32", "error_feedback.variant=decayed", false, false},
    {"topk:0.01 | fp32", "error_feedback.residual=bf16", false, false},
};
#define CASES (sizeof cases / sizeof cases[0])

#define GRADIENTS 3u

/* One of a few, by turns. */
static void gradient_of(uint32_t t, uint64_t step, float *out) {
    static float made[TENSORS][GRADIENTS][MOST_ELEMS];
    static bool known[TENSORS][GRADIENTS];
    float *g = made[t][step % GRADIENTS];
    for (size_t i = 0; i < tensor_elems[t] && !known[t][step % GRADIENTS]; i++) {
        uint64_t random = ts_random_key(77, t, i, step % GRADIENTS, 0);
        int size = i % 97 == 0 ? 200 : 3; /* long-tailed */
        g[i] = (float)((int)(random % (unsigned)(2 * size + 1)) - size);
    }
    known[t][step % GRADIENTS] = true;
    memcpy(out, g, tensor_elems[t] * sizeof *g);
}

static unsigned overrides_of(const keep_case *c, const char *dir, char (*text)[160], const char **list) {
    unsigned count = 0;
    snprintf(text[count], sizeof text[0], "error_feedback.keep=%s", dir), list[count] = text[count], count++;
    snprintf(text[count], sizeof text[0], "push.default=%s", c->pipeline), list[count] = text[count], count++;
    if (c->momentum) list[count++] = "error_feedback.momentum_correction=0.5";
    if (c->more) list[count++] = c->more;
    list[count++] = tensor_elems[0] == MOST_ELEMS ? "servers.slice_elems=20000" : "servers.slice_elems=2000";
    list[count] = NULL;
    return count;
}

static void open_case(stage *s, const keep_case *c, const char *dir, float *params[TENSORS]) {
    char text[3][160];
    const char *list[8];
    (void)overrides_of(c, dir, text, list);
    open_stage(s, 1, 1, 0, list);
    for (uint32_t t = 0; t < TENSORS; t++) {
        int64_t shape[2] = {(int64_t)tensor_elems[t] / 50, 50};
        uint32_t id;
        params[t] = ts_mem_aligned(tensor_elems[t], sizeof(float));
        ck_assert_ok(ts_client_declare(s->client, t ? "b" : "a", shape, 2, params[t], &id));
    }
}

/* The played server takes every packet of the pushes it has got, once each, and answers. */
static void serve(stage *s, accepted_log *log, uint64_t step) {
    static const float zeros[MOST_ELEMS];
    const ts_contract *contract = ts_client_contract(s->client);
    for (unsigned f = 0; f < s->received[0].count; f++) {
        const ts_frame *frame = &s->received[0].frame[f];
        if (frame->header->body_case != TERSE__HEADER__BODY_PUSH) continue;
        ts_bundle_reader reader = ts_bundle_read(frame->payload, frame->payload_bytes, contract->server_slices[0]);
        uint32_t local;
        const uint8_t *packet;
        size_t len;
        while (ts_bundle_next(&reader, &local, &packet, &len) == TERSE_OK) {
            accepted entry = {.len = (uint32_t)len, .step = step};
            for (uint32_t i = 0; i < contract->slice_count; i++)
                if (contract->slices[i].local == local) entry.slice = i;
            uint64_t at = atomic_load(&log->used);
            ck_assert_uint_lt(at + sizeof entry + len, LOG_ROOM);
            memcpy(log->bytes + at, &entry, sizeof entry);
            memcpy(log->bytes + at + sizeof entry, packet, len);
            atomic_store(&log->used, at + sizeof entry + len);
        }
    }
    empty_inbox(&s->received[0]);
    for (uint32_t i = 0; i < contract->slice_count; i++)
        say_data(s, 0, step + 1, true, false, contract->slices[i].local, zeros, contract->slices[i].n * sizeof(float));
}

/* The life of a worker; with markers it stops itself before and after the push of step `marked`. */
static void live(const keep_case *c, const char *dir, accepted_log *log, uint64_t marked) {
    stage s;
    float *params[TENSORS], *gradient = ts_mem_aligned(tensor_elems[0], sizeof(float));
    open_case(&s, c, dir, params);
    attach(&s);
    for (uint64_t step = 0; step < STEPS; step++) {
        for (uint32_t t = 0; t < TENSORS; t++) {
            gradient_of(t, step, gradient);
            bool stops = step == marked && t == 0;
            if (stops) raise(SIGUSR1);
            ck_assert_ok(ts_client_push(s.client, t, gradient));
            if (stops) raise(SIGUSR2);
        }
        run_stage(&s, 1);
        for (uint32_t t = 0; t < TENSORS; t++) ck_assert_ok(ts_client_pull(s.client, t));
        serve(&s, log, step);
        for (uint32_t t = 0; t < TENSORS; t++) ck_assert(ts_client_pulled(s.client, t));
        atomic_store(&log->began, true);
    }
}

/* ---- the reference ---- */

typedef struct {
    stage s;               /* a client that never ran: for its contract and config */
    float *params[TENSORS];
    ts_encoder *encoder;
    ts_scratch *scratch;
    float *before[2], *swept[2], *after[2], *gradient, *spare; /* residual, velocity */
} reference;

/* residual and velocity of tensor t after `steps` pushes, and what the next does to them. */
static void run_reference(reference *r, const keep_case *c, uint32_t t, uint64_t steps) {
    const ts_config *config = r->s.config;
    ts_codec_spec spec = ts_contract_push_spec(ts_client_contract(r->s.client), t, 0);
    bool brief = config->error_feedback.residual == TS_RESIDUAL_BF16;
    size_t n = spec.n, bytes = n * sizeof(float);
    uint8_t *packet = ts_mem_aligned(8 * n + 65536, 1), *half = ts_mem_aligned(2 * n, 1);
    ck_assert_ok(ts_encoder_create(&spec, &r->encoder));
    for (int a = 0; a < 2; a++) memset(r->after[a], 0, bytes);
    for (uint64_t step = 0; step <= steps; step++) {
        gradient_of(t, step, r->gradient);
        for (int a = 0; a < 2; a++) memcpy(r->before[a], r->after[a], bytes);
        ts_encode_input input = {.gradient = r->gradient, .gradient_scale = 1, .residual = r->after[0], .step = step,
                                 .velocity = c->momentum && spec.pipeline->select ? r->after[1] : NULL,
                                 .momentum = MOMENTUM, .masking = true};
        if (config->error_feedback.variant == TS_FEEDBACK_DECAYED) input.decay = (float)config->error_feedback.beta;
        for (int a = 0; a < 2; a++) memcpy(r->swept[a], r->before[a], bytes);
        ts_sweep sweep = {.gradient = r->gradient, .scale = 1, .residual = r->swept[0], .momentum = MOMENTUM,
                          .velocity = input.velocity ? r->swept[1] : NULL};
        (void)ts_kernels_get(TS_SIMD_SCALAR)->sweep(&sweep, 0, n);
        ck_assert_ok(ts_encoder_begin(r->encoder, r->scratch, &input, NULL));
        for (uint32_t i = 0; i < ts_codec_slices(&spec); i++) {
            size_t len;
            ck_assert_ok(ts_encoder_slice(r->encoder, r->scratch, i, packet, 8 * n + 65536, &len));
        }
        if (brief) {
            ts_kernels_get(TS_SIMD_SCALAR)->bf16_encode(r->after[0], n, half);
            ts_kernels_get(TS_SIMD_SCALAR)->bf16_decode(half, n, r->after[0]);
        }
    }
    ts_encoder_destroy(r->encoder);
    ts_mem_free(packet);
    ts_mem_free(half);
}

static bool same(float a, float b) { return ts_float_bits(a) == ts_float_bits(b); }

/* Σ of the accepted packets and the live ones, each (slice, step) once; the number of pushes that are complete. */
static uint64_t add_sent(reference *r, const accepted_log *log, const ts_keep *keep, uint32_t t, double *sum,
                         uint64_t *last_of_slice) {
    const ts_contract *contract = ts_client_contract(r->s.client);
    ts_codec_spec spec = ts_contract_push_spec(contract, t, 0);
    uint64_t steps = 0;
    for (uint32_t i = 0; i < contract->slice_count; i++) last_of_slice[i] = UINT64_MAX;
    for (uint64_t at = 0; at < atomic_load(&log->used);) {
        accepted entry;
        memcpy(&entry, log->bytes + at, sizeof entry);
        at += sizeof entry;
        if (contract->slices[entry.slice].tensor == t) {
            const ts_slice *slice = &contract->slices[entry.slice];
            memset(r->spare, 0, slice->n * sizeof(float));
            ck_assert_ok(ts_decode_add(r->scratch, &spec, NULL, entry.slice - contract->tensors[t].first_slice, entry.step,
                                       log->bytes + at, entry.len, r->spare));
            for (size_t i = 0; i < slice->n; i++) sum[slice->first + i] += (double)r->spare[i];
            ck_assert_msg(last_of_slice[entry.slice] == entry.step - 1, "slice %u: step %llu after %llu", entry.slice,
                          (unsigned long long)entry.step, (unsigned long long)last_of_slice[entry.slice]);
            last_of_slice[entry.slice] = entry.step;
        }
        at += entry.len;
    }
    for (uint32_t i = 0; i < contract->slice_count; i++) {
        ts_keep_packet slot = ts_keep_packet_of(keep, i);
        if (contract->slices[i].tensor != t || !ts_keep_live(keep, i) || slot.step == last_of_slice[i]) continue;
        ck_assert_uint_eq(slot.step, last_of_slice[i] + 1);
        const ts_slice *slice = &contract->slices[i];
        memset(r->spare, 0, slice->n * sizeof(float));
        ck_assert_ok(ts_decode_add(r->scratch, &spec, NULL, i - contract->tensors[t].first_slice, slot.step, slot.bytes,
                                   slot.len, r->spare));
        for (size_t j = 0; j < slice->n; j++) sum[slice->first + j] += (double)r->spare[j];
        last_of_slice[i] = slot.step;
    }
    steps = UINT64_MAX;
    for (uint32_t i = 0; i < contract->slice_count; i++)
        if (contract->slices[i].tensor == t && last_of_slice[i] + 1 < steps) steps = last_of_slice[i] + 1;
    return steps;
}

/* One tensor against the reference. Returns how many of its elements were in the middle of a push. */
static size_t check_tensor(reference *r, const keep_case *c, const accepted_log *log, const ts_keep *keep, uint32_t t,
                           const char *where) {
    const ts_contract *contract = ts_client_contract(r->s.client);
    const ts_keep_tensor *kept = &keep->tensors[t];
    size_t n = tensor_elems[t], middle = 0;
    double *sum = ts_mem_calloc(n, sizeof *sum);
    uint64_t last[16];
    ck_assert_uint_le(contract->slice_count, 16);
    uint64_t steps = add_sent(r, log, keep, t, sum, last);
    run_reference(r, c, t, steps);
    double *entered = ts_mem_calloc(n, sizeof *entered);
    for (uint64_t step = 0; step < steps; step++) {
        gradient_of(t, step, r->gradient);
        for (size_t i = 0; i < n; i++) entered[i] += (double)r->gradient[i];
    }
    gradient_of(t, steps, r->gradient);
    for (uint32_t s = contract->tensors[t].first_slice; s < contract->tensors[t].first_slice + contract->tensors[t].slices; s++) {
        bool sent = last[s] == steps;
        for (size_t i = contract->slices[s].first; i < contract->slices[s].first + contract->slices[s].n; i++) {
            float residual, velocity = kept->velocity ? kept->velocity[i] : 0;
            if (kept->brief) ts_kernels_get(TS_SIMD_SCALAR)->bf16_decode(kept->brief + 2 * i, 1, &residual);
            else residual = kept->residual[i];
            bool before = same(residual, r->before[0][i]) && (!kept->velocity || same(velocity, r->before[1][i]));
            bool swept = same(residual, r->swept[0][i]) && (!kept->velocity || same(velocity, r->swept[1][i]));
            /* A quantised block that is taken back is what it was to rounding, as any refused packet. */
            if (!c->exact && !kept->velocity)
                swept = swept || fabsf(residual - r->swept[0][i]) <= 1e-6f * (fabsf(residual) + fabsf(r->after[0][i] - residual));
            bool after = same(residual, r->after[0][i]) && (!kept->velocity || same(velocity, r->after[1][i]));
            if (!(sent ? after : before || (kept->guarded && swept))) /* a check that holds costs a system call */
                ck_abort_msg("%s: %s, tensor %u, element %zu, %ssent in step %llu: residual %g, velocity %g; before %g, %g, swept "
                          "%g, %g, after %g, %g", where, c->pipeline, t, i, sent ? "" : "not ", (unsigned long long)steps,
                          (double)residual, (double)velocity, (double)r->before[0][i], (double)r->before[1][i],
                          (double)r->swept[0][i], (double)r->swept[1][i], (double)r->after[0][i], (double)r->after[1][i]);
            bool in = sent || !before;
            middle += !sent && !before;
            if (!c->exact || kept->velocity) continue;
            double total = entered[i] + (in ? (double)r->gradient[i] : 0);
            if (sum[i] + (double)residual != total)
                ck_abort_msg("%s: %s, element %zu: sent %g + residual %g, entered %g", where,
                          c->pipeline, i, sum[i], (double)residual, total);
        }
    }
    ts_mem_free(sum);
    ts_mem_free(entered);
    return middle;
}

typedef struct {
    char dir[64];
    accepted_log *log;
    unsigned interrupted; /* kills that left a tensor in the middle */
    float scratch[MOST_ELEMS];
} bench;

static void open_bench(bench *b) {
    snprintf(b->dir, sizeof b->dir, "/dev/shm/terse-test-keep-%ld", (long)getpid());
    b->log = mmap(NULL, sizeof *b->log, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ck_assert_ptr_ne(b->log, MAP_FAILED);
    b->interrupted = 0;
}

static void remove_file(const bench *b) {
    char path[96];
    snprintf(path, sizeof path, "%s/worker-0.keep", b->dir);
    unlink(path);
}

static void close_bench(bench *b) {
    remove_file(b);
    rmdir(b->dir);
    munmap(b->log, sizeof *b->log);
}

static ts_keep_options options_of(const char *dir, const stage *s) {
    return (ts_keep_options){.dir = dir, .job = "default", .workers = 1, .contract = ts_client_contract(s->client),
                             .form = {.brief = s->config->error_feedback.residual == TS_RESIDUAL_BF16,
                                      .estimates = ts_config_estimates(s->config),
                                      .decayed = s->config->error_feedback.variant == TS_FEEDBACK_DECAYED}};
}

/* After a kill: opens what was left, as the next life would, and compares. */
static void examine(bench *b, const keep_case *c, const char *where) {
    reference r = {0};
    char path[96];
    snprintf(path, sizeof path, "%s/worker-0.keep", b->dir);
    if (access(path, F_OK) != 0) return; /* killed before there was anything */
    open_case(&r.s, c, "off", r.params);
    ck_assert_ok(ts_client_start(r.s.client));
    ck_assert_ok(ts_scratch_create(&r.scratch));
    float **arrays[] = {&r.before[0], &r.before[1], &r.swept[0], &r.swept[1], &r.after[0], &r.after[1], &r.gradient, &r.spare};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) *arrays[i] = ts_mem_aligned(tensor_elems[0], sizeof(float));
    ts_keep *keep = NULL;
    ts_error error = {""};
    ts_keep_options options = options_of(b->dir, &r.s);
    terse_status status = ts_keep_open(&options, &keep, &error);
    ck_assert_msg(status == TERSE_OK, "%s", error.text);
    size_t middle = 0;
    if (ts_keep_found(keep))
        for (uint32_t t = 0; t < TENSORS; t++) middle += check_tensor(&r, c, b->log, keep, t, where);
    b->interrupted += middle > 0;
    ts_keep_close(keep, true);
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) ts_mem_free(*arrays[i]);
    for (uint32_t t = 0; t < TENSORS; t++) ts_mem_free(r.params[t]);
    ts_scratch_destroy(r.scratch);
    close_stage(&r.s);
}

static pid_t start_child(bench *b, const keep_case *c, uint64_t marked, bool traced) {
    atomic_store(&b->log->used, 0);
    atomic_store(&b->log->began, false);
    remove_file(b);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child > 0) return child;
    int nowhere = open("/dev/null", O_RDWR); /* a kill must not cut the test library's own messages */
    for (int other = 3; other < 64; other++)
        if (other != nowhere && fcntl(other, F_GETFD) >= 0) dup2(nowhere, other);
    if (traced) ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    live(c, b->dir, b->log, marked);
    _exit(0);
}

#define INSTRUCTIONS 60000u /* of about as many in a push of a small tensor */

static unsigned rounds_wanted(unsigned normal) { return getenv("TERSE_TEST_LONG") ? 10 * normal : normal; }

START_TEST(kills_at_random_times_lose_nothing) {
    bench b;
    open_bench(&b);
    for (uint32_t t = 0; t < TENSORS; t++)
        for (uint64_t step = 0; step < GRADIENTS; step++) gradient_of(t, step, b.scratch);
    ts_random random = ts_random_start(ts_random_key(5, 0, 0, 0, 0));
    for (unsigned round = 0; round < rounds_wanted(17); round++) {
        for (size_t at = 0; at < CASES; at++) {
            char where[64];
            uint32_t delay_us = ts_random_below(&random, 6000);
            pid_t child = start_child(&b, &cases[at], UINT64_MAX, false);
            struct timespec delay = {0, (long)delay_us * 1000}, moment = {0, 100000};
            while (!atomic_load(&b.log->began) && waitpid(child, NULL, WNOHANG) == 0) nanosleep(&moment, NULL);
            nanosleep(&delay, NULL);
            kill(child, SIGKILL);
            waitpid(child, NULL, 0);
            snprintf(where, sizeof where, "killed after %u us", delay_us);
            examine(&b, &cases[at], where);
        }
    }
    ck_assert_uint_gt(b.interrupted, 10); /* and they do come in the middle */
    close_bench(&b);
}
END_TEST

/* Runs to the next stop by a signal of the child's own. */
static bool run_to(pid_t child, int signal) {
    int status;
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
        if (WSTOPSIG(status) == signal) return true;
        if (ptrace(PTRACE_CONT, child, NULL, (void *)0) != 0) break;
    }
    return false;
}

/* Single steps until `most` instructions or the signal. Returns how many. */
static uint64_t step_to(pid_t child, uint64_t most, int signal) {
    int status;
    for (uint64_t count = 0; count < most; count++) {
        if (ptrace(PTRACE_SINGLESTEP, child, NULL, (void *)0) != 0 || waitpid(child, &status, 0) != child) return count;
        if (!WIFSTOPPED(status) || WSTOPSIG(status) == signal) return count;
    }
    return most;
}

START_TEST(kills_at_any_instruction_of_a_push_lose_nothing) {
    bench b;
    open_bench(&b);
    for (uint32_t t = 0; t < TENSORS; t++)
        for (uint64_t step = 0; step < GRADIENTS; step++) gradient_of(t, step, b.scratch);
    ts_random random = ts_random_start(ts_random_key(6, (uint64_t)_i, 0, 0, 0));
    const keep_case *c = &cases[_i];
    tensor_elems[0] = 4500;
    for (unsigned round = 0; round < rounds_wanted(1); round++) {
        char where[64];
        uint64_t at = ts_random_below(&random, INSTRUCTIONS);
        pid_t child = start_child(&b, c, 2, true);
        bool traced = run_to(child, SIGUSR1);
        uint64_t done = traced ? step_to(child, at, SIGUSR2) : 0;
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        snprintf(where, sizeof where, "killed at instruction %llu", (unsigned long long)done);
        examine(&b, c, where);
        if (!traced) fprintf(stderr, "keep: this machine does not let a process be traced; kills at random times remain\n");
    }
    close_bench(&b);
}
END_TEST

TCase *test_keep(void);
TCase *test_keep(void) {
    TCase *tests = tcase_create("keep");
    tcase_set_timeout(tests, getenv("TERSE_TEST_LONG") ? 1200 : 120);
    tcase_add_test(tests, kills_at_random_times_lose_nothing);
    tcase_add_loop_test(tests, kills_at_any_instruction_of_a_push_lose_nothing, 0, (int)CASES);
    return tests;
}
