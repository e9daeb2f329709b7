/* SPDX-License-Identifier: Apache-2.0 */
/* From a received frame to the module that answers it; what cannot be answered is counted and dropped. */
#ifndef TS_SERVER_DISPATCH_H
#define TS_SERVER_DISPATCH_H

#include "server/server_internal.h"

/* buffer: [borrow]. */
void ts_dispatch_frame(ts_server *server, uint32_t peer, ts_buffer *buffer);

#endif
