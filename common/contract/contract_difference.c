/* SPDX-License-Identifier: Apache-2.0 */
/* Why two contracts are not the same, in words. */
#include <stdio.h>
#include <string.h>

#include "common/contract/contract.h"

#define SHAPE_CHARS 200

/* Who declared which, for the sentences. */
typedef struct {
    const char *here, *there;
} names;

static void shape_text(const ts_tensor *tensor, char text[SHAPE_CHARS]) {
    size_t at = 0;
    snprintf(text, SHAPE_CHARS, "scalar");
    for (unsigned i = 0; i < tensor->ndim; i++) {
        int wrote = snprintf(text + at, SHAPE_CHARS - at, "%s%lld", i ? "x" : "", (long long)tensor->shape[i]);
        if (wrote > 0) at += (size_t)wrote;
    }
}

static bool same_shape(const ts_tensor *a, const ts_tensor *b) {
    return a->ndim == b->ndim && memcmp(a->shape, b->shape, a->ndim * sizeof a->shape[0]) == 0;
}

static bool tensor_differs(const names *at, const ts_tensor *here, const ts_tensor *there, uint32_t number,
                           ts_error *difference) {
    const char *name = here->name;
    if (strcmp(name, there->name) != 0) {
        ts_error_set(difference, TERSE_EMISMATCH, "tensor %u: named %.160s at %s, %.160s at %s", number, name, at->here,
                     there->name, at->there);
        return true;
    }
    if (!same_shape(here, there)) {
        char mine[SHAPE_CHARS], theirs[SHAPE_CHARS];
        shape_text(here, mine);
        shape_text(there, theirs);
        ts_error_set(difference, TERSE_EMISMATCH, "tensor %.120s: shape %.120s at %s, %.120s at %s", name, mine, at->here,
                     theirs, at->there);
        return true;
    }
    if (strcmp(here->push.text, there->push.text) != 0) {
        ts_error_set(difference, TERSE_EMISMATCH, "tensor %.120s: push pipeline \"%s\" at %s, \"%s\" at %s", name,
                     here->push.text, at->here, there->push.text, at->there);
        return true;
    }
    if (strcmp(here->pull.text, there->pull.text) != 0) {
        ts_error_set(difference, TERSE_EMISMATCH, "tensor %.120s: pull pipeline \"%s\" at %s, \"%s\" at %s", name,
                     here->pull.text, at->here, there->pull.text, at->there);
        return true;
    }
    if (here->worker_momentum != there->worker_momentum) {
        ts_error_set(difference, TERSE_EMISMATCH, "tensor %.120s: momentum is the %s' for %s, the %s' for %s", name,
                     here->worker_momentum ? "workers" : "servers", at->here,
                     there->worker_momentum ? "workers" : "servers", at->there);
        return true;
    }
    return false;
}

static bool number_differs(const names *at, const char *what, uint64_t here, uint64_t there, ts_error *difference) {
    if (here == there) return false;
    ts_error_set(difference, TERSE_EMISMATCH, "%s: %llu at %s, %llu at %s", what, (unsigned long long)here, at->here,
                 (unsigned long long)there, at->there);
    return true;
}

/* Of two texts of words, the first pair of words that differs. */
static bool text_differs(const names *at, const char *what, const char *here, const char *there,
                         ts_error *difference) {
    if (strcmp(here, there) == 0) return false;
    for (;;) {
        size_t here_len = strcspn(here, " "), there_len = strcspn(there, " ");
        if (here_len != there_len || memcmp(here, there, here_len) != 0) {
            ts_error_set(difference, TERSE_EMISMATCH, "%s: %.*s at %s, %.*s at %s", what,
                         here_len ? (int)here_len : 7, here_len ? here : "nothing", at->here,
                         there_len ? (int)there_len : 7, there_len ? there : "nothing", at->there);
            return true;
        }
        here += here_len;
        there += there_len;
        /* A text that ends is compared as an empty word. */
        if (*here) here++;
        if (*there) there++;
        if (!*here && !*there) break;
    }
    ts_error_set(difference, TERSE_EMISMATCH, "%s: spelt differently at %s and %s", what, at->here, at->there);
    return true;
}

/* Both have the tensors up to the shorter list's end; names what comes next. */
static bool count_differs(const names *at, const ts_contract *here, const ts_contract *there, ts_error *difference) {
    if (here->tensor_count == there->tensor_count) return false;
    bool more_here = here->tensor_count > there->tensor_count;
    const ts_contract *longer = more_here ? here : there;
    uint32_t shorter = more_here ? there->tensor_count : here->tensor_count;
    ts_error_set(difference, TERSE_EMISMATCH, "tensor %.120s: only at %s (%u tensors at %s, %u at %s)",
                 longer->tensors[shorter].name, more_here ? at->here : at->there, here->tensor_count, at->here,
                 there->tensor_count, at->there);
    return true;
}

bool ts_contract_difference(const ts_contract *here, const char *here_name, const ts_contract *there,
                            const char *there_name, ts_error *difference) {
    const names both = {here_name, there_name}, *at = &both;
    static const char *const modes[] = {"mode=bsp", "mode=ssp", "mode=asp"};
    for (uint32_t i = 0; i < here->tensor_count && i < there->tensor_count; i++) {
        if (tensor_differs(at, &here->tensors[i], &there->tensors[i], i, difference)) return true;
    }
    return count_differs(at, here, there, difference) ||
           text_differs(at, "optimizer", here->optimizer, there->optimizer, difference) ||
           text_differs(at, "error_feedback", here->feedback, there->feedback, difference) ||
           text_differs(at, "rounds", here->rounds, there->rounds, difference) ||
           text_differs(at, "consistency", modes[here->mode], modes[there->mode], difference) ||
           number_differs(at, "consistency.staleness", here->staleness, there->staleness, difference) ||
           number_differs(at, "servers.slice_elems", here->slice_elems, there->slice_elems, difference) ||
           number_differs(at, "training.seed", here->seed, there->seed, difference) ||
           number_differs(at, "total steps", here->total_steps, there->total_steps, difference);
}
