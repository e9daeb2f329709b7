/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Open MPI was told. Its parameters come from the environment, from files and from mpirun's command line; MPI_T
 * shows what came of all of them.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/net/mpi_internal.h"

#define RECOVERY "orte_enable_recovery"
#define LAYERS "btl"
#define SOCKETS "mpi_event_tick_rate"

/* Reads a variable into `value` of `bytes`, zeroed before. Returns whether it is known. */
static bool read_variable(const char *name, void *value, size_t bytes, size_t element) {
    int provided, index, count = 0;
    bool known = false;
    if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) return false;
    MPI_T_cvar_handle handle;
    if (MPI_T_cvar_get_index(name, &index) == MPI_SUCCESS &&
        MPI_T_cvar_handle_alloc(index, NULL, &handle, &count) == MPI_SUCCESS) {
        memset(value, 0, bytes);
        known = count > 0 && (size_t)count * element <= bytes && MPI_T_cvar_read(handle, value) == MPI_SUCCESS;
        MPI_T_cvar_handle_free(&handle);
    }
    MPI_T_finalize();
    return known;
}

/* As the environment has it, where Open MPI itself reads it only later or elsewhere. */
static const char *from_environment(const char *name) {
    char variable[160];
    snprintf(variable, sizeof variable, "OMPI_MCA_%s", name);
    return getenv(variable);
}

bool ts_mpi_setting_on(const char *name) {
    int enabled = 0;
    const char *set = from_environment(name);
    if (set) return strcmp(set, "0") != 0 && strcmp(set, "false") != 0;
    return read_variable(name, &enabled, sizeof enabled, sizeof enabled) && enabled != 0;
}

size_t ts_mpi_setting_bytes(const char *name) {
    size_t bytes = 0;
    return read_variable(name, &bytes, sizeof bytes, sizeof bytes) ? bytes : 0;
}

void ts_mpi_setting_text(const char *name, char *text, size_t capacity) {
    char value[4096] = "";
    const char *set = from_environment(name);
    if (!set) set = read_variable(name, value, sizeof value - 1, 1) ? value : "";
    snprintf(text, capacity, "%s", set);
}

/*
 * Each connection that breaks, and each that cannot be made again, counts as one less, and when none seems to be left
 * Open MPI looks at its sockets every 10 ms only, or as often as this says.
 */
bool ts_mpi_sockets_looked_at(void) {
    int every_us = -1;
    return read_variable(SOCKETS, &every_us, sizeof every_us, sizeof every_us) && every_us > 0;
}

bool ts_mpi_recovery_on(void) { return ts_mpi_setting_on(RECOVERY); }

/* A list as "tcp,self" names what is used, one as "^tcp" what is not; none means all there is. */
static bool names_shared_memory(const char *list) {
    return strstr(list, "vader") || strstr(list, "sm") || strstr(list, "xpmem");
}

bool ts_mpi_shared_memory_on(void) {
    char set[4096];
    ts_mpi_setting_text(LAYERS, set, sizeof set);
    if (!set[0]) return true;
    return set[0] == '^' ? !names_shared_memory(set) : names_shared_memory(set);
}
