/* SPDX-License-Identifier: Apache-2.0 */
#include "common/net/card.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/base/mem.h"
#include "common/base/process.h"

#define CARD_VERSION 3

void ts_card_free(ts_card *card) {
    ts_mem_free(card->doors);
    *card = (ts_card){0};
}

static void put_hex(FILE *out, const uint8_t *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) fprintf(out, "%02x", bytes[i]);
}

static void put_door(FILE *out, uint32_t number, const ts_bell_address *door) {
    fprintf(out, "server %" PRIu32 " ", number);
    put_hex(out, door->host, sizeof door->host);
    fprintf(out, " %u ", ntohs(door->port));
    for (uint16_t i = 0; i < door->networks && i < TS_BELL_ADDRESSES; i++) {
        char address[INET_ADDRSTRLEN], mask[INET_ADDRSTRLEN];
        struct in_addr a = {.s_addr = door->network[i].address}, m = {.s_addr = door->network[i].mask};
        inet_ntop(AF_INET, &a, address, sizeof address);
        inet_ntop(AF_INET, &m, mask, sizeof mask);
        fprintf(out, "%s%s/%s", i ? "," : "", address, mask);
    }
    fprintf(out, "%s\n", door->networks ? "" : "-");
}

terse_status ts_card_write(const char *dir, const ts_card *card) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    TS_REQUIRE(out, TERSE_ENOMEM);
    fprintf(out, "terse-daemon %d\npid %" PRIu64 " %" PRIu64 "\nleader %" PRIu32 "\ntoken ", CARD_VERSION, card->pid, card->birth,
            card->leader);
    put_hex(out, card->token, sizeof card->token);
    fprintf(out, "\nwire %" PRIu32 "\n", card->wire);
    for (uint32_t s = 0; s < card->servers; s++) put_door(out, s, &card->doors[s]);
    for (uint32_t s = 0; s < card->servers; s++)
        if (ts_dead_set_has(&card->dead, s)) fprintf(out, "dead %" PRIu32 "\n", s);
    if (fflush(out) == 0 && text) fprintf(out, "seal %016" PRIx64 "\n", (uint64_t)XXH3_64bits(text, bytes));
    terse_status status = fclose(out) == 0 && text ? TERSE_OK : TERSE_ENOMEM;
    if (status == TERSE_OK) status = ts_run_dir_write(dir, TS_RUN_DIR_CARD, text, bytes);
    free(text);
    return status;
}

static bool take_hex(const char *text, uint8_t *bytes, size_t count) {
    if (strlen(text) != 2 * count) return false;
    for (size_t i = 0; i < count; i++) {
        char two[3] = {text[2 * i], text[2 * i + 1], 0}, *end;
        bytes[i] = (uint8_t)strtoul(two, &end, 16);
        if (end != two + 2) return false;
    }
    return true;
}

