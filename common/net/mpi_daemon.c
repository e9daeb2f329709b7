/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs that join later. Each server has a door (door.h). Rank 0 of a new job knocks at that of the server that leads
 * (mpi_daemon_lead.c), so at server 0's, which gives it the next job number, one job at a time; then all its workers knock at
 * the door of each server that lives, in turn, and when all have, that server and they make an intercommunicator by
 * MPI_Comm_accept and connect, over MPI_COMM_SELF at the server: no server waits for another. The knocks' connections stay as
 * lifelines.
 *
 * Why lifelines: in Open MPI 4.1.4 a write to a TCP connection that has just broken registers an event on a closed
 * descriptor (btl_tcp_endpoint.c, endpoint_send); when the number is used again, as it is by the next job's
 * connections, libevent's list becomes a ring and MPI_Improbe never returns. So nothing is written to a process whose
 * lifeline is cut, and the server never connects by itself, but waits for the worker's first message.
 *
 * Nothing is given back to MPI when a job has ended: a freed communicator's context id would be the next job's, whose
 * ranks would then be given what is left of the old one's messages; and MPI_Comm_disconnect waits for the dead.
 */
#include <mpi.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/net/card.h"
#include "common/net/mpi_daemon_internal.h"

#define LOOK_EVERY_US 1000u
#define LOST_GRACE_US 2000000u   /* what a dead process has sent is here by then */
#define MISLED_US 3000000u       /* so long who asks here waits for this server to lead, while another does and lives */
#define ENDED_GRACE_US 10000000u /* so long a worker whose job has ended may take to read why */

static bool is_plain(const char *text, size_t capacity) { return memchr(text, 0, capacity) && ts_text_is_plain(text); }

/* Names of a worker get into messages, JSON, and commands that are shown for pasting. */
static const char *entry_objection(const void *from) {
    ts_mpi_entry entry;
    memcpy(&entry, from, sizeof entry);
    if (!ts_text_is_label(entry.member.job, sizeof entry.member.job))
        return "job.name: allowed: 1 to 31 letters, digits, '.', '_' and '-', no '.' first";
    if (!is_plain(entry.member.host, sizeof entry.member.host)) return "its host's name is not plain text";
    return NULL;
}

terse_status ts_mpi_daemon_create(const ts_mpi_options *options, ts_mpi_daemon **out, ts_error *error) {
    ts_mpi_daemon *daemon = ts_mem_calloc(1, sizeof *daemon);
    TS_REQUIRE(daemon, ts_error_set(error, TERSE_ENOMEM, "no memory for the daemon"));
    snprintf(daemon->dir, sizeof daemon->dir, "%s", options->run_dir);
    daemon->start_us = options->start_us;
    daemon->to_leader = -1;
    daemon->jobs_most = options->jobs_most ? options->jobs_most : 1;
    terse_status status = ts_door_create(daemon->token, TS_MPI_WIRE_VERSION, sizeof(ts_mpi_entry), entry_objection, &daemon->door);
    if (status != TERSE_OK) {
        ts_mem_free(daemon);
        return ts_error_set(error, status, "no socket can be had for workers to knock at");
    }
    *out = daemon;
    return TERSE_OK;
}

uint16_t ts_mpi_daemon_port(const ts_mpi_daemon *daemon) { return ts_door_port(daemon->door); }

/* All ranks are servers here. */
static terse_status note_doors(ts_mpi_daemon *daemon, const ts_mpi_roll *roll, ts_error *error) {
    daemon->own = roll->entries[roll->rank];
    daemon->index = roll->rank;
    daemon->doors = ts_mem_calloc(roll->size, sizeof *daemon->doors);
    TS_REQUIRE(daemon->doors, ts_error_set(error, TERSE_ENOMEM, "no memory for the servers' doors"));
    for (; daemon->servers < roll->size; daemon->servers++) {
        const ts_mpi_entry *entry = &roll->entries[daemon->servers];
        TS_REQUIRE(entry->door != 0, ts_error_set(error, TERSE_EMISMATCH, "server %u was started without a run directory", daemon->servers));
        daemon->doors[daemon->servers] = entry->bell;
        daemon->doors[daemon->servers].port = (uint16_t)entry->door;
    }
    return TERSE_OK;
}

