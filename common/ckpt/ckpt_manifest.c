/* SPDX-License-Identifier: Apache-2.0 */
#include "common/ckpt/ckpt_manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file_aside.h"
#include "common/base/mem.h"

#define SEAL_TEXT "\"seal\": \"" /* the first key of all, as jansson writes it with an indent */

void ts_ckpt_manifest_free(ts_ckpt_manifest *manifest) {
    ts_mem_free(manifest->contract);
    ts_mem_free(manifest->parts);
    *manifest = (ts_ckpt_manifest){0};
}

ts_ckpt_identity ts_ckpt_manifest_identity(const ts_ckpt_manifest *manifest, bool worker, uint32_t index) {
    ts_ckpt_identity is = {.serial = manifest->serial, .version = manifest->version, .worker = worker, .index = index,
                           .count = worker ? manifest->workers : manifest->servers};
    memcpy(is.run, manifest->run, sizeof is.run);
    memcpy(is.epoch, manifest->epoch, sizeof is.epoch);
    memcpy(is.contract, manifest->digest, sizeof is.contract);
    return is;
}

terse_status ts_ckpt_manifest_contract(const ts_ckpt_manifest *manifest, uint32_t servers, ts_contract **out,
                                       ts_error *error) {
    return ts_contract_unpack(manifest->contract, manifest->contract_bytes, servers, out, error);
}

/* ---- writing ---------------------------------------------------------------------------------------------------------- */

static json_t *integer(uint64_t value) { return json_integer((json_int_t)value); }

static json_t *hex_of(const uint8_t *bytes, size_t len) {
    char *text = ts_mem_calloc(2 * len + 1, 1);
    if (!text) return NULL;
    ts_ckpt_hex_bytes(bytes, len, text);
    json_t *value = json_string(text);
    ts_mem_free(text);
    return value;
}

static json_t *tensors_of(const ts_contract *contract) {
    json_t *list = json_array();
    for (uint32_t t = 0; t < contract->tensor_count; t++) {
        const ts_tensor *tensor = &contract->tensors[t];
        json_t *shape = json_array();
        for (unsigned d = 0; d < tensor->ndim; d++) json_array_append_new(shape, json_integer((json_int_t)tensor->shape[d]));
        json_array_append_new(list, json_pack("{s:s, s:o, s:s, s:s}", "name", tensor->name, "shape", shape, "push",
                                              tensor->push.text, "pull", tensor->pull.text));
    }
    return list;
}

static json_t *contract_of(const ts_ckpt_manifest *manifest, const ts_contract *contract) {
    static const char *const modes[] = {"bsp", "ssp", "asp"};
    return json_pack("{s:o, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "digest", hex_of(manifest->digest, TS_DIGEST_BYTES),
                     "mode", modes[contract->mode], "optimizer", contract->optimizer, "feedback", contract->feedback,
                     "slice_elems", integer(contract->slice_elems), "seed", integer(contract->seed), "total_steps",
                     integer(contract->total_steps), "tensors", tensors_of(contract), "packed",
                     hex_of(manifest->contract, manifest->contract_bytes));
}

static json_t *parts_of(const ts_ckpt_manifest *manifest, bool worker) {
    json_t *list = json_array();
    uint32_t count = worker ? manifest->workers : manifest->servers;
    for (uint32_t i = 0; i < count; i++) {
        const ts_ckpt_part *part = ts_ckpt_manifest_part(manifest, worker, i);
        char name[TS_CKPT_NAME_CHARS], seal[TS_CKPT_SEAL_CHARS + 1] = "";
        ts_ckpt_part_file(worker, i, count, name);
        ts_ckpt_put_hex(seal, part->seal);
        json_array_append_new(list, part->bytes == 0 ? json_null()
                                                     : json_pack("{s:s, s:o, s:s}", "file", name, "bytes",
                                                                 integer(part->bytes), "seal", seal));
    }
    return list;
}

