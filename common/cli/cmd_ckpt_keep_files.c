/* SPDX-License-Identifier: Apache-2.0 */
/* terse ckpt keep verify, drop, move. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/cli/cmd_ckpt_keep.h"
#include "common/codec/kernels.h"
#include "common/config/config.h"

/* ---- verify -------------------------------------------------------------------------------------------------------------- */

static const char verify_help[] =
    "NAME\n"
    "  terse ckpt keep verify - read all of a file and check it\n\n"
    "SYNOPSIS\n"
    "  terse ckpt keep verify FILE|FOLDER\n\n"
    "DESCRIPTION\n"
    "  Checks what the file says of itself (contract, lengths), that residual and momentum are finite, and that every packet\n"
    "  without an answer decodes. Nothing is changed: what a kill has left half done is read as it will be when\n"
    "  the file is taken. A file that a living worker has open is not looked at; a worker that comes meanwhile waits until it is read,\n"
    "  for 10 s at most.\n\n"
    "EXIT STATUS\n"
    "  0 all are fine; 1 one is damaged, in use, or cannot be read; 2 the command line is wrong";

static terse_status verify_tensor(const ts_keep *file, uint32_t t, ts_error *error) {
    const ts_tensor *tensor = &ts_keep_contract(file)->tensors[t];
    ts_keep_mass mass = ts_keep_mass_of(file, t);
    uint64_t *none = ts_mem_calloc((size_t)ts_keep_contract(file)->slice_count + 1, sizeof *none);
    float *all = ts_mem_aligned(tensor->n, sizeof *all);
    ts_keep_rounding rounding = {0};
    terse_status status = none && all ? ts_keep_outstanding(file, t, none, all, &rounding) : TERSE_ENOMEM;
    ts_mem_free(none);
    ts_mem_free(all);
    if (status != TERSE_OK)
        return ts_error_set(error, status, "%s: tensor %s: a packet does not decode: %s", ts_keep_path(file), tensor->name,
                            terse_strerror(status));
    const float *velocity = ts_keep_velocity(file, t);
    size_t first = 0;
    bool moves = !velocity || ts_kernels_get(ts_cpu_simd())->nonfinite(velocity, tensor->n, &first) == 0;
    if (!isfinite(mass.l1) || !moves)
        return ts_error_set(error, TERSE_ECORRUPT, "%s: tensor %s: its %s is not finite", ts_keep_path(file), tensor->name,
                            moves ? "residual" : "momentum");
    return TERSE_OK;
}

static terse_status verify(const char *path, ts_error *error) {
    ts_keep *file = NULL;
    TS_TRY(ts_keep_open_still(path, &file, error));
    terse_status status = TERSE_OK;
    for (uint32_t t = 0; t < ts_keep_contract(file)->tensor_count && status == TERSE_OK; t++)
        status = verify_tensor(file, t, error);
    ts_keep_close(file, false);
    return status;
}

/* Does it to every file that a path stands for. Returns the exit code: 1 when one failed. */
static int each(const char *program, const char *path, terse_status (*act)(const char *path, ts_error *error)) {
    ts_keep_files files;
    ts_error error = {""};
    terse_status status = ts_keep_find_files(path, &files, &error);
    if (status != TERSE_OK) return ts_ckpt_fail(program, status, &error);
    int code = TS_EXIT_OK;
    for (uint32_t i = 0; i < files.count; i++) {
        error.text[0] = '\0';
        status = act(files.paths[i], &error);
        if (status != TERSE_OK) code = ts_ckpt_fail(program, status, &error);
    }
    if (files.count == 0) printf("no files of workers in %s\n", path);
    ts_keep_free_files(&files);
    return code;
}

static terse_status verify_aloud(const char *path, ts_error *error) {
    terse_status status = verify(path, error);
    if (status == TERSE_OK) printf("fine     %s\n", path);
    return status;
}

int ts_ckpt_keep_verify_command(int argc, char **argv) {
    const char *path = NULL;
    int code = ts_ckpt_line("terse ckpt keep verify", verify_help, argc, argv, &path, 1, NULL, NULL, 0);
    return code >= 0 ? code : each("terse ckpt keep verify", path, verify_aloud);
}

/* ---- drop ---------------------------------------------------------------------------------------------------------------- */