terse_status ts_mpi_daemon_open(ts_mpi *mpi, const ts_mpi_options *options, const ts_mpi_roll *roll, ts_error *error) {
    ts_mpi_daemon *daemon = mpi->daemon;
    uint8_t token[TS_DOOR_TOKEN_BYTES] = {0};
    TS_TRY(note_doors(daemon, roll, error));
    bool leads = ts_mpi_daemon_leads(daemon);
    if (leads && getrandom(token, sizeof token, 0) != (ssize_t)sizeof token)
        return ts_error_set(error, TERSE_EIO, "the system gives no random bytes for the daemon's token");
    ts_mpi_watchdog *watchdog = ts_mpi_watchdog_arm(options->start_us, 4, "not all servers have come up within the deadline");
    int result = MPI_Bcast(token, sizeof token, MPI_BYTE, 0, mpi->comm);
    ts_mpi_watchdog_disarm(watchdog);
    TS_REQUIRE(result == MPI_SUCCESS, ts_error_set(error, TERSE_EPEER, "server 0 cannot be heard"));
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN); /* an accept that fails is not the server's end */
    ts_door_set_token(daemon->door, token);
    memcpy(daemon->token, token, sizeof token);
    terse_status status = leads ? ts_run_dir_make(options->run_dir, error) : ts_mpi_call_leader(daemon, daemon->start_us);
    if (!leads && status != TERSE_OK)
        return ts_error_set(error, status, "server 0 on %.32s cannot be reached by TCP: %s", roll->entries[0].member.host, terse_strerror(status));
    if (!leads || status != TERSE_OK) return status;
    status = ts_mpi_write_card(daemon);
    return status == TERSE_OK ? status : ts_error_set(error, status, "%s cannot be written to", daemon->dir);
}

void ts_mpi_daemon_destroy(ts_mpi_daemon *daemon) {
    if (!daemon) return;
    if (ts_mpi_daemon_leads(daemon)) ts_card_remove(daemon->dir, daemon->token);
    if (daemon->to_leader >= 0) close(daemon->to_leader);
    ts_door_destroy(daemon->door);
    ts_mem_free(daemon->doors);
    ts_mem_free(daemon);
}

/* ---- lifelines -------------------------------------------------------------------------------------------------------- */

static ts_door_guest *guest_of(const ts_mpi_daemon *daemon, uint32_t peer) {
    size_t count;
    ts_door_guest **guests = ts_door_guests(daemon->door, &count);
    for (size_t g = 0; g < count; g++) {
        if (guests[g]->peer == peer) return guests[g];
    }
    return NULL;
}

static void leave(ts_mpi *mpi, uint32_t number, uint64_t grace_us) {
    ts_mpi_peer *peer = &mpi->peers[number];
    if (peer->leaving_us == 0 && mpi->daemon) mpi->daemon->leaving++;
    uint64_t at = ts_mpi_clock_us() + grace_us;
    if (peer->leaving_us == 0 || at < peer->leaving_us) peer->leaving_us = at;
}

void ts_mpi_lose(ts_mpi *mpi, uint32_t number) {
    ts_mpi_peer *peer = &mpi->peers[number];
    if (peer->lost || peer->dropped) return;
    peer->lost = true;
    ts_mpi_forget_queue(mpi, number);
    ts_bell_forget(mpi->bell, number);
    ts_log(TS_LOG_INFO, "transport", "a process has ended", "peer=\"%s\"", mpi->names[number].name);
    if (peer->attached) leave(mpi, number, LOST_GRACE_US);
    ts_transport_handler *handler = &mpi->base.handler;
    if (handler->on_lost) handler->on_lost(handler->context, number);
}

