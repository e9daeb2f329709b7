/* SPDX-License-Identifier: Apache-2.0 */
#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/random.h"
#include "tests/unit/unit.h"
#include "worker/models/initial.h"
#include "worker/models/loss.h"
#include "worker/models/model_list.h"
#include "worker/models/model_registry.h"
#include "worker/models/network.h"

#define DATA_DIR "/usr/share/datasets/fashion-mnist"
#define BATCH 6
#define CLASSES 4

static uint8_t labels[BATCH] = {0, 3, 1, 2, 2, 0};

/* Mean loss of a network whose input is in place. */
static double loss_of(ts_network *network) {
    float gradient[BATCH * CLASSES];
    const float *logits = ts_network_forward(network, NULL, BATCH);
    return ts_loss_softmax(logits, labels, BATCH, CLASSES, 1.0f / BATCH, gradient) / BATCH;
}

/* The same input for every network. */
static void fill_input(ts_network *network, size_t n) {
    ts_random random = ts_random_start(99);
    for (size_t i = 0; i < n; i++) ts_network_input(network)[i] = ts_random_normal(&random);
}

/* (loss(p + e·d) − loss(p − e·d)) / 2e for one tensor. */
static double slope(ts_network *network, size_t tensor, const float *direction, size_t n, double e) {
    float *param = network->tensors[tensor].param, *kept = malloc(n * sizeof *kept);
    memcpy(kept, param, n * sizeof *kept);
    for (size_t i = 0; i < n; i++) param[i] = (float)((double)kept[i] + e * (double)direction[i]);
    double above = loss_of(network);
    for (size_t i = 0; i < n; i++) param[i] = (float)((double)kept[i] - e * (double)direction[i]);
    double below = loss_of(network);
    memcpy(param, kept, n * sizeof *kept);
    free(kept);
    return (above - below) / (2 * e);
}

/* The gradient of every tensor against finite differences: along itself, along a random direction, and element by
 * element where it is largest. */
static void check_gradients(const ts_layer_spec *specs, unsigned count, ts_extent input) {
    ts_network *network;
    ck_assert_ok(ts_network_create(specs, count, input, BATCH, BATCH, 5, &network, NULL));
    const size_t in_n = BATCH * ts_extent_elems(input);
    fill_input(network, in_n);
    for (size_t t = 0; t < network->tensor_count; t++) {
        const terse_model_tensor *tensor = &network->tensors[t];
        size_t n = ts_model_tensor_elems(tensor);
        ts_random random = ts_random_start(t + 1);
        if (t % 2) /* biases that are not zero */
            for (size_t i = 0; i < n; i++) tensor->param[i] = 0.1f * ts_random_normal(&random);
        float *logits = ts_network_forward(network, NULL, BATCH);
        (void)ts_loss_softmax(logits, labels, BATCH, CLASSES, 1.0f / BATCH, logits);
        ts_network_backward(network, logits, BATCH);
        float *gradient = malloc(n * sizeof *gradient), *direction = calloc(n, sizeof *direction);
        memcpy(gradient, tensor->gradient, n * sizeof *gradient);
        double norm = 0, dot = 0, length = 0;
        size_t top = 0;
        for (size_t i = 0; i < n; i++) {
            direction[i] = ts_random_normal(&random);
            norm += (double)gradient[i] * (double)gradient[i];
            dot += (double)gradient[i] * (double)direction[i];
            length += (double)direction[i] * (double)direction[i];
            if (fabsf(gradient[i]) > fabsf(gradient[top])) top = i;
        }
        norm = sqrt(norm), length = sqrt(length);
        ck_assert_msg(norm > 1e-4, "%s: no gradient", tensor->name);
        for (size_t i = 0; i < n; i++) direction[i] /= (float)length;
        double measured = slope(network, t, direction, n, 3e-4);
        ck_assert_msg(fabs(measured - dot / length) < 0.02 * norm, "%s: slope %g, gradient says %g (norm %g)",
                      tensor->name, measured, dot / length, norm);
        for (size_t i = 0; i < n; i++) direction[i] = gradient[i] / (float)norm;
        measured = slope(network, t, direction, n, 3e-4);
        ck_assert_msg(fabs(measured - norm) < 0.02 * norm, "%s: slope %g along a gradient of norm %g", tensor->name,
                      measured, norm);
        memset(direction, 0, n * sizeof *direction);
        direction[top] = 1;
        measured = slope(network, t, direction, n, 3e-4);
        ck_assert_msg(fabs(measured - (double)gradient[top]) < 0.02 * fabs((double)gradient[top]),
                      "%s[%zu]: slope %g, gradient %g", tensor->name, top, measured, (double)gradient[top]);
        free(gradient);
        free(direction);
    }
    /* An empty batch leaves zeros, not the last batch's gradients. */
    ts_network_backward(network, ts_network_forward(network, NULL, 0), 0);
    for (size_t t = 0; t < network->tensor_count; t++)
        for (size_t i = 0; i < ts_model_tensor_elems(&network->tensors[t]); i++)
            ck_assert(network->tensors[t].gradient[i] == 0);
    ts_network_destroy(network);
}

