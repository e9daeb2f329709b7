/* SPDX-License-Identifier: Apache-2.0 */
#include "common/cli/doctor_host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netdb.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "common/base/cpu.h"

#define SHM "/dev/shm"
#define SHM_LEAST_BYTES ((uint64_t)256 << 20)
#define LOCKED_LEAST_BYTES ((uint64_t)64 << 20)
#define FILES_LEAST 1024u
#define SLOW_NAME_S 1.0
#define TUNE "configs/openmpi.conf"

/* ---- network ------------------------------------------------------------------------------------------------------------- */

/* Made by container and virtual-machine software; the same address on every host, so they lead nowhere. */
static bool is_bridge(const char *name) {
    static const char *const prefixes[] = {"docker", "virbr", "br-", "cni", "podman", "lxcbr", "veth", "tun"};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) return true;
    return false;
}

static unsigned prefix_bits(const struct sockaddr *mask) {
    return mask ? (unsigned)__builtin_popcount(((const struct sockaddr_in *)mask)->sin_addr.s_addr) : 32;
}

static void check_interfaces(ts_doctor_report *report, const char *included) {
    struct ifaddrs *list = NULL;
    char all[512] = "", first[64] = "";
    unsigned good = 0, bridges = 0;
    size_t at = 0;
    if (getifaddrs(&list) != 0) {
        ts_doctor_say(report, TS_DOCTOR_WARN, "interfaces", NULL, "cannot be listed");
        return;
    }
    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP) || i->ifa_flags & IFF_LOOPBACK) continue;
        struct in_addr address = ((const struct sockaddr_in *)i->ifa_addr)->sin_addr;
        unsigned bits = prefix_bits(i->ifa_netmask);
        struct in_addr net = {.s_addr = bits ? address.s_addr & htonl(~(uint32_t)0 << (32 - bits)) : 0};
        char text[INET_ADDRSTRLEN] = "", network[INET_ADDRSTRLEN] = "";
        inet_ntop(AF_INET, &address, text, sizeof text);
        inet_ntop(AF_INET, &net, network, sizeof network);
        if (at < sizeof all - 1)
            at += (size_t)snprintf(all + at, sizeof all - at, "%s%s %s/%u", at ? ", " : "", i->ifa_name, text, bits);
        if (is_bridge(i->ifa_name)) bridges++;
        else if (good++ == 0) snprintf(first, sizeof first, "%s/%u", network, bits);
    }
    freeifaddrs(list);
    char fix[256];
    snprintf(fix, sizeof fix, "name the network that joins the hosts: mpirun --mca btl_tcp_if_include %s --mca oob_tcp_if_include %s",
             first[0] ? first : "CIDR", first[0] ? first : "CIDR");
    bool chosen = included && included[0];
    if (good + bridges == 0) ts_doctor_say(report, TS_DOCTOR_OK, "interfaces", NULL, "none but loopback: this host alone");
    else if (chosen) ts_doctor_say(report, TS_DOCTOR_OK, "interfaces", NULL, "%s; Open MPI uses %s", all, included);
    else if (good + bridges == 1) ts_doctor_say(report, TS_DOCTOR_OK, "interfaces", NULL, "%s", all);
    else ts_doctor_say(report, TS_DOCTOR_WARN, "interfaces", fix, "%s; Open MPI may choose any of them, and with %s a job of several "
                       "hosts can hang at its first message", all, bridges ? "bridges that lead nowhere" : "several networks");
}

/* Open MPI asks for the host's own name at each start. */
static void check_own_name(ts_doctor_report *report) {
    char host[256] = "", fix[400];
    struct timespec before, after;
    struct addrinfo *found = NULL;
    gethostname(host, sizeof host - 1);
    clock_gettime(CLOCK_MONOTONIC, &before);
    int failed = getaddrinfo(host, NULL, NULL, &found);
    clock_gettime(CLOCK_MONOTONIC, &after);
    if (!failed) freeaddrinfo(found);
    double seconds = (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) * 1e-9;
    snprintf(fix, sizeof fix, "echo 127.0.1.1 %s >> /etc/hosts", host);
    if (failed) ts_doctor_say(report, TS_DOCTOR_WARN, "host name", fix, "%s does not resolve (%s): each rank starts seconds later", host,
                              gai_strerror(failed));
    else if (seconds > SLOW_NAME_S) ts_doctor_say(report, TS_DOCTOR_WARN, "host name", fix, "%s took %.1f s to resolve", host, seconds);
    else ts_doctor_say(report, TS_DOCTOR_OK, "host name", NULL, "%s resolves", host);
}

/* ---- memory and limits ------------------------------------------------------------------------------------------------------ */

static void check_shared_memory(ts_doctor_report *report) {
    struct statvfs space;
    static const char *const fix = "mount -o remount,size=50% " SHM " (containers: --shm-size=1g)";
    if (statvfs(SHM, &space) != 0 || access(SHM, W_OK) != 0) {
        ts_doctor_say(report, TS_DOCTOR_FAIL, "shared memory", "mount -t tmpfs tmpfs " SHM, SHM " is missing or cannot be written");
        return;
    }
    uint64_t free_bytes = (uint64_t)space.f_bavail * space.f_frsize;
    bool enough = free_bytes >= SHM_LEAST_BYTES;
    ts_doctor_say(report, enough ? TS_DOCTOR_OK : TS_DOCTOR_WARN, "shared memory", enough ? NULL : fix, "%" PRIu64 " MiB free in " SHM
                  "%s", free_bytes >> 20, enough ? "" : "; ranks of one host, and residuals that outlive their process, want more");
}

