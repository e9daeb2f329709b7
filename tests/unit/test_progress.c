/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/unit.h"
#include "worker/trainer/human.h"
#include "worker/trainer/options.h"
#include "worker/trainer/progress.h"
#include "worker/trainer/summary.h"

#define SECOND 1000000u

static const ts_progress_plan plan = {.model = "mlp",
                                      .parameters = 535818,
                                      .workers = 4,
                                      .servers = 2,
                                      .total_steps = 1880,
                                      .steps_per_epoch = 235,
                                      .samples_per_step = 256};

static char *text;
static size_t text_len;
static FILE *out;

static void open_stream(void) { out = open_memstream(&text, &text_len); }
static void close_stream(void) {
    fclose(out);
    free(text);
}

static void shows(const char *words) {
    fflush(out);
    ck_assert_msg(strstr(text, words) != NULL, "\"%s\" is not in:\n%s", words, text);
}

START_TEST(files_get_plain_lines_every_few_seconds) {
    ts_progress progress;
    ts_progress_start(&progress, &plan, (ts_terminal){.width = 80}, out, 0);
    shows("training starts: mlp, 535,818 parameters, 4 workers, 2 servers, 1,880 steps (235 an epoch)\n");
    ck_assert(!ts_progress_step(&progress, 1, 2.5, SECOND));
    ck_assert(!ts_progress_step(&progress, 100, 2.5, 4 * SECOND));
    ck_assert(ts_progress_step(&progress, 200, 2.5, 5 * SECOND));
    ts_progress_show(&progress, 200 * 535818u * 8u / 312u, 5 * SECOND);
    shows("epoch 1/8  step 200/1880  loss 2.5000  10,240 samples/s  ratio 312x  ETA 0:42\n");
    ck_assert(!ts_progress_step(&progress, 235, 2.5, 6 * SECOND));
    ts_progress_epoch(&progress, 1.25, 0.8712, 0, 6 * SECOND);
    shows("epoch 1/8  step 235/1880  mean loss 1.2500  test accuracy 87.12 %");
    shows("took 6.0 s, 0:06 in all\n");
    ck_assert(ts_progress_step(&progress, 236, 0.5, 12 * SECOND));
    ts_progress_show(&progress, 0, 12 * SECOND);
    shows("epoch 2/8  step 236/1880  loss 2.4000  accuracy 87.12 %");
    ts_progress_clear(&progress);
    ck_assert_ptr_null(strchr(text, '\x1b'));
    ck_assert_ptr_null(strchr(text, '\r'));
}
END_TEST

START_TEST(terminals_get_one_live_line_that_fits) {
    ts_progress progress;
    ts_progress_start(&progress, &plan, (ts_terminal){.live = true, .width = 40}, out, 0);
    ck_assert(ts_progress_step(&progress, 10, 1, SECOND / 5));
    ts_progress_show(&progress, 0, SECOND / 5);
    shows("\r\x1b[K" "epoch 1/8  step 10/1880  loss 1.0000  1");
    ck_assert_ptr_eq(strstr(text, "loss 1.0000  1") + strlen("loss 1.0000  1"), text + text_len);
    ts_progress_epoch(&progress, 1, -1, 0, SECOND);
    shows("\r\x1b[K" "epoch 1/8  step 10/1880  mean loss 1.0000");
    ck_assert_ptr_null(strstr(text, "accuracy"));
    ck_assert_ptr_null(strstr(text, "\x1b[1m"));
    progress.terminal.colour = true;
    ts_progress_epoch(&progress, 1, -1, 0, SECOND);
    shows("\x1b[1mepoch");
}
END_TEST

START_TEST(models_without_epochs_show_steps_alone) {
    ts_progress progress;
    ts_progress_plan endless = plan;
    endless.steps_per_epoch = 0;
    ts_progress_start(&progress, &endless, (ts_terminal){.width = 80}, out, 0);
    ck_assert(ts_progress_step(&progress, 10, 0, 9 * SECOND));
    ts_progress_show(&progress, 0, 9 * SECOND);
    shows("\nstep 10/1880  loss");
}
END_TEST

START_TEST(numbers_read_well) {
    char a[TS_HUMAN_CHARS];
    ck_assert_str_eq(ts_human_count(0, a), "0");
    ck_assert_str_eq(ts_human_count(999, a), "999");
    ck_assert_str_eq(ts_human_count(1000, a), "1,000");
    ck_assert_str_eq(ts_human_count(UINT64_MAX, a), "18,446,744,073,709,551,615");
    ck_assert_str_eq(ts_human_bytes(812, a), "812 B");
    ck_assert_str_eq(ts_human_bytes(3141592, a), "3.14 MB");
    ck_assert_str_eq(ts_human_bytes(999999, a), "1.00 MB");
    ck_assert_str_eq(ts_human_bytes(32.2e9, a), "32.2 GB");
    ck_assert_str_eq(ts_human_times(8.123, a), "8.12x");
    ck_assert_str_eq(ts_human_times(312.4, a), "312x");
    ck_assert_str_eq(ts_human_times(1234.5, a), "1,235x");
    ck_assert_str_eq(ts_human_clock(42.3, a), "0:42");
    ck_assert_str_eq(ts_human_clock(3723, a), "1:02:03");
}
END_TEST

