/* SPDX-License-Identifier: Apache-2.0 */
/* Doors, lifelines and the daemon's card: both sides in one process, over the loopback. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/base/log.h"
#include "common/base/process.h"
#include "common/net/card.h"
#include "tests/unit/unit.h"

#define ENTRY 40u
#define VERSION 7u

static const uint8_t token[TS_DOOR_TOKEN_BYTES] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static ts_door_knock proper(uint32_t rank) {
    ts_door_knock knock = {.version = VERSION, .job = 3, .rank = rank, .size = 2, .entry_bytes = ENTRY};
    memcpy(knock.token, token, sizeof token);
    return knock;
}

static int visit(ts_door *door, const ts_door_knock *knock, uint8_t mark) {
    uint8_t entry[ENTRY];
    int fd = -1;
    memset(entry, mark, sizeof entry);
    ck_assert_ok(ts_door_visit(htonl(INADDR_LOOPBACK), ts_door_port(door), knock, entry, now_us() + 2000000, &fd));
    return fd;
}

/* Polls until `known` guests are known, for a while. Returns how many there are in all. */
static size_t poll_until(ts_door *door, size_t known) {
    size_t count = 0, here = 0;
    for (int i = 0; i < 200 && here != known; i++) {
        ts_door_poll(door, now_us());
        ts_door_guest **guests = ts_door_guests(door, &count);
        here = 0;
        for (size_t g = 0; g < count; g++) here += guests[g]->known;
        usleep(1000);
    }
    ck_assert_uint_eq(here, known);
    return count;
}

static const char *nothing_shouted(const void *entry) { return memchr(entry, '!', ENTRY) ? "it shouts" : NULL; }

static ts_door *open_door(void) {
    ts_door *door;
    ck_assert_ok(ts_door_create(token, VERSION, ENTRY, nothing_shouted, &door));
    return door;
}

START_TEST(who_knocks_properly_is_known_and_answered) {
    ts_door *door = open_door();
    ts_door_knock first = proper(0), second = proper(1);
    int a = visit(door, &first, 'a'), b = visit(door, &second, 'b');
    size_t count = poll_until(door, 2);
    ts_door_guest **guests = ts_door_guests(door, &count);
    for (size_t g = 0; g < 2; g++) {
        ck_assert_uint_eq(guests[g]->entry[ENTRY - 1], guests[g]->knock.rank ? 'b' : 'a');
        ts_door_tell(guests[g], TS_DOOR_GRANTED, TERSE_OK, &guests[g]->knock.rank, sizeof(uint32_t));
    }
    ts_door_answer answer;
    uint32_t rank = 9;
    ck_assert_ok(ts_door_hear(b, now_us() + 2000000, &answer, &rank, sizeof rank));
    ck_assert_uint_eq(answer.kind, TS_DOOR_GRANTED);
    ck_assert_uint_eq(rank, 1);
    ck_assert_int_eq(ts_door_hear(b, now_us() + 20000, &answer, &rank, sizeof rank), TERSE_ETIMEDOUT);
    ts_door_say(a, TS_DOOR_ATTACHED);
    bool said = false;
    for (int i = 0; i < 200 && !said; i++) {
        ts_door_poll(door, now_us());
        guests = ts_door_guests(door, &count);
        said = guests[0]->attached_all || guests[1]->attached_all;
        usleep(1000);
    }
    ck_assert(said);
    close(a);
    close(b);
    ts_door_destroy(door);
}
END_TEST

START_TEST(a_closed_lifeline_is_noticed_at_both_ends) {
    ts_door *door = open_door();
    ts_door_knock knock = proper(0);
    int a = visit(door, &knock, 'a');
    size_t count = poll_until(door, 1);
    ts_door_guest *guest = ts_door_guests(door, &count)[0];
    ck_assert(!ts_door_is_cut(guest->fd));
    ck_assert(!ts_door_is_cut(a));
    close(a);
    ck_assert(ts_door_is_cut(guest->fd)); /* at once: before any poll */
    ck_assert(ts_door_poll(door, now_us()));
    ck_assert(guest->gone);
    ck_assert(!ts_door_poll(door, now_us())); /* told once */
    ts_door_dismiss(door, guest);
    int b = visit(door, &knock, 'b');
    poll_until(door, 1);
    ts_door_destroy(door);
    ck_assert(ts_door_is_cut(b));
    close(b);
}
END_TEST