/* text: [out] [own] free(). */
static terse_status make_text(const ts_ckpt_manifest *manifest, char **text, ts_error *error) {
    ts_contract *contract = NULL;
    TS_TRY(ts_ckpt_manifest_contract(manifest, manifest->servers, &contract, error));
    json_t *parent = manifest->parent_epoch[0]
                         ? json_pack("{s:s, s:o}", "epoch", manifest->parent_epoch, "version",
                                     integer(manifest->parent_version))
                         : json_null();
    json_t *root =
        json_pack("{s:s, s:s, s:i, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "seal", "0000000000000000", "what",
                  "a checkpoint of Terse: proto/CHECKPOINT.md", "format", (int)TS_CKPT_FORMAT, "run", manifest->run, "epoch",
                  manifest->epoch, "parent", parent, "serial", integer(manifest->serial), "version",
                  integer(manifest->version), "servers", parts_of(manifest, false), "workers", parts_of(manifest, true),
                  "contract", contract_of(manifest, contract));
    ts_contract_destroy(contract);
    char *made = root ? json_dumps(root, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL;
    json_decref(root);
    TS_REQUIRE(made, TERSE_ENOMEM);
    uint64_t seal;
    if (!ts_ckpt_seal(made, strlen(made), SEAL_TEXT, &seal)) {
        free(made);
        return TERSE_EINVAL;
    }
    *text = made;
    return TERSE_OK;
}

terse_status ts_ckpt_manifest_write(const ts_ckpt_manifest *manifest, const char *path, ts_error *error) {
    char *text = NULL;
    ts_file_aside file;
    TS_TRY(make_text(manifest, &text, error));
    terse_status status = ts_file_aside_open(path, &file, error);
    if (status == TERSE_OK) {
        status = ts_file_aside_write(&file, text, strlen(text), error);
        if (status == TERSE_OK) status = ts_file_aside_write(&file, "\n", 1, error);
        status = ts_file_aside_finish(&file, status, error);
    }
    free(text);
    return status;
}

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

static terse_status wrong(const char *file, const char *key, const char *allowed, ts_error *error) {
    return ts_error_set(error, TERSE_ECORRUPT, "%s: \"%s\" is not %s", file, key, allowed);
}

static terse_status take_id(const char *file, const json_t *root, const char *key, char *out, ts_error *error) {
    const char *text = json_string_value(json_object_get(root, key));
    if (!text || !ts_ckpt_is_id(text)) return wrong(file, key, "16 hexadecimal digits", error);
    memcpy(out, text, TS_CKPT_ID_CHARS + 1);
    return TERSE_OK;
}

static terse_status take_number(const char *file, const json_t *root, const char *key, uint64_t *out, ts_error *error) {
    const json_t *value = json_object_get(root, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0) return wrong(file, key, "a whole number", error);
    *out = (uint64_t)json_integer_value(value);
    return TERSE_OK;
}

static terse_status take_parent(const char *file, const json_t *root, ts_ckpt_manifest *manifest, ts_error *error) {
    const json_t *parent = json_object_get(root, "parent");
    if (json_is_null(parent)) return TERSE_OK;
    TS_TRY(take_id(file, parent, "epoch", manifest->parent_epoch, error));
    return take_number(file, parent, "version", &manifest->parent_version, error);
}

/* A part's line; null stands for a worker without one. */
static terse_status take_part(const char *file, const json_t *value, bool worker, uint32_t index, uint32_t count,
                              ts_ckpt_part *part, ts_error *error) {
    char name[TS_CKPT_NAME_CHARS];
    const char *said = json_string_value(json_object_get(value, "file"));
    const char *seal = json_string_value(json_object_get(value, "seal"));
    const char *list = worker ? "workers" : "servers";
    ts_ckpt_part_file(worker, index, count, name);
    if (json_is_null(value) && worker) return TERSE_OK;
    /* Names are made, never taken: a file elsewhere cannot be named. */
    if (!said || strcmp(said, name) != 0 || !seal || strlen(seal) != TS_CKPT_SEAL_CHARS ||
        !ts_ckpt_get_hex(seal, &part->seal))
        return wrong(file, list, "a list of files as Terse names them, with their seals", error);
    TS_TRY(take_number(file, value, "bytes", &part->bytes, error));
    return part->bytes > 0 ? TERSE_OK : wrong(file, list, "a list of files with their lengths", error);
}

static terse_status take_parts(const char *file, const json_t *root, ts_ckpt_manifest *manifest, ts_error *error) {
    const json_t *servers = json_object_get(root, "servers"), *workers = json_object_get(root, "workers");
    size_t s = json_array_size(servers), w = json_array_size(workers);
    if (s < 1 || s > TS_CKPT_COUNT_MAX) return wrong(file, "servers", "a list of 1 to 65536 files", error);
    if (w < 1 || w > TS_CKPT_COUNT_MAX) return wrong(file, "workers", "a list of 1 to 65536 files", error);
    manifest->servers = (uint32_t)s;
    manifest->workers = (uint32_t)w;
    manifest->parts = ts_mem_calloc(s + w, sizeof *manifest->parts);
    TS_REQUIRE(manifest->parts, TERSE_ENOMEM);
    for (uint32_t i = 0; i < s + w; i++) {
        bool worker = i >= s;
        uint32_t index = worker ? i - (uint32_t)s : i;
        TS_TRY(take_part(file, json_array_get(worker ? workers : servers, index), worker, index,
                         worker ? manifest->workers : manifest->servers, &manifest->parts[i], error));
    }
    return TERSE_OK;
}

static terse_status take_contract(const char *file, const json_t *root, ts_ckpt_manifest *manifest, ts_error *error) {
    const json_t *about = json_object_get(root, "contract");
    const char *digest = json_string_value(json_object_get(about, "digest"));
    const char *packed = json_string_value(json_object_get(about, "packed"));
    uint8_t made[TS_DIGEST_BYTES];
    ts_contract *contract = NULL;
    ts_error why = {""};
    if (!digest || !ts_ckpt_bytes_of_hex(digest, manifest->digest, TS_DIGEST_BYTES))
        return wrong(file, "contract.digest", "32 hexadecimal digits", error);
    if (!packed || strlen(packed) % 2) return wrong(file, "contract.packed", "hexadecimal bytes", error);
    manifest->contract_bytes = strlen(packed) / 2;
    manifest->contract = ts_mem_calloc(manifest->contract_bytes + 1, 1);
    TS_REQUIRE(manifest->contract, TERSE_ENOMEM);
    if (!ts_ckpt_bytes_of_hex(packed, manifest->contract, manifest->contract_bytes))
        return wrong(file, "contract.packed", "hexadecimal bytes", error);
    terse_status status = ts_ckpt_manifest_contract(manifest, manifest->servers, &contract, &why);
    if (status != TERSE_OK) return ts_error_set(error, status, "%s: its contract is not valid: %.600s", file, why.text);
    status = ts_ckpt_contract_digest(contract, made);
    ts_contract_destroy(contract);
    if (status != TERSE_OK) return status;
    return memcmp(made, manifest->digest, sizeof made) == 0 ? TERSE_OK
                                                            : wrong(file, "contract.digest", "that of its contract", error);
}

static terse_status take_all(const char *file, const json_t *root, ts_ckpt_manifest *manifest, ts_error *error) {
    uint64_t format;
    TS_TRY(take_number(file, root, "format", &format, error));
    if (format != TS_CKPT_FORMAT)
        return ts_error_set(error, TERSE_EVERSION, "%s: checkpoint format %" PRIu64 "; this version of Terse reads %u", file,
                            format, TS_CKPT_FORMAT);
    TS_TRY(take_id(file, root, "run", manifest->run, error));
    TS_TRY(take_id(file, root, "epoch", manifest->epoch, error));
    TS_TRY(take_parent(file, root, manifest, error));
    TS_TRY(take_number(file, root, "serial", &manifest->serial, error));
    TS_TRY(take_number(file, root, "version", &manifest->version, error));
    TS_TRY(take_parts(file, root, manifest, error));
    return take_contract(file, root, manifest, error);
}

terse_status ts_ckpt_manifest_parse(const char *file, const char *text, size_t len, ts_ckpt_manifest *out,
                                    ts_error *error) {
    json_error_t reason;
    uint64_t seal;
    while (len > 0 && text[len - 1] == '\n') len--;
    if (!ts_ckpt_sealed(text, len, SEAL_TEXT, &seal))
        return ts_error_set(error, TERSE_ECORRUPT, "%s: does not match its seal (truncated, damaged, or changed by hand)", file);
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &reason);
    if (!json_is_object(root)) {
        json_decref(root);
        return ts_error_set(error, TERSE_ECORRUPT, "%s: not JSON: %s", file, root ? "no object" : reason.text);
    }
    ts_ckpt_manifest manifest = {0};
    terse_status status = take_all(file, root, &manifest, error);
    json_decref(root);
    if (status == TERSE_OK) *out = manifest;
    else ts_ckpt_manifest_free(&manifest);
    return status;
}

