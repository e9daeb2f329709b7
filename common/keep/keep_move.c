/* SPDX-License-Identifier: Apache-2.0 */
#include "common/keep/keep_move.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/ckpt/ckpt_manifest.h"
#include "common/keep/keep_file.h"

#define ASIDE ".moved" /* a receiver's next file; `.new` is one that its worker begins */

static void in_order(void) { atomic_signal_fence(memory_order_seq_cst); }

static void set(_Atomic uint64_t *word, uint64_t value) {
    in_order();
    atomic_store_explicit(word, value, memory_order_relaxed);
    in_order();
}

/* ---- sums ----------------------------------------------------------------------------------------------------------------- */

static void note(ts_keep_rounding *rounding, double exact, double stored) {
    if (exact == stored) return;
    rounding->sum += exact - stored;
    rounding->l1 += fabs(exact - stored);
    rounding->rounded++;
}

void ts_keep_add(float *to, const float *from, size_t n, ts_keep_rounding *rounding) {
    for (size_t i = 0; i < n; i++) {
        double exact = (double)to[i] + (double)from[i];
        to[i] += from[i];
        note(rounding, exact, (double)to[i]);
    }
}

/* The same for bfloat16. */
static void add_brief(uint8_t *to, const uint8_t *from, size_t n, ts_keep_rounding *rounding) {
    const ts_kernels *kernels = ts_kernels_get(ts_cpu_simd());
    float a[256], b[256];
    double exact[256];
    for (size_t at = 0, some; at < n; at += some) {
        some = n - at < 256 ? n - at : 256;
        kernels->bf16_decode(to + 2 * at, some, a);
        kernels->bf16_decode(from + 2 * at, some, b);
        for (size_t i = 0; i < some; i++) exact[i] = (double)a[i] + (double)b[i];
        for (size_t i = 0; i < some; i++) a[i] += b[i];
        kernels->bf16_encode(a, some, to + 2 * at);
        kernels->bf16_decode(to + 2 * at, some, a);
        for (size_t i = 0; i < some; i++) note(rounding, exact[i], (double)a[i]);
    }
}

static void add_all(ts_keep *to, const ts_keep *from, ts_keep_rounding *rounding) {
    ts_keep_rounding momentum = {0}; /* what it would still bring is no sum that anybody counts */
    for (uint32_t t = 0; t < to->contract->tensor_count; t++) {
        const ts_keep_tensor *a = &to->tensors[t], *b = &from->tensors[t];
        if (a->brief) add_brief(a->brief, b->brief, a->n, rounding);
        else ts_keep_add(a->residual, b->residual, a->n, rounding);
        if (a->velocity) ts_keep_add(a->velocity, b->velocity, a->n, &momentum);
    }
}

/* Residual and velocity are somebody else's now; may be done again. */
static void empty(ts_keep *keep) {
    for (uint32_t t = 0; t < keep->contract->tensor_count; t++)
        memset(keep->map + keep->tensors[t].at, 0, keep->tensors[t].bytes);
}

/* ---- what was interrupted --------------------------------------------------------------------------------------------------- */

/* What becomes of a residual that was under way to something which is there, but cannot be read: nobody knows, so nothing. */
static terse_status unsure(const ts_keep *keep, const char *way, const char *why, ts_error *error) {
    return ts_error_set(error, TERSE_ESTATE, "%s: a hand-over of its residual %s %.600s was interrupted, and whether it took place cannot "
                        "be told: %.700s. Make that readable again; or, where it is lost, remove it first", keep->path, way,
                        keep->head->partner, why);
}

/* TERSE_OK: the checkpoint that the residual was announced to exists. TERSE_ENOTFOUND: it does not, or is another. */
static terse_status find_committed(const char *path, uint64_t epoch, ts_error *why) {
    ts_ckpt_manifest manifest = {0};
    struct stat info;
    uint64_t is = 0;
    if (lstat(path, &info) != 0 && errno == ENOENT) return TERSE_ENOTFOUND;
    terse_status status = ts_ckpt_manifest_read(path, &manifest, why);
    if (status != TERSE_OK) return status == TERSE_ENOTFOUND ? TERSE_ECORRUPT : status;
    bool same = ts_ckpt_get_hex(manifest.epoch, &is) && is == epoch;
    ts_ckpt_manifest_free(&manifest);
    return same ? TERSE_OK : TERSE_ENOTFOUND;
}