static const char drop_help[] =
    "NAME\n"
    "  terse ckpt keep drop - give residuals up\n\n"
    "SYNOPSIS\n"
    "  terse ckpt keep drop FILE|FOLDER\n\n"
    "DESCRIPTION\n"
    "  Removes the files, and prints what is lost with each, tensor by tensor. A file that a process has open stays.\n"
    "  A file that is damaged, or of another version, is removed with a sentence that says so, if it is named as a\n"
    "  worker's file (worker-N.keep).\n\n"
    "EXIT STATUS\n"
    "  0 done; 1 one is in use, is none of ours, or cannot be removed; 2 the command line is wrong";

/* One that cannot be opened; what it is, its name alone says. why: how it could not; [out] why it stays. */
static terse_status drop_unread(const char *path, terse_status status, ts_error *why) {
    const char *slash = strrchr(path, '/');
    ts_error was = *why;
    uint32_t worker;
    bool aside;
    if (!ts_keep_name(slash ? slash + 1 : path, &worker, &aside))
        return ts_error_set(why, status, "%.700s; it stays, since it is not named as a worker's file (worker-N.keep)", was.text);
    if (unlink(path) != 0) return ts_error_set(why, TERSE_EIO, "cannot remove %s: %s", path, strerror(errno));
    printf("%s: removed; %s\n", path, was.text);
    return TERSE_OK;
}

static terse_status drop(const char *path, ts_error *error) {
    ts_keep *file = NULL;
    terse_status status = ts_keep_open_file(path, true, &file, error);
    if (status == TERSE_ECORRUPT || status == TERSE_EVERSION || status == TERSE_ENOTFOUND) return drop_unread(path, status, error);
    TS_TRY(status);
    ts_keep_identity is = ts_keep_identify(file);
    ts_keep_mass mass = ts_keep_mass_all(file);
    char text[160];
    ts_keep_mass_text(&mass, text, sizeof text);
    printf("%s: removed; lost of worker %" PRIu32 " of job %s, epoch %016" PRIx64 ", at step %" PRIu64 ": %s\n", path, is.worker,
           is.job, is.epoch, is.steps, text);
    ts_keep_print_tensors(file);
    ts_keep_close(file, true);
    return TERSE_OK;
}

int ts_ckpt_keep_drop_command(int argc, char **argv) {
    const char *path = NULL;
    int code = ts_ckpt_line("terse ckpt keep drop", drop_help, argc, argv, &path, 1, NULL, NULL, 0);
    return code >= 0 ? code : each("terse ckpt keep drop", path, drop);
}

/* ---- move ---------------------------------------------------------------------------------------------------------------- */

static const char move_help[] =
    "NAME\n"
    "  terse ckpt keep move - hand a residual over to another worker\n\n"
    "SYNOPSIS\n"
    "  terse ckpt keep move FROM TO\n\n"
    "DESCRIPTION\n"
    "  For a worker that will not return: what it had not sent yet (and its momentum) is added to what another worker of\n"
    "  the same epoch has kept, who will send it when it is back. Both must be closed. Sums are of float32 (or bfloat16,\n"
    "  as stored); what their rounding loses is printed. Packets without an answer stay where they are, since only the\n"
    "  servers know what became of them; else FROM is removed.\n"
    "  Killed at any instant, the residual is in one of the two files; whoever opens one of them next finishes.\n\n"
    "EXIT STATUS\n"
    "  0 done; 1 a file is in use, or they are of different epochs or contracts; 2 the command line is wrong";

int ts_ckpt_keep_move_command(int argc, char **argv) {
    const char *words[2] = {NULL};
    int code = ts_ckpt_line("terse ckpt keep move", move_help, argc, argv, words, 2, NULL, NULL, 0);
    if (code >= 0) return code;
    ts_keep_moved moved;
    ts_error error = {""};
    terse_status status = ts_keep_move(words[0], words[1], &moved, &error);
    if (status != TERSE_OK) return ts_ckpt_fail("terse ckpt keep move", status, &error);
    printf("moved: sum of magnitudes %.9g, norm %.9g over %" PRIu64 " elements; lost to rounding: %.3g (magnitudes %.3g, %" PRIu64
           " elements)\n", moved.moved.l1, sqrt(moved.moved.squares), moved.moved.nonzero, moved.rounding.sum, moved.rounding.l1,
           moved.rounding.rounded);
    if (moved.packets_left > 0) printf("%s: %" PRIu32 " packets without an answer stay there\n", words[0], moved.packets_left);
    else printf("%s: removed\n", words[0]);
    return TS_EXIT_OK;
}