terse_status ts_ckpt_manifest_read(const char *path, ts_ckpt_manifest *out, ts_error *error) {
    char *text = NULL;
    size_t len = 0, room = 0;
    terse_status status = TERSE_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return ts_error_set(error, TERSE_EIO, "%s: %s", path, strerror(errno));
    while (status == TERSE_OK) {
        if (len == room) {
            room = room ? 2 * room : 65536;
            char *grown = room <= TS_CKPT_MANIFEST_MAX ? ts_mem_realloc(text, room, 1) : NULL;
            if (!grown) {
                status = room <= TS_CKPT_MANIFEST_MAX
                             ? TERSE_ENOMEM : ts_error_set(error, TERSE_ECORRUPT, "%s: too large for a manifest", path);
                break;
            }
            text = grown;
        }
        ssize_t got = read(fd, text + len, room - len);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) status = ts_error_set(error, TERSE_EIO, "%s: %s", path, strerror(errno));
        if (got <= 0) break;
        len += (size_t)got;
    }
    close(fd);
    if (status == TERSE_OK) status = ts_ckpt_manifest_parse(path, text, len, out, error);
    ts_mem_free(text);
    return status;
}

/* ---- its parts ------------------------------------------------------------------------------------------------------------ */

terse_status ts_ckpt_identity_compare(const char *path, const ts_ckpt_identity *is, const ts_ckpt_identity *wanted,
                                      ts_error *error) {
    if (strcmp(is->run, wanted->run) != 0)
        return ts_error_set(error, TERSE_EMISMATCH, "%s: of run %s, wanted is run %s", path, is->run, wanted->run);
    if (strcmp(is->epoch, wanted->epoch) != 0)
        return ts_error_set(error, TERSE_EMISMATCH, "%s: of epoch %s, wanted is epoch %s; files of different epochs never meet",
                            path, is->epoch, wanted->epoch);
    if (is->version != wanted->version || is->serial != wanted->serial)
        return ts_error_set(error, TERSE_EMISMATCH, "%s: checkpoint %" PRIu64 " at step %" PRIu64 ", wanted is %" PRIu64
                            " at step %" PRIu64, path, is->serial, is->version, wanted->serial, wanted->version);
    if (is->worker != wanted->worker || is->index != wanted->index || is->count != wanted->count)
        return ts_error_set(error, TERSE_EMISMATCH, "%s: of %s %" PRIu32 " of %" PRIu32 ", wanted is %s %" PRIu32 " of %" PRIu32,
                            path, is->worker ? "worker" : "server", is->index, is->count, wanted->worker ? "worker" : "server",
                            wanted->index, wanted->count);
    if (memcmp(is->contract, wanted->contract, TS_DIGEST_BYTES) != 0)
        return ts_error_set(error, TERSE_EMISMATCH, "%s: of another contract (tensors, pipelines or hyper-parameters)", path);
    return TERSE_OK;
}