START_TEST(dense_gradients_are_the_loss_slopes) {
    const ts_layer_spec specs[] = {{&ts_layer_dense, "a", 13, 0}, {&ts_layer_relu, NULL, 0, 0},
                                   {&ts_layer_dense, "b", 9, 0}, {&ts_layer_relu, NULL, 0, 0},
                                   {&ts_layer_dense, "c", CLASSES, 0}};
    check_gradients(specs, 1 + 4, (ts_extent){1, 4, 5});
    check_gradients(specs + 4, 1, (ts_extent){1, 4, 5});
}
END_TEST

START_TEST(convolution_gradients_are_the_loss_slopes) {
    const ts_layer_spec specs[] = {{&ts_layer_conv, "a", 3, 3},  {&ts_layer_relu, NULL, 0, 0},
                                   {&ts_layer_pool, NULL, 0, 2}, {&ts_layer_conv, "b", 5, 2},
                                   {&ts_layer_relu, NULL, 0, 0}, {&ts_layer_dense, "c", CLASSES, 0}};
    check_gradients(specs, 6, (ts_extent){2, 10, 8});
    const ts_layer_spec pooled[] = {{&ts_layer_dense, "a", 12, 0}, {&ts_layer_dense, "b", CLASSES, 0}};
    check_gradients(pooled, 2, (ts_extent){3, 2, 2});
}
END_TEST

START_TEST(convolution_computes_what_its_formula_says) {
    const ts_layer_spec specs[] = {{&ts_layer_conv, "a", 2, 2}, {&ts_layer_pool, NULL, 0, 2}};
    ts_network *network;
    ck_assert_ok(ts_network_create(specs, 2, (ts_extent){2, 3, 3}, 1, 1, 3, &network, NULL));
    float *in = ts_network_input(network);
    for (int i = 0; i < 18; i++) in[i] = (float)((i * 7) % 5) - 2.0f;
    const float *weight = network->tensors[0].param;
    network->tensors[1].param[1] = 0.25f;
    ck_assert_int_eq(network->tensors[0].ndim, 4);
    float expected[2] = {-1e9f, -1e9f};
    for (int o = 0; o < 2; o++)
        for (int r = 0; r < 2; r++)
            for (int c = 0; c < 2; c++) {
                float sum = network->tensors[1].param[o];
                for (int ch = 0; ch < 2; ch++)
                    for (int y = 0; y < 2; y++)
                        for (int x = 0; x < 2; x++)
                            sum += weight[((o * 2 + ch) * 2 + y) * 2 + x] * in[(ch * 3 + r + y) * 3 + c + x];
                if (sum > expected[o]) expected[o] = sum;
            }
    const float *out = ts_network_forward(network, NULL, 1);
    ck_assert_float_eq_tol(out[0], expected[0], 1e-5f);
    ck_assert_float_eq_tol(out[1], expected[1], 1e-5f);
    ts_network_destroy(network);
}
END_TEST

