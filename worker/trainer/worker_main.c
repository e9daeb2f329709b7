/* SPDX-License-Identifier: Apache-2.0 */
/* terse-worker: the trainer for built-in models and plug-ins. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "worker/models/model_registry.h"
#include "worker/terse.h"
#include "worker/trainer/options.h"
#include "worker/trainer/train.h"

static void set_log_level(const ts_config *config) {
    ts_log_level level;
    if (ts_log_level_parse(config->log.level, &level) == TERSE_OK) ts_log_set_level(level);
}

/* A plug-in's model, or the built-in one that the config names. */
static terse_status find_model(const ts_config *config, const terse_model **model, void **plugin, ts_error *error) {
    if (!config->worker.plugin) return ts_model_find(config->training.model, model, error);
    /* With a slash in it, so that the loader takes the file and does not search its own folders. */
    char *path = realpath(config->worker.plugin, NULL);
    terse_status status = ts_model_load(path ? path : config->worker.plugin, model, plugin, error);
    free(path);
    return status;
}

static int run(const ts_worker_options *options) {
    ts_error error = {.text = "out of memory"};
    ts_config *config = NULL;
    const terse_model *model = NULL;
    void *plugin = NULL;
    int code = TS_EXIT_CONFIG;
    terse_status status = ts_config_load(options->shared.config, options->shared.overrides,
                                         options->shared.override_count, &config, &error);
    if (status == TERSE_OK) {
        set_log_level(config);
        status = find_model(config, &model, &plugin, &error);
    }
    if (status == TERSE_OK) {
        const ts_train_options train = {.config = config,
                                        .model = model,
                                        .summary = options->summary,
                                        .save = options->save,
                                        .argc = options->word_count,
                                        .argv = options->words};
        code = ts_train(&train);
    } else {
        fprintf(stderr, "terse-worker: %s\n", error.text);
        terse_decline(error.text, code);
    }
    ts_model_unload(plugin);
    ts_config_free(config);
    return code;
}

int main(int argc, char **argv) {
    /* A peer's death must be an error, not a signal; before anything that writes. */
    signal(SIGPIPE, SIG_IGN);
    /* mpirun hands these to all ranks; they are meant for the servers. */
    signal(SIGUSR1, SIG_IGN);
    signal(SIGUSR2, SIG_IGN);
    ts_worker_options options;
    ts_error error = {.text = "out of memory"};
    terse_status status = ts_worker_options_read(argc, argv, &options, &error);
    if (status != TERSE_OK) {
        fprintf(stderr, "terse-worker: %s\n", error.text);
        terse_decline(error.text, TS_EXIT_CONFIG); /* else the servers would wait for this process until their deadline */
        return TS_EXIT_CONFIG;
    }
    int code = TS_EXIT_OK;
    if (options.shared.help)
        ts_worker_options_help("terse-worker", stdout);
    else if (options.shared.version)
        printf("terse-worker " TS_VERSION "\n");
    else
        code = run(&options);
    ts_worker_options_free(&options);
    return ts_exit_flush("terse-worker", code);
}
