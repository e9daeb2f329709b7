/* SPDX-License-Identifier: Apache-2.0 */
/* The folders that a launch would write to. Internal to config/. */
#ifndef TS_CONFIG_PLACES_H
#define TS_CONFIG_PLACES_H

#include "common/config/config_source.h"

/*
 * Whether checkpoint.dir and error_feedback.keep are, or could be made, folders that this user can write to here. Nothing
 * is made. Returns TERSE_OK, TERSE_ECONFIG, TERSE_ENOMEM.
 */
terse_status ts_config_check_places(const ts_config_source *source, const ts_config *config) TERSE_NODISCARD;

#endif
