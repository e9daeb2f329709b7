/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/client/client_keep.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/base/log.h"
#include "common/ckpt/ckpt_identity.h"
#include "worker/client/client_internal.h"

#define MASS_CHARS 160

/* ---- opening -------------------------------------------------------------------------------------------------------------- */

static void *take(ts_feedback_memory *memory, const char *tensor, const char *purpose, size_t bytes) {
    return ts_keep_array(((ts_keep_memory *)(void *)memory)->keep, tensor, purpose, bytes);
}

static void give(ts_feedback_memory *memory, void *block) { (void)memory, (void)block; }

terse_status ts_client_keep_open(ts_client *client, ts_error *reason) {
    const ts_config *config = client->config;
    const char *dir = config->keep;
    ts_keep_options options = {.dir = dir, .job = config->job.name, .worker = client->worker,
                               .workers = client->transport->workers, .contract = client->contract,
                               .form = {.brief = config->error_feedback.residual == TS_RESIDUAL_BF16,
                                        .estimates = ts_config_estimates(config),
                                        .decayed = config->error_feedback.variant == TS_FEEDBACK_DECAYED}};
    if (!ts_config_keeps(config)) return TERSE_OK;
    TS_TRY(ts_keep_open(&options, &client->keep, reason));
    client->keep_memory = (ts_keep_memory){.memory = {take, give}, .keep = client->keep};
    if (ts_keep_incarnation(client->keep) < client->incarnation) ts_keep_set_incarnation(client->keep, client->incarnation);
    client->incarnation = ts_keep_incarnation(client->keep);
    client->outbox.borrowed = true;
    for (uint32_t i = 0; i < client->outbox.count; i++) {
        ts_keep_packet packet = ts_keep_packet_of(client->keep, i);
        client->outbox.slots[i] = (ts_outbox_slot){.bytes = packet.bytes, .capacity = packet.capacity, .len = packet.len,
                                                   .step = packet.step, .samples = packet.samples};
        if (packet.live) client->outbox.slots[i].state = TS_SLOT_ACKED; /* by the life before: the servers know, and no answer is counted on */
    }
    return TERSE_OK;
}

/* ---- of which epoch ------------------------------------------------------------------------------------------------------- */

/* What a file holds, in words. */
static const char *mass_of(const ts_keep *keep, char text[MASS_CHARS]) {
    ts_keep_mass mass = ts_keep_mass_all(keep);
    ts_keep_mass_text(&mass, text, MASS_CHARS);
    return text;
}

/* Tensor by tensor, for those that hold something; what is more than a page is left to `terse ckpt keep ls`. */
static void say_tensors(const ts_keep *keep) {
    enum { SHOWN = 16 };
    uint32_t shown = 0;
    for (uint32_t t = 0; t < ts_keep_contract(keep)->tensor_count && shown < SHOWN; t++) {
        ts_keep_mass mass = ts_keep_mass_of(keep, t);
        char text[MASS_CHARS];
        if (!ts_keep_holds(&mass)) continue;
        ts_keep_mass_text(&mass, text, sizeof text);
        ts_log(TS_LOG_WARN, "keep", "of this", "tensor=%s lost=\"%s\"", ts_keep_contract(keep)->tensors[t].name, text);
        shown++;
    }
}

/* Nothing of it goes on. why: for people. */
static bool give_up(ts_client *client, const ts_keep *found, bool superseded, const char *why) {
    char text[MASS_CHARS];
    ts_error error = {""};
    ts_keep_mass mass = ts_keep_mass_all(found);
    ts_keep_identity was = ts_keep_identify(found);
    if (ts_keep_holds(&mass)) {
        ts_keep_mass_text(&mass, text, sizeof text);
        ts_log(superseded ? TS_LOG_INFO : TS_LOG_WARN, "keep", why, "file=%s job=%s epoch=%016" PRIx64 " steps=%" PRIu64 " %s=\"%s\"",
               ts_keep_path(found), was.job, was.epoch, was.steps, superseded ? "held" : "lost", text);
        if (!superseded) say_tensors(found);
    }
    if (ts_keep_other(client->keep)) {
        terse_status status = ts_keep_adopt(client->keep, &error);
        if (status == TERSE_OK) return true;
        ts_client_fail(client, status, "%s", error.text);
        return false;
    }
    ts_keep_forget(client->keep);
    for (uint32_t i = 0; i < client->outbox.count; i++) client->outbox.slots[i].state = TS_SLOT_FREE;
    return true;
}

