/* SPDX-License-Identifier: Apache-2.0 */
/* A small checkpoint of two servers and two workers in a folder of its own, for tests. Everything asserts. */
#ifndef TS_CKPT_CASE_H
#define TS_CKPT_CASE_H

#include "common/ckpt/ckpt_manifest.h"

typedef struct {
    char dir[64];    /* made, and removed by ckpt_case_remove */
    char folder[TS_CKPT_NAME_CHARS];
    ts_contract *contract;
    ts_ckpt_manifest manifest;
} ckpt_case;

/* tensors: fc.weight 2x3, fc.bias 2. Parts and manifest are written. */
void ckpt_case_make(ckpt_case *c, uint64_t serial, uint64_t version);
void ckpt_case_remove(ckpt_case *c);
/* The path of a file of it; free(). file: NULL for the manifest. */
char *ckpt_case_path(const ckpt_case *c, const char *file);
/* A file's bytes; free(). */
uint8_t *ckpt_case_read(const char *path, size_t *len);
void ckpt_case_write(const char *path, const uint8_t *bytes, size_t len);

#endif
