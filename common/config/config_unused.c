/* SPDX-License-Identifier: Apache-2.0 */
/* Rules that no tensor of the model falls under. */
#include <stdio.h>

#include "common/config/config.h"

typedef ts_config_tensor (*tensor_fn)(const void *list, size_t i);
typedef void (*say_fn)(void *context, const char *text);

static bool is_used(const ts_config_policy *policy, unsigned rule, tensor_fn tensor, const void *list, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const ts_config_tensor t = tensor(list, i);
        if (ts_config_pipeline(policy, t.name, t.shape, t.ndim) == &policy->rules[rule].parsed) return true;
    }
    return false;
}

static void look_through(const ts_config_policy *policy, const char *name, tensor_fn tensor, const void *list,
                         size_t count, say_fn say, void *context) {
    char text[240];
    for (unsigned i = 0; i < policy->rules_count; i++) {
        const ts_config_rule *rule = &policy->rules[i];
        if (is_used(policy, i, tensor, list, count)) continue;
        snprintf(text, sizeof text, "%s.rules[%u] (%s%.60s, pipeline %.60s) is the rule of none of the %zu tensors", name, i,
                 rule->match ? "match " : "no match", rule->match ? rule->match : "", rule->parsed.text, count);
        say(context, text);
    }
}

void ts_config_unused_rules(const ts_config *config, tensor_fn tensor, const void *list, size_t count, say_fn say,
                            void *context) {
    look_through(&config->push, "push", tensor, list, count, say, context);
    look_through(&config->pull, "pull", tensor, list, count, say, context);
}
