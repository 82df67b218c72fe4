/* The fetch side of the load generator: building requests, reading answers.
 *
 * Version 4 names the topic and every partition each time. Version 18 goes by topic id in a session:
 * the first request names all partitions, later ones those whose offset moved, as the Java consumer
 * does. A stream either walks a prepared log round and round, or follows the end of one (`tail`).
 *
 * Reading a large answer would cost the generator more than sending it costs a broker, so where all
 * batches of the log have one known size only the head is read: codes, offsets, the size of the
 * records and the first batch's header. The rest is dropped in the kernel. Every `verify_every`-th
 * answer is read whole and the CRC of each batch checked. */
#ifndef PERF_FETCH_H
#define PERF_FETCH_H

#include "perf_run.h"

#define PL_FLEXIBLE_FETCH 12

static void pl_put_fetch_partition(pw_writer *w, const pl_stream *stream, const pl_slot *slot) {
    int version = stream->version;
    pw_put32(w, slot->partition);
    if (version >= 9) pw_put32(w, -1);            /* current leader epoch: not known */
    pw_put64(w, slot->fetch_offset);
    if (version >= 12) pw_put32(w, -1);           /* last fetched epoch */
    if (version >= 5) pw_put64(w, -1);            /* log start offset: a follower's */
    pw_put32(w, stream->partition_max_bytes);
    if (version >= PL_FLEXIBLE_FETCH) pw_put_uvarint(w, 0);
}

/* Writes one request at `out` and returns its size. The room is ensured by pl_conn_prepare: the
 * template of a fetching connection is its request header, and each slot has 64 bytes more. */
static uint32_t pl_build_fetch(pl_run *run, pl_conn *conn, uint8_t *out) {
    pl_stream *stream = &run->streams[conn->stream];
    int version = stream->version, flexible = version >= PL_FLEXIBLE_FETCH;
    int whole = !stream->session || conn->session_id == 0, named = 0;
    for (int i = 0; i < conn->n_slots; i++) named += whole || conn->slots[i].changed;
    pw_writer w = {out};
    pw_put_raw(&w, conn->frame, conn->frame_bytes);
    pw_store32(out + 8, (uint32_t)conn->next_correlation_id);
    if (version < 15) pw_put32(&w, -1);           /* replica id: a consumer */
    pw_put32(&w, stream->max_wait_ms);
    pw_put32(&w, stream->min_bytes);
    pw_put32(&w, stream->max_bytes);
    pw_put8(&w, (uint8_t)stream->isolation);
    if (version >= 7) {
        pw_put32(&w, stream->session ? conn->session_id : 0);
        pw_put32(&w, stream->session ? conn->session_epoch : -1);
    }
    int topics = named ? 1 : 0;
    if (flexible) pw_put_uvarint(&w, (uint32_t)topics + 1);
    else pw_put32(&w, topics);
    if (topics) {
        if (version < 13) pw_put16(&w, (int16_t)conn->topic_bytes);
        pw_put_raw(&w, conn->topic, (size_t)conn->topic_bytes);
        if (flexible) pw_put_uvarint(&w, (uint32_t)named + 1);
        else pw_put32(&w, named);
        for (int i = 0; i < conn->n_slots; i++)
            if (whole || conn->slots[i].changed) pl_put_fetch_partition(&w, stream, &conn->slots[i]);
        if (flexible) pw_put_uvarint(&w, 0);
    }
    if (version >= 7) {                           /* forgotten topics: none */
        if (flexible) pw_put_uvarint(&w, 1);
        else pw_put32(&w, 0);
    }
    if (version >= 11) {                          /* rack: none */
        if (flexible) pw_put_uvarint(&w, 1);
        else pw_put16(&w, 0);
    }
    if (flexible) pw_put_uvarint(&w, 0);
    uint32_t bytes = (uint32_t)(w.p - out);
    pw_store32(out, bytes - 4);
    for (int i = 0; i < conn->n_slots; i++) conn->slots[i].changed = 0;
    return bytes;
}

