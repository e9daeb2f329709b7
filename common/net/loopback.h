/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This process's TCP connections to its own host. Linux's BBR (Cardwell et al. 2016: "BBR: congestion-based congestion
 * control") sends by a timer, at the rate that it believes the path to have. Where there is no path that only takes time.
 */
#ifndef TS_NET_LOOPBACK_H
#define TS_NET_LOOPBACK_H

/*
 * Those that stand and are under BBR, whoever made them, are under Reno (RFC 5681) from here on: Linux goes on pacing them, at
 * the rate that Reno's window and the time of a round trip allow, which is no limit here. Others stay as they are. Returns how
 * many were changed. Thread: any.
 */
unsigned ts_loopback_leave_bbr(void);

#endif
