/* SPDX-License-Identifier: Apache-2.0 */
#include "server/round.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "server/downlink.h"
#include "server/job.h"
#include "server/peer_link.h"
#include "server/reply.h"
#include "server/slice_math.h"
#include "server/upstream_round.h"

terse_status ts_rounds_create(ts_rounds *rounds, struct ts_job *job, uint32_t slices, unsigned threads) {
    ts_rounds made = {.item_count = threads > 0 ? threads : 1};
    made.ready = ts_mem_calloc(slices, sizeof *made.ready);
    made.items = ts_mem_calloc(made.item_count, sizeof *made.items);
    terse_status status = made.ready && made.items ? TERSE_OK : TERSE_ENOMEM;
    for (uint32_t i = 0; status == TERSE_OK && i < made.item_count; i++) {
        made.items[i].job = job;
        status = ts_scratch_create(&made.items[i].scratch);
        if (status == TERSE_OK) status = ts_frame_sum_create(&made.items[i].checksum);
    }
    if (status != TERSE_OK) {
        ts_rounds_free(&made);
        return status;
    }
    *rounds = made;
    return TERSE_OK;
}

void ts_rounds_free(ts_rounds *rounds) {
    for (uint32_t i = 0; rounds->items && i < rounds->item_count; i++) {
        ts_round_item *item = &rounds->items[i];
        assert(!item->in_use);
        ts_mem_free(item->entries);
        ts_mem_free(item->contributions);
        ts_mem_free(item->steps);
        ts_scratch_destroy(item->scratch);
        ts_sum_free(&item->sum);
        ts_frame_sum_destroy(item->checksum);
        ts_mem_free(item->difference);
        ts_mem_free(item->packet);
        ts_buffer_unref(item->frame);
    }
    ts_mem_free(rounds->items);
    ts_mem_free(rounds->ready);
    *rounds = (ts_rounds){0};
}

size_t ts_rounds_bytes(const ts_rounds *rounds) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < rounds->item_count; i++) {
        const ts_round_item *item = &rounds->items[i];
        if (item->in_use) continue; /* its memory is not ours to read now */
        bytes += ts_sum_bytes(&item->sum) + item->difference_elems * sizeof(float) + item->packet_room;
        bytes += ts_scratch_bytes(item->scratch);
    }
    return bytes;
}

void ts_rounds_consider(struct ts_job *job, ts_slice_state *slice) {
    if (slice->ready || slice->busy || slice->sending || slice->saving || slice->above == TS_ABOVE_WAITING) return;
    if (ts_replica_holds_back(job, slice)) return;
    if (slice->above == TS_ABOVE_NONE && !job->consistency->closable(&job->members, slice)) {
        if (job->consistency->alone) ts_reply_wake(job, slice);
        return;
    }
    slice->ready = true;
    job->rounds.ready[job->rounds.ready_count++] = slice;
    job->rounds.sorted = false;
}

/* ---- the work: any thread ------------------------------------------------------------------------------------------ */

/* So much of all arrays stays in the nearest cache between the step, the look for what is not finite, and the copy. */
#define STEP_ELEMS 2048u

/* Elements [at, at + n) of a step on whole arrays. */
static ts_optimizer_input part_of(const ts_optimizer_input *whole, size_t at, size_t n) {
    ts_optimizer_input part = *whole;
    part.n = n;
    part.params += at;
    for (unsigned s = 0; s < TS_OPTIMIZER_STATES; s++)
        if (part.state[s]) part.state[s] += at;
    return part;
}

