/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a person watches our output. */
#ifndef TS_TRAINER_TERMINAL_H
#define TS_TRAINER_TERMINAL_H

#include <stdbool.h>

typedef struct {
    bool live;      /* one line may be rewritten in place */
    bool colour;    /* live, and NO_COLOR is not set */
    unsigned width; /* columns, 80 when unknown */
} ts_terminal;

/*
 * Looks at a descriptor. mpirun gives its ranks a pseudo-terminal whatever its own output is, so below mpirun it is
 * mpirun's descriptor that counts. TERM=dumb and the absence of TERM mean no.
 */
ts_terminal ts_terminal_look(int fd);

#endif
