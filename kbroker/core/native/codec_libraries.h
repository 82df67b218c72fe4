/* zlib, zstd and LZ4 of the system, bound at run time: no link, no dependency of the wheel.
 *
 * Only the part of their interface is used that has been stable for a decade (zlib 1.2, zstd 1.4,
 * LZ4 1.0), under the names of their shared objects' first version. A library that is not there, or
 * lacks a function, is not used: the caller then leaves the batch to Python, and LZ4 to a decoder of
 * our own. Looked for once, at the first compressed batch; any thread. */
#ifndef KBROKER_CODEC_LIBRARIES_H
#define KBROKER_CODEC_LIBRARIES_H

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

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
    int zlib, zstd; /* may be used */
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
    kb_lz4_library lz4; /* NULL: it is not there */
} kb_libraries;

static pthread_once_t kb_libraries_once = PTHREAD_ONCE_INIT;

/* For tests: KBROKER_WITHOUT_CODECS=1 leaves the libraries alone, as if they were not there. */
static void kb_libraries_bind(void) {
    if (getenv("KBROKER_WITHOUT_CODECS")) return;
    void *zlib = dlopen("libz.so.1", RTLD_NOW | RTLD_LOCAL);
    if (zlib) {
        *(void **)&kb_libraries.inflate_init = dlsym(zlib, "inflateInit2_");
        *(void **)&kb_libraries.inflate = dlsym(zlib, "inflate");
        *(void **)&kb_libraries.inflate_reset = dlsym(zlib, "inflateReset");
        *(void **)&kb_libraries.inflate_end = dlsym(zlib, "inflateEnd");
        kb_libraries.zlib = kb_libraries.inflate_init && kb_libraries.inflate &&
                            kb_libraries.inflate_reset && kb_libraries.inflate_end;
    }
    void *zstd = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
    if (zstd) {
        *(void **)&kb_libraries.zstd_create = dlsym(zstd, "ZSTD_createDCtx");
        *(void **)&kb_libraries.zstd_free = dlsym(zstd, "ZSTD_freeDCtx");
        *(void **)&kb_libraries.zstd_reset = dlsym(zstd, "ZSTD_DCtx_reset");
        *(void **)&kb_libraries.zstd_set = dlsym(zstd, "ZSTD_DCtx_setParameter");
        *(void **)&kb_libraries.zstd_decompress = dlsym(zstd, "ZSTD_decompressStream");
        *(void **)&kb_libraries.zstd_is_error = dlsym(zstd, "ZSTD_isError");
        *(void **)&kb_libraries.zstd_size = dlsym(zstd, "ZSTD_sizeof_DCtx");
        kb_libraries.zstd = kb_libraries.zstd_create && kb_libraries.zstd_free &&
                            kb_libraries.zstd_reset && kb_libraries.zstd_set &&
                            kb_libraries.zstd_decompress && kb_libraries.zstd_is_error &&
                            kb_libraries.zstd_size;
        unsigned (*version)(void) = NULL;
        *(void **)&version = dlsym(zstd, "ZSTD_versionNumber");
        kb_libraries.zstd_version = kb_libraries.zstd && version ? version() : 0;
    }
    void *lz4 = dlopen("liblz4.so.1", RTLD_NOW | RTLD_LOCAL);
    if (lz4) *(void **)&kb_libraries.lz4 = dlsym(lz4, "LZ4_decompress_safe");
}

static inline unsigned kb_zstd_version(void) {
    pthread_once(&kb_libraries_once, kb_libraries_bind);
    return kb_libraries.zstd_version;
}

#endif
