/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcyaml's schema is built from the table, so that a key stands in one place
 * only. libcyaml knows no defaults: the settings are written out as a complete
 * document first, and that is what it loads.
 */
#include "common/config/config_schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"

/* ---- the document ------------------------------------------------------------------------------------------------ */

typedef struct {
    char *text;
    size_t len, capacity;
    bool failed; /* out of memory; checked once at the end */
} writer;

static void put(writer *w, const char *bytes, size_t len) {
    if (w->failed) return;
    if (w->len + len + 1 > w->capacity) {
        size_t capacity = (w->len + len + 1) * 2 + 4096;
        char *grown = ts_mem_realloc(w->text, capacity, 1);
        w->failed = !grown;
        if (!grown) return;
        w->text = grown;
        w->capacity = capacity;
    }
    memcpy(w->text + w->len, bytes, len);
    w->len += len;
    w->text[w->len] = '\0';
}

static void put_text(writer *w, const char *text) { put(w, text, strlen(text)); }

/* As a double-quoted scalar, which can hold anything. */
static void put_quoted(writer *w, const char *text) {
    put_text(w, "\"");
    for (const char *p = text; *p; p++) {
        if (*p == '"' || *p == '\\') put_text(w, "\\");
        put(w, p, 1);
    }
    put_text(w, "\"");
}

static void put_pair(writer *w, const ts_config_key *key, const char *name, size_t name_len, const char *value) {
    put(w, name, name_len);
    put_text(w, ": ");
    bool text = key->kind == TS_KEY_TEXT || key->kind == TS_KEY_PATTERN || key->kind == TS_KEY_PATH || key->kind == TS_KEY_PIPELINE;
    if (text) {
        put_quoted(w, value);
    } else {
        put_text(w, value);
    }
    put_text(w, "\n");
}

/* "folder of the config file / value" for a relative path of the file; what the command line names is relative to
 * where the user stands. */
static void put_path(writer *w, const ts_config_source *source, const ts_setting *setting, const char *name) {
    const char *slash = strrchr(source->path, '/');
    writer path = {0};
    if (setting->text[0] != '/' && setting->origin.line > 0 && slash) {
        put(&path, source->path, (size_t)(slash - source->path) + 1);
    } else if (!strchr(setting->text, '/')) {
        put_text(&path, "./"); /* a plug-in's bare name would be looked for among the system's libraries */
    }
    put_text(&path, setting->text);
    put_text(w, name);
    put_text(w, ": ");
    if (!path.failed) put_quoted(w, path.text);
    put_text(w, "\n");
    w->failed = w->failed || path.failed;
    ts_mem_free(path.text);
}

static void put_rules(writer *w, const ts_config_entry *entry, const char *name, int indent) {
    put_text(w, name);
    put_text(w, ":\n");
    for (unsigned i = 0; i < entry->rules_count; i++) {
        bool first = true;
        for (unsigned k = 0; k < TS_RULE_KEYS; k++) {
            const ts_config_key *key = &ts_config_rule_keys[k];
            const char *value = entry->rules[i].keys[k].text ? entry->rules[i].keys[k].text : key->fallback;
            if (!value) continue;
            char lead[32];
            snprintf(lead, sizeof lead, "%*s%s", indent, "", first ? "- " : "  ");
            put_text(w, lead);
            put_pair(w, key, key->name, strlen(key->name), value);
            first = false;
        }
    }
}

/* Opens the sections in which `name` lies and the one before it did not; returns the number of its own sections. */
static int open_sections(writer *w, const char *name, const char *before) {
    int depth = 0;
    bool same = true;
    for (const char *part = name, *dot; (dot = strchr(part, '.')) != NULL; part = dot + 1, depth++) {
        size_t len = (size_t)(dot - name) + 1;
        same = same && strncmp(name, before, len) == 0;
        if (same) continue;
        char lead[32];
        snprintf(lead, sizeof lead, "%*s", 2 * depth, "");
        put_text(w, lead);
        put(w, part, (size_t)(dot - part));
        put_text(w, ":\n");
    }
    return depth;
}

/* Whether the text of a path is one of the words that stand for something else. */
static bool is_name(const ts_config_key *key, const char *text) {
    for (unsigned i = 0; i < key->names_count; i++)
        if (strcmp(key->names[i].str, text) == 0) return true;
    return false;
}