bool ts_mpi_lifeline_holds(ts_mpi *mpi, uint32_t number) {
    ts_mpi_peer *peer = &mpi->peers[number];
    if (peer->lost || peer->dropped || !peer->spoke) return false;
    if (!ts_door_is_cut(peer->lifeline)) return true;
    ts_mpi_lose(mpi, number);
    return false;
}

void ts_mpi_daemon_dropped(ts_mpi *mpi, uint32_t number) {
    ts_mpi_peer *peer = &mpi->peers[number];
    ts_bell_forget(mpi->bell, number);
    if (peer->leaving_us && mpi->daemon) mpi->daemon->leaving--;
    peer->leaving_us = 0;
    if (mpi->daemon) {
        ts_door_guest *guest = guest_of(mpi->daemon, number);
        if (guest) ts_door_dismiss(mpi->daemon->door, guest);
    } else {
        close(peer->lifeline);
    }
    for (uint32_t l = 0; l < mpi->link_count; l++) {
        ts_mpi_link *link = &mpi->links[l];
        if (link->comm != peer->comm || --link->open > 0) continue;
        *link = mpi->links[--mpi->link_count]; /* nobody there to be listened to; the communicator stays (see above) */
        break;
    }
}

static void drop_those_who_left(ts_mpi *mpi, uint64_t now_us) {
    for (uint32_t p = 0; p < mpi->base.peer_count && mpi->daemon->leaving; p++) {
        if (mpi->peers[p].leaving_us && mpi->peers[p].leaving_us <= now_us) ts_mpi_drop(mpi, p);
    }
}

void ts_mpi_daemon_end_job(ts_mpi *mpi, uint32_t job) {
    for (uint32_t p = 0; p < mpi->base.peer_count; p++) {
        if (mpi->names[p].role == TS_ROLE_WORKER && mpi->names[p].job == job && mpi->peers[p].attached && !mpi->peers[p].dropped)
            leave(mpi, p, ENDED_GRACE_US);
    }
}

/* ---- who knocks ----------------------------------------------------------------------------------------------------------- */

static bool same_party(const ts_door_guest *guest, const uint8_t *party) {
    return guest->known && guest->peer == UINT32_MAX && memcmp(guest->knock.party, party, TS_DOOR_PARTY_BYTES) == 0;
}

void ts_mpi_turn_away(ts_mpi *mpi, const uint8_t party[TS_DOOR_PARTY_BYTES], terse_status status, const char *reason) {
    ts_mpi_daemon *daemon = mpi->daemon;
    size_t count;
    ts_door_guest **guests = ts_door_guests(daemon->door, &count);
    uint8_t which[TS_DOOR_PARTY_BYTES]; /* it may be a guest's own, who is about to go */
    memcpy(which, party, sizeof which);
    ts_log(TS_LOG_WARN, "daemon", "a job was turned away", "status=%s reason=\"%s\"", terse_status_name(status), reason);
    for (size_t g = 0; g < count;) {
        if (!same_party(guests[g], which)) {
            g++;
            continue;
        }
        ts_door_tell(guests[g], TS_DOOR_REFUSED, status, reason, strlen(reason));
        ts_door_dismiss(daemon->door, guests[g]);
        guests = ts_door_guests(daemon->door, &count);
    }
}

uint32_t ts_mpi_live_jobs(const ts_mpi *mpi) {
    uint32_t live = 0;
    for (uint32_t l = 0; l < mpi->link_count; l++) {
        bool known = mpi->links[l].comm == mpi->comm;
        for (uint32_t before = 0; before < l && !known; before++)
            known = mpi->links[before].comm != mpi->comm &&
                    mpi->names[mpi->links[before].first].job == mpi->names[mpi->links[l].first].job;
        live += !known;
    }
    return live;
}

