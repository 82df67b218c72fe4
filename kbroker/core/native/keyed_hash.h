/* A hash of bytes that strangers choose, under a key that they do not know.
 *
 * Each word of eight bytes is folded in by a full multiplication of 64 by 64 bits, whose halves are
 * xored, so that every bit of the input moves every bit of the result. It is no signature: it keeps
 * whoever names partitions from choosing names that fall into one place of a table. */
#ifndef KBROKER_KEYED_HASH_H
#define KBROKER_KEYED_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

static inline uint64_t kb_fold(uint64_t a, uint64_t b) {
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t kb_keyed_hash(uint64_t key, const uint8_t *data, size_t length) {
    const uint64_t odd = 0x9e3779b97f4a7c15u; /* the golden ratio: many bits, evenly spread */
    uint64_t mixed = kb_fold(key ^ odd, length ^ 0xd6e8feb86659fd93u);
    uint64_t word;
    while (length > 8) {
        memcpy(&word, data, 8);
        mixed = kb_fold(mixed ^ word, key | 1) + odd;
        data += 8;
        length -= 8;
    }
    word = 0;
    memcpy(&word, data, length);
    mixed = kb_fold(mixed ^ word, key | 1) + odd;
    return kb_fold(mixed, odd ^ key);
}

static inline uint64_t kb_keyed_number(uint64_t key, uint64_t hash, uint64_t number) {
    return kb_fold(hash ^ number ^ (number << 32), key | 1);
}

/* A new key, which differs from process to process. */
static inline uint64_t kb_random_key(void) {
    uint64_t key = 0;
    struct timespec now;
    if (getrandom(&key, sizeof key, GRND_NONBLOCK) == (ssize_t)sizeof key) {
        return key;
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    return kb_fold((uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 30, 0x9e3779b97f4a7c15u);
}

#endif
