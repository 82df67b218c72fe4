/* What one run of the load generator is made of: streams, connections, partitions, templates.
 *
 * A run is one thread and one epoll set. A stream is a kind of traffic with its own rate, histogram
 * and counters (produce, fetch, or any request repeated as it is); it owns a range of connections.
 * The end-to-end cell is a producing and a fetching stream in one run, the neighbour cell a
 * producing stream beside a repeated Metadata.
 *
 * Everything here is filled in by perf/_load.pyx before the run and read by it afterwards; while
 * the run lasts only its own thread touches it, except `stop`. Memory is owned by the run and freed
 * by pl_free(). */
#ifndef PERF_RUN_H
#define PERF_RUN_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "perf_crc32c.h"
#include "perf_histogram.h"
#include "perf_wire.h"

#define PL_FRAME_BYTES_MAX (110u << 20)    /* Kafka's socket.request.max.bytes and some more */
#define PL_COPY_BYTES_MAX (32u << 10)      /* larger frames are sent from the template itself */
#define PL_RECEIVE_BYTES (64u << 10)
#define PL_WAKE_BYTES (256u << 10)         /* while the rest of a large answer comes: one wake each */
#define PL_HEAD_BYTES 512u                 /* of a large answer that is not read whole */
#define PL_ERRORS_MAX 1000                 /* then the run ends: its figures are worth nothing */

enum { PL_PRODUCE = 0, PL_FETCH = 1, PL_REPEAT = 2 };
enum { PL_WARMING = 0, PL_MEASURING = 1, PL_DRAINING = 2 };

typedef struct {                 /* one partition as one connection knows it */
    int32_t partition;
    int32_t next_sequence;       /* idempotent producer */
    int64_t last_offset;         /* produce: base offset of the last acknowledgement, -1 at first */
    int64_t expected_offset;     /* produce: exact where this connection is the only writer, else -1 */
    int64_t fetch_offset, start_offset, end_offset;
    int changed;                 /* fetch session: to be named in the next request */
} pl_slot;

typedef struct {                 /* one batch of a produce template */
    uint32_t at, bytes;          /* its place in the frame */
    int32_t records, slot;
    uint32_t crc;                /* with sequence and stamp zero */
    int32_t stamp_at;            /* of the 8-byte send time inside the batch, or -1 */
    const pc_shift *after_sequence, *after_stamp;
} pl_batch;

typedef struct {
    int32_t correlation_id;
    int64_t intended_ns;
} pl_flight;

typedef struct {
    int fd, stream, writable;
    uint8_t *frame;              /* template: size field, header, body */
    uint32_t frame_bytes;
    pl_batch *batches;
    int n_batches;
    int idempotent;
    pl_slot *slots;
    int n_slots;
    uint8_t topic[272];          /* fetch: the name, or the 16 bytes of the id; repeat: the answer */
    int topic_bytes;
    uint8_t *out;                /* small requests, copied and patched */
    uint32_t out_bytes, out_sent, out_room;
    uint32_t direct_bytes, direct_sent;   /* the template itself on its way */
    uint8_t *in;
    uint32_t in_bytes, in_room;
    uint64_t skip_bytes;         /* rest of an answer that is dropped unread */
    pl_flight *flights;          /* ring, in request order */
    uint32_t flight_head, flight_tail, flight_mask;
    int32_t next_correlation_id;
    int32_t session_id, session_epoch;
    uint32_t answers;
} pl_conn;

typedef struct {
    int role, version, acks, in_flight_max, coalesce;
    int first_conn, n_conns;
    double interval_ns;          /* 0: closed loop */
    int64_t send_limit;          /* requests in all, 0: no limit */
    int32_t max_wait_ms, min_bytes, max_bytes, partition_max_bytes;
    int tail, session, stamped;  /* fetch: follow the end; in a session; measure stamps */
    int isolation;               /* fetch: 1 reads what is committed */
    uint32_t uniform_bytes;      /* every batch of the log has this size, or 0 */
    int32_t uniform_records;
    uint32_t verify_every;       /* every n-th fetch answer is read whole and its CRCs checked */
    /* progress */
    double next_due_ns;
    int next_conn;
    int64_t sent, answered, records_all;
    /* results of the window */
    int64_t requests, records, bytes, verified_batches;
    int64_t errors;
    int32_t first_error;
    ph_histogram latency, end_to_end;
} pl_stream;

typedef struct {
    uint64_t zero_bytes;
    pc_shift *shift;
} pl_shift_entry;

typedef struct {
    pl_stream *streams;
    int n_streams;
    pl_conn *conns;
    int n_conns;
    pl_shift_entry *shifts;
    int n_shifts;
    uint32_t address;            /* IPv4, network order */
    uint16_t port;
    int32_t broker_pid;          /* whose CPU is sampled; 0: nobody's */
    int64_t warm_ns, warm_requests, window_ns, window_requests, window_bytes;
    int64_t window_records, stall_ns;   /* records count from the start of the run */
    volatile int stop;
    /* state and results */
    int epoll_fd, phase;
    int64_t begun_ns, window_start_ns, window_end_ns, last_answer_ns;
    int64_t wall_ns, broker_cpu_ns, own_cpu_ns;   /* of the window */
    char failure[256];
} pl_run;

