/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as people read them. Each function writes into `text` and returns it. */
#ifndef TS_TRAINER_HUMAN_H
#define TS_TRAINER_HUMAN_H

#include <stdint.h>

#define TS_HUMAN_CHARS 32

/* "1,234,567" */
char *ts_human_count(uint64_t value, char text[TS_HUMAN_CHARS]);
/* "812 B", "3.14 MB", "4.0 GB": powers of 1000 */
char *ts_human_bytes(double bytes, char text[TS_HUMAN_CHARS]);
/* "312x", "8.1x" */
char *ts_human_times(double ratio, char text[TS_HUMAN_CHARS]);
/* "0:42", "1:02:03" */
char *ts_human_clock(double seconds, char text[TS_HUMAN_CHARS]);

#endif
