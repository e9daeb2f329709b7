/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading YAML into settings. libcyaml's errors carry no file and its lines
 * only reach a log, so keys and types are checked here, on libyaml's document
 * with its marks; libcyaml then loads the result (config_schema.c).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <yaml.h>

#include "common/base/mem.h"
#include "common/config/config_source.h"

#define FILE_MAX_BYTES ((size_t)1 << 20)
#define NAME_CHARS 256
#define RULES_MAX 4096
#define DEEPEST 64

/* One document and where it came from. */
typedef struct {
    ts_config_source *source;
    yaml_document_t *document;
    const char *override; /* NULL for the file */
} reader;

static ts_origin origin_of(const reader *r, const yaml_node_t *node) {
    return (ts_origin){.line = r->override ? 0 : node->start_mark.line + 1, .override = r->override};
}

static terse_status no_memory(const ts_config_source *source) {
    return ts_error_set(source->error, TERSE_ENOMEM, "%s: out of memory while reading it", source->path);
}

static const char *kind_name(const yaml_node_t *node) {
    switch (node->type) {
    case YAML_SCALAR_NODE: return "a single value";
    case YAML_SEQUENCE_NODE: return "a list";
    case YAML_MAPPING_NODE: return "a mapping of keys";
    default: return "nothing";
    }
}

