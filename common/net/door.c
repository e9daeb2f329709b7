/* SPDX-License-Identifier: Apache-2.0 */
#include "common/net/door.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/net/door_wire.h"

#define BACKLOG 256
#define STRANGERS_AT_MOST 64u    /* connections that have not knocked */
#define STRANGER_US 5000000u     /* so long one may take to */
#define EVENTS 32

struct ts_door {
    int listener, events;
    uint16_t port;
    uint8_t token[TS_DOOR_TOKEN_BYTES];
    uint32_t version, entry_bytes;
    ts_door_objection *objection;
    ts_door_guest **guests;
    size_t count, room, strangers;
};

terse_status ts_door_create(const uint8_t token[TS_DOOR_TOKEN_BYTES], uint32_t version, uint32_t entry_bytes,
                            ts_door_objection *objection, ts_door **out) {
    ts_door *door = ts_mem_calloc(1, sizeof *door);
    TS_REQUIRE(door, TERSE_ENOMEM);
    door->version = version;
    door->entry_bytes = entry_bytes;
    door->objection = objection;
    ts_door_set_token(door, token);
    door->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    door->events = epoll_create1(EPOLL_CLOEXEC);
    struct sockaddr_in any = {.sin_family = AF_INET};
    socklen_t len = sizeof any;
    struct epoll_event event = {.events = EPOLLIN}; /* data.ptr NULL: the listener */
    bool open = door->listener >= 0 && door->events >= 0 &&
                bind(door->listener, (struct sockaddr *)&any, sizeof any) == 0 && listen(door->listener, BACKLOG) == 0 &&
                getsockname(door->listener, (struct sockaddr *)&any, &len) == 0 &&
                epoll_ctl(door->events, EPOLL_CTL_ADD, door->listener, &event) == 0;
    door->port = any.sin_port;
    if (!open) {
        ts_door_destroy(door);
        return TERSE_EIO;
    }
    *out = door;
    return TERSE_OK;
}

void ts_door_destroy(ts_door *door) {
    if (!door) return;
    while (door->count) ts_door_dismiss(door, door->guests[0]);
    if (door->listener >= 0) close(door->listener);
    if (door->events >= 0) close(door->events);
    ts_mem_free(door->guests);
    ts_mem_free(door);
}

uint16_t ts_door_port(const ts_door *door) { return door->port; }

void ts_door_set_token(ts_door *door, const uint8_t token[TS_DOOR_TOKEN_BYTES]) {
    memcpy(door->token, token, TS_DOOR_TOKEN_BYTES);
}

ts_door_guest **ts_door_guests(ts_door *door, size_t *count) {
    *count = door->count;
    return door->guests;
}

void ts_door_dismiss(ts_door *door, ts_door_guest *guest) {
    size_t at = 0;
    while (at < door->count && door->guests[at] != guest) at++;
    if (at == door->count) return;
    door->guests[at] = door->guests[--door->count];
    if (!guest->known) door->strangers--;
    close(guest->fd);
    ts_mem_free(guest->entry);
    ts_mem_free(guest);
}

/* Returns NULL when there is no room for it. */
static ts_door_guest *add_guest(ts_door *door, int fd, uint64_t now_us) {
    if (door->strangers >= STRANGERS_AT_MOST) return NULL;
    if (door->count == door->room) {
        size_t room = door->room ? door->room * 2 : 16;
        ts_door_guest **grown = ts_mem_realloc(door->guests, room, sizeof(ts_door_guest *));
        if (!grown) return NULL;
        door->guests = grown;
        door->room = room;
    }
    ts_door_guest *guest = ts_mem_calloc(1, sizeof *guest);
    if (guest) guest->entry = ts_mem_calloc(door->entry_bytes ? door->entry_bytes : 1, 1);
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data = {.ptr = guest}};
    if (!guest || !guest->entry || epoll_ctl(door->events, EPOLL_CTL_ADD, fd, &event) != 0) {
        if (guest) ts_mem_free(guest->entry);
        ts_mem_free(guest);
        return NULL;
    }
    guest->fd = fd;
    guest->peer = UINT32_MAX;
    guest->since_us = now_us;
    door->guests[door->count++] = guest;
    door->strangers++;
    return guest;
}

static void let_in(ts_door *door, uint64_t now_us) {
    for (unsigned i = 0; i < STRANGERS_AT_MOST; i++) {
        int fd = accept4(door->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), on = 1;
        if (fd < 0) return;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on); /* a host that vanishes says nothing */
        if (!add_guest(door, fd, now_us)) close(fd);
    }
}

/* Takes no shorter for a token that is nearly right. */
static bool same_token(const uint8_t *a, const uint8_t *b) {
    unsigned differ = 0;
    for (size_t i = 0; i < TS_DOOR_TOKEN_BYTES; i++) differ |= (unsigned)(a[i] ^ b[i]);
    return differ == 0;
}

