/* SPDX-License-Identifier: Apache-2.0 */
#include "common/net/bell.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"

#define GREETING_MAGIC 0x6c656254u /* "Tbel" */
#define ASK_EVERY_US 200000u
#define ASK_TIMES 25u
#define CLEAR_AT_MOST 64 /* datagrams a call; what is left keeps the descriptor readable */

/* A ring is one byte; everything longer is a greeting. */
typedef struct {
    uint32_t magic;
    uint32_t peer;   /* who greets */
    uint64_t cookie; /* the greeted one's own */
    uint32_t asks;   /* greet me, too */
    uint32_t reserved;
} greeting;

struct ts_bell {
    int fd;
    uint32_t count, room;
    ts_bell_address own;
    ts_bell_address *peers;
    uint32_t *as;               /* the number by which a peer knows this process */
    struct sockaddr_in *target; /* port 0: cannot be rung */
    bool *greeted;              /* its datagrams reach this process */
    uint32_t missing;           /* peers that have not greeted */
    uint32_t asked;
    uint64_t asked_us;
};

static void identify_host(uint8_t host[TS_BELL_HOST_BYTES]) {
    char boot[37] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, boot, sizeof boot - 1);
    if (fd >= 0) close(fd);
    struct stat space;
    if (got <= 0 || stat("/proc/self/ns/net", &space) != 0) {
        /* Unknown: a host of its own, so that nobody takes it for a neighbour. */
        if (getrandom(host, TS_BELL_HOST_BYTES, GRND_NONBLOCK) < 0) host[0] = (uint8_t)getpid();
        return;
    }
    uint64_t inode = space.st_ino;
    memcpy(host, boot, sizeof boot - 1);
    memcpy(host + TS_BELL_HOST_BYTES - sizeof inode, &inode, sizeof inode);
}

static void list_networks(ts_bell_address *own) {
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0) return;
    for (const struct ifaddrs *i = all; i && own->networks < TS_BELL_ADDRESSES; i = i->ifa_next) {
        if (!i->ifa_addr || !i->ifa_netmask || i->ifa_addr->sa_family != AF_INET) continue;
        if (!(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK)) continue;
        struct sockaddr_in address, mask;
        memcpy(&address, i->ifa_addr, sizeof address);
        memcpy(&mask, i->ifa_netmask, sizeof mask);
        own->network[own->networks].address = address.sin_addr.s_addr;
        own->network[own->networks++].mask = mask.sin_addr.s_addr;
    }
    freeifaddrs(all);
}

static int open_socket(uint16_t *port) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in any = {.sin_family = AF_INET};
    socklen_t len = sizeof any;
    if (fd < 0) return -1;
    if (bind(fd, (struct sockaddr *)&any, sizeof any) != 0 || getsockname(fd, (struct sockaddr *)&any, &len) != 0) {
        close(fd);
        return -1;
    }
    *port = any.sin_port;
    return fd;
}

terse_status ts_bell_create(ts_bell **out) {
    ts_bell *bell = ts_mem_calloc(1, sizeof *bell);
    TS_REQUIRE(bell, TERSE_ENOMEM);
    identify_host(bell->own.host);
    if (getrandom(&bell->own.cookie, sizeof bell->own.cookie, GRND_NONBLOCK) < 0) bell->own.cookie = (uint64_t)getpid();
    list_networks(&bell->own);
    bell->fd = open_socket(&bell->own.port);
    *out = bell;
    return TERSE_OK;
}

void ts_bell_destroy(ts_bell *bell) {
    if (!bell) return;
    if (bell->fd >= 0) close(bell->fd);
    ts_mem_free(bell->peers);
    ts_mem_free(bell->as);
    ts_mem_free(bell->target);
    ts_mem_free(bell->greeted);
    ts_mem_free(bell);
}

void ts_bell_own_address(const ts_bell *bell, ts_bell_address *out) { *out = bell->own; }

bool ts_bell_same_host(const ts_bell_address *a, const ts_bell_address *b) {
    return memcmp(a->host, b->host, sizeof a->host) == 0;
}

/* Bridges of virtual machines and containers have the same address on every host: such are no way to anywhere. */
static bool is_mine(const ts_bell_address *own, uint32_t address) {
    for (uint16_t i = 0; i < own->networks; i++) {
        if (own->network[i].address == address) return true;
    }
    return false;
}

uint32_t ts_bell_way(const ts_bell_address *own, const ts_bell_address *peer) {
    if (ts_bell_same_host(own, peer)) return htonl(INADDR_LOOPBACK);
    uint32_t routed = 0; /* no common network: perhaps there is a router */
    for (uint16_t p = 0; p < peer->networks && p < TS_BELL_ADDRESSES; p++) {
        uint32_t address = peer->network[p].address;
        if (is_mine(own, address)) continue;
        if (!routed) routed = address;
        for (uint16_t o = 0; o < own->networks; o++) {
            uint32_t mask = own->network[o].mask;
            if ((own->network[o].address & mask) == (address & mask)) return address;
        }
    }
    return routed;
}

