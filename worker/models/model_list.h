/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All built-in models, one file model_<name>.c each; the registry, the help
 * text and the tests come from this list. X(name, what it is)
 */
#ifndef TS_MODELS_MODEL_LIST_H
#define TS_MODELS_MODEL_LIST_H

#include "worker/terse_model.h"

#define TS_MODEL_LIST(X)                                                        \
    X(softmax, "softmax regression on Fashion-MNIST, 7,850 parameters")         \
    X(mlp, "784-512-256-10 perceptron on Fashion-MNIST, 535,818 parameters")    \
    X(cnn, "two convolutions, two dense layers on Fashion-MNIST, 80,202 parameters") \
    X(synthetic, "tensors of training.shapes with long-tailed gradients and no computing")

#define TS_MODEL_DECLARE(name, text) extern const terse_model ts_model_##name;
TS_MODEL_LIST(TS_MODEL_DECLARE)
#undef TS_MODEL_DECLARE

#endif
