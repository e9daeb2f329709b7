/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the transport costs over bare MPI. Two ranks; JSON lines on rank 0, every figure beside its yardstick of the
 * same run.
 *
 *   mpirun --tune configs/openmpi.conf -n 2 bench_transport [rounds=N] [idle=S] [safety=US]
 *   mpirun --tune configs/openmpi.conf --mca btl tcp,self -n 2 bench_transport
 *
 *   round_trip_us  64 bytes there and back: bare MPI (Isend, Improbe, Imrecv, polling), and two pumps in their loops,
 *                  one trip after the other (traffic flows)
 *   sleepy_us      the same with 10 ms between two trips: both pumps asleep, woken by bells
 *   stream_gb_s    frames of 4 MiB one way, 16 under way
 *   idle_cpu       share of a core that a process with a pump takes when nothing happens; with safety=1000 it polls
 *                  each millisecond, as a pump does whose peers cannot ring it
 *
 * Each is the median of 11 blocks; "spread" is (max - min) / median.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <uv.h>

#include "common/net/mpi_transport.h"
#include "common/net/pump.h"

#define BLOCKS 11
#define SMALL_BYTES 64
#define LARGE_BYTES (4u << 20)
#define LARGE_UNDER_WAY 16
#define RAW_TAG 5
#define SEND_BACK 1 /* first byte of a small frame: send it back; anything else: it is over */

typedef struct bench bench;
struct bench {
    ts_transport *transport;
    uv_loop_t loop;
    uv_timer_t timer;
    ts_pump *pump;
    ts_buffer *small, *large;
    unsigned rounds, idle_s, safety_us;
    unsigned left;       /* trips of this block */
    unsigned large_seen;
    bool answering;
    double sleepy_us[200];
    unsigned sleepy;
    double began;
    void (*on_frame)(bench *b, ts_buffer *frame);
};

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *what, const char *how, double *values, size_t count) {
    qsort(values, count, sizeof *values, by_value);
    double median = values[count / 2];
    printf("{\"bench\": \"transport\", \"what\": \"%s\", \"how\": \"%s\", \"median\": %.4g, \"spread\": %.2f, \"min\": %.4g, "
           "\"max\": %.4g, \"n\": %zu}\n", what, how, median, (values[count - 1] - values[0]) / median, values[0],
           values[count - 1], count);
    fflush(stdout);
}

/* ---- bare MPI ------------------------------------------------------------------------------------------------------------ */

