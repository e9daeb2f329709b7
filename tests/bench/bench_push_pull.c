/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The yardstick of dense push and pull: the same pattern in bare MPI. Rank 0 is the server, the others are workers.
 *
 *   mpirun … bench_push_pull [tensors=N] [chunk=BYTES] [runs=N] [warm=N]
 *
 * A round: every worker sends all its tensors of 4 MiB, in chunks; the server receives each chunk into a buffer, does
 * sum += buffer, and when all workers' chunks of a place are in, it sends the sum to every worker. All is in flight at
 * once, and no buffer is used twice in a round, so none is warm. Rank 1 prints {"round_s": the slowest worker's
 * seconds} a run. Verified: every element of the sums after the last round.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TENSOR_BYTES ((size_t)4 << 20)
#define RANKS_AT_MOST 64

typedef struct {
    int rank, ranks, chunks, chunk_bytes;
    unsigned runs, warm;
    size_t bytes;          /* of all tensors */
    float *in, *out;       /* a worker: parameters, gradients. The server: what came in (a part a worker), sums */
    MPI_Request *receives, *sends;
} bench;

static float *room(size_t bytes) {
    float *made = aligned_alloc(4096, bytes);
    if (!made) MPI_Abort(MPI_COMM_WORLD, 1);
    memset(made, 0, bytes);
    return made;
}

static float *part(const bench *b, float *base, int worker, int chunk) {
    return base + ((size_t)worker * b->bytes + (size_t)chunk * (size_t)b->chunk_bytes) / sizeof(float);
}

static void serve(bench *b) {
    int workers = b->ranks - 1, total = workers * b->chunks, sent = 0;
    int *delivered = calloc((size_t)b->chunks, sizeof *delivered);
    if (!delivered) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int w = 0; w < workers; w++)
        for (int c = 0; c < b->chunks; c++)
            MPI_Irecv(part(b, b->in, w, c), b->chunk_bytes, MPI_BYTE, w + 1, c, MPI_COMM_WORLD, &b->receives[w * b->chunks + c]);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < total; i++) {
        int which;
        MPI_Waitany(total, b->receives, &which, MPI_STATUS_IGNORE);
        int w = which / b->chunks, c = which % b->chunks;
        float *restrict sum = part(b, b->out, 0, c);
        const float *restrict add = part(b, b->in, w, c);
        for (size_t j = 0; j < (size_t)b->chunk_bytes / sizeof(float); j++) sum[j] += add[j];
        if (++delivered[c] < workers) continue;
        for (int to = 0; to < workers; to++)
            MPI_Isend(sum, b->chunk_bytes, MPI_BYTE, to + 1, c, MPI_COMM_WORLD, &b->sends[sent++]);
    }
    MPI_Waitall(sent, b->sends, MPI_STATUSES_IGNORE);
    free(delivered);
}

static void work(bench *b) {
    for (int c = 0; c < b->chunks; c++)
        MPI_Irecv(part(b, b->in, 0, c), b->chunk_bytes, MPI_BYTE, 0, c, MPI_COMM_WORLD, &b->receives[c]);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int c = 0; c < b->chunks; c++)
        MPI_Isend(part(b, b->out, 0, c), b->chunk_bytes, MPI_BYTE, 0, c, MPI_COMM_WORLD, &b->sends[c]);
    MPI_Waitall(b->chunks, b->receives, MPI_STATUSES_IGNORE);
    MPI_Waitall(b->chunks, b->sends, MPI_STATUSES_IGNORE);
}

/* A worker's gradient is its rank everywhere. */
static int verify(const bench *b) {
    float expected = (float)(b->runs + b->warm) * (float)(b->ranks * (b->ranks - 1) / 2);
    for (size_t i = 0; i < b->bytes / sizeof(float); i++)
        if (b->in[i] != expected) return 0;
    return 1;
}

int main(int argc, char **argv) {
    bench b = {.chunk_bytes = 1 << 20, .runs = 11, .warm = 2};
    unsigned tensors = 16;
    int good = 1, all = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &b.ranks);
    for (int i = 1; i < argc; i++)
        if (sscanf(argv[i], "tensors=%u", &tensors) != 1 && sscanf(argv[i], "chunk=%d", &b.chunk_bytes) != 1 &&
            sscanf(argv[i], "runs=%u", &b.runs) != 1 && sscanf(argv[i], "warm=%u", &b.warm) != 1) good = 0;
    b.bytes = tensors * TENSOR_BYTES;
    if (!good || b.ranks < 2 || b.ranks > RANKS_AT_MOST || b.chunk_bytes <= 0 || TENSOR_BYTES % (size_t)b.chunk_bytes)
        MPI_Abort(MPI_COMM_WORLD, 2);
    b.chunks = (int)(b.bytes / (size_t)b.chunk_bytes);
    size_t parts = b.rank == 0 ? (size_t)b.ranks - 1 : 1;
    b.in = room(parts * b.bytes);
    b.out = room(b.bytes);
    b.receives = calloc(parts * (size_t)b.chunks, sizeof *b.receives);
    b.sends = calloc(parts * (size_t)b.chunks, sizeof *b.sends);
    if (!b.receives || !b.sends) MPI_Abort(MPI_COMM_WORLD, 1);
    for (size_t i = 0; b.rank > 0 && i < b.bytes / sizeof(float); i++) b.out[i] = (float)b.rank;
    for (unsigned run = 0; run < b.warm + b.runs; run++) {
        double began = MPI_Wtime(), slowest = 0;
        if (b.rank == 0) serve(&b);
        else work(&b);
        double took = b.rank == 0 ? 0 : MPI_Wtime() - began;
        MPI_Reduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, 1, MPI_COMM_WORLD);
        if (b.rank == 1 && run >= b.warm) printf("{\"round_s\": %.6f}\n", slowest);
    }
    good = b.rank == 0 || verify(&b);
    MPI_Reduce(&good, &all, 1, MPI_INT, MPI_MIN, 1, MPI_COMM_WORLD);
    if (b.rank == 1) printf("{\"verified\": %s}\n", all ? "true" : "false");
    MPI_Finalize();
    return !good;
}
