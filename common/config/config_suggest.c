/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences about keys: what is allowed, and what a misspelt one may have meant. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/config/config_keys.h"

#define NAME_CHARS 64

/* Appends to a text that is cut at its capacity. */
TERSE_PRINTF(3, 4)
static void append(char *text, size_t capacity, const char *format, ...) {
    size_t at = strlen(text);
    if (at + 1 >= capacity) return;
    va_list args;
    va_start(args, format);
    vsnprintf(text + at, capacity - at, format, args);
    va_end(args);
}

/* Edits between two short names (Levenshtein 1966); names are cut at NAME_CHARS. */
static unsigned distance(const char *a, const char *b) {
    unsigned row[NAME_CHARS + 1];
    size_t a_len = strnlen(a, NAME_CHARS), b_len = strnlen(b, NAME_CHARS);
    for (size_t j = 0; j <= b_len; j++) row[j] = (unsigned)j;
    for (size_t i = 1; i <= a_len; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_len; j++) {
            unsigned best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[b_len];
}

static const char *last_part(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

typedef struct {
    const char *name;
    unsigned edits;
} guess;

static void consider(guess *best, const char *section, const char *wrong, const char *candidate) {
    unsigned edits = 2 * distance(last_part(wrong), last_part(candidate));
    /* The same section wins among equals: "training.epoch" means training's epochs. */
    size_t len = strlen(section);
    if (strncmp(candidate, section, len) != 0 || (len > 0 && candidate[len] != '.')) edits++;
    if (edits < best->edits) *best = (guess){candidate, edits};
}

static bool is_rules(const char *section) {
    const ts_config_key *key = ts_config_key_find(section);
    return key && key->kind == TS_KEY_RULES;
}

/* The names that may stand directly in a section, separated by commas. */
static void list_children(const char *section, char *text, size_t capacity) {
    size_t len = strlen(section);
    char previous[NAME_CHARS] = "";
    for (unsigned i = 0; i < ts_config_keys_count; i++) {
        const char *name = ts_config_keys[i].name;
        if (len > 0 && (strncmp(name, section, len) != 0 || name[len] != '.')) continue;
        const char *child = name + (len ? len + 1 : 0);
        size_t child_len = strcspn(child, ".");
        if (child_len >= sizeof previous || (strncmp(child, previous, child_len) == 0 && !previous[child_len])) continue;
        append(text, capacity, "%s%.*s", previous[0] ? ", " : "", (int)child_len, child);
        memcpy(previous, child, child_len);
        previous[child_len] = '\0';
    }
}

void ts_config_key_suggest(const char *section, const char *name, char *text, size_t capacity) {
    size_t longest = strlen(last_part(name));
    guess best = {NULL, longest < 4 ? 4 : longest < 8 ? 6 : 8}; /* twice the edits, exclusive */
    snprintf(text, capacity, "unknown key");
    if (is_rules(section)) {
        for (unsigned i = 0; i < TS_RULE_KEYS; i++) consider(&best, "", name, ts_config_rule_keys[i].name);
        if (best.name) append(text, capacity, "; did you mean %s?", best.name);
        append(text, capacity, "%s allowed here: ", best.name ? "" : ";");
        for (unsigned i = 0; i < TS_RULE_KEYS; i++) {
            append(text, capacity, "%s%s", i ? ", " : "", ts_config_rule_keys[i].name);
        }
        return;
    }
    for (unsigned i = 0; i < ts_config_keys_count; i++) consider(&best, section, name, ts_config_keys[i].name);
    for (unsigned i = 0; i < ts_config_sections_count; i++) consider(&best, section, name, ts_config_sections[i].name);
    if (best.name) append(text, capacity, "; did you mean %s?", best.name);
    append(text, capacity, "%s allowed here: ", best.name ? "" : ";");
    list_children(section, text, capacity);
}

static void allowed_whole(const ts_config_key *key, char *text, size_t capacity) {
    if (key->high == UINT64_MAX) {
        snprintf(text, capacity, "a whole number of at least %llu", (unsigned long long)key->low);
    } else {
        snprintf(text, capacity, "a whole number from %llu to %llu", (unsigned long long)key->low,
                 (unsigned long long)key->high);
    }
}

void ts_config_key_allowed(const ts_config_key *key, char *text, size_t capacity) {
    switch (key->kind) {
    case TS_KEY_U32:
    case TS_KEY_U64: allowed_whole(key, text, capacity); break;
    case TS_KEY_F64:
        snprintf(text, capacity, "a number %s %.9g and %s %.9g", key->low_open ? "above" : "of at least", key->low_real,
                 key->high_open ? "below" : "at most", key->high_real);
        break;
    case TS_KEY_BOOL: snprintf(text, capacity, "true or false"); break;
    case TS_KEY_ENUM:
    case TS_KEY_CHOICE:
        snprintf(text, capacity, "one of ");
        for (unsigned i = 0; i < key->names_count; i++) {
            append(text, capacity, "%s%s", i ? ", " : "", key->names[i].str);
        }
        break;
    case TS_KEY_TEXT: snprintf(text, capacity, "a text"); break;
    case TS_KEY_PATTERN: snprintf(text, capacity, "a pattern"); break;
    case TS_KEY_PATH: snprintf(text, capacity, key->names_count ? "`auto`, `never` or a path" : "a path"); break;
    case TS_KEY_PIPELINE: snprintf(text, capacity, "a pipeline, as topk:0.01 | int8"); break;
    case TS_KEY_RULES: snprintf(text, capacity, "a list of rules"); break;
    }
    if (key->unit) append(text, capacity, " (%s)", key->unit);
}
