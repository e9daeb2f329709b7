/* SPDX-License-Identifier: Apache-2.0 */
/* What hangs on optimizer.name: defaults and which keys it uses; and checks of aggregation. Internal to config/. */
#ifndef TS_CONFIG_OPTIMIZER_H
#define TS_CONFIG_OPTIMIZER_H

#include "common/config/config_source.h"

/* Gives keys that were not set the defaults of the chosen optimizer. config: what was loaded from `source`. */
void ts_config_optimizer_defaults(const ts_config_source *source, ts_config *config);
/* Returns TERSE_OK, TERSE_ECONFIG. */
terse_status ts_config_optimizer_check(const ts_config_source *source, const ts_config *config) TERSE_NODISCARD;

#endif
