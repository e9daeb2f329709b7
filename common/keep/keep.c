/* SPDX-License-Identifier: Apache-2.0 */
/* The file: where it is, whose it is, what lies where in it. */
#include "common/keep/keep_file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/delta.h"

#define READER_TURNS 500       /* so often and so long who reads the file is waited for: 10 s */
#define READER_TURN_NS 20000000L

_Static_assert(sizeof(ts_keep_head) <= TS_KEEP_PAGE, "the head has a page of its own");

/* ---- the file -------------------------------------------------------------------------------------------------------- */

/* A folder that nobody else can enter. */
static terse_status make_folder(const char *dir, ts_error *error) {
    struct stat info;
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return ts_error_set(error, TERSE_EIO, "error_feedback.keep: cannot make %s: %s", dir, strerror(errno));
    if (lstat(dir, &info) != 0 || !S_ISDIR(info.st_mode))
        return ts_error_set(error, TERSE_EIO, "error_feedback.keep: %s is not a folder", dir);
    if (info.st_uid != geteuid() || (info.st_mode & 077))
        return ts_error_set(error, TERSE_EIO, "error_feedback.keep: %s must be ours and of mode 0700; it is of user %u and "
                            "mode %04o", dir, (unsigned)info.st_uid, (unsigned)(info.st_mode & 07777));
    return TERSE_OK;
}

/* A POSIX lock: children of this process do not inherit it, and it ends with the process. */
static terse_status lock(int file, bool writes, const char *path, ts_error *error) {
    struct flock holder = {.l_pid = 0};
    for (int turn = 0; turn < READER_TURNS; turn++) {
        struct flock whole = {.l_type = writes ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET};
        if (fcntl(file, F_SETLK, &whole) == 0) return TERSE_OK;
        holder = whole;
        if (fcntl(file, F_GETLK, &holder) != 0 || holder.l_type == F_WRLCK) break;
        if (holder.l_type == F_RDLCK) (void)nanosleep(&(struct timespec){.tv_nsec = READER_TURN_NS}, NULL);
    }
    return ts_error_set(error, TERSE_ESTATE, "error_feedback.keep: %s is in use by process %ld; a worker's number belongs to "
                        "one process at a time", path, (long)holder.l_pid);
}

terse_status ts_keep_lock_file(const char *path, ts_keep_access access, int *file, ts_error *error) {
    int flags = (access == TS_KEEP_READS ? O_RDONLY : O_RDWR) | (access == TS_KEEP_MAKES ? O_CREAT : 0);
    for (int turn = 0; turn < 100; turn++) {
        struct stat info, named;
        int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0) return ts_error_set(error, TERSE_EIO, "error_feedback.keep: cannot open %s: %s", path, strerror(errno));
        terse_status status = TERSE_OK;
        if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid())
            status = ts_error_set(error, TERSE_EIO, "error_feedback.keep: %s is not a file of ours", path);
        if (status == TERSE_OK) status = lock(fd, access != TS_KEEP_READS, path, error);
        if (status == TERSE_OK && stat(path, &named) == 0 && named.st_ino == info.st_ino && named.st_dev == info.st_dev) {
            *file = fd;
            return TERSE_OK;
        }
        close(fd);
        if (status != TERSE_OK) return status;
    }
    return ts_error_set(error, TERSE_EIO, "error_feedback.keep: %s keeps being removed", path);
}

/* Promised by the file system, so that it cannot run out of room when memory is first written. */
static terse_status promise(const ts_keep *keep, size_t at, size_t bytes, ts_error *error) {
    int failed = posix_fallocate(keep->file, (off_t)at, (off_t)bytes);
    if (!failed) return TERSE_OK;
    return ts_error_set(error, TERSE_EIO, "error_feedback.keep: no room for %.1f MB in %s: %s (make room there, or name another "
                        "folder, or set it to off)", (double)bytes * 1e-6, keep->path, strerror(failed));
}

terse_status ts_keep_map(ts_keep *keep, ts_keep_use use, ts_error *error) {
    int access = PROT_READ | (use == TS_KEEP_LOOKED_AT ? 0 : PROT_WRITE);
    void *map = mmap(NULL, keep->bytes, access, use == TS_KEEP_STILL ? MAP_PRIVATE : MAP_SHARED, keep->file, 0);
    if (map == MAP_FAILED)
        return ts_error_set(error, TERSE_EIO, "error_feedback.keep: cannot map %s: %s", keep->path, strerror(errno));
    keep->map = map;
    return TERSE_OK;
}

/* ---- a worker's own -------------------------------------------------------------------------------------------------- */

