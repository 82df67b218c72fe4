/* The limit server: what a produce or a fetch costs on this machine when nothing but the work is
 * done. One thread, one epoll set; parse, CRC-32C, one write to the page cache for each batch,
 * answer; sendfile for a fetch. No log directory, no indexes on disk, no retention, no other clients.
 *
 * It answers Produce 3-13, Fetch 4-18 (long polling; a session is granted and every request is
 * taken for whole), ListOffsets 1, DeleteTopics 1 and ApiVersions 0. A topic exists once somebody
 * asks for it; its id is pm_topic_key() of its name, which the caller computes too.
 *
 * It trusts nothing it reads (a malformed frame closes the connection) but is a yardstick, not a
 * broker: its files are unlinked at birth and gone with the process. */
#ifndef PERF_LIMIT_H
#define PERF_LIMIT_H

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "perf_crc32c.h"
#include "perf_wire.h"

#define PM_PARTITIONS_MAX 1024
#define PM_CONNS_MAX 20000
#define PM_SEGMENTS_MAX 256
#define PM_FRAME_BYTES_MAX (110u << 20)
#define PM_EVENTS_PER_TURN 64

enum { PM_OK = 0, PM_OFFSET_OUT_OF_RANGE = 1, PM_CORRUPT_MESSAGE = 2, PM_UNKNOWN_TOPIC = 3 };

typedef struct {
    uint8_t key[16];
    int32_t index;
    int fd;
    int64_t bytes, next_offset;
    int64_t *bases, *positions;  /* of every batch: the whole index, in memory */
    size_t n, room;
} pm_partition;

typedef struct {                 /* a part of an answer: of the out buffer, or of a file */
    int file;                    /* -1: memory */
    int64_t at;
    size_t bytes;
} pm_segment;

typedef struct {
    int fd;                      /* -1: free */
    uint8_t *in, *out;
    size_t in_bytes, in_room, out_bytes, out_room;
    pm_segment segments[PM_SEGMENTS_MAX];
    int n_segments, first_segment;
    int64_t parked_until_ns;     /* 0: not parked; else the frame at the head of `in` waits */
} pm_conn;

typedef struct {
    int epoll_fd, listen_fd, n_partitions, n_parked;
    const char *directory;
    pm_partition partitions[PM_PARTITIONS_MAX];
    pm_conn *conns[PM_CONNS_MAX];
    int appended;
} pm_server;

static int64_t pm_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* FNV-1a twice with different starts: the id that a name has here. */
static void pm_topic_key(const uint8_t *name, size_t n, uint8_t key[16]) {
    for (int half = 0; half < 2; half++) {
        uint64_t h = 14695981039346656037ull + (uint64_t)half * 7919;
        for (size_t i = 0; i < n; i++) h = (h ^ name[i]) * 1099511628211ull;
        memcpy(key + 8 * half, &h, 8);
    }
}

static pm_partition *pm_find(pm_server *s, const uint8_t key[16], int32_t index, int create) {
    pm_partition *free_one = NULL;
    for (int i = 0; i < s->n_partitions; i++) {
        pm_partition *p = &s->partitions[i];
        if (p->fd < 0) free_one = p;
        else if (p->index == index && !memcmp(p->key, key, 16)) return p;
    }
    if (!create) return NULL;
    if (!free_one) {
        if (s->n_partitions == PM_PARTITIONS_MAX) return NULL;
        free_one = &s->partitions[s->n_partitions++];
    }
    char path[4096];
    snprintf(path, sizeof path, "%s/limit-XXXXXX", s->directory);
    memset(free_one, 0, sizeof *free_one);
    free_one->fd = mkstemp(path);
    if (free_one->fd < 0) return NULL;
    unlink(path);
    memcpy(free_one->key, key, 16);
    free_one->index = index;
    return free_one;
}

static void pm_drop(pm_partition *p) {
    close(p->fd);
    free(p->bases);
    free(p->positions);
    memset(p, 0, sizeof *p);
    p->fd = -1;
}