/* The answer to somebody who is turned away. */
static terse_status turned_away(ts_door *door, const ts_door_knock *knock, uint8_t mark) {
    int fd = visit(door, knock, mark);
    ts_door_answer answer = {0};
    char reason[200] = "";
    for (int i = 0; i < 50; i++) {
        ts_door_poll(door, now_us());
        usleep(500);
    }
    size_t count;
    ts_door_guests(door, &count);
    ck_assert_uint_eq(count, 0);
    terse_status heard = ts_door_hear(fd, now_us() + 500000, &answer, reason, sizeof reason - 1);
    close(fd);
    if (heard != TERSE_OK) return heard;
    ck_assert_uint_eq(answer.kind, TS_DOOR_REFUSED);
    ck_assert(reason[0]);
    return (terse_status)answer.status;
}

START_TEST(wrong_token_version_rank_and_entry_are_turned_away) {
    ts_door *door = open_door();
    ts_log_set_level(TS_LOG_NONE);
    ts_door_knock knock = proper(0);
    knock.token[15] ^= 1;
    ck_assert_int_eq(turned_away(door, &knock, 'x'), TERSE_EPEER);
    knock = proper(0);
    knock.version++;
    ck_assert_int_eq(turned_away(door, &knock, 'x'), TERSE_EVERSION);
    knock = proper(2); /* of two */
    ck_assert_int_eq(turned_away(door, &knock, 'x'), TERSE_ECORRUPT);
    knock = proper(1);
    ck_assert_int_eq(turned_away(door, &knock, '!'), TERSE_ECORRUPT);
    knock.job = TS_DOOR_SERVER; /* of whom nothing but the line is wanted */
    int server = visit(door, &knock, '!');
    poll_until(door, 1);
    close(server);
    ts_log_set_level(TS_LOG_INFO);
    ts_door_destroy(door);
}
END_TEST

START_TEST(who_says_nothing_is_let_go) {
    ts_door *door = open_door();
    int fds[80];
    for (int i = 0; i < 80; i++) { /* more than may stand there without a word */
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = ts_door_port(door), .sin_addr = {htonl(INADDR_LOOPBACK)}};
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        ck_assert_int_eq(connect(fds[i], (struct sockaddr *)&to, sizeof to), 0);
        ts_door_poll(door, now_us());
    }
    size_t count;
    ts_door_guests(door, &count);
    ck_assert_uint_le(count, 64);
    ck_assert_uint_ge(count, 1);
    ts_door_poll(door, now_us() + 10000000);
    ts_door_guests(door, &count);
    ck_assert_uint_eq(count, 0);
    ts_door_knock knock = proper(0);
    int a = visit(door, &knock, 'a'); /* and others find their way again */
    poll_until(door, 1);
    close(a);
    for (int i = 0; i < 80; i++) close(fds[i]);
    ts_door_destroy(door);
}
END_TEST

START_TEST(nobody_behind_the_door) {
    ts_door *door = open_door();
    ts_door_knock knock = proper(0);
    uint8_t entry[ENTRY] = {0};
    uint16_t port = ts_door_port(door);
    int fd = -1;
    ts_door_destroy(door);
    ck_assert_int_eq(ts_door_visit(htonl(INADDR_LOOPBACK), port, &knock, entry, now_us() + 500000, &fd), TERSE_EPEER);
    ck_assert_int_eq(fd, -1);
}
END_TEST

/* ---- the card and its directory ------------------------------------------------------------------------------------- */