/* Every element of it, part by part where the optimizer allows. Returns whether the parameters are finite. */
static bool step_dense(ts_round_item *item, const ts_optimizer_input *input, bool steps, uint8_t *copy) {
    const ts_kernels *kernels = ts_slice_kernels();
    size_t first, most = item->optimizer->whole ? input->n : STEP_ELEMS;
    bool finite = true;
    for (size_t at = 0, n; at < input->n; at += n) {
        n = input->n - at < most ? input->n - at : most;
        ts_optimizer_input part = part_of(input, at, n);
        if (steps) part.gradient = ts_sum_part(&item->sum, at, n);
        if (steps) item->optimizer->step(item->config, &part);
        finite = kernels->nonfinite(part.params, n, &first) == 0 && finite;
        if (item->lends) ts_frame_sum_outside(item->checksum, part.params, n * sizeof *part.params);
        if (!copy) continue;
        uint8_t *to = copy + at * sizeof *part.params;
        memcpy(to, part.params, n * sizeof *part.params);
        ts_frame_sum_reach(item->checksum, item->frame, (size_t)(to - item->frame->data) + n * sizeof *part.params);
    }
    return finite;
}

terse_status ts_round_optimize(ts_round_item *item, ts_slice_state *slice, uint64_t step, double lr,
                               const ts_aggregate_outcome *outcome, uint8_t *copy) {
    ts_sum_clip(&item->sum, slice->n, item->config->optimizer.clip_value, item->config->optimizer.clip_norm);
    ts_optimizer_input input = {
        .n = slice->n,
        .params = slice->params,
        .gradient = item->sum.value,
        .touched = item->sum.dense ? NULL : item->sum.touched,
        .step = step,
        .lr = lr,
        .plain = item->contract->tensors[slice->tensor].worker_momentum,
    };
    for (unsigned s = 0; s < TS_OPTIMIZER_STATES; s++) input.state[s] = slice->state[s];
    bool steps = outcome->taken > 0; /* else nobody said anything of use */
    /* Gradients that are finite each can add up to more than a float holds; no later round would mend that. */
    if (!input.touched) return step_dense(item, &input, steps, copy) ? TERSE_OK : TERSE_ENONFINITE;
    if (steps) item->optimizer->step(item->config, &input);
    if (copy) memcpy(copy, slice->params, slice->n * sizeof *slice->params);
    if (item->lends) ts_frame_sum_outside(item->checksum, slice->params, slice->n * sizeof *slice->params);
    return ts_touched_nonfinite(slice->params, input.touched, slice->n) ? TERSE_ENONFINITE : TERSE_OK;
}

/* Whether the step is all that will be done with the sum. */
static bool adds_in_parts(const ts_round_item *item, const ts_slice_state *slice) {
    const ts_config *config = item->config;
    return !slice->estimate && !item->job->server->upstream && !item->optimizer->whole && slice->kind != TS_DOWNLINK_AVERAGE &&
           !(config->optimizer.clip_value > 0) && !(config->optimizer.clip_norm > 0);
}

/* Whether the item's frame is one large slice's parameters. Relays' come from above, in another way. */
static bool lends(const ts_round_item *item) {
    return item->replaces && item->entry_count == 1 && !item->job->server->upstream &&
           item->entries[0].slice->n * sizeof(float) >= TS_ROUND_LENT_BYTES;
}

/* What the workers get of new parameters: room for them in the frame, or a large slice's own, which goes out from where it is. */
static terse_status present(ts_round_item *item, ts_round_entry *entry, ts_bundle_writer *writer, uint8_t **copy) {
    ts_slice_state *slice = entry->slice;
    item->lends = lends(item);
    if (!item->lends) return ts_downlink_room(entry, writer, copy);
    entry->len = slice->n * sizeof(float);
    TS_TRY(ts_bundle_outside(writer, slice->local, slice->values->data, entry->len, slice->values));
    ts_frame_sum_reach(item->checksum, item->frame, item->frame->len);
    return TERSE_OK;
}

uint32_t ts_round_estimates(const ts_round_item *item, const ts_round_entry *entry, uint32_t end) {
    uint32_t of = entry->estimates;
    for (uint32_t c = entry->first; c < end; c++) of += item->contributions[c].first;
    return of;
}

