/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/config/config.h"

#define OVERRIDES_MAX (sizeof((ts_command_line *)0)->overrides / sizeof(const char *))

static bool ends_with(const char *text, const char *end) {
    size_t len = strlen(text), end_len = strlen(end);
    return len > end_len && strcmp(text + len - end_len, end) == 0;
}

/*
 * Which argument is the config file. An option that is not ours may take a value, so what follows one is only taken
 * for the file when its name says so.
 */
static int find_config(int argc, char **argv) {
    int plain = 0;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--set") == 0 || strcmp(argv[i], "--log") == 0) {
            i++;
            continue;
        }
        if (argv[i][0] == '-') continue;
        if (ends_with(argv[i], ".yaml") || ends_with(argv[i], ".yml")) return i;
        bool value = argv[i - 1][0] == '-' && i > 1 && strcmp(argv[i - 2], "--set") != 0 && strcmp(argv[i - 2], "--log") != 0;
        if (plain == 0 && !value) plain = i;
    }
    return plain;
}

/* `--name VALUE` or `--name=VALUE`: the value, NULL when argv[*i] is another option. Sets *missing. */
static const char *option_value(int argc, char **argv, int *i, const char *name, bool *missing) {
    size_t len = strlen(name);
    if (strncmp(argv[*i], name, len) != 0) return NULL;
    if (argv[*i][len] == '=') return argv[*i] + len + 1;
    if (argv[*i][len] != '\0') return NULL;
    if (*i + 1 < argc) return argv[++*i];
    *missing = true;
    return NULL;
}

static terse_status add(ts_command_line *line, const char *override, ts_error *error) {
    if (line->override_count == OVERRIDES_MAX) {
        return ts_error_set(error, TERSE_EINVAL, "more than %zu options of --set and --log", OVERRIDES_MAX);
    }
    line->overrides[line->override_count++] = override;
    return TERSE_OK;
}

static terse_status add_level(ts_command_line *line, const char *level, ts_error *error) {
    static const char *const overrides[] = {"log.level=error", "log.level=warn", "log.level=info", "log.level=debug"};
    for (size_t i = 0; i < sizeof overrides / sizeof overrides[0]; i++) {
        if (strcmp(strchr(overrides[i], '=') + 1, level) == 0) return add(line, overrides[i], error);
    }
    return ts_error_set(error, TERSE_EINVAL, "--log %.100s: allowed: error, warn, info, debug", level);
}

terse_status ts_command_line_take(int *argc, char **argv, ts_command_line *out, ts_error *error) {
    ts_command_line line = {0};
    int config = find_config(*argc, argv), kept = *argc > 0 ? 1 : 0, i = 1;
    for (; i < *argc; i++) {
        bool missing = false;
        const char *value;
        if (strcmp(argv[i], "--") == 0) break;
        if (i == config) {
            line.config = argv[i];
        } else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            line.help = true;
        } else if (strcmp(argv[i], "--version") == 0) {
            line.version = true;
        } else if ((value = option_value(*argc, argv, &i, "--set", &missing)) != NULL) {
            TS_TRY(add(&line, value, error));
        } else if (!missing && (value = option_value(*argc, argv, &i, "--log", &missing)) != NULL) {
            TS_TRY(add_level(&line, value, error));
        } else if (missing) {
            return ts_error_set(error, TERSE_EINVAL, "%s: a value must follow, as --set training.epochs=2 or --log debug",
                                argv[i]);
        } else {
            argv[kept++] = argv[i];
        }
    }
    for (; i < *argc; i++) argv[kept++] = argv[i]; /* from "--" on, nothing is ours */
    if (kept < *argc) argv[kept] = NULL;
    *argc = kept;
    *out = line;
    return TERSE_OK;
}

int ts_command_line_begin(int argc, char **argv, const char *program, const char *usage, ts_decline *decline, ts_command_line *out) {
    ts_error error = {""};
    if (ts_command_line_take(&argc, argv, out, &error) != TERSE_OK) return decline(error.text, TS_EXIT_CONFIG);
    if (out->help || out->version) {
        if (out->version) printf("%s %s\n", program, TS_VERSION);
        else fputs(usage, stdout);
        return ts_exit_flush(program, TS_EXIT_OK);
    }
    if (out->config && argc <= 1) return -1;
    fputs(usage, stderr);
    if (argc > 1) (void)ts_error_set(&error, TERSE_ECONFIG, "%s: %s: no such option", program, argv[1]);
    else (void)ts_error_set(&error, TERSE_ECONFIG, "%s: no config file given", program);
    return decline(error.text, TS_EXIT_CONFIG);
}

int ts_exit_flush(const char *program, int code) {
    bool before = ferror(stdout) != 0;
    errno = 0;
    if (fflush(stdout) == 0 && !before) return code;
    fprintf(stderr, "%s: standard output cannot be written%s%s\n", program, errno ? ": " : "", errno ? strerror(errno) : "");
    return code == TS_EXIT_OK ? TS_EXIT_FAILED : code;
}

int ts_exit_code(terse_status status) {
    switch (status) {
    case TERSE_OK: return TS_EXIT_OK;
    case TERSE_ECONFIG: return TS_EXIT_CONFIG;
    case TERSE_EPEER:
    case TERSE_EMISMATCH:
    case TERSE_EVERSION:
    case TERSE_ESHUTDOWN: return TS_EXIT_PEER;
    case TERSE_ETIMEDOUT: return TS_EXIT_DEADLINE;
    default: return TS_EXIT_FAILED;
    }
}
