/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over workers, fetching, statistics, and the ways to leave. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/bytes.h" /* little-endian only */
#include "common/base/mem.h"
#include "worker/client/client_internal.h"
#include "worker/terse.h"

/* Calls that ask the servers something: only while attached. */
static terse_status check_attached(ts_client *client, const char *call) {
    if (client->state == TS_CLIENT_FAILED) return client->failure;
    if (client->state == TS_CLIENT_DECLARING || client->state == TS_CLIENT_ATTACHING)
        return ts_client_refuse(client, TERSE_ESTATE, "%s is allowed after start only", call);
    return TERSE_OK;
}

/* Whether the answer to a call that only asks may be used: who comes back meanwhile is in no call before it is in. */
static bool is_in(ts_client *client) {
    (void)ts_client_comes_back(client);
    return client->state != TS_CLIENT_ATTACHING;
}

/* ---- sums over workers: server 0 adds ---- */

terse_status ts_client_reduce(ts_client *client, const double *values, size_t count, uint64_t *sequence) {
    TS_TRY(check_attached(client, "reduce"));
    if (count > TS_REDUCE_VALUES_MAX)
        return ts_client_refuse(client, TERSE_ELIMIT, "a sum of %zu values; at most %u are allowed", count,
                                TS_REDUCE_VALUES_MAX);
    if (client->servers[0].requests & TS_REQUEST_REDUCE)
        return ts_client_refuse(client, TERSE_ESTATE, "sum %" PRIu64 " has not come back yet", client->reduce.sequence);
    if (count > client->reduce.capacity) {
        double *grown = ts_mem_realloc(client->reduce.values, count, sizeof *grown);
        TS_REQUIRE(grown, TERSE_ENOMEM);
        client->reduce.values = grown;
        client->reduce.capacity = count;
    }
    if (count) memcpy(client->reduce.values, values, count * sizeof *values);
    client->reduce.count = count;
    client->reduce.answered = false;
    *sequence = ++client->reduce.sequence;
    ts_client_send_reduce(client);
    return TERSE_OK;
}

void ts_client_send_reduce(ts_client *client) {
    Terse__Reduce reduce = TERSE__REDUCE__INIT;
    reduce.sequence = client->reduce.sequence;
    reduce.n_values = client->reduce.count;
    reduce.values = client->reduce.values;
    ts_client_send_control(client, &client->servers[0], TERSE__HEADER__BODY_REDUCE, &reduce);
    ts_client_asked(client, &client->servers[0], TS_REQUEST_REDUCE);
}

void ts_client_on_reduced(ts_client *client, ts_client_server *server, const Terse__Reduced *reduced) {
    if (server != &client->servers[0] || !(server->requests & TS_REQUEST_REDUCE)) return;
    if (reduced->sequence != client->reduce.sequence) return;
    if (reduced->n_values != client->reduce.count) {
        ts_client_fail(client, TERSE_EMISMATCH, "sum %" PRIu64 " has %zu values, this worker gave %zu",
                       reduced->sequence, reduced->n_values, client->reduce.count);
        return;
    }
    if (reduced->n_values) memcpy(client->reduce.values, reduced->values, reduced->n_values * sizeof(double));
    client->reduce.answered = true;
    ts_client_progress(client, server, TS_REQUEST_REDUCE);
}

void ts_client_set_sums(ts_client *client, uint64_t count) { client->reduce.sequence = count; }

bool ts_client_reduced(ts_client *client, uint64_t sequence, double *values, size_t count) {
    if (!is_in(client)) return false;
    if (!client->reduce.answered || sequence != client->reduce.sequence || count != client->reduce.count) return false;
    if (count) memcpy(values, client->reduce.values, count * sizeof *values);
    return true;
}

/* ---- parameters as the servers hold them ---- */

terse_status ts_client_fetch(ts_client *client, uint32_t t, float *out) {
    TS_TRY(check_attached(client, "fetch"));
    if (t >= client->contract->tensor_count)
        return ts_client_refuse(client, TERSE_ENOTFOUND, "no tensor has number %" PRIu32, t);
    ts_client_tensor *tensor = &client->tensors[t];
    const ts_tensor *declared = &client->contract->tensors[t];
    if (tensor->unfetched)
        return ts_client_refuse(client, TERSE_ESTATE, "tensor %s is being fetched already", declared->name);
    tensor->fetch_out = out;
    tensor->unfetched = declared->slices;
    for (uint32_t i = 0; i < declared->slices; i++) client->slices[declared->first_slice + i].fetched = false;
    for (uint32_t s = 0; s < client->server_count; s++) ts_client_send_fetches(client, &client->servers[s]);
    return TERSE_OK;
}