static terse_status close_slice(ts_round_item *item, ts_round_entry *entry, ts_bundle_writer *writer) {
    ts_slice_state *slice = entry->slice;
    item->lends = false;
    TS_TRY(ts_store_own_params(slice));
    if (slice->above == TS_ABOVE_BACK) return item->status = ts_upstream_close(item, entry, writer);
    ts_aggregate_place place = {.contract = item->contract, .slice = slice->global, .step = item->version,
                                .config = item->config, .in_parts = adds_in_parts(item, slice)};
    ts_aggregate_outcome outcome = {.factor = 1.0f};
    terse_status status = TERSE_OK; /* without any packet when all of a decided round died before they had delivered it here */
    if (entry->count > 0)
        status = ts_aggregate(&item->sum, item->scratch, &place, item->contributions + entry->first, entry->count, &outcome);
    if (status != TERSE_OK) entry->culprit = outcome.culprit;
    if (status != TERSE_OK) return status;
    if (slice->estimate)
        ts_sum_estimate(&item->sum, slice->estimate, slice->n, ts_round_estimates(item, entry, entry->first + entry->count));
    else ts_sum_scale(&item->sum, slice->n, outcome.factor);
    uint8_t *copy = NULL;
    if (item->job->server->upstream) {
        ts_upstream_keep(item, entry);
    } else {
        status = present(item, entry, writer, &copy);
        if (status == TERSE_OK) status = ts_round_optimize(item, slice, item->version, item->lr, &outcome, copy);
        if (status == TERSE_OK && !copy && !item->lends) status = ts_downlink_encode(item, entry, writer);
    }
    ts_sum_clear(&item->sum, slice->n);
    if (status != TERSE_OK) item->status = status; /* the parameters have moved: not to be tried again */
    return status;
}

static void work(void *argument) {
    ts_round_item *item = argument;
    Terse__Header header = TERSE__HEADER__INIT;
    Terse__Data data = TERSE__DATA__INIT;
    header.job = item->job_id;
    header.part = item->part;
    header.body_case = TERSE__HEADER__BODY_DATA;
    header.data = &data;
    data.version = item->version + 1;
    data.snapshot = item->replaces;
    size_t largest = 0, total = 0;
    for (uint32_t e = 0; e < item->entry_count; e++) {
        size_t n = item->entries[e].slice->n;
        total += n * sizeof(float) + TS_BUNDLE_ENTRY_MAX_BYTES;
        if (n > largest) largest = n;
    }
    bool copies = item->replaces && !lends(item);
    item->status = ts_sum_reserve(&item->sum, largest);
    if (item->status == TERSE_OK)
        item->status = ts_frame_begin_in(item->job->server->transport->pool, &header, copies ? total : 256, &item->frame);
    if (item->status != TERSE_OK) return;
    ts_bundle_writer writer = ts_bundle_write(item->frame);
    ts_frame_sum_begin(item->checksum);
    size_t packets = 0;
    for (uint32_t e = 0; e < item->entry_count; e++) {
        ts_round_entry *entry = &item->entries[e];
        entry->status = item->alone ? ts_round_alone(item, entry, &writer) : close_slice(item, entry, &writer);
        if (entry->status == TERSE_ENOMEM) item->status = TERSE_ENOMEM;
        if (item->status != TERSE_OK) return;
        if (entry->status == TERSE_OK && !entry->deferred) packets += entry->len;
    }
    if (packets >= TS_OUTGOING_GATHER_BYTES && !item->alone) {
        item->status = ts_frame_sum_finish(item->checksum, item->frame);
        item->finished = item->status == TERSE_OK;
    }
}

/* ---- the loop's side ------------------------------------------------------------------------------------------------ */

/* A packet that its own pipeline cannot have written: refused by name; the round goes on waiting for that worker. */
void ts_round_refuse_packet(struct ts_job *job, ts_slice_state *slice, const ts_round_entry *entry, uint64_t step) {
    uint32_t peer = ts_job_peer(job, entry->culprit);
    job->server->links[peer].rejected++;
    ts_log(TS_LOG_WARN, "round", "a pushed packet does not decode", "from=\"%s\" slice=%u step=%llu",
           ts_server_peer_name(job->server, peer), slice->local, (unsigned long long)step);
    ts_store_drop(slice, entry->culprit);
    for (uint32_t w = 0; w < job->members.count; w++)
        if (slice->slots[w].owed) job->members.members[w].reply_due = true; /* what was asked for while it was busy */
    ts_link_ack(job, peer, step, TERSE_ECORRUPT, &slice->local, 1,
                "the packet is not one that its pipeline can have written");
}

