/* LZ4 and Snappy decoders that give their output in pieces, through a window of fixed size.
 *
 * Both formats copy from what they have put out before, at most 64 KB back in LZ4 and in what every
 * known Snappy compressor makes: so a window of 64 KB of history and 64 KB of fresh bytes is enough
 * for output of any length, and a small batch that claims gigabytes costs no memory.
 *
 *   LZ4    the frame format, one frame: https://github.com/lz4/lz4/tree/dev/doc. Independent blocks
 *          only, as Kafka's Java clients want them. All its checksums and the size are verified:
 *          one client or another would stop at a wrong one. Blocks of 64 KB, which every client of
 *          Kafka makes, fit the window whole: the system's library unpacks them, where it is.
 *   Snappy raw (https://github.com/google/snappy, format_description) or in the framing of the
 *          Java library: a header of 16 bytes, then int32 sizes and raw blocks.
 *
 * The input is hostile: every read is compared with what is left of it, every copy with what has
 * been put out, every write with the room in the window. */
#ifndef KBROKER_WINDOW_CODECS_H
#define KBROKER_WINDOW_CODECS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "bytes.h"

#define KB_HISTORY_BYTES 65536
#define KB_WINDOW_BYTES (2 * KB_HISTORY_BYTES)
#define KB_WINDOW_SLACK 16 /* copies go in steps of up to 16 bytes, past their end */

/* What a decoder answers when it stops. */
#define KB_PIECE_END 1      /* the block is complete */
#define KB_PIECE_FULL 0     /* the window is full: take what is fresh, then go on */
#define KB_PIECE_CORRUPT -1
#define KB_PIECE_TOO_FAR -2 /* a sound copy from further back than the window remembers */

enum kb_window_phase { KB_AT_TAG, KB_IN_LITERALS, KB_AT_OFFSET, KB_IN_MATCH };

typedef struct kb_window {
    const uint8_t *in, *in_end; /* of the block */
    uint8_t *out;               /* KB_WINDOW_BYTES + KB_WINDOW_SLACK */
    size_t filled;              /* bytes in the window */
    size_t floor;               /* the block's output begins here; copies reach no further back */
    size_t block_bytes;         /* the block's output so far */
    size_t block_bytes_max;     /* more is corrupt */
    size_t literal_left, match_left, offset;
    size_t literals, matched;   /* LZ4: of the sequence at hand, and of the last match; 0: none yet */
    unsigned match_code;
    enum kb_window_phase phase;
} kb_window;

/* The same field read from the other end; right on machines of either order. */
static inline uint32_t kb_get_le32(const uint8_t *at) { return __builtin_bswap32(kb_get_u32(at)); }

static void kb_window_block(
    kb_window *window, const uint8_t *in, size_t in_bytes, size_t out_bytes_max) {
    window->in = in;
    window->in_end = in + in_bytes;
    window->floor = window->filled;
    window->block_bytes = 0;
    window->block_bytes_max = out_bytes_max;
    window->literal_left = window->match_left = window->matched = 0;
    window->phase = KB_AT_TAG;
}

/* Makes room: what is older than the history is forgotten. */
static void kb_window_slide(kb_window *window) {
    if (window->filled < KB_WINDOW_BYTES) return;
    size_t gone = window->filled - KB_HISTORY_BYTES;
    memmove(window->out, window->out + gone, KB_HISTORY_BYTES);
    window->filled = KB_HISTORY_BYTES;
    window->floor = window->floor > gone ? window->floor - gone : 0;
}

/* Most copies are short: fixed steps beat a call. Writes and reads up to 15 bytes past the end. */
static inline void kb_copy_steps(uint8_t *to, const uint8_t *from, size_t count) {
    for (size_t at = 0; at < count; at += 16) memcpy(to + at, from + at, 16);
}

/* 1 if all literals are out, 0 if the window is full, -1 if the input or the block is too short. */
static inline int kb_window_literals(kb_window *window) {
    size_t count = window->literal_left, room = KB_WINDOW_BYTES - window->filled;
    size_t left = (size_t)(window->in_end - window->in);
    if (count > left) return KB_PIECE_CORRUPT;
    if (count > window->block_bytes_max - window->block_bytes) return KB_PIECE_CORRUPT;
    if (count > room) count = room;
    if (left - count >= 16)
        kb_copy_steps(window->out + window->filled, window->in, count);
    else
        memcpy(window->out + window->filled, window->in, count);
    window->in += count;
    window->filled += count;
    window->block_bytes += count;
    window->literal_left -= count;
    return window->literal_left == 0;
}

