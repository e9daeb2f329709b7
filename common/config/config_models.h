/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a config's model, where they are known beforehand: built-in models, and `synthetic` by its list. */
#ifndef TS_CONFIG_MODELS_H
#define TS_CONFIG_MODELS_H

#include "common/config/config.h"
#include "common/config/config_shapes.h"

/*
 * out: [own], ts_shapes_clear; [out] in the order in which workers declare them.
 * Returns TERSE_OK; TERSE_ENOTFOUND (a plug-in, or a program of one's own); TERSE_EIO, TERSE_ECONFIG, TERSE_ENOMEM.
 */
terse_status ts_config_tensors(const ts_config *config, ts_shapes *out, ts_error *error) TERSE_NODISCARD;

#endif
