/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's side of a door. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/net/door.h"
#include "common/net/door_wire.h"

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

/* Returns TERSE_OK when the descriptor is ready, TERSE_ETIMEDOUT, TERSE_EIO. */
static terse_status wait_for(int fd, short events, uint64_t until_us) {
    for (;;) {
        uint64_t now = now_us();
        TS_REQUIRE(now < until_us, TERSE_ETIMEDOUT);
        uint64_t ms = (until_us - now) / 1000u + 1;
        struct pollfd one = {.fd = fd, .events = events};
        int ready = poll(&one, 1, ms > 1000 ? 1000 : (int)ms);
        if (ready > 0) return TERSE_OK;
        TS_REQUIRE(ready == 0 || errno == EINTR, TERSE_EIO);
    }
}

static terse_status send_whole(int fd, const void *bytes, size_t len, uint64_t until_us) {
    const uint8_t *at = bytes;
    while (len > 0) {
        ssize_t sent = send(fd, at, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) {
            at += sent;
            len -= (size_t)sent;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            TS_TRY(wait_for(fd, POLLOUT, until_us));
        } else if (errno != EINTR) {
            return TERSE_EPEER;
        }
    }
    return TERSE_OK;
}

static terse_status receive_whole(int fd, void *bytes, size_t len, uint64_t until_us) {
    uint8_t *at = bytes;
    while (len > 0) {
        ssize_t got = recv(fd, at, len, MSG_DONTWAIT);
        TS_REQUIRE(got != 0, TERSE_EPEER);
        if (got > 0) {
            at += got;
            len -= (size_t)got;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            TS_TRY(wait_for(fd, POLLIN, until_us));
        } else if (errno != EINTR) {
            return TERSE_EPEER;
        }
    }
    return TERSE_OK;
}

static terse_status go_there(int fd, uint32_t address, uint16_t port, uint64_t until_us) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = port, .sin_addr = {.s_addr = address}};
    if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0) return TERSE_OK;
    TS_REQUIRE(errno == EINPROGRESS, TERSE_EPEER);
    TS_TRY(wait_for(fd, POLLOUT, until_us));
    int failed = 0;
    socklen_t len = sizeof failed;
    TS_REQUIRE(getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &len) == 0 && failed == 0, TERSE_EPEER);
    return TERSE_OK;
}

terse_status ts_door_visit(uint32_t address, uint16_t port, const ts_door_knock *knock, const void *entry, uint64_t until_us,
                           int *out) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    TS_REQUIRE(fd >= 0, TERSE_EIO);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    ts_door_knock whole = *knock;
    whole.magic = TS_DOOR_MAGIC;
    terse_status status = go_there(fd, address, port, until_us);
    if (status == TERSE_OK) status = send_whole(fd, &whole, sizeof whole, until_us);
    if (status == TERSE_OK) status = send_whole(fd, entry, whole.entry_bytes, until_us);
    if (status != TERSE_OK) {
        close(fd);
        return status;
    }
    *out = fd;
    return TERSE_OK;
}

terse_status ts_door_hear(int fd, uint64_t until_us, ts_door_answer *answer, void *payload, size_t capacity) {
    ts_door_answer head;
    TS_TRY(receive_whole(fd, &head, sizeof head, until_us));
    TS_REQUIRE(head.magic == TS_DOOR_MAGIC && head.bytes <= capacity, TERSE_ECORRUPT);
    TS_TRY(receive_whole(fd, payload, head.bytes, until_us));
    *answer = head;
    return TERSE_OK;
}

void ts_door_say(int fd, char word) {
    ssize_t sent = send(fd, &word, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)sent; /* a server that is gone will be found out otherwise */
}
