/* CRC-32C for the load generator and the limit server: their own, so that a fault in the broker's
 * checksum cannot hide behind the same fault here.
 *
 * Three things are offered:
 *   pc_crc32c      the checksum of a range, with the CPU's instruction in three lanes where it exists
 *   pc_shift       "append n zero bytes" as a 4 x 256 table, for joining lanes and for patching
 *   pc_field       what a field of 4 or 8 bytes, changed from zero, adds to the checksum of a batch
 *
 * The last one is why the generator is cheap: a batch is built and summed once, and a new sequence
 * number or time stamp costs a few table look-ups however large the batch is. It holds because a
 * CRC is linear: crc(a xor b) = crc(a) xor raw(b), where raw() starts from 0 and inverts nothing.
 *
 * Thread-safe after pc_init(); pc_init() may be called again and again. */
#ifndef PERF_CRC32C_H
#define PERF_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PC_POLY 0x82f63b78u          /* Castagnoli, bit-reversed */
#define PC_LANE_BYTES 1024           /* one lane of three; the joins cost 8 look-ups each */

typedef struct { uint32_t t[4][256]; } pc_shift;

static uint32_t pc_byte_table[256];
static pc_shift pc_lane_shift;
static int pc_have_instruction = -1;

/* a * b modulo the polynomial, both bit-reversed (the top bit is x^0) */
static uint32_t pc_multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (int bit = 31; bit >= 0; bit--) {
        if (a >> bit & 1) product ^= b;
        b = (b & 1) ? (b >> 1) ^ PC_POLY : b >> 1;
    }
    return product;
}

/* x^(8 n): multiplying a CRC by it appends n zero bytes */
static uint32_t pc_power_of_bytes(uint64_t n) {
    uint32_t result = 1u << 31, square = 1u << 23;
    for (; n; n >>= 1) {
        if (n & 1) result = pc_multiply(result, square);
        square = pc_multiply(square, square);
    }
    return result;
}

static void pc_shift_init(pc_shift *shift, uint64_t zero_bytes) {
    uint32_t factor = pc_power_of_bytes(zero_bytes);
    for (int k = 0; k < 4; k++)
        for (uint32_t v = 0; v < 256; v++) shift->t[k][v] = pc_multiply(v << (8 * k), factor);
}

static inline uint32_t pc_shift_apply(const pc_shift *shift, uint32_t crc) {
    return shift->t[0][crc & 255] ^ shift->t[1][crc >> 8 & 255] ^ shift->t[2][crc >> 16 & 255]
           ^ shift->t[3][crc >> 24];
}

static void pc_init(void) {
    if (pc_have_instruction >= 0) return;
    for (uint32_t v = 0; v < 256; v++) {
        uint32_t crc = v;
        for (int bit = 0; bit < 8; bit++) crc = (crc & 1) ? (crc >> 1) ^ PC_POLY : crc >> 1;
        pc_byte_table[v] = crc;
    }
    pc_shift_init(&pc_lane_shift, PC_LANE_BYTES);
#if defined(__x86_64__)
    __builtin_cpu_init();
    pc_have_instruction = __builtin_cpu_supports("sse4.2") ? 1 : 0;
#else
    pc_have_instruction = 0;
#endif
}

static uint32_t pc_raw_by_table(uint32_t crc, const uint8_t *p, size_t n) {
    while (n--) crc = (crc >> 8) ^ pc_byte_table[(crc ^ *p++) & 255];
    return crc;
}

#if defined(__x86_64__)
#ifdef __clang__ /* has the instruction as a feature of its own */
__attribute__((target("sse4.2,crc32")))
#else
__attribute__((target("sse4.2")))
#endif
static uint32_t pc_raw_by_instruction(uint32_t crc, const uint8_t *p, size_t n) {
    /* The instruction has a latency of three and a throughput of one: three lanes fill it. */
    while (n >= 3 * PC_LANE_BYTES) {
        uint64_t a = crc, b = 0, c = 0, x, y, z;
        for (size_t i = 0; i < PC_LANE_BYTES; i += 8) {
            memcpy(&x, p + i, 8);
            memcpy(&y, p + PC_LANE_BYTES + i, 8);
            memcpy(&z, p + 2 * PC_LANE_BYTES + i, 8);
            a = __builtin_ia32_crc32di(a, x);
            b = __builtin_ia32_crc32di(b, y);
            c = __builtin_ia32_crc32di(c, z);
        }
        crc = pc_shift_apply(&pc_lane_shift, (uint32_t)a) ^ (uint32_t)b;
        crc = pc_shift_apply(&pc_lane_shift, crc) ^ (uint32_t)c;
        p += 3 * PC_LANE_BYTES;
        n -= 3 * PC_LANE_BYTES;
    }
    uint64_t tail = crc, word;
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&word, p, 8);
        tail = __builtin_ia32_crc32di(tail, word);
    }
    for (; n; n--) tail = __builtin_ia32_crc32qi((uint32_t)tail, *p++);
    return (uint32_t)tail;
}
#endif

static inline uint32_t pc_raw(uint32_t crc, const uint8_t *p, size_t n) {
#if defined(__x86_64__)
    if (pc_have_instruction) return pc_raw_by_instruction(crc, p, n);
#endif
    return pc_raw_by_table(crc, p, n);
}

static inline uint32_t pc_crc32c(const uint8_t *p, size_t n) { return ~pc_raw(0xffffffffu, p, n); }

/* What `bytes` at `field`, zero when the batch was summed, adds; `after` spans from behind the
 * field to the end of the summed range. */
static inline uint32_t pc_field(const pc_shift *after, const uint8_t *field, size_t bytes) {
    return pc_shift_apply(after, pc_raw(0, field, bytes));
}

#endif
