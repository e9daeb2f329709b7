/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/trainer/terminal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/process.h"

#define DEFAULT_WIDTH 80

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
    bool indirect = ts_process_launches(getppid()); /* it stands between us and the real output */
    int real = indirect ? parents(fd) : fd;
    if (real < 0) return terminal;
    struct winsize size;
    terminal.live = isatty(real);
    terminal.colour = terminal.live && !(no_color && *no_color);
    if (terminal.live && ioctl(real, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) terminal.width = size.ws_col;
    if (indirect) close(real);
    return terminal;
}
