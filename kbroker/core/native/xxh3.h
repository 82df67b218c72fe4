/* XXH3, 64 bits, seed 0: the hash by which Apache Kafka's coordinators recognise topics.
 *
 * After the specification of xxHash (doc/xxhash_spec.md of its project). Inputs of up to 16, 128
 * and 240 bytes have ways of their own; longer ones are read in stripes of 64 bytes into eight
 * accumulators, which are scrambled after each block of 16 stripes. Plain C: an input here has some
 * kilobytes, once for each change of a topic.
 *
 * No locks, no allocation; any thread. */
#ifndef KBROKER_XXH3_H
#define KBROKER_XXH3_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KB_XXH3_SECRET_BYTES 192
#define KB_XXH3_STRIPE 64
#define KB_XXH3_STRIPES 16 /* of a block: (192 - 64) / 8 */

#define KB_XXH_32_1 0x9e3779b1u
#define KB_XXH_32_2 0x85ebca77u
#define KB_XXH_32_3 0xc2b2ae3du
#define KB_XXH_64_1 0x9e3779b185ebca87u
#define KB_XXH_64_2 0xc2b2ae3d27d4eb4fu
#define KB_XXH_64_3 0x165667b19e3779f9u
#define KB_XXH_64_4 0x85ebca77c2b2ae63u
#define KB_XXH_64_5 0x27d4eb2f165667c5u
#define KB_XXH_MX_1 0x165667919e3779f9u
#define KB_XXH_MX_2 0x9fb21c651e98df25u

static const uint8_t kb_xxh3_secret[KB_XXH3_SECRET_BYTES] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

static inline uint32_t kb_xxh_u32(const uint8_t *at) {
    uint32_t word;
    memcpy(&word, at, 4);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap32(word);
#endif
    return word;
}