static void make_dir(char *dir) {
    strcpy(dir, "/tmp/terse-card-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void remove_dir(const char *dir) {
    ts_run_dir_remove(dir, TS_RUN_DIR_CARD);
    ck_assert_int_eq(rmdir(dir), 0);
}

START_TEST(a_card_is_read_as_written) {
    char dir[40];
    make_dir(dir);
    ts_bell_address doors[2] = {{.port = htons(4711), .networks = 1}, {.port = htons(65535)}};
    memset(doors[0].host, 0xa5, sizeof doors[0].host);
    doors[0].network[0].address = inet_addr("192.0.2.7");
    doors[0].network[0].mask = inet_addr("255.255.255.0");
    ts_card card = {.wire = 9, .servers = 2, .leader = 1, .pid = 77, .birth = 123456, .doors = doors}, read = {0};
    memcpy(card.token, token, sizeof token);
    ts_dead_set_add(&card.dead, 0);
    ts_error error = {""};
    ck_assert_int_eq(ts_card_read(dir, &read, &error), TERSE_ENOTFOUND);
    ck_assert_ok(ts_card_write(dir, &card));
    ck_assert_ok(ts_card_read(dir, &read, &error));
    ck_assert_uint_eq(read.servers, 2);
    ck_assert_uint_eq(read.wire, 9);
    ck_assert(read.pid == 77 && read.birth == 123456 && read.leader == 1);
    ck_assert(read.dead.count == 1 && ts_dead_set_has(&read.dead, 0) && !ts_dead_set_has(&read.dead, 1));
    ck_assert_mem_eq(read.token, token, sizeof token);
    ck_assert_mem_eq(read.doors, doors, sizeof doors);
    ts_card_free(&read);
    struct stat info;
    char path[100];
    snprintf(path, sizeof path, "%s/%s", dir, TS_RUN_DIR_CARD);
    ck_assert_int_eq(stat(path, &info), 0);
    ck_assert_uint_eq(info.st_mode & 0777, 0600);
    remove_dir(dir);
}
END_TEST

/* The card of this process, on a host of the given first byte, if it was born `later`. */
static void leave_card(const char *dir, uint8_t host, uint64_t later) {
    ts_bell_address door = {.port = htons(4711)};
    ts_card card = {.wire = 9, .servers = 1, .pid = (uint64_t)getpid(), .birth = ts_process_birth(getpid()) + later, .doors = &door};
    memset(door.host, host, sizeof door.host);
    memcpy(card.token, token, sizeof token);
    ck_assert_ok(ts_card_write(dir, &card));
}

START_TEST(a_card_whose_process_lives_keeps_others_out) {
    char dir[40], wanted[100];
    ts_error error = {""};
    ts_bell_address own = {.port = htons(4712)};
    make_dir(dir);
    memset(own.host, 1, sizeof own.host);
    ck_assert_ok(ts_card_vacant(dir, &own, &error));
    leave_card(dir, 1, 0);
    ck_assert_status(ts_card_vacant(dir, &own, &error), TERSE_ESTATE);
    snprintf(wanted, sizeof wanted, "a daemon runs in %s already (process %ld)", dir, (long)getpid());
    ck_assert_msg(strncmp(error.text, wanted, strlen(wanted)) == 0, "%s", error.text);
    leave_card(dir, 1, 1); /* another process has the number now */
    ck_assert_ok(ts_card_vacant(dir, &own, &error));
    leave_card(dir, 2, 0);
    ck_assert_ok(ts_card_vacant(dir, &own, &error));
    ck_assert_ok(ts_run_dir_write(dir, TS_RUN_DIR_CARD, "pid 1 1\n", 8));
    ck_assert_ok(ts_card_vacant(dir, &own, &error));
    remove_dir(dir);
}
END_TEST

START_TEST(a_card_is_removed_by_its_owner_alone) {
    char dir[40];
    uint8_t other[TS_DOOR_TOKEN_BYTES];
    ts_card read = {0};
    ts_error error = {""};
    make_dir(dir);
    memcpy(other, token, sizeof other);
    other[sizeof other - 1] ^= 1;
    leave_card(dir, 1, 0);
    ts_card_remove(dir, other);
    ck_assert_ok(ts_card_read(dir, &read, &error));
    ts_card_free(&read);
    leave_card(dir, 1, 1); /* of another server of the daemon, which leads now */
    ts_card_remove(dir, token);
    ck_assert_ok(ts_card_read(dir, &read, &error));
    ts_card_free(&read);
    leave_card(dir, 1, 0);
    ts_card_remove(dir, token);
    ck_assert_status(ts_card_read(dir, &read, &error), TERSE_ENOTFOUND);
    ts_card_remove(dir, token);
    remove_dir(dir);
}
END_TEST

START_TEST(bad_cards_are_refused) {
#define TOKEN "token 000102030405060708090a0b0c0d0e0f\n"
#define HOST "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
#define GOOD "terse-daemon 3\n" TOKEN "server 0 " HOST " 1 -\n"
    static const char *const bad[] = {"", "terse-daemon 1\n", "terse-daemon 3\n", "terse-daemon 3\ntoken 00\nserver 0 00 1 -\n",
                                      "terse-daemon 3\n" TOKEN, "\xff\xfe\n\n", "terse-daemon 3\n" TOKEN "server 1 " HOST " 1 -\n",
                                      "terse-daemon 2\n" TOKEN "server 0 " HOST " 1 -\n", GOOD "dead 1\n", GOOD "leader 1\n"};
    char dir[40];
    make_dir(dir);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ts_card card = {0};
        ts_error error = {""};
        char sealed[400]; /* so that it is not for want of that */
        int len = snprintf(sealed, sizeof sealed, "%sseal %016llx\n", bad[i], (unsigned long long)XXH3_64bits(bad[i], strlen(bad[i])));
        ck_assert_ok(ts_run_dir_write(dir, TS_RUN_DIR_CARD, sealed, (size_t)len));
        ck_assert_int_eq(ts_card_read(dir, &card, &error), TERSE_ECORRUPT);
        ck_assert_ptr_nonnull(strstr(error.text, dir));
        ck_assert_ptr_null(card.doors);
    }
    remove_dir(dir);
}
END_TEST