static void describe_self(ts_keep *keep, const ts_keep_options *options, const uint8_t *packed, size_t len) {
    ts_keep_head *head = keep->head;
    memcpy(keep->map + TS_KEEP_PAGE, packed, len);
    memcpy(head->magic, TS_KEEP_MAGIC, sizeof head->magic);
    memcpy(head->digest, keep->contract->digest, TS_DIGEST_BYTES);
    head->bytes = keep->bytes;
    head->contract_bytes = len;
    head->worker = keep->worker;
    head->workers = options->workers;
    snprintf(head->job, sizeof head->job, "%s", options->job);
    head->brief = keep->form.brief ? TS_KEEP_FORM : 0;
    head->estimates = keep->form.estimates ? TS_KEEP_FORM : 0;
    head->decayed = keep->form.decayed ? TS_KEEP_FORM : 0;
    atomic_store(&head->ready, TS_KEEP_YES);
}

/* A file of this contract, from nothing. */
static terse_status begin_file(ts_keep *keep, const ts_keep_options *options, ts_error *error) {
    uint8_t *packed = NULL;
    size_t len = 0;
    TS_TRY(ts_contract_pack(keep->contract, &packed, &len));
    ts_keep_layout l = ts_keep_lay_out(keep, len, NULL);
    keep->bytes = l.end;
    terse_status status = TERSE_OK;
    if (ftruncate(keep->file, 0) != 0 || ftruncate(keep->file, (off_t)keep->bytes) != 0)
        status = ts_error_set(error, TERSE_EIO, "error_feedback.keep: %s: %s", keep->path, strerror(errno));
    if (status == TERSE_OK) status = promise(keep, 0, l.areas, error);
    if (status == TERSE_OK) status = ts_keep_map(keep, TS_KEEP_TAKEN, error);
    if (status == TERSE_OK) {
#ifdef MADV_HUGEPAGE
        (void)madvise(keep->map, l.areas, MADV_HUGEPAGE); /* where the kernel allows it; it is a matter of speed alone */
#endif
        ts_keep_point(keep, len);
        describe_self(keep, options, packed, len);
    }
    ts_mem_free(packed);
    return status;
}

/* Whether the file is one that this contract can go on from. */
static bool fits(const ts_keep *keep, const ts_keep_head *head) {
    ts_keep_form form = ts_keep_form_of(head);
    return head->worker == keep->worker && memcmp(head->digest, keep->contract->digest, TS_DIGEST_BYTES) == 0 &&
           form.brief == keep->form.brief && form.estimates == keep->form.estimates && form.decayed == keep->form.decayed;
}

static terse_status go_on(ts_keep *keep, const ts_keep_head *head, ts_error *error) {
    keep->bytes = (size_t)head->bytes;
    if (head->contract_bytes > head->bytes || ts_keep_lay_out(keep, (size_t)head->contract_bytes, NULL).end != keep->bytes)
        return ts_error_set(error, TERSE_ECORRUPT, "%s: damaged: its length is not that of its contract", keep->path);
    TS_TRY(ts_keep_map(keep, TS_KEEP_TAKEN, error));
    ts_keep_point(keep, (size_t)head->contract_bytes);
    TS_TRY(ts_keep_check(keep, error));
    keep->found = true;
    ts_keep_recover(keep);
    return ts_keep_settle_move(keep, error);
}

/* One of another contract: it stays as long as it holds something that may be wanted. */
static terse_status face_other(ts_keep *keep, const ts_keep_options *options, ts_error *error) {
    TS_TRY(ts_keep_describe(keep->file, keep->path, TS_KEEP_TAKEN, &keep->other, error));
    int file = keep->file;
    keep->file = -1; /* it is the other's now */
    TS_TRY(ts_keep_settle_move(keep->other, error));
    ts_keep_mass mass = ts_keep_mass_all(keep->other);
    if (!ts_keep_holds(&mass)) { /* nothing is lost */
        keep->file = file;
        keep->other->file = -1;
        ts_keep_close(keep->other, false);
        keep->other = NULL;
        return begin_file(keep, options, error);
    }
    size_t room = strlen(keep->path) + sizeof ".new";
    keep->temporary = ts_mem_calloc(room, 1);
    TS_REQUIRE(keep->temporary, TERSE_ENOMEM);
    snprintf(keep->temporary, room, "%s.new", keep->path);
    TS_TRY(ts_keep_lock_file(keep->temporary, TS_KEEP_MAKES, &keep->file, error));
    return begin_file(keep, options, error);
}

