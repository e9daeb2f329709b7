/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the MPI back end share.
 *
 *   mpi_start      MPI_Init under a watchdog, and a watch over calls that do not return
 *   mpi_settings   what Open MPI was told
 *   mpi_rollcall   who is there, in which role, on which host
 *   mpi_peers      the table of peers
 *   mpi_daemon     a server's side of jobs that join later: knocks, accepts, lifelines
 *   mpi_daemon_lead  which server does that
 *   mpi_rescue     ends an accept whose other side has died
 *   mpi_attach     a worker's side
 *   mpi_requests   requests under way, and those that are stuck for ever
 *   mpi_outgoing   queues, chunks, credits
 *   mpi_incoming   probing, receiving, handing on in order
 *   mpi_transport  the transport's operations over these
 *
 * Between two ranks, on the transport's own communicator, messages carry their kind in the tag:
 *
 *   WHOLE    a frame                                           (most messages: no byte is added to a frame)
 *   PREFIX   u64 length of a frame that follows in CHUNKs      (so that its size is checked before memory is taken),
 *            u64 the sender's window, so that the receiver knows how seldom it may credit,
 *            u64 how many of the frame's first bytes stand here, these, and some of its last (so that what lies
 *            between them is sent from where it is; none of either for a frame that lies in a row)
 *   CHUNK    the next bytes of that frame
 *   CREDIT   u64: bytes of cost consumed so far
 *
 * A sender has at most a window's cost under way that the receiver has not credited (common/net/window.h). A message
 * costs at most half a window, so the sender can always go on.
 *
 * Pacing. Open MPI 4.1.4 ends the whole job, or locks up, when a TCP connection breaks while it holds bytes that the
 * socket has not taken (pml_ob1_sendreq.c "FATAL"; mca_pml_ob1_send_fin under endpoint_send_lock). So towards peers
 * that are not reached through shared memory, what is under way is kept to what sockets take, little at first, and a
 * message stays below the eager limit (no rendezvous) until the path has turned out to be quick: then it is what a slice
 * takes, which Open MPI reads from the socket into the frame itself. Never so where jobs come and go: a rendezvous is
 * answered, and who answers one whose process has ended writes to a broken connection (ARCHITECTURE.md). Nor where Open
 * MPI is not told to look at its sockets: it tries to send the dead the rest, in vain. Who is held back
 * (ts_transport_ops.hold_back) gets no credit while CHUNKs keep coming from others of its job, and goes on a moment after
 * they have stopped.
 */
#ifndef TS_NET_MPI_INTERNAL_H
#define TS_NET_MPI_INTERNAL_H

#ifndef MPI_VERSION
#error "include <mpi.h> before this header: only the back end's .c files may"
#endif

#include <stdatomic.h>

#include "common/net/bell.h"
#include "common/net/door.h"
#include "common/net/mpi_transport.h"
#include "common/net/transport_view.h"
#include "common/net/window.h"

#define TS_MPI_WIRE_VERSION 9u
#define TS_MPI_CHUNK_BYTES (4u << 20)
#define TS_MPI_PREFIX_BYTES 24u
#define TS_MPI_AROUND_BYTES 512u   /* at most, of a frame, in its prefix: small messages are there when they are matched */
#define TS_MPI_SENDS_PER_PEER 32u  /* requests under way */
#define TS_MPI_PROBES_PER_POLL 64
#define TS_MPI_POOL_BYTES ((size_t)32 << 20) /* of frames' memory that is kept for the next ones */
#define TS_MPI_NEAR_BYTES ((size_t)2 << 20)  /* see ts_transport.near_bytes */
#define TS_MPI_NEAR_SOCKETS_BYTES ((size_t)16 << 20) /* over TCP: the kernel's copies lie in between, and answers take longer */
#define TS_MPI_ASIDE_EVERY 1024u   /* polls between two looks at what was set aside */
#define TS_MPI_EAGER_BYTES (60u << 10) /* paced: a message. The eager limit over TCP is 64 KiB, its header included */
#define TS_MPI_LARGE_BYTES (2u << 20)  /* paced, on a quick path: a frame of a server's or worker's usual size is one */

