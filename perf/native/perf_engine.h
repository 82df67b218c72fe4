/* The load generator's thread: connections, sending, receiving, the window, the end.
 *
 * One epoll set, edge-triggered for both directions, so nothing is ever re-armed. A turn: receive on
 * what is ready, read the answers, send what that allows. Small requests of one turn to one
 * connection leave in one send (`coalesce`), as they would be waiting in a client's buffer; large
 * ones leave from the template without a copy.
 *
 * A closed loop keeps `in_flight_max` requests on each connection. A fixed rate gives each request
 * an intended send time on a grid and measures from there, so a broker that stalls is charged for
 * the requests that had to wait. Phases: warming (not counted), measuring (the window), draining
 * (nothing new; what is on its way must be answered, a follower must reach the end).
 *
 * pl_go() runs to the end or to the first failure, which pl_fail() has put into words. */
#ifndef PERF_ENGINE_H
#define PERF_ENGINE_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "perf_fetch.h"
#include "perf_produce.h"

#define PL_EVENTS_PER_TURN 64
#define PL_UNANSWERED_PER_TURN 64   /* acks=0: requests written before the loop looks around */
#define PL_API_VERSIONS_BYTES 16

static int pl_connect(pl_run *run, pl_conn *conn, uint32_t index) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(run->port)};
    int one = 1;
    to.sin_addr.s_addr = run->address;
    conn->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (conn->fd < 0) return pl_fail(run, "socket: %s", strerror(errno));
    if (connect(conn->fd, (struct sockaddr *)&to, sizeof to))
        return pl_fail(run, "connect to port %u: %s", run->port, strerror(errno));
    setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.u32 = index};
    if (epoll_ctl(run->epoll_fd, EPOLL_CTL_ADD, conn->fd, &event))
        return pl_fail(run, "epoll_ctl: %s", strerror(errno));
    conn->writable = 1;
    return 0;
}

/* 0 written or the socket is full, -1 failed. */
static int pl_write(pl_run *run, pl_conn *conn, const uint8_t *from, uint32_t bytes, uint32_t *sent) {
    while (*sent < bytes) {
        ssize_t n = send(conn->fd, from + *sent, bytes - *sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            *sent += (uint32_t)n;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            conn->writable = 0;
            return 0;
        } else if (errno != EINTR) {
            return pl_fail(run, "send: %s", strerror(errno));
        }
    }
    return 0;
}

static int pl_flush(pl_run *run, pl_conn *conn) {
    if (!conn->writable) return 0;
    if (conn->out_bytes) {
        if (pl_write(run, conn, conn->out, conn->out_bytes, &conn->out_sent)) return -1;
        if (conn->out_sent < conn->out_bytes) return 0;
        conn->out_bytes = conn->out_sent = 0;
    }
    if (conn->direct_bytes) {
        if (pl_write(run, conn, conn->frame, conn->direct_bytes, &conn->direct_sent)) return -1;
        if (conn->direct_sent == conn->direct_bytes) conn->direct_bytes = conn->direct_sent = 0;
    }
    return 0;
}

static inline uint32_t pl_in_flight(const pl_conn *conn) {
    return conn->flight_tail - conn->flight_head;
}

static void pl_answered(pl_run *run, pl_conn *conn, int64_t now_ns, uint64_t bytes) {
    pl_stream *stream = &run->streams[conn->stream];
    int64_t intended_ns = conn->flights[conn->flight_head++ & conn->flight_mask].intended_ns;
    int in_window = run->phase == PL_MEASURING;
    stream->answered++;
    run->last_answer_ns = now_ns;
    if (in_window) {
        stream->requests++;
        stream->bytes += (int64_t)bytes;
    }
    if (stream->interval_ns > 0)
        in_window = run->phase != PL_WARMING && intended_ns >= run->window_start_ns
                    && (run->phase == PL_MEASURING || intended_ns < run->window_end_ns);
    if (in_window) ph_add(&stream->latency, (uint64_t)(now_ns - intended_ns));
}

/* At a fixed rate every request that the window meant is sent, however late: leaving out those that
 * a slow broker left no room for would flatter it. */
static inline int pl_owes(const pl_run *run, const pl_stream *stream) {
    if (stream->send_limit && stream->sent >= stream->send_limit) return 0;
    return stream->interval_ns > 0 && stream->next_due_ns < (double)run->window_end_ns;
}

