/* SPDX-License-Identifier: Apache-2.0 */
#include "server/loop.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "common/base/cpu.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/run_dir.h"
#include "common/net/mpi_transport.h"
#include "common/net/pump.h"
#include "server/loop_late.h"
#include "server/loop_precedence.h"
#include "server/server_status.h"

#define TICK_MS 50u
#define REPORT_EVERY_US 1000000u
#define JOIN_CHARS 4096
#define POOL_THREADS 4u /* libuv's own default; more works than that would only queue */

static const int signals[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};
#define SIGNALS (sizeof signals / sizeof signals[0])

typedef struct pool_work pool_work;

typedef struct {
    ts_executor executor; /* first: the executor is the loop */
    pool_work *first, **last; /* brief works, for this thread */
    uint32_t neighbours;  /* when it was last looked at */
    bool crowded;
    bool goes_first;      /* fewer cores than processes */
    bool has_pool;        /* its threads exist */
    ts_precedence precedence;
    uv_loop_t loop;
    ts_server *server;
    const ts_loop_guest *guest; /* or NULL */
    ts_pump *pump;
    uv_timer_t tick;
    uv_signal_t signals[SIGNALS];
    size_t open_signals;  /* those that exist, from the first: libuv closes no others */
    bool closing;
    const ts_config *config;
    ts_transport *transport;
    bool daemon;          /* jobs join and leave */
    uint64_t reported_us;
    ts_lateness late;
    bool report_failed;   /* said once */
    bool command_known;   /* by which workers come back */
    bool drains;          /* the jobs have been told */
    uint64_t drained_us;  /* SIGTERM came: jobs are ended then; 0: it has not */
} server_loop;

/* ---- the executor: libuv's pool --------------------------------------------------------------------------------------- */

struct pool_work {
    uv_work_t request;
    pool_work *next; /* of brief ones */
    server_loop *loop;
    ts_executor_fn work, done;
    void *argument;
};

static void close_when_over(server_loop *loop);

static void run_work(uv_work_t *request) {
    pool_work *work = request->data;
    work->work(work->argument);
}

static void run_done(uv_work_t *request, int status) {
    pool_work *work = request->data;
    server_loop *loop = work->loop;
    (void)status; /* nothing of ours is ever cancelled */
    work->done(work->argument);
    ts_mem_free(work);
    if (loop->pump) ts_pump_wake(loop->pump);
    close_when_over(loop);
}

static pool_work *new_work(server_loop *loop, ts_executor_fn work_fn, ts_executor_fn done_fn, void *argument) {
    pool_work *work = ts_mem_calloc(1, sizeof *work);
    if (!work) return NULL;
    *work = (pool_work){.loop = loop, .work = work_fn, .done = done_fn, .argument = argument};
    work->request.data = work;
    return work;
}

/* The pool's threads begin with the first work, as their maker is, and are to be like everybody else. */
static int queue_work(server_loop *loop, pool_work *work) {
    if (!loop->has_pool) ts_precedence_set(&loop->precedence, false);
    int failed = uv_queue_work(&loop->loop, &work->request, run_work, run_done);
    if (!loop->has_pool) ts_precedence_set(&loop->precedence, loop->goes_first);
    loop->has_pool = true;
    return failed;
}

static terse_status submit(ts_executor *executor, ts_executor_fn work_fn, ts_executor_fn done_fn, void *argument) {
    server_loop *loop = (server_loop *)executor;
    pool_work *work = new_work(loop, work_fn, done_fn, argument);
    TS_REQUIRE(work, TERSE_ENOMEM);
    if (queue_work(loop, work) != 0) {
        ts_mem_free(work);
        return TERSE_ENOMEM;
    }
    return TERSE_OK;
}

/* Whether cores are few, now that so many processes are here: jobs come and go. */
static bool note_crowded(server_loop *loop) {
    uint32_t neighbours = loop->transport->neighbours;
    if (neighbours == loop->neighbours) return loop->crowded;
    loop->neighbours = neighbours;
    loop->crowded = ts_transport_crowded(loop->transport);
    loop->goes_first = loop->crowded && !ts_transport_one_each(loop->transport);
    ts_precedence_set(&loop->precedence, loop->goes_first);
    ts_log(TS_LOG_DEBUG, "loop", "where rounds are closed", "threads=%s cores=%u processes=%u nice=%d",
           loop->crowded ? "one" : "several", ts_cpu_cores(), neighbours, loop->precedence.taken ? TS_PRECEDENCE_NICE : 0);
    return loop->crowded;
}

/* On this thread where cores are few: the bytes move in between, one work at a time. */
static terse_status submit_brief(ts_executor *executor, ts_executor_fn work_fn, ts_executor_fn done_fn, void *argument) {
    server_loop *loop = (server_loop *)executor;
    if (!note_crowded(loop)) return submit(executor, work_fn, done_fn, argument);
    pool_work *work = new_work(loop, work_fn, done_fn, argument);
    TS_REQUIRE(work, TERSE_ENOMEM);
    *loop->last = work;
    loop->last = &work->next;
    if (loop->pump) ts_pump_wake(loop->pump);
    return TERSE_OK;
}