/* Why a job may not come in; TERSE_OK when it may. */
static terse_status check_asker(const ts_mpi *mpi, const ts_door_guest *asker, ts_error *reason) {
    const ts_mpi_daemon *daemon = mpi->daemon;
    const ts_transport_handler *handler = &mpi->base.handler;
    bool joins = asker->knock.job == TS_DOOR_JOIN;
    if (daemon->shut) return ts_error_set(reason, TERSE_ESHUTDOWN, "the daemon lets nobody in: %s", daemon->reason.text);
    if (!joins && handler->on_ask) TS_TRY(handler->on_ask(handler->context, reason));
    if (!joins && ts_mpi_live_jobs(mpi) >= daemon->jobs_most)
        return ts_error_set(reason, TERSE_ELIMIT, "the daemon serves %u jobs at a time (limits.jobs); try again when one has ended",
                            daemon->jobs_most);
    if (asker->knock.size > mpi->peer_room - mpi->base.peer_count || (!joins && mpi->base.job_count + 1 >= mpi->job_room))
        return ts_error_set(reason, TERSE_ELIMIT, "the daemon has let in %u workers in its life and has no numbers left: "
                            "start it anew", mpi->base.peer_count - mpi->base.servers);
    return TERSE_OK;
}

static void open_grant(ts_mpi_daemon *daemon, const ts_door_guest *asker, uint32_t job, uint64_t now_us) {
    daemon->grant.open = true;
    daemon->grant.job = job;
    daemon->grant.since_us = now_us;
    memcpy(daemon->grant.party, asker->knock.party, sizeof daemon->grant.party);
}

/* The owner says which workers of which job they become. */
static terse_status find_places(ts_mpi *mpi, ts_door_guest **party, uint32_t size, ts_transport_place *place, ts_error *reason) {
    const ts_transport_handler *handler = &mpi->base.handler;
    ts_transport_wish *wishes = ts_mem_calloc(size, sizeof *wishes);
    TS_REQUIRE(wishes, ts_error_set(reason, TERSE_ENOMEM, "no memory"));
    for (uint32_t r = 0; r < size; r++) {
        ts_mpi_entry entry;
        memcpy(&entry, party[r]->entry, sizeof entry);
        wishes[r] = entry.wish;
        wishes[r].job[sizeof wishes[r].job - 1] = 0;
    }
    terse_status status = handler->on_wish ? handler->on_wish(handler->context, wishes, size, place, reason)
                                           : ts_error_set(reason, TERSE_EUNSUPPORTED, "nobody can come into a job here");
    ts_mem_free(wishes);
    return status;
}

/* All of a launch that would come into a running job are here. They are told their places, or why there are none. */
static void grant_places(ts_mpi *mpi, ts_door_guest *asker, uint64_t now_us) {
    uint32_t size = asker->knock.size;
    ts_door_guest **party = ts_mpi_gather(mpi->daemon, asker);
    ts_transport_place *place = ts_mem_calloc(size, sizeof *place);
    ts_error reason = {"two workers of one rank, or no memory"};
    terse_status status = party && place ? find_places(mpi, party, size, place, &reason) : TERSE_EUNSUPPORTED;
    if (status != TERSE_OK) ts_mpi_turn_away(mpi, asker->knock.party, status, reason.text);
    for (uint32_t r = 0; status == TERSE_OK && r < size; r++) {
        party[r]->knock.job = place[r].job;
        party[r]->knock.worker = place[r].worker;
        party[r]->granted = r == 0;
        ts_mpi_grant granted = {.place = place[r], .dead = mpi->daemon->dead};
        ts_door_tell(party[r], TS_DOOR_GRANTED, TERSE_OK, &granted, sizeof granted);
    }
    if (status == TERSE_OK) open_grant(mpi->daemon, party[0], place[0].job, now_us);
    ts_mem_free(party);
    ts_mem_free(place);
}