/* Whether this connection may take one more request now. */
static inline int pl_may_send(const pl_run *run, const pl_conn *conn) {
    const pl_stream *stream = &run->streams[conn->stream];
    if (run->phase == PL_DRAINING && !stream->tail && !pl_owes(run, stream)) return 0;
    if (stream->send_limit && stream->sent >= stream->send_limit) return 0;
    if (conn->direct_bytes || pl_in_flight(conn) >= (uint32_t)stream->in_flight_max) return 0;
    return conn->frame_bytes > PL_COPY_BYTES_MAX ? conn->out_bytes == 0
                                                 : conn->writable || conn->out_bytes == 0;
}

static int pl_start_request(pl_run *run, pl_conn *conn, int64_t intended_ns) {
    pl_stream *stream = &run->streams[conn->stream];
    pl_flight *flight = &conn->flights[conn->flight_tail++ & conn->flight_mask];
    flight->correlation_id = conn->next_correlation_id;
    flight->intended_ns = intended_ns;
    if (stream->role == PL_FETCH) {
        pl_wrap_slots(stream, conn);
        conn->out_bytes += pl_build_fetch(run, conn, conn->out + conn->out_bytes);
    } else {
        uint8_t *frame = conn->frame;
        if (conn->frame_bytes > PL_COPY_BYTES_MAX) {
            conn->direct_bytes = conn->frame_bytes;
        } else {
            frame = conn->out + conn->out_bytes;
            memcpy(frame, conn->frame, conn->frame_bytes);
            conn->out_bytes += conn->frame_bytes;
        }
        pl_patch_produce(conn, frame, intended_ns);
    }
    conn->next_correlation_id = (int32_t)(((uint32_t)conn->next_correlation_id + 1) & 0x7fffffff);
    stream->sent++;
    return stream->coalesce && !conn->direct_bytes ? 0 : pl_flush(run, conn);
}

/* With acks=0 a request is done once the kernel has it; whether it arrived is asked at the end. */
static void pl_take_unanswered(pl_run *run, pl_conn *conn) {
    pl_stream *stream = &run->streams[conn->stream];
    if (conn->out_bytes || conn->direct_bytes) return;
    while (pl_in_flight(conn)) {
        for (int i = 0; i < conn->n_batches; i++)
            pl_count_records(run, stream, conn->batches[i].records);
        pl_answered(run, conn, pl_now_ns(), conn->frame_bytes);
    }
}

/* Closed loop: fill the connection up. */
static int pl_pump(pl_run *run, pl_conn *conn) {
    pl_stream *stream = &run->streams[conn->stream];
    int unanswered = stream->role == PL_PRODUCE && stream->acks == 0;
    int budget = unanswered ? PL_UNANSWERED_PER_TURN : stream->in_flight_max;
    while (stream->interval_ns == 0 && budget-- > 0 && pl_may_send(run, conn)) {
        int64_t now_ns = pl_now_ns();
        if (pl_start_request(run, conn, now_ns)) return -1;
        if (!unanswered || (stream->coalesce && pl_may_send(run, conn))) continue;
        if (pl_flush(run, conn)) return -1;
        pl_take_unanswered(run, conn);
    }
    if (pl_flush(run, conn)) return -1;
    if (unanswered) pl_take_unanswered(run, conn);
    return 0;
}

/* Fixed rate: everything that is due, on whichever connection has room. */
static int pl_pump_due(pl_run *run, pl_stream *stream, int64_t now_ns) {
    while (stream->next_due_ns <= (double)now_ns
           && (run->phase != PL_DRAINING || stream->tail || pl_owes(run, stream))) {
        pl_conn *conn = NULL;
        for (int i = 0; i < stream->n_conns && !conn; i++) {
            pl_conn *candidate = &run->conns[stream->first_conn + stream->next_conn];
            stream->next_conn = (stream->next_conn + 1) % stream->n_conns;
            if (pl_may_send(run, candidate)) conn = candidate;
        }
        if (!conn) return 0;
        if (pl_start_request(run, conn, (int64_t)stream->next_due_ns) || pl_flush(run, conn))
            return -1;
        if (stream->role == PL_PRODUCE && stream->acks == 0) pl_take_unanswered(run, conn);
        stream->next_due_ns += stream->interval_ns;
    }
    return 0;
}