static void raw_receive(void *bytes, int len) {
    int flag = 0;
    MPI_Message message;
    MPI_Request request;
    while (!flag) MPI_Improbe(MPI_ANY_SOURCE, RAW_TAG, MPI_COMM_WORLD, &flag, &message, MPI_STATUS_IGNORE);
    MPI_Imrecv(bytes, len, MPI_BYTE, &message, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void raw_round_trips(const bench *b, bool leads, double *us) {
    char bytes[SMALL_BYTES] = "";
    int other = leads ? 1 : 0;
    for (int block = -1; block < BLOCKS; block++) {
        double began = now_s();
        for (unsigned i = 0; i < b->rounds; i++) {
            if (!leads) raw_receive(bytes, sizeof bytes);
            MPI_Send(bytes, sizeof bytes, MPI_BYTE, other, RAW_TAG, MPI_COMM_WORLD);
            if (leads) raw_receive(bytes, sizeof bytes);
        }
        if (block >= 0) us[block] = (now_s() - began) / b->rounds * 1e6;
    }
}

static void raw_stream(const bench *b, bool leads, double *gb_s) {
    static MPI_Request requests[LARGE_UNDER_WAY];
    char done = 0;
    for (int block = -1; block < BLOCKS; block++) {
        double began = now_s();
        for (int i = 0; i < LARGE_UNDER_WAY; i++) {
            if (leads) MPI_Isend(b->large->data, LARGE_BYTES, MPI_BYTE, 1, RAW_TAG, MPI_COMM_WORLD, &requests[i]);
            else MPI_Irecv(b->large->data, LARGE_BYTES, MPI_BYTE, 0, RAW_TAG, MPI_COMM_WORLD, &requests[i]);
        }
        MPI_Waitall(LARGE_UNDER_WAY, requests, MPI_STATUSES_IGNORE);
        if (leads) raw_receive(&done, 1);
        else MPI_Send(&done, 1, MPI_BYTE, 0, RAW_TAG, MPI_COMM_WORLD);
        if (block >= 0) gb_s[block] = (double)LARGE_BYTES * LARGE_UNDER_WAY / (now_s() - began) * 1e-9;
    }
}

/* ---- through the transport --------------------------------------------------------------------------------------------------- */

static void send_frame(bench *b, ts_buffer *frame) {
    uint32_t other = b->transport->self ? 0 : 1;
    if (b->transport->ops->send(b->transport, other, frame) != TERSE_OK) abort();
}

static void on_frame(void *context, uint32_t peer, ts_buffer *frame) {
    bench *b = context;
    (void)peer;
    b->on_frame(b, frame);
}

static void stop(bench *b) { uv_stop(&b->loop); }

/* Rank 1 has no phases, so that nothing of the next one can surprise it: it does what a frame says. */
static void on_answer(bench *b, ts_buffer *frame) {
    if (frame->len == SMALL_BYTES && frame->data[0] == SEND_BACK) send_frame(b, frame);
    else if (frame->len == SMALL_BYTES) stop(b);
    else if (++b->large_seen % LARGE_UNDER_WAY == 0) send_frame(b, b->small);
}

static void on_trip(bench *b, ts_buffer *frame) {
    if (--b->left) send_frame(b, frame);
    else stop(b);
}

static void round_trips(bench *b, double *us) {
    b->on_frame = on_trip;
    for (int block = -1; block < BLOCKS; block++) {
        double began = now_s();
        b->left = b->rounds;
        send_frame(b, b->small);
        ts_pump_wake(b->pump);
        uv_run(&b->loop, UV_RUN_DEFAULT);
        if (block >= 0) us[block] = (now_s() - began) / b->rounds * 1e6;
    }
}

static void on_sleepy(bench *b, ts_buffer *frame) {
    (void)frame;
    b->sleepy_us[b->sleepy] = (now_s() - b->began) * 1e6;
    if (++b->sleepy == sizeof b->sleepy_us / sizeof b->sleepy_us[0]) stop(b);
}

static void start_sleepy(uv_timer_t *timer) {
    bench *b = timer->data;
    b->began = now_s();
    send_frame(b, b->small);
    ts_pump_wake(b->pump);
}

static void sleepy_trips(bench *b) {
    b->on_frame = on_sleepy;
    b->sleepy = 0;
    uv_timer_start(&b->timer, start_sleepy, 100, 10);
    uv_run(&b->loop, UV_RUN_DEFAULT);
    uv_timer_stop(&b->timer);
}

static void on_streamed(bench *b, ts_buffer *frame) {
    (void)frame;
    stop(b);
}

static void stream(bench *b, double *gb_s) {
    b->on_frame = on_streamed;
    for (int block = -1; block < BLOCKS; block++) {
        double began = now_s();
        for (int i = 0; i < LARGE_UNDER_WAY; i++) send_frame(b, b->large);
        ts_pump_wake(b->pump);
        uv_run(&b->loop, UV_RUN_DEFAULT);
        if (block >= 0) gb_s[block] = (double)LARGE_BYTES * LARGE_UNDER_WAY / (now_s() - began) * 1e-9;
    }
}

static double cpu_s(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void on_idle_over(uv_timer_t *timer) { stop(timer->data); }
static double idle(bench *b) {
    uv_timer_start(&b->timer, on_idle_over, 500, 0); /* the last traffic is forgotten */
    uv_run(&b->loop, UV_RUN_DEFAULT);
    double began = now_s(), used = cpu_s();
    uv_timer_start(&b->timer, on_idle_over, 1000u * b->idle_s, 0);
    uv_run(&b->loop, UV_RUN_DEFAULT);
    return (cpu_s() - used) / (now_s() - began);
}

static ts_buffer *make_frame(size_t bytes) {
    ts_buffer *frame;
    if (ts_buffer_create(bytes, &frame) != TERSE_OK) abort();
    memset(frame->data, 1, bytes);
    frame->len = bytes;
    return frame;
}

static void open_bench(bench *b) {
    ts_mpi_options options = {.role = TS_ROLE_SERVER, .start_us = 20000000, .deadline_us = 20000000,
                              .window_bytes = 64u << 20, .frame_limit_bytes = 64u << 20};
    ts_error error = {""};
    if (ts_mpi_transport_create(&options, &b->transport, &error) != TERSE_OK || b->transport->peer_count != 2) {
        fprintf(stderr, "bench_transport: %s\n", error.text[0] ? error.text : "wants 2 ranks");
        exit(1);
    }
    b->small = make_frame(SMALL_BYTES);
    b->large = make_frame(LARGE_BYTES);
    b->answering = b->transport->self == 1;
}

static void open_pump(bench *b) {
    ts_pump_options options = {.safety_timer_us = b->safety_us};
    uv_loop_init(&b->loop);
    uv_timer_init(&b->loop, &b->timer);
    b->timer.data = b;
    b->transport->handler = (ts_transport_handler){.context = b, .on_frame = on_frame};
    if (ts_pump_create(&b->loop, b->transport, &options, &b->pump) != TERSE_OK) exit(1);
}

int main(int argc, char **argv) {
    static bench b = {.rounds = 2000, .idle_s = 3, .safety_us = 20000};
    for (int i = 1; i < argc; i++) {
        if (sscanf(argv[i], "rounds=%u", &b.rounds) == 1 || sscanf(argv[i], "safety=%u", &b.safety_us) == 1) continue;
        if (sscanf(argv[i], "idle=%u", &b.idle_s) != 1) fprintf(stderr, "bench_transport: %s?\n", argv[i]);
    }
    double raw[BLOCKS], ours[BLOCKS], raw_gb[BLOCKS], our_gb[BLOCKS];
    open_bench(&b);
    raw_round_trips(&b, !b.answering, raw);
    raw_stream(&b, !b.answering, raw_gb);
    open_pump(&b);
    if (b.answering) {
        b.on_frame = on_answer;
        uv_run(&b.loop, UV_RUN_DEFAULT);
    } else {
        round_trips(&b, ours);
        sleepy_trips(&b);
        stream(&b, our_gb);
        double share = idle(&b);
        report("round_trip_us", "mpi", raw, BLOCKS);
        report("round_trip_us", "transport", ours, BLOCKS);
        report("sleepy_us", "transport", b.sleepy_us, b.sleepy);
        report("stream_gb_s", "mpi", raw_gb, BLOCKS);
        report("stream_gb_s", "transport", our_gb, BLOCKS);
        printf("{\"bench\": \"transport\", \"what\": \"idle_cpu\", \"how\": \"transport\", \"median\": %.5f, \"seconds\": %u, "
               "\"bells\": %s}\n", share, b.idle_s, ts_mpi_transport_bell_complete(b.transport) ? "true" : "false");
        fflush(stdout);
        ts_buffer *end = make_frame(SMALL_BYTES);
        end->data[0] = !SEND_BACK;
        send_frame(&b, end);
        ts_buffer_unref(end);
    }
    uv_close((uv_handle_t *)&b.timer, NULL);
    ts_pump_close(b.pump, NULL);
    uv_run(&b.loop, UV_RUN_DEFAULT);
    uv_loop_close(&b.loop);
    ts_buffer_unref(b.small);
    ts_buffer_unref(b.large);
    ts_mpi_transport_finish(b.transport, 1000000, true, 0);
    return 0;
}
