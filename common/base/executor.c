/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/executor.h"

static terse_status submit_inline(ts_executor *executor, ts_executor_fn work, ts_executor_fn done, void *argument) {
    (void)executor;
    work(argument);
    done(argument);
    return TERSE_OK;
}

ts_executor ts_executor_inline = {.submit = submit_inline, .threads = 1};