static int pl_take_answer(pl_run *run, pl_conn *conn, const uint8_t *answer, uint32_t bytes,
                          uint64_t frame_bytes, int head_only, int64_t now_ns) {
    pl_stream *stream = &run->streams[conn->stream];
    pw_cursor body = {answer, bytes, 0};
    int32_t correlation_id = pw_i32(&body);
    if (body.bad || !pl_in_flight(conn)) return pl_fail(run, "an answer that nothing asked for");
    int32_t wanted = conn->flights[conn->flight_head & conn->flight_mask].correlation_id;
    if (correlation_id != wanted)
        return pl_fail(run, "correlation id %d where %d had to come", correlation_id, wanted);
    int status = 0;
    if (stream->role == PL_PRODUCE) status = pl_on_produce(run, conn, body);
    if (stream->role == PL_FETCH) status = pl_on_fetch(run, conn, body, head_only, now_ns);
    if (stream->role == PL_REPEAT && conn->topic_bytes
        && (bytes - 4 != (uint32_t)conn->topic_bytes
            || memcmp(answer + 4, conn->topic, bytes - 4) != 0))
        return pl_fail(run, "an answer of %u bytes that is not the one that had to come", bytes);
    if (status) return -1;
    conn->answers++;
    pl_answered(run, conn, now_ns, stream->role == PL_PRODUCE ? conn->frame_bytes : frame_bytes);
    return 0;
}

/* A large answer of a uniform log is read by its head alone, but for every n-th. */
static int pl_head_only(const pl_stream *stream, const pl_conn *conn, uint32_t size) {
    return stream->role == PL_FETCH && stream->uniform_bytes && conn->n_slots == 1
           && size > PL_RECEIVE_BYTES && conn->answers % stream->verify_every != 0;
}

/* Without this every segment of a large answer wakes the generator's thread, which on a virtual
 * machine costs the sender more than the segment does: the broker would pay for an eager reader. */
static void pl_wake_at(const pl_conn *conn, uint64_t bytes) {
    int low = bytes < PL_WAKE_BYTES ? (int)bytes : (int)PL_WAKE_BYTES;
    setsockopt(conn->fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low);
}

static int pl_take_frames(pl_run *run, pl_conn *conn, int64_t now_ns) {
    pl_stream *stream = &run->streams[conn->stream];
    uint32_t at = 0;
    while (conn->in_bytes - at >= 4) {
        uint32_t size = pw_load32(conn->in + at), here = conn->in_bytes - at;
        if (size < 4 || size > PL_FRAME_BYTES_MAX) return pl_fail(run, "an answer of %u bytes", size);
        if (at == 0 && here < size + 4 && pl_head_only(stream, conn, size)) {
            if (here < PL_HEAD_BYTES) break;
            if (pl_take_answer(run, conn, conn->in + 4, here - 4, size + 4ull, 1, now_ns)) return -1;
            conn->skip_bytes = size + 4ull - here;
            pl_wake_at(conn, conn->skip_bytes);
            conn->in_bytes = 0;
            return 0;
        }
        if (here < size + 4) {
            if (size + 4 <= conn->in_room) break;
            uint8_t *grown = realloc(conn->in, size + 4);
            if (!grown) return pl_fail(run, "no memory for an answer of %u bytes", size);
            conn->in = grown;
            conn->in_room = size + 4;
            break;
        }
        if (pl_take_answer(run, conn, conn->in + at + 4, size, size + 4ull, 0, now_ns)) return -1;
        at += size + 4;
    }
    if (at) {
        memmove(conn->in, conn->in + at, conn->in_bytes - at);
        conn->in_bytes -= at;
    }
    return 0;
}