static inline int kb_window_match(kb_window *window) {
    size_t count = window->match_left, room = KB_WINDOW_BYTES - window->filled;
    if (count > window->block_bytes_max - window->block_bytes) return KB_PIECE_CORRUPT;
    if (count > room) count = room;
    uint8_t *to = window->out + window->filled;
    const uint8_t *from = to - window->offset;
    if (window->offset >= 16) { /* steps that do not overlap, even if the whole does */
        kb_copy_steps(to, from, count);
    } else if (window->offset >= 8) {
        for (size_t at = 0; at < count; at += 8) memcpy(to + at, from + at, 8);
    } else if (window->offset == 1) {
        memset(to, *from, count);
    } else {
        for (size_t at = 0; at < count; at++) to[at] = from[at];
    }
    window->filled += count;
    window->block_bytes += count;
    window->match_left -= count;
    return window->match_left == 0;
}

/* 1 if the offset reaches back no further than the block's start and the window's memory. */
static inline int kb_window_reaches(const kb_window *window) {
    if (window->offset == 0 || window->offset > window->block_bytes) return KB_PIECE_CORRUPT;
    /* No further than what a slide keeps either: a copy may be cut in two by one. */
    if (window->offset > window->filled - window->floor || window->offset > KB_HISTORY_BYTES)
        return KB_PIECE_TOO_FAR;
    return 1;
}

/* --- LZ4 blocks --------------------------------------------------------------------------------*/

/* A length's continuation: bytes of 255 and one below. 0, or -1 at the end of the input. */
static inline int kb_lz4_length(kb_window *window, size_t *length) {
    uint8_t byte;
    do {
        if (window->in == window->in_end) return -1;
        byte = *window->in++;
        *length += byte;
    } while (byte == 255);
    return 0;
}

/* A block ends with five literals, and its last match begins twelve bytes before its end: decoders that
 * copy in steps, as that of the Java clients does, refuse others. Each compressor keeps to it. */
#define KB_LZ4_LAST_LITERALS 5
#define KB_LZ4_LAST_MATCH_BYTES 12

static inline int kb_lz4_ends_well(const kb_window *window) {
    return !window->matched ||
           (window->literals >= KB_LZ4_LAST_LITERALS &&
            window->literals + window->matched >= KB_LZ4_LAST_MATCH_BYTES);
}

static int kb_lz4_decode(kb_window *window) {
    int status;
    for (;;) switch (window->phase) {
        case KB_AT_TAG: {
            if (window->in == window->in_end) return KB_PIECE_CORRUPT;
            unsigned tag = *window->in++;
            window->literal_left = tag >> 4;
            window->match_code = tag & 15;
            if (window->literal_left == 15 && kb_lz4_length(window, &window->literal_left) < 0)
                return KB_PIECE_CORRUPT;
            window->literals = window->literal_left;
            window->phase = KB_IN_LITERALS;
        } /* fall through */
        case KB_IN_LITERALS:
            if ((status = kb_window_literals(window)) != 1) return status;
            if (window->in == window->in_end)
                return kb_lz4_ends_well(window) ? KB_PIECE_END : KB_PIECE_CORRUPT;
            window->phase = KB_AT_OFFSET; /* fall through */
        case KB_AT_OFFSET:
            if (window->in_end - window->in < 2) return KB_PIECE_CORRUPT;
            window->offset = window->in[0] | (size_t)window->in[1] << 8;
            window->in += 2;
            window->match_left = window->match_code;
            if (window->match_left == 15 && kb_lz4_length(window, &window->match_left) < 0)
                return KB_PIECE_CORRUPT;
            window->match_left += 4;
            window->matched = window->match_left;
            if ((status = kb_window_reaches(window)) != 1) return status;
            window->phase = KB_IN_MATCH; /* fall through */
        case KB_IN_MATCH:
            if ((status = kb_window_match(window)) != 1) return status;
            window->phase = KB_AT_TAG;
        }
}

