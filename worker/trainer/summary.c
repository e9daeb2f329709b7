/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/trainer/summary.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file_aside.h"
#include "worker/trainer/human.h"

#define BOTH_WAYS_BYTES 8u /* a float32 up and one down */

uint64_t ts_summary_dense_bytes(const ts_summary *summary) {
    uint64_t steps = summary->steps > summary->resumed_step ? summary->steps - summary->resumed_step : 0;
    return summary->workers * steps * summary->parameters * BOTH_WAYS_BYTES;
}

double ts_summary_ratio(const ts_summary *summary) {
    double sent = (double)summary->push_bytes + (double)summary->pull_bytes;
    return sent > 0 ? (double)ts_summary_dense_bytes(summary) / sent : -1;
}

double ts_summary_ratio_steady(const ts_summary *summary) {
    if (summary->steady_steps == 0 || summary->steady_bytes == 0) return -1;
    ts_summary steady = *summary;
    steady.steps = summary->steady_steps;
    steady.resumed_step = 0;
    return (double)ts_summary_dense_bytes(&steady) / (double)summary->steady_bytes;
}

static json_t *known(double value, bool is_known) {
    return is_known && isfinite(value) ? json_real(value) : json_null();
}
static bool named(const ts_summary *summary) { return summary->job && summary->job[0]; }
static json_t *whole(uint64_t value) { return json_integer((json_int_t)value); }

terse_status ts_summary_write(const ts_summary *summary, const char *path, ts_error *error) {
    const double ratio = ts_summary_ratio(summary), steady = ts_summary_ratio_steady(summary);
    const struct {
        const char *key;
        json_t *value;
    } entries[] = {
        {"job", named(summary) ? json_string(summary->job) : json_null()},
        {"test_accuracy", known(summary->test_accuracy, summary->test_accuracy >= 0)},
        {"train_loss", known(summary->train_loss, true)},
        {"steps", whole(summary->steps)},
        {"epochs", whole(summary->epochs)},
        {"workers", whole(summary->workers)},
        {"servers", whole(summary->servers)},
        {"parameters", whole(summary->parameters)},
        {"wall_s", known(summary->wall_s, true)},
        {"push_bytes", whole(summary->push_bytes)},
        {"pull_bytes", whole(summary->pull_bytes)},
        {"dense_bytes", whole(ts_summary_dense_bytes(summary))},
        {"ratio", known(ratio, ratio >= 0)},
        {"ratio_steady", known(steady, steady >= 0)},
        {"lost_rounds", whole(summary->lost_rounds)},
        {"lost_workers", whole(summary->lost_workers)},
        {"lost_mass", json_pack("{s:o, s:o, s:o}", "l1", known(summary->lost_l1, true), "l2", known(summary->lost_l2, true),
                                "nonzero", whole(summary->lost_nonzero))}, /* one worker's NaN is in all sums */
        {"parameters_xxh3", json_string(summary->parameters_xxh3)},
        {"seed", whole(summary->seed)},
        {"resumed_step", whole(summary->resumed_step)},
    };
    json_t *root = json_object();
    bool complete = root != NULL;
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++)
        complete = json_object_set_new(root, entries[i].key, entries[i].value) == 0 && complete;
    char *text = complete ? json_dumps(root, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL;
    json_decref(root);
    if (!text) return ts_error_set(error, TERSE_ENOMEM, "%s: no memory for the summary", path);
    ts_file_aside file;
    terse_status status = ts_file_aside_open(path, &file, error);
    if (status == TERSE_OK) {
        status = ts_file_aside_write(&file, text, strlen(text), error);
        if (status == TERSE_OK) status = ts_file_aside_write(&file, "\n", 1, error);
        status = ts_file_aside_finish(&file, status, error);
    }
    free(text);
    return status;
}

static void print_bytes(FILE *to, const char *name, uint64_t bytes, uint64_t dense) {
    char sent[TS_HUMAN_CHARS], plain[TS_HUMAN_CHARS], times[TS_HUMAN_CHARS] = "-";
    if (bytes > 0) ts_human_times((double)dense / (double)bytes, times);
    fprintf(to, "  %-16s %12s %14s %14s\n", name, ts_human_bytes((double)bytes, sent),
            ts_human_bytes((double)dense, plain), times);
}

void ts_summary_print(const ts_summary *summary, bool warmup, FILE *to) {
    char a[TS_HUMAN_CHARS], b[TS_HUMAN_CHARS];
    const uint64_t dense = ts_summary_dense_bytes(summary);
    fprintf(to, "\n");
    if (named(summary)) fprintf(to, "  %-16s %12s\n", "job", summary->job);
    if (summary->test_accuracy >= 0)
        fprintf(to, "  %-16s %10.2f %%\n", "test accuracy", 100 * summary->test_accuracy);
    if (isfinite(summary->train_loss)) fprintf(to, "  %-16s %12.4f\n", "training loss", summary->train_loss);
    fprintf(to, "  %-16s %10.1f s   %s steps, %" PRIu32 " worker%s, %" PRIu32 " server%s, %s parameters\n", "time",
            summary->wall_s, ts_human_count(summary->steps, a), summary->workers, summary->workers == 1 ? "" : "s",
            summary->servers, summary->servers == 1 ? "" : "s", ts_human_count(summary->parameters, b));
    fprintf(to, "  %-16s %12s %14s %14s\n", "", "sent", "dense fp32", "ratio");
    print_bytes(to, "pushed", summary->push_bytes, dense / 2);
    print_bytes(to, "pulled", summary->pull_bytes, dense / 2);
    print_bytes(to, "together", summary->push_bytes + summary->pull_bytes, dense);
    if (warmup && ts_summary_ratio_steady(summary) >= 0) {
        ts_summary steady = *summary;
        steady.steps = summary->steady_steps;
        steady.resumed_step = 0;
        print_bytes(to, "after warm-up", summary->steady_bytes, ts_summary_dense_bytes(&steady));
    }
    fprintf(to, "  %-16s %16s\n", "parameters_xxh3", summary->parameters_xxh3);
    fflush(to);
}
