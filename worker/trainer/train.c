/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/trainer/train.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "worker/models/model_registry.h"
#include "worker/terse.h"
#include "worker/trainer/finish.h"
#include "worker/trainer/progress.h"
#include "worker/trainer/stop_signal.h"
#include "worker/trainer/training.h"

/* How many reports an endless model gets over a run, instead of one an epoch. */
#define ENDLESS_REPORTS 10
#define PURPOSE_FURTHER 0x4655525448u /* keeps this use of keys apart from others */

uint64_t ts_training_now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static terse_status say(ts_training *run, terse_status status, const char *what) {
    snprintf(run->reason.text, sizeof run->reason.text, "%s", what);
    fprintf(stderr, "terse-worker %u: %s\n", run->worker, what);
    return status;
}

terse_status ts_training_check(ts_training *run, terse_status status) {
    return status == TERSE_OK ? TERSE_OK : say(run, status, terse_message(run->client));
}

/* Whether it is one more than the job began with. */
static bool is_further(const ts_training *run) { return run->worker >= run->workers; }

/*
 * Its epochs are shuffled by a seed of its own, which follows from its number: it takes the share of the worker whose number is
 * its own modulo the job's, but of another order of the samples.
 */
static uint64_t own_seed(const ts_training *run, uint64_t seed) {
    return is_further(run) ? ts_random_key(seed, run->worker, 0, 0, PURPOSE_FURTHER) : seed;
}

/* Model, tensors, how long. */
static terse_status make_model(ts_training *run) {
    char message[512] = "";
    const ts_config *config = run->options->config;
    bool data = strcmp(config->training.data, "none") != 0;
    uint32_t all = config->training.all_workers, first = config->training.first_worker; /* of all groups, with relays */
    if (run->workers == 0) return say(run, TERSE_ESTATE, "the job has no workers");
    if (all > 0 && (uint64_t)first + run->workers > all)
        return say(run, TERSE_ECONFIG, "training.first_worker and this job's workers are more than training.all_workers");
    const terse_model_context context = {.worker = first + run->worker % run->workers,
                                         .workers = all > 0 ? all : run->workers,
                                         .batch = config->training.batch,
                                         .seed = own_seed(run, config->training.seed),
                                         .data_dir = data ? config->training.data_dir : NULL,
                                         .shapes = config->training.shapes,
                                         .threads = config->training.threads,
                                         .by_samples = config->aggregation.mode == TS_AGGREGATE_SAMPLES};
    run->instance = run->model->create(&context, message, sizeof message);
    if (!run->instance) return say(run, TERSE_ECONFIG, message[0] ? message : "the model could not be created");
    run->tensor_count = run->model->tensors(run->instance, &run->tensors);
    ts_error error;
    terse_status status = ts_model_check_tensors(run->tensors, run->tensor_count, &run->parameters, &error);
    if (status != TERSE_OK) return say(run, status, error.text);
    run->gradients = ts_mem_calloc(run->tensor_count, sizeof *run->gradients);
    run->params = ts_mem_calloc(run->tensor_count, sizeof *run->params);
    if (!run->gradients || !run->params) return say(run, TERSE_ENOMEM, "out of memory");
    for (size_t t = 0; t < run->tensor_count; t++) run->params[t] = run->tensors[t].param;
    return TERSE_OK;
}

static terse_status plan_steps(ts_training *run) {
    const ts_config *config = run->options->config;
    uint64_t most = config->training.max_steps;
    run->steps_per_epoch = run->model->steps_per_epoch(run->instance);
    if (run->steps_per_epoch == 0 && most == 0)
        return say(run, TERSE_ECONFIG, "this model has no epochs: training.max_steps must say how many steps to take");
    uint64_t steps = run->steps_per_epoch;
    if (steps > 0 && config->training.epochs > UINT64_MAX / steps)
        return say(run, TERSE_ELIMIT, "training.epochs: too many");
    run->total_steps = steps * config->training.epochs;
    if (steps == 0 || (most > 0 && most < run->total_steps)) run->total_steps = most;
    run->period = steps ? steps : (run->total_steps - 1) / ENDLESS_REPORTS + 1;
    return TERSE_OK;
}