/* The send time sits in the first record's value, at the place that perf/batch.py gave it. Those
 * meant for the window count, however late they come: leaving out the late ones would flatter. */
static void pl_take_stamp(pl_run *run, pl_stream *stream, const uint8_t *batch, uint32_t bytes,
                          int64_t now_ns) {
    uint32_t at = (uint32_t)stream->stamped;
    if (run->phase == PL_WARMING || bytes < at + 8) return;
    int64_t sent_ns = (int64_t)pw_load64(batch + at);
    if (sent_ns < run->window_start_ns || sent_ns > now_ns) return;
    if (run->phase == PL_DRAINING && sent_ns >= run->window_end_ns) return;
    ph_add(&stream->end_to_end, (uint64_t)(now_ns - sent_ns));
}

/* Walks the whole batches of one partition's records; a last one that is cut off is not counted. */
static int pl_walk_batches(pl_run *run, pl_conn *conn, pl_slot *slot, const uint8_t *p,
                           uint32_t left, int verify, int64_t now_ns) {
    pl_stream *stream = &run->streams[conn->stream];
    int first = 1;
    while (left >= PW_BATCH_HEADER) {
        int64_t base = (int64_t)pw_load64(p);
        uint32_t length = pw_load32(p + PW_BATCH_LENGTH);
        if (length < PW_BATCH_HEADER - PW_BATCH_LOG_OVERHEAD || length > PL_FRAME_BYTES_MAX)
            return pl_fail(run, "fetch: a batch of %u bytes at offset %lld", length, (long long)base);
        uint32_t bytes = length + PW_BATCH_LOG_OVERHEAD;
        int32_t last_delta = (int32_t)pw_load32(p + PW_BATCH_LAST_DELTA);
        if (first ? base > slot->fetch_offset || base + last_delta < slot->fetch_offset
                  : base != slot->fetch_offset)
            return pl_fail(run, "fetch: batch %lld..%lld of partition %d where offset %lld had to be",
                           (long long)base, (long long)(base + last_delta), slot->partition,
                           (long long)slot->fetch_offset);
        if (bytes > left) break;
        if (verify) {
            uint32_t crc = pc_crc32c(p + PW_BATCH_ATTRIBUTES, bytes - PW_BATCH_ATTRIBUTES);
            if (crc != pw_load32(p + PW_BATCH_CRC))
                return pl_fail(run, "fetch: the CRC of the batch at offset %lld of partition %d is wrong",
                               (long long)base, slot->partition);
            stream->verified_batches++;
        }
        if (stream->stamped) pl_take_stamp(run, stream, p, bytes, now_ns);
        pl_count_records(run, stream, base + last_delta + 1 - slot->fetch_offset);
        slot->fetch_offset = base + last_delta + 1;
        slot->changed = 1;
        first = 0;
        p += bytes;
        left -= bytes;
    }
    return 0;
}

/* The head of a uniform log's answer: the first batch tells where it starts, the size how many. */
static int pl_count_uniform(pl_run *run, pl_conn *conn, pl_slot *slot, pw_cursor head,
                            uint32_t records_bytes) {
    pl_stream *stream = &run->streams[conn->stream];
    const uint8_t *p = pw_take(&head, PW_BATCH_HEADER);
    if (!p) return pl_fail(run, "fetch: an answer without a whole batch header");
    int64_t base = (int64_t)pw_load64(p);
    uint32_t bytes = pw_load32(p + PW_BATCH_LENGTH) + PW_BATCH_LOG_OVERHEAD;
    if (base != slot->fetch_offset || bytes != stream->uniform_bytes)
        return pl_fail(run, "fetch: a batch of %u bytes at %lld of partition %d, not of %u at %lld",
                       bytes, (long long)base, slot->partition, stream->uniform_bytes,
                       (long long)slot->fetch_offset);
    int64_t records = (int64_t)(records_bytes / bytes) * stream->uniform_records;
    pl_count_records(run, stream, records);
    slot->fetch_offset += records;
    slot->changed = 1;
    return 0;
}

