/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/trainer/finish.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "worker/models/model_registry.h"
#include "common/base/file_aside.h"
#include "common/ckpt/safetensors.h"
#include "worker/trainer/summary.h"

/* The parameters as the servers hold them: one block, and where each tensor starts. */
typedef struct {
    float *values;
    const float **tensors;
} exact;

static void exact_free(exact *parameters) {
    ts_mem_free(parameters->values);
    ts_mem_free(parameters->tensors);
}

static terse_status fetch(ts_training *run, exact *parameters) {
    size_t at = 0;
    parameters->values = ts_mem_aligned(run->parameters, sizeof(float));
    parameters->tensors = ts_mem_calloc(run->tensor_count, sizeof *parameters->tensors);
    if (!parameters->values || !parameters->tensors) {
        fprintf(stderr, "terse-worker %u: no memory for the final parameters\n", run->worker);
        return TERSE_ENOMEM;
    }
    for (size_t t = 0; t < run->tensor_count; t++) {
        parameters->tensors[t] = parameters->values + at;
        TS_TRY(ts_training_check(run, terse_fetch(run->client, (terse_tensor)t, parameters->values + at)));
        at += ts_model_tensor_elems(&run->tensors[t]);
    }
    return TERSE_OK;
}

static terse_status save(const ts_training *run, const exact *parameters, ts_error *error) {
    ts_safetensor *tensors = ts_mem_calloc(run->tensor_count, sizeof *tensors);
    TS_REQUIRE(tensors, TERSE_ENOMEM);
    for (size_t t = 0; t < run->tensor_count; t++)
        tensors[t] = (ts_safetensor){run->tensors[t].name, run->tensors[t].shape, (unsigned)run->tensors[t].ndim,
                                     parameters->tensors[t]};
    char steps[32];
    snprintf(steps, sizeof steps, "%llu", (unsigned long long)run->total_steps);
    const char *const metadata[] = {"producer", "terse " TS_VERSION, "model", run->model->name, "steps", steps, NULL};
    terse_status status = ts_safetensors_write(run->options->save, tensors, run->tensor_count, metadata, error);
    ts_mem_free(tensors);
    return status;
}

/* Steady bytes are those of the steps, so they are asked for before the parameters travel; totals come last. */
static terse_status gather(ts_training *run, exact *parameters, ts_summary *summary) {
    const ts_config *config = run->options->config;
    const uint64_t first = terse_resumed(run->client);
    const uint64_t warmup = config->error_feedback.warmup.steps > first ? config->error_feedback.warmup.steps : first;
    const bool evaluates = run->model->evaluate != NULL;
    terse_stats stats;
    TS_TRY(ts_training_check(run, terse_get_stats(run->client, &stats)));
    *summary = (ts_summary){.job = config->job.name,
                            .test_accuracy = -1,
                            .train_loss = run->train_loss,
                            .steps = run->total_steps,
                            .resumed_step = first,
                            .epochs = run->steps_per_epoch ? run->total_steps / run->steps_per_epoch : 0,
                            .workers = run->workers,
                            .servers = terse_servers(run->client),
                            .parameters = run->parameters,
                            .steady_steps = run->total_steps > warmup ? run->total_steps - warmup : 0,
                            .steady_bytes = stats.steady_push_bytes + stats.steady_pull_bytes,
                            .seed = config->training.seed};
    if (evaluates || run->options->save) TS_TRY(fetch(run, parameters));
    if (evaluates) {
        double samples = 0, correct = 0;
        run->model->evaluate(run->instance, parameters->tensors, 0, 1, &samples, &correct);
        if (samples > 0) summary->test_accuracy = correct / samples;
    }
    summary->wall_s = (double)(ts_training_now_us() - run->began_us) / 1e6;
    TS_TRY(ts_training_check(run, terse_get_stats(run->client, &stats)));
    summary->push_bytes = stats.push_bytes;
    summary->pull_bytes = stats.pull_bytes;
    summary->lost_rounds = stats.lost_rounds;
    summary->lost_workers = stats.lost_workers;
    summary->lost_l1 = stats.lost_l1;
    summary->lost_l2 = stats.lost_l2;
    summary->lost_nonzero = stats.lost_nonzero;
    memcpy(summary->parameters_xxh3, stats.parameters_xxh3, sizeof summary->parameters_xxh3);
    return TERSE_OK;
}

terse_status ts_training_check_files(ts_training *run) {
    if (run->worker != 0) return TERSE_OK;
    const struct {
        const char *option, *path;
    } files[] = {{"--save", run->options->save}, {"--summary", run->options->summary}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        ts_error error = {.text = "out of memory"};
        if (!files[i].path) continue;
        terse_status status = ts_file_aside_probe(files[i].path, &error);
        if (status == TERSE_OK) continue;
        snprintf(run->reason.text, sizeof run->reason.text, "%s: %.400s", files[i].option, error.text);
        fprintf(stderr, "terse-worker %u: %s\n", run->worker, run->reason.text);
        return status == TERSE_EIO ? TERSE_ECONFIG : status;
    }
    return TERSE_OK;
}

/* The lowest number of those who have come into the job, digit by digit: nobody knows how many numbers there are. */
static terse_status elect(ts_training *run, bool *first) {
    for (int shift = 28; shift >= 0; shift -= 4) {
        double here[16] = {0};
        unsigned own = run->worker >> shift & 15, lowest = 0;
        here[own] = *first;
        TS_TRY(ts_training_check(run, terse_reduce_sum(run->client, here, 16)));
        while (lowest < own && here[lowest] == 0) lowest++;
        *first = *first && lowest == own;
    }
    return TERSE_OK;
}

/*
 * Everybody who is left is done after this: the servers' figures are final. Says whether this worker is the first of them:
 * worker 0 may have died.
 */
static terse_status meet(ts_training *run, bool *first) {
    double *here = ts_mem_calloc((size_t)run->workers + 1, sizeof *here); /* the last: workers that have come into the job */
    TS_REQUIRE(here, TERSE_ENOMEM);
    uint32_t own = run->worker < run->workers ? run->worker : run->workers, w = 0;
    here[own] = 1;
    terse_status status = ts_training_check(run, terse_reduce_sum(run->client, here, (size_t)run->workers + 1));
    while (w < own && here[w] == 0) w++;
    *first = w == own && here[own] > 0; /* 0: the others had the sum without it, and one of them is first */
    bool several = own == run->workers && here[own] > 1;
    ts_mem_free(here);
    return status == TERSE_OK && *first && several ? elect(run, first) : status;
}

terse_status ts_training_finish(ts_training *run) {
    TS_TRY(ts_training_check(run, terse_done(run->client)));
    bool first = false;
    TS_TRY(meet(run, &first));
    if (!first) return TERSE_OK;
    const ts_train_options *options = run->options;
    exact parameters = {0};
    ts_summary summary;
    ts_error error = {.text = "out of memory"};
    terse_status status = gather(run, &parameters, &summary);
    if (status == TERSE_OK) {
        const char *option = "--save";
        ts_summary_print(&summary, options->config->error_feedback.warmup.steps > 0, stdout);
        if (options->save) status = save(run, &parameters, &error);
        /* Last, and only after success: a new summary tells programs that all went well. */
        if (status == TERSE_OK && options->summary) {
            option = "--summary";
            status = ts_summary_write(&summary, options->summary, &error);
        }
        if (status != TERSE_OK) fprintf(stderr, "terse-worker %u: %s: %s\n", run->worker, option, error.text);
    }
    exact_free(&parameters);
    return status;
}
