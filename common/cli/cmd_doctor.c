/* SPDX-License-Identifier: Apache-2.0 */
/* terse doctor: what of this machine, or of a whole launch, will make trouble, and what mends it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/cli/commands.h"
#include "common/cli/doctor_host.h"
#include "common/config/config.h"
#include "common/net/mpi_examine.h"

#define DEADLINE_S 10.0
#define EAGER_LEAST ((size_t)64 << 10) /* the transport's chunks over TCP stay below it */

static void print_help(void) {
    puts("usage: terse doctor [--json]\n"
         "       mpirun --tune configs/openmpi.conf … -n RANKS terse doctor [--json] [--deadline SECONDS]\n"
         "\n"
         "Looks for what will make trouble, and says for each finding what mends it.\n"
         "\n"
         "Alone it examines this host: network interfaces, its name, shared and locked memory, open files,\n"
         "processors, mpirun, ompi-server, the recovery flags of configs/openmpi.conf. Under mpirun, given the\n"
         "same hosts and options as the job, it also examines what became of them in every rank: recovery,\n"
         "thread level, binding, eager limits, shared memory; and sends a byte from each rank to each other.\n"
         "\n"
         "  --json              a JSON object a finding: verdict (ok, warn, FAIL), what, where, found, fix\n"
         "  --deadline SECONDS  how long ranks are waited for (10)\n"
         "  --help, --version\n"
         "\n"
         "Exit codes: 0 nothing failed (warnings may be there), 1 something did, 2 the command line is wrong,\n"
         "4 MPI did not start within the deadline.");
}

static void check_settings(ts_doctor_report *report, const ts_mpi_findings *found) {
    static const char *const tune = "mpirun --tune configs/openmpi.conf";
    bool on = found->recovery && found->async_finalize;
    ts_doctor_say(report, on ? TS_DOCTOR_OK : TS_DOCTOR_FAIL, "recovery", on ? NULL : tune, "orte_enable_recovery is %s, "
                  "async_mpi_finalize is %s%s", found->recovery ? "on" : "off", found->async_finalize ? "on" : "off",
                  on ? "" : ": one dead rank ends, or hangs, the others");
    ts_doctor_say(report, found->multiple ? TS_DOCTOR_OK : TS_DOCTOR_FAIL, "thread level", found->multiple ? NULL :
                  "use an Open MPI built with threads (Debian's is)", "MPI_THREAD_MULTIPLE is %s", found->multiple ? "there" :
                  "not there: workers move nothing while they compute");
    bool little = found->tcp_eager_bytes > 0 && found->tcp_eager_bytes < EAGER_LEAST;
    ts_doctor_say(report, little ? TS_DOCTOR_FAIL : TS_DOCTOR_OK, "eager limits", little ?
                  "leave btl_tcp_eager_limit at its default of 65536" : NULL, "TCP %zu bytes, shared memory %zu bytes%s",
                  found->tcp_eager_bytes, found->shared_eager_bytes, little ? ": Open MPI can lock up when a peer dies" : "");
    bool looks = found->sockets_looked_at;
    ts_doctor_say(report, looks ? TS_DOCTOR_OK : TS_DOCTOR_WARN, "sockets", looks ? NULL : tune, "mpi_event_tick_rate is %s",
                  looks ? "set" : "not set: messages over TCP stay small, and slow down when a process has died");
    ts_doctor_say(report, found->shared_memory ? TS_DOCTOR_OK : TS_DOCTOR_WARN, "transport in a host", found->shared_memory ? NULL :
                  "leave vader in --mca btl", found->shared_memory ? "shared memory" : "shared memory is off: TCP, and slower");
}

