/* SPDX-License-Identifier: Apache-2.0 */
/* Settings with their origins: storage, and the sentences that refuse them. */
#include "common/config/config_source.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/config/config_text.h"

#define VALUE_CHARS 160

terse_status ts_config_source_start(ts_config_source *source, const char *path, ts_error *error) {
    ts_config_entry *entries = ts_mem_calloc(ts_config_keys_count, sizeof *entries);
    TS_REQUIRE(entries, ts_error_set(error, TERSE_ENOMEM, "out of memory"));
    *source = (ts_config_source){.path = path, .entries = entries, .error = error};
    return TERSE_OK;
}

void ts_config_entry_clear_rules(ts_config_entry *entry) {
    for (unsigned i = 0; i < entry->rules_count; i++) {
        for (unsigned k = 0; k < TS_RULE_KEYS; k++) ts_mem_free(entry->rules[i].keys[k].text);
    }
    ts_mem_free(entry->rules);
    entry->rules = NULL;
    entry->rules_count = 0;
}

void ts_config_source_clear(ts_config_source *source) {
    for (unsigned i = 0; source->entries && i < ts_config_keys_count; i++) {
        ts_mem_free(source->entries[i].value.text);
        ts_config_entry_clear_rules(&source->entries[i]);
    }
    ts_mem_free(source->entries);
    source->entries = NULL;
}

static const ts_config_entry *entry_of(const ts_config_source *source, const char *name) {
    const ts_config_key *key = ts_config_key_find(name);
    assert(key);
    return &source->entries[ts_config_key_index(key)];
}

bool ts_config_given(const ts_config_source *source, const char *name) {
    const ts_config_entry *entry = entry_of(source, name);
    return entry->value.text != NULL || entry->rules_count > 0;
}

bool ts_config_chosen(const ts_config_source *source, const char *name) {
    const char *text = entry_of(source, name)->value.text, *fallback = ts_config_key_find(name)->fallback;
    return text && (!fallback || strcmp(text, fallback) != 0);
}

/* A value as it may stand in a message: cut. */
static void quote(const char *value, char text[VALUE_CHARS + 8]) {
    snprintf(text, VALUE_CHARS + 8, "\"%.*s%s\"", VALUE_CHARS - 1, value, strlen(value) >= VALUE_CHARS ? "..." : "");
}

static terse_status refuse_with(const ts_config_source *source, ts_origin origin, const char *key, const char *value,
                                const char *format, va_list args) {
    char sentence[TS_ERROR_CHARS], quoted[VALUE_CHARS + 8], place[300], whole[2 * TS_ERROR_CHARS];
    vsnprintf(sentence, sizeof sentence, format, args);
    if (value) quote(value, quoted);
    if (origin.override) {
        snprintf(place, sizeof place, "%s%.250s", source->bare ? "" : "--set ", origin.override);
    } else if (origin.line > 0) {
        snprintf(place, sizeof place, "%.250s:%zu", source->path, origin.line);
    } else {
        snprintf(place, sizeof place, "%.250s", source->path);
    }
    snprintf(whole, sizeof whole, "%s: %s%s%s%s%s", place, key, key[0] ? ": " : "", value ? quoted : "", value ? ": " : "",
             sentence);
    ts_config_text_show(whole); /* what was typed may hold anything, and is not to act on a terminal */
    return ts_error_set(source->error, TERSE_ECONFIG, "%s", whole);
}

terse_status ts_config_refuse_at(const ts_config_source *source, ts_origin origin, const char *key, const char *value,
                                 const char *format, ...) {
    va_list args;
    va_start(args, format);
    terse_status status = refuse_with(source, origin, key, value, format, args);
    va_end(args);
    return status;
}

terse_status ts_config_refuse(const ts_config_source *source, const char *name, const char *format, ...) {
    const ts_config_entry *entry = entry_of(source, name);
    const char *value = entry->value.text ? entry->value.text : ts_config_key_find(name)->fallback;
    va_list args;
    va_start(args, format);
    terse_status status = refuse_with(source, entry->value.origin, name, value, format, args);
    va_end(args);
    return status;
}
