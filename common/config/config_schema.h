/* SPDX-License-Identifier: Apache-2.0 */
/* From settings to a ts_config, by libcyaml. Internal to config/. */
#ifndef TS_CONFIG_SCHEMA_H
#define TS_CONFIG_SCHEMA_H

#include "common/config/config_source.h"

/*
 * Loads the settings, with the table's defaults for the rest, through libcyaml's schema.
 * out: [own], ts_config_free. Pipelines are not parsed yet.
 * Returns TERSE_OK, TERSE_ENOMEM, TERSE_ECONFIG (table and schema disagree: a bug).
 */
terse_status ts_config_schema_load(const ts_config_source *source, ts_config **out) TERSE_NODISCARD;

#endif
