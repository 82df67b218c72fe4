/* CRC-32C (Castagnoli), the checksum of record batches and snapshots.
 *
 * kb_crc32c(0, data, length) is the checksum; a later part is added by passing the earlier result.
 * Chosen once, when the unit is loaded:
 *   x86-64 with SSE4.2 and PCLMULQDQ  three independent streams hide the instruction's latency of
 *                                     three cycles; their ends are joined by a carry-less product
 *   x86-64 with SSE4.2, ARMv8 with CRC  one stream, eight bytes at a time
 *   anything else                     eight tables of 256 words
 * Joining: the CRC of A followed by n bytes of B is shift(crc(A), n) ^ crc0(B). Shifting by n bytes
 * is a product with x^(8n-33) modulo P; the product of two reflected 32-bit values, read as 64 bits,
 * carries x^1, and the instruction itself multiplies by x^32: hence the -33.
 *
 * No locks, no allocation; every function may run on any thread. */
#ifndef KBROKER_CRC32C_H
#define KBROKER_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KB_CRC32C_POLYNOMIAL 0x82f63b78u /* reflected */
#define KB_CRC32C_LONG 2048              /* bytes per stream in the long loop; 3 fit the L1 cache */
#define KB_CRC32C_SHORT 256              /* bytes per stream in the short loop */

typedef uint32_t (*kb_crc32c_function)(uint32_t, const uint8_t *, size_t);

static uint32_t kb_crc32c_table[8][256];

static uint32_t kb_crc32c_by_table(uint32_t crc, const uint8_t *data, size_t length) {
    crc = ~crc;
    while (length >= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
#endif
        word ^= crc;
        crc = kb_crc32c_table[7][word & 0xff] ^ kb_crc32c_table[6][(word >> 8) & 0xff] ^
              kb_crc32c_table[5][(word >> 16) & 0xff] ^ kb_crc32c_table[4][(word >> 24) & 0xff] ^
              kb_crc32c_table[3][(word >> 32) & 0xff] ^ kb_crc32c_table[2][(word >> 40) & 0xff] ^
              kb_crc32c_table[1][(word >> 48) & 0xff] ^ kb_crc32c_table[0][word >> 56];
        data += 8;
        length -= 8;
    }
    while (length--) crc = kb_crc32c_table[0][(crc ^ *data++) & 0xff] ^ (crc >> 8);
    return ~crc;
}

static void kb_crc32c_fill_table(void) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? KB_CRC32C_POLYNOMIAL : 0);
        kb_crc32c_table[0][n] = crc;
    }
    for (uint32_t n = 0; n < 256; n++)
        for (int k = 1; k < 8; k++)
            kb_crc32c_table[k][n] = kb_crc32c_table[0][kb_crc32c_table[k - 1][n] & 0xff] ^
                                    (kb_crc32c_table[k - 1][n] >> 8);
}

#if defined(__x86_64__)
#include <immintrin.h>

#ifdef __clang__ /* has the instruction as a feature of its own */
#define KB_CRC32C_TARGET "sse4.2,crc32"
#else
#define KB_CRC32C_TARGET "sse4.2"
#endif

static uint64_t kb_crc32c_shift_long, kb_crc32c_shift_short;

/* a * b modulo P, both reflected; only for the constants, so one bit at a time. */
static uint32_t kb_crc32c_product(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = 0x80000000u; bit; bit >>= 1) {
        if (a & bit) product ^= b;
        b = (b >> 1) ^ (b & 1 ? KB_CRC32C_POLYNOMIAL : 0);
    }
    return product;
}

/* x^n modulo P, reflected: bit 31 is x^0. */
static uint32_t kb_crc32c_power(uint64_t n) {
    uint32_t result = 0x80000000u, square = 0x40000000u;
    for (; n; n >>= 1) {
        if (n & 1) result = kb_crc32c_product(result, square);
        square = kb_crc32c_product(square, square);
    }
    return result;
}

__attribute__((target(KB_CRC32C_TARGET))) static uint32_t kb_crc32c_serial(
    uint32_t crc, const uint8_t *data, size_t length) {
    uint64_t state = ~crc;
    for (; length >= 8; data += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        state = _mm_crc32_u64(state, word);
    }
    for (; length; length--) state = _mm_crc32_u8((uint32_t)state, *data++);
    return ~(uint32_t)state;
}

