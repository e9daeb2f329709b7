/* SPDX-License-Identifier: Apache-2.0 */
/* terse check's view of servers: memory beforehand, and --placement. */
#ifndef TS_CLI_CMD_CHECK_PLAN_H
#define TS_CLI_CMD_CHECK_PLAN_H

#include "common/config/config_plan.h"

typedef struct {
    uint32_t servers, workers;
    bool placement;    /* each server's share, not only the largest */
    bool shared_hosts; /* server i's host runs workers i, i + servers, … too */
} ts_check_layout;

/* Prints the plan. Returns TERSE_OK; what ts_plan_make returns, said on standard error. */
terse_status ts_check_print_plan(const ts_config *config, const ts_shapes *shapes, const ts_check_layout *layout)
    TERSE_NODISCARD;
/* What a relay holds beside a server's memory: as a worker of the servers above, by their config. Returns the same. */
terse_status ts_check_print_relay(const ts_config *above, const ts_shapes *shapes) TERSE_NODISCARD;

#endif
