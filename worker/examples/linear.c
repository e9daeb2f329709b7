/* SPDX-License-Identifier: Apache-2.0 */
/* Every worker fits y = w.x + b on samples of its own; together they find w = (3, -2), b = 0.5. */
#include <stdio.h>
#include <stdlib.h>
#include <terse.h>

static void must(terse **t, terse_status status) {
    if (status == TERSE_OK) return;
    fprintf(stderr, "%s: %s\n", terse_status_name(status), terse_message(*t));
    terse_close(*t);
    exit(status == TERSE_ECONFIG ? 2 : 1);
}

int main(int argc, char **argv) {
    float w[2] = {0}, b = 0, dw[2], db; /* parameters and their gradients */
    const float *gradients[] = {dw, &db};
    const int64_t two = 2;
    terse *t = NULL;
    must(&t, terse_open(&t, NULL, &argc, &argv)); /* takes CONFIG and --set a.b=c from the command line */
    must(&t, terse_declare(t, "w", TERSE_FLOAT32, &two, 1, w, NULL));
    must(&t, terse_declare(t, "b", TERSE_FLOAT32, NULL, 0, &b, NULL));
    must(&t, terse_start(t)); /* everybody agrees, and starts from worker 0's parameters */
    srand(terse_worker(t) + 1);
    double loss = 0;
    for (int step = 0; step < 500; step++) {
        dw[0] = dw[1] = db = 0;
        loss = 0;
        for (int i = 0; i < 32; i++) {
            float x[2] = {(float)(rand() % 2001) / 1000 - 1, (float)(rand() % 2001) / 1000 - 1};
            float error = w[0] * x[0] + w[1] * x[1] + b - (3 * x[0] - 2 * x[1] + 0.5f);
            loss += error * error / 32;
            for (int j = 0; j < 2; j++) dw[j] += error * x[j] / 16;
            db += error / 16;
        }
        must(&t, terse_step(t, gradients)); /* push, average over the workers, pull */
    }
    if (terse_worker(t) == 0) printf("w = (%.3f, %.3f), b = %.3f, final loss %.6f\n", w[0], w[1], b, loss);
    return terse_close(t) == TERSE_OK ? 0 : 1;
}
