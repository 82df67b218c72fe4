/* The bytes behind a batch's header as a stream, whatever codec they were packed with.
 *
 *     kb_stream_open()   look at the codec, get a decoder
 *     at, end            what is unpacked and not yet taken; the reader moves `at`
 *     kb_stream_refill() more, once at == end. 0: no more, and `status` says whether it was sound
 *     kb_stream_close()
 *
 * Uncompressed records are read where they lie. Compressed ones come in pieces of at most 64 KB
 * through a decoder that is kept for the next batch, so that no memory is asked for in the steady
 * state; a zstd frame's own window comes on top, at most 128 MB of which no more is touched than
 * the output fills. The whole output is bounded by the caller: beyond it is KB_STREAM_TOO_LONG.
 *
 * One stream belongs to one thread; any number may be open. No GIL. */
#ifndef KBROKER_CODECS_H
#define KBROKER_CODECS_H

#include "codec_libraries.h"
#include "window_codecs.h"

#define KB_STREAM_OK 0
#define KB_STREAM_CORRUPT 1
#define KB_STREAM_TOO_LONG 2
#define KB_STREAM_NO_MEMORY 3
#define KB_STREAM_NO_CODEC 4 /* not here: Python has to do it */

#define KB_CODEC_NONE 0
#define KB_CODEC_GZIP 1
#define KB_CODEC_SNAPPY 2
#define KB_CODEC_LZ4 3
#define KB_CODEC_ZSTD 4

#define KB_PIECE_BYTES_MAX 65536
#define KB_ZSTD_WINDOW_LOG 27           /* what level 22 of the Java clients asks for */
#define KB_ZSTD_KEPT_BYTES_MAX (4 << 20) /* a decoder that grew larger is not kept */
#define KB_DECODERS_KEPT 4

typedef struct kb_decoder {
    uint8_t *buffer; /* KB_WINDOW_BYTES + KB_WINDOW_SLACK */
    z_stream gzip;
    int gzip_ready;
    void *zstd;
    kb_zstd_in zstd_in;
    size_t zstd_wants; /* what the last call said: 0 at a frame's end */
    kb_window window;
    kb_lz4_frame lz4;
    kb_snappy snappy;
    int ended;
} kb_decoder;

typedef struct kb_stream {
    const uint8_t *at, *end;
    int64_t end_offset; /* bytes given so far, up to `end` */
    int64_t output_left;
    int status;
    int codec;
    kb_decoder *decoder;
} kb_stream;

/* --- Decoders are kept ------------------------------------------------------------------------ */

static kb_decoder *kb_decoders[KB_DECODERS_KEPT];

static void kb_decoder_free(kb_decoder *decoder) {
    if (decoder->gzip_ready) kb_libraries.inflate_end(&decoder->gzip);
    if (decoder->zstd) kb_libraries.zstd_free(decoder->zstd);
    free(decoder->buffer);
    free(decoder);
}

static kb_decoder *kb_decoder_take(void) {
    for (int at = 0; at < KB_DECODERS_KEPT; at++) {
        kb_decoder *kept = __atomic_exchange_n(&kb_decoders[at], NULL, __ATOMIC_ACQ_REL);
        if (kept) return kept;
    }
    kb_decoder *decoder = calloc(1, sizeof *decoder);
    if (decoder) decoder->buffer = malloc(KB_WINDOW_BYTES + KB_WINDOW_SLACK);
    if (decoder && !decoder->buffer) {
        free(decoder);
        decoder = NULL;
    }
    return decoder;
}