static terse_status fill(ts_keep *keep, const ts_keep_options *options, ts_error *error) {
    ts_keep_head head;
    ts_keep_kind kind;
    ts_error why = {""};
    TS_TRY(make_folder(options->dir, error));
    TS_TRY(ts_keep_lock_file(keep->path, TS_KEEP_MAKES, &keep->file, error));
    terse_status status = ts_keep_read_head(keep->file, keep->path, &kind, &head, &why);
    if (status == TERSE_OK && kind == TS_KEEP_EMPTY) status = begin_file(keep, options, error);
    else if (status == TERSE_OK && fits(keep, &head)) status = go_on(keep, &head, &why);
    else if (status == TERSE_OK) status = face_other(keep, options, &why);
    if (status == TERSE_ECORRUPT || status == TERSE_EVERSION)
        return ts_error_set(error, status, "error_feedback.keep: %.800s (`terse ckpt keep drop` gives it up)", why.text);
    if (status != TERSE_OK && why.text[0]) return ts_error_set(error, status, "%s", why.text);
    TS_TRY(status);
    keep->head->incarnation++;
    return TERSE_OK;
}

terse_status ts_keep_open(const ts_keep_options *options, ts_keep **out, ts_error *error) {
    const ts_contract *contract = options->contract;
    for (uint32_t t = 0; t < contract->tensor_count; t++)
        if (ts_delta_in(&contract->tensors[t].push))
            return ts_error_set(error, TERSE_EUNSUPPORTED, "error_feedback.keep: a push pipeline with delta (tensor %s) cannot be "
                                "gone on with by another process; allowed with it: off", contract->tensors[t].name);
    ts_keep *keep = ts_mem_calloc(1, sizeof *keep);
    TS_REQUIRE(keep, TERSE_ENOMEM);
    keep->contract = contract;
    keep->worker = options->worker;
    keep->form = options->form;
    keep->takes = true;
    keep->file = -1;
    size_t room = strlen(options->dir) + 32;
    keep->path = ts_mem_calloc(room, 1);
    terse_status status = keep->path ? ts_keep_make_tables(keep) : TERSE_ENOMEM;
    if (keep->path) snprintf(keep->path, room, "%s/worker-%u.keep", options->dir, keep->worker);
    if (status == TERSE_OK) status = fill(keep, options, error);
    if (status == TERSE_OK) *out = keep;
    else ts_keep_close(keep, false);
    return status;
}

void ts_keep_close(ts_keep *keep, bool ended) {
    if (!keep) return;
    if (keep->temporary && keep->file >= 0) (void)unlink(keep->temporary); /* what was there before stays */
    else if (ended && keep->file >= 0) (void)unlink(keep->path); /* while it is locked */
    ts_keep_close(keep->other, false);
    if (keep->map) (void)munmap(keep->map, keep->bytes);
    if (keep->file >= 0) close(keep->file);
    ts_contract_destroy(keep->described);
    ts_mem_free(keep->path);
    ts_mem_free(keep->temporary);
    ts_mem_free(keep->tensors);
    ts_mem_free(keep->area);
    ts_mem_free(keep);
}

terse_status ts_keep_adopt(ts_keep *keep, ts_error *error) {
    if (!keep->other) return TERSE_OK;
    if (rename(keep->temporary, keep->path) != 0)
        return ts_error_set(error, TERSE_EIO, "error_feedback.keep: cannot rename %s: %s", keep->temporary, strerror(errno));
    ts_mem_free(keep->temporary);
    keep->temporary = NULL;
    ts_keep_close(keep->other, false);
    keep->other = NULL;
    return TERSE_OK;
}

/* ---- what is in it ---------------------------------------------------------------------------------------------------- */

const char *ts_keep_path(const ts_keep *keep) { return keep->path; }
bool ts_keep_found(const ts_keep *keep) { return keep->found; }
uint32_t ts_keep_incarnation(const ts_keep *keep) { return keep->head->incarnation; }
void ts_keep_set_incarnation(ts_keep *keep, uint32_t incarnation) { keep->head->incarnation = incarnation; }
const ts_contract *ts_keep_contract(const ts_keep *keep) { return keep->contract; }
const ts_keep *ts_keep_other(const ts_keep *keep) { return keep->other; }

ts_keep_identity ts_keep_identify(const ts_keep *keep) {
    const ts_keep_head *head = keep->head;
    ts_keep_identity is = {.worker = head->worker, .workers = head->workers, .incarnation = head->incarnation,
                           .epoch = head->epoch, .run = head->run, .ended = atomic_load(&head->ended) == TS_KEEP_YES,
                           .mortal = atomic_load(&head->mortal) == TS_KEEP_YES};
    snprintf(is.job, sizeof is.job, "%.*s", TS_KEEP_JOB_CHARS - 1, head->job);
    for (uint32_t i = 0; i < keep->contract->slice_count; i++)
        if (keep->slots[i].len > 0 && keep->slots[i].step + 1 > is.steps) is.steps = keep->slots[i].step + 1;
    return is;
}

void ts_keep_set_epoch(ts_keep *keep, uint64_t epoch, uint64_t run, bool mortal) {
    atomic_store(&keep->head->mortal, mortal ? TS_KEEP_YES : 0);
    keep->head->epoch = epoch;
    keep->head->run = run;
    atomic_store(&keep->head->ended, 0);
}

