/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/log.h"

#include <assert.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "common/base/text.h"

static struct {
    ts_log_level level;
    char name[64];
    FILE *stream;
} sink = {.level = TS_LOG_INFO};

static const char *const level_names[] = {"none", "error", "warn", "info", "debug"};

void ts_log_set_level(ts_log_level level) { sink.level = level; }
terse_status ts_log_level_parse(const char *name, ts_log_level *level) {
    for (unsigned i = 0; i < sizeof level_names / sizeof level_names[0]; i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *level = (ts_log_level)i;
            return TERSE_OK;
        }
    }
    return TERSE_EINVAL;
}

ts_log_level ts_log_get_level(void) { return sink.level; }
void ts_log_set_name(const char *name) { snprintf(sink.name, sizeof sink.name, "%s", name); }
void ts_log_set_stream(FILE *stream) { sink.stream = stream; }

/* ---- one line ----------------------------------------------------------------------------------------------------------- */

#define LINE_CHARS 4096 /* not more than a pipe takes at once (PIPE_BUF) */
#define CUT "..."
#define CLOSING (sizeof "\" " CUT) /* what may have to follow the last character that fits, the line's end included */

typedef struct {
    char text[LINE_CHARS];
    size_t at;
    bool full; /* nothing follows what was cut */
} log_line;

/* The same as text.h has it: what is no plain character takes one byte, and shows as \xHH. Returns its bytes. */
static size_t next_character(const char *at, size_t len, bool *plain) {
    uint32_t code;
    size_t bytes = ts_text_character(at, len, &code);
    *plain = bytes > 0 && code >= 0x20 && code != 0x7F;
    return *plain ? bytes : 1;
}

static void append(log_line *to, const char *text, size_t len) {
    memcpy(to->text + to->at, text, len);
    to->at += len;
}

/* mark: of those for which CLOSING leaves room. */
static void cut(log_line *to, const char *mark) {
    append(to, mark, strlen(mark));
    to->full = true;
}

static void put(log_line *to, const char *text, size_t len) {
    if (to->full) return;
    if (to->at + len + CLOSING > sizeof to->text) cut(to, CUT);
    else append(to, text, len);
}

static void put_word(log_line *to, const char *word) { put(to, word, strlen(word)); }

/* A key cannot be quoted: what would have to be is replaced. A pair without room for anything of its value is left out. */
static void put_key(log_line *to, const char *key, size_t len) {
    if (to->at + len + sizeof " =\"\"" + CLOSING > sizeof to->text && !to->full) cut(to, " " CUT);
    put(to, " ", 1);
    for (size_t at = 0, bytes; at < len; at += bytes) {
        bool plain;
        bytes = next_character(key + at, len - at, &plain);
        if (plain && !strchr(" =\"", key[at])) put(to, key + at, bytes);
        else put(to, "_", 1);
    }
}

static bool needs_quotes(const char *value, size_t len) {
    for (size_t at = 0, bytes; at < len; at += bytes) {
        bool plain;
        bytes = next_character(value + at, len - at, &plain);
        if (!plain || strchr(" =\"\\", value[at])) return true;
    }
    return len == 0;
}

static void put_value(log_line *to, const char *value, size_t len, bool quoted) {
    quoted = (quoted || needs_quotes(value, len)) && !to->full;
    if (quoted) put(to, "\"", 1);
    for (size_t at = 0, bytes; at < len; at += bytes) {
        char piece[8] = "\\"; /* put as a whole, or not at all */
        bool plain;
        bytes = next_character(value + at, len - at, &plain);
        if (!plain) snprintf(piece, sizeof piece, "\\\\x%02x", (unsigned)(uint8_t)value[at]);
        else if (strchr("\"\\", value[at])) piece[1] = value[at];
        if (plain && !piece[1]) put(to, value + at, bytes);
        else put_word(to, piece);
    }
    if (quoted) append(to, "\"", 1); /* for which there is room even where the value was cut */
}

static void put_text(log_line *to, const char *key, const char *value, bool quoted) {
    put_key(to, key, strlen(key));
    put(to, "=", 1);
    put_value(to, value, strlen(value), quoted);
}

/* ---- pairs ---------------------------------------------------------------------------------------------------------------- */

#define FORMAT_CHARS 512

/* What a format makes of its arguments, and where in that its own characters lie. */
typedef struct {
    const char *format;
    const char *text;
    size_t len;
} printed;

/* Where the format's character `at` lies in the text: behind what the format up to it prints. */
static size_t place_of(const printed *all, size_t at, va_list args) {
    char head[FORMAT_CHARS];
    va_list again;
    memcpy(head, all->format, at);
    head[at] = '\0';
    va_copy(again, args);
    int wrote = vsnprintf(NULL, 0, head, again);
    va_end(again);
    return wrote < 0 ? 0 : (size_t)wrote < all->len ? (size_t)wrote : all->len;
}

/* The next blank of the format outside of its quotes, or its end. */
static size_t pair_end(const char *format, size_t at) {
    for (bool quoted = false; format[at] && (quoted || format[at] != ' '); at++) quoted = quoted != (format[at] == '"');
    return at;
}

/*
 * A value may hold anything: where it ends is seen by the format, not by what was printed. Looking again from the format's
 * beginning for each place needs no knowledge of conversions, and formats are short.
 */
static void put_pairs(log_line *to, const printed *all, va_list args) {
    const char *format = all->format;
    for (size_t at = 0, end; format[at]; at = end + strspn(format + end, " ")) {
        end = pair_end(format, at);
        const char *sign = memchr(format + at, '=', end - at);
        size_t first = place_of(all, at, args), last = place_of(all, end, args);
        size_t equals = sign ? place_of(all, (size_t)(sign - format), args) : last;
        put_key(to, all->text + first, equals - first);
        if (!sign) continue;
        bool quoted = sign[1] == '"';
        size_t value = equals + 1 + quoted, behind = last - quoted; /* one less of what was cut fits into no line either */
        put(to, "=", 1);
        put_value(to, all->text + value, value < behind ? behind - value : 0, quoted);
    }
}

void ts_log(ts_log_level level, const char *who, const char *message, const char *format, ...) {
    if (level > sink.level) return;
    assert(strlen(format) < FORMAT_CHARS);
    log_line line = {.at = 0};
    char text[LINE_CHARS];
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    line.at = strftime(line.text, sizeof line.text, "time=%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text, sizeof text, ".%03ldZ", now.tv_nsec / 1000000);
    put_word(&line, text);
    put_text(&line, "level", level_names[level], false);
    if (sink.name[0]) put_text(&line, "process", sink.name, false);
    put_text(&line, "from", who, false);
    put_text(&line, "msg", message, true);
    va_list args;
    va_start(args, format);
    int wrote = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (wrote > 0) {
        va_start(args, format);
        put_pairs(&line, &(printed){format, text, (size_t)wrote < sizeof text ? (size_t)wrote : sizeof text - 1}, args);
        va_end(args);
    }
    line.text[line.at++] = '\n';
    FILE *stream = sink.stream ? sink.stream : stderr;
    fwrite(line.text, 1, line.at, stream); /* one write a line, so that ranks do not mix theirs */
    fflush(stream);
}
