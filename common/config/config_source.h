/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a file and the --set options said, key by key, each with the place it
 * came from, before it becomes a ts_config. Internal to config/.
 */
#ifndef TS_CONFIG_SOURCE_H
#define TS_CONFIG_SOURCE_H

#include "common/config/config_keys.h"

/* Where a value stands: a line of the file, a --set option, or nowhere (the default). */
typedef struct {
    size_t line;          /* from 1; 0: not in the file */
    const char *override; /* [borrow] "a.b=c", or NULL */
} ts_origin;

typedef struct {
    char *text; /* canonical (ts_config_key_spell), NULL: not set, the default counts */
    ts_origin origin;
} ts_setting;

typedef struct {
    ts_setting keys[TS_RULE_KEYS]; /* as in ts_config_rule_keys */
    ts_origin origin;
} ts_rule_settings;

typedef struct {
    ts_setting value;
    ts_rule_settings *rules; /* of a TS_KEY_RULES key */
    unsigned rules_count;
} ts_config_entry;

typedef struct {
    const char *path;         /* [borrow] of the file, as the user gave it */
    ts_config_entry *entries; /* as in ts_config_keys */
    ts_error *error;          /* [borrow] may be NULL */
    bool bare;                /* overrides are named without --set: nobody typed them */
    bool places;              /* the folders that are named are looked at, too */
    bool above;               /* named by upstream.config: a relay's side of the link to the servers above */
} ts_config_source;

/* An empty one. Returns TERSE_ENOMEM. */
terse_status ts_config_source_start(ts_config_source *source, const char *path, ts_error *error) TERSE_NODISCARD;
void ts_config_source_clear(ts_config_source *source);
void ts_config_entry_clear_rules(ts_config_entry *entry);

/* Reads the file. Returns TERSE_OK, TERSE_ECONFIG, TERSE_EIO, TERSE_ENOMEM. */
terse_status ts_config_source_file(ts_config_source *source) TERSE_NODISCARD;
/* Reads one "a.b=c". override: [borrow] until clear. Returns TERSE_OK, TERSE_ECONFIG, TERSE_ENOMEM. */
terse_status ts_config_source_override(ts_config_source *source, const char *override) TERSE_NODISCARD;

/* Whether the file or an option set the key. name: dotted, must exist. */
bool ts_config_given(const ts_config_source *source, const char *name);
/* Whether it was set to something else than its default: a file may say all defaults. No key of rules. */
bool ts_config_chosen(const ts_config_source *source, const char *name);

/* Writes "LOCATION: KEY: "VALUE": sentence" and returns TERSE_ECONFIG. value: NULL to leave it out. */
terse_status ts_config_refuse_at(const ts_config_source *source, ts_origin origin, const char *key, const char *value,
                                 const char *format, ...) TERSE_PRINTF(5, 6);
/* The same for a key of the table, with its own origin and value. */
terse_status ts_config_refuse(const ts_config_source *source, const char *name, const char *format, ...)
    TERSE_PRINTF(3, 4);

#endif
