/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/data/idx.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>

#include "common/base/mem.h"

#define IDX_TYPE_U8 0x08
#define IDX_MAX_BYTES ((size_t)1 << 32) /* a header from outside must not make us allocate more */

/* Exactly `bytes` bytes, or a sentence. */
static terse_status read_exactly(gzFile file, const char *path, uint8_t *to, size_t bytes, ts_error *error) {
    size_t have = 0;
    while (have < bytes) {
        size_t left = bytes - have;
        int got = gzread(file, to + have, (unsigned)(left < (1u << 24) ? left : 1u << 24));
        if (got < 0) {
            int code;
            const char *text = gzerror(file, &code);
            if (code == Z_ERRNO) return ts_error_set(error, TERSE_EIO, "%s: %s", path, strerror(errno));
            return ts_error_set(error, TERSE_ECORRUPT, "%s: not a whole gzip file (%s)", path, text);
        }
        if (got == 0)
            return ts_error_set(error, TERSE_ECORRUPT, "%s: ends %zu bytes before its header says", path, left);
        have += (size_t)got;
    }
    return TERSE_OK;
}

static terse_status read_header(gzFile file, const char *path, unsigned ndim, ts_idx *idx, size_t *bytes,
                                ts_error *error) {
    uint8_t magic[4], extent[4];
    TS_TRY(read_exactly(file, path, magic, sizeof magic, error));
    if (magic[0] != 0 || magic[1] != 0 || magic[2] != IDX_TYPE_U8)
        return ts_error_set(error, TERSE_ECORRUPT, "%s: not an IDX file of bytes (starts with %02x %02x %02x %02x)",
                            path, magic[0], magic[1], magic[2], magic[3]);
    if (magic[3] != ndim)
        return ts_error_set(error, TERSE_ECORRUPT, "%s: has %u dimensions, %u are wanted", path, magic[3], ndim);
    size_t product = 1;
    for (unsigned d = 0; d < ndim; d++) {
        TS_TRY(read_exactly(file, path, extent, sizeof extent, error));
        idx->extent[d] = (size_t)extent[0] << 24 | (size_t)extent[1] << 16 | (size_t)extent[2] << 8 | extent[3];
        if (idx->extent[d] == 0) return ts_error_set(error, TERSE_ECORRUPT, "%s: dimension %u is 0", path, d);
        if (!ts_mem_mul(product, idx->extent[d], &product) || product > IDX_MAX_BYTES)
            return ts_error_set(error, TERSE_ELIMIT, "%s: says it holds more than 4 GiB", path);
    }
    idx->ndim = ndim;
    *bytes = product;
    return TERSE_OK;
}

terse_status ts_idx_read(const char *path, unsigned ndim, ts_idx *out, ts_error *error) {
    TS_REQUIRE(ndim >= 1 && ndim <= TS_IDX_DIMS, TERSE_EINVAL);
    errno = 0;
    gzFile file = gzopen(path, "rb");
    if (!file)
        return ts_error_set(error, TERSE_EIO, "%s: cannot be opened: %s", path, strerror(errno ? errno : ENOMEM));
    gzbuffer(file, 1u << 17);
    ts_idx idx = {0};
    size_t bytes = 0;
    uint8_t beyond;
    terse_status status = read_header(file, path, ndim, &idx, &bytes, error);
    if (status != TERSE_OK) goto out;
    idx.values = ts_mem_realloc(NULL, bytes, 1);
    if (!idx.values) {
        status = ts_error_set(error, TERSE_ENOMEM, "%s: no memory for %zu bytes", path, bytes);
        goto out;
    }
    status = read_exactly(file, path, idx.values, bytes, error);
    if (status != TERSE_OK) goto out;
    /* One byte more: it must not be there, and asking for it makes zlib check the checksum. */
    int more = gzread(file, &beyond, 1);
    if (more != 0)
        status = ts_error_set(error, TERSE_ECORRUPT, "%s: %s", path,
                              more > 0 ? "has more bytes than its header says" : "its gzip checksum does not fit");
out:
    gzclose(file);
    if (status != TERSE_OK) {
        ts_idx_free(&idx);
        return status;
    }
    *out = idx;
    return TERSE_OK;
}

void ts_idx_free(ts_idx *idx) {
    if (!idx) return;
    ts_mem_free(idx->values);
    *idx = (ts_idx){0};
}