/* XXH32 in parts, https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md */
#define KB_XXH_P1 2654435761u
#define KB_XXH_P2 2246822519u
#define KB_XXH_P3 3266489917u
#define KB_XXH_P4 668265263u
#define KB_XXH_P5 374761393u

typedef struct kb_xxh32 {
    uint32_t lane[4];
    uint8_t tail[16];
    size_t tail_bytes;
    uint64_t length;
} kb_xxh32;

static inline uint32_t kb_rotate(uint32_t value, int by) {
    return value << by | value >> (32 - by);
}

static void kb_xxh32_begin(kb_xxh32 *hash) {
    hash->lane[0] = KB_XXH_P1 + KB_XXH_P2;
    hash->lane[1] = KB_XXH_P2;
    hash->lane[2] = 0;
    hash->lane[3] = 0 - KB_XXH_P1;
    hash->tail_bytes = 0;
    hash->length = 0;
}

static inline void kb_xxh32_stripe(kb_xxh32 *hash, const uint8_t *at) {
    for (int i = 0; i < 4; i++)
        hash->lane[i] =
            kb_rotate(hash->lane[i] + kb_get_le32(at + 4 * i) * KB_XXH_P2, 13) * KB_XXH_P1;
}

static void kb_xxh32_add(kb_xxh32 *hash, const uint8_t *at, size_t length) {
    hash->length += length;
    if (hash->tail_bytes) {
        size_t wanted = 16 - hash->tail_bytes;
        if (wanted > length) wanted = length;
        memcpy(hash->tail + hash->tail_bytes, at, wanted);
        hash->tail_bytes += wanted;
        at += wanted;
        length -= wanted;
        if (hash->tail_bytes < 16) return;
        kb_xxh32_stripe(hash, hash->tail);
    }
    for (; length >= 16; at += 16, length -= 16) kb_xxh32_stripe(hash, at);
    memcpy(hash->tail, at, length);
    hash->tail_bytes = length;
}

static uint32_t kb_xxh32_end(const kb_xxh32 *hash) {
    const uint8_t *at = hash->tail, *end = at + hash->tail_bytes;
    uint32_t sum = hash->lane[2] + KB_XXH_P5;
    if (hash->length >= 16)
        sum = kb_rotate(hash->lane[0], 1) + kb_rotate(hash->lane[1], 7) +
              kb_rotate(hash->lane[2], 12) + kb_rotate(hash->lane[3], 18);
    sum += (uint32_t)hash->length;
    for (; end - at >= 4; at += 4)
        sum = kb_rotate(sum + kb_get_le32(at) * KB_XXH_P3, 17) * KB_XXH_P4;
    for (; at < end; at++) sum = kb_rotate(sum + *at * KB_XXH_P5, 11) * KB_XXH_P1;
    sum = (sum ^ (sum >> 15)) * KB_XXH_P2;
    sum = (sum ^ (sum >> 13)) * KB_XXH_P3;
    return sum ^ (sum >> 16);
}

static uint32_t kb_xxh32_of(const uint8_t *data, size_t length) {
    kb_xxh32 hash;
    kb_xxh32_begin(&hash);
    kb_xxh32_add(&hash, data, length);
    return kb_xxh32_end(&hash);
}

/* --- LZ4 frames --------------------------------------------------------------------------------*/

/* LZ4_decompress_safe: bytes put out, below 0 for a block that is none or does not fit. */
typedef int (*kb_lz4_library)(const char *in, char *out, int in_bytes, int out_bytes_max);

typedef struct kb_lz4_frame {
    const uint8_t *in, *in_end;
    kb_lz4_library library; /* NULL: blocks are unpacked here */
    size_t block_bytes_max;
    int block_checksum, content_checksum, content_size, in_block;
    uint64_t content_bytes, claimed_bytes;
    kb_xxh32 content;
} kb_lz4_frame;

