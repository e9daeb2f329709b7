/* SPDX-License-Identifier: Apache-2.0 */
/* terse bench codec: options in, table or JSON out. */
#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/cli/cmd_bench.h"
#include "common/cli/cmd_codec.h"
#include "common/config/config.h"

#define PROGRAM "terse bench codec"
#define MAX_PIPELINES 64

/* One of each family and the usual stacks; those with a stage that this build lacks are left out. */
static const char *const families[] = {"fp32",
                                       "fp16",
                                       "bf16",
                                       "int8",
                                       "int4",
                                       "linear:4",
                                       "log:8",
                                       "qsgd:4",
                                       "natural",
                                       "ternary",
                                       "sign",
                                       "topk:0.1 | fp16 | best",
                                       "topk:0.01 | fp32 | raw32",
                                       "topk:0.01 | int8 | rice",
                                       "topk:0.01 | int4 | rice",
                                       "topk:0.001 | int8 | rice",
                                       "topk:0.001 | int4 | rice",
                                       "adaptive:0.01 | int8 | rice",
                                       "blocktopk:0.01:256 | int8",
                                       "randomk:0.01 | int8",
                                       "bernoulli:0.01 | int8 | rice",
                                       "magnitude:0.01 | int8 | rice",
                                       "threshold:0.01 | int8 | rice",
                                       "powersgd:1",
                                       "delta:64 | linear:4",
                                       "fp32 | huffman",
                                       "fp32 | zstd:1",
                                       "exact | rice",
                                       "svd:1",
                                       "tucker:2"};

typedef struct {
    const char *pipelines[MAX_PIPELINES], *input;
    unsigned pipeline_count;
    uint64_t n, runs, seed;
    int json, ladder;
} options;

static void print_help(void) {
    puts("NAME\n"
         "  terse bench codec - speed and size of pipelines on this machine, beside the bare sweep e += g\n\n"
         "SYNOPSIS\n"
         "  terse bench codec [--pipeline P]... [-n ELEMENTS | --input F.f32] [--runs N] [--seed N] [--json]\n"
         "  terse bench codec --ladder [--json]\n\n"
         "DESCRIPTION\n"
         "  One core encodes and decode-adds one tensor with error feedback. Without --pipeline one row for each\n"
         "  family is measured. The input is 8 different long-tailed gradients in rotation, the residual starts near\n"
         "  its steady state and is warmed up for 16 steps, and in the middle of the runs the gradients' level jumps\n"
         "  by 4. Transforms work on the 161 tensors of ResNet-50 (with -n or --input: on one square matrix, tucker\n"
         "  on one cube), all others on one vector. Each run times, on the same buffers and one after the other, the\n"
         "  sweep e += g at each SIMD level (the fastest is the yardstick), the encoding and the decode-add, and\n"
         "  checks that sent + residual is gradient + old residual. Times are medians, and so are the ratios to the\n"
         "  sweep of the same run.\n"
         "  The pull pipeline exact gets parameters of which one element in 100 has changed, and bits are compared.\n\n"
         "OPTIONS\n"
         "  --pipeline P   may be repeated\n"
         "  -n ELEMENTS    floats in the tensor (default 25557032)\n"
         "  --input F.f32  a gradient of your own, flat little-endian float32; the 8 inputs are variations of it\n"
         "                 that keep its positions and its tail. One with values above 2^60 is divided by a power of 2\n"
         "                 (standard error says so), since gradients that jump by 4 and residuals must stay finite\n"
         "  --runs N       10 ... 1000 (default 20)\n"
         "  --seed N       of the inputs (default 1)\n"
         "  --ladder       sizes alone: a gradient of 110,000,000 parameters, from dense down to its top 0.1 %\n"
         "  --json         an object for one --pipeline, else an array of objects\n"
         "  --help, --version\n\n"
         "JSON\n"
         "  pipeline, n, threads (1), simd, sweep_simd, runs\n"
         "  values                     sent a step\n"
         "  bytes, ratio               of a step's packets, scales and indices included; 4 n / bytes\n"
         "  relative_error             |g - C(g)| / |g| of one gradient without residual\n"
         "  encode_s, decode_add_s, sweep_s, encode_over_sweep, decode_add_over_sweep\n"
         "  encode_gbps, decode_add_gbps   10^9 bytes of float32 tensor a second\n"
         "  encode_min_s, encode_max_s, encode_spread (between the quartiles, relative to the median) and so on for\n"
         "                             decode_add and sweep\n"
         "  encode_jump_s              the encoding right after the jump of level\n"
         "                             (exact has neither momentum nor a mapped residual: 0)\n"
         "  encode_momentum_s          with momentum correction and masking (one more array in the sweep)\n"
         "  encode_mapped_s            with the residual in a shared mapping, such that a kill loses nothing\n"
         "  clip_norm_s                the norm that clipping needs, one pass; each of these also as _over_sweep\n"
         "  conservation_error         largest relative difference of sent + residual and what entered\n\n"
         "EXIT STATUS\n"
         "  0 done; 1 failed, or decoding did not give what was encoded; 2 the command line or a pipeline is wrong\n\n"
         "EXAMPLE\n"
         "  terse bench codec                                             all families\n"
         "  terse bench codec --pipeline \"topk:0.001 | int8 | rice\" --pipeline sign --input my_gradient.f32");
}