/* One of the brief works: bytes move between two of them. */
static void run_brief(server_loop *loop) {
    pool_work *work = loop->first;
    if (!work) return;
    loop->first = work->next;
    if (!loop->first) loop->last = &loop->first;
    work->work(work->argument);
    run_done(&work->request, 0);
}

/* ---- callbacks ---------------------------------------------------------------------------------------------------------- */

static void after_poll(void *context, bool moved) {
    server_loop *loop = context;
    (void)moved;
    ts_server_flush(loop->server);
    run_brief(loop);
    if (loop->guest) loop->guest->flush(loop->guest->context);
    close_when_over(loop);
}

/*
 * How workers come into running jobs, for messages: by the words that `terse start` has written down, once it has; where it
 * was not used, by their general form.
 */
static void learn_join_command(server_loop *loop, bool first) {
    const char *dir = ts_mpi_transport_run_dir(loop->transport);
    char line[JOIN_CHARS], command[2 * JOIN_CHARS];
    size_t bytes = 0;
    if (loop->command_known || !dir) return;
    if (first) {
        snprintf(command, sizeof command, "mpirun --tune configs/openmpi.conf --ompi-server file:%s/%s -n 1 terse-worker CONFIG --set "
                 "daemon.dir=%s", dir, TS_RUN_DIR_URI, dir);
        ts_server_set_join_command(loop->server, command);
    }
    if (ts_run_dir_read(dir, TS_RUN_DIR_ATTACH, line, sizeof line, &bytes) != TERSE_OK) return;
    line[strcspn(line, "\n")] = '\0';
    char *count = strstr(line, " -n ");
    size_t digits = count ? strspn(count + 4, "0123456789") : 0;
    if (digits == 0) return;
    snprintf(command, sizeof command, "%.*s -n 1%s", (int)(count - line), line, count + 4 + digits);
    ts_server_set_join_command(loop->server, command);
    loop->command_known = true;
}

/* What a daemon does beside serving: it stays, until it is told to stop or its last job has left. */
static void tend_daemon(server_loop *loop) {
    uint64_t now_us = loop->transport->ops->now_us(loop->transport);
    if (loop->config->daemon.when_empty == TS_WHEN_EMPTY_EXIT && loop->transport->job_count > 0)
        ts_server_set_stays(loop->server, false);
    if (ts_mpi_transport_told_to_end(loop->transport)) ts_server_stop(loop->server, "the server that leads has ended in order");
    if (loop->drained_us == 0 || loop->drains) return;
    if (now_us < loop->drained_us && ts_server_jobs_running(loop->server) > 0) return;
    loop->drains = true;
    ts_server_drain(loop->server, "SIGTERM"); /* with a last checkpoint, where there are any */
}

static void drain(server_loop *loop) {
    uint64_t now_us = loop->transport->ops->now_us(loop->transport);
    if (loop->drained_us > 0) {
        ts_server_stop(loop->server, "SIGTERM twice");
        return;
    }
    loop->drained_us = now_us + (uint64_t)(loop->config->daemon.drain_s * 1e6) + 1;
    ts_mpi_transport_shut(loop->transport, "it is about to end");
    ts_server_end_orphans(loop->server, "the servers are about to end (SIGTERM)");
    ts_log(TS_LOG_INFO, "loop", "nobody is let in any more", "signal=SIGTERM jobs=%u end_s=%g",
           ts_server_jobs_running(loop->server), loop->config->daemon.drain_s);
}

static void report(server_loop *loop) {
    char *text = NULL;
    size_t bytes = 0;
    uint64_t now_us = loop->transport->ops->now_us(loop->transport);
    if (!ts_server_leads(loop->server) || now_us - loop->reported_us < REPORT_EVERY_US) return;
    loop->reported_us = now_us;
    learn_join_command(loop, false);
    terse_status status = ts_server_status(loop->server, loop->drained_us > 0, &text, &bytes);
    if (status == TERSE_OK)
        status = ts_run_dir_write(ts_mpi_transport_run_dir(loop->transport), TS_RUN_DIR_STATUS, text, bytes);
    free(text);
    if (status == TERSE_OK || loop->report_failed) return;
    loop->report_failed = true;
    ts_log(TS_LOG_WARN, "loop", "the status cannot be written", "status=%s dir=\"%s\"", terse_status_name(status),
           ts_mpi_transport_run_dir(loop->transport));
}

static void dump(server_loop *loop) {
    ts_server_dump(loop->server, stderr);
    fprintf(stderr, "  loop: since the last dump a tick came %.1f ms late at most; %.1f ms without the time that others had the processors\n",
            (double)loop->late.late_us * 1e-3, (double)loop->late.own_us * 1e-3);
    ts_lateness_clear(&loop->late);
}

