/* SPDX-License-Identifier: Apache-2.0 */
/* Any file, by what it says of itself: nothing of it is trusted before it was checked. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/keep/keep_file.h"

static bool all_zero(const void *bytes, size_t len) {
    const uint8_t *at = bytes;
    while (len > 0 && at[len - 1] == 0) len--;
    return len == 0;
}

static bool is_yes_or_no(const ts_keep_head *head) {
    const uint8_t form[] = {head->brief, head->estimates, head->decayed};
    const uint32_t word[] = {atomic_load(&head->ready), atomic_load(&head->ended), atomic_load(&head->mortal)};
    for (unsigned i = 0; i < 3; i++)
        if (form[i] != 0 && form[i] != TS_KEEP_FORM) return false;
    for (unsigned i = 0; i < 3; i++)
        if (word[i] != 0 && word[i] != TS_KEEP_YES) return false;
    return true;
}

terse_status ts_keep_read_head(int file, const char *path, ts_keep_kind *kind, ts_keep_head *head, ts_error *error) {
    struct stat info;
    ssize_t got = -1;
    if (fstat(file, &info) == 0) got = pread(file, head, sizeof *head, 0);
    if (got < 0) return ts_error_set(error, TERSE_EIO, "%s: %s", path, strerror(errno));
    *kind = TS_KEEP_EMPTY;
    memset((uint8_t *)head + got, 0, sizeof *head - (size_t)got);
    if (all_zero(head->magic, sizeof head->magic)) /* killed before it was complete: nothing was in it */
        return all_zero(head, sizeof *head) ? TERSE_OK
                   : ts_error_set(error, TERSE_ECORRUPT, "%s: damaged, or no file of a worker's residual", path);
    if (memcmp(head->magic, TS_KEEP_MAGIC, 7) != 0)
        return ts_error_set(error, TERSE_ECORRUPT, "%s: no file of a worker's residual", path);
    if (memcmp(head->magic, TS_KEEP_MAGIC, sizeof head->magic) != 0)
        return ts_error_set(error, TERSE_EVERSION, "%s: written by another version of Terse (%.8s, this one reads %s)", path,
                            head->magic, TS_KEEP_MAGIC);
    if (!is_yes_or_no(head)) return ts_error_set(error, TERSE_ECORRUPT, "%s: damaged: what it says of itself cannot be", path);
    if (atomic_load(&head->ready) != TS_KEEP_YES) { /* one that was complete has had a life */
        if (head->incarnation == 0 && head->epoch == 0) return TERSE_OK;
        return ts_error_set(error, TERSE_ECORRUPT, "%s: damaged: what it says of itself cannot be", path);
    }
    if ((uint64_t)info.st_size != head->bytes)
        return ts_error_set(error, TERSE_ECORRUPT, "%s: torn: it has %lld bytes of %llu", path, (long long)info.st_size,
                            (unsigned long long)head->bytes);
    *kind = TS_KEEP_FOREIGN;
    return TERSE_OK;
}

/* The contract out of the file. */
static terse_status read_contract(ts_keep *keep, const ts_keep_head *head, ts_error *error) {
    ts_error why = {""};
    if (head->contract_bytes == 0 || head->contract_bytes > head->bytes)
        return ts_error_set(error, TERSE_ECORRUPT, "%s: damaged: its contract cannot be that long", keep->path);
    uint8_t *packed = ts_mem_calloc((size_t)head->contract_bytes, 1);
    TS_REQUIRE(packed, TERSE_ENOMEM);
    ssize_t got = pread(keep->file, packed, (size_t)head->contract_bytes, (off_t)TS_KEEP_PAGE);
    terse_status status = TERSE_ECORRUPT;
    if (got == (ssize_t)head->contract_bytes)
        status = ts_contract_unpack(packed, (size_t)got, 1, &keep->described, &why);
    ts_mem_free(packed);
    if (status != TERSE_OK)
        return ts_error_set(error, status, "%s: damaged: its contract is none: %.600s", keep->path, why.text);
    keep->contract = keep->described;
    if (memcmp(keep->contract->digest, head->digest, TS_DIGEST_BYTES) != 0)
        return ts_error_set(error, TERSE_ECORRUPT, "%s: damaged: its contract is another than it says", keep->path);
    return TERSE_OK;
}

