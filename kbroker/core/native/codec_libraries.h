/* zlib, zstd and LZ4 of the system, bound at run time: no link, no dependency of the wheel.
 *
 * Only the part of their interface is used that has been stable for a decade (zlib 1.2, zstd 1.4,
 * LZ4 1.0), under the names of their shared objects' first version. A library that is not there, or
 * lacks a function, is not used: the caller then leaves the batch to Python, and LZ4 to a decoder of
 * our own. Looked for at the first compressed batch; any thread. One that is there and cannot be
 * loaded, for want of descriptors or memory, is looked for again a second later. */
#ifndef KBROKER_CODEC_LIBRARIES_H
#define KBROKER_CODEC_LIBRARIES_H

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ZLIB_CONST /* next_in is const */
#include <zlib.h>  /* of Debian's zlib1g-dev: the struct and the constants, nothing to link */

#include "window_codecs.h"

#define KB_GZIP_ONLY (MAX_WBITS + 16) /* the largest window, and a gzip header is wanted */

/* ZSTD_inBuffer and ZSTD_outBuffer of zstd.h. */
typedef struct kb_zstd_in {
    const void *src;
    size_t size, pos;
} kb_zstd_in;

typedef struct kb_zstd_out {
    void *dst;
    size_t size, pos;
} kb_zstd_out;

#define KB_ZSTD_RESET_SESSION 1
#define KB_ZSTD_WINDOW_LOG_MAX 100 /* ZSTD_d_windowLogMax */

static struct {
    int zlib, zstd; /* atomic: may be used */
    unsigned zstd_version; /* 10506 is 1.5.6; 0: it is not there */
    int (*inflate_init)(z_stream *, int, const char *, int);
    int (*inflate)(z_stream *, int);
    int (*inflate_reset)(z_stream *);
    int (*inflate_end)(z_stream *);
    void *(*zstd_create)(void);
    size_t (*zstd_free)(void *);
    size_t (*zstd_reset)(void *, int);
    size_t (*zstd_set)(void *, int, int);
    size_t (*zstd_decompress)(void *, kb_zstd_out *, kb_zstd_in *);
    unsigned (*zstd_is_error)(size_t);
    size_t (*zstd_size)(const void *);
    kb_lz4_library lz4; /* atomic; NULL: it is not there */
} kb_libraries;

static pthread_mutex_t kb_libraries_lock = PTHREAD_MUTEX_INITIALIZER;
static int kb_libraries_found;          /* atomic: nothing is to be looked for any more */
static int64_t kb_libraries_again_ms;   /* under the lock */
static int kb_zlib_known, kb_zstd_known, kb_lz4_known; /* under the lock: found, or not there */

/* `known` stays 0 where it may be there later. */
static void *kb_codec_library(const char *name, int *known) {
    if (*known) return NULL;
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    const char *why = library ? NULL : dlerror();
    *known = library != NULL || (why && strstr(why, "No such file"));
    return library;
}

static void kb_libraries_bind_locked(void) {
    void *zlib = kb_codec_library("libz.so.1", &kb_zlib_known);
    if (zlib) {
        *(void **)&kb_libraries.inflate_init = dlsym(zlib, "inflateInit2_");
        *(void **)&kb_libraries.inflate = dlsym(zlib, "inflate");
        *(void **)&kb_libraries.inflate_reset = dlsym(zlib, "inflateReset");
        *(void **)&kb_libraries.inflate_end = dlsym(zlib, "inflateEnd");
        int whole = kb_libraries.inflate_init && kb_libraries.inflate &&
                    kb_libraries.inflate_reset && kb_libraries.inflate_end;
        __atomic_store_n(&kb_libraries.zlib, whole, __ATOMIC_RELEASE);
    }
    void *zstd = kb_codec_library("libzstd.so.1", &kb_zstd_known);
    if (zstd) {
        *(void **)&kb_libraries.zstd_create = dlsym(zstd, "ZSTD_createDCtx");
        *(void **)&kb_libraries.zstd_free = dlsym(zstd, "ZSTD_freeDCtx");
        *(void **)&kb_libraries.zstd_reset = dlsym(zstd, "ZSTD_DCtx_reset");
        *(void **)&kb_libraries.zstd_set = dlsym(zstd, "ZSTD_DCtx_setParameter");
        *(void **)&kb_libraries.zstd_decompress = dlsym(zstd, "ZSTD_decompressStream");
        *(void **)&kb_libraries.zstd_is_error = dlsym(zstd, "ZSTD_isError");
        *(void **)&kb_libraries.zstd_size = dlsym(zstd, "ZSTD_sizeof_DCtx");
        int whole = kb_libraries.zstd_create && kb_libraries.zstd_free &&
                    kb_libraries.zstd_reset && kb_libraries.zstd_set &&
                    kb_libraries.zstd_decompress && kb_libraries.zstd_is_error &&
                    kb_libraries.zstd_size;
        unsigned (*version)(void) = NULL;
        *(void **)&version = dlsym(zstd, "ZSTD_versionNumber");
        __atomic_store_n(
            &kb_libraries.zstd_version, whole && version ? version() : 0, __ATOMIC_RELEASE);
        __atomic_store_n(&kb_libraries.zstd, whole, __ATOMIC_RELEASE);
    }
    void *lz4 = kb_codec_library("liblz4.so.1", &kb_lz4_known);
    if (lz4) {
        kb_lz4_library decompress = NULL;
        *(void **)&decompress = dlsym(lz4, "LZ4_decompress_safe");
        __atomic_store_n(&kb_libraries.lz4, decompress, __ATOMIC_RELEASE);
    }
}

/* For tests: KBROKER_WITHOUT_CODECS=1 leaves the libraries alone, as if they were not there. */
static inline void kb_libraries_find(void) {
    if (__atomic_load_n(&kb_libraries_found, __ATOMIC_ACQUIRE)) return;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t now_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    pthread_mutex_lock(&kb_libraries_lock);
    if (getenv("KBROKER_WITHOUT_CODECS")) {
        __atomic_store_n(&kb_libraries_found, 1, __ATOMIC_RELEASE);
    } else if (now_ms >= kb_libraries_again_ms) {
        kb_libraries_bind_locked();
        kb_libraries_again_ms = now_ms + 1000;
        __atomic_store_n(
            &kb_libraries_found, kb_zlib_known && kb_zstd_known && kb_lz4_known, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&kb_libraries_lock);
}

static inline unsigned kb_zstd_version(void) {
    kb_libraries_find();
    return __atomic_load_n(&kb_libraries.zstd_version, __ATOMIC_ACQUIRE);
}

#endif
