/* SPDX-License-Identifier: Apache-2.0 */
/* What the sub-commands of `terse codec` (and `terse bench codec --input`) share: files of floats and .tp files. */
#ifndef TS_CLI_CMD_CODEC_H
#define TS_CLI_CMD_CODEC_H

#include "common/base/buffer.h"
#include "common/codec/codec.h"

/* argv[0] is the sub-command's name. Returns: the program's exit code. */
int ts_codec_encode_command(int argc, char **argv);
int ts_codec_decode_command(int argc, char **argv);
int ts_codec_inspect_command(int argc, char **argv);
int ts_codec_list_command(int argc, char **argv);

/* ---- command lines (cmd_codec.c); program: as typed, "terse codec encode" ---- */

/* One line on standard error, "terse codec encode: what; see …"; TS_EXIT_CONFIG. */
int ts_cli_usage_error(const char *program, const char *what);
/* After getopt_long with opterr 0 and a leading ':' answered ':' or '?': names the option. TS_EXIT_CONFIG. */
int ts_cli_option_error(const char *program, int answer, char **argv);
/* An option's value that is not allowed: names option, value and what is. TS_EXIT_CONFIG. */
int ts_cli_value_error(const char *program, const char *option, const char *value, const char *allowed);
/* An option's whole number. Returns TERSE_OK, or TERSE_EINVAL when ts_cli_value_error has said what is allowed. */
terse_status ts_cli_option_number(const char *program, const char *option, const char *text, uint64_t low,
                                  uint64_t high, uint64_t *out) TERSE_NODISCARD;
/* A whole number in decimal, all of the text. Returns TERSE_OK or TERSE_EINVAL. */
terse_status ts_cli_number(const char *text, uint64_t low, uint64_t high, uint64_t *out) TERSE_NODISCARD;

/* ---- files (cmd_codec_files.c) ---- */

/*
 * A whole file. bytes: [own], ts_mem_free. limit: bytes it may have.
 * Returns TERSE_OK, TERSE_EIO (error->text says why), TERSE_ENOTFOUND (no such file), TERSE_ELIMIT, TERSE_ENOMEM.
 */
terse_status ts_file_read(const char *path, size_t limit, uint8_t **bytes, size_t *len,
                          ts_error *error) TERSE_NODISCARD;
/* A flat little-endian float32 file. values: [own], ts_mem_free. Returns as ts_file_read; TERSE_ECORRUPT (odd size). */
terse_status ts_file_read_f32(const char *path, float **values, size_t *n, ts_error *error) TERSE_NODISCARD;

/* A file on the command line: what it is for, as "--residual"; path: NULL for none. */
typedef struct {
    const char *what, *path;
} ts_file_named;

/*
 * Refuses two that are one regular file, by whatever names (./, links), also where it is not there yet; what is no regular
 * file (a terminal, /dev/null) may be named twice. Returns TERSE_OK, TERSE_EINVAL (error->text names both).
 */
terse_status ts_files_differ(const ts_file_named *files, size_t count, ts_error *error) TERSE_NODISCARD;

/* An output file written aside. */
typedef struct {
    char *path, *aside; /* aside: NULL when the path is no regular file and was written directly */
} ts_file_output;

/* Writes it aside, to disk. Returns TERSE_OK, TERSE_EIO, TERSE_ENOMEM. */
terse_status ts_file_write(const char *path, const void *bytes, size_t len, ts_file_output *out,
                           ts_error *error) TERSE_NODISCARD;
/* Renames it into its place. Returns TERSE_OK, TERSE_EIO. */
terse_status ts_file_commit(ts_file_output *output, ts_error *error) TERSE_NODISCARD;
/* Removes what was not committed; a zeroed one is fine. */
void ts_file_forget(ts_file_output *output);

/* ---- .tp files (cmd_codec_tp.c); layout in proto/WIRE.md, "The .tp file" ---- */

#define TS_TP_MAGIC "TERSE.TP"
#define TS_TP_VERSION 1u
#define TS_TP_DIMS 16
#define TS_TP_SLICE_ELEMS 262144u /* as servers.slice_elems */

typedef struct {
    ts_pipeline pipeline;
    int64_t shape[TS_TP_DIMS];
    unsigned ndim;
    size_t n, slice_elems;
    uint64_t seed, step;
} ts_tp_header;

/* The tensor as the codec sees it: number 0, pushed by worker 0. Borrows the header. */
ts_codec_spec ts_tp_spec(const ts_tp_header *header);

/* Appends the header; packets follow by ts_tp_add in the order of slices, then ts_tp_finish. TERSE_OK, TERSE_ENOMEM. */
terse_status ts_tp_begin(const ts_tp_header *header, ts_buffer *file) TERSE_NODISCARD;
terse_status ts_tp_add(ts_buffer *file, const uint8_t *packet, size_t len) TERSE_NODISCARD;
terse_status ts_tp_finish(ts_buffer *file) TERSE_NODISCARD;

/* Where the next packet begins. */
typedef struct {
    const uint8_t *at, *end;
} ts_tp_reader;

/*
 * Checks magic, version, checksum and header. elems_limit: elements it may declare.
 * Returns TERSE_OK, TERSE_EVERSION, TERSE_ECORRUPT, TERSE_ELIMIT; error->text says what is wrong.
 */
terse_status ts_tp_open(const uint8_t *bytes, size_t len, size_t elems_limit, ts_tp_header *header,
                        ts_tp_reader *reader, ts_error *error) TERSE_NODISCARD;
/* The next slice's packet. Returns TERSE_OK; TERSE_ECORRUPT. */
terse_status ts_tp_next(ts_tp_reader *reader, const uint8_t **packet, size_t *len) TERSE_NODISCARD;

#endif
