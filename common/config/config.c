/* SPDX-License-Identifier: Apache-2.0 */
#include "common/config/config.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/config/config_check.h"
#include "common/config/config_optimizer.h"
#include "common/config/config_schema.h"

static void free_texts(void *base, const ts_config_key *keys, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        switch (keys[i].kind) {
        case TS_KEY_CHOICE:
        case TS_KEY_TEXT:
        case TS_KEY_PATTERN:
        case TS_KEY_PATH:
        case TS_KEY_PIPELINE: ts_mem_free(*(char **)(void *)((char *)base + keys[i].offset)); break;
        default: break;
        }
    }
}

static void free_policy(ts_config_policy *policy) {
    for (unsigned i = 0; i < policy->rules_count; i++) free_texts(&policy->rules[i], ts_config_rule_keys, TS_RULE_KEYS);
    ts_mem_free(policy->rules);
}

void ts_config_free(ts_config *config) {
    if (!config) return;
    free_policy(&config->push);
    free_policy(&config->pull);
    free_texts(config, ts_config_keys, ts_config_keys_count);
    ts_mem_free(config);
}

/* The texts were checked when they were read, so only memory can fail here. */
static terse_status parse_policy(ts_config_policy *policy, ts_error *error) {
    TS_TRY(ts_pipeline_parse(policy->default_pipeline, &policy->parsed, error));
    for (unsigned i = 0; i < policy->rules_count; i++) {
        TS_TRY(ts_pipeline_parse(policy->rules[i].pipeline, &policy->rules[i].parsed, error));
    }
    return TERSE_OK;
}

terse_status ts_config_from_source(const ts_config_source *source, ts_config **out) {
    ts_config *config = NULL;
    terse_status status = ts_config_schema_load(source, &config);
    if (status == TERSE_OK) status = parse_policy(&config->push, source->error);
    if (status == TERSE_OK) status = parse_policy(&config->pull, source->error);
    if (status == TERSE_OK) ts_config_optimizer_defaults(source, config);
    if (status == TERSE_OK) status = ts_config_check(source, config);
    if (status != TERSE_OK) {
        ts_config_free(config);
        return status;
    }
    *out = config;
    return TERSE_OK;
}

typedef enum { PLAIN, WITH_PLACES, ABOVE } load_kind;

static terse_status load(const char *path, const char *const *overrides, unsigned override_count, load_kind kind,
                         ts_config **out, ts_error *error) {
    ts_config_source source;
    TS_TRY(ts_config_source_start(&source, path, error));
    source.above = kind == ABOVE;
    source.places = kind == WITH_PLACES;
    terse_status status = ts_config_source_file(&source);
    for (unsigned i = 0; status == TERSE_OK && i < override_count; i++) {
        status = ts_config_source_override(&source, overrides[i]);
    }
    if (status == TERSE_OK) status = ts_config_from_source(&source, out);
    ts_config_source_clear(&source);
    return status;
}

static terse_status load_in_c(const char *path, const char *const *overrides, unsigned override_count, load_kind kind,
                              ts_config **out, ts_error *error) {
    /* Numbers are written with a point in every locale of the program that embeds the library. */
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    TS_REQUIRE(c_locale, ts_error_set(error, TERSE_ENOMEM, "%s: out of memory", path));
    locale_t before = uselocale(c_locale);
    terse_status status = load(path, overrides, override_count, kind, out, error);
    uselocale(before);
    freelocale(c_locale);
    return status;
}

terse_status ts_config_load(const char *path, const char *const *overrides, unsigned override_count, ts_config **out,
                            ts_error *error) {
    return load_in_c(path, overrides, override_count, PLAIN, out, error);
}

terse_status ts_config_examine(const char *path, const char *const *overrides, unsigned override_count, ts_config **out,
                               ts_error *error) {
    return load_in_c(path, overrides, override_count, WITH_PLACES, out, error);
}

terse_status ts_config_load_above(const ts_config *config, const char *path, ts_config **out, ts_error *error) {
    const char *link = config->upstream.config;
    if (!link)
        return ts_error_set(error, TERSE_ECONFIG, "%s: upstream.config is missing; it names the file with which a relay is a "
                            "worker of the servers above", path);
    ts_config *above = NULL;
    TS_TRY(load_in_c(link, NULL, 0, ABOVE, &above, error));
    if (strcmp(config->servers.group, above->servers.group) == 0) {
        ts_config_free(above);
        return ts_error_set(error, TERSE_ECONFIG, "%s: servers.group is \"%s\", and so it is in %s; each level needs a name of "
                            "its own", path, config->servers.group, link);
    }
    *out = above;
    return TERSE_OK;
}

bool ts_config_keeps(const ts_config *config) {
    bool named = strcmp(config->keep, "off") != 0 && strcmp(config->keep, "auto") != 0;
    return config->error_feedback.enabled && named;
}

bool ts_config_joins(const ts_config *config) { return strcmp(config->worker.id, "new") != 0; }

uint32_t ts_config_worker_id(const ts_config *config, uint32_t rank) {
    const char *at = config->worker.id;
    if (*at < '0' || *at > '9') return UINT32_MAX;
    for (uint32_t r = 0; at && r < rank; r++) {
        at = strchr(at, ',');
        at = at ? at + 1 : NULL;
    }
    return at ? (uint32_t)strtoul(at, NULL, 10) : UINT32_MAX;
}

terse_status ts_config_run_dir(const ts_config *config, const char *path, char *dir, size_t capacity) {
    int len;
    if (config->daemon.dir) {
        len = snprintf(dir, capacity, "%s", config->daemon.dir);
    } else {
        const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
        len = snprintf(dir, capacity, "run/%.*s", dot && dot > name ? (int)(dot - name) : (int)strlen(name), name);
    }
    return len > 0 && (size_t)len < capacity ? TERSE_OK : TERSE_ELIMIT;
}