START_TEST(layers_that_do_not_fit_are_refused) {
    ts_network *network = NULL;
    ts_error error;
    const ts_layer_spec pool[] = {{&ts_layer_pool, NULL, 0, 2}}, conv[] = {{&ts_layer_conv, "a", 3, 9}};
    ck_assert_status(ts_network_create(pool, 1, (ts_extent){1, 5, 4}, 1, 1, 1, &network, &error), TERSE_EINVAL);
    ck_assert_ptr_nonnull(strstr(error.text, "layer 0 (pool)"));
    ck_assert_status(ts_network_create(conv, 1, (ts_extent){1, 5, 4}, 1, 1, 1, &network, &error), TERSE_EINVAL);
    ck_assert_ptr_null(network);
}
END_TEST

START_TEST(the_loss_is_stable_and_right) {
    const float logits[] = {1000, 0, -1000, 0, 0, 0};
    const uint8_t wanted[] = {1, 2};
    float gradient[6];
    double loss = ts_loss_softmax(logits, wanted, 2, 3, 1, gradient);
    ck_assert_double_eq_tol(loss, 1000 + log(3), 1e-9);
    ck_assert_float_eq_tol(gradient[0], 1, 1e-6f);
    ck_assert_float_eq_tol(gradient[1], -1, 1e-6f);
    ck_assert_float_eq_tol(gradient[5], 1.0f / 3 - 1, 1e-6f);
    ck_assert_uint_eq(ts_loss_right(logits, (const uint8_t[]){0, 0}, 2, 3), 2);
    ck_assert_uint_eq(ts_loss_right(logits, (const uint8_t[]){2, 1}, 2, 3), 0);
}
END_TEST

START_TEST(initial_values_depend_on_seed_and_name_alone) {
    static float a[20000], b[20000], c[20000];
    ts_initial_he(1, "fc1.weight", 50, a, 20000);
    ts_initial_he(1, "fc1.weight", 50, b, 20000);
    ck_assert_mem_eq(a, b, sizeof a);
    ts_initial_he(2, "fc1.weight", 50, b, 20000);
    ts_initial_he(1, "fc2.weight", 50, c, 20000);
    ck_assert_mem_ne(a, b, sizeof a);
    ck_assert_mem_ne(a, c, sizeof a);
    double sum = 0, squares = 0;
    for (int i = 0; i < 20000; i++) sum += (double)a[i], squares += (double)a[i] * (double)a[i];
    ck_assert_double_eq_tol(sum / 20000, 0, 0.01);
    ck_assert_double_eq_tol(sqrt(squares / 20000), 0.2, 0.004);
}
END_TEST

static void *made_for(const terse_model *model, uint32_t worker, uint32_t workers, uint32_t batch, bool by_samples) {
    char message[512] = "";
    const terse_model_context context = {.worker = worker, .workers = workers, .batch = batch, .seed = 3,
                                         .data_dir = DATA_DIR, .threads = 1, .by_samples = by_samples};
    void *made_model = model->create(&context, message, sizeof message);
    ck_assert_msg(made_model != NULL, "%s: %s", model->name, message);
    return made_model;
}

static void *made(const terse_model *model, uint32_t worker, uint32_t workers, uint32_t batch) {
    return made_for(model, worker, workers, batch, false);
}

static double accuracy(const terse_model *model, void *instance, uint32_t parts) {
    const terse_model_tensor *tensors;
    const float *params[16];
    size_t count = model->tensors(instance, &tensors);
    for (size_t t = 0; t < count; t++) params[t] = tensors[t].param;
    double samples = 0, correct = 0;
    for (uint32_t p = 0; p < parts; p++) model->evaluate(instance, params, p, parts, &samples, &correct);
    ck_assert(samples == 10000);
    return correct / samples;
}