static void on_tick(uv_timer_t *timer) {
    server_loop *loop = timer->data;
    ts_lateness_tick(&loop->late, uv_hrtime() / 1000, TICK_MS * 1000u);
    if (loop->daemon) tend_daemon(loop);
    ts_server_tick(loop->server);
    if (loop->guest) loop->guest->tick(loop->guest->context);
    if (loop->daemon) report(loop);
    ts_pump_wake(loop->pump);
    close_when_over(loop);
}

static void on_signal(uv_signal_t *handle, int number) {
    server_loop *loop = handle->data;
    if (number == SIGUSR2) dump(loop);
    else if (number == SIGTERM && loop->daemon) drain(loop);
    else if (number == SIGTERM) ts_server_drain(loop->server, "SIGTERM");
    else if (number != SIGUSR1) ts_server_stop(loop->server, "SIGINT");
    else if (!ts_server_checkpoint(loop->server))
        ts_log(TS_LOG_WARN, "loop", "no checkpoint: checkpoint.dir is not set, or the training has not begun or is over",
               "signal=SIGUSR1");
    if (loop->pump) ts_pump_wake(loop->pump);
    close_when_over(loop);
}

/* Once the job is over and nothing of it is in the pool, all handles close and uv_run returns. */
static void close_when_over(server_loop *loop) {
    if (loop->closing || ts_server_get_state(loop->server) == TS_SERVER_RUNNING || !ts_server_idle(loop->server)) return;
    if (loop->guest && !loop->guest->idle(loop->guest->context)) return;
    loop->closing = true;
    if (loop->pump) ts_pump_close(loop->pump, NULL);
    loop->pump = NULL;
    uv_close((uv_handle_t *)&loop->tick, NULL);
    for (size_t s = 0; s < loop->open_signals; s++) uv_close((uv_handle_t *)&loop->signals[s], NULL);
}

/* ---- life ----------------------------------------------------------------------------------------------------------------- */

/* On failure close_when_over closes what exists by then. */
static terse_status start_handles(server_loop *loop, ts_transport *transport) {
    ts_pump_options options = {.timer_us = 1000, .safety_timer_us = 20000};
    options.context = loop;
    options.after_poll = after_poll;
    uv_timer_init(&loop->loop, &loop->tick);
    loop->tick.data = loop;
    for (size_t s = 0; s < SIGNALS; s++) {
        TS_REQUIRE(uv_signal_init(&loop->loop, &loop->signals[s]) == 0, TERSE_EIO);
        loop->open_signals = s + 1;
        loop->signals[s].data = loop;
        TS_REQUIRE(uv_signal_start(&loop->signals[s], on_signal, signals[s]) == 0, TERSE_EIO);
    }
    TS_REQUIRE(uv_timer_start(&loop->tick, on_tick, TICK_MS, TICK_MS) == 0, TERSE_EIO);
    return ts_pump_create(&loop->loop, transport, &options, &loop->pump);
}

terse_status ts_loop_run(const ts_config *config, ts_transport *transport, const ts_loop_guest *guest, ts_loop_end *end) {
    server_loop *loop = ts_mem_calloc(1, sizeof *loop);
    TS_REQUIRE(loop, TERSE_ENOMEM);
    unsigned cores = ts_cpu_cores();
    loop->executor = (ts_executor){.submit = submit, .submit_brief = submit_brief,
                                   .threads = cores < POOL_THREADS ? cores : POOL_THREADS};
    loop->last = &loop->first;
    loop->neighbours = UINT32_MAX;
    loop->transport = transport;
    loop->late = ts_lateness_start();
    terse_status status = uv_loop_init(&loop->loop) == 0 ? TERSE_OK : TERSE_EIO;
    if (status != TERSE_OK) {
        ts_mem_free(loop);
        return status;
    }
    status = ts_server_create(config, transport, &loop->executor, &loop->server);
    if (status != TERSE_OK) goto out;
    if (guest) status = guest->begin(guest->context, loop->server, &loop->executor, &end->message);
    if (status != TERSE_OK) goto out;
    loop->guest = guest;
    loop->config = config;
    loop->daemon = ts_mpi_transport_attached(transport);
    if (loop->daemon) ts_server_set_stays(loop->server, true);
    if (loop->daemon) learn_join_command(loop, true);
    status = start_handles(loop, transport);
    if (status != TERSE_OK) {
        ts_server_stop(loop->server, "its event loop cannot start");
        close_when_over(loop);
    }
    uv_run(&loop->loop, UV_RUN_DEFAULT);
    end->state = ts_server_get_state(loop->server);
    end->failure = ts_server_failure(loop->server);
    memcpy(end->message.text, ts_server_message(loop->server), sizeof end->message.text);
    const char *last = ts_server_last_checkpoint(loop->server);
    if (end->state == TS_SERVER_FAILED && last[0])
        ts_log(TS_LOG_INFO, "loop", loop->daemon ? "`terse start` and then the job's same mpirun command go on from the last checkpoint"
                                                 : "the same mpirun command goes on from the last checkpoint", "checkpoint=\"%s\"", last);
out:
    ts_server_destroy(loop->server);
    uv_loop_close(&loop->loop);
    ts_lateness_end(&loop->late);
    ts_mem_free(loop);
    return status;
}