void ts_keep_set_ended(ts_keep *keep) { atomic_store(&keep->head->ended, TS_KEEP_YES); }

void ts_keep_forget(ts_keep *keep) {
    for (uint32_t i = 0; i < keep->contract->slice_count; i++) {
        ts_keep_vacate(keep, i);
        keep->slots[i].len = 0;
        keep->slots[i].step = 0;
    }
    for (uint32_t t = 0; t < keep->contract->tensor_count; t++)
        memset(keep->map + keep->tensors[t].at, 0, keep->tensors[t].bytes);
}

ts_keep_mass ts_keep_mass_of(const ts_keep *keep, uint32_t t) {
    const ts_kernels *kernels = ts_kernels_get(ts_cpu_simd());
    const ts_keep_tensor *tensor = &keep->tensors[t];
    const ts_tensor *declared = &keep->contract->tensors[t];
    ts_keep_mass mass = {0};
    float block[1024];
    for (size_t at = 0, n; at < tensor->n; at += n) {
        n = tensor->n - at < 1024 ? tensor->n - at : 1024;
        if (tensor->brief) kernels->bf16_decode(tensor->brief + 2 * at, n, block);
        else memcpy(block, tensor->residual + at, n * sizeof *block);
        mass.l1 += kernels->sum_abs(block, n);
        mass.squares += kernels->sum_squares(block, n);
        for (size_t i = 0; i < n; i++) mass.nonzero += block[i] != 0;
    }
    for (uint32_t i = 0; i < declared->slices; i++) mass.packets += ts_keep_live(keep, declared->first_slice + i);
    return mass;
}

ts_keep_mass ts_keep_mass_all(const ts_keep *keep) {
    ts_keep_mass all = {0};
    for (uint32_t t = 0; t < keep->contract->tensor_count; t++) {
        ts_keep_mass one = ts_keep_mass_of(keep, t);
        all.l1 += one.l1;
        all.squares += one.squares;
        all.nonzero += one.nonzero;
        all.packets += one.packets;
    }
    return all;
}

void ts_keep_mass_text(const ts_keep_mass *mass, char *text, size_t capacity) {
    int at = snprintf(text, capacity, "sum of magnitudes %.6g, norm %.6g over %llu elements", mass->l1, sqrt(mass->squares),
                      (unsigned long long)mass->nonzero);
    if (mass->packets > 0 && at > 0 && (size_t)at < capacity)
        (void)snprintf(text + at, capacity - (size_t)at, ", %u packet%s without an answer", mass->packets,
                       mass->packets == 1 ? "" : "s");
}

void *ts_keep_array(ts_keep *keep, const char *name, const char *purpose, size_t bytes) {
    for (uint32_t t = 0; t < keep->contract->tensor_count; t++) {
        const ts_keep_tensor *tensor = &keep->tensors[t];
        if (strcmp(keep->contract->tensors[t].name, name) != 0) continue;
        if (bytes > tensor->bytes) return NULL;
        if (strcmp(purpose, "velocity") == 0) return tensor->velocity;
        if (strcmp(purpose, "estimate") == 0) return tensor->estimate;
        return tensor->brief ? (void *)tensor->brief : (void *)tensor->residual;
    }
    return NULL;
}

ts_keep_packet ts_keep_packet_of(const ts_keep *keep, uint32_t slice) {
    const ts_keep_slot_record *record = &keep->slots[slice];
    ts_keep_packet packet = {.bytes = keep->map + keep->area[slice], .capacity = (size_t)record->room,
                             .live = atomic_load(&record->live)};
    if (!packet.live) return packet;
    packet.step = record->step;
    packet.len = record->len;
    packet.samples = record->samples;
    return packet;
}

bool ts_keep_live(const ts_keep *keep, uint32_t slice) { return atomic_load(&keep->slots[slice].live); }

terse_status ts_keep_reserve(ts_keep *keep, uint32_t slice, size_t bytes, size_t *capacity) {
    ts_error error = {""};
    size_t whole = (bytes + TS_KEEP_PAGE - 1) / TS_KEEP_PAGE * TS_KEEP_PAGE;
    if (bytes <= keep->slots[slice].room) return TERSE_OK;
    TS_REQUIRE(whole <= keep->area[slice + 1] - keep->area[slice], TERSE_ENOSPACE);
    terse_status status = promise(keep, keep->area[slice], whole, &error);
    if (status != TERSE_OK) ts_log(TS_LOG_ERROR, "keep", "an outbox cannot grow", "reason=\"%s\"", error.text);
    if (status != TERSE_OK) return status;
    keep->slots[slice].room = *capacity = whole;
    return TERSE_OK;
}
