/* SPDX-License-Identifier: Apache-2.0 */
/* terse codec inspect: what a .tp file holds, as JSON. */
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>

#include "common/base/mem.h"
#include "common/cli/cmd_codec.h"
#include "common/codec/packet.h"
#include "common/config/config.h"

#define PROGRAM "terse codec inspect"

static void print_help(void) {
    puts("NAME\n"
         "  terse codec inspect - say what a .tp file holds, as JSON\n\n"
         "SYNOPSIS\n"
         "  terse codec inspect IN.tp\n\n"
         "DESCRIPTION\n"
         "  Checks the file wholly and prints one object:\n"
         "    version, pipeline, shape, elements, seed, step, slice_elems\n"
         "    values         values sent (all elements without a selector; with exact perhaps more than have changed)\n"
         "    bytes          of all packets; file_bytes of the file; dense_bytes of the tensor as float32\n"
         "    ratio          dense_bytes / bytes\n"
         "    bits_per_value 8 bytes / values\n"
         "    slices         for each slice: slice, first, elements, values, bytes, value_bytes, index_bytes,\n"
         "                   index_pack (the one that was used; null without indices)\n\n"
         "EXIT STATUS\n"
         "  0 done; 1 the file cannot be read or is damaged; 2 the command line is wrong");
}

/* One packet's row. Returns TERSE_OK, TERSE_ECORRUPT, TERSE_ENOMEM. */
static terse_status slice_row(ts_scratch *scratch, const ts_tp_header *header, uint32_t slice, const uint8_t *packet,
                              size_t len, size_t *values, json_t **row) {
    ts_codec_spec spec = ts_tp_spec(header);
    ts_decoded decoded;
    TS_TRY(ts_decode(scratch, &spec, NULL, slice, header->step, packet, len, &decoded));
    *values = decoded.count;
    ts_packet_parts parts = {0};
    const uint8_t *inner;
    size_t inner_len;
    ts_packet_slice view = ts_packet_slice_of(&spec, ts_scratch_kernels(scratch), slice, header->step);
    TS_TRY(ts_packet_unwrap(&view, scratch, packet, len, &inner, &inner_len));
    if (decoded.dense && !ts_pipeline_replaces(&header->pipeline))
        parts.values_len = inner_len;
    else
        TS_TRY(ts_packet_split(&view, inner, inner_len, &parts));
    *row = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s?}", "slice", (json_int_t)slice, "first",
                     (json_int_t)ts_codec_slice_first(&spec, slice), "elements",
                     (json_int_t)ts_codec_slice_elems(&spec, slice), "values", (json_int_t)decoded.count, "bytes",
                     (json_int_t)len, "value_bytes", (json_int_t)parts.values_len, "index_bytes",
                     (json_int_t)parts.indices_len, "index_pack", parts.index ? parts.index->info.name : NULL);
    return *row ? TERSE_OK : TERSE_ENOMEM;
}

static terse_status add_slices(const ts_tp_header *header, ts_tp_reader *reader, json_t *rows, size_t *bytes,
                               size_t *values, ts_error *error) {
    ts_codec_spec spec = ts_tp_spec(header);
    ts_scratch *scratch = NULL;
    terse_status status = ts_scratch_create(&scratch);
    uint32_t slice = 0;
    for (; status == TERSE_OK && slice < ts_codec_slices(&spec); slice++) {
        const uint8_t *packet;
        size_t len, count = 0;
        json_t *row = NULL;
        status = ts_tp_next(reader, &packet, &len);
        if (status == TERSE_OK) status = slice_row(scratch, header, slice, packet, len, &count, &row);
        if (status != TERSE_OK) break;
        if (json_array_append_new(rows, row) != 0) status = TERSE_ENOMEM;
        *bytes += len;
        *values += count;
    }
    ts_scratch_destroy(scratch);
    if (status != TERSE_OK) return ts_error_set(error, status, "slice %u: %s", slice, terse_strerror(status));
    if (reader->at != reader->end) return ts_error_set(error, TERSE_ECORRUPT, "bytes behind the last slice");
    return TERSE_OK;
}

static json_t *shape_of(const ts_tp_header *header) {
    json_t *shape = json_array();
    for (unsigned i = 0; shape && i < header->ndim; i++) json_array_append_new(shape, json_integer(header->shape[i]));
    return shape;
}

static terse_status describe(const ts_tp_header *header, ts_tp_reader *reader, size_t file_bytes, json_t **out,
                             ts_error *error) {
    json_t *rows = json_array();
    size_t bytes = 0, values = 0, dense = header->n * sizeof(float);
    if (!rows) return ts_error_set(error, TERSE_ENOMEM, "out of memory");
    terse_status status = add_slices(header, reader, rows, &bytes, &values, error);
    if (status != TERSE_OK) {
        json_decref(rows);
        return status;
    }
    /* Nothing sent has no ratio. */
    json_t *ratio = bytes ? json_real((double)dense / (double)bytes) : json_null();
    json_t *bits = values ? json_real(8.0 * (double)bytes / (double)values) : json_null();
    *out = json_pack("{s:i, s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "version",
                     (int)TS_TP_VERSION, "pipeline", header->pipeline.text, "shape", shape_of(header), "elements",
                     (json_int_t)header->n, "seed", (json_int_t)header->seed, "step", (json_int_t)header->step,
                     "slice_elems", (json_int_t)header->slice_elems, "values", (json_int_t)values, "bytes",
                     (json_int_t)bytes, "file_bytes", (json_int_t)file_bytes, "dense_bytes", (json_int_t)dense, "ratio",
                     ratio, "bits_per_value", bits, "slices", rows);
    return *out ? TERSE_OK : ts_error_set(error, TERSE_ENOMEM, "out of memory");
}

int ts_codec_inspect_command(int argc, char **argv) {
    static const struct option long_options[] = {
        {"help", no_argument, NULL, 'h'}, {"version", no_argument, NULL, 'V'}, {NULL, 0, NULL, 0}};
    int found;
    optind = 1;
    opterr = 0;
    while ((found = getopt_long(argc, argv, ":h", long_options, NULL)) != -1) {
        switch (found) {
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
    if (argc - optind != 1) return ts_cli_usage_error(PROGRAM, "one IN.tp is needed");
    const char *path = argv[optind];
    uint8_t *bytes = NULL;
    size_t len = 0;
    ts_error error = {{0}}, why = {{0}};
    ts_tp_header header;
    ts_tp_reader reader;
    json_t *object = NULL;
    terse_status status = ts_file_read(path, SIZE_MAX / 4, &bytes, &len, &error);
    if (status == TERSE_OK) {
        status = ts_tp_open(bytes, len, UINT32_MAX, &header, &reader, &why);
        if (status == TERSE_OK) status = describe(&header, &reader, len, &object, &why);
        if (status != TERSE_OK) (void)ts_error_set(&error, status, "%s: %s", path, why.text);
    }
    if (status == TERSE_OK) {
        bool complete = json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0;
        putchar('\n'); /* whether it went out is seen at the program's end */
        if (!complete && !ferror(stdout)) status = ts_error_set(&error, TERSE_ENOMEM, "out of memory");
    }
    json_decref(object);
    ts_mem_free(bytes);
    if (status == TERSE_OK) return TS_EXIT_OK;
    fprintf(stderr, "terse codec inspect: %s\n", error.text);
    return TS_EXIT_FAILED;
}
