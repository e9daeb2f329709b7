/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server's core under scripted workers: frames built by hand, over the
 * in-process transport. Everything asserts; a failure fails the test.
 */
#ifndef TS_SIM_SERVER_RIG_H
#define TS_SIM_SERVER_RIG_H

#include "common/net/sim_transport.h"
#include "common/wire/frame.h"
#include "server/server.h"

#define RIG_WORKERS_MAX 8
#define RIG_INBOX 256
#define RIG_ELEMS 105 /* tensor a: 100 elements in slices of 64 and 36; tensor b: 5 */
#define RIG_SLICES 3
#define RIG_SECOND 1000000u

/* What follows the rig's own keys in the config. */
#define RIG_DENSE "optimizer: {name: sgd, lr: 0.5, momentum: 0}\npush: {default: dense}\npull: {default: dense}\n"
#define RIG_SPARSE                                                                                                       \
    "optimizer: {name: sgd, lr: 0.5, momentum: 0.5}\npush: {default: topk:0.2 | fp32 | raw32}\n"                     \
    "pull: {default: topk:0.1 | fp16 | raw32}\n"
#define RIG_ENDS "# a lost worker is the end\n"
#define RIG_SLOW_START "# who has not spoken yet has 9 s, not 4\n"
#define RIG_BACKUP "# rounds close with the first two\n"
#define RIG_AVERAGE "optimizer: {name: none}\npush: {default: dense}\npull: {default: dense}\n"


typedef struct {
    ts_buffer *frames[RIG_INBOX];
    uint32_t count;
} rig_inbox;

typedef struct {
    ts_sim_network *network; /* peer 0 is the server, 1 + w worker w */
    ts_config *config;
    ts_contract *contract;
    ts_server *server;
    ts_scratch *scratch;
    uint32_t workers;
    rig_inbox in[RIG_WORKERS_MAX];
} rig;

extern const size_t rig_slice_first[RIG_SLICES], rig_slice_elems[RIG_SLICES];

rig *rig_create(uint32_t workers, const char *more); /* [own] */
/* With another executor than the inline one; [borrow] until destroy. */
rig *rig_create_on(uint32_t workers, const char *more, ts_executor *executor);
void rig_destroy(rig *r);
ts_config *rig_config(const char *more);                                       /* [own] */
ts_contract *rig_contract(const ts_config *config, int64_t extent_of_a);       /* [own] */
/* Delivers everything that is due within so many microseconds, ticking every 50 ms. */
void rig_run(rig *r, uint64_t us);
/* A process comes in, as ts_sim_come; it speaks as the rig's worker of the number that is returned. */
uint32_t rig_come(rig *r, uint32_t wanted, uint32_t *worker);
/* All workers attached and the parameters set (params: [out]); inboxes empty. */
void rig_attach_all(rig *r, float *params);

/* How many frames of a kind the worker got; the last of them, parsed and to be released, when out is given. */
uint32_t rig_got(rig *r, uint32_t w, Terse__Header__BodyCase kind, ts_frame *out);
void rig_forget(rig *r);
/* Applies every Data frame of the inbox to a replica, as a worker does. Returns the version reached by slice 0. */
uint64_t rig_apply(rig *r, uint32_t w, float *replica);
/* The status of the last Ack a worker got, and its slices as a bit mask. step may be NULL. */
terse_status rig_last_ack(rig *r, uint32_t w, unsigned *slices, uint64_t *step);

/* What workers say. slices: bit mask. */
void rig_send(rig *r, uint32_t w, ts_buffer *frame); /* takes the frame over */
void rig_send_body(rig *r, uint32_t w, Terse__Header__BodyCase kind, void *body);
void rig_hello(rig *r, uint32_t w, const ts_contract *contract, uint32_t protocol);
void rig_send_contract(rig *r, uint32_t w, const ts_contract *contract);
ts_buffer *rig_raw_bundle(Terse__Header__BodyCase kind, void *body, const float *values, unsigned slices);
void rig_set(rig *r, uint32_t w, const float *values);
/* Encodes a whole gradient with nothing left over from earlier steps; the frame has some of its slices. */
ts_buffer *rig_push_frame(rig *r, uint32_t w, uint64_t step, const float *gradient, unsigned slices, bool pull);
void rig_push(rig *r, uint32_t w, uint64_t step, const float *gradient);
void rig_pull(rig *r, uint32_t w, uint64_t have, uint64_t want, bool snapshot, bool params);
void rig_done(rig *r, uint32_t w, uint64_t steps);
void rig_bye(rig *r, uint32_t w);
void rig_heartbeat(rig *r, uint32_t w);

/* Multiples of 1/4, so that sums and means of few are exact. */
void rig_gradient(uint32_t w, uint64_t step, float *out);
void rig_initial(float *out);

#endif