START_TEST(a_flipped_bit_or_a_missing_byte_of_a_card_is_found) {
    char dir[40], path[100], text[1000];
    make_dir(dir);
    ts_bell_address doors[1] = {{.port = htons(4711)}};
    ts_card card = {.wire = 9, .servers = 1, .pid = 77, .birth = 123456, .doors = doors};
    ck_assert_ok(ts_card_write(dir, &card));
    snprintf(path, sizeof path, "%s/%s", dir, TS_RUN_DIR_CARD);
    FILE *file = fopen(path, "r");
    size_t len = fread(text, 1, sizeof text, file);
    fclose(file);
    for (size_t bit = 0; bit < 8 * len + len; bit++) { /* then each shorter length */
        ts_card read = {0};
        ts_error error = {""};
        size_t bytes = bit < 8 * len ? len : bit - 8 * len;
        if (bit < 8 * len) text[bit / 8] = (char)(text[bit / 8] ^ (1 << bit % 8));
        ck_assert_ok(ts_run_dir_write(dir, TS_RUN_DIR_CARD, text, bytes));
        ck_assert_msg(ts_card_read(dir, &read, &error) == TERSE_ECORRUPT, "bit %zu of %zu", bit, 8 * len);
        ck_assert_msg(strstr(error.text, path) && strstr(error.text, "damaged"), "%s", error.text);
        if (bit < 8 * len) text[bit / 8] = (char)(text[bit / 8] ^ (1 << bit % 8));
    }
    remove_dir(dir);
}
END_TEST

START_TEST(directories_that_others_may_enter_are_refused) {
    char dir[40], inner[60];
    ts_error error = {""};
    make_dir(dir);
    ck_assert_ok(ts_run_dir_check(dir, &error));
    ck_assert_int_eq(chmod(dir, 0710), 0);
    ck_assert_int_eq(ts_run_dir_check(dir, &error), TERSE_EPEER);
    ck_assert_ptr_nonnull(strstr(error.text, "0710"));
    ck_assert_int_eq(chmod(dir, 0700), 0);
    snprintf(inner, sizeof inner, "%s/a/b", dir);
    ck_assert_int_eq(ts_run_dir_check(inner, &error), TERSE_ENOTFOUND);
    ck_assert_ok(ts_run_dir_make(inner, &error));
    ck_assert_ok(ts_run_dir_make(inner, &error)); /* again: it is there */
    ck_assert_int_eq(ts_run_dir_check("/dev/null", &error), TERSE_EPEER);
    if (geteuid() != 0) ck_assert_int_eq(ts_run_dir_check("/", &error), TERSE_EPEER);
    ck_assert_int_eq(rmdir(inner), 0);
    snprintf(inner, sizeof inner, "%s/a", dir);
    ck_assert_int_eq(rmdir(inner), 0);
    ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

TCase *test_door(void);
TCase *test_door(void) {
    TCase *tcase = tcase_create("door");
    tcase_add_test(tcase, who_knocks_properly_is_known_and_answered);
    tcase_add_test(tcase, a_closed_lifeline_is_noticed_at_both_ends);
    tcase_add_test(tcase, wrong_token_version_rank_and_entry_are_turned_away);
    tcase_add_test(tcase, who_says_nothing_is_let_go);
    tcase_add_test(tcase, nobody_behind_the_door);
    tcase_add_test(tcase, a_card_is_read_as_written);
    tcase_add_test(tcase, a_card_whose_process_lives_keeps_others_out);
    tcase_add_test(tcase, a_card_is_removed_by_its_owner_alone);
    tcase_add_test(tcase, bad_cards_are_refused);
    tcase_add_test(tcase, a_flipped_bit_or_a_missing_byte_of_a_card_is_found);
    tcase_add_test(tcase, directories_that_others_may_enter_are_refused);
    return tcase;
}