/* A packet of NaN or infinity is left out of its round. Said the first, second, fourth … time of each worker. */
static void note_quarantine(ts_job *job, const ts_slice_state *slice, const ts_contribution *from) {
    uint32_t worker = from->worker;
    ts_link *link = &job->server->links[ts_job_peer(job, worker)];
    uint64_t times = ++link->quarantined;
    if (times & (times - 1)) return;
    ts_log(TS_LOG_WARN, "round", from->adrift ? "a push that goes on from one that was left out was left out, too"
                                              : "a push that is not finite was left out of its round",
           "from=\"%s\" tensor=%s slice=%u step=%llu times=%llu", ts_job_worker_name(job, worker),
           job->contract->tensors[slice->tensor].name, slice->local, (unsigned long long)slice->version,
           (unsigned long long)times);
}

void ts_round_receipt(struct ts_job *job, ts_slice_state *slice, ts_receipt_kind kind, uint32_t worker, uint64_t step) {
    ts_receipt receipt = {.kind = kind, .slice = slice->global, .worker = worker, .step = step, .version = slice->version};
    if (job->server->receipt) job->server->receipt(job->server->receipt_context, &receipt);
}

void ts_round_stepped(struct ts_job *job, const ts_slice_state *slice, uint32_t worth, uint64_t step) {
    ts_receipt receipt = {.kind = TS_RECEIPT_STEP, .slice = slice->global, .worker = worth, .step = step, .version = slice->version,
                          .estimates = slice->estimate ? job->members.launched + slice->further : 0};
    if (job->server->receipt) job->server->receipt(job->server->receipt_context, &receipt);
}

/* Whether nothing of a worker that the job did not begin with was used here so far. */
static bool is_first(const ts_job *job, const ts_slice_state *slice, uint32_t worker) {
    return worker >= job->members.launched && !slice->slots[worker].spoke;
}

void ts_round_used(struct ts_job *job, ts_slice_state *slice, const ts_round_item *item, uint32_t at) {
    const ts_contribution *from = &item->contributions[at];
    if (from->quarantined) note_quarantine(job, slice, from);
    /* What follows it would go on from it: before the round's Data acknowledges it, its worker is told to start anew. */
    if (from->quarantined && slice->push_states)
        ts_link_ack(job, ts_job_peer(job, from->worker), item->steps[at], TERSE_ESTALE, &slice->local, 1,
                    "the packet was left out: it is not finite, or goes on from one that was left out; send all of it");
    slice->slots[from->worker].next = item->steps[at] + 1;
    slice->further += is_first(job, slice, from->worker);
    slice->slots[from->worker].spoke = true;
    ts_store_drop(slice, from->worker);
    ts_round_receipt(job, slice, TS_RECEIPT_USED, from->worker, item->steps[at]);
}

static void settle_entry(ts_job *job, ts_round_item *item, const ts_round_entry *entry) {
    ts_slice_state *slice = entry->slice;
    slice->busy = false;
    if (item->alone) {
        ts_round_alone_settle(job, item, entry);
        ts_checkpoint_reached(job, slice);
        return;
    }
    if (entry->status != TERSE_OK) {
        ts_round_refuse_packet(job, slice, entry, slice->version);
        return;
    }
    if (entry->deferred) {
        ts_upstream_summed(job, slice, entry->samples);
        return;
    }
    slice->above = TS_ABOVE_NONE;
    for (uint32_t c = entry->first; c < entry->first + entry->count; c++) ts_round_used(job, slice, item, c);
    ts_round_stepped(job, slice, 0, slice->version);
    slice->version++;
    slice->steps++;
    ts_round_receipt(job, slice, TS_RECEIPT_VERSION, 0, 0);
    job->rounds.closed++;
    if (slice->kind != TS_DOWNLINK_REPLACE)
        ts_store_log(slice, slice->version, item->frame, entry->offset, entry->len);
    ts_checkpoint_reached(job, slice);
    ts_replica_reached(job, slice);
}

