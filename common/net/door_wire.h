/* SPDX-License-Identifier: Apache-2.0 */
/* What both sides of a door agree on, and nobody else needs. */
#ifndef TS_NET_DOOR_WIRE_H
#define TS_NET_DOOR_WIRE_H

#define TS_DOOR_MAGIC 0x726f6f44u /* "Door" */

#endif