/* Asks a server for every slice of every tensor under fetch that has not come. */
void ts_client_send_fetches(ts_client *client, ts_client_server *server) {
    uint32_t *locals = ts_mem_calloc(server->slice_count ? server->slice_count : 1, sizeof *locals);
    Terse__Pull pull = TERSE__PULL__INIT;
    pull.snapshot = pull.params = true;
    pull.slices = locals;
    for (uint32_t i = 0; locals && i < server->slice_count; i++) {
        const ts_client_slice *slice = &client->slices[server->slices[i]];
        if (!client->tensors[client->contract->slices[server->slices[i]].tensor].unfetched || slice->fetched) continue;
        locals[pull.n_slices++] = i;
        if (slice->version > pull.want) pull.want = slice->version;
    }
    if (pull.n_slices) {
        ts_client_send_control(client, server, TERSE__HEADER__BODY_PULL, &pull);
        ts_client_asked(client, server, TS_REQUEST_FETCH);
    }
    ts_mem_free(locals);
}

static bool fetches_left(const ts_client *client, const ts_client_server *server) {
    for (uint32_t i = 0; i < server->slice_count; i++) {
        uint32_t slice = server->slices[i];
        if (client->tensors[client->contract->slices[slice].tensor].unfetched && !client->slices[slice].fetched) return true;
    }
    return false;
}

void ts_client_on_params(ts_client *client, ts_client_server *server, uint32_t slice, const uint8_t *packet, size_t len) {
    const ts_slice *where = &client->contract->slices[slice];
    ts_client_tensor *tensor = &client->tensors[where->tensor];
    if (!tensor->unfetched || client->slices[slice].fetched) return;
    if (len != where->n * sizeof(float)) {
        client->counters.dropped_frames++;
        return;
    }
    memcpy(tensor->fetch_out + where->first, packet, len);
    client->slices[slice].fetched = true;
    tensor->unfetched--;
    ts_client_progress(client, server, fetches_left(client, server) ? 0 : TS_REQUEST_FETCH);
}

bool ts_client_fetched(ts_client *client, uint32_t tensor) {
    return is_in(client) && tensor < client->contract->tensor_count && !client->tensors[tensor].unfetched;
}

/* ---- statistics ---- */

terse_status ts_client_request_stats(ts_client *client) {
    TS_TRY(check_attached(client, "stats"));
    for (uint32_t s = 0; s < client->server_count; s++) ts_client_send_stats_request(client, &client->servers[s]);
    return TERSE_OK;
}

void ts_client_send_stats_request(ts_client *client, ts_client_server *server) {
    Terse__StatsRequest request = TERSE__STATS_REQUEST__INIT;
    ts_client_send_control(client, server, TERSE__HEADER__BODY_STATS_REQUEST, &request);
    ts_client_asked(client, server, TS_REQUEST_STATS);
}

void ts_client_on_stats(ts_client *client, ts_client_server *server, const Terse__Stats *stats) {
    if (!(server->requests & TS_REQUEST_STATS) || stats->n_hashes != server->slice_count) return;
    if (stats->rounds < server->stats.rounds) return; /* a late answer to an earlier request */
    for (size_t i = 0; i < stats->n_hashes; i++)
        if (stats->hashes[i]->slice >= server->slice_count) return;
    for (size_t i = 0; i < stats->n_hashes; i++)
        client->slice_hash[server->slices[stats->hashes[i]->slice]] = stats->hashes[i]->xxh3;
    server->stats.in_bytes = stats->bytes_in;
    server->stats.out_bytes = stats->bytes_out;
    server->stats.steady_in_bytes = stats->steady_bytes_in;
    server->stats.steady_out_bytes = stats->steady_bytes_out;
    server->stats.lost_rounds = stats->lost_rounds;
    server->stats.lost_workers = stats->lost_workers;
    server->stats.rounds = stats->rounds;
    server->stats.unsent_l1 = stats->unsent_l1;
    server->stats.unsent_squares = stats->unsent_squares;
    server->stats.unsent_nonzero = stats->unsent_nonzero;
    ts_client_progress(client, server, TS_REQUEST_STATS);
}

/* The hash of the slices' hashes in the job's order: the same for any number of servers. */
static uint64_t parameters_hash(const ts_client *client) {
    /* as 8 little-endian bytes each, which is how they lie here (bytes.h refuses other machines) */
    return XXH3_64bits(client->slice_hash, client->contract->slice_count * sizeof(uint64_t));
}