enum { TS_TAG_ROLL = 29811, TS_TAG_WHOLE = 1, TS_TAG_PREFIX = 2, TS_TAG_CHUNK = 3, TS_TAG_CREDIT = 4 };

/* A frame that is coming in. Lives until its frame is handed on and all its receives are over. */
typedef struct ts_mpi_incoming {
    struct ts_mpi_incoming *next;
    ts_buffer *frame; /* NULL: is received only to get rid of it */
    size_t expected, posted; /* up to where chunks go; where the next one goes */
    uint32_t open;    /* receives under way */
    bool orphan;      /* its peer was dropped */
} ts_mpi_incoming;

/* Who waits for a request. */
typedef struct {
    uint32_t peer;
    int tag;
    bool sends;
    size_t bytes;
    ts_buffer *frame;          /* a reference: what a send reads, or a receive that is thrown away writes */
    ts_mpi_incoming *incoming; /* of a receive */
} ts_mpi_owner;

/* Requests under way, densely packed for MPI_Testsome. */
typedef struct {
    MPI_Request *request;
    ts_mpi_owner *owner;
    int *index;
    MPI_Status *status;
    ts_mpi_owner *done; /* completed in this call */
    bool *failed;
    int count, room;
} ts_mpi_requests;

/* A queued frame. */
typedef struct {
    ts_buffer *frame;
    size_t at;     /* bytes handed to MPI, of those outside when there are some */
    bool prefixed;
} ts_mpi_outgoing;

typedef struct {
    ts_mpi_outgoing *queue; /* ring */
    size_t head, count, room;
    size_t queued_bytes;
    ts_send_window to;        /* paced unless it is reached through shared memory */
    ts_receive_window from;
    uint32_t sends;           /* requests under way */
    bool crediting;           /* a CREDIT is under way: its buffer is in use */
    bool dropped;
    bool attached;            /* of another mpirun: has a lifeline */
    bool spoke;               /* attached: its connection stands, so that writing to it makes none */
    bool lost;                /* attached: its process has ended. What it sent is still read, nothing is written */
    uint64_t leaving_us;      /* attached: it is dropped then; 0: it is not */
    int lifeline;
    int rank;                 /* in comm */
    MPI_Comm comm;
    bool same_host;
    bool left_bbr;            /* reached over TCP on this host: its connection is not under BBR any more (common/net/loopback.h) */
    uint8_t credit[8];
    ts_mpi_incoming *first, **last; /* in the order of their messages */
    ts_mpi_incoming *assembling;    /* the one whose chunks are awaited */
    uint64_t heard_us;              /* it was awake then or later */
    uint64_t rung_us;
    bool held_back;                 /* ahead of others of its job */
    uint64_t chunk_us;              /* when the last part of a large frame came from it */
} ts_mpi_peer;

typedef struct ts_mpi_stall ts_mpi_stall;
typedef struct ts_mpi_daemon ts_mpi_daemon;

/* A communicator whose ranks (remote ones, of an intercommunicator) are the peers from `first` on. */
typedef struct {
    MPI_Comm comm;
    uint32_t first;
    uint32_t open; /* peers not dropped */
} ts_mpi_link;

#define TS_MPI_DECLINES_CHARS 240

/* Who a rank is. Plain bytes between processes of one architecture. */
typedef struct {
    uint32_t magic, version, shared_memory;
    uint64_t window_bytes, traffic_bytes, frame_limit_bytes;
    ts_group_member member;
    ts_bell_address bell;
    char declines[TS_MPI_DECLINES_CHARS]; /* why it cannot take part; "" when it does */
    ts_transport_wish wish;      /* of a worker that comes into a running job */
    uint32_t door;               /* a server's port, network order; 0: lets nobody in later */
    uint32_t reserved;
} ts_mpi_entry;

/* What the roll call has learnt. */
typedef struct {
    ts_mpi_entry *entries; /* [own] of all ranks of the world */
    uint32_t size, rank;
} ts_mpi_roll;

/* How a peer is reached. */
typedef struct {
    MPI_Comm comm;
    int rank;
    int lifeline;    /* -1: it is of this mpirun */
    uint64_t shares; /* in how many the server's traffic is cut */
} ts_mpi_way;

