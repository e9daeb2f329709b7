/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport that shows another one's peers in other roles, for a process that belongs to two groups (groups.h). Only
 * the other one is polled; its back end hands the frames of peers that have no role there to the view's handler.
 */
#ifndef TS_NET_TRANSPORT_VIEW_H
#define TS_NET_TRANSPORT_VIEW_H

#include "common/net/groups.h"

/* base: [borrow] until destroy. view: its arrays are [borrow] as long. out: [own], ops->destroy. Returns TERSE_ENOMEM. */
terse_status ts_transport_view_create(ts_transport *base, const ts_group_view *view, ts_transport **out) TERSE_NODISCARD;

#endif
