/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/trainer/terminal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DEFAULT_WIDTH 80

/* Whether our parent is Open MPI's launcher, which stands between us and the real output. */
static bool below_mpirun(void) {
    static const char *const launchers[] = {"mpirun", "mpiexec", "orterun", "orted", "prterun", "prted"};
    char path[64], name[64] = "";
    snprintf(path, sizeof path, "/proc/%ld/comm", (long)getppid());
    FILE *file = fopen(path, "r");
    if (!file) return false;
    if (!fgets(name, sizeof name, file)) name[0] = 0;
    fclose(file);
    name[strcspn(name, "\n")] = 0;
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++)
        if (strcmp(name, launchers[i]) == 0) return true;
    return false;
}

/* The terminal behind mpirun's descriptor, or -1. Close it. */
static int parents(int fd) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)getppid(), fd);
    return open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
}

ts_terminal ts_terminal_look(int fd) {
    ts_terminal terminal = {.width = DEFAULT_WIDTH};
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    if (!isatty(fd) || !term || strcmp(term, "dumb") == 0) return terminal;
    bool indirect = below_mpirun();
    int real = indirect ? parents(fd) : fd;
    if (real < 0) return terminal;
    struct winsize size;
    terminal.live = isatty(real);
    terminal.colour = terminal.live && !(no_color && *no_color);
    if (terminal.live && ioctl(real, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) terminal.width = size.ws_col;
    if (indirect) close(real);
    return terminal;
}