/* A single process trains by plain SGD: two runs give the same bits, and the accuracy is that of a model that learns. */
static void learns(const terse_model *model, size_t parameters, unsigned steps, float lr, double least) {
    if (access(DATA_DIR "/train-images-idx3-ubyte.gz", R_OK) != 0) return; /* package dataset-fashion-mnist */
    void *twins[2] = {made(model, 0, 1, 64), made(model, 0, 1, 64)};
    const terse_model_tensor *tensors[2];
    size_t count = model->tensors(twins[0], &tensors[0]), found = 0;
    ck_assert_uint_eq(model->tensors(twins[1], &tensors[1]), count);
    ck_assert_ok(ts_model_check_tensors(tensors[0], count, &found, NULL));
    ck_assert_uint_eq(found, parameters);
    ck_assert_uint_eq(model->steps_per_epoch(twins[0]), 938);
    for (unsigned s = 0; s < steps; s++)
        for (int m = 0; m < 2; m++) {
            ck_assert(isfinite(model->step(twins[m], s)));
            for (size_t t = 0; t < count; t++)
                for (size_t i = 0; i < ts_model_tensor_elems(&tensors[m][t]); i++)
                    tensors[m][t].param[i] -= lr * tensors[m][t].gradient[i];
        }
    for (size_t t = 0; t < count; t++)
        ck_assert_mem_eq(tensors[0][t].param, tensors[1][t].param,
                         ts_model_tensor_elems(&tensors[0][t]) * sizeof(float));
    double whole = accuracy(model, twins[0], 1);
    ck_assert_msg(whole >= least, "%s: accuracy %.4f after %u steps", model->name, whole, steps);
    ck_assert(accuracy(model, twins[0], 3) == whole);
    model->destroy(twins[0]);
    model->destroy(twins[1]);
}

START_TEST(softmax_learns) { learns(&ts_model_softmax, 7850, 200, 0.05f, 0.78); }
END_TEST
START_TEST(mlp_learns) { learns(&ts_model_mlp, 535818, 60, 0.1f, 0.72); }
END_TEST
START_TEST(cnn_learns) { learns(&ts_model_cnn, 80202, 40, 0.05f, 0.60); }
END_TEST

/* The mean of the workers' gradients is that of one worker with the whole batch, at the uneven last step too. */
START_TEST(shares_average_to_the_whole_batch) {
    if (access(DATA_DIR "/train-images-idx3-ubyte.gz", R_OK) != 0) return;
    const terse_model *model = &ts_model_softmax;
    void *whole = made(model, 0, 1, 21 * 7), *parts[7];
    const terse_model_tensor *one, *some;
    uint64_t last = model->steps_per_epoch(whole) - 1; /* 60000 = 408 · 147 + 24: shares of 3 and 4 */
    double loss = model->step(whole, last), mean = 0;
    static double sum[7840];
    model->tensors(whole, &one);
    for (uint32_t w = 0; w < 7; w++) {
        parts[w] = made(model, w, 7, 21);
        ck_assert_uint_eq(model->steps_per_epoch(parts[w]) - 1, last);
        mean += model->step(parts[w], last) / 7;
        model->tensors(parts[w], &some);
        for (size_t i = 0; i < 7840; i++) sum[i] += (double)some[0].gradient[i] / 7;
        model->destroy(parts[w]);
    }
    ck_assert_double_eq_tol(mean, loss, 1e-6);
    for (size_t i = 0; i < 7840; i++) ck_assert_double_eq_tol(sum[i], (double)one[0].gradient[i], 1e-5);
    model->destroy(whole);
}
END_TEST

