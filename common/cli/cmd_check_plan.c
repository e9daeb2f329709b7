/* SPDX-License-Identifier: Apache-2.0 */
#include "common/cli/cmd_check_plan.h"

#include <stdio.h>

#include "common/contract/contract_work.h"

/* Bytes for people: "1.21 GB". */
typedef struct {
    char text[16];
} amount;

static amount bytes(uint64_t n) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    double value = (double)n;
    unsigned unit = 0;
    while (value >= 999.5 && unit < 4) {
        value /= 1000;
        unit++;
    }
    amount a;
    snprintf(a.text, sizeof a.text, unit == 0 || value >= 100 ? "%.0f %s" : value >= 10 ? "%.1f %s" : "%.2f %s", value,
             units[unit]);
    return a;
}

static const ts_plan_server *largest(const ts_plan *plan) {
    const ts_plan_server *most = &plan->server[0];
    for (uint32_t s = 1; s < plan->servers; s++)
        if (plan->server[s].memory > most->memory) most = &plan->server[s];
    return most;
}

static void print_parts(const ts_plan_server *server) {
    printf("parameters %s, reference %s, optimizer %s", bytes(server->params).text, bytes(server->reference).text,
           bytes(server->optimizer).text);
    if (server->estimates) printf(", estimate (ef21) %s", bytes(server->estimates).text);
    if (server->receivers) printf(", delta's state %s", bytes(server->receivers).text);
    printf(", packet log %s, working memory %s", bytes(server->log).text, bytes(server->scratch).text);
    if (server->standin) printf(", all of this of the server that it stands in for %s", bytes(server->standin).text);
}

/* A packet of 8 bytes an element, the most that any takes, has to fit into a message. */
static void note_large_slice(const ts_plan *plan, const ts_config *config) {
    const ts_slice *most = NULL;
    for (uint32_t s = 0; s < plan->contract->slice_count; s++)
        if (!most || plan->contract->slices[s].n > most->n) most = &plan->contract->slices[s];
    if (!most || most->n * 8 + 65536 <= config->limits.frame_bytes) return;
    printf("note: %s is not cut (%zu elements): limits.frame_bytes should be %llu at least\n",
           plan->contract->tensors[most->tensor].name, most->n, (unsigned long long)most->n * 8 + 65536);
}

static void print_memory(const ts_plan *plan, const ts_config *config) {
    const ts_plan_server *most = largest(plan);
    printf("  memory, %u servers and %u workers: at most %s a server (", plan->servers, plan->workers,
           bytes(most->memory).text);
    print_parts(most);
    printf(")\n");
    printf("  and messages on their way: a round holds %s of one worker at the fullest server; all of them together at "
           "most %s (limits.traffic_bytes); MPI and spare frames take up to 60 MB\n", bytes(most->push).text, bytes(config->limits.traffic_bytes).text);
    if (most->receivers)
        printf("  delta keeps %s a worker at that server, and %s at each worker\n",
               bytes(most->receivers / plan->workers).text, bytes(plan->worker.delta).text);
    if (most->estimates)
        printf("  ef21 keeps %s at that server for all workers, and %s at each worker\n", bytes(most->estimates).text,
               bytes(plan->worker.estimate).text);
    const ts_plan_worker *worker = &plan->worker;
    printf("  a worker holds %s beside its parameters and gradients: residual %s", bytes(worker->memory).text,
           bytes(worker->residual).text);
    if (worker->velocity) printf(", momentum %s", bytes(worker->velocity).text);
    if (worker->estimate) printf(", estimate %s", bytes(worker->estimate).text);
    if (worker->delta) printf(", delta's state %s", bytes(worker->delta).text);
    printf(", packets %s\n", bytes(worker->outbox).text);
    uint64_t share = ts_config_traffic_share(config, plan->workers) / 2;
    if (most->push > share)
        printf("note: a worker's packets of a round (%s) are more than its share for them (%s, half of "
               "limits.traffic_bytes / workers): behind a slow worker they are sent more than once\n",
               bytes(most->push).text, bytes(share).text);
    note_large_slice(plan, config);
}

/* What servers.replicas costs, beside memory. */
static void print_replicas(const ts_plan *plan, const ts_config *config) {
    uint64_t most = 0;
    if (config->servers.replicas == 0) return;
    for (uint32_t s = 0; s < plan->servers; s++)
        if (plan->server[s].push > most) most = plan->server[s].push;
    printf("  servers.replicas 1: the memory above is twice that without it; a server sends all that is pushed to it on to the "
           "next one (at most %s a round), and does the work of two\n", bytes(most * plan->workers).text);
}