static int usage_error(const char *what) { return ts_cli_usage_error(PROGRAM, what); }

/* Returns an exit code, or -1 to go on. */
static int read_options(int argc, char **argv, options *o) {
    const struct option long_options[] = {{"pipeline", required_argument, NULL, 'p'},
                                          {"input", required_argument, NULL, 'i'},
                                          {"runs", required_argument, NULL, 'r'},
                                          {"seed", required_argument, NULL, 's'},
                                          {"json", no_argument, &o->json, 1},
                                          {"ladder", no_argument, &o->ladder, 1},
                                          {"help", no_argument, NULL, 'h'},
                                          {"version", no_argument, NULL, 'V'},
                                          {NULL, 0, NULL, 0}};
    int found;
    optind = 1;
    opterr = 0;
    while ((found = getopt_long(argc, argv, ":n:h", long_options, NULL)) != -1) {
        terse_status status = TERSE_OK;
        switch (found) {
        case 0:
            break;
        case 'p':
            if (o->pipeline_count == MAX_PIPELINES) return usage_error("too many pipelines");
            o->pipelines[o->pipeline_count++] = optarg;
            break;
        case 'n':
            status = ts_cli_option_number(PROGRAM, "-n", optarg, 1, UINT32_MAX, &o->n);
            break;
        case 'i':
            o->input = optarg;
            break;
        case 'r':
            status = ts_cli_option_number(PROGRAM, "--runs", optarg, TS_BENCH_MIN_RUNS, TS_BENCH_MAX_RUNS, &o->runs);
            break;
        case 's':
            status = ts_cli_option_number(PROGRAM, "--seed", optarg, 0, UINT64_MAX, &o->seed);
            break;
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
    if (optind < argc) {
        fprintf(stderr, PROGRAM ": %s: only options are taken\n", argv[optind]);
        return TS_EXIT_CONFIG;
    }
    return -1;
}

static json_t *object_of(const char *pipeline, const ts_bench_result *r) {
    double dense = 4.0 * (double)r->n, sweep = r->sweep.median_s;
    json_t *object =
        json_pack("{s:s, s:I, s:i, s:s, s:s, s:i, s:I, s:I, s:f, s:f}", "pipeline", pipeline, "n", (json_int_t)r->n,
                  "threads", 1, "simd", ts_simd_name(r->simd), "sweep_simd", ts_simd_name(r->sweep_simd), "runs",
                  (int)r->runs, "values", (json_int_t)r->values, "bytes", (json_int_t)r->bytes, "ratio",
                  r->bytes > 0 ? dense / r->bytes : 0, "relative_error", r->relative_error);
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"encode_s", r->encode.median_s},
                   {"decode_add_s", r->decode_add.median_s},
                   {"sweep_s", sweep},
                   {"encode_over_sweep", r->encode_ratio},
                   {"decode_add_over_sweep", r->decode_add_ratio},
                   {"encode_gbps", dense / r->encode.median_s / 1e9},
                   {"decode_add_gbps", dense / r->decode_add.median_s / 1e9},
                   {"encode_spread", r->encode.spread},
                   {"decode_add_spread", r->decode_add.spread},
                   {"sweep_spread", r->sweep.spread},
                   {"encode_min_s", r->encode.min_s},
                   {"encode_max_s", r->encode.max_s},
                   {"decode_add_min_s", r->decode_add.min_s},
                   {"decode_add_max_s", r->decode_add.max_s},
                   {"sweep_min_s", r->sweep.min_s},
                   {"sweep_max_s", r->sweep.max_s},
                   {"encode_jump_s", r->jump_s},
                   {"encode_momentum_s", r->momentum.median_s},
                   {"encode_momentum_over_sweep", r->momentum_ratio},
                   {"encode_mapped_s", r->mapped.median_s},
                   {"encode_mapped_over_sweep", r->mapped_ratio},
                   {"clip_norm_s", r->norm.median_s},
                   {"clip_norm_over_sweep", r->norm.median_s / sweep},
                   {"conservation_error", r->conservation_error}};
    for (size_t i = 0; object && i < sizeof numbers / sizeof numbers[0]; i++) {
        json_object_set_new(object, numbers[i].key, json_real(numbers[i].value));
    }
    return object;
}

static void print_row(const char *pipeline, const ts_bench_result *r) {
    double dense = 4.0 * (double)r->n, sweep = r->sweep.median_s;
    printf("%-30s %11.0f %8.1f %8.4f %8.2f %8.2f %6.2f %6.2f %6.2f %6.2f %6.2f %5.0f %%\n", pipeline, r->bytes,
           r->bytes > 0 ? dense / r->bytes : 0, r->relative_error, dense / r->encode.median_s / 1e9,
           dense / r->decode_add.median_s / 1e9, r->encode_ratio, r->decode_add_ratio,
           r->momentum_ratio, r->mapped_ratio, r->norm.median_s / sweep, 100 * r->encode.spread);
    fflush(stdout);
}