static void grant(ts_mpi *mpi, ts_door_guest *asker, uint64_t now_us) {
    ts_mpi_daemon *daemon = mpi->daemon;
    if (asker->knock.job == TS_DOOR_JOIN) {
        grant_places(mpi, asker, now_us);
        return;
    }
    ts_mpi_grant granted = {.place.job = mpi->base.job_count, .dead = daemon->dead, .numbered = ts_mpi_name_taken(mpi, asker)};
    open_grant(daemon, asker, granted.place.job, now_us);
    asker->knock.job = granted.place.job;
    asker->knock.numbered = granted.numbered;
    asker->granted = true;
    ts_door_tell(asker, TS_DOOR_GRANTED, TERSE_OK, &granted, sizeof granted);
}

/* Who leads: whether the job that joins just now has done so, or has given up. */
static void check_grant(ts_mpi *mpi, uint64_t now_us) {
    ts_mpi_daemon *daemon = mpi->daemon;
    size_t count;
    ts_door_guest **guests = ts_door_guests(daemon->door, &count);
    const ts_door_guest *holder = NULL;
    for (size_t g = 0; g < count; g++) {
        if (guests[g]->granted && memcmp(guests[g]->knock.party, daemon->grant.party, TS_DOOR_PARTY_BYTES) == 0) holder = guests[g];
    }
    bool late = now_us - daemon->grant.since_us > daemon->start_us;
    if (holder && !holder->gone && !holder->attached_all && !late) return;
    daemon->grant.open = false;
    if (holder && late && holder->peer == UINT32_MAX) {
        ts_error reason;
        ts_error_set(&reason, TERSE_ETIMEDOUT, "not all %u workers of the job have knocked within %g s", holder->knock.size,
                     (double)daemon->start_us * 1e-6);
        ts_mpi_turn_away(mpi, daemon->grant.party, TERSE_ETIMEDOUT, reason.text);
    }
}

/* The one that has waited longest. */
static ts_door_guest *next_asker(const ts_mpi_daemon *daemon) {
    size_t count;
    ts_door_guest **guests = ts_door_guests(daemon->door, &count), *first = NULL;
    for (size_t g = 0; g < count; g++) {
        ts_door_guest *guest = guests[g];
        bool whole = guest->knock.job == TS_DOOR_JOIN && ts_mpi_party_complete(daemon, guest);
        bool asks = guest->knock.job == TS_DOOR_NO_JOB || whole;
        if (!guest->known || guest->gone || !asks) continue;
        if (!first || guest->since_us < first->since_us) first = guest;
    }
    return first;
}

static void give_numbers(ts_mpi *mpi, uint64_t now_us) {
    ts_mpi_daemon *daemon = mpi->daemon;
    if (daemon->grant.open) check_grant(mpi, now_us);
    for (ts_door_guest *asker; !daemon->grant.open && (asker = next_asker(daemon)) != NULL;) {
        ts_error reason;
        terse_status status = check_asker(mpi, asker, &reason);
        if (status == TERSE_OK) grant(mpi, asker, now_us);
        else ts_mpi_turn_away(mpi, asker->knock.party, status, reason.text);
    }
}

/* With a place in a job that runs. Who leads gives them, and knows who has one; the others take its word for it. */
static bool may_come(const ts_mpi *mpi, const ts_door_guest *guest) {
    const ts_mpi_daemon *daemon = mpi->daemon;
    bool placed = !ts_mpi_daemon_leads(daemon) || memcmp(guest->knock.party, daemon->grant.party, TS_DOOR_PARTY_BYTES) == 0;
    return placed && ts_mpi_job_runs(mpi, guest->knock.job);
}

/* The leading server's door was closed to who asks here; but for this server that one lives. */
static bool is_misled(const ts_mpi_daemon *daemon, const ts_door_guest *guest, uint64_t now_us) {
    bool asks = guest->known && (guest->knock.job == TS_DOOR_NO_JOB || guest->knock.job == TS_DOOR_JOIN);
    return asks && daemon->to_leader >= 0 && now_us - guest->since_us > MISLED_US;
}

