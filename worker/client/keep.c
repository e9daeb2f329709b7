/* SPDX-License-Identifier: Apache-2.0 */
/* The file: where it is, whose it is, what lies where in it. */
#include "worker/client/keep.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/delta.h"
#include "worker/client/keep_file.h"

/* ---- layout ---------------------------------------------------------------------------------------------------------- */

static size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

static size_t place(size_t *at, size_t bytes) {
    size_t here = *at;
    *at = round_up(here + bytes, TS_CACHE_LINE);
    return here;
}

/* Offsets of the parts that are of one size. */
typedef struct {
    size_t slots, undo, put_index, put_value, staged, arrays, backup, areas, end;
} layout;

/* One tensor's arrays from `at` on; the pointers are set when the map is known. */
static size_t lay_tensor(ts_keep_tensor *tensor, const ts_config *config, const ts_tensor *declared, uint8_t *map,
                         size_t at) {
    bool brief = config->error_feedback.residual == TS_RESIDUAL_BF16, estimates = ts_config_estimates(config);
    size_t n = declared->n, start = at, floats = n * sizeof(float);
    size_t residual = place(&at, brief ? n * sizeof(uint16_t) : floats);
    size_t velocity = declared->worker_momentum ? place(&at, floats) : 0;
    size_t estimate = estimates ? place(&at, floats) : 0;
    *tensor = (ts_keep_tensor){.n = n, .at = start, .bytes = at - start};
    tensor->guarded = ts_guard_can(&declared->push) && !brief && !estimates &&
                      config->error_feedback.variant != TS_FEEDBACK_DECAYED;
    if (!map) return at;
    if (brief) tensor->brief = map + residual;
    else tensor->residual = (float *)(void *)(map + residual);
    if (velocity) tensor->velocity = (float *)(void *)(map + velocity);
    if (estimate) tensor->estimate = (float *)(void *)(map + estimate);
    return at;
}

/* The longest slice's packet before its byte packs, and all packets' places. */
static size_t lay_areas(ts_keep *keep, size_t at, size_t *staged) {
    const ts_contract *contract = keep->contract;
    const ts_kernels *kernels = ts_kernels_get(TS_SIMD_SCALAR);
    for (uint32_t i = 0; i < contract->slice_count; i++) {
        uint32_t t = contract->slices[i].tensor;
        ts_codec_spec spec = ts_contract_push_spec(contract, t, keep->worker);
        ts_packet_slice slice = ts_packet_slice_of(&spec, kernels, i - contract->tensors[t].first_slice, 0);
        size_t inner = ts_packet_inner_bound(&slice, slice.n);
        if (spec.pipeline->bytes[0] && !spec.pipeline->select && inner > *staged) *staged = inner;
        keep->area[i] = at;
        at += round_up(ts_packet_bound(&slice, slice.n) + 1, TS_KEEP_PAGE);
    }
    keep->area[contract->slice_count] = at;
    return at;
}

/* Where everything is; a function of the contract and the config. map: NULL to learn the size. */
static layout lay_out(ts_keep *keep, const ts_config *config, uint8_t *map) {
    const ts_contract *contract = keep->contract;
    size_t longest = 0, largest = 0, staged = 0, at = TS_KEEP_PAGE;
    layout l;
    for (uint32_t i = 0; i < contract->slice_count; i++)
        if (contract->slices[i].n > longest) longest = contract->slices[i].n;
    (void)lay_areas(keep, 0, &staged);
    l.slots = place(&at, contract->slice_count * sizeof(ts_keep_slot_record));
    l.undo = place(&at, ts_guard_undo_bytes());
    l.put_index = place(&at, longest * sizeof(uint32_t));
    l.put_value = place(&at, longest * sizeof(float));
    l.staged = place(&at, staged);
    l.arrays = at = round_up(at, TS_KEEP_PAGE);
    for (uint32_t t = 0; t < contract->tensor_count; t++) {
        at = lay_tensor(&keep->tensors[t], config, &contract->tensors[t], map, at);
        if (!keep->tensors[t].guarded && keep->tensors[t].bytes > largest) largest = keep->tensors[t].bytes;
    }
    l.backup = place(&at, largest);
    l.areas = round_up(at, TS_KEEP_PAGE);
    l.end = lay_areas(keep, l.areas, &staged);
    return l;
}

static void point(ts_keep *keep, const ts_config *config) {
    layout l = lay_out(keep, config, keep->map);
    keep->head = (ts_keep_head *)(void *)keep->map;
    keep->slots = (ts_keep_slot_record *)(void *)(keep->map + l.slots);
    keep->backup = keep->map + l.backup;
    keep->guard = (ts_guard){.record = &keep->head->guard,
                             .undo = (float *)(void *)(keep->map + l.undo),
                             .put_index = (uint32_t *)(void *)(keep->map + l.put_index),
                             .put_value = (float *)(void *)(keep->map + l.put_value),
                             .staged = keep->map + l.staged};
}

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
static terse_status lock(int file, const char *path, ts_error *error) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(file, F_SETLK, &whole) == 0) return TERSE_OK;
    struct flock holder = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(file, F_GETLK, &holder) != 0 || holder.l_type == F_UNLCK) holder.l_pid = 0;
    return ts_error_set(error, TERSE_ESTATE, "error_feedback.keep: %s is in use by process %ld; a worker's number belongs to "
                        "one process at a time", path, (long)holder.l_pid);
}