static int pl_receive(pl_run *run, pl_conn *conn) {
    pl_stream *stream = &run->streams[conn->stream];
    int large = stream->role == PL_FETCH && stream->uniform_bytes
                && (uint32_t)stream->partition_max_bytes > PL_RECEIVE_BYTES;
    for (;;) {
        size_t wanted = conn->in_room - conn->in_bytes;
        ssize_t n;
        if (conn->skip_bytes) {
            wanted = conn->skip_bytes < (1u << 30) ? conn->skip_bytes : (1u << 30);
            n = recv(conn->fd, NULL, wanted, MSG_TRUNC | MSG_DONTWAIT);
        } else {
            if (large && conn->in_bytes < PL_HEAD_BYTES) wanted = PL_HEAD_BYTES - conn->in_bytes;
            n = recv(conn->fd, conn->in + conn->in_bytes, wanted, MSG_DONTWAIT);
        }
        if (n == 0) return pl_fail(run, "the broker closed the connection");
        if (n < 0) {
            if (errno == EINTR) continue;
            if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
            return pl_fail(run, "recv: %s", strerror(errno));
        }
        int64_t now_ns = pl_now_ns();
        if (conn->skip_bytes) {
            conn->skip_bytes -= (uint64_t)n;
            pl_wake_at(conn, conn->skip_bytes ? conn->skip_bytes : 1);
            if (!conn->skip_bytes && pl_pump(run, conn)) return -1;
            continue;
        }
        conn->in_bytes += (uint32_t)n;
        if (pl_take_frames(run, conn, now_ns)) return -1;
        if (!conn->skip_bytes && pl_pump(run, conn)) return -1;
        /* Less than asked for: the socket is empty and the next byte gives a new edge. */
        if ((size_t)n < wanted && !conn->skip_bytes) return 0;
    }
}