terse_status ts_keep_describe(int file, const char *path, ts_keep_use use, ts_keep **out, ts_error *error) {
    ts_keep_head head;
    ts_keep_kind kind;
    TS_TRY(ts_keep_read_head(file, path, &kind, &head, error));
    if (kind == TS_KEEP_EMPTY) return ts_error_set(error, TERSE_ENOTFOUND, "%s: there is nothing in it yet", path);
    ts_keep *keep = ts_mem_calloc(1, sizeof *keep);
    TS_REQUIRE(keep, TERSE_ENOMEM);
    keep->file = file;
    keep->takes = use != TS_KEEP_LOOKED_AT;
    keep->found = true;
    keep->worker = head.worker;
    keep->bytes = (size_t)head.bytes;
    keep->form = ts_keep_form_of(&head);
    keep->path = ts_mem_strdup(path);
    terse_status status = keep->path ? read_contract(keep, &head, error) : TERSE_ENOMEM;
    if (status == TERSE_OK) status = ts_keep_make_tables(keep);
    if (status == TERSE_OK && ts_keep_lay_out(keep, (size_t)head.contract_bytes, NULL).end != keep->bytes)
        status = ts_error_set(error, TERSE_ECORRUPT, "%s: damaged: its length is not that of its contract", path);
    if (status == TERSE_OK) status = ts_keep_map(keep, use, error);
    if (status == TERSE_OK) {
        ts_keep_point(keep, (size_t)head.contract_bytes);
        status = ts_keep_check(keep, error);
    }
    if (status == TERSE_OK) {
        if (keep->takes) ts_keep_recover(keep);
        *out = keep;
        return TERSE_OK;
    }
    keep->file = -1; /* the caller's still */
    ts_keep_close(keep, false);
    return status;
}

terse_status ts_keep_open_file(const char *path, bool takes, ts_keep **out, ts_error *error) {
    int file = -1;
    if (takes) {
        TS_TRY(ts_keep_lock_file(path, TS_KEEP_WRITES, &file, error));
    } else {
        file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (file < 0) return ts_error_set(error, TERSE_EIO, "cannot open %s: %s", path, strerror(errno));
    }
    terse_status status = ts_keep_describe(file, path, takes ? TS_KEEP_TAKEN : TS_KEEP_LOOKED_AT, out, error);
    if (status != TERSE_OK) close(file);
    if (status != TERSE_OK || !takes) return status;
    status = ts_keep_settle_move(*out, error);
    if (status == TERSE_OK) return TERSE_OK;
    ts_keep_close(*out, false);
    *out = NULL;
    return status;
}

terse_status ts_keep_open_still(const char *path, ts_keep **out, ts_error *error) {
    int file = -1;
    TS_TRY(ts_keep_lock_file(path, TS_KEEP_READS, &file, error));
    terse_status status = ts_keep_describe(file, path, TS_KEEP_STILL, out, error);
    if (status != TERSE_OK) close(file);
    return status;
}

bool ts_keep_name(const char *name, uint32_t *worker, bool *aside) {
    static const char head[] = "worker-";
    char *end;
    if (strncmp(name, head, sizeof head - 1) != 0) return false;
    const char *digits = name + sizeof head - 1;
    if (*digits < '0' || *digits > '9') return false;
    unsigned long number = strtoul(digits, &end, 10);
    if (number >= UINT32_MAX || strncmp(end, ".keep", 5) != 0) return false;
    bool epoch = end[5] == '.' && strspn(end + 6, "0123456789abcdef") == 16 && end[22] == '\0';
    if (end[5] != '\0' && !(epoch && aside)) return false;
    *worker = (uint32_t)number;
    if (aside) *aside = epoch;
    return true;
}

long ts_keep_owner(const char *path) {
    struct flock holder = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) return 0;
    bool told = fcntl(file, F_GETLK, &holder) == 0 && holder.l_type != F_UNLCK;
    close(file);
    return told ? (long)holder.l_pid : 0;
}