static void write_document(writer *w, const ts_config_source *source) {
    const char *before = "";
    for (unsigned i = 0; i < ts_config_keys_count; i++) {
        const ts_config_key *key = &ts_config_keys[i];
        const ts_config_entry *entry = &source->entries[i];
        const char *value = entry->value.text ? entry->value.text : key->fallback;
        if (!value && entry->rules_count == 0) continue;
        int depth = open_sections(w, key->name, before);
        before = key->name;
        const char *name = strrchr(key->name, '.') + 1;
        char lead[32];
        snprintf(lead, sizeof lead, "%*s", 2 * depth, "");
        put_text(w, lead);
        if (key->kind == TS_KEY_RULES) {
            put_rules(w, entry, name, 2 * depth + 2);
        } else if (key->kind == TS_KEY_PATH && entry->value.text && !is_name(key, entry->value.text)) {
            put_path(w, source, &entry->value, name);
        } else {
            put_pair(w, key, name, strlen(name), value);
        }
    }
}

/* ---- the schema -------------------------------------------------------------------------------------------------- */

typedef struct {
    cyaml_schema_field_t *fields; /* all levels; each ends with an empty entry */
    size_t used;
    cyaml_schema_value_t rule;
    cyaml_schema_field_t rule_fields[TS_RULE_KEYS + 1];
} schema;

/* All enums of the table have the width of an int, and one entry of it stands for all. */
_Static_assert(sizeof(ts_mode) == sizeof(ts_optimizer_name) && sizeof(ts_mode) == sizeof(ts_schedule_name) &&
                   sizeof(ts_mode) == sizeof(ts_nonfinite) && sizeof(ts_mode) == sizeof(ts_feedback_variant) &&
                   sizeof(ts_mode) == sizeof(ts_residual_format) && sizeof(ts_mode) == sizeof(ts_aggregate_mode) &&
                   sizeof(ts_mode) == sizeof(ts_robust_name),
               "enums of one width");

static cyaml_schema_value_t scalar_schema(const ts_config_key *key) {
    cyaml_schema_value_t value = {.flags = CYAML_FLAG_OPTIONAL};
    switch (key->kind) {
    case TS_KEY_U32:
        value.type = CYAML_UINT;
        value.data_size = sizeof(uint32_t);
        break;
    case TS_KEY_U64:
        value.type = CYAML_UINT;
        value.data_size = sizeof(uint64_t);
        break;
    case TS_KEY_F64:
        value.type = CYAML_FLOAT;
        value.data_size = sizeof(double);
        break;
    case TS_KEY_BOOL:
        value.type = CYAML_BOOL;
        value.data_size = sizeof(bool);
        break;
    case TS_KEY_ENUM:
        value.type = CYAML_ENUM;
        value.flags = CYAML_FLAG_OPTIONAL | CYAML_FLAG_STRICT;
        value.data_size = sizeof(ts_mode);
        value.enumeration.strings = key->names;
        value.enumeration.count = key->names_count;
        break;
    default: /* texts, and TS_KEY_RULES, which rules_schema() replaces */
        value.type = CYAML_STRING;
        value.flags = CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER;
        value.data_size = sizeof(char);
        value.string.max = CYAML_UNLIMITED;
        break;
    }
    return value;
}

static cyaml_schema_field_t field_of(const ts_config_key *key, const char *name) {
    return (cyaml_schema_field_t){.key = name, .data_offset = (uint32_t)key->offset, .value = scalar_schema(key)};
}

static void rules_schema(schema *s, cyaml_schema_field_t *field) {
    for (unsigned k = 0; k < TS_RULE_KEYS; k++) {
        s->rule_fields[k] = field_of(&ts_config_rule_keys[k], ts_config_rule_keys[k].name);
    }
    s->rule = (cyaml_schema_value_t){.type = CYAML_MAPPING, .data_size = sizeof(ts_config_rule)};
    s->rule.mapping.fields = s->rule_fields;
    field->value.type = CYAML_SEQUENCE;
    field->value.flags = CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER;
    field->value.data_size = sizeof(ts_config_rule);
    field->value.sequence.entry = &s->rule;
    field->value.sequence.min = 0;
    field->value.sequence.max = CYAML_UNLIMITED;
    field->count_offset =
        (uint32_t)(field->data_offset - offsetof(ts_config_policy, rules) + offsetof(ts_config_policy, rules_count));
    field->count_size = sizeof(unsigned);
}

/* The length of the name's part that begins at `at`, and whether it is a section. */
static size_t part_len(const char *name, size_t at, bool *section) {
    size_t len = strcspn(name + at, ".");
    *section = name[at + len] == '.';
    return len;
}

