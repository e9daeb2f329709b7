/* SPDX-License-Identifier: Apache-2.0 */
/* terse-worker's command line. */
#ifndef TS_TRAINER_OPTIONS_H
#define TS_TRAINER_OPTIONS_H

#include <stdio.h>

#include "common/config/config.h"

typedef struct {
    const char *summary, *save; /* files to write, or NULL */
    char *plugin_override;      /* [own] "worker.plugin=FILE", or NULL */
    char *id_override;          /* [own] "worker.id=N", or NULL */
    char **words;               /* [own] the command line without our own options, for terse_open */
    int word_count;
    ts_command_line shared;
} ts_worker_options;

/*
 * Reads the command line. --plugin FILE counts as --set worker.plugin=FILE, --worker-id N as --set worker.id=N.
 * argv: [borrow] as long as the options. out: [own], ts_worker_options_free.
 * Returns: TERSE_OK, EINVAL (a sentence), ENOMEM.
 */
terse_status ts_worker_options_read(int argc, char **argv, ts_worker_options *out, ts_error *error) TERSE_NODISCARD;
void ts_worker_options_free(ts_worker_options *options);

void ts_worker_options_help(const char *program, FILE *to);

#endif
