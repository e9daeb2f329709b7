/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step that is refused in the middle gives the gradients back that it has sent (cases_lend.py): they are unmapped, and what
 * is still to travel must not be read there.
 *
 *   lend_check CONFIG [--set …]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "worker/terse.h"

#define LARGE (1u << 20) /* elements: some slices, each a frame of its own */
#define SMALL 10u
#define ROUNDS 3u
#define LR 0.5f /* the config's; all sums are exact */

static terse *client;

static void need(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "lend_check: %s: %s\n", what, client ? terse_message(client) : "");
    exit(1);
}

static float *map(void) {
    float *made = mmap(NULL, LARGE * sizeof(float), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(made != MAP_FAILED, "no memory");
    for (size_t i = 0; i < LARGE; i++) made[i] = (float)(i % 1000) + 1;
    return made;
}

static void unmap(float *gradient) {
    memset(gradient, 0xFF, LARGE * sizeof(float));
    munmap(gradient, LARGE * sizeof(float));
}

static void finish_pull(terse_tensor tensor) {
    terse_handle handle;
    need(terse_pull(client, tensor, &handle) == TERSE_OK, "pull");
    need(terse_wait(client, handle) == TERSE_OK, "wait");
}

int main(int argc, char **argv) {
    static float params[LARGE], few[SMALL];
    const float small[SMALL] = {4, 8};
    const int64_t extents[] = {LARGE, SMALL};
    terse_tensor large, other;
    need(terse_open(&client, NULL, &argc, &argv) == TERSE_OK, "open");
    need(terse_declare(client, "large", TERSE_FLOAT32, &extents[0], 1, params, &large) == TERSE_OK, "declare");
    need(terse_declare(client, "small", TERSE_FLOAT32, &extents[1], 1, few, &other) == TERSE_OK, "declare");
    need(terse_set_total_steps(client, 2 * ROUNDS) == TERSE_OK && terse_start(client) == TERSE_OK, "start");
    for (unsigned round = 0; round < ROUNDS; round++) {
        float *gradient = map();
        const float *gradients[] = {gradient, small};
        need(terse_push(client, other, small, NULL) == TERSE_OK, "push");
        need(terse_step(client, gradients) == TERSE_ESTATE, "a step with a tensor that was pushed already");
        unmap(gradient);
        finish_pull(large);
        finish_pull(other);
        gradients[0] = gradient = map();
        need(terse_step(client, gradients) == TERSE_OK, "step");
        unmap(gradient);
        for (size_t i = 0; i < LARGE; i++)
            need(params[i] == -LR * (float)(2 * (round + 1)) * ((float)(i % 1000) + 1), "parameters");
    }
    terse_stats stats;
    need(terse_get_stats(client, &stats) == TERSE_OK, "stats");
    printf("lend_check: worker %u ok\n", terse_worker(client));
    fflush(stdout);
    need(terse_close(client) == TERSE_OK, "close");
    return 0;
}
