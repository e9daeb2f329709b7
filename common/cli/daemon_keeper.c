/* SPDX-License-Identifier: Apache-2.0 */
#include "common/cli/daemon_keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/process.h"
#include "common/cli/daemon_place.h"

#define URI_S 20.0     /* so long ompi-server may take to say where it is */
#define KILL_AFTER_S 3.0

typedef struct {
    const ts_daemon_keeper *options;
    pid_t name_server, launcher; /* 0: has ended */
    int launcher_status;
    double stop_at, kill_at;     /* when to be harder; 0: nobody has told it to end */
} keeping;

static void say(const char *message, const char *format, long value) { ts_log(TS_LOG_INFO, "keeper", message, format, value); }

/* A child that ends with its parent, whatever happens to that. */
static pid_t launch(char *const *words) {
    pid_t parent = getpid(), pid = fork();
    if (pid != 0) return pid;
    sigset_t none;
    sigemptyset(&none);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    execvp(words[0], words);
    fprintf(stderr, "%s: cannot be started: %s\n", words[0], strerror(errno));
    _exit(127);
}

static void reap(keeping *keep) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (pid == keep->launcher) {
            keep->launcher = 0;
            keep->launcher_status = status;
        } else if (pid == keep->name_server) {
            keep->name_server = 0;
            ts_log(TS_LOG_ERROR, "keeper", "ompi-server has ended: no further job can join", "status=%d", status);
        }
    }
}

/* One look at signals and children, for at most `seconds`. */
static void wait_a_while(keeping *keep, double seconds) {
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGTERM);
    sigaddset(&ours, SIGINT);
    sigaddset(&ours, SIGCHLD);
    struct timespec pause = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    int number = sigtimedwait(&ours, NULL, &pause);
    reap(keep);
    if ((number != SIGTERM && number != SIGINT) || keep->stop_at > 0) return;
    ts_daemon_place place = {.dir = ""};
    snprintf(place.dir, sizeof place.dir, "%s", keep->options->dir);
    ts_daemon_look(&place);
    double now = ts_daemon_clock();
    bool asks = ts_daemon_lives(&place.leader) && kill(place.leader.pid, SIGTERM) == 0;
    say("told to end", "server_asked=%ld", asks);
    keep->stop_at = asks ? now + keep->options->stop_s : now;
    keep->kill_at = keep->stop_at + KILL_AFTER_S;
}

static bool has_uri(const char *dir) {
    char text[4096];
    return ts_run_dir_read(dir, TS_RUN_DIR_URI, text, sizeof text, NULL) == TERSE_OK && strchr(text, '\n');
}

static bool start_name_server(keeping *keep) {
    char path[TS_RUN_DIR_PATH_CHARS];
    if (ts_run_dir_path(keep->options->dir, TS_RUN_DIR_URI, path) != TERSE_OK) return false;
    unlink(path);
    char *words[] = {"ompi-server", "--no-daemonize", "-r", path, NULL};
    keep->name_server = launch(words);
    double until = ts_daemon_clock() + URI_S;
    while (keep->name_server > 0 && !has_uri(keep->options->dir) && keep->stop_at == 0 && ts_daemon_clock() < until)
        wait_a_while(keep, 0.05);
    bool up = keep->name_server > 0 && has_uri(keep->options->dir);
    if (!up && keep->stop_at == 0) ts_log(TS_LOG_ERROR, "keeper", "ompi-server does not come up", "seconds=%g", URI_S);
    return up;
}

static void end_name_server(keeping *keep) {
    pid_t pid = keep->name_server;
    if (pid <= 0) return;
    double until = ts_daemon_clock() + KILL_AFTER_S;
    keep->name_server = 0; /* its end is no news now */
    kill(pid, SIGTERM);
    int status;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (ts_daemon_clock() > until) kill(pid, SIGKILL);
        ts_daemon_nap();
    }
}

static void remove_files(const char *dir) {
    ts_run_dir_remove(dir, TS_RUN_DIR_CARD);
    ts_run_dir_remove(dir, TS_RUN_DIR_URI);
    ts_run_dir_remove(dir, TS_RUN_DIR_STATUS);
    ts_run_dir_remove(dir, TS_RUN_DIR_ATTACH);
    ts_run_dir_remove(dir, TS_RUN_DIR_KEEPER);
}

static _Noreturn void keep_daemon(const ts_daemon_keeper *options) {
    keeping keep = {.options = options};
    char text[64];
    int len = snprintf(text, sizeof text, "pid %ld %" PRIu64 "\n", (long)getpid(), ts_process_birth(getpid()));
    terse_status written = ts_run_dir_write(options->dir, TS_RUN_DIR_KEEPER, text, (size_t)len);
    if (written != TERSE_OK) ts_log(TS_LOG_ERROR, "keeper", "the run directory cannot be written to", "dir=\"%s\"", options->dir);
    if (written == TERSE_OK && start_name_server(&keep)) {
        keep.launcher = launch(options->mpirun);
        say("started", "mpirun=%ld", (long)keep.launcher);
    }
    while (keep.launcher > 0) {
        wait_a_while(&keep, 0.2);
        double now = ts_daemon_clock();
        if (keep.launcher <= 0 || keep.stop_at == 0) continue;
        if (now > keep.kill_at) kill(keep.launcher, SIGKILL); /* its ranks end with it */
        else if (now > keep.stop_at) kill(keep.launcher, SIGTERM);
    }
    end_name_server(&keep);
    remove_files(options->dir);
    int status = keep.launcher_status;
    ts_log(TS_LOG_INFO, "keeper", "the daemon has ended", "exit=%d signal=%d", WIFEXITED(status) ? WEXITSTATUS(status) : -1,
           WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* Nothing of the terminal is left. */
static bool detach(const char *dir) {
    char path[TS_RUN_DIR_PATH_CHARS];
    if (ts_run_dir_path(dir, TS_RUN_DIR_LOG, path) != TERSE_OK) return false;
    int nothing = open("/dev/null", O_RDONLY);
    int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600);
    if (nothing < 0 || log < 0) return false;
    bool moved = dup2(nothing, STDIN_FILENO) >= 0 && dup2(log, STDOUT_FILENO) >= 0 && dup2(log, STDERR_FILENO) >= 0;
    close(nothing);
    close(log);
    /* What the caller had open besides, as the ends of pipes, would keep whoever reads from them waiting for us. */
    for (int fd = STDERR_FILENO + 1; fd < 1024; fd++) close(fd);
    return moved && setsid() >= 0;
}

terse_status ts_daemon_keeper_fork(const ts_daemon_keeper *keeper, pid_t *out) {
    fflush(NULL);
    pid_t pid = fork();
    TS_REQUIRE(pid >= 0, TERSE_EIO);
    if (pid > 0) {
        *out = pid;
        return TERSE_OK;
    }
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGTERM);
    sigaddset(&ours, SIGINT);
    sigaddset(&ours, SIGCHLD);
    sigprocmask(SIG_BLOCK, &ours, NULL);
    signal(SIGHUP, SIG_IGN);
    if (!detach(keeper->dir)) _exit(1);
    ts_log_set_name("keeper");
    keep_daemon(keeper);
}
