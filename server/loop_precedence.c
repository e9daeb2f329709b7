/* SPDX-License-Identifier: Apache-2.0 */
#include "server/loop_precedence.h"

#include <errno.h>
#include <sys/resource.h>

/* Linux: of the calling thread alone. */
static bool own_level(int *level) {
    errno = 0;
    *level = getpriority(PRIO_PROCESS, 0);
    return errno == 0;
}

void ts_precedence_set(ts_precedence *precedence, bool wanted) {
    int level;
    if (wanted == precedence->taken || precedence->refused || !own_level(&level)) return;
    if (level != (precedence->taken ? TS_PRECEDENCE_NICE : 0)) return; /* somebody else has set it */
    if (setpriority(PRIO_PROCESS, 0, wanted ? TS_PRECEDENCE_NICE : 0) == 0) precedence->taken = wanted;
    else precedence->refused = true;
}
