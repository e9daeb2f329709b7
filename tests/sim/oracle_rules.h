/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle's own aggregation and optimizers, coordinate by coordinate. */
#ifndef TS_SIM_ORACLE_RULES_H
#define TS_SIM_ORACLE_RULES_H

#include "common/config/config.h"

/*
 * What the workers' values of one coordinate become. value: in worker order, sorted afterwards. weight: what each is
 * multiplied by (samples, clipping); total: what the sum is divided by.
 */
float ts_oracle_combine(const ts_config *config, float *value, const float *weight, uint32_t count, float total);

/* One step over n elements with a learning rate. state: three arrays of 512, zero before step 0. g: the aggregate, clipped in place. */
void ts_oracle_step(const ts_config *config, uint64_t step, double lr, bool plain, bool sparse, size_t n, float *w,
                    float (*state)[512], float *g);

#endif
