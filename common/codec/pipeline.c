/* SPDX-License-Identifier: Apache-2.0 */
#include "common/codec/pipeline.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/codec/delta.h"
#include "common/codec/registry.h"

#define NUMBER_DIGITS 17 /* decimal digits that tell any double from the next */
#define NUMBER_GIVEN 100 /* and those that may be written, zeros included */
#define NUMBER_SCALE 400 /* powers of ten beyond all doubles */
#define LIST_CHARS 512

/* A piece of the text. */
typedef struct {
    const char *at;
    size_t len;
} span;

/* The text under way: what was read so far, and where sentences go. */
typedef struct {
    const char *text;
    ts_error *error;
    ts_pipeline out;
    const ts_stage_entry *last;
    unsigned bytes_stages;
    size_t chars; /* of out.text */
} parser;

static bool blank(char c) { return c == ' ' || c == '\t'; }

static span trim(span s) {
    while (s.len > 0 && blank(s.at[0])) s = (span){s.at + 1, s.len - 1};
    while (s.len > 0 && blank(s.at[s.len - 1])) s.len--;
    return s;
}

/* Cuts off what stands before `mark`; the rest stays in *s. */
static span cut(span *s, char mark) {
    const char *found = memchr(s->at, mark, s->len);
    span head = {s->at, found ? (size_t)(found - s->at) : s->len};
    *s = found ? (span){found + 1, s->len - head.len - 1} : (span){s->at + s->len, 0};
    return head;
}

#define REFUSE(p, ...) refuse((p), __VA_ARGS__)
TERSE_PRINTF(2, 3) static terse_status refuse(parser *p, const char *format, ...) {
    char sentence[TS_ERROR_CHARS - 160];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    return ts_error_set(p->error, TERSE_EINVAL, "pipeline `%.100s`: %s", p->text, sentence);
}

/* The exponent behind a number's digits, [+-]digits; nothing is 0. False when it is something else. */
static bool read_exponent(span s, int *exponent) {
    *exponent = 0;
    if (s.len == 0) return true;
    if (s.at[0] != 'e' && s.at[0] != 'E') return false;
    size_t i = 1;
    bool negative = i < s.len && s.at[i] == '-';
    if (i < s.len && (s.at[i] == '-' || s.at[i] == '+')) i++;
    if (i == s.len) return false;
    for (; i < s.len; i++) {
        if (s.at[i] < '0' || s.at[i] > '9' || *exponent > NUMBER_SCALE) return false;
        *exponent = *exponent * 10 + (s.at[i] - '0');
    }
    if (negative) *exponent = -*exponent;
    return true;
}

/*
 * A decimal number: [+]digits[.digits][e[+-]digits], at most 17 significant digits, which tell any double from the next.
 * The nearest double by the C library, which sees digits and exponent alone: no point, and so nothing that a locale
 * changes. False also for what is too large for a double, or so small that it would be 0.
 */
static bool read_number(span s, double *value) {
    char text[NUMBER_GIVEN + 16];
    size_t digits = 0, given = 0, i = s.len > 0 && s.at[0] == '+' ? 1 : 0;
    int behind_point = 0, exponent;
    bool point = false;
    for (; i < s.len && (s.at[i] == '.' || (s.at[i] >= '0' && s.at[i] <= '9')); i++) {
        if (s.at[i] == '.') {
            if (point) return false;
            point = true;
            continue;
        }
        if (++given > NUMBER_GIVEN) return false;
        if (digits > 0 || s.at[i] != '0') text[digits++] = s.at[i];
        behind_point += point;
    }
    if (given == 0 || !read_exponent((span){s.at + i, s.len - i}, &exponent)) return false;
    for (exponent -= behind_point; digits > 0 && text[digits - 1] == '0'; exponent++) digits--;
    if (digits > NUMBER_DIGITS) return false;
    if (digits == 0) {
        *value = 0;
        return true;
    }
    (void)snprintf(text + digits, sizeof text - digits, "e%d", exponent);
    double read = strtod(text, NULL);
    if (!(read > 0) || read > DBL_MAX) return false;
    *value = read;
    return true;
}

/* The shortest decimal that reads back as `value`; a point in any locale. */
static void write_number(double value, char *out, size_t capacity) {
    for (int precision = 1; precision <= 17; precision++) {
        double back;
        (void)snprintf(out, capacity, "%.*g", precision, value);
        for (char *c = out; *c; c++) {
            if (*c == ',') *c = '.';
        }
        if (read_number((span){out, strlen(out)}, &back) && back == value) return;
    }
}

/* The names of a kind, or of all stages, with commas. */
static void list_stages(int kind, char *out, size_t capacity) {
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < ts_registry_count(); i++) {
        const ts_stage_entry *entry = ts_registry_entry(i);
        if (kind >= 0 && (int)entry->kind != kind) continue;
        int put = snprintf(out + at, capacity - at, "%s%s", at ? ", " : "", entry->info->name);
        if (put < 0 || (size_t)put >= capacity - at) return;
        at += (size_t)put;
    }
}

