/* SPDX-License-Identifier: Apache-2.0 */
/* The pull's packets: encoded once a round, behind the optimizer, in the work item. */
#ifndef TS_SERVER_DOWNLINK_H
#define TS_SERVER_DOWNLINK_H

#include "common/wire/bundle.h"
#include "server/round.h"

/*
 * Appends the packet that brings workers to the slice's next version, and moves the reference by it.
 * average: the round's sum, for aggregate-only slices. entry: [out] offset and len inside the frame.
 * Returns TERSE_OK, TERSE_ENOMEM, TERSE_ECORRUPT (the codec refuses its own packet: a bug).
 */
terse_status ts_downlink_encode(ts_round_item *item, ts_round_entry *entry, ts_bundle_writer *writer) TERSE_NODISCARD;

/*
 * Where the parameters themselves go out, room for them in the frame, which whoever makes them fills; then nothing is
 * left to encode. room: [out] NULL where something else goes out. entry: [out] as above. Returns TERSE_OK, TERSE_ENOMEM.
 */
terse_status ts_downlink_room(ts_round_entry *entry, ts_bundle_writer *writer, uint8_t **room) TERSE_NODISCARD;

#endif