static void done(void *argument) {
    ts_round_item *item = argument;
    ts_job *job = item->job;
    job->rounds.running--;
    job->server->running--;
    if (item->status != TERSE_OK) {
        for (uint32_t e = 0; e < item->entry_count; e++) item->entries[e].slice->busy = false;
        ts_job_fail(job, item->status, "server %u cannot close round %llu%s: %s", job->server->index,
                    (unsigned long long)item->version, ts_job_labelled(job).text, item->status == TERSE_ENONFINITE
                    ? "parameters would no longer be finite (gradients or learning rate too large)"
                    : terse_strerror(item->status));
    } else {
        for (uint32_t e = 0; e < item->entry_count; e++) settle_entry(job, item, &item->entries[e]);
        job->last_progress_us = ts_server_now(job->server);
        if (!item->alone) ts_outgoing_take(job, item);
    }
    ts_buffer_unref(item->frame);
    item->frame = NULL;
    item->in_use = false;
    for (uint32_t e = 0; item->status == TERSE_OK && e < item->entry_count; e++)
        ts_rounds_consider(job, item->entries[e].slice);
    ts_server_flush(job->server);
}

static terse_status fill_entry(ts_job *job, ts_round_item *item, ts_slice_state *slice) {
    if (item->entry_count == item->entry_room) {
        uint32_t room = item->entry_room ? item->entry_room * 2 : 16;
        ts_round_entry *grown = ts_mem_realloc(item->entries, room, sizeof *grown);
        TS_REQUIRE(grown, TERSE_ENOMEM);
        item->entries = grown;
        item->entry_room = room;
    }
    if (item->contribution_room - item->contribution_count < job->members.count) {
        uint32_t room = item->contribution_room * 2 + job->members.count;
        ts_contribution *grown = ts_mem_realloc(item->contributions, room, sizeof *grown);
        TS_REQUIRE(grown, TERSE_ENOMEM);
        item->contributions = grown;
        uint64_t *steps = ts_mem_realloc(item->steps, room, sizeof *steps);
        TS_REQUIRE(steps, TERSE_ENOMEM);
        item->steps = steps;
        item->contribution_room = room;
    }
    ts_round_entry entry = {.slice = slice, .first = item->contribution_count, .version = slice->version,
                            .estimates = job->members.launched + slice->further};
    if (item->alone) entry.encodes = ts_reply_needs_version(job, slice);
    for (uint32_t w = 0; w < job->members.count; w++) {
        if (!job->consistency->takes_part(&job->members, slice, w)) continue;
        item->steps[item->contribution_count] = slice->slots[w].step;
        item->contributions[item->contribution_count++] =
            (ts_contribution){.worker = w, .packet = slice->slots[w].packet, .len = slice->slots[w].len,
                              .state = slice->push_states ? slice->push_states[w] : NULL,
                              .samples = slice->slots[w].samples,
                              .first = is_first(job, slice, w),
                              .late = item->alone ? 0 : slice->version - slice->slots[w].step};
        entry.count++;
    }
    item->entries[item->entry_count++] = entry;
    return TERSE_OK;
}

/* By version, then whether it replaces, then number: what lies together can share an item and a frame. */
static int by_frame(const void *left, const void *right) {
    const ts_slice_state *a = *(ts_slice_state *const *)left, *b = *(ts_slice_state *const *)right;
    bool replace_a = a->kind == TS_DOWNLINK_REPLACE, replace_b = b->kind == TS_DOWNLINK_REPLACE;
    if (a->version != b->version) return a->version < b->version ? -1 : 1;
    if (replace_a != replace_b) return replace_a ? 1 : -1;
    return a->local < b->local ? -1 : a->local > b->local;
}

static int by_number(const void *left, const void *right) {
    const ts_slice_state *a = *(ts_slice_state *const *)left, *b = *(ts_slice_state *const *)right;
    return a->local < b->local ? -1 : a->local > b->local;
}