static void turn_away(ts_door_guest *guest, terse_status status, const char *reason) {
    ts_log(TS_LOG_WARN, "door", "somebody was turned away", "status=%s reason=\"%s\"", terse_status_name(status), reason);
    ts_door_tell(guest, TS_DOOR_REFUSED, status, reason, strlen(reason));
    guest->gone = true;
}

static void check_knock(ts_door *door, ts_door_guest *guest) {
    const ts_door_knock *knock = &guest->knock;
    if (knock->magic != TS_DOOR_MAGIC) {
        guest->gone = true; /* no program of ours: nothing that it would understand */
    } else if (knock->version != door->version || knock->entry_bytes != door->entry_bytes) {
        turn_away(guest, TERSE_EVERSION, "the workers are of another version of Terse than the daemon");
    } else if (!same_token(knock->token, door->token)) {
        turn_away(guest, TERSE_EPEER, "the token is not this daemon's: the run directory is of an earlier one");
    } else if (knock->size == 0 || knock->rank >= knock->size) {
        turn_away(guest, TERSE_ECORRUPT, "a rank outside its job");
    }
}

static bool is_whole(const ts_door *door, const ts_door_guest *guest) {
    return guest->got == sizeof guest->knock + door->entry_bytes;
}

/* A part of the knock, or of the entry behind it. Returns what recv does. */
static ssize_t read_part(const ts_door *door, ts_door_guest *guest) {
    size_t head = sizeof guest->knock;
    uint8_t *to = (uint8_t *)&guest->knock + guest->got;
    size_t room = head - guest->got;
    if (guest->got >= head) {
        to = guest->entry + (guest->got - head);
        room = head + door->entry_bytes - guest->got;
    }
    return recv(guest->fd, to, room, MSG_DONTWAIT);
}

/* What comes after the knock: words of one byte. */
static ssize_t read_words(ts_door_guest *guest) {
    char words[16];
    ssize_t got = recv(guest->fd, words, sizeof words, MSG_DONTWAIT);
    for (ssize_t i = 0; i < got; i++) {
        guest->attached_all = guest->attached_all || words[i] == TS_DOOR_ATTACHED;
        guest->ending = guest->ending || words[i] == TS_DOOR_ENDING;
    }
    return got;
}

static void read_guest(ts_door *door, ts_door_guest *guest) {
    while (!guest->gone) {
        bool knocked = guest->known;
        ssize_t got = knocked ? read_words(guest) : read_part(door, guest);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (got <= 0) {
            guest->gone = true;
            return;
        }
        if (knocked) continue;
        guest->got += (size_t)got;
        if (guest->got == sizeof guest->knock) check_knock(door, guest);
        if (guest->gone || !is_whole(door, guest)) continue;
        bool worker = guest->knock.job != TS_DOOR_SERVER;
        const char *why = worker && door->objection ? door->objection(guest->entry) : NULL;
        if (why) {
            turn_away(guest, TERSE_ECORRUPT, why);
            return;
        }
        guest->known = true;
        door->strangers--;
    }
}

/* Who came in and said nothing, or nothing right. */
static bool clear_strangers(ts_door *door, uint64_t now_us) {
    bool any = false;
    for (size_t i = 0; i < door->count;) {
        ts_door_guest *guest = door->guests[i];
        if (!guest->known && (guest->gone || now_us - guest->since_us > STRANGER_US)) {
            ts_door_dismiss(door, guest);
            any = true;
        } else {
            i++;
        }
    }
    return any;
}

bool ts_door_poll(ts_door *door, uint64_t now_us) {
    struct epoll_event events[EVENTS];
    int count = epoll_wait(door->events, events, EVENTS, 0);
    for (int i = 0; i < count; i++) {
        ts_door_guest *guest = events[i].data.ptr;
        if (!guest) {
            let_in(door, now_us);
            continue;
        }
        read_guest(door, guest);
        if (guest->gone) epoll_ctl(door->events, EPOLL_CTL_DEL, guest->fd, NULL); /* or it would be told for ever */
    }
    bool cleared = door->strangers > 0 && clear_strangers(door, now_us);
    return count > 0 || cleared;
}

void ts_door_tell(ts_door_guest *guest, ts_door_answer_kind kind, terse_status status, const void *payload, size_t bytes) {
    ts_door_answer answer = {.magic = TS_DOOR_MAGIC, .kind = (uint32_t)kind, .status = (uint32_t)status, .bytes = (uint32_t)bytes};
    if (guest->gone) return;
    /* A connection's buffer takes far more than all that is ever said on it: what it does not take is lost. */
    bool sent = send(guest->fd, &answer, sizeof answer, MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE) == (ssize_t)sizeof answer &&
                (bytes == 0 || send(guest->fd, payload, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)bytes);
    if (!sent) guest->gone = true;
}

bool ts_door_is_cut(int fd) {
    char byte;
    ssize_t got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}