static inline int64_t pl_clock_ns(clockid_t clock) {
    struct timespec t;
    if (clock_gettime(clock, &t)) return -1;
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static inline int64_t pl_now_ns(void) { return pl_clock_ns(CLOCK_MONOTONIC); }

/* CPU time of a whole process, ended threads included: the kernel's clock id for a pid is its
 * complement above three type bits, 2 being the scheduler's exact clock (clock_getcpuclockid(3)). */
static inline int64_t pl_process_cpu_ns(int32_t pid) {
    return pid > 0 ? pl_clock_ns((clockid_t)((~(uint32_t)pid << 3) | 2)) : -1;
}

/* The first failure ends the run and is the one told. Always -1. */
__attribute__((format(printf, 2, 3)))
static int pl_fail(pl_run *run, const char *format, ...) {
    if (!run->failure[0]) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(run->failure, sizeof run->failure, format, arguments);
        va_end(arguments);
    }
    return -1;
}

static int pl_error(pl_run *run, pl_stream *stream, int16_t code) {
    if (!stream->errors++) stream->first_error = code;
    if (stream->errors < PL_ERRORS_MAX) return 0;
    return pl_fail(run, "%d answers with an error, the first with code %d", PL_ERRORS_MAX,
                   stream->first_error);
}

static void pl_count_records(pl_run *run, pl_stream *stream, int64_t records) {
    stream->records_all += records;
    if (run->phase == PL_MEASURING) stream->records += records;
}

static pl_slot *pl_find_slot(pl_conn *conn, int hint, int32_t partition) {
    if (hint < conn->n_slots && conn->slots[hint].partition == partition) return &conn->slots[hint];
    for (int i = 0; i < conn->n_slots; i++)
        if (conn->slots[i].partition == partition) return &conn->slots[i];
    return NULL;
}

static const pc_shift *pl_shift_for(pl_run *run, uint64_t zero_bytes) {
    for (int i = 0; i < run->n_shifts; i++)
        if (run->shifts[i].zero_bytes == zero_bytes) return run->shifts[i].shift;
    pl_shift_entry *grown = realloc(run->shifts, sizeof *grown * (size_t)(run->n_shifts + 1));
    if (!grown) return NULL;
    run->shifts = grown;
    pc_shift *shift = malloc(sizeof *shift);
    if (!shift) return NULL;
    pc_shift_init(shift, zero_bytes);
    run->shifts[run->n_shifts++] = (pl_shift_entry){zero_bytes, shift};
    return shift;
}

static pl_run *pl_new(int n_streams, int n_conns) {
    pl_run *run = calloc(1, sizeof *run);
    if (!run) return NULL;
    run->epoll_fd = -1;
    run->streams = calloc((size_t)n_streams, sizeof *run->streams);
    run->conns = calloc((size_t)n_conns, sizeof *run->conns);
    if (!run->streams || !run->conns) {
        free(run->streams);
        free(run->conns);
        free(run);
        return NULL;
    }
    run->n_streams = n_streams;
    run->n_conns = n_conns;
    for (int i = 0; i < n_conns; i++) run->conns[i].fd = -1;
    pc_init();
    return run;
}

/* Room for a connection's parts; the caller fills them. 0, or -1 without memory. */
static int pl_conn_prepare(pl_run *run, int index, int stream, const uint8_t *frame,
                           uint32_t frame_bytes, int n_batches, int n_slots) {
    pl_conn *conn = &run->conns[index];
    uint32_t ring = 1, limit = (uint32_t)run->streams[stream].in_flight_max;
    while (ring < limit + 1) ring <<= 1;
    conn->stream = stream;
    conn->frame_bytes = frame_bytes;
    conn->n_batches = n_batches;
    conn->n_slots = n_slots;
    conn->flight_mask = ring - 1;
    conn->out_room = frame_bytes <= PL_COPY_BYTES_MAX ? (frame_bytes + 4096) * limit : 4096;
    conn->out_room += 64u * (uint32_t)n_slots;
    conn->in_room = PL_RECEIVE_BYTES;
    conn->frame = malloc(frame_bytes + 1);
    conn->batches = calloc((size_t)n_batches + 1, sizeof *conn->batches);
    conn->slots = calloc((size_t)n_slots + 1, sizeof *conn->slots);
    conn->flights = calloc(ring, sizeof *conn->flights);
    conn->out = malloc(conn->out_room);
    conn->in = malloc(conn->in_room);
    if (!conn->frame || !conn->batches || !conn->slots || !conn->flights || !conn->out || !conn->in)
        return -1;
    memcpy(conn->frame, frame, frame_bytes);
    return 0;
}

static void pl_free(pl_run *run) {
    if (!run) return;
    for (int i = 0; i < run->n_conns; i++) {
        pl_conn *conn = &run->conns[i];
        if (conn->fd >= 0) close(conn->fd);
        free(conn->frame);
        free(conn->batches);
        free(conn->slots);
        free(conn->flights);
        free(conn->out);
        free(conn->in);
    }
    if (run->epoll_fd >= 0) close(run->epoll_fd);
    for (int i = 0; i < run->n_shifts; i++) free(run->shifts[i].shift);
    free(run->shifts);
    free(run->streams);
    free(run->conns);
    free(run);
}

#endif