/*
 * The head of another file as it is now. Not of one that this process has locked, since closing it gives up the lock.
 * Returns TERSE_OK; TERSE_ENOTFOUND: nothing is there, or nothing in it; else it cannot be read: why says.
 */
static terse_status peek(const char *path, ts_keep_head *head, ts_error *why) {
    ts_keep_kind kind = TS_KEEP_EMPTY;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0 && errno == ENOENT) return TERSE_ENOTFOUND;
    if (file < 0) return ts_error_set(why, TERSE_EIO, "%s", strerror(errno));
    terse_status status = ts_keep_read_head(file, path, &kind, head, why);
    close(file);
    return status == TERSE_OK && kind == TS_KEEP_EMPTY ? TERSE_ENOTFOUND : status;
}

static terse_status finish_given(ts_keep *keep, ts_error *error) {
    ts_keep_head *head = keep->head, other;
    uint64_t given = atomic_load(&head->given);
    ts_error why = {""};
    if (head->given_kind == TS_KEEP_TO_CHECKPOINT) {
        terse_status status = find_committed(head->partner, given, &why);
        if (status == TERSE_OK) ts_keep_spend(keep);
        else if (status != TERSE_ENOTFOUND) return unsure(keep, "to the checkpoint", why.text, error);
        set(&head->given, 0);
        return TERSE_OK;
    }
    terse_status status = peek(head->partner, &other, &why);
    if (status != TERSE_OK && status != TERSE_ENOTFOUND) return unsure(keep, "to", why.text, error);
    if (status == TERSE_OK && atomic_load(&other.took) == given) {
        empty(keep);
    } else {
        char aside[TS_KEEP_PATH_CHARS + 8];
        snprintf(aside, sizeof aside, "%s" ASIDE, head->partner);
        if (head->partner[0]) (void)unlink(aside);
    }
    set(&head->given, 0);
    return TERSE_OK;
}

static terse_status open_raw(const char *path, ts_keep **out, ts_error *error) {
    int file = -1;
    TS_TRY(ts_keep_lock_file(path, TS_KEEP_WRITES, &file, error));
    terse_status status = ts_keep_describe(file, path, TS_KEEP_TAKEN, out, error);
    if (status != TERSE_OK) close(file);
    return status;
}

/* The giver is emptied before anything else is done with what it gave. */
static terse_status finish_took(ts_keep *keep, ts_error *error) {
    ts_keep_head *head = keep->head, other;
    uint64_t took = atomic_load(&head->took);
    ts_error why = {""};
    terse_status status = peek(head->partner, &other, &why);
    if (status != TERSE_OK && status != TERSE_ENOTFOUND) return unsure(keep, "from", why.text, error);
    if (status == TERSE_OK && atomic_load(&other.given) == took) {
        ts_keep *giver = NULL;
        status = open_raw(head->partner, &giver, &why);
        if (status == TERSE_ESTATE) return ts_error_set(error, status, "%s", why.text); /* it is open: another does this just now */
        if (status != TERSE_OK) return unsure(keep, "from", why.text, error);
        if (atomic_load(&giver->head->given) == took) empty(giver);
        set(&giver->head->given, 0);
        ts_keep_close(giver, false);
    }
    set(&head->took, 0);
    return TERSE_OK;
}

terse_status ts_keep_settle_move(ts_keep *keep, ts_error *error) {
    keep->head->partner[TS_KEEP_PATH_CHARS - 1] = '\0';
    if (atomic_load(&keep->head->given)) TS_TRY(finish_given(keep, error));
    if (atomic_load(&keep->head->took)) return finish_took(keep, error);
    return TERSE_OK;
}

terse_status ts_keep_settle(const char *path, ts_error *error) {
    ts_keep *keep = NULL;
    TS_TRY(ts_keep_open_file(path, true, &keep, error));
    ts_keep_close(keep, false);
    return TERSE_OK;
}