static void pl_sample(pl_run *run, int sign, int64_t now_ns) {
    run->wall_ns += sign * now_ns;
    run->broker_cpu_ns += sign * pl_process_cpu_ns(run->broker_pid);
    run->own_cpu_ns += sign * pl_clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static void pl_move_phase(pl_run *run, int64_t now_ns) {
    pl_stream *first = &run->streams[0];
    if (run->phase == PL_WARMING && now_ns - run->begun_ns >= run->warm_ns
        && first->answered >= run->warm_requests) {
        run->phase = PL_MEASURING;
        run->window_start_ns = now_ns;
        pl_sample(run, -1, now_ns);
    }
    if (run->phase != PL_MEASURING) return;
    int over = (run->window_ns && now_ns - run->window_start_ns >= run->window_ns)
               || (run->window_requests && first->requests >= run->window_requests)
               || (run->window_records && first->records_all >= run->window_records)
               || (run->window_bytes && first->bytes >= run->window_bytes)
               || (first->send_limit && first->answered >= first->send_limit) || run->stop;
    if (!over) return;
    run->phase = PL_DRAINING;
    run->window_end_ns = now_ns;
    if (first->role != PL_PRODUCE || first->acks) pl_sample(run, 1, now_ns);
}

/* Nothing on its way, and who follows the end has seen every record that was acknowledged. */
static int pl_drained(const pl_run *run) {
    int64_t produced = 0;
    for (int i = 0; i < run->n_streams; i++)
        if (run->streams[i].role == PL_PRODUCE) produced += run->streams[i].records_all;
    for (int i = 0; i < run->n_streams; i++) {
        const pl_stream *stream = &run->streams[i];
        if (stream->tail ? stream->records_all < produced : stream->answered < stream->sent) return 0;
        if (!stream->tail && pl_owes(run, stream)) return 0;
    }
    return 1;
}

/* acks=0 says nothing of what arrived: ask each connection something that is answered behind it.
 * The broker has then read every request, and its CPU for them lies inside the window. */
static int pl_barrier(pl_run *run, pl_stream *stream) {
    uint8_t ask[PL_API_VERSIONS_BYTES] = {0, 0, 0, 12, 0, 18, 0, 0, 0x7f, 0, 0, 1, 0, 2, 'k', 'b'};
    for (int i = 0; i < stream->n_conns; i++) {
        pl_conn *conn = &run->conns[stream->first_conn + i];
        if (send(conn->fd, ask, sizeof ask, MSG_NOSIGNAL) != sizeof ask)
            return pl_fail(run, "send of the last question: %s", strerror(errno));
    }
    for (int i = 0; i < stream->n_conns; i++) {
        pl_conn *conn = &run->conns[stream->first_conn + i];
        struct timeval limit = {.tv_sec = run->stall_ns / 1000000000};
        setsockopt(conn->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        if (recv(conn->fd, ask, 4, MSG_WAITALL) != 4)
            return pl_fail(run, "the broker dropped a connection that it was sent acks=0 on");
    }
    pl_sample(run, 1, pl_now_ns());
    return 0;
}

static int pl_wait(pl_run *run, struct epoll_event *events, int64_t timeout_ns) {
    static int have_nanoseconds = 1;
    if (timeout_ns < 0) timeout_ns = 0;
#ifdef SYS_epoll_pwait2
    if (have_nanoseconds) {
        struct timespec t = {timeout_ns / 1000000000, timeout_ns % 1000000000};
        int n = (int)syscall(SYS_epoll_pwait2, run->epoll_fd, events, PL_EVENTS_PER_TURN, &t, NULL, 0);
        if (n >= 0 || errno != ENOSYS) return n;
        have_nanoseconds = 0;
    }
#endif
    return epoll_wait(run->epoll_fd, events, PL_EVENTS_PER_TURN, (int)(timeout_ns / 1000000));
}

/* One round over the streams: what is due, what can be written without an answer. The time until
 * something has to be looked at again, or -1. */
static int64_t pl_turn(pl_run *run, int64_t now_ns) {
    int64_t wait_ns = 50000000;
    if (run->phase == PL_MEASURING && run->window_ns) {
        int64_t left = run->window_start_ns + run->window_ns - now_ns;
        if (left < wait_ns) wait_ns = left;
    }
    for (int i = 0; i < run->n_streams; i++) {
        pl_stream *stream = &run->streams[i];
        if (run->phase == PL_DRAINING && !stream->tail && !pl_owes(run, stream)) continue;
        if (stream->interval_ns > 0) {
            if (pl_pump_due(run, stream, now_ns)) return -1;
            double due = stream->next_due_ns - (double)now_ns;
            if (due > 0 && due < (double)wait_ns) wait_ns = (int64_t)due;
        } else if (stream->role == PL_PRODUCE && stream->acks == 0) {
            for (int c = 0; c < stream->n_conns; c++) {
                pl_conn *conn = &run->conns[stream->first_conn + c];
                if (conn->writable && pl_pump(run, conn)) return -1;
                if (conn->writable) wait_ns = 0;
            }
        }
    }
    return wait_ns < 0 ? 0 : wait_ns;
}

static int pl_loop(pl_run *run) {
    struct epoll_event events[PL_EVENTS_PER_TURN];
    for (;;) {
        int64_t now_ns = pl_now_ns();
        pl_move_phase(run, now_ns);
        if (run->phase == PL_DRAINING && pl_drained(run)) break;
        if (now_ns - run->last_answer_ns > run->stall_ns)
            return pl_fail(run, "no answer for %lld ms (%lld requests sent, %lld answered)",
                           (long long)(run->stall_ns / 1000000), (long long)run->streams[0].sent,
                           (long long)run->streams[0].answered);
        if (run->phase == PL_DRAINING && now_ns - run->window_end_ns > run->stall_ns)
            return pl_fail(run, "the end was not reached: %lld records acknowledged, %lld received",
                           (long long)run->streams[0].records_all,
                           (long long)run->streams[run->n_streams - 1].records_all);
        int64_t wait_ns = pl_turn(run, now_ns);
        if (wait_ns < 0) return -1;
        int n = pl_wait(run, events, wait_ns);
        if (n < 0 && errno != EINTR) return pl_fail(run, "epoll_wait: %s", strerror(errno));
        for (int i = 0; i < n; i++) {
            pl_conn *conn = &run->conns[events[i].data.u32];
            if (events[i].events & EPOLLOUT) {
                conn->writable = 1;
                if (pl_flush(run, conn) || pl_pump(run, conn)) return -1;
            }
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR) && pl_receive(run, conn))
                return -1;
        }
    }
    pl_stream *first = &run->streams[0];
    return first->role == PL_PRODUCE && first->acks == 0 ? pl_barrier(run, first) : 0;
}

static int pl_go(pl_run *run) {
    run->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (run->epoll_fd < 0) return pl_fail(run, "epoll_create1: %s", strerror(errno));
    for (int i = 0; i < run->n_conns; i++)
        if (pl_connect(run, &run->conns[i], (uint32_t)i)) return -1;
    run->begun_ns = run->last_answer_ns = pl_now_ns();
    for (int i = 0; i < run->n_streams; i++) run->streams[i].next_due_ns = (double)run->begun_ns;
    for (int i = 0; i < run->n_conns; i++)
        if (pl_pump(run, &run->conns[i])) return -1;
    return pl_loop(run);
}

#endif