/* How far the largest is above the mean, in percent. */
static double excess(const ts_plan *plan, uint64_t (*of)(const ts_plan_server *server)) {
    double sum = 0, most = 0;
    for (uint32_t s = 0; s < plan->servers; s++) {
        double value = (double)of(&plan->server[s]);
        sum += value;
        if (value > most) most = value;
    }
    return sum > 0 ? 100 * (most * plan->servers / sum - 1) : 0;
}

static uint64_t work_of(const ts_plan_server *server) { return server->work_ps; }
static uint64_t traffic_of(const ts_plan_server *server) { return server->push + server->pull; }
static uint64_t memory_of(const ts_plan_server *server) { return server->memory; }

/* Server s has workers s, s + servers, … beside it. */
static uint32_t workers_beside(const ts_plan *plan, uint32_t s) {
    return plan->workers / plan->servers + (s < plan->workers % plan->servers);
}

/* A host's share of a round: its server talks to all workers but its own, its workers to all servers but theirs. */
static void print_host(const ts_plan *plan, uint32_t s) {
    uint32_t beside = workers_beside(plan, s);
    const ts_plan_server *own = &plan->server[s];
    uint64_t in = (plan->workers - beside) * own->push, out = (plan->workers - beside) * own->pull;
    for (uint32_t other = 0; other < plan->servers; other++) {
        if (other == s) continue;
        out += beside * plan->server[other].push;
        in += beside * plan->server[other].pull;
    }
    printf("    its host has %u workers too: %s beside their parameters and gradients, in %s and out %s a round\n", beside,
           bytes(own->memory + beside * plan->worker.memory).text, bytes(in).text, bytes(out).text);
}

static void print_placement(const ts_plan *plan, bool shared_hosts) {
    printf("  placement by work (counted for %u workers; a round's time on one core), %s:\n", TS_WORK_WORKERS,
           shared_hosts ? "servers on the workers' hosts" : "servers on hosts of their own");
    for (uint32_t s = 0; s < plan->servers; s++) {
        const ts_plan_server *server = &plan->server[s];
        printf("    server %u: %u tensors, %u slices, %llu elements; work %.3f ms; a worker pushes %s, pulls %s; memory %s\n",
               s, server->tensors, server->slices, (unsigned long long)server->elems, (double)server->work_ps * 1e-9,
               bytes(server->push).text, bytes(server->pull).text, bytes(server->memory).text);
        if (shared_hosts) print_host(plan, s);
        else if (server->slices > 0)
            printf("    its host: in %s and out %s a round\n", bytes(plan->workers * server->push).text,
                   bytes(plan->workers * server->pull).text);
    }
    printf("  largest above the mean: work %.1f %%, traffic %.1f %%, memory %.1f %%\n", excess(plan, work_of),
           excess(plan, traffic_of), excess(plan, memory_of));
    if (!plan->has_whole) return;
    const ts_tensor *whole = &plan->contract->tensors[plan->largest_whole];
    uint64_t total = 0, work = ts_contract_work(plan->contract, plan->largest_whole, whole->n);
    for (uint32_t s = 0; s < plan->servers; s++) total += plan->server[s].work_ps;
    printf("  %s is not cut (%zu elements): its work is %.1f %% of a server's even share, which bounds the balance\n",
           whole->name, whole->n, 100 * (double)work * plan->servers / (double)total);
}

terse_status ts_check_print_plan(const ts_config *config, const ts_shapes *shapes, const ts_check_layout *layout) {
    ts_plan plan;
    ts_error error = {{0}};
    terse_status status = ts_plan_make(config, shapes, layout->servers, layout->workers, &plan, &error);
    if (status != TERSE_OK) {
        fprintf(stderr, "terse check: %s\n", error.text);
        return status;
    }
    print_memory(&plan, config);
    print_replicas(&plan, config);
    if (layout->placement) print_placement(&plan, layout->shared_hosts);
    ts_plan_free(&plan);
    return TERSE_OK;
}

terse_status ts_check_print_relay(const ts_config *above, const ts_shapes *shapes) {
    ts_plan plan;
    ts_error error = {{0}};
    terse_status status = ts_plan_make(above, shapes, 1, 1, &plan, &error);
    if (status != TERSE_OK) {
        fprintf(stderr, "terse check: %s\n", error.text);
        return status;
    }
    uint64_t arrays = 2 * shapes->parameters * sizeof(float);
    printf("  and as a worker above a relay holds %s: sums and new values %s, residual %s, packets and the rest %s\n",
           bytes(arrays + plan.worker.memory).text, bytes(arrays).text, bytes(plan.worker.residual).text,
           bytes(plan.worker.memory - plan.worker.residual).text);
    ts_plan_free(&plan);
    return TERSE_OK;
}