__attribute__((target(KB_CRC32C_TARGET ",pclmul"))) static inline uint64_t kb_crc32c_shift(
    uint64_t crc, uint64_t power) {
    __m128i product = _mm_clmulepi64_si128(
        _mm_cvtsi64_si128((long long)crc), _mm_cvtsi64_si128((long long)power), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

__attribute__((target(KB_CRC32C_TARGET ",pclmul"))) static inline uint64_t kb_crc32c_three(
    uint64_t state, const uint8_t *data, size_t stream, uint64_t power) {
    uint64_t second = 0, third = 0;
    for (size_t at = 0; at < stream; at += 8) {
        uint64_t a, b, c;
        memcpy(&a, data + at, 8);
        memcpy(&b, data + stream + at, 8);
        memcpy(&c, data + 2 * stream + at, 8);
        state = _mm_crc32_u64(state, a);
        second = _mm_crc32_u64(second, b);
        third = _mm_crc32_u64(third, c);
    }
    return kb_crc32c_shift(kb_crc32c_shift(state, power) ^ second, power) ^ third;
}

__attribute__((target(KB_CRC32C_TARGET ",pclmul"))) static uint32_t kb_crc32c_interleaved(
    uint32_t crc, const uint8_t *data, size_t length) {
    uint64_t state = ~crc;
    for (; length >= 3 * KB_CRC32C_LONG; data += 3 * KB_CRC32C_LONG, length -= 3 * KB_CRC32C_LONG)
        state = kb_crc32c_three(state, data, KB_CRC32C_LONG, kb_crc32c_shift_long);
    for (; length >= 3 * KB_CRC32C_SHORT;
         data += 3 * KB_CRC32C_SHORT, length -= 3 * KB_CRC32C_SHORT)
        state = kb_crc32c_three(state, data, KB_CRC32C_SHORT, kb_crc32c_shift_short);
    return kb_crc32c_serial(~(uint32_t)state, data, length);
}

static kb_crc32c_function kb_crc32c_best(void) {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse4.2")) return kb_crc32c_by_table;
    if (!__builtin_cpu_supports("pclmul")) return kb_crc32c_serial;
    kb_crc32c_shift_long = kb_crc32c_power(8 * KB_CRC32C_LONG - 33);
    kb_crc32c_shift_short = kb_crc32c_power(8 * KB_CRC32C_SHORT - 33);
    return kb_crc32c_interleaved;
}

#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif

__attribute__((target("+crc"))) static uint32_t kb_crc32c_serial(
    uint32_t crc, const uint8_t *data, size_t length) {
    crc = ~crc;
    for (; length >= 8; data += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        crc = __crc32cd(crc, word);
    }
    for (; length; length--) crc = __crc32cb(crc, *data++);
    return ~crc;
}

static kb_crc32c_function kb_crc32c_best(void) {
    return getauxval(AT_HWCAP) & HWCAP_CRC32 ? kb_crc32c_serial : kb_crc32c_by_table;
}

#else
static kb_crc32c_function kb_crc32c_best(void) { return kb_crc32c_by_table; }
#endif

static kb_crc32c_function kb_crc32c_chosen = kb_crc32c_by_table;

__attribute__((constructor)) static void kb_crc32c_choose(void) {
    kb_crc32c_fill_table();
    kb_crc32c_chosen = kb_crc32c_best();
}

static inline uint32_t kb_crc32c(uint32_t crc, const uint8_t *data, size_t length) {
    return kb_crc32c_chosen(crc, data, length);
}

/* For tests: 0 table, 1 one stream, 2 interleaved. A kind that this CPU lacks answers by table. */
static inline uint32_t kb_crc32c_of_kind(
    int kind, uint32_t crc, const uint8_t *data, size_t length) {
#if defined(__x86_64__)
    if (kind == 2 && __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"))
        return kb_crc32c_interleaved(crc, data, length);
    if (kind == 1 && __builtin_cpu_supports("sse4.2")) return kb_crc32c_serial(crc, data, length);
#elif defined(__aarch64__)
    if (kind && (getauxval(AT_HWCAP) & HWCAP_CRC32)) return kb_crc32c_serial(crc, data, length);
#endif
    (void)kind;
    return kb_crc32c_by_table(crc, data, length);
}

#endif