static bool is_null(const yaml_node_t *node) {
    if (node->type != YAML_SCALAR_NODE || node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return false;
    const char *text = (const char *)node->data.scalar.value;
    return text[0] == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0;
}

/* Sets one setting from text; `label` is the key's full name for messages. */
static terse_status set_text(ts_config_source *source, const ts_config_key *key, const char *label, const char *text,
                             size_t len, ts_origin origin, ts_setting *setting) {
    ts_error why = {{0}};
    char *spelt = NULL;
    terse_status status = ts_config_key_spell(key, text, len, &spelt, &why);
    if (status == TERSE_ENOMEM) return no_memory(source);
    if (status != TERSE_OK) {
        return ts_config_refuse_at(source, origin, label, len > 0 ? text : NULL, "%s", why.text);
    }
    ts_mem_free(setting->text);
    *setting = (ts_setting){.text = spelt, .origin = origin};
    return TERSE_OK;
}

static terse_status set_scalar(const reader *r, const ts_config_key *key, const char *label, const yaml_node_t *node,
                               ts_setting *setting) {
    if (node->type != YAML_SCALAR_NODE) {
        char allowed[512];
        ts_config_key_allowed(key, allowed, sizeof allowed);
        return ts_config_refuse_at(r->source, origin_of(r, node), label, NULL, "%s is not allowed here; allowed: %s",
                                   kind_name(node), allowed);
    }
    const char *text = is_null(node) ? NULL : (const char *)node->data.scalar.value;
    return set_text(r->source, key, label, text, text ? node->data.scalar.length : 0, origin_of(r, node), setting);
}

/* The pair's key as text; refuses what is not text, and the second of two equal keys. */
static terse_status pair_name(const reader *r, const yaml_node_t *mapping, const yaml_node_pair_t *pair,
                              const char *section, const char **name) {
    const yaml_node_t *key = yaml_document_get_node(r->document, pair->key);
    if (key->type != YAML_SCALAR_NODE) {
        return ts_config_refuse_at(r->source, origin_of(r, key), section, NULL, "%s cannot be a key", kind_name(key));
    }
    const char *text = (const char *)key->data.scalar.value;
    for (const yaml_node_pair_t *other = mapping->data.mapping.pairs.start; other < pair; other++) {
        const yaml_node_t *before = yaml_document_get_node(r->document, other->key);
        if (strcmp((const char *)before->data.scalar.value, text) != 0) continue;
        return ts_config_refuse_at(r->source, origin_of(r, key), section, text,
                                   "the key stands here twice (first in line %zu)", before->start_mark.line + 1);
    }
    *name = text;
    return TERSE_OK;
}

static terse_status unknown(const reader *r, const yaml_node_pair_t *pair, const char *section, const char *label,
                            const char *name) {
    char text[700];
    ts_config_key_suggest(section, name, text, sizeof text);
    const yaml_node_t *key = yaml_document_get_node(r->document, pair->key);
    return ts_config_refuse_at(r->source, origin_of(r, key), label, NULL, "%s", text);
}

static terse_status read_rule(const reader *r, const char *label, const yaml_node_t *node, ts_rule_settings *rule) {
    rule->origin = origin_of(r, node);
    if (node->type != YAML_MAPPING_NODE) {
        return ts_config_refuse_at(r->source, rule->origin, label, NULL,
                                   "%s is not a rule; allowed: {match: \"*.bias\", pipeline: int8}", kind_name(node));
    }
    char section[NAME_CHARS];
    snprintf(section, sizeof section, "%.*s", (int)strcspn(label, "["), label);
    const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
    for (; pair < node->data.mapping.pairs.top; pair++) {
        const char *name;
        TS_TRY(pair_name(r, node, pair, label, &name));
        char full[NAME_CHARS * 2];
        snprintf(full, sizeof full, "%s.%.*s", label, NAME_CHARS / 2, name);
        unsigned k = 0;
        while (k < TS_RULE_KEYS && strcmp(ts_config_rule_keys[k].name, name) != 0) k++;
        if (k == TS_RULE_KEYS) return unknown(r, pair, section, full, name);
        const yaml_node_t *value = yaml_document_get_node(r->document, pair->value);
        TS_TRY(set_scalar(r, &ts_config_rule_keys[k], full, value, &rule->keys[k]));
    }
    if (!rule->keys[TS_RULE_KEYS - 1].text) {
        return ts_config_refuse_at(r->source, rule->origin, label, NULL, "the rule has no pipeline");
    }
    return TERSE_OK;
}

static terse_status read_rules(const reader *r, const char *label, const yaml_node_t *node, ts_config_entry *entry) {
    ts_config_entry_clear_rules(entry);
    if (is_null(node)) return TERSE_OK;
    if (node->type != YAML_SEQUENCE_NODE) {
        return ts_config_refuse_at(r->source, origin_of(r, node), label, NULL, "%s is not allowed here; allowed: a "
                                   "list of rules, as [{match: \"*.bias\", pipeline: int8}]", kind_name(node));
    }
    size_t count = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
    if (count > RULES_MAX) {
        return ts_config_refuse_at(r->source, origin_of(r, node), label, NULL, "%zu rules; allowed: at most %d", count,
                                   RULES_MAX);
    }
    if (count == 0) return TERSE_OK;
    entry->rules = ts_mem_calloc(count, sizeof *entry->rules);
    TS_REQUIRE(entry->rules, no_memory(r->source));
    entry->value.origin = origin_of(r, node);
    for (size_t i = 0; i < count; i++) {
        char full[NAME_CHARS];
        snprintf(full, sizeof full, "%s[%zu]", label, i);
        entry->rules_count++; /* before it is filled, so that what it holds gets freed */
        const yaml_node_t *item = yaml_document_get_node(r->document, node->data.sequence.items.start[i]);
        TS_TRY(read_rule(r, full, item, &entry->rules[i]));
    }
    return TERSE_OK;
}

static terse_status read_value(const reader *r, const ts_config_key *key, const yaml_node_t *node) {
    ts_config_entry *entry = &r->source->entries[ts_config_key_index(key)];
    if (key->kind == TS_KEY_RULES) return read_rules(r, key->name, node, entry);
    return set_scalar(r, key, key->name, node, &entry->value);
}

/* section: "" or dotted. Recursion ends with the table's depth: only known sections are entered. */
static terse_status read_section(const reader *r, const char *section, const yaml_node_t *node) {
    if (is_null(node) && section[0]) return TERSE_OK;
    if (node->type != YAML_MAPPING_NODE) {
        return ts_config_refuse_at(r->source, origin_of(r, node), section, NULL,
                                   "%s is not allowed here; allowed: a mapping of keys, as `training: {epochs: 8}`",
                                   kind_name(node));
    }
    const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
    for (; pair < node->data.mapping.pairs.top; pair++) {
        const char *name;
        TS_TRY(pair_name(r, node, pair, section, &name));
        char full[NAME_CHARS];
        snprintf(full, sizeof full, "%s%s%.*s", section, section[0] ? "." : "", NAME_CHARS / 2, name);
        const yaml_node_t *value = yaml_document_get_node(r->document, pair->value);
        const ts_config_key *key = ts_config_key_find(full);
        if (key) {
            TS_TRY(read_value(r, key, value));
        } else if (ts_config_key_is_section(full)) {
            TS_TRY(read_section(r, full, value));
        } else {
            return unknown(r, pair, section, full, name);
        }
    }
    return TERSE_OK;
}

/* What is parsed, and what messages say of it. */
typedef struct {
    const char *override, *label; /* NULL, "" for the file */
    const char *text;
    size_t len;
} input;

static size_t line_of(const input *in, size_t offset) {
    size_t line = 1;
    for (size_t i = 0; i < offset && i < in->len; i++) line += in->text[i] == '\n';
    return line;
}

static terse_status syntax_error(ts_config_source *source, const input *in, const yaml_parser_t *parser) {
    if (parser->error == YAML_MEMORY_ERROR) return no_memory(source);
    const char *problem = parser->problem ? parser->problem : "not YAML";
    ts_origin origin = {.line = in->override ? 0 : parser->problem_mark.line + 1, .override = in->override};
    if (parser->error == YAML_READER_ERROR) { /* of which libyaml keeps no mark */
        if (!in->override) origin.line = line_of(in, parser->problem_offset);
        return ts_config_refuse_at(source, origin, in->label, NULL, "not text in UTF-8: %s at byte %zu%s", problem,
                                   parser->problem_offset + 1, in->override ? "" : " of the file");
    }
    const char *tabs = strstr(problem, "cannot start any token") ? " (YAML indents by spaces, never by tabs)" : "";
    return ts_config_refuse_at(source, origin, "", NULL, "not valid YAML: %s%s%s at column %zu%s",
                               parser->context ? parser->context : "", parser->context ? ": " : "", problem,
                               parser->problem_mark.column + 1, tabs);
}

/* A second document would be ignored silently, so there must be none. */
static terse_status expect_end(ts_config_source *source, const input *in, yaml_parser_t *parser) {
    yaml_document_t next;
    if (!yaml_parser_load(parser, &next)) return syntax_error(source, in, parser);
    const yaml_node_t *root = yaml_document_get_root_node(&next);
    size_t line = root ? root->start_mark.line + 1 : 0;
    yaml_document_delete(&next);
    TS_REQUIRE(root, TERSE_OK);
    return ts_config_refuse_at(source, (ts_origin){.line = in->override ? 0 : line, .override = in->override}, "", NULL,
                               "a second document begins here; allowed: one");
}

static terse_status read_root(const reader *r, const char *label) {
    const yaml_node_t *root = yaml_document_get_root_node(r->document);
    const ts_config_key *key = ts_config_key_find(label);
    if (!root && !r->override) {
        return ts_config_refuse_at(r->source, (ts_origin){0}, "", NULL,
                                   "the file is empty; a file that sets nothing is written {}");
    }
    if (!root || is_null(root)) {
        return ts_config_refuse_at(r->source, (ts_origin){.override = r->override}, label, NULL, "the value is missing");
    }
    return key ? read_value(r, key, root) : read_section(r, label, root);
}

/* Looks only how deep lists and sections lie in each other, of which libyaml's time is the square. The rest is no business of it. */
static terse_status check_depth(ts_config_source *source, const input *in) {
    yaml_parser_t parser;
    yaml_event_t event;
    yaml_event_type_t type = YAML_NO_EVENT;
    unsigned depth = 0;
    TS_REQUIRE(yaml_parser_initialize(&parser), no_memory(source));
    yaml_parser_set_input_string(&parser, (const unsigned char *)in->text, in->len);
    while (type != YAML_STREAM_END_EVENT && depth <= DEEPEST && yaml_parser_parse(&parser, &event)) {
        type = event.type;
        depth += type == YAML_SEQUENCE_START_EVENT || type == YAML_MAPPING_START_EVENT;
        depth -= type == YAML_SEQUENCE_END_EVENT || type == YAML_MAPPING_END_EVENT;
        yaml_event_delete(&event);
    }
    ts_origin origin = {.line = in->override ? 0 : parser.mark.line + 1, .override = in->override};
    yaml_parser_delete(&parser);
    TS_REQUIRE(depth > DEEPEST, TERSE_OK);
    return ts_config_refuse_at(source, origin, "", NULL, "lists and sections lie in each other too deep here; allowed: %d levels", DEEPEST);
}

static terse_status read_text(ts_config_source *source, const input *in) {
    yaml_parser_t parser;
    TS_TRY(check_depth(source, in));
    TS_REQUIRE(yaml_parser_initialize(&parser), no_memory(source));
    yaml_parser_set_input_string(&parser, (const unsigned char *)in->text, in->len);
    yaml_document_t document;
    terse_status status;
    if (!yaml_parser_load(&parser, &document)) {
        status = syntax_error(source, in, &parser);
    } else {
        reader r = {.source = source, .document = &document, .override = in->override};
        status = read_root(&r, in->label);
        /* An empty stream has no second document to look for. */
        bool more = yaml_document_get_root_node(&document) != NULL;
        yaml_document_delete(&document);
        if (status == TERSE_OK && more) status = expect_end(source, in, &parser);
    }
    yaml_parser_delete(&parser);
    return status;
}

static terse_status read_file(const ts_config_source *source, char **text, size_t *len) {
    const char *path = source->path;
    struct stat info;
    if (!path[0]) return ts_error_set(source->error, TERSE_EIO, "the path of the config is empty; allowed: a YAML file");
    if (stat(path, &info) != 0) return ts_error_set(source->error, TERSE_EIO, "%s: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode)) {
        return ts_error_set(source->error, TERSE_EIO, "%s: a folder; allowed: a YAML file", path);
    }
    FILE *file = fopen(path, "rb");
    if (!file) return ts_error_set(source->error, TERSE_EIO, "%s: %s", path, strerror(errno));
    terse_status status = TERSE_OK;
    char *bytes = ts_mem_calloc(FILE_MAX_BYTES + 1, 1);
    size_t got = bytes ? fread(bytes, 1, FILE_MAX_BYTES + 1, file) : 0;
    if (!bytes) {
        status = no_memory(source);
    } else if (ferror(file)) {
        status = ts_error_set(source->error, TERSE_EIO, "%s: cannot be read", path);
    } else if (got > FILE_MAX_BYTES) {
        status = ts_error_set(source->error, TERSE_ECONFIG, "%s: larger than %zu bytes; is it a config file?", path,
                              FILE_MAX_BYTES);
    }
    fclose(file);
    if (status != TERSE_OK) {
        ts_mem_free(bytes);
        return status;
    }
    *text = bytes;
    *len = got;
    return TERSE_OK;
}

terse_status ts_config_source_file(ts_config_source *source) {
    char *text = NULL;
    size_t len = 0;
    TS_TRY(read_file(source, &text, &len));
    terse_status status = read_text(source, &(input){.label = "", .text = text, .len = len});
    ts_mem_free(text);
    return status;
}

terse_status ts_config_source_override(ts_config_source *source, const char *override) {
    ts_origin origin = {.override = override};
    const char *equals = strchr(override, '=');
    if (!equals || equals == override || equals - override >= NAME_CHARS) {
        return ts_config_refuse_at(source, origin, "", NULL, "not KEY=VALUE, as training.epochs=2");
    }
    char name[NAME_CHARS];
    snprintf(name, sizeof name, "%.*s", (int)(equals - override), override);
    const char *value = equals + 1;
    const ts_config_key *key = ts_config_key_find(name);
    if (key && key->kind != TS_KEY_RULES) {
        /* Taken as it stands, not as YAML: "*.bias" would be an alias there. */
        ts_config_entry *entry = &source->entries[ts_config_key_index(key)];
        return set_text(source, key, name, value, strlen(value), origin, &entry->value);
    }
    if (key || ts_config_key_is_section(name))
        return read_text(source, &(input){.override = override, .label = name, .text = value, .len = strlen(value)});
    char *dot = strrchr(name, '.'), section[NAME_CHARS] = "", text[700];
    if (dot) snprintf(section, sizeof section, "%.*s", (int)(dot - name), name);
    if (!ts_config_key_is_section(section)) section[0] = '\0';
    ts_config_key_suggest(section, name, text, sizeof text);
    return ts_config_refuse_at(source, origin, name, NULL, "%s", text);
}
