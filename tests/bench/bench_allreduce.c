/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The yardstick of a dense round: MPI_Allreduce of float32 sums, by whatever algorithm mpirun's parameters choose.
 *
 *   mpirun … bench_allreduce [n=ELEMENTS] [runs=N] [warm=N]
 *
 * Rank 0 prints {"allreduce_s": the slowest rank's seconds} a run. Verified: every element of the last sum.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

/* Small whole numbers, so that sums are exact in any order. */
static float value(int rank, size_t i) { return (float)((i * 31 + (size_t)rank * 17) % 1009); }

static float expected(int ranks, size_t i) {
    float sum = 0;
    for (int r = 0; r < ranks; r++) sum += value(r, i);
    return sum;
}

int main(int argc, char **argv) {
    int rank, ranks;
    unsigned long n = 25557032;
    unsigned runs = 3, warm = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 1; i < argc; i++)
        if (sscanf(argv[i], "n=%lu", &n) != 1 && sscanf(argv[i], "runs=%u", &runs) != 1 &&
            sscanf(argv[i], "warm=%u", &warm) != 1) fprintf(stderr, "bench_allreduce: %s?\n", argv[i]);
    float *mine = malloc(n * sizeof *mine), *sum = malloc(n * sizeof *sum);
    if (!mine || !sum || n > 1u << 30) MPI_Abort(MPI_COMM_WORLD, 1);
    for (size_t i = 0; i < n; i++) mine[i] = value(rank, i);
    for (unsigned run = 0; run < warm + runs; run++) {
        double took, slowest;
        for (size_t i = 0; i < n; i += 1024) sum[i] = -1;
        MPI_Barrier(MPI_COMM_WORLD);
        double began = MPI_Wtime();
        MPI_Allreduce(mine, sum, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        took = MPI_Wtime() - began;
        MPI_Reduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (rank == 0 && run >= warm) {
            printf("{\"allreduce_s\": %.6f}\n", slowest);
            fflush(stdout);
        }
    }
    int wrong = 0, any = 0;
    for (size_t i = 0; i < n && !wrong; i++) wrong = sum[i] != expected(ranks, i);
    MPI_Reduce(&wrong, &any, 1, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("{\"verified\": %s}\n", any ? "false" : "true");
    free(mine);
    free(sum);
    MPI_Finalize();
    return wrong;
}
