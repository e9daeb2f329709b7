/* SPDX-License-Identifier: Apache-2.0 */
/* terse codec encode: one tensor's step from a file into a .tp file. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/cli/cmd_codec.h"
#include "common/config/config.h"

#define PROGRAM "terse codec encode"

typedef struct {
    const char *pipeline, *shape, *residual, *reference, *in, *out;
    uint64_t seed, step, slice_elems;
    ts_nonfinite nonfinite;
} options;

static void print_help(void) {
    puts("NAME\n"
         "  terse codec encode - encode a gradient through a pipeline into a .tp file\n\n"
         "SYNOPSIS\n"
         "  terse codec encode --pipeline P [--shape D,D,...] [--residual R.f32] [--seed N] [--step N]\n"
         "                     [--slice-elems N] [--nonfinite error|skip|zero] IN.f32 OUT.tp\n"
         "  terse codec encode --pipeline \"exact ...\" [--reference R.f32] [...] IN.f32 OUT.tp\n\n"
         "DESCRIPTION\n"
         "  Reads IN.f32, a flat little-endian float32 file, as one tensor and writes what a worker would push.\n"
         "  With --residual the gradient is first added to the residual; what the packet does not say, rounding of\n"
         "  what it does say included, is written back. Sent plus new residual is gradient plus old residual;\n"
         "  what is smaller than 1.18e-38 (subnormal) counts as zero.\n"
         "  Without it nothing is sent later, so what is drawn by chance keeps the expectation: bernoulli and\n"
         "  magnitude send g / p, randomk g n / k, and qsgd and ternary are not damped.\n"
         "  With exact IN.f32 is parameters, and what is written is what a server sends to a worker that holds the\n"
         "  reference: new values where bits differ, whatever they are. The reference is then the parameters.\n"
         "  Both files are written aside and renamed; on any failure neither is touched. IN.f32, OUT.tp and R.f32 are\n"
         "  three files: two names of one (./, links) are refused.\n\n"
         "OPTIONS\n"
         "  --pipeline P       stages, as \"topk:0.001 | int8 | rice\"; see terse codec list\n"
         "  --shape D,D,...    the tensor's extents; their product is the number of values. Default: one extent\n"
         "  --residual R.f32   error feedback: read if it exists (as many values as IN.f32), rewritten\n"
         "  --reference R.f32  of exact: what the receiver holds; read if it exists (as many values as IN.f32), else\n"
         "                     zeros; rewritten\n"
         "  --seed N           key of all randomness (default 0)\n"
         "  --step N           step number, part of the key (default 0)\n"
         "  --slice-elems N    elements of a slice (default 262144)\n"
         "  --nonfinite WHAT   NaN and infinity in IN.f32: error (default) refuses them; skip leaves the whole\n"
         "                     gradient out; zero counts them as 0\n"
         "  --help, --version\n\n"
         "EXIT STATUS\n"
         "  0 done; 1 a file cannot be read or written, or IN.f32 holds NaN or infinity (their number and the first\n"
         "  index are told); 2 the command line or the pipeline is wrong\n\n"
         "EXAMPLE\n"
         "  terse codec encode --pipeline \"topk:0.01 | int8\" --residual r.f32 g.f32 g.tp\n"
         "  terse codec inspect g.tp\n"
         "  terse codec decode g.tp sent.f32");
}

static const struct option long_options[] = {
    {"pipeline", required_argument, NULL, 'p'},  {"shape", required_argument, NULL, 's'},
    {"residual", required_argument, NULL, 'r'},  {"reference", required_argument, NULL, 'R'}, {"seed", required_argument, NULL, 'S'},
    {"step", required_argument, NULL, 't'},      {"slice-elems", required_argument, NULL, 'e'},
    {"nonfinite", required_argument, NULL, 'n'}, {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},         {NULL, 0, NULL, 0}};

static terse_status read_policy(const char *text, ts_nonfinite *policy) {
    static const char *const names[] = {
        [TS_NONFINITE_ERROR] = "error", [TS_NONFINITE_SKIP] = "skip", [TS_NONFINITE_ZERO] = "zero"};
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(text, names[i]) == 0) {
            *policy = (ts_nonfinite)i;
            return TERSE_OK;
        }
    }
    return TERSE_EINVAL;
}

/* Returns an exit code, or -1 to go on. */
static int read_options(int argc, char **argv, options *o) {
    int found;
    optind = 1;
    opterr = 0;
    while ((found = getopt_long(argc, argv, ":h", long_options, NULL)) != -1) {
        terse_status status = TERSE_OK;
        switch (found) {
        case 'p':
            o->pipeline = optarg;
            break;
        case 's':
            o->shape = optarg;
            break;
        case 'r':
            o->residual = optarg;
            break;
        case 'R':
            o->reference = optarg;
            break;
        case 'S':
            status = ts_cli_option_number(PROGRAM, "--seed", optarg, 0, UINT64_MAX, &o->seed);
            break;
        case 't':
            status = ts_cli_option_number(PROGRAM, "--step", optarg, 0, UINT64_MAX, &o->step);
            break;
        case 'e':
            status = ts_cli_option_number(PROGRAM, "--slice-elems", optarg, 1, UINT32_MAX, &o->slice_elems);
            break;
        case 'n':
            if (read_policy(optarg, &o->nonfinite) == TERSE_OK) break;
            return ts_cli_value_error(PROGRAM, "--nonfinite", optarg, "error, skip or zero");
        case 'h':
            print_help();
            return TS_EXIT_OK;
        case 'V':
            printf("terse %s\n", TS_VERSION);
            return TS_EXIT_OK;
        default:
            return ts_cli_option_error(PROGRAM, found, argv);
        }
        if (status != TERSE_OK) return TS_EXIT_CONFIG;
    }
    if (!o->pipeline) return ts_cli_usage_error(PROGRAM, "--pipeline is missing");
    if (argc - optind != 2) return ts_cli_usage_error(PROGRAM, "IN.f32 and OUT.tp are needed");
    o->in = argv[optind];
    o->out = argv[optind + 1];
    return -1;
}