/* The same of the mean that the servers weigh by samples; also where some have none, of a gradient that weighs 1. */
START_TEST(shares_weighed_by_samples_average_to_the_whole_batch) {
    if (access(DATA_DIR "/train-images-idx3-ubyte.gz", R_OK) != 0) return;
    static const struct {
        uint32_t batch, least, most; /* 60000 = 408 · 147 + 24: shares of 3 and 4; 60000 = 3 · 19999 + 3: 1 and none */
    } cases[] = {{21, 3, 4}, {2857, 1, 1}};
    const terse_model *model = &ts_model_softmax;
    for (unsigned c = 0; c < 2; c++) {
        void *whole = made(model, 0, 1, cases[c].batch * 7);
        const terse_model_tensor *one, *some;
        uint64_t last = model->steps_per_epoch(whole) - 1;
        double loss = model->step(whole, last), mean = 0, total = 0;
        static double sum[7840];
        memset(sum, 0, sizeof sum);
        model->tensors(whole, &one);
        for (uint32_t w = 0; w < 7; w++) {
            void *part = made_for(model, w, 7, cases[c].batch, true);
            mean += model->step(part, last) / 7;
            uint32_t samples = model->samples(part);
            ck_assert(samples >= cases[c].least && samples <= cases[c].most);
            total += samples;
            model->tensors(part, &some);
            for (size_t i = 0; i < 7840; i++) sum[i] += samples * (double)some[0].gradient[i];
            model->destroy(part);
        }
        ck_assert_double_eq(total, c == 0 ? 24 : 7);
        ck_assert_double_eq_tol(mean, loss, 1e-6 * loss);
        for (size_t i = 0; i < 7840; i++) ck_assert_double_eq_tol(sum[i] / total, (double)one[0].gradient[i], 1e-5);
        model->destroy(whole);
    }
}
END_TEST

START_TEST(a_model_without_its_data_says_why) {
    char message[512] = "";
    terse_model_context context = {.workers = 1, .batch = 1, .data_dir = "/nowhere", .threads = 1};
    ck_assert_ptr_null(ts_model_mlp.create(&context, message, sizeof message));
    ck_assert_ptr_nonnull(strstr(message, "/nowhere/train-images"));
    context.data_dir = NULL;
    ck_assert_ptr_null(ts_model_mlp.create(&context, message, sizeof message));
    ck_assert_ptr_nonnull(strstr(message, "training.data"));
    ck_assert_ptr_null(ts_model_synthetic.create(&context, message, sizeof message));
    ck_assert_ptr_nonnull(strstr(message, "training.shapes"));
}
END_TEST

