/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A check with a known answer: one worker minimises f(w) = 1/2 |w - w*|^2 from w = 0 in 60 steps, by pushing
 * w - w*, one tensor at a time and asynchronously. w* lies in tests/vectors; from the repository's root, after make:
 *
 *   mpirun --tune configs/openmpi.conf -n 1 build/terse-server configs/quadratic.yaml \
 *     : -n 1 build/examples/quadratic configs/quadratic.yaml tests/vectors/quadratic-optimum.f32
 *
 * Prints "distance |w - w*| payload BYTES", BYTES being those of the pushed packets. With lr 0.1 and plain SGD:
 * 0.05563 dense, 0.01192 with topk:0.1 | fp32 and error feedback.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <terse.h>

#define N 1000
#define STEPS 60

static int fail(terse *client, terse_status status) {
    fprintf(stderr, "quadratic: %s: %s\n", terse_strerror(status), terse_message(client));
    terse_close(client);
    return status == TERSE_ECONFIG ? 2 : 1;
}

static int read_optimum(const char *path, float *optimum) {
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    size_t read = fread(optimum, sizeof *optimum, N, file);
    fclose(file);
    return read == N;
}

static terse_status descend(terse *client, terse_tensor tensor, const float *w, const float *optimum) {
    float gradient[N];
    terse_handle pushed, pulled;
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < N; i++) gradient[i] = w[i] - optimum[i];
        terse_status status = terse_push(client, tensor, gradient, &pushed);
        if (status == TERSE_OK) status = terse_pull(client, tensor, &pulled);
        if (status == TERSE_OK) status = terse_wait(client, pushed);
        if (status == TERSE_OK) status = terse_wait(client, pulled);
        if (status != TERSE_OK) return status;
    }
    return TERSE_OK;
}

int main(int argc, char **argv) {
    static float w[N], optimum[N];
    const int64_t shape[] = {N};
    terse_tensor tensor;
    terse_local_stats stats;
    terse *client;
    terse_status status = terse_open(&client, NULL, &argc, &argv);
    if (status != TERSE_OK) return fail(client, status);
    if (argc != 2 || !read_optimum(argv[1], optimum)) {
        fprintf(stderr, "quadratic: needs a file with %d float32 values behind the config\n", N);
        terse_close(client);
        return 2;
    }
    status = terse_declare(client, "w", TERSE_FLOAT32, shape, 1, w, &tensor);
    if (status == TERSE_OK) status = terse_set_total_steps(client, STEPS);
    if (status == TERSE_OK) status = terse_start(client);
    if (status == TERSE_OK) status = descend(client, tensor, w, optimum);
    if (status == TERSE_OK) status = terse_get_local_stats(client, &stats);
    if (status != TERSE_OK) return fail(client, status);
    double sum = 0;
    for (int i = 0; i < N; i++) sum += ((double)w[i] - optimum[i]) * ((double)w[i] - optimum[i]);
    printf("distance %.6f payload %" PRIu64 "\n", sqrt(sum), stats.push_payload_bytes);
    return terse_close(client) == TERSE_OK ? 0 : 1;
}
