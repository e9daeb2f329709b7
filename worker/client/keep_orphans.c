/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/client/keep_orphans.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/keep/keep.h"

static bool is_free(int folder, const char *name) {
    int file = openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) return false;
    struct flock holder = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    bool free = fcntl(file, F_GETLK, &holder) == 0 && holder.l_type == F_UNLCK;
    close(file);
    return free;
}

/* Keeps the lowest ones. */
static size_t insert(uint32_t *list, size_t count, size_t most, uint32_t worker) {
    size_t at = count;
    while (at > 0 && list[at - 1] > worker) at--;
    if (at == most) return count;
    if (count == most) count--;
    memmove(list + at + 1, list + at, (count - at) * sizeof *list);
    list[at] = worker;
    return count + 1;
}

size_t ts_keep_orphans(const char *dir, uint32_t *worker, size_t most) {
    DIR *folder = opendir(dir);
    size_t count = 0;
    if (!folder) return 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        uint32_t number;
        if (ts_keep_name(entry->d_name, &number, NULL) && is_free(dirfd(folder), entry->d_name)) count = insert(worker, count, most, number);
    }
    closedir(folder);
    return count;
}
