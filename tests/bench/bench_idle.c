/* SPDX-License-Identifier: Apache-2.0 */
/* A worker that attaches and then does nothing for SECONDS: bench_idle CONFIG SECONDS. For bench_idle.py. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "worker/terse.h"

int main(int argc, char **argv) {
    static float param[1 << 16];
    static float gradient[1 << 16];
    const int64_t n = 1 << 16;
    const float *const gradients[] = {gradient};
    terse *client = NULL;
    terse_tensor tensor;
    terse_status status = terse_open(&client, NULL, &argc, &argv);
    if (status == TERSE_OK) status = terse_declare(client, "w", TERSE_FLOAT32, &n, 1, param, &tensor);
    if (status == TERSE_OK) status = terse_start(client);
    if (status == TERSE_OK) status = terse_step(client, gradients);
    if (status == TERSE_OK) {
        printf("idle begins\n");
        fflush(stdout);
        sleep(argc > 1 ? (unsigned)atoi(argv[1]) : 60);
        printf("idle ends\n");
        status = terse_step(client, gradients);
    }
    if (status != TERSE_OK) fprintf(stderr, "bench_idle: %s\n", terse_message(client));
    return terse_close(client) == TERSE_OK && status == TERSE_OK ? 0 : 1;
}
