/* SPDX-License-Identifier: Apache-2.0 */
/* Checks over several keys, and of the files that keys name. Internal to config/. */
#ifndef TS_CONFIG_CHECK_H
#define TS_CONFIG_CHECK_H

#include "common/config/config_source.h"

/*
 * From settings to a whole config: defaults, pipelines, checks. out: [own], ts_config_free.
 * Returns TERSE_OK, TERSE_ECONFIG, TERSE_ENOMEM.
 */
terse_status ts_config_from_source(const ts_config_source *source, ts_config **out) TERSE_NODISCARD;
/* config: what was loaded from `source`. Returns TERSE_OK, TERSE_ECONFIG, TERSE_ENOMEM. */
terse_status ts_config_check(const ts_config_source *source, const ts_config *config) TERSE_NODISCARD;

#endif