/* One partition's records: check each batch, give it its offset, write it. */
static int pm_append(pm_partition *p, uint8_t *batch, size_t left, int64_t *first_offset) {
    *first_offset = p->next_offset;
    while (left) {
        if (left < PW_BATCH_HEADER || batch[PW_BATCH_MAGIC] != 2) return PM_CORRUPT_MESSAGE;
        size_t bytes = (size_t)pw_load32(batch + PW_BATCH_LENGTH) + PW_BATCH_LOG_OVERHEAD;
        if (bytes < PW_BATCH_HEADER || bytes > left) return PM_CORRUPT_MESSAGE;
        uint32_t crc = pc_crc32c(batch + PW_BATCH_ATTRIBUTES, bytes - PW_BATCH_ATTRIBUTES);
        if (crc != pw_load32(batch + PW_BATCH_CRC)) return PM_CORRUPT_MESSAGE;
        if (p->n == p->room) {
            size_t room = p->room ? p->room * 2 : 4096;
            int64_t *bases = realloc(p->bases, room * sizeof *bases);
            if (bases) p->bases = bases;
            int64_t *positions = realloc(p->positions, room * sizeof *positions);
            if (positions) p->positions = positions;
            if (!bases || !positions) return PM_CORRUPT_MESSAGE;
            p->room = room;
        }
        pw_store64(batch, (uint64_t)p->next_offset);
        pw_store32(batch + PW_BATCH_LOG_OVERHEAD, 0);   /* leader epoch */
        if (write(p->fd, batch, bytes) != (ssize_t)bytes) return PM_CORRUPT_MESSAGE;
        p->bases[p->n] = p->next_offset;
        p->positions[p->n++] = p->bytes;
        p->bytes += (int64_t)bytes;
        p->next_offset += (int64_t)pw_load32(batch + PW_BATCH_LAST_DELTA) + 1;
        batch += bytes;
        left -= bytes;
    }
    return PM_OK;
}

/* Where the batch with this offset starts. */
static int64_t pm_position(const pm_partition *p, int64_t offset) {
    size_t low = 0, high = p->n;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (p->bases[middle] <= offset) low = middle;
        else high = middle;
    }
    return p->n ? p->positions[low] : 0;
}

/* Whole batches from `from` on, at most `most` bytes, at least one. */
static int64_t pm_slice(const pm_partition *p, int64_t offset, int64_t from, int64_t most) {
    if (offset >= p->next_offset) return 0;
    int64_t left = p->bytes - from;
    if (left <= most) return left;
    size_t low = 0, high = p->n;     /* the last batch that ends within `most` */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (p->positions[middle] <= from + most) low = middle;
        else high = middle;
    }
    if (p->positions[low] > from) return p->positions[low] - from;
    return (low + 1 < p->n ? p->positions[low + 1] : p->bytes) - from;
}

static int pm_out_room(pm_conn *c, size_t more) {
    if (c->out_bytes + more <= c->out_room) return 0;
    size_t room = (c->out_bytes + more) * 2;
    uint8_t *grown = realloc(c->out, room);
    if (!grown) return -1;
    c->out = grown;
    c->out_room = room;
    return 0;
}

/* Room behind a writer that is inside the out buffer, which may move. */
static int pm_writer_room(pm_conn *c, pw_writer *w, size_t more) {
    size_t used = (size_t)(w->p - c->out);
    if (used + more <= c->out_room) return 0;
    c->out_bytes = used;
    if (pm_out_room(c, more)) return -1;
    w->p = c->out + used;
    return 0;
}

/* The answer's bytes from `start` on to what has been written. */
static int pm_add_memory(pm_conn *c, size_t start) {
    pm_segment *last = c->n_segments > c->first_segment ? &c->segments[c->n_segments - 1] : NULL;
    if (last && last->file < 0 && (size_t)last->at + last->bytes == start) {
        last->bytes = c->out_bytes - (size_t)last->at;
        return 0;
    }
    if (c->n_segments == PM_SEGMENTS_MAX) return -1;
    c->segments[c->n_segments++] = (pm_segment){-1, (int64_t)start, c->out_bytes - start};
    return 0;
}

static int pm_add_file(pm_conn *c, int file, int64_t at, int64_t bytes) {
    if (c->n_segments == PM_SEGMENTS_MAX) return -1;
    c->segments[c->n_segments++] = (pm_segment){file, at, (size_t)bytes};
    return 0;
}