/* Writes a text file and returns its path, which stays valid until the next call. */
static const char *written(const char *text) {
    static char path[64];
    strcpy(path, "/tmp/terse-shapes-XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    return path;
}

START_TEST(synthetic_gradients_are_seeded_long_tailed_and_change) {
    const char *path = written("a 100 300\nb 17\n");
    char message[512] = "";
    terse_model_context context = {.worker = 0, .workers = 2, .batch = 1, .seed = 3, .shapes = path, .threads = 1};
    void *a = ts_model_synthetic.create(&context, message, sizeof message);
    void *b = ts_model_synthetic.create(&context, message, sizeof message);
    context.worker = 1;
    void *other = ts_model_synthetic.create(&context, message, sizeof message);
    ck_assert_msg(a && b && other, "%s", message);
    const terse_model_tensor *ta, *tb, *to;
    ck_assert_uint_eq(ts_model_synthetic.tensors(a, &ta), 2);
    ts_model_synthetic.tensors(b, &tb);
    ts_model_synthetic.tensors(other, &to);
    ck_assert_mem_eq(ta[0].param, to[0].param, 30000 * sizeof(float));
    float first[17];
    for (uint64_t step = 0; step < 20; step++) {
        ts_model_synthetic.step(a, step);
        ts_model_synthetic.step(b, step);
        ts_model_synthetic.step(other, step);
        ck_assert_mem_eq(ta[0].gradient, tb[0].gradient, 30000 * sizeof(float));
        ck_assert_mem_ne(ta[0].gradient, to[0].gradient, 30000 * sizeof(float));
        if (step > 0) ck_assert_mem_ne(ta[1].gradient, first, sizeof first);
        memcpy(first, ta[1].gradient, sizeof first);
    }
    double sum = 0, large = 0, positive = 0;
    for (size_t i = 0; i < 30000; i++) {
        double size = fabs((double)ta[0].gradient[i]);
        sum += size;
        if (size > 0.0325) large += size; /* e^(1.5 · 2.32) / 1000: the top hundredth */
        positive += ta[0].gradient[i] > 0;
    }
    ck_assert(large / sum > 0.12 && large / sum < 0.3);
    ck_assert(positive > 14000 && positive < 16000);
    ts_model_synthetic.destroy(a);
    ts_model_synthetic.destroy(b);
    ts_model_synthetic.destroy(other);
    unlink(path);
}
END_TEST

START_TEST(models_are_found_by_name_and_checked) {
    const terse_model *model = NULL;
    ts_error error;
    ck_assert_ok(ts_model_find("cnn", &model, &error));
    ck_assert_ptr_eq(model, &ts_model_cnn);
    ck_assert_status(ts_model_find("gan", &model, &error), TERSE_ENOTFOUND);
    ck_assert_ptr_nonnull(strstr(error.text, "softmax mlp cnn synthetic"));
    float value = 0;
    size_t parameters = 0;
    terse_model_tensor tensors[2] = {{"a", {2, 3}, 2, &value, NULL}, {"b", {0}, 0, &value, NULL}};
    ck_assert_ok(ts_model_check_tensors(tensors, 2, &parameters, &error));
    ck_assert_uint_eq(parameters, 7);
    tensors[1].name = "a";
    ck_assert_status(ts_model_check_tensors(tensors, 2, &parameters, &error), TERSE_EINVAL);
    tensors[1] = (terse_model_tensor){"b", {4, 0}, 2, &value, NULL};
    ck_assert_status(ts_model_check_tensors(tensors, 2, &parameters, &error), TERSE_EINVAL);
    tensors[1] = (terse_model_tensor){"b", {INT64_MAX, INT64_MAX}, 2, &value, NULL};
    ck_assert_status(ts_model_check_tensors(tensors, 2, &parameters, &error), TERSE_ELIMIT);
    tensors[1] = (terse_model_tensor){"b", {1}, 1, NULL, NULL};
    ck_assert_status(ts_model_check_tensors(tensors, 2, &parameters, &error), TERSE_EINVAL);
    ck_assert_status(ts_model_check_tensors(tensors, 0, &parameters, &error), TERSE_EINVAL);
}
END_TEST

START_TEST(files_that_are_no_plugins_are_refused) {
    const terse_model *model = NULL;
    void *handle = NULL;
    ts_error error;
    ck_assert_status(ts_model_load("/nowhere/plugin.so", &model, &handle, &error), TERSE_EIO);
    ck_assert_ptr_nonnull(strstr(error.text, "/nowhere/plugin.so"));
    ck_assert_status(ts_model_load("libm.so.6", &model, &handle, &error), TERSE_EUNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(error.text, "terse_model_plugin"));
    ck_assert_ptr_null(handle);
}
END_TEST

/* Reading the data twice is what these take their time for. */
static void one_thread(void) { openblas_set_num_threads(1); }

TCase *test_models(void);
TCase *test_models(void) {
    TCase *tests = tcase_create("models");
    tcase_add_checked_fixture(tests, one_thread, NULL);
    tcase_add_test(tests, dense_gradients_are_the_loss_slopes);
    tcase_add_test(tests, convolution_gradients_are_the_loss_slopes);
    tcase_add_test(tests, convolution_computes_what_its_formula_says);
    tcase_add_test(tests, layers_that_do_not_fit_are_refused);
    tcase_add_test(tests, the_loss_is_stable_and_right);
    tcase_add_test(tests, initial_values_depend_on_seed_and_name_alone);
    tcase_add_test(tests, softmax_learns);
    tcase_add_test(tests, mlp_learns);
    tcase_add_test(tests, cnn_learns);
    tcase_add_test(tests, shares_average_to_the_whole_batch);
    tcase_add_test(tests, shares_weighed_by_samples_average_to_the_whole_batch);
    tcase_add_test(tests, a_model_without_its_data_says_why);
    tcase_add_test(tests, synthetic_gradients_are_seeded_long_tailed_and_change);
    tcase_add_test(tests, models_are_found_by_name_and_checked);
    tcase_add_test(tests, files_that_are_no_plugins_are_refused);
    tcase_set_timeout(tests, 120);
    return tests;
}
