/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Open MPI was told. Its parameters come from the environment, from files and from mpirun's command line; MPI_T
 * shows what came of all of them.
 */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/net/mpi_internal.h"

#define RECOVERY "orte_enable_recovery"
#define LAYERS "btl"

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

bool ts_mpi_recovery_on(void) {
    int enabled = 0;
    const char *set = getenv("OMPI_MCA_" RECOVERY);
    if (set) return strcmp(set, "0") != 0 && strcmp(set, "false") != 0;
    return read_variable(RECOVERY, &enabled, sizeof enabled, sizeof enabled) && enabled != 0;
}

/* A list as "tcp,self" names what is used, one as "^tcp" what is not; none means all there is. */
static bool names_shared_memory(const char *list) {
    return strstr(list, "vader") || strstr(list, "sm") || strstr(list, "xpmem");
}

bool ts_mpi_shared_memory_on(void) {
    char list[4096] = "";
    const char *set = getenv("OMPI_MCA_" LAYERS);
    if (!set) set = read_variable(LAYERS, list, sizeof list - 1, 1) ? list : "";
    if (!set[0]) return true;
    return set[0] == '^' ? !names_shared_memory(set) : names_shared_memory(set);
}
