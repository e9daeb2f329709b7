/* SPDX-License-Identifier: Apache-2.0 */
/* X(symbol): every optimizer; adding one is its file and a line here. */
#ifndef TS_SERVER_OPTIMIZER_LIST_H
#define TS_SERVER_OPTIMIZER_LIST_H

#define TS_OPTIMIZER_LIST(X)                                                    \
    X(ts_optimizer_none)                                                        \
    X(ts_optimizer_sgd)                                                         \
    X(ts_optimizer_adagrad)                                                     \
    X(ts_optimizer_rmsprop)                                                     \
    X(ts_optimizer_adam)                                                        \
    X(ts_optimizer_adamw)                                                       \
    X(ts_optimizer_lamb)

#endif