/* What an argument may be, as "0 < R <= 1". */
static void describe_range(const ts_stage_info *info, unsigned i, char *out, size_t capacity) {
    char low[32], high[32], letter = info->args[0] == '[' ? 'N' : info->args[2 * i];
    write_number(info->low[i], low, sizeof low);
    write_number(info->high[i], high, sizeof high);
    (void)snprintf(out, capacity, "%s %s %c <= %s%s", low, info->low_open[i] ? "<" : "<=", letter, high,
                   info->integral[i] ? ", a whole number" : "");
}

static const char *usage(const ts_stage_info *info, char *out, size_t capacity) {
    (void)snprintf(out, capacity, "%s%s%s", info->name, info->args[0] ? ":" : "", info->args);
    return out;
}

static terse_status read_args(parser *p, const ts_stage_info *info, span rest, bool any, ts_stage_args *args) {
    char form[64], range[96];
    while (any) {
        const char *mark = memchr(rest.at, ':', rest.len);
        span word = trim(cut(&rest, ':'));
        int shown = (int)(word.len > 40 ? 40 : word.len);
        any = mark != NULL;
        if (info->allows_tensor && word.len == 6 && memcmp(word.at, "tensor", 6) == 0 && !args->whole_tensor) {
            args->whole_tensor = true;
            continue;
        }
        unsigned i = args->count;
        if (i == info->max_args) {
            if (info->max_args == 0) {
                return REFUSE(p, "stage `%s` takes no %s `%.*s`%s", info->name,
                              info->allows_tensor ? "other argument than `tensor`, not" : "argument, found", shown,
                              word.at, info->allows_tensor ? "" : "; write it without a colon");
            }
            return REFUSE(p, "stage `%s` has too many arguments; the form is `%s`", info->name,
                          usage(info, form, sizeof form));
        }
        double value;
        describe_range(info, i, range, sizeof range);
        if (!read_number(word, &value)) {
            return REFUSE(p, "stage `%s`: `%.*s` is not a number of the form 0.001 or 1e-3 (at most %d digits, "
                          "from 5e-324 to 1.7e308); the form is `%s` with %s", info->name, shown, word.at, NUMBER_DIGITS,
                          usage(info, form, sizeof form), range);
        }
        bool below = info->low_open[i] ? value <= info->low[i] : value < info->low[i];
        bool whole = value == trunc(value);
        if (below || value > info->high[i] || (info->integral[i] && !whole)) {
            return REFUSE(p, "stage `%s`: %.*s is out of range; allowed is %s", info->name, shown, word.at, range);
        }
        args->value[args->count++] = value;
    }
    if (args->count < info->min_args) {
        describe_range(info, args->count, range, sizeof range);
        return REFUSE(p, "stage `%s` needs an argument: `%s` with %s", info->name, usage(info, form, sizeof form),
                      range);
    }
    return TERSE_OK;
}

/* Appends the canonical spelling of a stage. */
static terse_status spell(parser *p, const ts_stage_info *info, const ts_stage_args *args) {
    char piece[TS_PIPELINE_CHARS];
    size_t at = (size_t)snprintf(piece, sizeof piece, "%s%s", p->chars ? " | " : "", info->name);
    for (unsigned i = 0; i < args->count; i++) {
        char number[32];
        write_number(args->value[i], number, sizeof number);
        at += (size_t)snprintf(piece + at, sizeof piece - at, ":%s", number);
    }
    if (args->whole_tensor) at += (size_t)snprintf(piece + at, sizeof piece - at, ":tensor");
    if (p->chars + at >= sizeof p->out.text) {
        return REFUSE(p, "it is longer than the %d characters that are allowed", TS_PIPELINE_CHARS - 1);
    }
    memcpy(p->out.text + p->chars, piece, at + 1);
    p->chars += at;
    return TERSE_OK;
}

/* Puts a stage where it belongs, when the order allows it there. */
static terse_status place(parser *p, const ts_stage_entry *entry, const ts_stage_args *args) {
    static const char order[] = "transform | select | quantise | index pack | byte packs";
    if (p->last && entry->kind < p->last->kind) {
        return REFUSE(p, "stage `%s` (%s) cannot follow `%s` (%s); the order is %s", entry->info->name,
                      ts_stage_kind_name(entry->kind), p->last->info->name, ts_stage_kind_name(p->last->kind), order);
    }
    bool again = p->last && entry->kind == p->last->kind;
    if (again && entry->kind != TS_STAGE_BYTES) {
        return REFUSE(p, "stages `%s` and `%s` are both of kind %s; allowed is one", p->last->info->name,
                      entry->info->name, ts_stage_kind_name(entry->kind));
    }
    if (again && entry->info == p->last->info) {
        return REFUSE(p, "byte pack `%s` stands there twice; allowed is once", entry->info->name);
    }
    switch (entry->kind) {
    case TS_STAGE_TRANSFORM: p->out.transform = entry->stage.transform; p->out.transform_args = *args; break;
    case TS_STAGE_SELECT: p->out.select = entry->stage.select; p->out.select_args = *args; break;
    case TS_STAGE_QUANTISE: p->out.quantise = entry->stage.quantise; p->out.quantise_args = *args; break;
    case TS_STAGE_INDEX: p->out.index = entry->stage.index; break;
    case TS_STAGE_BYTES:
        if (p->bytes_stages == TS_PIPELINE_BYTE_STAGES) {
            return REFUSE(p, "byte pack `%s` is one too many; allowed are %d", entry->info->name,
                          TS_PIPELINE_BYTE_STAGES);
        }
        p->out.bytes[p->bytes_stages] = entry->stage.bytes;
        p->out.bytes_args[p->bytes_stages++] = *args;
        break;
    case TS_STAGE_KINDS: break;
    }
    p->last = entry;
    return TERSE_OK;
}