START_TEST(the_table_tells_what_was_sent_against_dense) {
    const ts_summary figures = {.test_accuracy = 0.8875, .train_loss = 0.25, .steps = 1000, .workers = 1, .servers = 2,
                                .parameters = 1000, .push_bytes = 10000, .pull_bytes = 30000, .steady_steps = 500,
                                .steady_bytes = 4000, .parameters_xxh3 = "0123456789abcdef"};
    ts_summary_print(&figures, true, out);
    fflush(out);
    ck_assert_ptr_null(strstr(text, "  job "));
    shows("88.75 %");
    shows("1,000 steps, 1 worker, 2 servers");
    shows("10.0 kB        4.00 MB           400x");
    shows("40.0 kB        8.00 MB           200x");
    shows("4.00 kB        4.00 MB         1,000x");
    shows("0123456789abcdef");
    ts_summary of_job = figures;
    of_job.job = "large";
    ts_summary_print(&of_job, true, out);
    shows("  job                     large\n");
}
END_TEST

START_TEST(the_summary_names_its_job) {
    const struct { const char *name, *line; } cases[] = {
        {"large", "\"job\": \"large\""}, {"", "\"job\": null"}, {NULL, "\"job\": null"}};
    char path[] = "/tmp/terse-summary-XXXXXX", read[4096];
    int fd = mkstemp(path);
    ts_error error;
    ck_assert_int_ge(fd, 0);
    close(fd);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const ts_summary summary = {.job = cases[c].name, .parameters_xxh3 = "0123456789abcdef"};
        ck_assert_ok(ts_summary_write(&summary, path, &error));
        FILE *file = fopen(path, "r");
        ck_assert_ptr_nonnull(file);
        read[fread(read, 1, sizeof read - 1, file)] = '\0';
        fclose(file);
        ck_assert_ptr_nonnull(strstr(read, cases[c].line));
    }
    unlink(path);
}
END_TEST

START_TEST(the_command_line_is_split_between_trainer_and_library) {
    char *words[] = {"terse-worker", "a.yaml", "--set", "training.epochs=2", "--summary", "s.json", "--plugin=p.so",
                     "--set", "--save", NULL};
    ts_worker_options options;
    ts_error error;
    ck_assert_ok(ts_worker_options_read(9, words, &options, &error));
    ck_assert_str_eq(options.summary, "s.json");
    ck_assert_ptr_null(options.save); /* it stands behind --set */
    ck_assert_str_eq(options.shared.config, "a.yaml");
    ck_assert_uint_eq(options.shared.override_count, 3);
    ck_assert_str_eq(options.shared.overrides[0], "worker.plugin=p.so");
    ck_assert_str_eq(options.shared.overrides[2], "--save");
    ck_assert_int_eq(options.word_count, 8);
    ck_assert_str_eq(options.words[3], "a.yaml");
    ts_worker_options_free(&options);
    char *unknown[] = {"terse-worker", "a.yaml", "--fast", NULL}, *none[] = {"terse-worker", NULL},
         *missing[] = {"terse-worker", "a.yaml", "--save", NULL};
    ck_assert_status(ts_worker_options_read(3, unknown, &options, &error), TERSE_EINVAL);
    ck_assert_ptr_nonnull(strstr(error.text, "--fast"));
    ck_assert_status(ts_worker_options_read(1, none, &options, &error), TERSE_EINVAL);
    ck_assert_status(ts_worker_options_read(3, missing, &options, &error), TERSE_EINVAL);
    ck_assert_ptr_nonnull(strstr(error.text, "--save needs"));
    ts_worker_options_help("terse-worker", out);
    shows("  cnn ");
}
END_TEST

TCase *test_progress(void);
TCase *test_progress(void) {
    TCase *tests = tcase_create("progress");
    tcase_add_checked_fixture(tests, open_stream, close_stream);
    tcase_add_test(tests, the_summary_names_its_job);
    tcase_add_test(tests, files_get_plain_lines_every_few_seconds);
    tcase_add_test(tests, terminals_get_one_live_line_that_fits);
    tcase_add_test(tests, models_without_epochs_show_steps_alone);
    tcase_add_test(tests, numbers_read_well);
    tcase_add_test(tests, the_table_tells_what_was_sent_against_dense);
    tcase_add_test(tests, the_command_line_is_split_between_trainer_and_library);
    return tests;
}
