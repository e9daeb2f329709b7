/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/trainer/options.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "worker/models/model_registry.h"

#define PLUGIN_KEY "worker.plugin="
#define ID_KEY "worker.id="

/* `--name VALUE` or `--name=VALUE` at argv[*at]: sets *value, moves *at to the value's word. */
static terse_status take(int argc, char **argv, int *at, const char *name, const char **value, bool *taken,
                         ts_error *error) {
    size_t len = strlen(name);
    *taken = strncmp(argv[*at], name, len) == 0 && (argv[*at][len] == 0 || argv[*at][len] == '=');
    if (!*taken) return TERSE_OK;
    const char *text = argv[*at][len] == '=' ? argv[*at] + len + 1 : *at + 1 < argc ? argv[++*at] : NULL;
    if (!text || !*text) return ts_error_set(error, TERSE_EINVAL, "%s needs a word behind it", name);
    *value = text;
    return TERSE_OK;
}

static terse_status split_off_ours(int argc, char **argv, ts_worker_options *options, const char **plugin, const char **id,
                                   ts_error *error) {
    const struct {
        const char *name;
        const char **value;
    } ours[] = {{"--summary", &options->summary}, {"--save", &options->save}, {"--plugin", plugin},
                {"--worker-id", id}};
    for (int i = 0; i < argc; i++) {
        bool taken = false;
        /* What stands behind --set and --log is theirs, even if it looks like one of ours. */
        if (i > 1 && (strcmp(argv[i - 1], "--set") == 0 || strcmp(argv[i - 1], "--log") == 0)) {
            options->words[options->word_count++] = argv[i];
            continue;
        }
        for (size_t o = 0; o < sizeof ours / sizeof ours[0] && !taken; o++)
            TS_TRY(take(argc, argv, &i, ours[o].name, ours[o].value, &taken, error));
        if (!taken) options->words[options->word_count++] = argv[i];
    }
    return TERSE_OK;
}

/* Right behind the program's name, so that no other --set of the user's is in front of it unseen. text: [out] [own] */
static terse_status add_override(ts_worker_options *options, const char *key, const char *value, char **text) {
    size_t room = strlen(key) + strlen(value) + 1;
    *text = ts_mem_calloc(room, 1);
    TS_REQUIRE(*text, TERSE_ENOMEM);
    snprintf(*text, room, "%s%s", key, value);
    memmove(options->words + 3, options->words + 1, (size_t)(options->word_count - 1) * sizeof *options->words);
    options->words[1] = "--set";
    options->words[2] = *text;
    options->word_count += 2;
    return TERSE_OK;
}

static terse_status read_words(int argc, char **argv, ts_worker_options *options, ts_error *error) {
    const char *plugin = NULL, *id = NULL;
    options->words = ts_mem_calloc((size_t)argc + 5, sizeof *options->words);
    TS_REQUIRE(options->words, TERSE_ENOMEM);
    TS_TRY(split_off_ours(argc, argv, options, &plugin, &id, error));
    if (plugin) TS_TRY(add_override(options, PLUGIN_KEY, plugin, &options->plugin_override));
    if (id) TS_TRY(add_override(options, ID_KEY, id, &options->id_override));
    return TERSE_OK;
}

terse_status ts_worker_options_read(int argc, char **argv, ts_worker_options *out, ts_error *error) {
    TS_REQUIRE(argc > 0, TERSE_EINVAL);
    ts_worker_options options = {0};
    char **words = NULL;
    terse_status status = read_words(argc, argv, &options, error);
    if (status != TERSE_OK) goto out;
    /* Taken from a copy: terse_open takes the same words again. */
    int count = options.word_count;
    words = ts_mem_calloc((size_t)count + 1, sizeof *words);
    if (!words) {
        status = TERSE_ENOMEM;
        goto out;
    }
    memcpy(words, options.words, (size_t)count * sizeof *words);
    status = ts_command_line_take(&count, words, &options.shared, error);
    if (status != TERSE_OK) goto out;
    if (!options.shared.help && !options.shared.version) {
        if (count > 1)
            status = ts_error_set(error, TERSE_EINVAL, "\"%s\" is not an option of terse-worker; see --help", words[1]);
        else if (!options.shared.config)
            status = ts_error_set(error, TERSE_EINVAL, "no config file given; see --help");
        else if (options.save && options.summary && strcmp(options.save, options.summary) == 0)
            status = ts_error_set(error, TERSE_EINVAL, "--save and --summary name the same file: %s", options.save);
    }
out:
    ts_mem_free(words);
    if (status != TERSE_OK) {
        ts_worker_options_free(&options);
        return status;
    }
    *out = options;
    return TERSE_OK;
}

void ts_worker_options_free(ts_worker_options *options) {
    if (!options) return;
    ts_mem_free(options->words);
    ts_mem_free(options->plugin_override);
    ts_mem_free(options->id_override);
    *options = (ts_worker_options){0};
}

void ts_worker_options_help(const char *program, FILE *to) {
    fprintf(to,
            "Usage: %s CONFIG [options]\n"
            "Trains a model through Terse's parameter servers. Started by mpirun, beside terse-server:\n"
            "  mpirun --tune configs/openmpi.conf -n 2 terse-server CONFIG : -n 4 terse-worker CONFIG\n"
            "\n"
            "  --set KEY=VALUE   overrides a key of the config, as --set training.epochs=2; may be repeated\n"
            "  --plugin FILE.so  trains the model of this plug-in (see terse_model.h)\n"
            "  --worker-id N     comes into the running job of a daemon, as worker N, which was lost; any: as the one that\n"
            "                    has its residual on this host, else another lost one, else a new one; 1,3: rank by rank\n"
            "  --summary FILE    writes the result as JSON\n"
            "  --save FILE       writes the final parameters as safetensors\n"
            "  --log LEVEL       error, warn, info or debug\n"
            "  --help, --version\n"
            "\n"
            "Models (training.model):\n",
            program);
    ts_model_print_list(to);
    fprintf(to,
            "\nThe first SIGINT or SIGTERM ends the whole job at the worker's next step (SIGTERM, with checkpoint.dir, after\n"
            "a last checkpoint), the second one this process.\n"
            "Exit codes: 0 success, 1 failed, 2 config or command line, 3 a peer is gone or refused, 4 deadline.\n");
}