terse_status ts_keep_open_settled(const char *path, ts_keep **out, ts_error *error) {
    ts_keep *keep = NULL;
    TS_TRY(open_raw(path, &keep, error));
    if (!atomic_load(&keep->head->given) && !atomic_load(&keep->head->took)) {
        *out = keep;
        return TERSE_OK;
    }
    ts_keep_close(keep, false);
    return ts_error_set(error, TERSE_ESTATE, "another hand-over of %s is at work", path);
}

/* ---- to another worker's file ----------------------------------------------------------------------------------------------- */

static terse_status check_pair(const ts_keep *from, const ts_keep *to, ts_error *error) {
    const ts_keep_head *a = from->head, *b = to->head;
    if (a->epoch == 0 || a->epoch != b->epoch)
        return ts_error_set(error, TERSE_EMISMATCH, "%s is of epoch %016llx, %s of %016llx: a residual goes to a worker of the same "
                            "epoch only, or into that epoch's checkpoint (`terse ckpt keep fold`)", from->path,
                            (unsigned long long)a->epoch, to->path, (unsigned long long)b->epoch);
    if (memcmp(a->digest, b->digest, TS_DIGEST_BYTES) != 0 || from->form.brief != to->form.brief ||
        from->form.estimates != to->form.estimates)
        return ts_error_set(error, TERSE_EMISMATCH, "%s and %s are of different contracts", from->path, to->path);
    if (from->form.estimates)
        return ts_error_set(error, TERSE_EUNSUPPORTED, "with EF21 a worker's residual is no sum that another could go on with");
    return TERSE_OK;
}

static terse_status make_id(uint64_t *id) {
    *id = 0;
    while (*id == 0) TS_REQUIRE(getrandom(id, sizeof *id, 0) == (ssize_t)sizeof *id, TERSE_EIO);
    return TERSE_OK;
}

/* The receiver's next file, complete beside its place, and locked. */
static terse_status write_aside(const ts_keep *from, const ts_keep *to, const char *aside, uint64_t id, const char *giver,
                                ts_keep **out, ts_keep_rounding *rounding, ts_error *error) {
    TS_TRY(ts_keep_copy(to, aside, error));
    terse_status status = open_raw(aside, out, error);
    if (status != TERSE_OK) {
        (void)unlink(aside);
        return status;
    }
    add_all(*out, from, rounding);
    snprintf((*out)->head->partner, TS_KEEP_PATH_CHARS, "%s", giver);
    set(&(*out)->head->took, id);
    return TERSE_OK;
}

/* Everything from the two locked files on. paths: absolute. */
static terse_status move(ts_keep *from, const ts_keep *to, const char *giver, const char *receiver, ts_keep_moved *moved,
                         ts_error *error) {
    char aside[TS_KEEP_PATH_CHARS];
    ts_keep *made = NULL;
    uint64_t id;
    TS_TRY(check_pair(from, to, error));
    TS_TRY(make_id(&id));
    int len = snprintf(aside, sizeof aside, "%s" ASIDE, receiver);
    TS_REQUIRE(len > 0 && (size_t)len < sizeof aside, TERSE_ELIMIT);
    *moved = (ts_keep_moved){.moved = ts_keep_mass_all(from)};
    moved->packets_left = moved->moved.packets;
    TS_TRY(write_aside(from, to, aside, id, giver, &made, &moved->rounding, error));
    snprintf(from->head->partner, TS_KEEP_PATH_CHARS, "%s", receiver);
    from->head->given_kind = TS_KEEP_TO_FILE;
    set(&from->head->given, id);
    terse_status status = TERSE_OK;
    if (rename(aside, receiver) != 0) { /* which is the moment */
        status = ts_error_set(error, TERSE_EIO, "cannot rename %s: %s", aside, strerror(errno));
        (void)unlink(aside);
    } else {
        empty(from);
    }
    set(&from->head->given, 0);
    set(&made->head->took, 0);
    ts_keep_close(made, false);
    return status;
}