/* Parties that can no longer become jobs, and guests that are gone. Returns one whose party is complete, or NULL. */
static ts_door_guest *look_at_guests(ts_mpi *mpi, uint64_t now_us) {
    ts_mpi_daemon *daemon = mpi->daemon;
    size_t count;
    ts_door_guest **guests = ts_door_guests(daemon->door, &count);
    for (size_t g = 0; g < count; g++) {
        ts_door_guest *guest = guests[g];
        if (guest->peer != UINT32_MAX) {
            if (guest->gone && !guest->ending) ts_mpi_lose(mpi, guest->peer);
            continue;
        }
        if (guest->known && guest->knock.job == TS_DOOR_SERVER) {
            if (guest->knock.rank < mpi->base.servers) guest->peer = guest->knock.rank;
            continue;
        }
        if (is_misled(daemon, guest, now_us)) {
            ts_mpi_turn_away(mpi, guest->knock.party, TERSE_EAGAIN, "another server lets jobs in, and lives");
            return look_at_guests(mpi, now_us);
        }
        if (!guest->known || guest->knock.job == TS_DOOR_NO_JOB) {
            if (!guest->known || !guest->gone) continue;
            ts_door_dismiss(daemon->door, guest);
            return look_at_guests(mpi, now_us);
        }
        terse_status status = TERSE_OK;
        bool joins = guest->knock.job == TS_DOOR_JOIN, comes = guest->knock.worker != TS_DOOR_NO_WORKER;
        if (guest->gone) status = TERSE_EPEER;
        else if (!joins && comes && !may_come(mpi, guest)) status = TERSE_ESTALE;
        else if (!joins && !comes && guest->knock.job < mpi->base.job_count) status = TERSE_ESTALE;
        else if (!joins && guest->knock.job >= mpi->job_room) status = TERSE_ELIMIT;
        else if (now_us - guest->since_us > daemon->start_us) status = TERSE_ETIMEDOUT;
        if (status != TERSE_OK) {
            ts_mpi_turn_away(mpi, guest->knock.party, status,
                             status == TERSE_EPEER ? "a worker of the job ended while it was joining"
                             : comes && status == TERSE_ESTALE
                                 ? "the job that the worker would come into has ended, or the server that leads has given it no place there"
                                 : "the job was too late: its workers did not knock together");
            return look_at_guests(mpi, now_us);
        }
        if (!joins && ts_mpi_party_complete(daemon, guest)) return guest;
    }
    return NULL;
}

void ts_mpi_daemon_say_ending(ts_mpi_daemon *daemon) {
    size_t count;
    ts_door_guest **guests = ts_door_guests(daemon->door, &count);
    if (daemon->to_leader >= 0) ts_door_say(daemon->to_leader, TS_DOOR_ENDING);
    for (size_t g = 0; g < count; g++) {
        if (guests[g]->known && guests[g]->knock.job == TS_DOOR_SERVER) ts_door_say(guests[g]->fd, TS_DOOR_ENDING);
    }
}

bool ts_mpi_daemon_poll(ts_mpi *mpi, uint64_t now_us) {
    ts_mpi_daemon *daemon = mpi->daemon;
    if (now_us - daemon->looked_us < LOOK_EVERY_US) return false;
    daemon->looked_us = now_us;
    if (daemon->leaving) drop_those_who_left(mpi, now_us);
    bool moved = ts_door_poll(daemon->door, now_us);
    if (daemon->to_leader >= 0) ts_mpi_listen_to_leader(mpi);
    ts_mpi_note_deaths(mpi);
    if (ts_mpi_daemon_leads(daemon)) give_numbers(mpi, now_us);
    ts_door_guest *one = look_at_guests(mpi, now_us);
    if (!one) return moved;
    ts_mpi_let_in(mpi, one);
    return true;
}

void ts_mpi_daemon_shut(ts_mpi *mpi, const char *reason) {
    mpi->daemon->shut = true;
    snprintf(mpi->daemon->reason.text, sizeof mpi->daemon->reason.text, "%s", reason);
}
