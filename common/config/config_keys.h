/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of configuration keys: the one source of names, types, defaults,
 * ranges, libcyaml's schema, --set and configs/README.md. Internal to config/.
 */
#ifndef TS_CONFIG_KEYS_H
#define TS_CONFIG_KEYS_H

#include <cyaml/cyaml.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/config/config.h"

typedef enum {
    TS_KEY_U32,
    TS_KEY_U64,
    TS_KEY_F64,
    TS_KEY_BOOL,
    TS_KEY_ENUM,     /* one of `names`, kept as its number */
    TS_KEY_CHOICE,   /* one of `names`, kept as text */
    TS_KEY_TEXT,
    TS_KEY_PATTERN,  /* for fnmatch(3) */
    TS_KEY_PATH,     /* relative to the config file's folder */
    TS_KEY_PIPELINE,
    TS_KEY_RULES     /* a list of rules: ts_config_rule_keys */
} ts_key_kind;

/* One key. `name` is dotted, and its sections stand together in the table; a rule's keys have plain names. */
typedef struct {
    const char *name;
    ts_key_kind kind;
    size_t offset;            /* in ts_config or ts_config_rule */
    const char *fallback;     /* the default as text; NULL for none */
    uint64_t low, high;       /* of whole numbers, inclusive */
    double low_real, high_real;
    bool low_open, high_open; /* the bound itself is not allowed */
    const cyaml_strval_t *names;
    unsigned names_count;
    const char *unit;         /* NULL for none */
    const char *doc;
} ts_config_key;

typedef struct {
    const char *name; /* dotted */
    const char *doc;
} ts_config_section;

#define TS_RULE_KEYS 6

extern const ts_config_key ts_config_keys[];
extern const unsigned ts_config_keys_count;
extern const ts_config_key ts_config_rule_keys[TS_RULE_KEYS];
extern const ts_config_section ts_config_sections[];
extern const unsigned ts_config_sections_count;

/* The row of a dotted name, or NULL. */
const ts_config_key *ts_config_key_find(const char *name);
/* Whether some key lies below this dotted name. */
bool ts_config_key_is_section(const char *name);
/* The key's number in the table. */
unsigned ts_config_key_index(const ts_config_key *key);

/*
 * What to say of a name that is not in the table: "unknown key; did you mean a.b? allowed here: c, d".
 * section: "" for the top, or a dotted name, or "push.rules" for the keys of a rule.
 */
void ts_config_key_suggest(const char *section, const char *name, char *text, size_t capacity);
/* What a key allows, in words: "a whole number from 1 to 100". */
void ts_config_key_allowed(const ts_config_key *key, char *text, size_t capacity);

/*
 * Checks one value and spells it in the one way that libcyaml's schema then reads back.
 * text: the value, `len` bytes; NULL for none. out: [own], ts_mem_free; NULL when the value means "not set".
 * why: [out] one sentence about what is allowed.
 * Returns TERSE_OK, TERSE_ECONFIG, TERSE_ENOMEM.
 */
terse_status ts_config_key_spell(const ts_config_key *key, const char *text, size_t len, char **out, ts_error *why)
    TERSE_NODISCARD;

/* The shortest decimal that reads back as the same number. Thread: in the C locale. Returns: text. */
const char *ts_config_spell_real(double value, char text[32]);
/* The same in any locale: texts that are hashed by every process of the job. */
const char *ts_config_spell_portable(double value, char text[32]);

#endif