/* Returns whether all were heard. */
static bool check_contacts(ts_doctor_report *report, const ts_mpi_findings *found, double deadline_s) {
    ts_mpi_contact *contacts = ts_mem_calloc((size_t)found->size, sizeof *contacts);
    if (!contacts || ts_mpi_examine_contacts(found, (uint64_t)(deadline_s * 1e6), contacts) != TERSE_OK) {
        ts_doctor_say(report, TS_DOCTOR_FAIL, "peers", NULL, "out of memory");
        ts_mem_free(contacts);
        return false;
    }
    char missing[300] = "";
    size_t at = 0;
    int heard = 0, slowest = 0;
    for (int r = 0; r < found->size; r++) {
        heard += contacts[r].heard;
        if (contacts[r].heard && contacts[r].seconds > contacts[slowest].seconds) slowest = r;
        if (!contacts[r].heard && at < sizeof missing - 16)
            at += (size_t)snprintf(missing + at, sizeof missing - at, "%s%d", at ? ", " : "", r);
    }
    bool all = heard == found->size;
    if (all) ts_doctor_say(report, TS_DOCTOR_OK, "peers", NULL, "heard all %d ranks within %.0f ms; the last was rank %d on %s",
                           heard, contacts[slowest].seconds * 1e3, slowest, contacts[slowest].host);
    else ts_doctor_say(report, TS_DOCTOR_FAIL, "peers", "see what joins the two hosts (btl_tcp_if_include, firewalls: Open MPI uses "
                       "any port), and whether those ranks run terse doctor, too", "nothing came from rank %s within %g s", missing,
                       deadline_s);
    ts_mem_free(contacts);
    return all;
}

static int conclude(const ts_doctor_report *report, bool alone) {
    if (!report->json && alone)
        printf("%u failed, %u warning%s\n", report->failures, report->warnings, report->warnings == 1 ? "" : "s");
    return report->failures > 0 ? TS_EXIT_FAILED : TS_EXIT_OK;
}

static int under_mpirun(ts_doctor_report *report, double deadline_s) {
    ts_mpi_findings found;
    ts_error error = {""};
    const char *local = getenv("OMPI_COMM_WORLD_LOCAL_RANK");
    if (ts_mpi_examine((uint64_t)(deadline_s * 1e6), &found, &error) != TERSE_OK) {
        fprintf(stderr, "terse doctor: %s\n", error.text);
        return TS_EXIT_FAILED;
    }
    report->terminal = false; /* mpirun gives ranks a terminal of their own, whatever it writes to itself */
    snprintf(report->where, sizeof report->where, "rank %d on %s", found.rank, found.host);
    report->quiet = found.rank != 0; /* one voice for what is well, all for what is not */
    check_settings(report, &found);
    if (!local || strcmp(local, "0") == 0) ts_doctor_host(report, found.interfaces);
    bool all = check_contacts(report, &found, deadline_s);
    int code = conclude(report, false);
    ts_mpi_examine_end(all, code);
    return code;
}

int ts_cmd_doctor(int argc, char **argv) {
    ts_doctor_report report = {.terminal = isatty(STDOUT_FILENO) && !getenv("NO_COLOR")};
    double deadline_s = DEADLINE_S;
    for (int i = 1; i < argc; i++) {
        char *end = NULL;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help();
            return TS_EXIT_OK;
        }
        if (strcmp(argv[i], "--version") == 0) {
            printf("terse %s\n", TS_VERSION);
            return TS_EXIT_OK;
        }
        if (strcmp(argv[i], "--json") == 0) {
            report.json = true;
        } else if (strcmp(argv[i], "--deadline") == 0 && i + 1 < argc) {
            deadline_s = strtod(argv[++i], &end);
            if (end == argv[i] || *end || !(deadline_s > 0 && deadline_s <= 3600)) {
                fprintf(stderr, "terse doctor: --deadline: \"%s\"; allowed: above 0 and at most 3600 seconds\n", argv[i]);
                return TS_EXIT_CONFIG;
            }
        } else {
            fprintf(stderr, "terse doctor: %s: no such option; see terse doctor --help\n", argv[i]);
            return TS_EXIT_CONFIG;
        }
    }
    if (getenv("OMPI_COMM_WORLD_SIZE")) return under_mpirun(&report, deadline_s);
    ts_doctor_launch(&report);
    ts_doctor_host(&report, getenv("OMPI_MCA_btl_tcp_if_include"));
    return conclude(&report, true);
}
