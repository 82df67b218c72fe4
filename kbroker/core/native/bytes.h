/* Big-endian fields at any address. The compiler makes one load and one bswap of each. */
#ifndef KBROKER_BYTES_H
#define KBROKER_BYTES_H

#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define KB_BE(bits, value) (value)
#else
#define KB_BE(bits, value) __builtin_bswap##bits(value)
#endif

static inline uint16_t kb_get_u16(const uint8_t *at) {
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return KB_BE(16, value);
}

static inline uint32_t kb_get_u32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return KB_BE(32, value);
}

static inline uint64_t kb_get_u64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return KB_BE(64, value);
}

static inline void kb_put_u16(uint8_t *at, uint16_t value) {
    value = KB_BE(16, value);
    memcpy(at, &value, sizeof value);
}

static inline void kb_put_u32(uint8_t *at, uint32_t value) {
    value = KB_BE(32, value);
    memcpy(at, &value, sizeof value);
}

static inline void kb_put_u64(uint8_t *at, uint64_t value) {
    value = KB_BE(64, value);
    memcpy(at, &value, sizeof value);
}

#endif
