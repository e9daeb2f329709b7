/* SPDX-License-Identifier: Apache-2.0 */
#include "common/net/loopback.h"

#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define FROM "bbr" /* and what follows it: bbr2, bbr3 */
#define TO "reno"  /* is part of every kernel, and by default allowed to everybody */
#define NAME_CHARS 16 /* TCP_CA_NAME_MAX */

typedef union {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} address;

/* Whether both ends have one address: then both are here. */
static bool stays_here(int fd) {
    address here, there;
    socklen_t here_bytes = sizeof here, there_bytes = sizeof there;
    if (getsockname(fd, &here.any, &here_bytes) != 0 || getpeername(fd, &there.any, &there_bytes) != 0) return false;
    if (here.any.sa_family == AF_INET) return here.v4.sin_addr.s_addr == there.v4.sin_addr.s_addr;
    return here.any.sa_family == AF_INET6 && memcmp(&here.v6.sin6_addr, &there.v6.sin6_addr, sizeof here.v6.sin6_addr) == 0;
}

static bool leave_bbr(int fd) {
    char name[NAME_CHARS] = "";
    socklen_t bytes = sizeof name - 1;
    if (!stays_here(fd) || getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes) != 0) return false;
    return strncmp(name, FROM, strlen(FROM)) == 0 && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, TO, strlen(TO)) == 0;
}

unsigned ts_loopback_leave_bbr(void) {
    unsigned changed = 0;
    DIR *open = opendir("/proc/self/fd");
    if (!open) return 0;
    for (const struct dirent *entry; (entry = readdir(open));) {
        char *end;
        long fd = strtol(entry->d_name, &end, 10);
        if (end != entry->d_name && *end == '\0') changed += leave_bbr((int)fd);
    }
    closedir(open);
    return changed;
}