/* "192.0.2.1/255.255.255.0,…" or "-". */
static bool take_networks(char *text, ts_bell_address *door) {
    if (strcmp(text, "-") == 0) return true;
    char *rest = NULL;
    for (char *one = strtok_r(text, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
        char *slash = strchr(one, '/');
        struct in_addr address, mask;
        if (!slash || door->networks == TS_BELL_ADDRESSES) return false;
        *slash = '\0';
        if (inet_pton(AF_INET, one, &address) != 1 || inet_pton(AF_INET, slash + 1, &mask) != 1) return false;
        door->network[door->networks].address = address.s_addr;
        door->network[door->networks++].mask = mask.s_addr;
    }
    return true;
}

static bool take_door(const char *line, ts_card *card) {
    char host[2 * TS_BELL_HOST_BYTES + 1], networks[TS_BELL_ADDRESSES * 2 * INET_ADDRSTRLEN + 1];
    unsigned number, port;
    if (card->servers == TS_CARD_SERVERS_MOST) return false;
    if (sscanf(line, "server %u %96s %u %192s", &number, host, &port, networks) != 4) return false;
    if (number != card->servers || port == 0 || port > 65535) return false;
    ts_bell_address *doors = ts_mem_realloc(card->doors, number + 1u, sizeof *doors);
    if (!doors) return false;
    card->doors = doors;
    doors[number] = (ts_bell_address){.port = htons((uint16_t)port)};
    card->servers++;
    return take_hex(host, doors[number].host, TS_BELL_HOST_BYTES) && take_networks(networks, &doors[number]);
}

static bool take_line(const char *line, ts_card *card, bool *has_token) {
    char hex[2 * TS_DOOR_TOKEN_BYTES + 1];
    uint32_t number;
    if (sscanf(line, "pid %" SCNu64 " %" SCNu64, &card->pid, &card->birth) == 2) return true;
    if (sscanf(line, "leader %" SCNu32, &card->leader) == 1) return true;
    if (sscanf(line, "wire %" SCNu32, &card->wire) == 1) return true;
    if (sscanf(line, "dead %" SCNu32, &number) == 1) {
        ts_dead_set_add(&card->dead, number);
        return number < card->servers;
    }
    if (sscanf(line, "token %32s", hex) == 1) {
        *has_token = take_hex(hex, card->token, sizeof card->token);
        return *has_token;
    }
    return take_door(line, card);
}

/* Whether the last line says what is before it, which is then the text. */
static bool take_seal(char *text) {
    char wanted[24];
    size_t len = strlen(text), sealed = len;
    if (len == 0 || text[len - 1] != '\n') return false;
    for (sealed--; sealed > 0 && text[sealed - 1] != '\n';) sealed--;
    snprintf(wanted, sizeof wanted, "seal %016" PRIx64 "\n", (uint64_t)XXH3_64bits(text, sealed));
    if (strcmp(text + sealed, wanted) != 0) return false;
    text[sealed] = '\0';
    return true;
}

static bool take_text(char *text, ts_card *card) {
    if (!take_seal(text)) return false;
    char *rest = NULL;
    int version = 0;
    bool has_token = false;
    char *line = strtok_r(text, "\n", &rest);
    if (!line || sscanf(line, "terse-daemon %d", &version) != 1 || version != CARD_VERSION) return false;
    while ((line = strtok_r(NULL, "\n", &rest)) != NULL) {
        if (!take_line(line, card, &has_token)) return false;
    }
    return has_token && card->leader < card->servers;
}

terse_status ts_card_read(const char *dir, ts_card *card, ts_error *error) {
    TS_TRY(ts_run_dir_check(dir, error));
    char *text = ts_mem_calloc(TS_CARD_CHARS, 1);
    TS_REQUIRE(text, ts_error_set(error, TERSE_ENOMEM, "no memory for the daemon's card"));
    ts_card read = {0};
    terse_status status = ts_run_dir_read(dir, TS_RUN_DIR_CARD, text, TS_CARD_CHARS, NULL);
    if (status == TERSE_ENOTFOUND) {
        status = ts_error_set(error, status, "%s holds no daemon: none was started there, or it has ended", dir);
    } else if (status != TERSE_OK) {
        status = ts_error_set(error, status, "%s/%s cannot be read: %s", dir, TS_RUN_DIR_CARD, terse_strerror(status));
    } else if (!take_text(text, &read)) {
        status = ts_error_set(error, TERSE_ECORRUPT, "%s/%s is damaged, or no daemon's card of this version", dir, TS_RUN_DIR_CARD);
    }
    ts_mem_free(text);
    if (status != TERSE_OK) {
        ts_card_free(&read);
        return status;
    }
    *card = read;
    return TERSE_OK;
}

terse_status ts_card_vacant(const char *dir, const ts_bell_address *own, ts_error *error) {
    ts_card card = {0};
    if (ts_card_read(dir, &card, NULL) != TERSE_OK) return TERSE_OK;
    bool here = ts_bell_same_host(&card.doors[card.leader], own) && card.pid > 0 && card.pid <= INT32_MAX;
    bool lives = here && card.birth > 0 && ts_process_birth((pid_t)card.pid) == card.birth;
    uint64_t pid = card.pid;
    ts_card_free(&card);
    if (!lives) return TERSE_OK;
    return ts_error_set(error, TERSE_ESTATE, "a daemon runs in %s already (process %" PRIu64 "); end it first (terse stop %s), or name "
                        "another daemon.dir", dir, pid, dir);
}

void ts_card_remove(const char *dir, const uint8_t token[TS_DOOR_TOKEN_BYTES]) {
    ts_card card = {0};
    if (ts_card_read(dir, &card, NULL) != TERSE_OK) return;
    bool own = card.pid == (uint64_t)getpid() && card.birth == ts_process_birth(getpid());
    if (own && memcmp(card.token, token, sizeof card.token) == 0) ts_run_dir_remove(dir, TS_RUN_DIR_CARD);
    ts_card_free(&card);
}
