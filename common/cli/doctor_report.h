/* SPDX-License-Identifier: Apache-2.0 */
/* Findings of `terse doctor`: printed as they come, as lines for people or as JSON, and counted. */
#ifndef TS_CLI_DOCTOR_REPORT_H
#define TS_CLI_DOCTOR_REPORT_H

#include <stdbool.h>

#include "common/base/status.h"

typedef enum { TS_DOCTOR_OK, TS_DOCTOR_WARN, TS_DOCTOR_FAIL } ts_doctor_verdict;

typedef struct {
    bool json;
    bool terminal;
    char where[96];  /* "rank 2 on h1: ", or "" outside of mpirun */
    bool quiet;      /* what is fine is not said (ranks that repeat what another has said) */
    unsigned warnings, failures;
} ts_doctor_report;

/* what: the topic in a word or two; fix: what to do, or NULL. format: what was found. */
void ts_doctor_say(ts_doctor_report *report, ts_doctor_verdict verdict, const char *what, const char *fix,
                   const char *format, ...) TERSE_PRINTF(5, 6);

#endif