static terse_status declare(ts_training *run) {
    for (size_t t = 0; t < run->tensor_count; t++) {
        const terse_model_tensor *tensor = &run->tensors[t];
        terse_tensor id;
        TS_TRY(ts_training_check(run, terse_declare(run->client, tensor->name, TERSE_FLOAT32, tensor->shape,
                                                    tensor->ndim, tensor->param, &id)));
    }
    return ts_training_check(run, terse_set_total_steps(run->client, run->total_steps));
}

static uint64_t own_bytes(ts_training *run) {
    terse_local_stats stats;
    return terse_get_local_stats(run->client, &stats) == TERSE_OK ? stats.push_bytes + stats.pull_bytes : 0;
}

/* At an epoch's end and at the last step: mean loss since the last report, accuracy of the replicas. Collective. */
static terse_status report(ts_training *run, double loss_sum, uint64_t loss_steps, ts_progress *progress) {
    double sums[4] = {loss_sum, (double)loss_steps, 0, 0};
    /* After the last step the exact parameters are evaluated instead. */
    if (run->model->evaluate && run->step < run->total_steps && !is_further(run))
        run->model->evaluate(run->instance, run->params, run->worker, run->workers, &sums[2], &sums[3]);
    TS_TRY(ts_training_check(run, terse_reduce_sum(run->client, sums, 4)));
    if (sums[1] > 0) run->train_loss = sums[0] / sums[1];
    if (run->worker == 0)
        ts_progress_epoch(progress, run->train_loss, sums[2] > 0 ? sums[3] / sums[2] : -1, own_bytes(run),
                          ts_training_now_us());
    return TERSE_OK;
}

static terse_status one_step(ts_training *run, double *loss) {
    *loss = run->model->step(run->instance, run->step);
    for (size_t t = 0; t < run->tensor_count; t++) {
        run->gradients[t] = run->tensors[t].gradient;
        if (run->gradients[t]) continue;
        char what[256];
        snprintf(what, sizeof what, "the model's tensor %.150s has no gradient after a step", run->tensors[t].name);
        return say(run, TERSE_EINVAL, what);
    }
    if (run->options->config->aggregation.mode == TS_AGGREGATE_SAMPLES && run->model->samples)
        TS_TRY(ts_training_check(run, terse_set_samples(run->client, run->model->samples(run->instance))));
    return ts_training_check(run, terse_step(run->client, run->gradients));
}

/*
 * Told to the others at once: a worker that just dies is missed by the deadline only. With checkpoints a SIGTERM asks for
 * a last one, which then ends the job here, too.
 */
static terse_status check_signal(ts_training *run) {
    int number = ts_stop_signal();
    if (number == 0 || run->asked_to_stop) return TERSE_OK;
    char what[128];
    snprintf(what, sizeof what, "SIGTERM at worker %u", run->worker);
    run->asked_to_stop = number == SIGTERM && ts_config_checkpoints(run->options->config) &&
                         terse_checkpoint(run->client, 1, what) == TERSE_OK;
    if (run->asked_to_stop) return TERSE_OK;
    run->leaves = number == SIGTERM && run->options->config->flush && !ts_config_checkpoints(run->options->config);
    if (run->leaves) return TERSE_OK;
    snprintf(what, sizeof what, "stopped by signal %d (%s) at step %llu", number, strsignal(number),
             (unsigned long long)run->step);
    return say(run, TERSE_ESHUTDOWN, what);
}

/* Reports, each a sum over all workers, before a step. */
static uint64_t reports_before(const ts_training *run, uint64_t step) {
    return step < run->total_steps ? step / run->period : (run->total_steps + run->period - 1) / run->period;
}

/* Whether this worker has come back into the job meanwhile: it is at another step then. */
static bool has_returned(ts_training *run, terse_status *status) {
    uint64_t step;
    uint32_t returns = terse_returns(run->client, &step);
    *status = TERSE_OK;
    if (returns == run->returns) return false;
    run->returns = returns;
    run->step = step;
    *status = ts_training_check(run, terse_set_sums(run->client, reports_before(run, step)));
    return true;
}