static bool send_to(ts_bell *bell, uint32_t peer, const void *bytes, size_t len) {
    const struct sockaddr_in *to = &bell->target[peer];
    if (bell->fd < 0 || !to->sin_port) return false;
    return sendto(bell->fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)to, sizeof *to) >= 0;
}

static void greet(ts_bell *bell, uint32_t peer, bool asks) {
    greeting hello = {.magic = GREETING_MAGIC, .peer = bell->as[peer], .cookie = bell->peers[peer].cookie, .asks = asks};
    send_to(bell, peer, &hello, sizeof hello);
}

/* Each array grows alone: what has grown already is merely larger than needed when a later one fails. */
static terse_status make_room(ts_bell *bell, uint32_t count) {
    if (count <= bell->room) return TERSE_OK;
    uint32_t room = bell->room ? bell->room * 2 : 8;
    if (room < count) room = count;
    ts_bell_address *peers = ts_mem_realloc(bell->peers, room, sizeof *peers);
    TS_REQUIRE(peers, TERSE_ENOMEM);
    bell->peers = peers;
    uint32_t *as = ts_mem_realloc(bell->as, room, sizeof *as);
    TS_REQUIRE(as, TERSE_ENOMEM);
    bell->as = as;
    struct sockaddr_in *target = ts_mem_realloc(bell->target, room, sizeof *target);
    TS_REQUIRE(target, TERSE_ENOMEM);
    bell->target = target;
    bool *greeted = ts_mem_realloc(bell->greeted, room, sizeof *greeted);
    TS_REQUIRE(greeted, TERSE_ENOMEM);
    bell->greeted = greeted;
    bell->room = room;
    return TERSE_OK;
}

terse_status ts_bell_reserve(ts_bell *bell, uint32_t more) { return make_room(bell, bell->count + more); }

terse_status ts_bell_add(ts_bell *bell, const ts_bell_address *peer, uint32_t as, bool self) {
    TS_TRY(make_room(bell, bell->count + 1));
    uint32_t number = bell->count++;
    bell->peers[number] = *peer;
    bell->as[number] = as;
    bell->greeted[number] = self;
    bell->target[number] = (struct sockaddr_in){.sin_family = AF_INET};
    if (self) return TERSE_OK;
    bell->missing++;
    bell->asked = 0;
    uint32_t address = ts_bell_way(&bell->own, peer);
    if (!address) return TERSE_OK;
    bell->target[number].sin_port = peer->port;
    bell->target[number].sin_addr.s_addr = address;
    greet(bell, number, true);
    return TERSE_OK;
}

terse_status ts_bell_meet(ts_bell *bell, const ts_bell_address *peers, uint32_t count, uint32_t self) {
    TS_TRY(make_room(bell, count));
    for (uint32_t p = 0; p < count; p++) TS_TRY(ts_bell_add(bell, &peers[p], self, p == self));
    return TERSE_OK;
}

void ts_bell_forget(ts_bell *bell, uint32_t peer) {
    if (peer >= bell->count) return;
    bell->target[peer].sin_port = 0;
    if (!bell->greeted[peer]) bell->missing--;
    bell->greeted[peer] = true;
}

bool ts_bell_ring(ts_bell *bell, uint32_t peer) {
    static const uint8_t byte = 1;
    return peer < bell->count && send_to(bell, peer, &byte, sizeof byte);
}

int ts_bell_fd(const ts_bell *bell) { return bell->fd; }

static void take_greeting(ts_bell *bell, const greeting *hello) {
    if (hello->magic != GREETING_MAGIC || hello->cookie != bell->own.cookie || hello->peer >= bell->count) return;
    if (!bell->greeted[hello->peer]) {
        bell->greeted[hello->peer] = true;
        bell->missing--;
    }
    if (hello->asks) greet(bell, hello->peer, false);
}

void ts_bell_clear(ts_bell *bell, uint64_t now_us) {
    greeting hello;
    if (bell->fd < 0) return;
    for (int i = 0; i < CLEAR_AT_MOST; i++) {
        ssize_t got = recv(bell->fd, &hello, sizeof hello, MSG_DONTWAIT);
        if (got < 0) break;
        if ((size_t)got == sizeof hello) take_greeting(bell, &hello);
    }
    (void)ts_bell_complete(bell, now_us);
}

bool ts_bell_complete(ts_bell *bell, uint64_t now_us) {
    if (bell->missing == 0) return bell->fd >= 0 || bell->count <= 1;
    if (bell->fd < 0 || bell->asked >= ASK_TIMES || now_us - bell->asked_us < ASK_EVERY_US) return false;
    bell->asked++;
    bell->asked_us = now_us;
    for (uint32_t p = 0; p < bell->count; p++) {
        if (!bell->greeted[p]) greet(bell, p, true);
    }
    return false;
}
