/* SPDX-License-Identifier: Apache-2.0 */
/* X(symbol): every consistency mode; adding one is its file and a line here. */
#ifndef TS_SERVER_CONSISTENCY_LIST_H
#define TS_SERVER_CONSISTENCY_LIST_H

#define TS_CONSISTENCY_LIST(X) \
    X(ts_consistency_bsp)      \
    X(ts_consistency_ssp)      \
    X(ts_consistency_asp)

#endif