typedef struct {
    ts_transport base; /* first: the ops get it back by a cast */
    MPI_Comm comm, workers;
    bool initialised_mpi, multiple;
    bool large;             /* messages over TCP may be, where the path is quick */
    bool all_leave;         /* the roll call has failed, and every rank knows */
    size_t frame_limit_bytes;
    ts_peer *names;         /* one a rank; then, at a relay, those of the view above */
    ts_transport_job *jobs;
    ts_transport *above;    /* [own] at a relay: the view above; else NULL */
    ts_mpi_peer *peers;
    uint32_t peer_room, job_room;
    ts_mpi_link *links;
    uint32_t link_count, link_room;
    ts_mpi_daemon *daemon; /* a server that lets jobs in, or NULL */
    ts_mpi_requests active, aside;
    ts_mpi_incoming *spare; /* nodes to use again */
    ts_transport_counters counters;
    ts_bell *bell;
    uint64_t sent_after_us; /* what this poll finds was sent after that */
    uint64_t drained_us[2]; /* when the last polls began that found everything; [0] is the last but one */
    uint64_t polled_us;     /* when the last poll began */
    uint32_t held_back;     /* peers */
    uint64_t eased_us;      /* when it was looked last whether they may go on */
    uint32_t polls;
    uint32_t backlog;       /* peers with queued frames */
    uint64_t start_us;      /* for MPI's collective calls */
    uint64_t deadline_us;   /* for the others */
    ts_mpi_stall *stall;
    atomic_uint calls;      /* into MPI and back: odd while inside */
} ts_mpi;

/* Around MPI's calls, so that one which never returns is noticed. */
static inline void ts_mpi_enter(ts_mpi *mpi) { atomic_fetch_add_explicit(&mpi->calls, 1, memory_order_relaxed); }
static inline void ts_mpi_leave(ts_mpi *mpi) { atomic_fetch_add_explicit(&mpi->calls, 1, memory_order_relaxed); }

uint64_t ts_mpi_clock_us(void);

/*
 * The job has failed and this server leaves: kills the processes of its mpirun on this host that are stopped by a signal,
 * and says which. Waits up to 3 s for the other servers of this host to leave, and up to 1 s more. Thread: any.
 */
void ts_mpi_end_stopped(const ts_mpi *mpi);

/* ---- mpi_start: MPI's own beginning and end ---- */
/* Returns TERSE_OK, TERSE_EUNSUPPORTED (finalised already, or it failed). Exits with 4 past the deadline. */
terse_status ts_mpi_start(const ts_mpi_options *options, ts_mpi *mpi, ts_error *error) TERSE_NODISCARD;
/* Ends the process with `code` and says `what` unless it is disarmed in time. One of MPI's blocking calls is inside. */
typedef struct ts_mpi_watchdog ts_mpi_watchdog;
/* what: [borrow] until disarmed; NULL to leave in silence. Returns NULL when no thread can be had. */
ts_mpi_watchdog *ts_mpi_watchdog_arm(uint64_t after_us, int code, const char *what);
void ts_mpi_watchdog_disarm(ts_mpi_watchdog *watchdog);
/*
 * Watches over the calls that should never block: one that has not returned for the deadline (4 s at least) ends the process with 4
 * and names who has been silent longest. mpi: [borrow] until stopped. Without a thread there is no watch.
 */
ts_mpi_stall *ts_mpi_stall_start(ts_mpi *mpi);
void ts_mpi_stall_stop(ts_mpi_stall *stall); /* NULL is fine */

/* ---- mpi_settings ---- */
/* Whether processes of one host talk through shared memory. */
bool ts_mpi_shared_memory_on(void);
/* Whether Open MPI looks at its sockets as often as ever after connections have broken (configs/openmpi.conf). */
bool ts_mpi_sockets_looked_at(void);
/* One of Open MPI's parameters. false, 0, "" where it is not known. text: [out] of `capacity` bytes. */
bool ts_mpi_setting_on(const char *name);
size_t ts_mpi_setting_bytes(const char *name);
void ts_mpi_setting_text(const char *name, char *text, size_t capacity);

