/* Reading and writing Kafka's wire types for the load generator and the limit server.
 *
 * A pw_cursor carries the bytes that are left with the position: every read compares the wanted
 * count with what is left, sets `bad` when there is less and then answers 0. The caller tests `bad`
 * once, after a group of reads. Writers append to a buffer whose room the caller has ensured. */
#ifndef PERF_WIRE_H
#define PERF_WIRE_H

#include <stdint.h>
#include <string.h>

typedef struct {
    const uint8_t *p;
    size_t left;
    int bad;
} pw_cursor;

static inline const uint8_t *pw_take(pw_cursor *c, uint64_t n) {
    if (c->bad || n > c->left) {
        c->bad = 1;
        return NULL;
    }
    const uint8_t *at = c->p;
    c->p += n;
    c->left -= n;
    return at;
}
static inline uint16_t pw_load16(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, 2);
    return __builtin_bswap16(v);
}
static inline uint32_t pw_load32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return __builtin_bswap32(v);
}
static inline uint64_t pw_load64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return __builtin_bswap64(v);
}
static inline void pw_store16(uint8_t *p, uint16_t v) { v = __builtin_bswap16(v); memcpy(p, &v, 2); }
static inline void pw_store32(uint8_t *p, uint32_t v) { v = __builtin_bswap32(v); memcpy(p, &v, 4); }
static inline void pw_store64(uint8_t *p, uint64_t v) { v = __builtin_bswap64(v); memcpy(p, &v, 8); }

static inline int8_t pw_i8(pw_cursor *c) {
    const uint8_t *p = pw_take(c, 1);
    return p ? (int8_t)*p : 0;
}
static inline int16_t pw_i16(pw_cursor *c) {
    const uint8_t *p = pw_take(c, 2);
    return p ? (int16_t)pw_load16(p) : 0;
}
static inline int32_t pw_i32(pw_cursor *c) {
    const uint8_t *p = pw_take(c, 4);
    return p ? (int32_t)pw_load32(p) : 0;
}
static inline int64_t pw_i64(pw_cursor *c) {
    const uint8_t *p = pw_take(c, 8);
    return p ? (int64_t)pw_load64(p) : 0;
}
static inline uint32_t pw_uvarint(pw_cursor *c) {
    uint32_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        const uint8_t *p = pw_take(c, 1);
        if (!p) return 0;
        value |= (uint32_t)(*p & 127) << shift;
        if (!(*p & 128)) return value;
    }
    c->bad = 1;
    return 0;
}
/* An array's count: never more than the bytes left, so a loop over it is bounded. -1 is null. */
static inline int32_t pw_count(pw_cursor *c, int flexible) {
    int64_t n = flexible ? (int64_t)pw_uvarint(c) - 1 : pw_i32(c);
    if (n < -1 || n > (int64_t)c->left) c->bad = 1;
    return c->bad ? 0 : (int32_t)n;
}
/* A (nullable) string or bytes: length into *n, -1 for null. */
static inline const uint8_t *pw_string(pw_cursor *c, int flexible, int32_t *n) {
    *n = flexible ? (int32_t)pw_uvarint(c) - 1 : pw_i16(c);
    return *n > 0 ? pw_take(c, (uint32_t)*n) : NULL;
}
static inline const uint8_t *pw_bytes(pw_cursor *c, int flexible, int32_t *n) {
    *n = flexible ? (int32_t)pw_uvarint(c) - 1 : pw_i32(c);
    return *n > 0 ? pw_take(c, (uint32_t)*n) : NULL;
}
static inline void pw_skip_tags(pw_cursor *c) {
    uint32_t tags = pw_uvarint(c);
    while (tags-- && !c->bad) {
        (void)pw_uvarint(c);
        pw_take(c, pw_uvarint(c));
    }
}

typedef struct { uint8_t *p; } pw_writer;

static inline void pw_put8(pw_writer *w, int8_t v) { *w->p++ = (uint8_t)v; }
static inline void pw_put16(pw_writer *w, int16_t v) { pw_store16(w->p, (uint16_t)v); w->p += 2; }
static inline void pw_put32(pw_writer *w, int32_t v) { pw_store32(w->p, (uint32_t)v); w->p += 4; }
static inline void pw_put64(pw_writer *w, int64_t v) { pw_store64(w->p, (uint64_t)v); w->p += 8; }
static inline void pw_put_raw(pw_writer *w, const void *p, size_t n) { memcpy(w->p, p, n); w->p += n; }
static inline void pw_put_uvarint(pw_writer *w, uint32_t v) {
    for (; v >= 128; v >>= 7) *w->p++ = (uint8_t)(v | 128);
    *w->p++ = (uint8_t)v;
}

/* Field positions of a record batch, version 2. The CRC covers everything from the attributes on. */
enum {
    PW_BATCH_LENGTH = 8,      /* bytes that follow this field */
    PW_BATCH_MAGIC = 16,
    PW_BATCH_CRC = 17,
    PW_BATCH_ATTRIBUTES = 21,
    PW_BATCH_LAST_DELTA = 23,
    PW_BATCH_SEQUENCE = 53,
    PW_BATCH_HEADER = 61,
    PW_BATCH_LOG_OVERHEAD = 12, /* base offset and length: a batch has this plus its length */
};

#endif
