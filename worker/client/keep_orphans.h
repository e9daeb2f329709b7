/* SPDX-License-Identifier: Apache-2.0 */
/* Which workers' residuals lie on this host without a process that uses them. */
#ifndef TS_KEEP_ORPHANS_H
#define TS_KEEP_ORPHANS_H

#include <stddef.h>
#include <stdint.h>

/*
 * Looks through a folder of kept files (error_feedback.keep) for those that nobody has locked. worker: [out] ascending, `most`
 * at most. Returns how many; 0 also when there is no such folder. Not while this process has one of them open: looking at a
 * file lets go of this process's lock on it.
 */
size_t ts_keep_orphans(const char *dir, uint32_t *worker, size_t most);

#endif