/* ---- mpi_rollcall ---- */
/*
 * Learns who all ranks of the world are. door: a server's port, or 0. out: [out] [own] its entries.
 * Returns TERSE_OK, TERSE_ETIMEDOUT, TERSE_EVERSION, TERSE_ENOMEM, TERSE_EPEER.
 */
terse_status ts_mpi_roll_call(ts_mpi *mpi, const ts_mpi_options *options, uint16_t door, ts_mpi_roll *out, ts_error *error)
    TERSE_NODISCARD;

/* ---- mpi_peers ---- */
/* Empty tables with room for so many. Returns TERSE_ENOMEM. */
terse_status ts_mpi_make_tables(ts_mpi *mpi, size_t peers, size_t jobs) TERSE_NODISCARD;
/* Room for one more link, so that adding it cannot fail. Returns TERSE_ENOMEM. */
terse_status ts_mpi_reserve_link(ts_mpi *mpi) TERSE_NODISCARD;
/* Everybody of the world becomes a peer. Returns TERSE_ENOMEM. */
terse_status ts_mpi_meet_world(ts_mpi *mpi, const ts_mpi_roll *roll) TERSE_NODISCARD;
/* The window and the way of one peer; both ends must say the same shares. */
void ts_mpi_set_peer(ts_mpi *mpi, uint32_t number, const ts_mpi_way *way, const ts_mpi_entry *own, const ts_mpi_entry *entry);
/* A server that is dead: nothing can be sent to it. */
void ts_mpi_set_absent(ts_mpi *mpi, uint32_t server);
/* peer: all but its name. */
void ts_mpi_name_peer(ts_mpi *mpi, uint32_t number, ts_peer peer, bool says_job, uint32_t rank, const char *host);

/* ---- mpi_daemon ---- */
/* The door alone, before the roll call tells its port. Returns TERSE_OK, TERSE_ENOMEM, TERSE_EIO, TERSE_EPEER. */
terse_status ts_mpi_daemon_create(const ts_mpi_options *options, ts_mpi_daemon **out, ts_error *error) TERSE_NODISCARD;
uint16_t ts_mpi_daemon_port(const ts_mpi_daemon *daemon);
/* All servers know each other: server 0 writes the card. roll: [borrow]. Collective: all servers. */
terse_status ts_mpi_daemon_open(ts_mpi *mpi, const ts_mpi_options *options, const ts_mpi_roll *roll, ts_error *error)
    TERSE_NODISCARD;
/* Lets in who knocks, and notices who has ended. May block for as long as an accept takes. Returns whether anything moved. */
bool ts_mpi_daemon_poll(ts_mpi *mpi, uint64_t now_us);
/* The job is over for the owner: its workers may stay a while to read. */
void ts_mpi_daemon_end_job(ts_mpi *mpi, uint32_t job);
/* Nobody is let in any more; those who wait are told why. */
void ts_mpi_daemon_shut(ts_mpi *mpi, const char *reason);
/* The other servers are told that this one ends in order. */
void ts_mpi_daemon_say_ending(ts_mpi_daemon *daemon);
/* An attached peer was dropped: its lifeline is closed. */
void ts_mpi_daemon_dropped(ts_mpi *mpi, uint32_t peer);
/* Takes its own card away and frees. NULL is fine. */
void ts_mpi_daemon_destroy(ts_mpi_daemon *daemon);
/* Whether writing to an attached peer is safe just now; notes it when its process has ended. */
bool ts_mpi_lifeline_holds(ts_mpi *mpi, uint32_t peer);

/* May something be written to a peer now? What waits for a lost one is freed. */
static inline bool ts_mpi_may_write(ts_mpi *mpi, uint32_t peer) {
    return !mpi->peers[peer].attached || ts_mpi_lifeline_holds(mpi, peer);
}

/* ---- mpi_rescue ---- */
typedef struct ts_mpi_rescue ts_mpi_rescue;
/* Watches `count` lifelines, which stay open until it ends, while this thread is in MPI_Comm_accept on `port`. */
terse_status ts_mpi_rescue_begin(const int *lifelines, size_t count, const char *port, uint64_t patience_us,
                                 ts_mpi_rescue **out) TERSE_NODISCARD;
/* The accept has returned. Returns whether it was rescued: then what it gave is of no use. */
bool ts_mpi_rescue_end(ts_mpi_rescue *rescue);