/* 0 all sent or the socket is full, -1 the connection is gone. */
static int pm_flush(pm_conn *c) {
    while (c->first_segment < c->n_segments) {
        pm_segment *g = &c->segments[c->first_segment];
        int more = c->first_segment + 1 < c->n_segments ? MSG_MORE : 0;
        ssize_t n;
        if (g->file >= 0) {
            off_t at = (off_t)g->at;
            n = sendfile(c->fd, g->file, &at, g->bytes);
        } else {
            n = send(c->fd, c->out + g->at, g->bytes, MSG_NOSIGNAL | MSG_DONTWAIT | more);
        }
        if (n < 0) {
            if (errno == EINTR) continue;
            return errno == EAGAIN ? 0 : -1;
        }
        if (n == 0) return -1;
        g->at += n;
        g->bytes -= (size_t)n;
        if (!g->bytes) c->first_segment++;
    }
    c->first_segment = c->n_segments = 0;
    c->out_bytes = 0;
    return 0;
}

static void pm_put_count(pw_writer *w, int flexible, int32_t n) {
    if (flexible) pw_put_uvarint(w, (uint32_t)(n + 1));
    else pw_put32(w, n);
}

/* Copies a topic's name or id from the request to the answer and gives its key. */
static int pm_topic(pw_cursor *c, pw_writer *w, int by_id, int flexible, uint8_t key[16]) {
    if (by_id) {
        const uint8_t *id = pw_take(c, 16);
        if (!id) return -1;
        memcpy(key, id, 16);
        pw_put_raw(w, id, 16);
        return 0;
    }
    int32_t n;
    const uint8_t *name = pw_string(c, flexible, &n);
    if (!name || n > 249) return -1;
    pm_topic_key(name, (size_t)n, key);
    if (flexible) pw_put_uvarint(w, (uint32_t)n + 1);
    else pw_put16(w, (int16_t)n);
    pw_put_raw(w, name, (size_t)n);
    return 0;
}

static int pm_produce(pm_server *s, pm_conn *c, pw_cursor body, int version, int32_t correlation) {
    int flexible = version >= 9;
    int32_t length;
    size_t start = c->out_bytes;
    if (pm_out_room(c, 512)) return -1;
    pw_writer w = {c->out + start + 4};
    pw_put32(&w, correlation);
    if (flexible) pw_put_uvarint(&w, 0);
    pw_string(&body, flexible, &length);
    int16_t acks = pw_i16(&body);
    pw_i32(&body);
    int32_t topics = pw_count(&body, flexible);
    pm_put_count(&w, flexible, topics);
    for (int32_t t = 0; t < topics; t++) {
        uint8_t key[16];
        if (body.bad || pm_writer_room(c, &w, 512)
            || pm_topic(&body, &w, version >= 13, flexible, key))
            return -1;
        int32_t partitions = pw_count(&body, flexible);
        pm_put_count(&w, flexible, partitions);
        for (int32_t i = 0; i < partitions; i++) {
            if (pm_writer_room(c, &w, 128)) return -1;
            int32_t index = pw_i32(&body);
            uint8_t *records = (uint8_t *)pw_bytes(&body, flexible, &length);
            if (body.bad || !records) return -1;
            if (flexible) pw_skip_tags(&body);
            int64_t offset = -1;
            pm_partition *p = pm_find(s, key, index, 1);
            int code = p ? pm_append(p, records, (size_t)length, &offset) : PM_UNKNOWN_TOPIC;
            pw_put32(&w, index);
            pw_put16(&w, (int16_t)code);
            pw_put64(&w, code ? -1 : offset);
            pw_put64(&w, -1);
            if (version >= 5) pw_put64(&w, 0);
            if (version >= 8) {
                pm_put_count(&w, flexible, 0);
                if (flexible) pw_put_uvarint(&w, 0);
                else pw_put16(&w, -1);
            }
            if (flexible) pw_put_uvarint(&w, 0);
        }
        if (flexible) pw_skip_tags(&body);
        if (flexible) pw_put_uvarint(&w, 0);
    }
    pw_put32(&w, 0);
    if (flexible) pw_put_uvarint(&w, 0);
    s->appended = 1;
    if (body.bad) return -1;
    c->out_bytes = start;
    if (!acks) return 0;
    c->out_bytes = (size_t)(w.p - c->out);
    pw_store32(c->out + start, (uint32_t)(c->out_bytes - start - 4));
    return pm_add_memory(c, start);
}