/* Fills an item from the head of the ready list. Returns how many slices it took; 0 when out of memory. */
static uint32_t fill_item(ts_job *job, ts_round_item *item) {
    ts_rounds *rounds = &job->rounds;
    const ts_slice_state *first = rounds->ready[0];
    bool replaces = first->kind == TS_DOWNLINK_REPLACE;
    size_t elems = 0;
    item->alone = job->consistency->alone;
    item->entry_count = item->contribution_count = 0;
    for (uint32_t i = 0; i < rounds->ready_count; i++) {
        ts_slice_state *slice = rounds->ready[i];
        bool alike = slice->version == first->version && (slice->kind == TS_DOWNLINK_REPLACE) == replaces;
        if (!alike && !item->alone) break; /* an item is a frame, but with SSP and ASP only its packets' store */
        if (i > 0 && elems + slice->n > job->contract->slice_elems) break;
        if (fill_entry(job, item, slice) != TERSE_OK) break;
        elems += slice->n;
    }
    item->contract = job->contract;
    item->config = job->config;
    item->optimizer = job->optimizer;
    Terse__Header head = TERSE__HEADER__INIT;
    ts_job_head(job, &head);
    item->job_id = head.job;
    item->part = head.part;
    item->version = first->version;
    item->replaces = replaces && !item->alone;
    item->weight = ts_membership_weight(&job->members);
    item->lr = ts_config_lr(job->config, first->version, job->contract->total_steps);
    item->status = TERSE_OK;
    item->finished = false;
    return item->entry_count;
}

static ts_round_item *free_item(const ts_rounds *rounds) {
    for (uint32_t i = 0; i < rounds->item_count; i++)
        if (!rounds->items[i].in_use) return &rounds->items[i];
    return NULL;
}

static terse_status submit(ts_job *job, ts_round_item *item, uint64_t cost) {
    for (uint32_t e = 0; e < item->entry_count; e++) {
        item->entries[e].slice->busy = true;
        item->entries[e].slice->ready = false;
    }
    item->in_use = true;
    job->rounds.running++;
    job->server->running++;
    ts_executor *executor = job->server->executor;
    bool brief = executor->submit_brief && cost <= TS_ROUND_BRIEF_BYTES;
    terse_status status = (brief ? executor->submit_brief : executor->submit)(executor, work, done, item);
    if (status == TERSE_OK) return TERSE_OK;
    for (uint32_t e = 0; e < item->entry_count; e++) item->entries[e].slice->busy = false;
    item->in_use = false;
    job->rounds.running--;
    job->server->running--;
    return status;
}

bool ts_rounds_ready(const struct ts_job *job) {
    return job->rounds.ready_count > 0 && free_item(&job->rounds) != NULL;
}

static uint64_t cost_of(const ts_round_item *item) {
    uint64_t bytes = 1; /* so that nothing is for nothing */
    for (uint32_t c = 0; c < item->contribution_count; c++) bytes += item->contributions[c].len;
    for (uint32_t e = 0; e < item->entry_count; e++) bytes += item->entries[e].slice->n * sizeof(float);
    return bytes;
}

uint64_t ts_rounds_submit(struct ts_job *job) {
    ts_rounds *rounds = &job->rounds;
    ts_round_item *item = free_item(rounds);
    if (!rounds->sorted)
        qsort(rounds->ready, rounds->ready_count, sizeof(ts_slice_state *),
              job->consistency->alone ? by_number : by_frame);
    rounds->sorted = true;
    uint32_t taken = fill_item(job, item);
    uint64_t version = item->version, cost = cost_of(item);
    rounds->ready_count -= taken; /* before submit: an inline executor's done may append */
    memmove(rounds->ready, rounds->ready + taken, rounds->ready_count * sizeof(ts_slice_state *));
    if (taken > 0 && submit(job, item, cost) == TERSE_OK) return cost;
    ts_job_fail(job, TERSE_ENOMEM, "server %u is out of memory in round %llu%s", job->server->index,
                (unsigned long long)version, ts_job_labelled(job).text);
    return 1;
}
