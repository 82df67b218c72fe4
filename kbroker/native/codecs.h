/* The bytes behind a batch's header as a stream, whatever codec they were packed with. */
#ifndef KBROKER_CODECS_H
#define KBROKER_CODECS_H

#include <stddef.h>
#include <stdint.h>

#define KB_STREAM_OK 0
#define KB_STREAM_CORRUPT 1
#define KB_STREAM_TOO_LONG 2
#define KB_STREAM_NO_MEMORY 3
#define KB_STREAM_NO_CODEC 4

typedef struct kb_stream {
    const uint8_t *at, *end;
    int64_t end_offset;
    int64_t output_left;
    int status;
    int codec;
    void *decoder;
} kb_stream;

static int kb_stream_open(
    kb_stream *stream, int codec, const uint8_t *data, size_t length, int64_t output_bytes_max) {
    stream->at = data;
    stream->end = data + length;
    stream->end_offset = (int64_t)length;
    stream->output_left = output_bytes_max;
    stream->codec = codec;
    stream->decoder = NULL;
    stream->status = codec == 0 ? KB_STREAM_OK : KB_STREAM_NO_CODEC;
    return stream->status;
}

static int kb_stream_refill(kb_stream *stream) { (void)stream; return 0; }
static void kb_stream_close(kb_stream *stream) { (void)stream; }

#endif