/* `body` starts behind the correlation id; where only the head was read it ends inside the records
 * of the one partition, and `head_only` is set. */
static int pl_on_fetch(pl_run *run, pl_conn *conn, pw_cursor body, int head_only, int64_t now_ns) {
    pl_stream *stream = &run->streams[conn->stream];
    int version = stream->version, flexible = version >= PL_FLEXIBLE_FETCH, seen = 0;
    int verify = stream->verify_every && conn->answers % stream->verify_every == 0;
    int32_t length;
    if (flexible) pw_skip_tags(&body);
    pw_i32(&body);                                /* throttle time */
    if (version >= 7) {
        int16_t code = pw_i16(&body);
        int32_t session_id = pw_i32(&body);
        if (body.bad) return pl_fail(run, "fetch: an answer that ends early");
        if (code) return pl_error(run, stream, code);
        if (stream->session && conn->session_id == 0 && session_id == 0)
            return pl_fail(run, "fetch: the broker opened no session");
        if (stream->session && conn->session_id && session_id != conn->session_id)
            return pl_fail(run, "fetch: session %d answered for %d", session_id, conn->session_id);
        conn->session_id = session_id;
        conn->session_epoch = conn->session_epoch == INT32_MAX ? 1 : conn->session_epoch + 1;
    }
    int32_t topics = pw_count(&body, flexible);
    for (int32_t t = 0; t < topics && !body.bad; t++) {
        if (version >= 13) pw_take(&body, 16);
        else pw_string(&body, flexible, &length);
        int32_t partitions = pw_count(&body, flexible);
        for (int32_t i = 0; i < partitions && !body.bad; i++, seen++) {
            int32_t partition = pw_i32(&body);
            int16_t code = pw_i16(&body);
            pw_i64(&body);                        /* high watermark */
            pw_i64(&body);                        /* last stable offset */
            if (version >= 5) pw_i64(&body);      /* log start offset */
            int32_t aborted = pw_count(&body, flexible);
            for (int32_t a = 0; a < aborted && !body.bad; a++) {
                pw_take(&body, 16);
                if (flexible) pw_skip_tags(&body);
            }
            if (version >= 11) pw_i32(&body);     /* preferred read replica */
            int32_t records_bytes = flexible ? (int32_t)pw_uvarint(&body) - 1 : pw_i32(&body);
            if (body.bad) break;
            pl_slot *slot = pl_find_slot(conn, seen, partition);
            if (!slot) return pl_fail(run, "fetch: partition %d was not asked for", partition);
            if (code) {
                if (pl_error(run, stream, code)) return -1;
                slot->changed = 1;
            }
            if (head_only) return pl_count_uniform(run, conn, slot, body, (uint32_t)records_bytes);
            if (records_bytes > 0) {
                const uint8_t *records = pw_take(&body, (uint32_t)records_bytes);
                if (records && pl_walk_batches(run, conn, slot, records, (uint32_t)records_bytes,
                                               verify, now_ns))
                    return -1;
            }
            if (flexible) pw_skip_tags(&body);
        }
        if (flexible) pw_skip_tags(&body);
    }
    if (body.bad) return pl_fail(run, "fetch: an answer that ends early");
    return 0;
}

/* A stream that walks a prepared log starts again where its end is reached. */
static void pl_wrap_slots(const pl_stream *stream, pl_conn *conn) {
    if (stream->tail) return;
    for (int i = 0; i < conn->n_slots; i++) {
        pl_slot *slot = &conn->slots[i];
        if (slot->fetch_offset < slot->end_offset) continue;
        slot->fetch_offset = slot->start_offset;
        slot->changed = 1;
    }
}

#endif
