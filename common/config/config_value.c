/* SPDX-License-Identifier: Apache-2.0 */
/* From a value as somebody wrote it to the one spelling that libcyaml reads back. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/config/config_keys.h"
#include "common/config/config_text.h"

#define TEXT_MAX_BYTES 4096

static terse_status refuse(const ts_config_key *key, ts_error *why) {
    char allowed[512];
    ts_config_key_allowed(key, allowed, sizeof allowed);
    return ts_error_set(why, TERSE_ECONFIG, "allowed: %s", allowed);
}

static terse_status keep(const char *text, char **out) {
    char *copy = ts_mem_strdup(text);
    TS_REQUIRE(copy, TERSE_ENOMEM);
    *out = copy;
    return TERSE_OK;
}

/* Decimal digits only: "0x10", "1e3" and "010" mean different things to different readers. */
static terse_status spell_whole(const ts_config_key *key, const char *text, char **out, ts_error *why) {
    size_t len = strlen(text);
    if (len == 0 || len > 20 || strspn(text, "0123456789") != len) return refuse(key, why);
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (errno != 0 || value < key->low || value > key->high) return refuse(key, why);
    char canonical[24];
    snprintf(canonical, sizeof canonical, "%llu", value);
    return keep(canonical, out);
}

const char *ts_config_spell_real(double value, char text[32]) {
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, 32, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    return text;
}

static terse_status spell_real(const ts_config_key *key, const char *text, char **out, ts_error *why) {
    size_t len = strlen(text);
    if (len == 0 || len > 64 || strspn(text, "0123456789+-.eE") != len) return refuse(key, why);
    char *end = NULL;
    double value = strtod(text, &end);
    if (*end != '\0' || end == text || !isfinite(value)) return refuse(key, why);
    if ((float)value == 0 && strcspn(text, "123456789") < strcspn(text, "eE")) {
        char allowed[512];
        ts_config_key_allowed(key, allowed, sizeof allowed);
        return ts_error_set(why, TERSE_ECONFIG, "too small: it would count as 0, since the least 32-bit float is 1.4e-45; allowed: %s",
                            allowed);
    }
    if (value < key->low_real || (key->low_open && value == key->low_real)) return refuse(key, why);
    if (value > key->high_real || (key->high_open && value == key->high_real)) return refuse(key, why);
    char canonical[32];
    return keep(ts_config_spell_real(value == 0 ? 0.0 : value, canonical), out); /* no -0 */
}

static terse_status spell_bool(const ts_config_key *key, const char *text, char **out, ts_error *why) {
    static const char *const yes[] = {"true", "yes", "on", "True", "TRUE"};
    static const char *const no[] = {"false", "no", "off", "False", "FALSE"};
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        if (strcmp(text, yes[i]) == 0) return keep("true", out);
        if (strcmp(text, no[i]) == 0) return keep("false", out);
    }
    return refuse(key, why);
}

static terse_status spell_name(const ts_config_key *key, const char *text, char **out, ts_error *why) {
    for (unsigned i = 0; i < key->names_count; i++) {
        if (strcmp(text, key->names[i].str) == 0) return keep(text, out);
    }
    return refuse(key, why);
}

static terse_status spell_pipeline(const char *text, char **out, ts_error *why) {
    ts_pipeline *parsed = ts_mem_calloc(1, sizeof *parsed);
    TS_REQUIRE(parsed, TERSE_ENOMEM);
    terse_status status = ts_pipeline_parse(text, parsed, why);
    ts_mem_free(parsed);
    if (status == TERSE_ENOMEM) return status;
    TS_REQUIRE(status == TERSE_OK, TERSE_ECONFIG);
    return keep(text, out);
}

static terse_status spell_text(const char *text, char **out, ts_error *why) {
    size_t len = strlen(text), at = ts_config_text_printable(text, len);
    if (at < len) return ts_error_set(why, TERSE_ECONFIG, "holds a control character at byte %zu", at + 1);
    return keep(text, out);
}

static terse_status spell_pattern(const char *text, char **out, ts_error *why) {
    size_t at;
    if (!ts_config_pattern_fault(text, &at)) return spell_text(text, out, why);
    return ts_error_set(why, TERSE_ECONFIG, text[at] == '[' ? "the '[' at byte %zu is never closed; allowed: *, ?, [a-z], and \\[ for "
                        "the character itself" : "nothing stands behind the '\\' at byte %zu; allowed: \\\\ for the character itself",
                        at + 1);
}

static terse_status spell(const ts_config_key *key, const char *text, char **out, ts_error *why) {
    switch (key->kind) {
    case TS_KEY_U32:
    case TS_KEY_U64: return spell_whole(key, text, out, why);
    case TS_KEY_F64: return spell_real(key, text, out, why);
    case TS_KEY_BOOL: return spell_bool(key, text, out, why);
    case TS_KEY_ENUM:
    case TS_KEY_CHOICE: return spell_name(key, text, out, why);
    case TS_KEY_TEXT:
    case TS_KEY_PATH: return spell_text(text, out, why);
    case TS_KEY_PATTERN: return spell_pattern(text, out, why);
    case TS_KEY_PIPELINE: return spell_pipeline(text, out, why);
    case TS_KEY_RULES: break;
    }
    return refuse(key, why);
}

terse_status ts_config_key_spell(const ts_config_key *key, const char *text, size_t len, char **out, ts_error *why) {
    if (!text || len == 0) {
        bool optional = !key->fallback && (key->kind == TS_KEY_TEXT || key->kind == TS_KEY_PATTERN || key->kind == TS_KEY_PATH);
        if (!optional) {
            char allowed[512];
            ts_config_key_allowed(key, allowed, sizeof allowed);
            return ts_error_set(why, TERSE_ECONFIG, "the value is missing; allowed: %s", allowed);
        }
        *out = NULL;
        return TERSE_OK;
    }
    if (len > TEXT_MAX_BYTES) {
        return ts_error_set(why, TERSE_ECONFIG, "longer than %d bytes", TEXT_MAX_BYTES);
    }
    if (strnlen(text, len) != len) return ts_error_set(why, TERSE_ECONFIG, "holds a zero byte");
    size_t sound = ts_config_text_utf8(text, len);
    if (sound < len) return ts_error_set(why, TERSE_ECONFIG, "not UTF-8 at byte %zu; allowed: text in UTF-8", sound + 1);
    char *whole = ts_mem_calloc(len + 1, 1); /* `text` need not end where the value does */
    TS_REQUIRE(whole, TERSE_ENOMEM);
    memcpy(whole, text, len);
    terse_status status = spell(key, whole, out, why);
    ts_mem_free(whole);
    return status;
}
