/* SPDX-License-Identifier: Apache-2.0 */
/* What a server's memory is made of. */
#ifndef TS_SERVER_MEMORY_H
#define TS_SERVER_MEMORY_H

#include "server/job.h"

/* Bytes. What is counted is exact; a frame that is queued for several workers counts for each of them. */
typedef struct {
    ts_store_memory store;   /* of all jobs */
    size_t scratch;          /* working memory: sums, differences, packets under way, replies */
    size_t gathered;         /* closed packets on their way into a frame */
    size_t queued;           /* frames that the transport has not handed on */
    size_t spare;            /* frames' memory kept for the next ones */
    size_t total;            /* of all that */
    size_t resident, peak;   /* of the whole process, from the system; 0 when it does not tell */
} ts_server_memory;

/* Thread: the loop's. Items that are at work are left out of `scratch`. */
ts_server_memory ts_server_memory_of(const ts_server *server);
/* Two lines of text. */
void ts_server_memory_print(const ts_server_memory *memory, FILE *out);

#endif