/* ---- mpi_attach ---- */
/*
 * Joins the daemon of options->run_dir with all ranks of the world. roll: [borrow]. Fills the tables.
 * Returns TERSE_OK; TERSE_ENOTFOUND, TERSE_EPEER, TERSE_ETIMEDOUT, TERSE_EVERSION, TERSE_EUNSUPPORTED, TERSE_ELIMIT,
 * TERSE_ESHUTDOWN … with a sentence in error. Collective: all ranks of the world.
 */
terse_status ts_mpi_attach(ts_mpi *mpi, const ts_mpi_options *options, const ts_mpi_roll *roll, ts_error *error)
    TERSE_NODISCARD;
/* What the leading server tells with TS_DOOR_GRANTED. */
typedef struct {
    ts_transport_place place; /* of a new job: its number alone */
    ts_dead_set dead;         /* servers that nobody need knock at */
    uint32_t numbered;        /* of a new job: its own name is another's, or it has none */
} ts_mpi_grant;

/* What a server tells with TS_DOOR_OPEN. */
typedef struct {
    uint64_t shares;
    uint32_t first; /* the server's number for rank 0 of the job */
    uint32_t reserved;
    ts_mpi_entry server;
    char port[1024]; /* MPI_MAX_PORT_NAME */
} ts_mpi_invitation;

/* ---- mpi_requests ---- */
/* Room for one more, so that add cannot fail. Returns TERSE_ENOMEM. */
terse_status ts_mpi_requests_reserve(ts_mpi_requests *requests) TERSE_NODISCARD;
void ts_mpi_requests_add(ts_mpi_requests *requests, MPI_Request request, const ts_mpi_owner *owner);
/* Takes out what has completed, into done[] and failed[]. Returns how many. */
int ts_mpi_requests_test(ts_mpi_requests *requests);
/* Moves the requests of a peer to another set. Without memory they stay. */
void ts_mpi_requests_move(ts_mpi_requests *from, ts_mpi_requests *to, uint32_t peer);
/* Frees the tables; buffers of requests that are still under way stay allocated, MPI may write to them. */
void ts_mpi_requests_free(ts_mpi_requests *requests);

/* ---- mpi_outgoing ---- */
terse_status ts_mpi_queue_frame(ts_mpi *mpi, uint32_t peer, ts_buffer *frame) TERSE_NODISCARD;
/* Hands to MPI what window and requests allow. Returns whether anything moved. */
bool ts_mpi_push_out(ts_mpi *mpi, uint32_t peer);
bool ts_mpi_push_out_all(ts_mpi *mpi);
/* Tells the peer what was consumed, when it is worth a message. */
void ts_mpi_return_credit(ts_mpi *mpi, uint32_t peer);
/* It gets no credit while parts of large frames keep coming from others of its job that are not held back. */
void ts_mpi_hold_back(ts_mpi *mpi, uint32_t peer, bool ahead);
/* Credit for those that are held back, when nothing comes of the others. */
void ts_mpi_ease(ts_mpi *mpi);
/* credited: all the peer has consumed so far. Goes on sending. Returns false when that cannot be. */
bool ts_mpi_take_credit(ts_mpi *mpi, uint32_t peer, uint64_t credited);
void ts_mpi_send_completed(ts_mpi *mpi, const ts_mpi_owner *owner);
/* Frees what waits for a peer and was not begun. */
void ts_mpi_forget_queue(ts_mpi *mpi, uint32_t peer);

/* ---- mpi_incoming ---- */
/* Looks for one message of a link and begins to receive it. Returns whether there was one. */
bool ts_mpi_probe(ts_mpi *mpi, uint32_t link);
void ts_mpi_receive_completed(ts_mpi *mpi, const ts_mpi_owner *owner, bool failed);
/* The frames of a dropped peer: freed, or left until their receives are over. */
void ts_mpi_forget_incoming(ts_mpi *mpi, uint32_t peer);

/* ---- mpi_transport ---- */
void ts_mpi_drop(ts_mpi *mpi, uint32_t peer);
/* Frees everything but what MPI may still touch. */
void ts_mpi_free(ts_mpi *mpi);

#endif