/* The checkpoint has no part of this worker, so what it had not sent is nowhere else. */
static bool set_aside(ts_client *client, const ts_keep *found) {
    char path[TS_ERROR_CHARS], text[MASS_CHARS];
    ts_error error = {""};
    terse_status status = ts_keep_set_aside(found, path, sizeof path, &error);
    if (status != TERSE_OK) {
        ts_client_fail(client, status, "error_feedback.keep: %s", error.text[0] ? error.text : terse_strerror(status));
        return false;
    }
    ts_log(TS_LOG_WARN, "keep", "the checkpoint has no part of this worker; what it had not sent is set aside, see `terse ckpt keep`",
           "file=%s held=\"%s\"", path, mass_of(found, text));
    return give_up(client, found, true, "the file begins anew");
}

static void refuse(ts_client *client, const ts_keep *found, bool alone) {
    ts_keep_identity was = ts_keep_identify(found);
    char text[MASS_CHARS], difference[200] = "";
    ts_error why = {""};
    if (ts_keep_other(client->keep) &&
        ts_contract_difference(ts_keep_contract(found), "the file", client->contract, "this job", &why))
        snprintf(difference, sizeof difference, " and of another contract (%.150s)", why.text);
    const char *format =
        "error_feedback.keep: %s holds what worker %" PRIu32 " of job %s, epoch %016" PRIx64 ", had not sent after step %" PRIu64
        " (%s). This is worker %" PRIu32 " of job %s, epoch %016" PRIx64 "%s, whose parameters it must not meet. Go on with that job "
        "(its servers, or its checkpoint), or move it to where it belongs (`terse ckpt keep fold`), or give it up (`terse ckpt keep "
        "drop %s`), or name another folder";
    char sentence[TS_ERROR_CHARS];
    (void)snprintf(sentence, sizeof sentence, format, ts_keep_path(found), was.worker, was.job, was.epoch,
                   was.steps > 0 ? was.steps - 1 : 0, mass_of(found, text), client->worker, client->config->job.name,
                   client->job_epoch, difference, ts_keep_path(found));
    if (alone) ts_client_told_to_end(client, TERSE_EMISMATCH, "%s", sentence);
    else ts_client_fail(client, TERSE_EMISMATCH, "%s", sentence);
}

/* The run's number of a resumed one. */
static uint64_t run_of(const Terse__Resumed *resumed) {
    uint64_t run = 0;
    if (!resumed || !ts_ckpt_is_id(resumed->run) || !ts_ckpt_get_hex(resumed->run, &run)) return 0;
    return run;
}

/* Decides about what was found. Returns whether the client goes on. */
static bool settle(ts_client *client, const Terse__Welcome *welcome) {
    const ts_keep *found = ts_keep_other(client->keep) ? ts_keep_other(client->keep) : client->keep;
    ts_keep_identity was = ts_keep_identify(found);
    uint64_t run = run_of(welcome->resumed);
    if (!ts_keep_found(found)) return true;
    ts_keep_mass mass = ts_keep_mass_all(found);
    if (!ts_keep_holds(&mass)) return give_up(client, found, true, "");
    if (run != 0 && was.run == run && welcome->resumed->without) return set_aside(client, found);
    if (run != 0 && was.run == run)
        return give_up(client, found, true, "what this worker had kept is older than the checkpoint that the run goes on from: all "
                                            "that came after it is done again");
    if (was.ended) return give_up(client, found, false, "what an earlier job had not sent is lost: that job has ended");
    if (was.mortal)
        return give_up(client, found, false, "what an earlier job had not sent is lost: its worker was killed, no process could come in "
                                             "its place, and there are no checkpoints of it");
    refuse(client, found, welcome->joined != NULL);
    return false;
}

bool ts_client_keep_admits(ts_client *client, const ts_client_server *server, const Terse__Welcome *welcome) {
    if (server != &client->servers[0]) return true; /* nothing is pushed before server 0 has spoken */
    client->job_epoch = welcome->job_epoch;
    bool new_process = welcome->joined && !client->begun && client->incarnation > 1; /* life 1: there was none before */
    if (new_process && !client->keep_checked && !(client->keep && (ts_keep_found(client->keep) || ts_keep_other(client->keep)))) {
        ts_log(TS_LOG_WARN, "keep", "what this worker's former process had not sent is lost: nothing of it is kept here",
               "worker=%" PRIu32 " folder=%s", client->worker, client->config->keep);
        client->keep_checked = !client->keep; /* said once */
    }
    if (!client->keep || client->keep_checked) return true;
    ts_keep_identity was = ts_keep_identify(client->keep);
    bool same = !ts_keep_other(client->keep) && was.epoch != 0 && was.epoch == client->job_epoch;
    if (!same && !settle(client, welcome)) return false;
    uint64_t run = run_of(welcome->resumed);
    ts_keep_set_epoch(client->keep, client->job_epoch, same ? was.run : run ? run : client->job_epoch,
                      welcome->mortal); /* it has not ended, either */
    client->keep_checked = true;
    return true;
}

void ts_client_keep_job_ended(ts_client *client) {
    if (client->keep && client->keep_checked) ts_keep_set_ended(client->keep);
}
