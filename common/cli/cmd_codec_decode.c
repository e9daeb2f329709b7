/* SPDX-License-Identifier: Apache-2.0 */
/* terse codec decode: the values that a .tp file says, as a file of floats. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/cli/cmd_codec.h"
#include "common/config/config.h"

#define PROGRAM "terse codec decode"
#define LIMIT_ELEMS ((uint64_t)1 << 30)

static void print_help(void) {
    puts(
        "NAME\n"
        "  terse codec decode - decode a .tp file into a file of floats\n\n"
        "SYNOPSIS\n"
        "  terse codec decode [--reference R.f32] [--limit-elems N] IN.tp OUT.f32\n\n"
        "DESCRIPTION\n"
        "  Writes the tensor that IN.tp says as a flat little-endian float32 file; elements that were not sent are 0.\n"
        "  The new values of exact are put into the reference instead, which is read and not written.\n"
        "  The file is checked wholly (checksum, each packet's form) and written aside and renamed. IN.tp, OUT.f32 and\n"
        "  R.f32 are different files: two names of one (./, links) are refused.\n\n"
        "OPTIONS\n"
        "  --reference R.f32  of exact: what the receiver holds (as many values as the tensor has); zeros when not given\n"
        "  --limit-elems N    refuse files that declare more elements (default 1073741824)\n"
        "  --help, --version\n\n"
        "EXIT STATUS\n"
        "  0 done; 1 a file cannot be read or written, or IN.tp is damaged; 2 the command line is wrong\n\n"
         "EXAMPLE\n"
         "  terse codec encode --pipeline \"topk:0.01 | int8\" g.f32 g.tp\n"
         "  terse codec decode g.tp sent.f32");
}

/* One slice into values[elems], which are 0, or the reference. */
static terse_status decode_slice(ts_scratch *scratch, const ts_tp_header *header, uint32_t slice, const uint8_t *packet,
                                 size_t len, float *values) {
    ts_codec_spec spec = ts_tp_spec(header);
    ts_decoded decoded;
    TS_TRY(ts_decode(scratch, &spec, NULL, slice, header->step, packet, len, &decoded));
    if (decoded.dense) {
        memcpy(values, decoded.value, decoded.count * sizeof *values);
    } else {
        for (size_t i = 0; i < decoded.count; i++) values[decoded.index[i]] = decoded.value[i];
    }
    return TERSE_OK;
}

static terse_status decode(const ts_tp_header *header, ts_tp_reader *reader, float *values, ts_error *error) {
    ts_codec_spec spec = ts_tp_spec(header);
    ts_scratch *scratch = NULL;
    uint32_t slice = 0, slices = ts_codec_slices(&spec);
    terse_status status = ts_scratch_create(&scratch);
    for (; status == TERSE_OK && slice < slices; slice++) {
        const uint8_t *packet = NULL;
        size_t len = 0;
        status = ts_tp_next(reader, &packet, &len);
        if (status != TERSE_OK) break;
        status = decode_slice(scratch, header, slice, packet, len, values + ts_codec_slice_first(&spec, slice));
        if (status != TERSE_OK) break;
    }
    ts_scratch_destroy(scratch);
    if (status != TERSE_OK) return ts_error_set(error, status, "slice %u: %s", slice, terse_strerror(status));
    if (reader->at != reader->end) return ts_error_set(error, TERSE_ECORRUPT, "bytes behind the last slice");
    return TERSE_OK;
}

/* What the values are before anything is decoded. */
static terse_status start_values(const ts_tp_header *header, const char *reference, float **values, ts_error *error) {
    size_t there = 0;
    if (!reference) {
        *values = ts_mem_aligned(header->n, sizeof **values);
        return *values ? TERSE_OK : ts_error_set(error, TERSE_ENOMEM, "out of memory");
    }
    if (!ts_pipeline_replaces(&header->pipeline)) {
        return ts_error_set(error, TERSE_EINVAL, "--reference: `%s` does not compare with one; allowed with exact",
                            header->pipeline.text);
    }
    TS_TRY(ts_file_read_f32(reference, values, &there, error));
    if (there == header->n) return TERSE_OK;
    return ts_error_set(error, TERSE_EINVAL, "%s has %zu values, the tensor %zu", reference, there, header->n);
}

static terse_status run(const char *in, const char *reference, const char *to, size_t limit, ts_error *error) {
    uint8_t *bytes = NULL;
    float *values = NULL;
    size_t len;
    ts_tp_header header;
    ts_tp_reader reader;
    ts_file_output output = {0};
    ts_error why = {{0}};
    const ts_file_named files[] = {{"IN.tp", in}, {"OUT.f32", to}, {"--reference", reference}};
    TS_TRY(ts_files_differ(files, sizeof files / sizeof files[0], error));
    TS_TRY(ts_file_read(in, SIZE_MAX / 4, &bytes, &len, error));
    terse_status status = ts_tp_open(bytes, len, limit, &header, &reader, &why);
    if (status != TERSE_OK) goto out;
    status = start_values(&header, reference, &values, &why);
    if (status == TERSE_OK) status = decode(&header, &reader, values, &why);
out:
    if (status != TERSE_OK) (void)ts_error_set(error, status, "%s: %s", in, why.text);
    if (status == TERSE_OK) status = ts_file_write(to, values, header.n * sizeof *values, &output, error);
    if (status == TERSE_OK) status = ts_file_commit(&output, error);
    ts_file_forget(&output);
    ts_mem_free(values);
    ts_mem_free(bytes);
    return status;
}

int ts_codec_decode_command(int argc, char **argv) {
    static const struct option long_options[] = {{"limit-elems", required_argument, NULL, 'l'},
                                                 {"reference", required_argument, NULL, 'r'},
                                                 {"help", no_argument, NULL, 'h'},
                                                 {"version", no_argument, NULL, 'V'},
                                                 {NULL, 0, NULL, 0}};
    uint64_t limit = LIMIT_ELEMS;
    const char *reference = NULL;
    int found;
    optind = 1;
    opterr = 0;
    while ((found = getopt_long(argc, argv, ":h", long_options, NULL)) != -1) {
        switch (found) {
        case 'l':
            if (ts_cli_option_number(PROGRAM, "--limit-elems", optarg, 0, UINT32_MAX, &limit) == TERSE_OK) break;
            return TS_EXIT_CONFIG;
        case 'r':
            reference = optarg;
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
    }
    if (argc - optind != 2) return ts_cli_usage_error(PROGRAM, "IN.tp and OUT.f32 are needed");
    ts_error error = {{0}};
    terse_status status = run(argv[optind], reference, argv[optind + 1], (size_t)limit, &error);
    if (status == TERSE_OK) return TS_EXIT_OK;
    fprintf(stderr, "terse codec decode: %s\n", error.text);
    return status == TERSE_EINVAL ? TS_EXIT_CONFIG : TS_EXIT_FAILED;
}