/* Reads the frame's header. 0, or -1 if it is not one that a Java client could read. */
static int kb_lz4_open(
    kb_lz4_frame *frame, kb_lz4_library library, const uint8_t *in, size_t length) {
    frame->in_end = in + length;
    frame->in_block = 0;
    if (length < 7 || kb_get_le32(in) != 0x184d2204u) return -1;
    unsigned flags = in[4], block = in[5];
    size_t descriptor = 2 + (flags & 8 ? 8 : 0);
    /* version 1, independent blocks, no dictionary, no reserved bit; blocks of 64 KB to 4 MB */
    if ((flags & 0xe3) != 0x60 || (block & 0x8f) || (block >> 4) < 4) return -1;
    if (length < 4 + descriptor + 1) return -1;
    if (((kb_xxh32_of(in + 4, descriptor) >> 8) & 0xff) != in[4 + descriptor]) return -1;
    frame->block_checksum = (flags >> 4) & 1;
    frame->content_checksum = (flags >> 2) & 1;
    frame->content_size = (flags >> 3) & 1;
    frame->claimed_bytes = frame->content_size ? __builtin_bswap64(kb_get_u64(in + 6)) : 0;
    frame->content_bytes = 0;
    kb_xxh32_begin(&frame->content);
    frame->block_bytes_max = (size_t)1 << (8 + 2 * (block >> 4));
    frame->library = frame->block_bytes_max <= KB_HISTORY_BYTES ? library : NULL;
    frame->in = in + 4 + descriptor + 1;
    return 0;
}

static int kb_lz4_next_block(kb_lz4_frame *frame, kb_window *window) {
    size_t left = (size_t)(frame->in_end - frame->in);
    if (left < 4) return KB_PIECE_CORRUPT;
    uint32_t size = kb_get_le32(frame->in);
    int stored = size >> 31;
    size &= 0x7fffffffu;
    frame->in += 4;
    left -= 4;
    if (size == 0) { /* the end mark */
        if (left != (frame->content_checksum ? 4 : 0)) return KB_PIECE_CORRUPT;
        if (frame->content_size && frame->content_bytes != frame->claimed_bytes)
            return KB_PIECE_CORRUPT;
        if (frame->content_checksum && kb_xxh32_end(&frame->content) != kb_get_le32(frame->in))
            return KB_PIECE_CORRUPT;
        return KB_PIECE_END;
    }
    size_t checksum = frame->block_checksum ? 4 : 0;
    if (size > frame->block_bytes_max || left < checksum || size > left - checksum)
        return KB_PIECE_CORRUPT;
    if (checksum && kb_xxh32_of(frame->in, size) != kb_get_le32(frame->in + size))
        return KB_PIECE_CORRUPT;
    kb_window_block(window, frame->in, size, frame->block_bytes_max);
    if (stored) {
        window->literal_left = size;
        window->phase = KB_IN_LITERALS;
    }
    frame->in += size + checksum;
    frame->in_block = 1;
    return KB_PIECE_FULL;
}

/* A whole block at once: at its beginning there is room for the largest that it may be. */
static int kb_lz4_whole_block(kb_lz4_frame *frame, kb_window *window) {
    int size = frame->library(
        (const char *)window->in, (char *)window->out + window->filled,
        (int)(window->in_end - window->in), (int)window->block_bytes_max);
    if (size < 0) return KB_PIECE_CORRUPT;
    window->filled += (size_t)size;
    return KB_PIECE_END;
}

/* Fills the window. KB_PIECE_FULL: there is something fresh, or more to come; END: the frame's. */
static int kb_lz4_fill(kb_lz4_frame *frame, kb_window *window) {
    int status;
    for (;;) {
        if (!frame->in_block && (status = kb_lz4_next_block(frame, window)) != KB_PIECE_FULL)
            return status;
        size_t before = window->filled;
        status = frame->library && window->phase == KB_AT_TAG
                     ? kb_lz4_whole_block(frame, window)
                     : kb_lz4_decode(window);
        if (status < 0) return status;
        frame->content_bytes += window->filled - before;
        if (frame->content_checksum)
            kb_xxh32_add(&frame->content, window->out + before, window->filled - before);
        if (status != KB_PIECE_END) return status;
        frame->in_block = 0;
        if (window->filled > KB_HISTORY_BYTES) return KB_PIECE_FULL; /* enough fresh for a turn */
    }
}

/* --- Snappy ------------------------------------------------------------------------------------*/

#define KB_XERIAL_HEADER_BYTES 16

typedef struct kb_snappy {
    const uint8_t *in, *in_end;
    int framed, in_block;
} kb_snappy;

static const uint8_t kb_xerial_magic[8] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0};

/* 1 if a header of the framing begins here: its magic, and a version from 1 on, below which the Java
 * library reads nothing. What else it says is about who may read it. */