/* "3,4" into the header, whose n is known. */
static terse_status read_shape(const char *text, ts_tp_header *header, ts_error *error) {
    uint64_t product = 1;
    if (!text) {
        header->ndim = 1;
        header->shape[0] = (int64_t)header->n;
        return TERSE_OK;
    }
    for (const char *at = text;;) {
        char number[16];
        uint64_t extent;
        size_t chars = strcspn(at, ",");
        bool fits = chars < sizeof number && header->ndim < TS_TP_DIMS;
        if (fits) snprintf(number, sizeof number, "%.*s", (int)chars, at);
        if (!fits || ts_cli_number(number, 0, UINT32_MAX, &extent) != TERSE_OK) {
            return ts_error_set(error, TERSE_EINVAL, "--shape %s: up to %d extents, as 3,4", text, TS_TP_DIMS);
        }
        header->shape[header->ndim++] = (int64_t)extent;
        product = product > UINT32_MAX ? product : product * extent;
        if (at[chars] == '\0') break;
        at += chars + 1;
    }
    if (product != header->n) {
        return ts_error_set(error, TERSE_EINVAL, "--shape %s: its product is not the %zu values of the file", text,
                            header->n);
    }
    return TERSE_OK;
}

/* The file that is read and rewritten: of residuals, or of what the receiver holds. */
static const char *kept_file(const options *o) { return o->reference ? o->reference : o->residual; }

/* Which of the two a pipeline has. */
static terse_status check_kept(const options *o, const ts_pipeline *pipeline, ts_error *error) {
    if (ts_pipeline_replaces(pipeline) && o->residual) {
        return ts_error_set(error, TERSE_EINVAL, "--residual: `%s` leaves none; allowed: --reference", pipeline->text);
    }
    if (!ts_pipeline_replaces(pipeline) && o->reference) {
        return ts_error_set(error, TERSE_EINVAL, "--reference: `%s` does not compare with one; allowed with exact, and here: "
                            "--residual", pipeline->text);
    }
    return TERSE_OK;
}

static terse_status check_files(const options *o, ts_error *error) {
    const ts_file_named files[] = {
        {"IN.f32", o->in}, {"OUT.tp", o->out}, {o->reference ? "--reference" : "--residual", kept_file(o)}};
    return ts_files_differ(files, sizeof files / sizeof files[0], error);
}

/* Zeros, or what the file holds. */
static terse_status read_kept(const options *o, size_t n, float **residual, ts_error *error) {
    size_t there = 0;
    const char *path = kept_file(o);
    terse_status status = path ? ts_file_read_f32(path, residual, &there, error) : TERSE_ENOTFOUND;
    if (status == TERSE_ENOTFOUND) {
        *residual = ts_mem_aligned(n, sizeof(float));
        return *residual ? TERSE_OK : ts_error_set(error, TERSE_ENOMEM, "out of memory");
    }
    TS_TRY(status);
    if (there != n) {
        return ts_error_set(error, TERSE_EINVAL, "%s: %zu values, but %s has %zu", path, there, o->in, n);
    }
    for (size_t i = 0; i < n && !o->reference; i++) {
        if (isfinite((*residual)[i])) continue;
        return ts_error_set(error, TERSE_ECORRUPT, "%s: value %zu is NaN or infinite", path, i);
    }
    return TERSE_OK;
}

static terse_status encode_slices(ts_encoder *encoder, ts_scratch *scratch, const ts_codec_spec *spec,
                                  ts_buffer *file) {
    ts_buffer *packet = NULL;
    TS_TRY(ts_buffer_create(4096, &packet));
    terse_status status = TERSE_OK;
    for (uint32_t slice = 0; status == TERSE_OK && slice < ts_codec_slices(spec); slice++) {
        size_t len = 0;
        status = ts_buffer_reserve(packet, ts_encoder_bound(encoder, scratch, slice));
        if (status == TERSE_OK) {
            status = ts_encoder_slice(encoder, scratch, slice, packet->data, packet->capacity, &len);
        }
        if (status == TERSE_OK) status = ts_tp_add(file, packet->data, len);
    }
    ts_buffer_unref(packet);
    return status;
}