static inline uint64_t kb_xxh_u64(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static inline uint64_t kb_xxh_rotated(uint64_t value, int bits) {
    return value << bits | value >> (64 - bits);
}

static inline uint64_t kb_xxh_folded(uint64_t one, uint64_t other) {
    unsigned __int128 product = (unsigned __int128)one * other;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t kb_xxh64_end(uint64_t hash) {
    hash = (hash ^ hash >> 33) * KB_XXH_64_2;
    hash = (hash ^ hash >> 29) * KB_XXH_64_3;
    return hash ^ hash >> 32;
}

static inline uint64_t kb_xxh3_end(uint64_t hash) {
    hash = (hash ^ hash >> 37) * KB_XXH_MX_1;
    return hash ^ hash >> 32;
}

/* 16 bytes of the input and of the secret. */
static inline uint64_t kb_xxh3_mixed(const uint8_t *data, const uint8_t *secret) {
    return kb_xxh_folded(kb_xxh_u64(data) ^ kb_xxh_u64(secret),
                         kb_xxh_u64(data + 8) ^ kb_xxh_u64(secret + 8));
}

static inline uint64_t kb_xxh3_to_16(const uint8_t *data, size_t length) {
    const uint8_t *secret = kb_xxh3_secret;
    if (length > 8) {
        uint64_t low = kb_xxh_u64(data) ^ kb_xxh_u64(secret + 24) ^ kb_xxh_u64(secret + 32);
        uint64_t high = kb_xxh_u64(data + length - 8) ^ kb_xxh_u64(secret + 40) ^
                        kb_xxh_u64(secret + 48);
        return kb_xxh3_end(length + __builtin_bswap64(low) + high + kb_xxh_folded(low, high));
    }
    if (length >= 4) {
        uint64_t both = ((uint64_t)kb_xxh_u32(data) << 32) + kb_xxh_u32(data + length - 4);
        uint64_t hash = both ^ kb_xxh_u64(secret + 8) ^ kb_xxh_u64(secret + 16);
        hash = (hash ^ kb_xxh_rotated(hash, 49) ^ kb_xxh_rotated(hash, 24)) * KB_XXH_MX_2;
        hash = (hash ^ ((hash >> 35) + length)) * KB_XXH_MX_2;
        return hash ^ hash >> 28;
    }
    if (length > 0) {
        uint32_t all = (uint32_t)data[0] << 16 | (uint32_t)data[length >> 1] << 24 |
                       data[length - 1] | (uint32_t)length << 8;
        return kb_xxh64_end(all ^ kb_xxh_u32(secret) ^ kb_xxh_u32(secret + 4));
    }
    return kb_xxh64_end(kb_xxh_u64(secret + 56) ^ kb_xxh_u64(secret + 64));
}

static inline uint64_t kb_xxh3_to_128(const uint8_t *data, size_t length) {
    uint64_t hash = length * KB_XXH_64_1;
    for (size_t pair = (length - 1) / 32 + 1; pair-- > 0;) { /* from both ends, inwards */
        hash += kb_xxh3_mixed(data + 16 * pair, kb_xxh3_secret + 32 * pair);
        hash += kb_xxh3_mixed(data + length - 16 * (pair + 1), kb_xxh3_secret + 32 * pair + 16);
    }
    return kb_xxh3_end(hash);
}

static inline uint64_t kb_xxh3_to_240(const uint8_t *data, size_t length) {
    uint64_t hash = length * KB_XXH_64_1;
    for (size_t each = 0; each < 8; each++)
        hash += kb_xxh3_mixed(data + 16 * each, kb_xxh3_secret + 16 * each);
    hash = kb_xxh3_end(hash);
    for (size_t each = 8; each < length / 16; each++)
        hash += kb_xxh3_mixed(data + 16 * each, kb_xxh3_secret + 16 * (each - 8) + 3);
    return kb_xxh3_end(hash + kb_xxh3_mixed(data + length - 16, kb_xxh3_secret + 136 - 17));
}

static inline void kb_xxh3_add(uint64_t sums[8], const uint8_t *data, const uint8_t *secret) {
    for (int lane = 0; lane < 8; lane++) {
        uint64_t value = kb_xxh_u64(data + 8 * lane);
        uint64_t keyed = value ^ kb_xxh_u64(secret + 8 * lane);
        sums[lane ^ 1] += value;
        sums[lane] += (keyed & 0xffffffffu) * (keyed >> 32);
    }
}

static inline uint64_t kb_xxh3_long(const uint8_t *data, size_t length) {
    const uint8_t *last_secret = kb_xxh3_secret + KB_XXH3_SECRET_BYTES - KB_XXH3_STRIPE;
    size_t stripes = (length - 1) / KB_XXH3_STRIPE;
    uint64_t hash = length * KB_XXH_64_1;
    uint64_t sums[8] = {KB_XXH_32_3, KB_XXH_64_1, KB_XXH_64_2, KB_XXH_64_3,
                        KB_XXH_64_4, KB_XXH_32_2, KB_XXH_64_5, KB_XXH_32_1};
    for (size_t stripe = 0; stripe < stripes; stripe++) {
        size_t within = stripe % KB_XXH3_STRIPES;
        kb_xxh3_add(sums, data + KB_XXH3_STRIPE * stripe, kb_xxh3_secret + 8 * within);
        if (within == KB_XXH3_STRIPES - 1) {
            for (int lane = 0; lane < 8; lane++) {
                uint64_t sum = sums[lane] ^ sums[lane] >> 47 ^ kb_xxh_u64(last_secret + 8 * lane);
                sums[lane] = sum * KB_XXH_32_1;
            }
        }
    }
    kb_xxh3_add(sums, data + length - KB_XXH3_STRIPE, last_secret - 7);
    for (int pair = 0; pair < 4; pair++) {
        const uint8_t *secret = kb_xxh3_secret + 11 + 16 * pair;
        hash += kb_xxh_folded(sums[2 * pair] ^ kb_xxh_u64(secret),
                              sums[2 * pair + 1] ^ kb_xxh_u64(secret + 8));
    }
    return kb_xxh3_end(hash);
}

static inline uint64_t kb_xxh3(const uint8_t *data, size_t length) {
    if (length <= 16) return kb_xxh3_to_16(data, length);
    if (length <= 128) return kb_xxh3_to_128(data, length);
    if (length <= 240) return kb_xxh3_to_240(data, length);
    return kb_xxh3_long(data, length);
}

#endif
