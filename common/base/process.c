/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/process.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"

/* A file of /proc, whole or cut at the capacity, with a 0 at its end. Returns its bytes; 0: there is none. */
static size_t read_file(pid_t pid, const char *name, char *text, size_t capacity) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/%s", (long)pid, name);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    size_t got = fread(text, 1, capacity - 1, file);
    fclose(file);
    text[got] = '\0';
    return got;
}

bool ts_process_look(pid_t pid, ts_process *out) {
    char text[1024];
    if (!read_file(pid, "stat", text, sizeof text)) return false;
    char *at = strrchr(text, ')'); /* the name before it may hold anything */
    if (!at || at[1] != ' ' || !at[2] || at[2] == 'Z' || at[2] == 'X') return false;
    *out = (ts_process){.pid = pid, .state = at[2], .parent = (pid_t)strtol(at + 3, NULL, 10)};
    at += 2;
    for (int field = 3; field < 22 && at; field++) at = strchr(at + 1, ' '); /* starttime is the 22nd */
    if (at) out->birth = strtoull(at, NULL, 10);
    return out->birth != 0;
}

uint64_t ts_process_birth(pid_t pid) {
    ts_process process;
    return ts_process_look(pid, &process) ? process.birth : 0;
}

size_t ts_process_children(pid_t parent, ts_process *out, size_t most) {
    DIR *all = opendir("/proc");
    if (!all) return 0;
    size_t count = 0;
    for (struct dirent *entry; count < most && (entry = readdir(all));) {
        char *end;
        long pid = strtol(entry->d_name, &end, 10);
        if (pid > 0 && !*end && ts_process_look((pid_t)pid, &out[count]) && out[count].parent == parent) count++;
    }
    closedir(all);
    return count;
}

#define ENVIRONMENT_BYTES ((size_t)1 << 20)

bool ts_process_variable(pid_t pid, const char *name, char *value, size_t capacity) {
    char *text = ts_mem_calloc(1, ENVIRONMENT_BYTES);
    if (!text) return false;
    size_t got = read_file(pid, "environ", text, ENVIRONMENT_BYTES), name_chars = strlen(name);
    bool found = false;
    for (const char *at = text; !found && at < text + got; at += strlen(at) + 1) {
        if (strncmp(at, name, name_chars) != 0 || at[name_chars] != '=') continue;
        found = (size_t)snprintf(value, capacity, "%s", at + name_chars + 1) < capacity;
        break;
    }
    ts_mem_free(text);
    return found;
}

bool ts_process_launches(pid_t pid) {
    static const char *const launchers[] = {"mpirun", "mpiexec", "orterun", "orted", "prterun", "prted"};
    char name[64];
    if (!read_file(pid, "comm", name, sizeof name)) return false;
    name[strcspn(name, "\n")] = '\0';
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++)
        if (strcmp(name, launchers[i]) == 0) return true;
    return false;
}