static inline int kb_xerial_header(const uint8_t *at, size_t left) {
    return left >= KB_XERIAL_HEADER_BYTES && memcmp(at, kb_xerial_magic, 8) == 0 &&
           (int32_t)kb_get_u32(at + 8) >= 1;
}

static int kb_snappy_tag(kb_window *window) {
    unsigned tag = *window->in++;
    size_t left = (size_t)(window->in_end - window->in), extra, value = 0;
    static const uint8_t offset_bytes[4] = {0, 1, 2, 4};
    if ((tag & 3) == 0) {
        size_t length = tag >> 2;
        extra = length < 60 ? 0 : length - 59;
        if (left < extra) return KB_PIECE_CORRUPT;
        for (size_t at = 0; at < extra; at++) value |= (size_t)window->in[at] << (8 * at);
        window->in += extra;
        window->literal_left = (extra ? value : length) + 1;
        window->phase = KB_IN_LITERALS;
        return 1;
    }
    extra = offset_bytes[tag & 3];
    if (left < extra) return KB_PIECE_CORRUPT;
    for (size_t at = 0; at < extra; at++) value |= (size_t)window->in[at] << (8 * at);
    window->in += extra;
    if ((tag & 3) == 1) {
        window->match_left = 4 + ((tag >> 2) & 7);
        window->offset = (size_t)(tag >> 5) << 8 | value;
    } else {
        window->match_left = 1 + (tag >> 2);
        window->offset = value;
    }
    window->phase = KB_IN_MATCH;
    return kb_window_reaches(window);
}

static int kb_snappy_decode(kb_window *window) {
    int status;
    for (;;) {
        if (window->phase == KB_AT_TAG) {
            if (window->in == window->in_end) /* it must be as long as it said */
                return window->block_bytes == window->block_bytes_max ? KB_PIECE_END
                                                                      : KB_PIECE_CORRUPT;
            status = kb_snappy_tag(window);
        } else {
            status = window->phase == KB_IN_LITERALS ? kb_window_literals(window)
                                                     : kb_window_match(window);
            if (status == 1) window->phase = KB_AT_TAG;
        }
        if (status != 1) return status;
    }
}

static void kb_snappy_open(kb_snappy *snappy, const uint8_t *in, size_t length) {
    snappy->in = in;
    snappy->in_end = in + length;
    snappy->in_block = 0;
    snappy->framed = kb_xerial_header(in, length);
    if (snappy->framed) snappy->in += KB_XERIAL_HEADER_BYTES;
}

static int kb_snappy_next_block(kb_snappy *snappy, kb_window *window) {
    size_t left = (size_t)(snappy->in_end - snappy->in), size, length = 0;
    /* Streams that were joined have their headers in between. */
    while (snappy->framed && kb_xerial_header(snappy->in, left)) {
        snappy->in += KB_XERIAL_HEADER_BYTES;
        left -= KB_XERIAL_HEADER_BYTES;
    }
    if (left == 0) return KB_PIECE_END;
    size = left;
    if (snappy->framed) {
        if (left < 4) return KB_PIECE_CORRUPT;
        size = kb_get_u32(snappy->in);
        snappy->in += 4;
        if (size > left - 4) return KB_PIECE_CORRUPT;
    }
    const uint8_t *at = snappy->in, *end = at + size;
    unsigned shift = 0;
    uint8_t byte;
    do { /* the block's own claim of its length */
        if (at == end || shift > 28) return KB_PIECE_CORRUPT;
        byte = *at++;
        length |= (size_t)(byte & 0x7f) << shift;
        shift += 7;
    } while (byte & 0x80);
    kb_window_block(window, at, (size_t)(end - at), length);
    snappy->in = end;
    snappy->in_block = 1;
    return KB_PIECE_FULL;
}

static int kb_snappy_fill(kb_snappy *snappy, kb_window *window) {
    int status;
    for (;;) {
        if (!snappy->in_block &&
            (status = kb_snappy_next_block(snappy, window)) != KB_PIECE_FULL)
            return status;
        status = kb_snappy_decode(window);
        if (status != KB_PIECE_END) return status;
        snappy->in_block = 0;
        if (window->filled > KB_HISTORY_BYTES) return KB_PIECE_FULL;
    }
}

#endif
