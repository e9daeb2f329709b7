/* SPDX-License-Identifier: Apache-2.0 */
/* All kinds of layers, one file layer_<kind>.c each. */
#ifndef TS_MODELS_LAYER_LIST_H
#define TS_MODELS_LAYER_LIST_H

#define TS_LAYER_LIST(X) X(dense) X(conv) X(relu) X(pool)

#endif