/* Opens and locks the file of that name, which another process may just be removing. */
static terse_status open_file(ts_keep *keep, ts_error *error) {
    for (int turn = 0; turn < 100; turn++) {
        struct stat info, named;
        keep->file = open(keep->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (keep->file < 0)
            return ts_error_set(error, TERSE_EIO, "error_feedback.keep: cannot open %s: %s", keep->path, strerror(errno));
        if (fstat(keep->file, &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid())
            return ts_error_set(error, TERSE_EIO, "error_feedback.keep: %s is not a file of ours", keep->path);
        TS_TRY(lock(keep->file, keep->path, error));
        if (stat(keep->path, &named) == 0 && named.st_ino == info.st_ino && named.st_dev == info.st_dev) return TERSE_OK;
        close(keep->file);
        keep->file = -1;
    }
    return ts_error_set(error, TERSE_EIO, "error_feedback.keep: %s keeps being removed", keep->path);
}

/* Whether the file is a complete one of this contract. */
static bool is_ours(const ts_keep *keep, size_t bytes) {
    struct stat info;
    ts_keep_head head;
    if (fstat(keep->file, &info) != 0 || (size_t)info.st_size < sizeof head) return false;
    if (pread(keep->file, &head, sizeof head, 0) != (ssize_t)sizeof head) return false;
    bool known = memcmp(head.magic, TS_KEEP_MAGIC, sizeof head.magic) == 0 && head.ready;
    bool same = known && head.bytes == bytes && (size_t)info.st_size == bytes && head.worker == keep->worker &&
                memcmp(head.digest, keep->contract->digest, TS_DIGEST_BYTES) == 0;
    if (known && !same)
        ts_log(TS_LOG_WARN, "keep", "the residual of another contract is lost: it does not fit this one", "file=%s incarnation=%u",
               keep->path, head.incarnation);
    return same;
}

/* Promised by the file system, so that it cannot run out of room when memory is first written. */
static terse_status promise(const ts_keep *keep, size_t at, size_t bytes, ts_error *error) {
    int failed = posix_fallocate(keep->file, (off_t)at, (off_t)bytes);
    if (!failed) return TERSE_OK;
    return ts_error_set(error, TERSE_EIO, "error_feedback.keep: no room for %.1f MB in %s: %s (make room there, or name another "
                        "folder, or set it to off)", (double)bytes * 1e-6, keep->path, strerror(failed));
}

static terse_status begin_file(ts_keep *keep, size_t fixed, ts_error *error) {
    if (ftruncate(keep->file, 0) != 0 || ftruncate(keep->file, (off_t)keep->bytes) != 0)
        return ts_error_set(error, TERSE_EIO, "error_feedback.keep: %s: %s", keep->path, strerror(errno));
    return promise(keep, 0, fixed, error);
}

static terse_status map_file(ts_keep *keep, size_t fixed, ts_error *error) {
    void *map = mmap(NULL, keep->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, keep->file, 0);
    if (map == MAP_FAILED)
        return ts_error_set(error, TERSE_EIO, "error_feedback.keep: cannot map %s: %s", keep->path, strerror(errno));
    keep->map = map;
#ifdef MADV_HUGEPAGE
    (void)madvise(map, fixed, MADV_HUGEPAGE); /* where the kernel allows it; it is a matter of speed alone */
#else
    (void)fixed;
#endif
    return TERSE_OK;
}

static terse_status fill(ts_keep *keep, const ts_keep_options *options, ts_error *error) {
    layout l = lay_out(keep, options->config, NULL);
    keep->bytes = l.end;
    TS_TRY(make_folder(options->dir, error));
    TS_TRY(open_file(keep, error));
    keep->found = is_ours(keep, l.end);
    if (!keep->found) TS_TRY(begin_file(keep, l.areas, error));
    TS_TRY(map_file(keep, l.areas, error));
    point(keep, options->config);
    ts_keep_head *head = keep->head;
    if (keep->found) {
        ts_keep_recover(keep);
    } else {
        memcpy(head->magic, TS_KEEP_MAGIC, sizeof head->magic);
        memcpy(head->digest, keep->contract->digest, TS_DIGEST_BYTES);
        head->bytes = keep->bytes;
        head->worker = keep->worker;
        atomic_store(&head->ready, true);
    }
    head->incarnation++;
    return TERSE_OK;
}

static void *take(ts_feedback_memory *memory, const char *name, const char *purpose, size_t bytes) {
    ts_keep *keep = (ts_keep *)(void *)memory;
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

static void give(ts_feedback_memory *memory, void *block) { (void)memory, (void)block; }

terse_status ts_keep_open(const ts_keep_options *options, ts_keep **out, ts_error *error) {
    const ts_contract *contract = options->contract;
    for (uint32_t t = 0; t < contract->tensor_count; t++)
        if (ts_delta_in(&contract->tensors[t].push))
            return ts_error_set(error, TERSE_EUNSUPPORTED, "error_feedback.keep: a push pipeline with delta (tensor %s) cannot be "
                                "gone on with by another process; allowed with it: off", contract->tensors[t].name);
    ts_keep *keep = ts_mem_calloc(1, sizeof *keep);
    TS_REQUIRE(keep, TERSE_ENOMEM);
    keep->memory = (ts_feedback_memory){take, give};
    keep->contract = contract;
    keep->worker = options->worker;
    keep->file = -1;
    size_t room = strlen(options->dir) + 32;
    keep->path = ts_mem_calloc(room, 1);
    keep->tensors = ts_mem_calloc(contract->tensor_count + 1, sizeof *keep->tensors);
    keep->area = ts_mem_calloc((size_t)contract->slice_count + 1, sizeof *keep->area);
    terse_status status = keep->path && keep->tensors && keep->area ? TERSE_OK : TERSE_ENOMEM;
    if (keep->path) snprintf(keep->path, room, "%s/worker-%u.keep", options->dir, keep->worker);
    if (status == TERSE_OK) status = fill(keep, options, error);
    if (status == TERSE_OK) *out = keep;
    else ts_keep_close(keep, false);
    return status;
}

void ts_keep_close(ts_keep *keep, bool ended) {
    if (!keep) return;
    if (ended && keep->file >= 0) (void)unlink(keep->path); /* while it is locked */
    if (keep->map) (void)munmap(keep->map, keep->bytes);
    if (keep->file >= 0) close(keep->file);
    ts_mem_free(keep->path);
    ts_mem_free(keep->tensors);
    ts_mem_free(keep->area);
    ts_mem_free(keep);
}

/* ---- what is in it ---------------------------------------------------------------------------------------------------- */

const char *ts_keep_path(const ts_keep *keep) { return keep->path; }
bool ts_keep_found(const ts_keep *keep) { return keep->found; }
uint32_t ts_keep_incarnation(const ts_keep *keep) { return keep->head->incarnation; }
void ts_keep_set_incarnation(ts_keep *keep, uint32_t incarnation) { keep->head->incarnation = incarnation; }
uint64_t ts_keep_epoch(const ts_keep *keep) { return keep->head->epoch; }
void ts_keep_set_epoch(ts_keep *keep, uint64_t epoch) { keep->head->epoch = epoch; }

void ts_keep_forget(ts_keep *keep) {
    for (uint32_t i = 0; i < keep->contract->slice_count; i++) ts_keep_vacate(keep, i);
    for (uint32_t t = 0; t < keep->contract->tensor_count; t++)
        memset(keep->map + keep->tensors[t].at, 0, keep->tensors[t].bytes);
}

void ts_keep_norms(const ts_keep *keep, double *l1, double *l2) {
    const ts_kernels *kernels = ts_kernels_get(ts_cpu_simd());
    double squares = 0;
    *l1 = 0;
    for (uint32_t t = 0; t < keep->contract->tensor_count; t++) {
        const ts_keep_tensor *tensor = &keep->tensors[t];
        float block[1024];
        for (size_t at = 0, n; at < tensor->n; at += n) {
            n = tensor->n - at < 1024 ? tensor->n - at : 1024;
            if (tensor->brief) kernels->bf16_decode(tensor->brief + 2 * at, n, block);
            else memcpy(block, tensor->residual + at, n * sizeof *block);
            *l1 += kernels->sum_abs(block, n);
            squares += kernels->sum_squares(block, n);
        }
    }
    *l2 = sqrt(squares);
}

ts_feedback_memory *ts_keep_memory(ts_keep *keep) { return &keep->memory; }

void ts_keep_slot(ts_keep *keep, uint32_t slice, ts_outbox_slot *slot) {
    const ts_keep_slot_record *record = &keep->slots[slice];
    slot->bytes = keep->map + keep->area[slice];
    slot->capacity = (size_t)record->room;
    if (!atomic_load(&record->live)) return;
    slot->step = record->step;
    slot->len = record->len;
    slot->samples = record->samples;
}

bool ts_keep_live(const ts_keep *keep, uint32_t slice) { return atomic_load(&keep->slots[slice].live); }

terse_status ts_keep_reserve(ts_keep *keep, uint32_t slice, ts_outbox_slot *slot, size_t bytes) {
    ts_error error = {""};
    size_t whole = round_up(bytes, TS_KEEP_PAGE);
    if (bytes <= slot->capacity) return TERSE_OK;
    TS_REQUIRE(whole <= keep->area[slice + 1] - keep->area[slice], TERSE_ENOSPACE);
    terse_status status = promise(keep, keep->area[slice], whole, &error);
    if (status != TERSE_OK) ts_log(TS_LOG_ERROR, "keep", "an outbox cannot grow", "reason=\"%s\"", error.text);
    if (status != TERSE_OK) return status;
    keep->slots[slice].room = slot->capacity = whole;
    return TERSE_OK;
}