static terse_status encode(const options *o, const ts_tp_header *header, const float *gradient, float *residual,
                           ts_buffer *file, ts_error *error) {
    ts_codec_spec spec = ts_tp_spec(header);
    ts_scratch *scratch = NULL;
    ts_encoder *encoder = NULL;
    ts_encode_report report = {0};
    ts_encode_input input = {.gradient = gradient,
                             .gradient_scale = 1,
                             .residual = residual,
                             .step = header->step,
                             .unbiased = !o->residual,
                             .nonfinite = o->nonfinite};
    terse_status status = ts_scratch_create(&scratch);
    if (status == TERSE_OK) status = ts_encoder_create(&spec, &encoder);
    if (status == TERSE_OK) status = ts_encoder_begin(encoder, scratch, &input, NULL);
    if (status == TERSE_OK) status = ts_tp_begin(header, file);
    if (status == TERSE_OK) status = encode_slices(encoder, scratch, &spec, file);
    if (encoder) ts_encoder_report(encoder, &report);
    if (status == TERSE_ENONFINITE) {
        (void)ts_error_set(error, status, "%s: %zu values are NaN or infinite, the first at index %zu", o->in,
                           report.nonfinite_count, report.nonfinite_first);
        goto out;
    }
    if (status == TERSE_OK) status = ts_tp_finish(file);
    if (status != TERSE_OK)
        (void)ts_error_set(error, status, "%s: %s", o->in, terse_strerror(status));
    else if (report.nonfinite_count > 0) {
        fprintf(stderr, "terse codec encode: %s: %zu values are NaN or infinite, the first at index %zu: %s\n", o->in,
                report.nonfinite_count, report.nonfinite_first,
                o->nonfinite == TS_NONFINITE_SKIP ? "the gradient is left out" : "they count as 0");
    }
    if (status == TERSE_OK && report.beyond > 0) {
        fprintf(stderr, "terse codec encode: %s: %zu values are beyond what %s can say: the rest of each is residual\n",
                o->in, report.beyond, spec.pipeline->quantise->info.name);
    }
out:
    ts_encoder_destroy(encoder);
    ts_scratch_destroy(scratch);
    return status;
}

/* Both aside first; the packet takes its place before the residual that no longer holds what it says. */
static terse_status write_files(const options *o, const ts_buffer *file, const float *residual, size_t n,
                                ts_error *error) {
    ts_file_output packet = {0}, rest = {0};
    terse_status status = ts_file_write(o->out, file->data, file->len, &packet, error);
    if (status == TERSE_OK && kept_file(o)) {
        status = ts_file_write(kept_file(o), residual, n * sizeof *residual, &rest, error);
    }
    if (status == TERSE_OK) status = ts_file_commit(&packet, error);
    if (status == TERSE_OK && kept_file(o)) status = ts_file_commit(&rest, error);
    ts_file_forget(&packet);
    ts_file_forget(&rest);
    return status;
}

int ts_codec_encode_command(int argc, char **argv) {
    options o = {.slice_elems = TS_TP_SLICE_ELEMS};
    ts_tp_header header = {0};
    ts_error error = {{0}};
    float *gradient = NULL, *residual = NULL;
    ts_buffer *file = NULL;
    int code = read_options(argc, argv, &o);
    if (code >= 0) return code;
    terse_status status = ts_pipeline_parse(o.pipeline, &header.pipeline, &error);
    if (status == TERSE_OK) status = check_kept(&o, &header.pipeline, &error);
    if (status == TERSE_OK) status = check_files(&o, &error);
    if (status == TERSE_OK) status = ts_file_read_f32(o.in, &gradient, &header.n, &error);
    header.seed = o.seed;
    header.step = o.step;
    if (status == TERSE_OK) status = read_shape(o.shape, &header, &error);
    header.slice_elems =
        ts_codec_cut_elems(&header.pipeline, header.shape, header.ndim, header.n, (size_t)o.slice_elems);
    if (status == TERSE_OK) status = read_kept(&o, header.n, &residual, &error);
    if (status == TERSE_OK) {
        status = ts_buffer_create(4096, &file);
        if (status != TERSE_OK) (void)ts_error_set(&error, status, "out of memory");
    }
    if (status == TERSE_OK) status = encode(&o, &header, gradient, residual, file, &error);
    if (status == TERSE_OK) status = write_files(&o, file, residual, header.n, &error);
    if (status != TERSE_OK) fprintf(stderr, "terse codec encode: %s\n", error.text);
    ts_buffer_unref(file);
    ts_mem_free(gradient);
    ts_mem_free(residual);
    if (status == TERSE_OK) return TS_EXIT_OK;
    return status == TERSE_EINVAL ? TS_EXIT_CONFIG : TS_EXIT_FAILED;
}