static void check_limits(ts_doctor_report *report) {
    struct rlimit locked, files;
    if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0) {
        bool fabric = access("/sys/class/infiniband", F_OK) == 0;
        bool little = locked.rlim_cur != RLIM_INFINITY && locked.rlim_cur < LOCKED_LEAST_BYTES;
        char text[64] = "unlimited";
        if (locked.rlim_cur != RLIM_INFINITY) snprintf(text, sizeof text, "%" PRIu64 " KiB", (uint64_t)locked.rlim_cur >> 10);
        ts_doctor_say(report, fabric && little ? TS_DOCTOR_WARN : TS_DOCTOR_OK, "locked memory",
                      fabric && little ? "ulimit -l unlimited, before mpirun, on every host" : NULL, "%s%s", text,
                      fabric ? ", and an InfiniBand-like device is here" : " (it matters to InfiniBand alone, which is not here)");
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        bool few = files.rlim_cur != RLIM_INFINITY && files.rlim_cur < FILES_LEAST;
        ts_doctor_say(report, few ? TS_DOCTOR_WARN : TS_DOCTOR_OK, "open files", few ? "ulimit -n 4096" : NULL, "%" PRIu64 " allowed%s",
                      (uint64_t)files.rlim_cur, few ? "; each TCP peer takes one" : "");
    }
}

static void check_processors(ts_doctor_report *report) {
    cpu_set_t set;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int may = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)online;
    bool bound = may == 1 && online > 1;
    ts_doctor_say(report, bound ? TS_DOCTOR_WARN : TS_DOCTOR_OK, "binding",
                  bound ? "mpirun --tune " TUNE " (its hwloc_base_binding_policy none), or --bind-to none" : NULL,
                  "this process may use %d of %ld processors%s; kernels: %s", may, online,
                  bound ? ": communication and work would share one" : "", ts_simd_name(ts_cpu_simd()));
}

void ts_doctor_host(ts_doctor_report *report, const char *included) {
    check_interfaces(report, included);
    check_own_name(report);
    check_shared_memory(report);
    check_limits(report);
    check_processors(report);
}

/* ---- what a launch needs --------------------------------------------------------------------------------------------------- */

/* The first line that a command prints. Returns whether it ran well. */
static bool first_line(const char *command, char *text, size_t capacity) {
    FILE *pipe = popen(command, "r");
    text[0] = '\0';
    if (!pipe) return false;
    if (!fgets(text, (int)capacity, pipe)) text[0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return pclose(pipe) == 0;
}

static bool on_path(const char *program, char *where, size_t capacity) {
    const char *path = getenv("PATH");
    for (const char *at = path ? path : ""; *at;) {
        size_t len = strcspn(at, ":");
        snprintf(where, capacity, "%.*s/%s", (int)len, at, program);
        if (access(where, X_OK) == 0) return true;
        at += len + (at[len] == ':');
    }
    return false;
}

static void check_mpirun(ts_doctor_report *report) {
    static const char *const install = "apt-get install openmpi-bin";
    char where[512], version[256];
    if (!on_path("mpirun", where, sizeof where)) {
        ts_doctor_say(report, TS_DOCTOR_FAIL, "mpirun", install, "not found on PATH");
        return;
    }
    bool runs = first_line("mpirun --version 2>/dev/null", version, sizeof version);
    bool known = runs && strstr(version, "Open MPI") && strstr(version, " 4.1.");
    if (!runs) ts_doctor_say(report, TS_DOCTOR_FAIL, "mpirun", install, "%s does not run", where);
    else ts_doctor_say(report, known ? TS_DOCTOR_OK : TS_DOCTOR_WARN, "mpirun", known ? NULL : "use Open MPI 4.1 (Debian 12's)",
                       "%s, %s%s", where, version, known ? "" : ": not what Terse was tried with");
    bool server = on_path("ompi-server", where, sizeof where);
    ts_doctor_say(report, server ? TS_DOCTOR_OK : TS_DOCTOR_FAIL, "ompi-server", server ? NULL : install, "%s", server ? where :
                  "not found on PATH: workers of other launches could not attach");
}

static void check_tune(ts_doctor_report *report) {
    char text[4096] = "";
    FILE *file = fopen(TUNE, "r");
    static const char *const fix = "start where " TUNE " is, and give mpirun --tune " TUNE;
    if (!file) {
        ts_doctor_say(report, TS_DOCTOR_WARN, "recovery", fix, "%s is not here: without its flags one dead rank ends all", TUNE);
        return;
    }
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    bool on = strstr(text, "orte_enable_recovery 1") && strstr(text, "async_mpi_finalize 1");
    ts_doctor_say(report, on ? TS_DOCTOR_OK : TS_DOCTOR_FAIL, "recovery", on ? NULL : "put -mca orte_enable_recovery 1 -mca "
                  "async_mpi_finalize 1 into it", TUNE "%s", on ? " turns it on" : " does not turn it on: one dead rank ends all");
}

void ts_doctor_launch(ts_doctor_report *report) {
    check_mpirun(report);
    check_tune(report);
    bool allowed = getenv("OMPI_ALLOW_RUN_AS_ROOT") && getenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM");
    if (geteuid() == 0)
        ts_doctor_say(report, allowed ? TS_DOCTOR_OK : TS_DOCTOR_FAIL, "root", allowed ? NULL :
                      "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1, or be another user",
                      allowed ? "mpirun may run as root" : "mpirun refuses to run as root");
}