static terse_status loop(ts_training *run, ts_progress *progress) {
    double loss_sum = 0, loss;
    uint64_t loss_steps = 0;
    run->step = terse_resumed(run->client);
    TS_TRY(ts_training_check(run, terse_set_sums(run->client, reports_before(run, run->step))));
    while (run->step < run->total_steps) {
        terse_status status;
        TS_TRY(check_signal(run));
        if (run->leaves) return TERSE_OK;
        if (has_returned(run, &status)) {
            TS_TRY(status);
            loss_sum = 0;
            loss_steps = 0;
            continue;
        }
        TS_TRY(one_step(run, &loss));
        if (run->returns != terse_returns(run->client, NULL)) continue;
        run->step++;
        loss_sum += loss;
        loss_steps++;
        bool due = run->worker == 0 && ts_progress_step(progress, run->step, loss, ts_training_now_us());
        if (run->step % run->period == 0 || run->step == run->total_steps) {
            TS_TRY(report(run, loss_sum, loss_steps, progress));
            loss_sum = 0;
            loss_steps = 0;
        } else if (due) {
            ts_progress_show(progress, own_bytes(run), ts_training_now_us());
        }
    }
    return TERSE_OK;
}

static terse_status run_steps(ts_training *run) {
    const ts_config *config = run->options->config;
    ts_progress progress = {0};
    TS_TRY(ts_training_check_files(run));
    TS_TRY(make_model(run));
    TS_TRY(plan_steps(run));
    TS_TRY(declare(run));
    TS_TRY(ts_training_check(run, terse_start(run->client)));
    run->began_us = ts_training_now_us();
    if (run->worker == 0) {
        const ts_progress_plan plan = {.model = run->model->name,
                                       .parameters = run->parameters,
                                       .workers = run->workers,
                                       .servers = terse_servers(run->client),
                                       .total_steps = run->total_steps,
                                       .first_step = terse_resumed(run->client),
                                       .steps_per_epoch = run->steps_per_epoch,
                                       .samples_per_step = (uint64_t)run->workers * config->training.batch};
        ts_progress_start(&progress, &plan, ts_terminal_look(STDOUT_FILENO), stdout, run->began_us);
    }
    ts_stop_signal_catch();
    terse_status status = loop(run, &progress);
    ts_stop_signal_release();
    ts_progress_clear(&progress);
    return status;
}

static terse_status train(ts_training *run) {
    terse_status status = run_steps(run);
    if (status == TERSE_OK && run->leaves) { /* in order, and alone: terse_close says the rest */
        fprintf(stderr, "terse-worker %u: leaves at step %llu after SIGTERM\n", run->worker, (unsigned long long)run->step);
        return ts_training_check(run, terse_done(run->client));
    }
    if (status == TERSE_OK) status = ts_training_check(run, terse_set_sums(run->client, reports_before(run, run->total_steps)));
    if (status == TERSE_OK) return ts_training_finish(run);
    return terse_abort(run->client, status, run->reason.text); /* the others must not go on without this worker */
}

int ts_train(const ts_train_options *options) {
    ts_training run = {.options = options, .model = options->model, .train_loss = NAN};
    int argc = options->argc;
    char **argv = options->argv;
    terse_status status = terse_open(&run.client, NULL, &argc, &argv);
    if (status != TERSE_OK) {
        fprintf(stderr, "terse-worker: %s\n", run.client ? terse_message(run.client) : terse_strerror(status));
    } else {
        run.worker = terse_worker(run.client);
        run.workers = terse_workers(run.client);
        status = train(&run);
    }
    fflush(stdout);
    terse_status closed = terse_close(run.client);
    if (status == TERSE_OK && closed != TERSE_OK) {
        fprintf(stderr, "terse-worker %u: leaving: %s\n", run.worker, terse_strerror(closed));
        status = closed;
    }
    if (run.instance) run.model->destroy(run.instance);
    ts_mem_free(run.gradients);
    ts_mem_free(run.params);
    return ts_exit_code(status);
}