terse_status ts_keep_move(const char *from, const char *to, ts_keep_moved *moved, ts_error *error) {
    ts_keep *giver = NULL, *receiver = NULL;
    struct stat a, b;
    if (stat(from, &a) != 0) return ts_error_set(error, TERSE_EIO, "%s: %s", from, strerror(errno));
    if (stat(to, &b) != 0) return ts_error_set(error, TERSE_EIO, "%s: %s", to, strerror(errno));
    if (a.st_ino == b.st_ino && a.st_dev == b.st_dev)
        return ts_error_set(error, TERSE_EMISMATCH, "%s and %s are the same file", from, to);
    char *whole_from = realpath(from, NULL), *whole_to = realpath(to, NULL);
    terse_status status = whole_from && whole_to ? TERSE_OK : TERSE_EIO;
    if (status == TERSE_OK && (strlen(whole_from) >= TS_KEEP_PATH_CHARS || strlen(whole_to) >= TS_KEEP_PATH_CHARS)) status = TERSE_ELIMIT;
    if (status == TERSE_OK) status = ts_keep_settle(whole_to, error);
    if (status == TERSE_OK) status = ts_keep_settle(whole_from, error);
    if (status == TERSE_OK) status = ts_keep_open_settled(whole_from, &giver, error);
    if (status == TERSE_OK) status = ts_keep_open_settled(whole_to, &receiver, error);
    if (status == TERSE_OK) status = move(giver, receiver, whole_from, whole_to, moved, error);
    ts_keep_close(receiver, false);
    ts_keep_close(giver, status == TERSE_OK && moved->packets_left == 0); /* nothing is left in it */
    free(whole_from);
    free(whole_to);
    return status;
}

/* ---- to a checkpoint --------------------------------------------------------------------------------------------------------- */

terse_status ts_keep_outstanding(const ts_keep *keep, uint32_t t, const uint64_t *next, float *out, ts_keep_rounding *rounding) {
    const ts_tensor *declared = &keep->contract->tensors[t];
    const ts_keep_tensor *tensor = &keep->tensors[t];
    ts_codec_spec spec = ts_contract_push_spec(keep->contract, t, keep->worker);
    ts_scratch *scratch = NULL;
    float *said = ts_mem_aligned(tensor->n, sizeof *said);
    terse_status status = said ? ts_scratch_create(&scratch) : TERSE_ENOMEM;
    if (tensor->brief) ts_kernels_get(ts_cpu_simd())->bf16_decode(tensor->brief, tensor->n, out);
    else memcpy(out, tensor->residual, tensor->n * sizeof *out);
    for (uint32_t i = 0; i < declared->slices && status == TERSE_OK; i++) {
        uint32_t slice = declared->first_slice + i;
        const ts_slice *where = &keep->contract->slices[slice];
        ts_keep_packet packet = ts_keep_packet_of(keep, slice);
        if (!packet.live || packet.step < next[slice]) continue; /* none, or the servers have used it */
        memset(said, 0, where->n * sizeof *said);
        status = ts_decode_add(scratch, &spec, NULL, i, packet.step, packet.bytes, packet.len, said);
        if (status == TERSE_OK) ts_keep_add(out + where->first, said, where->n, rounding);
    }
    ts_scratch_destroy(scratch);
    ts_mem_free(said);
    return status;
}

const float *ts_keep_velocity(const ts_keep *keep, uint32_t tensor) { return keep->tensors[tensor].velocity; }

terse_status ts_keep_announce(ts_keep *keep, const char *manifest, uint64_t epoch) {
    TS_REQUIRE(strlen(manifest) < TS_KEEP_PATH_CHARS, TERSE_ELIMIT);
    snprintf(keep->head->partner, TS_KEEP_PATH_CHARS, "%s", manifest);
    keep->head->given_kind = TS_KEEP_TO_CHECKPOINT;
    set(&keep->head->given, epoch);
    return TERSE_OK;
}

void ts_keep_spend(ts_keep *keep) {
    empty(keep);
    for (uint32_t i = 0; i < keep->contract->slice_count; i++) ts_keep_vacate(keep, i);
    set(&keep->head->given, 0);
}