/*
 * Fields of keys begin … end - 1, which share a section whose names end before `at`. Every offset counts from the
 * beginning of ts_config, so sections lie at offset 0. names: where parts of dotted names are kept.
 */
static const cyaml_schema_field_t *build_level(schema *s, char (*names)[32], unsigned begin, unsigned end, size_t at) {
    bool section;
    size_t children = 0;
    for (unsigned i = begin; i < end; children++) {
        size_t len = part_len(ts_config_keys[i].name, at, &section);
        unsigned first = i++;
        while (section && i < end && strncmp(ts_config_keys[i].name, ts_config_keys[first].name, at + len + 1) == 0) i++;
    }
    cyaml_schema_field_t *fields = s->fields + s->used;
    size_t base = s->used;
    s->used += children + 1; /* the end's entry is zero already */
    size_t child = 0;
    for (unsigned i = begin; i < end; child++) {
        size_t len = part_len(ts_config_keys[i].name, at, &section);
        unsigned first = i++;
        if (!section) {
            fields[child] = field_of(&ts_config_keys[first], ts_config_keys[first].name + at);
            if (ts_config_keys[first].kind == TS_KEY_RULES) rules_schema(s, &fields[child]);
            continue;
        }
        while (i < end && strncmp(ts_config_keys[i].name, ts_config_keys[first].name, at + len + 1) == 0) i++;
        snprintf(names[base + child], sizeof names[0], "%.*s", (int)len, ts_config_keys[first].name + at);
        fields[child].key = names[base + child];
        fields[child].value.type = CYAML_MAPPING;
        fields[child].value.flags = CYAML_FLAG_OPTIONAL;
        fields[child].value.data_size = sizeof(ts_config);
        fields[child].value.mapping.fields = build_level(s, names, first, i, at + len + 1);
    }
    return fields;
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* libcyaml's allocator hook. */
static void *memory(void *context, void *block, size_t bytes) {
    (void)context;
    if (bytes > 0) return ts_mem_realloc(block, bytes, 1);
    ts_mem_free(block);
    return NULL;
}

TERSE_PRINTF(3, 0)
static void keep_message(cyaml_log_t level, void *context, const char *format, va_list args) {
    ts_error *message = context;
    if (level < CYAML_LOG_ERROR || message->text[0]) return; /* the first says what, the rest where */
    vsnprintf(message->text, sizeof message->text, format, args);
    message->text[strcspn(message->text, "\n")] = '\0';
}

static terse_status load(const ts_config_source *source, const writer *w, const cyaml_schema_value_t *top,
                         ts_config **out) {
    ts_error message = {{0}};
    const cyaml_config_t config = {
        .log_fn = keep_message, .log_ctx = &message, .mem_fn = memory, .log_level = CYAML_LOG_ERROR};
    cyaml_data_t *data = NULL;
    cyaml_err_t error = cyaml_load_data((const uint8_t *)w->text, w->len, &config, top, &data, NULL);
    if (error == CYAML_ERR_OOM) return ts_error_set(source->error, TERSE_ENOMEM, "%s: out of memory", source->path);
    if (error != CYAML_OK) {
        return ts_error_set(source->error, TERSE_ECONFIG, "%s: the schema refuses it: %s (%s)", source->path,
                            message.text, cyaml_strerror(error));
    }
    *out = data;
    return TERSE_OK;
}

terse_status ts_config_schema_load(const ts_config_source *source, ts_config **out) {
    /* A level holds its keys, its sections and an end; no key adds more than its own entry and its sections'. */
    size_t most = 2 * ts_config_keys_count + 2 * ts_config_sections_count + 2;
    terse_status status = TERSE_ENOMEM;
    writer w = {0};
    char(*names)[32] = ts_mem_calloc(most, sizeof *names);
    schema s = {.fields = ts_mem_calloc(most, sizeof *s.fields)};
    if (names && s.fields) {
        cyaml_schema_value_t top = {.type = CYAML_MAPPING, .flags = CYAML_FLAG_POINTER, .data_size = sizeof(ts_config)};
        top.mapping.fields = build_level(&s, names, 0, ts_config_keys_count, 0);
        write_document(&w, source);
        if (!w.failed) status = load(source, &w, &top, out);
    }
    if (status == TERSE_ENOMEM) ts_error_set(source->error, status, "%s: out of memory", source->path);
    ts_mem_free(w.text);
    ts_mem_free(s.fields);
    ts_mem_free(names);
    return status;
}