terse_status ts_ckpt_manifest_open(const ts_ckpt_manifest *manifest, const char *dir, const char *folder, bool worker,
                                   uint32_t index, ts_ckpt_reader **out, ts_error *error) {
    const ts_ckpt_part *said = ts_ckpt_manifest_part(manifest, worker, index);
    ts_ckpt_identity wanted = ts_ckpt_manifest_identity(manifest, worker, index);
    char name[TS_CKPT_NAME_CHARS], *path = NULL;
    ts_ckpt_reader *reader = NULL;
    ts_ckpt_part_file(worker, index, wanted.count, name);
    if (said->bytes == 0)
        return ts_error_set(error, TERSE_ENOTFOUND, "%s/%s: the checkpoint was committed without worker %" PRIu32, dir, folder,
                            index);
    TS_TRY(ts_ckpt_path(dir, folder, name, &path));
    terse_status status = ts_ckpt_reader_open(path, &reader, error);
    if (status == TERSE_OK) status = ts_ckpt_identity_compare(path, ts_ckpt_reader_identity(reader), &wanted, error);
    if (status == TERSE_OK) {
        ts_ckpt_part is = ts_ckpt_reader_part(reader);
        if (is.bytes != said->bytes || is.seal != said->seal)
            status = ts_error_set(error, TERSE_EMISMATCH, "%s: not the file that the manifest speaks of (its length or seal "
                                  "differs)", path);
    }
    ts_mem_free(path);
    if (status == TERSE_OK) *out = reader;
    else ts_ckpt_reader_close(reader);
    return status;
}

void ts_ckpt_remove_of_run(const char *dir, const char *folder, const char *file, const char *run) {
    ts_ckpt_reader *reader = NULL;
    char *path = NULL;
    if (ts_ckpt_path(dir, folder, file, &path) != TERSE_OK) return;
    bool ours = ts_ckpt_reader_open(path, &reader, NULL) == TERSE_OK &&
                strcmp(ts_ckpt_reader_identity(reader)->run, run) == 0;
    ts_ckpt_reader_close(reader);
    if (ours) ts_ckpt_remove(dir, folder, file);
    ts_mem_free(path);
}