typedef struct {
    pm_partition *partition;
    int32_t index;
    int16_t code;
    int64_t offset, from, bytes;
} pm_want;

static void pm_put_fetched(pw_writer *w, int version, int flexible, const pm_want *want) {
    int64_t end = want->partition ? want->partition->next_offset : -1;
    pw_put32(w, want->index);
    pw_put16(w, want->code);
    pw_put64(w, end);
    pw_put64(w, end);
    if (version >= 5) pw_put64(w, 0);
    pm_put_count(w, flexible, -1);                 /* no aborted transactions */
    if (version >= 11) pw_put32(w, -1);
    if (flexible) pw_put_uvarint(w, (uint32_t)want->bytes + 1);
    else pw_put32(w, (int32_t)want->bytes);
}

/* One topic, as the generator asks. 1: nothing there yet, come again. */
static int pm_fetch(pm_server *s, pm_conn *c, pw_cursor body, int version, int32_t correlation) {
    static pm_want wants[PM_SEGMENTS_MAX / 2 - 2];
    int flexible = version >= 12;
    int64_t total = 0;
    uint8_t key[16], name[272];
    size_t start = c->out_bytes;
    if (version < 15) pw_i32(&body);
    int32_t wait_ms = pw_i32(&body), min_bytes = pw_i32(&body), max_bytes = pw_i32(&body);
    pw_i8(&body);
    if (version >= 7) pw_take(&body, 8);
    int32_t topics = pw_count(&body, flexible), n = 0;
    pw_writer topic = {name};
    if (topics > 1 || (topics == 1 && pm_topic(&body, &topic, version >= 13, flexible, key)))
        return -1;
    if (topics == 1) n = pw_count(&body, flexible);
    if (n > (int32_t)(sizeof wants / sizeof *wants)) return -1;
    for (int32_t i = 0; i < n; i++) {
        pm_want *want = &wants[i];
        want->index = pw_i32(&body);
        if (version >= 9) pw_i32(&body);
        want->offset = pw_i64(&body);
        if (version >= 12) pw_i32(&body);
        if (version >= 5) pw_i64(&body);
        int32_t most = pw_i32(&body);
        if (flexible) pw_skip_tags(&body);
        if (body.bad) return -1;
        want->partition = pm_find(s, key, want->index, 1);
        want->bytes = 0;
        want->code = want->partition ? PM_OK : PM_UNKNOWN_TOPIC;
        if (want->partition && (want->offset < 0 || want->offset > want->partition->next_offset))
            want->code = PM_OFFSET_OUT_OF_RANGE;
        if (!want->code && total < max_bytes) {
            want->from = pm_position(want->partition, want->offset);
            want->bytes = pm_slice(want->partition, want->offset, want->from, most);
        }
        total += want->bytes;
        if (want->code) min_bytes = 0;
    }
    if (total < min_bytes && wait_ms > 0) {
        int64_t now_ns = pm_now_ns();
        if (!c->parked_until_ns) c->parked_until_ns = now_ns + (int64_t)wait_ms * 1000000;
        if (now_ns < c->parked_until_ns) return 1;
    }
    if (pm_out_room(c, 512 + (size_t)n * 80)) return -1;
    pw_writer w = {c->out + start + 4};
    pw_put32(&w, correlation);
    if (flexible) pw_put_uvarint(&w, 0);
    pw_put32(&w, 0);
    if (version >= 7) {
        pw_put16(&w, 0);
        pw_put32(&w, 1);                           /* the one session id there is */
    }
    pm_put_count(&w, flexible, topics);
    pw_put_raw(&w, name, (size_t)(topic.p - name));
    if (topics) pm_put_count(&w, flexible, n);
    size_t piece = start;
    for (int32_t i = 0; i < n; i++) {
        pm_put_fetched(&w, version, flexible, &wants[i]);
        if (wants[i].bytes) {
            c->out_bytes = (size_t)(w.p - c->out);
            if (pm_add_memory(c, piece)
                || pm_add_file(c, wants[i].partition->fd, wants[i].from, wants[i].bytes))
                return -1;
            piece = c->out_bytes;
        }
        if (flexible) pw_put_uvarint(&w, 0);
    }
    if (flexible && topics) pw_put_uvarint(&w, 0);
    if (flexible) pw_put_uvarint(&w, 0);
    c->out_bytes = (size_t)(w.p - c->out);
    pw_store32(c->out + start, (uint32_t)((int64_t)(c->out_bytes - start) - 4 + total));
    return c->out_bytes > piece ? pm_add_memory(c, piece) : 0;
}