bool ts_client_stats(ts_client *client, struct terse_stats *stats) {
    if (!is_in(client) || !client->slice_hash) return false;
    terse_stats sum = {0};
    for (uint32_t s = 0; s < client->server_count; s++) {
        const ts_client_server *server = &client->servers[s];
        if (server->requests & TS_REQUEST_STATS) return false;
        sum.push_bytes += server->stats.in_bytes;
        sum.pull_bytes += server->stats.out_bytes;
        sum.steady_push_bytes += server->stats.steady_in_bytes;
        sum.steady_pull_bytes += server->stats.steady_out_bytes;
        sum.lost_rounds += server->stats.lost_rounds;
        if (server->stats.lost_workers > sum.lost_workers) sum.lost_workers = server->stats.lost_workers;
    }
    sum.lost_l1 = client->servers[0].stats.unsent_l1; /* every server knows of all */
    sum.lost_l2 = sqrt(client->servers[0].stats.unsent_squares);
    sum.lost_nonzero = client->servers[0].stats.unsent_nonzero;
    for (uint32_t t = 0; t < client->contract->tensor_count; t++) sum.parameters += client->contract->tensors[t].n;
    snprintf(sum.parameters_xxh3, sizeof sum.parameters_xxh3, "%016" PRIx64, parameters_hash(client));
    *stats = sum;
    return true;
}

/* ---- leaving ---- */

terse_status ts_client_done(ts_client *client) {
    TS_TRY(check_attached(client, "done"));
    if (client->state != TS_CLIENT_TRAINING) return TERSE_OK;
    if (client->stale) (void)ts_client_comes_back(client);
    if (client->state == TS_CLIENT_ATTACHING) return TERSE_EAGAIN;
    uint64_t steps = 0;
    for (uint32_t t = 0; t < client->contract->tensor_count; t++) {
        const ts_client_tensor *tensor = &client->tensors[t];
        uint64_t pushed = tensor->step + (tensor->phase != TS_TENSOR_IDLE);
        if (tensor->deferred || (t && pushed != steps))
            return ts_client_refuse(client, TERSE_ESTATE, "done in the middle of a step: %s was pushed %" PRIu64
                                    " times, %s %" PRIu64, ts_client_tensor_name(client, t), pushed,
                                    ts_client_tensor_name(client, 0), steps);
        steps = pushed;
    }
    ts_client_flush(client);
    TS_TRY(ts_client_take_back_all(client));
    for (uint32_t t = 0; t < client->contract->tensor_count; t++) ts_client_cut(client, t);
    if (client->state == TS_CLIENT_FAILED) return client->failure;
    client->done_steps = steps;
    client->done_us = ts_client_now(client);
    client->rest.unsent = ts_client_measure_unsent(client);
    client->rest.leaving = false;
    client->state = TS_CLIENT_LEAVING;
    for (uint32_t s = 0; s < client->server_count; s++) ts_client_send_done(client, &client->servers[s]);
    return TERSE_OK;
}

void ts_client_send_done(ts_client *client, ts_client_server *server) {
    Terse__Done done = TERSE__DONE__INIT;
    done.steps = client->done_steps;
    done.unsent_l1 = client->rest.unsent.l1;
    done.unsent_squares = client->rest.unsent.squares;
    done.unsent_nonzero = client->rest.unsent.nonzero;
    ts_client_send_control(client, server, TERSE__HEADER__BODY_DONE, &done);
    ts_client_asked(client, server, TS_REQUEST_DONE);
}

void ts_client_on_done_ack(ts_client *client, ts_client_server *server, const Terse__Ack *ack) {
    if (!(server->requests & TS_REQUEST_DONE) || ack->step != client->done_steps) return;
    ts_client_progress(client, server, TS_REQUEST_DONE);
    ts_client_maybe_done(client);
}

void ts_client_maybe_done(ts_client *client) {
    if (client->state != TS_CLIENT_LEAVING) return;
    for (uint32_t s = 0; s < client->server_count; s++)
        if (client->servers[s].requests & TS_REQUEST_DONE) return;
    for (uint32_t t = 0; t < client->contract->tensor_count; t++)
        if (client->tensors[t].unanswered) return;
    client->state = TS_CLIENT_DONE;
}

void ts_client_bye(ts_client *client) {
    if (client->state == TS_CLIENT_FAILED || client->state == TS_CLIENT_DECLARING) return;
    Terse__Bye bye = TERSE__BYE__INIT;
    for (uint32_t s = 0; s < client->server_count; s++) {
        ts_client_send_control(client, &client->servers[s], TERSE__HEADER__BODY_BYE, &bye);
    }
}