static void kb_decoder_give(kb_decoder *decoder) {
    if (decoder->zstd && kb_libraries.zstd_size(decoder->zstd) > KB_ZSTD_KEPT_BYTES_MAX) {
        kb_libraries.zstd_free(decoder->zstd);
        decoder->zstd = NULL;
    }
    for (int at = 0; at < KB_DECODERS_KEPT; at++) {
        kb_decoder *empty = NULL;
        if (__atomic_compare_exchange_n(
                &kb_decoders[at], &empty, decoder, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            return;
    }
    kb_decoder_free(decoder);
}

/* --- The four codecs: open answers a status, next a piece's size, 0 at the end, or -status ------ */

static int kb_gzip_open(kb_decoder *decoder, const uint8_t *data, size_t length) {
    if (!__atomic_load_n(&kb_libraries.zlib, __ATOMIC_ACQUIRE)) return KB_STREAM_NO_CODEC;
    if (decoder->gzip_ready) {
        if (kb_libraries.inflate_reset(&decoder->gzip) != Z_OK) return KB_STREAM_NO_CODEC;
    } else {
        memset(&decoder->gzip, 0, sizeof decoder->gzip);
        if (kb_libraries.inflate_init(
                &decoder->gzip, KB_GZIP_ONLY, ZLIB_VERSION, (int)sizeof decoder->gzip) != Z_OK)
            return KB_STREAM_NO_CODEC;
        decoder->gzip_ready = 1;
    }
    decoder->gzip.next_in = data;
    decoder->gzip.avail_in = (unsigned)length;
    return KB_STREAM_OK;
}

static int64_t kb_gzip_next(kb_decoder *decoder) {
    z_stream *gzip = &decoder->gzip;
    gzip->next_out = decoder->buffer;
    gzip->avail_out = KB_PIECE_BYTES_MAX;
    while (gzip->avail_out == KB_PIECE_BYTES_MAX && !decoder->ended) {
        int status = kb_libraries.inflate(gzip, 0);
        if (status == Z_STREAM_END) {
            /* Another member may follow, as in files that were joined. */
            decoder->ended = gzip->avail_in == 0;
            if (!decoder->ended && kb_libraries.inflate_reset(gzip) != Z_OK)
                return -KB_STREAM_CORRUPT;
        } else if (status != Z_OK) {
            return -KB_STREAM_CORRUPT;
        }
    }
    return KB_PIECE_BYTES_MAX - gzip->avail_out;
}

static int kb_zstd_open(kb_decoder *decoder, const uint8_t *data, size_t length) {
    if (!__atomic_load_n(&kb_libraries.zstd, __ATOMIC_ACQUIRE)) return KB_STREAM_NO_CODEC;
    if (!decoder->zstd) {
        decoder->zstd = kb_libraries.zstd_create();
        if (!decoder->zstd) return KB_STREAM_NO_MEMORY;
        kb_libraries.zstd_set(decoder->zstd, KB_ZSTD_WINDOW_LOG_MAX, KB_ZSTD_WINDOW_LOG);
    }
    kb_libraries.zstd_reset(decoder->zstd, KB_ZSTD_RESET_SESSION);
    decoder->zstd_in = (kb_zstd_in){data, length, 0};
    decoder->zstd_wants = 1;
    return KB_STREAM_OK;
}

static int64_t kb_zstd_next(kb_decoder *decoder) {
    kb_zstd_out out = {decoder->buffer, KB_PIECE_BYTES_MAX, 0};
    while (out.pos == 0) {
        size_t taken = decoder->zstd_in.pos;
        if (decoder->zstd_wants == 0 && taken == decoder->zstd_in.size) return 0;
        decoder->zstd_wants =
            kb_libraries.zstd_decompress(decoder->zstd, &out, &decoder->zstd_in);
        if (kb_libraries.zstd_is_error(decoder->zstd_wants)) return -KB_STREAM_CORRUPT;
        /* Neither taken nor given, and not at a frame's end: the input is cut off. */
        if (out.pos == 0 && decoder->zstd_in.pos == taken && decoder->zstd_wants)
            return -KB_STREAM_CORRUPT;
    }
    return (int64_t)out.pos;
}

static int64_t kb_window_next(kb_decoder *decoder, int codec, const uint8_t **piece) {
    kb_window *window = &decoder->window;
    size_t fresh = window->filled;
    /* Blocks are independent: nothing of one that is done will be copied from again. */
    if (codec == KB_CODEC_LZ4 && !decoder->lz4.in_block) fresh = window->filled = 0;
    while (!decoder->ended && window->filled == fresh) { /* a block may be empty */
        kb_window_slide(window);
        fresh = window->filled;
        int status = codec == KB_CODEC_LZ4 ? kb_lz4_fill(&decoder->lz4, window)
                                           : kb_snappy_fill(&decoder->snappy, window);
        if (status == KB_PIECE_TOO_FAR) return -KB_STREAM_NO_CODEC;
        if (status == KB_PIECE_CORRUPT) return -KB_STREAM_CORRUPT;
        decoder->ended = status == KB_PIECE_END;
    }
    *piece = window->out + fresh;
    return (int64_t)(window->filled - fresh);
}

/* --- The stream --------------------------------------------------------------------------------*/

static int kb_stream_open(
    kb_stream *stream, int codec, const uint8_t *data, size_t length, int64_t output_bytes_max) {
    stream->at = stream->end = data;
    stream->end_offset = 0;
    stream->output_left = output_bytes_max;
    stream->codec = codec;
    stream->decoder = NULL;
    stream->status = KB_STREAM_OK;
    if (codec == KB_CODEC_NONE) {
        stream->end = data + length;
        stream->end_offset = (int64_t)length;
        return KB_STREAM_OK;
    }
    kb_libraries_find();
    kb_decoder *decoder = stream->decoder = kb_decoder_take();
    if (!decoder) return stream->status = KB_STREAM_NO_MEMORY;
    decoder->ended = 0;
    decoder->window.out = decoder->buffer;
    decoder->window.filled = 0;
    if (codec == KB_CODEC_GZIP) {
        stream->status = kb_gzip_open(decoder, data, length);
    } else if (codec == KB_CODEC_ZSTD) {
        stream->status = kb_zstd_open(decoder, data, length);
    } else if (codec == KB_CODEC_SNAPPY) {
        kb_snappy_open(&decoder->snappy, data, length);
    } else if (codec == KB_CODEC_LZ4) {
        kb_lz4_library lz4 = __atomic_load_n(&kb_libraries.lz4, __ATOMIC_ACQUIRE);
        if (kb_lz4_open(&decoder->lz4, lz4, data, length) < 0)
            stream->status = KB_STREAM_CORRUPT;
    } else {
        stream->status = KB_STREAM_NO_CODEC;
    }
    return stream->status;
}

static int kb_stream_refill(kb_stream *stream) {
    kb_decoder *decoder = stream->decoder;
    if (!decoder || stream->status != KB_STREAM_OK) return 0;
    const uint8_t *piece = decoder->buffer;
    int64_t size;
    if (stream->codec == KB_CODEC_GZIP)
        size = kb_gzip_next(decoder);
    else if (stream->codec == KB_CODEC_ZSTD)
        size = kb_zstd_next(decoder);
    else
        size = kb_window_next(decoder, stream->codec, &piece);
    if (size < 0) stream->status = (int)-size;
    if (size > stream->output_left) stream->status = KB_STREAM_TOO_LONG;
    if (size <= 0 || stream->status != KB_STREAM_OK) return 0;
    stream->output_left -= size;
    stream->end_offset += size;
    stream->at = piece;
    stream->end = piece + size;
    return 1;
}

static void kb_stream_close(kb_stream *stream) {
    if (stream->decoder) kb_decoder_give(stream->decoder);
    stream->decoder = NULL;
}

#endif