/* ListOffsets 1 and DeleteTopics 1: what the cells need around a block. ApiVersions 0: the barrier. */
static int pm_other(pm_server *s, pm_conn *c, pw_cursor body, int16_t api, int32_t correlation) {
    size_t start = c->out_bytes;
    uint8_t key[16];
    if (pm_out_room(c, 256 + body.left * 4)) return -1;
    pw_writer w = {c->out + start + 4};
    pw_put32(&w, correlation);
    if (api == 2) {
        pw_i32(&body);
        int32_t topics = pw_count(&body, 0);
        pw_put32(&w, topics);
        for (int32_t t = 0; t < topics; t++) {
            if (body.bad || pm_topic(&body, &w, 0, 0, key)) return -1;
            int32_t partitions = pw_count(&body, 0);
            pw_put32(&w, partitions);
            for (int32_t i = 0; i < partitions && !body.bad; i++) {
                int32_t index = pw_i32(&body);
                int64_t time_ms = pw_i64(&body);
                pm_partition *p = pm_find(s, key, index, 0);
                pw_put32(&w, index);
                pw_put16(&w, 0);
                pw_put64(&w, -1);
                pw_put64(&w, p && time_ms == -1 ? p->next_offset : 0);
            }
        }
    } else if (api == 20) {
        int32_t topics = pw_count(&body, 0);
        pw_put32(&w, 0);
        pw_put32(&w, topics);
        for (int32_t t = 0; t < topics; t++) {
            if (body.bad || pm_topic(&body, &w, 0, 0, key)) return -1;
            for (int i = 0; i < s->n_partitions; i++)
                if (s->partitions[i].fd >= 0 && !memcmp(s->partitions[i].key, key, 16))
                    pm_drop(&s->partitions[i]);
            pw_put16(&w, 0);
        }
    } else if (api == 18) {
        static const int16_t served[][3] = {{0, 3, 13}, {1, 4, 18}, {2, 1, 1}, {18, 0, 0}, {20, 1, 1}};
        pw_put16(&w, 0);
        pw_put32(&w, sizeof served / sizeof *served);
        for (size_t i = 0; i < sizeof served / sizeof *served; i++)
            for (int k = 0; k < 3; k++) pw_put16(&w, served[i][k]);
    } else {
        return -1;
    }
    if (body.bad) return -1;
    c->out_bytes = (size_t)(w.p - c->out);
    pw_store32(c->out + start, (uint32_t)(c->out_bytes - start - 4));
    return pm_add_memory(c, start);
}

/* 0 answered, 1 parked, -1 malformed. */
static int pm_request(pm_server *s, pm_conn *c, uint8_t *frame, size_t bytes) {
    pw_cursor body = {frame, bytes, 0};
    int32_t length;
    int16_t api = pw_i16(&body), version = pw_i16(&body);
    int32_t correlation = pw_i32(&body);
    pw_string(&body, 0, &length);
    if ((api == 0 && version >= 9) || (api == 1 && version >= 12)) pw_skip_tags(&body);
    if (body.bad) return -1;
    if (api == 0 && version >= 3 && version <= 13) return pm_produce(s, c, body, version, correlation);
    if (api == 1 && version >= 4 && version <= 18) return pm_fetch(s, c, body, version, correlation);
    return pm_other(s, c, body, api, correlation);
}

#endif
