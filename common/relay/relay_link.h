/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport over another one whose `send` may be called from a second thread: frames wait in a queue until the owner
 * of the real transport drains it. So the relay's client can encode in the pool while one thread alone moves bytes.
 */
#ifndef TS_RELAY_LINK_H
#define TS_RELAY_LINK_H

#include "common/net/transport.h"

/* real: [borrow] until destroy; its handler becomes the link's owner's business. Returns TERSE_ENOMEM. */
terse_status ts_relay_link_create(ts_transport *real, ts_transport **out) TERSE_NODISCARD;
/* Hands over what was queued. Thread: the real transport's. Returns whether there was anything. */
bool ts_relay_link_drain(ts_transport *link);

#endif