static void print_heading(const options *o, size_t n) {
    printf("%zu floats%s%s, one thread, %s; times over that of the sweep e += g in the same run\n", n,
           o->input ? " of " : "", o->input ? o->input : "", ts_simd_name(ts_cpu_simd()));
    printf("%-30s %11s %8s %8s %8s %8s %6s %6s %6s %6s %6s %7s\n", "pipeline", "bytes", "ratio", "error", "enc GB/s",
           "dec GB/s", "encode", "decode", "moment", "mapped", "norm", "spread");
}

/* All pipelines are checked before the first is measured. Returns an exit code. */
static int parse_all(const options *o, ts_pipeline *pipelines, unsigned *count) {
    size_t wanted = o->pipeline_count ? o->pipeline_count : sizeof families / sizeof families[0];
    *count = 0;
    for (size_t i = 0; i < wanted; i++) {
        ts_error error;
        const char *text = o->pipeline_count ? o->pipelines[i] : families[i];
        if (ts_pipeline_parse(text, &pipelines[*count], &error) == TERSE_OK) {
            (*count)++;
        } else if (o->pipeline_count) {
            fprintf(stderr, "terse bench codec: %s\n", error.text);
            return TS_EXIT_CONFIG;
        }
    }
    return TS_EXIT_OK;
}

static terse_status measure(const options *o, const ts_bench_input *input, const ts_pipeline *pipelines, unsigned count,
                            json_t *rows) {
    if (!o->json) print_heading(o, input->n);
    for (unsigned i = 0; i < count; i++) {
        ts_bench_result result;
        terse_status status = ts_bench_pipeline(input, &pipelines[i], (unsigned)o->runs, &result);
        if (status != TERSE_OK) {
            fprintf(stderr, "terse bench codec: %s: %s\n", pipelines[i].text, terse_strerror(status));
            return status;
        }
        if (o->json)
            TS_REQUIRE(json_array_append_new(rows, object_of(pipelines[i].text, &result)) == 0, TERSE_ENOMEM);
        else
            print_row(pipelines[i].text, &result);
    }
    if (!o->json) return TERSE_OK;
    json_t *shown = o->pipeline_count == 1 ? json_array_get(rows, 0) : rows;
    TS_REQUIRE(json_dumpf(shown, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0, TERSE_EIO);
    putchar('\n'); /* whether it went out is seen at the program's end */
    return TERSE_OK;
}

/* Jumps, momentum, residuals of 1 / ratio steps, and their squares stay finite below that. */
static void keep_finite(const char *path, float *base, size_t n) {
    const ts_kernels *kernels = ts_kernels_get(ts_cpu_simd());
    uint32_t bits = kernels->max_abs(base, n);
    float largest;
    int exponent;
    memcpy(&largest, &bits, sizeof largest);
    if (!(largest > 0x1p60f)) return;
    (void)frexpf(largest, &exponent);
    kernels->scale(base, ldexpf(1, -exponent), n);
    fprintf(stderr, "terse bench codec: %s: holds values up to %g: all are divided by 2^%d, so that what is measured stays finite\n",
            path, (double)largest, exponent);
}

int ts_bench_codec_command(int argc, char **argv) {
    options o = {.n = TS_BENCH_ELEMS, .runs = TS_BENCH_RUNS, .seed = 1};
    ts_pipeline pipelines[MAX_PIPELINES];
    ts_bench_input input = {0};
    ts_error error = {{0}};
    float *base = NULL;
    unsigned count;
    int code = read_options(argc, argv, &o);
    if (code >= 0) return code;
    if (o.ladder) return ts_bench_ladder(o.seed, o.json);
    code = parse_all(&o, pipelines, &count);
    if (code != TS_EXIT_OK) return code;
    size_t n = (size_t)o.n;
    if (o.input && ts_file_read_f32(o.input, &base, &n, &error) != TERSE_OK) {
        fprintf(stderr, "terse bench codec: %s\n", error.text);
        return TS_EXIT_FAILED;
    }
    size_t first = 0, bad = base ? ts_kernels_get(ts_cpu_simd())->nonfinite(base, n, &first) : 0;
    terse_status status = n > 0 && bad == 0 ? TERSE_OK : TERSE_EINVAL;
    if (n == 0) fprintf(stderr, "terse bench codec: %s: holds no value\n", o.input);
    if (bad > 0) {
        fprintf(stderr, "terse bench codec: %s: %zu values are NaN or infinite, the first at index %zu\n", o.input, bad,
                first);
    }
    if (status == TERSE_OK && base) keep_finite(o.input, base, n);
    json_t *rows = json_array();
    if (status == TERSE_OK) status = rows ? ts_bench_input_create(n, base, o.seed, &input) : TERSE_ENOMEM;
    ts_mem_free(base);
    if (status == TERSE_ENOMEM) fprintf(stderr, "terse bench codec: out of memory\n");
    if (status == TERSE_OK) status = measure(&o, &input, pipelines, count, rows);
    json_decref(rows);
    ts_bench_input_destroy(&input);
    return status == TERSE_OK ? TS_EXIT_OK : TS_EXIT_FAILED;
}
