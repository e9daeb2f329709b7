/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Knocks at a daemon's door with whatever names it is given, as no program of Terse would, and tells the answer; run by
 * cases_attach.py. Usage: knock RUN_DIR JOB HOST. A name as long as its room has no 0 behind it.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/net/card.h"
#include "common/net/mpi_internal.h"

#define PATIENCE_US 5000000u

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static void put(char *to, size_t room, const char *name) {
    size_t len = strlen(name);
    memcpy(to, name, len < room ? len : room);
}

int main(int argc, char **argv) {
    ts_card card = {0};
    ts_error error = {""};
    if (argc != 4 || ts_card_read(argv[1], &card, &error) != TERSE_OK) {
        fprintf(stderr, "knock: %s\n", argc == 4 ? error.text : "usage: knock RUN_DIR JOB HOST");
        return 2;
    }
    ts_mpi_entry entry = {.member = {.role = TS_ROLE_WORKER}};
    put(entry.member.job, sizeof entry.member.job, argv[2]);
    put(entry.member.host, sizeof entry.member.host, argv[3]);
    ts_door_knock knock = {.version = card.wire, .job = TS_DOOR_NO_JOB, .size = 1, .worker = TS_DOOR_NO_WORKER,
                           .entry_bytes = sizeof entry};
    memcpy(knock.token, card.token, sizeof knock.token);
    pid_t pid = getpid();
    memcpy(knock.party, &pid, sizeof pid);
    int fd = -1;
    char words[TS_ERROR_CHARS + sizeof(ts_mpi_grant)] = ""; /* whichever comes */
    ts_door_answer answer = {0};
    uint32_t address = ts_bell_way(&card.doors[0], &card.doors[0]);
    terse_status status = ts_door_visit(address, card.doors[0].port, &knock, &entry, now_us() + PATIENCE_US, &fd);
    if (status == TERSE_OK) status = ts_door_hear(fd, now_us() + PATIENCE_US, &answer, words, sizeof words - 1);
    ts_card_free(&card);
    if (status != TERSE_OK) printf("no answer: %s\n", terse_status_name(status));
    else if (answer.kind == TS_DOOR_REFUSED) printf("refused: %s\n", words);
    else printf("let in\n");
    return 0;
}
