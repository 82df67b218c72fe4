/* The produce side of the load generator: patching a template, reading its answer.
 *
 * A template is a whole request whose batches have a valid CRC-32C. What changes from one request
 * to the next is the correlation id, and where asked for the base sequence of each batch (an
 * idempotent producer) and an 8-byte send time inside the first record (end-to-end cell); the CRC
 * follows by pc_field(). Every partition's answer is read: error code, and offsets that only grow. */
#ifndef PERF_PRODUCE_H
#define PERF_PRODUCE_H

#include "perf_run.h"

static void pl_patch_produce(pl_conn *conn, uint8_t *frame, int64_t stamp_ns) {
    pw_store32(frame + 8, (uint32_t)conn->next_correlation_id);
    for (int i = 0; i < conn->n_batches; i++) {
        pl_batch *batch = &conn->batches[i];
        uint8_t *at = frame + batch->at;
        uint32_t crc = batch->crc;
        if (!conn->idempotent && batch->stamp_at < 0) continue; /* the template's CRC stands */
        if (conn->idempotent) {
            pl_slot *slot = &conn->slots[batch->slot];
            pw_store32(at + PW_BATCH_SEQUENCE, (uint32_t)slot->next_sequence);
            crc ^= pc_field(batch->after_sequence, at + PW_BATCH_SEQUENCE, 4);
            /* Sequences wrap from 2^31 - 1 to 0. */
            slot->next_sequence =
                (int32_t)(((uint32_t)slot->next_sequence + (uint32_t)batch->records) & 0x7fffffff);
        }
        if (batch->stamp_at >= 0) {
            pw_store64(at + batch->stamp_at, (uint64_t)stamp_ns);
            crc ^= pc_field(batch->after_stamp, at + batch->stamp_at, 8);
        }
        pw_store32(at + PW_BATCH_CRC, crc);
    }
}

static int pl_partition_answer(pl_run *run, pl_conn *conn, int hint, int32_t partition,
                               int16_t code, int64_t base_offset) {
    pl_stream *stream = &run->streams[conn->stream];
    pl_slot *slot = pl_find_slot(conn, hint, partition);
    if (!slot) return pl_fail(run, "produce: an answer for partition %d, not asked for", partition);
    if (code) return pl_error(run, stream, code);
    int32_t records = conn->batches[slot - conn->slots].records;
    if (base_offset <= slot->last_offset)
        return pl_fail(run, "produce: offset %lld of partition %d after %lld",
                       (long long)base_offset, partition, (long long)slot->last_offset);
    if (slot->expected_offset >= 0 && base_offset != slot->expected_offset)
        return pl_fail(run, "produce: offset %lld of partition %d where %lld had to come",
                       (long long)base_offset, partition, (long long)slot->expected_offset);
    if (slot->expected_offset >= 0) slot->expected_offset += records;
    slot->last_offset = base_offset + records - 1;
    pl_count_records(run, stream, records);
    return 0;
}

/* `body` starts behind the correlation id. */
static int pl_on_produce(pl_run *run, pl_conn *conn, pw_cursor body) {
    int version = run->streams[conn->stream].version, flexible = version >= 9, seen = 0;
    int32_t length;
    if (flexible) pw_skip_tags(&body);
    int32_t topics = pw_count(&body, flexible);
    for (int32_t t = 0; t < topics && !body.bad; t++) {
        if (version >= 13) pw_take(&body, 16);
        else pw_string(&body, flexible, &length);
        int32_t partitions = pw_count(&body, flexible);
        for (int32_t i = 0; i < partitions && !body.bad; i++, seen++) {
            int32_t partition = pw_i32(&body);
            int16_t code = pw_i16(&body);
            int64_t base_offset = pw_i64(&body);
            pw_i64(&body);                        /* log append time */
            if (version >= 5) pw_i64(&body);      /* log start offset */
            if (version >= 8) {
                int32_t errors = pw_count(&body, flexible);
                for (int32_t e = 0; e < errors && !body.bad; e++) {
                    pw_i32(&body);
                    pw_string(&body, flexible, &length);
                    if (flexible) pw_skip_tags(&body);
                }
                pw_string(&body, flexible, &length);
            }
            if (flexible) pw_skip_tags(&body);
            if (body.bad) break;
            if (pl_partition_answer(run, conn, seen, partition, code, base_offset)) return -1;
        }
        if (flexible) pw_skip_tags(&body);
    }
    pw_i32(&body);                                /* throttle time */
    if (body.bad) return pl_fail(run, "produce: an answer that ends early");
    if (seen != conn->n_batches)
        return pl_fail(run, "produce: %d partitions answered of %d", seen, conn->n_batches);
    return 0;
}

#endif