static terse_status read_stage(parser *p, span text, bool alone) {
    span rest = trim(text);
    bool args_given = memchr(rest.at, ':', rest.len) != NULL;
    span name = trim(cut(&rest, ':'));
    if (name.len == 0) {
        return alone ? REFUSE(p, "it is empty; write `dense` to send everything as it is")
                     : REFUSE(p, "a stage is missing before or after `|`");
    }
    const ts_stage_entry *entry = ts_registry_find(name.at, name.len);
    if (!entry && name.len == 5 && memcmp(name.at, "dense", 5) == 0) entry = ts_registry_find("fp32", 4);
    if (!entry) {
        char list[LIST_CHARS];
        list_stages(-1, list, sizeof list);
        return REFUSE(p, "there is no stage `%.*s`; there are dense, %s", (int)(name.len > 40 ? 40 : name.len), name.at,
                      list);
    }
    ts_stage_args args = {0};
    TS_TRY(read_args(p, entry->info, rest, args_given, &args));
    return place(p, entry, &args);
}

/* What depends on more than one stage, and what is filled in when not named. */
static terse_status complete(parser *p) {
    ts_pipeline *out = &p->out;
    if (out->index && !out->select) {
        char list[LIST_CHARS];
        list_stages(TS_STAGE_SELECT, list, sizeof list);
        return REFUSE(p, "index pack `%s` has no indices to pack without a selector before it (%s)",
                      out->index->info.name, list);
    }
    if (out->index && !out->select->sends_indices) {
        return REFUSE(p, "index pack `%s` has nothing to pack: `%s` sends no indices; leave it out",
                      out->index->info.name, out->select->info.name);
    }
    if (out->select && out->select->sends_indices && !out->index) out->index = &ts_index_best;
    if (out->transform && out->select) {
        return REFUSE(p, "transform `%s` sends every element; selector `%s` cannot follow it, leave out one of them",
                      out->transform->info.name, out->select->info.name);
    }
    if (!out->quantise) out->quantise = ts_registry_find("fp32", 4)->stage.quantise;
    if (ts_pipeline_replaces(out) && !out->quantise->lossless) {
        return REFUSE(p, "`%s` sends new values bit for bit, which quantiser `%s` would round; allowed between them is nothing, "
                      "or fp32", out->select->info.name, out->quantise->info.name);
    }
    if (ts_delta_in(out) && !ts_delta_tolerates(out->quantise, &out->quantise_args)) {
        return REFUSE(p, "`%s` is too coarse for differences, whose errors would build up; allowed after `%s` are finer ones, "
                      "as qsgd:6, linear:3, int4", out->quantise->info.name, out->transform->info.name);
    }

    static const ts_stage_args none = {0};
    if (out->transform) TS_TRY(spell(p, &out->transform->info, &out->transform_args));
    if (out->select) TS_TRY(spell(p, &out->select->info, &out->select_args));
    TS_TRY(spell(p, &out->quantise->info, &out->quantise_args));
    if (out->index) TS_TRY(spell(p, &out->index->info, &none));
    for (int i = 0; i < TS_PIPELINE_BYTE_STAGES; i++) {
        if (out->bytes[i]) TS_TRY(spell(p, &out->bytes[i]->info, &out->bytes_args[i]));
    }
    return TERSE_OK;
}

terse_status ts_pipeline_parse(const char *text, ts_pipeline *out, ts_error *error) {
    parser p = {.text = text, .error = error};
    span rest = {text, strlen(text)};
    bool alone = memchr(text, '|', rest.len) == NULL;
    for (bool more = true; more;) {
        more = memchr(rest.at, '|', rest.len) != NULL;
        TS_TRY(read_stage(&p, cut(&rest, '|'), alone));
    }
    TS_TRY(complete(&p));
    *out = p.out;
    return TERSE_OK;
}

bool ts_pipeline_is_lossless(const ts_pipeline *pipeline) {
    return !pipeline->transform && !pipeline->select && pipeline->quantise->lossless;
}

bool ts_pipeline_replaces(const ts_pipeline *pipeline) { return pipeline->select && pipeline->select->replaces; }

bool ts_pipeline_is_sparse(const ts_pipeline *pipeline) { return pipeline->select != NULL; }
