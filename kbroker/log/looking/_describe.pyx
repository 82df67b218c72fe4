# cython: language_level=3
"""What is answered about logs and their segments, copied out under each log's own lock.

Sizes are read for many logs in one go without the GIL. Producers are written in the form in which
the answer carries them, since a partition may know a hundred thousand: 4 MB that never become
objects. Both copy into memory that is set aside before the lock is taken, so what an append waits
for is the copying alone, of PRODUCERS_MAX entries at most.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from kbroker._log cimport LocalLog
from kbroker.log.engine._producer_state cimport Producer, transaction_first_offset
from kbroker.log.engine._segment cimport part_of
from kbroker.log.engine._storage cimport (
    Log, lock_log, lock_to_look, log_size_bytes, unlock_log)
from kbroker.log.upkeep._retention cimport segment_newest_ms
from kbroker.protocol._cursor cimport kb_put_u32, kb_put_u64

from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.engine._results import SegmentFigures

cdef enum:
    # Producer id, epoch, last sequence, last timestamp, coordinator epoch, the transaction's start,
    # no tagged fields: DescribeProducers v0.
    PRODUCER_BYTES = 8 + 4 + 4 + 8 + 4 + 8 + 1
    # Producers that may turn up between counting and copying before it is tried again.
    PRODUCERS_SPARE = 64


cdef uint8_t* put_producer(uint8_t* at, const Producer* producer) noexcept nogil:
    cdef int32_t last_sequence = -1
    if producer.batch_count:
        last_sequence = producer.batches[producer.batch_count - 1].last_sequence
    kb_put_u64(at, <uint64_t>producer.producer_id)
    kb_put_u32(at + 8, <uint32_t><int32_t>producer.epoch)
    kb_put_u32(at + 12, <uint32_t>last_sequence)
    kb_put_u64(at + 16, <uint64_t>producer.last_timestamp_ms)
    kb_put_u32(at + 24, <uint32_t>producer.coordinator_epoch)
    kb_put_u64(at + 28, <uint64_t>transaction_first_offset(producer))
    at[36] = 0
    return at + PRODUCER_BYTES


cdef int64_t put_producers(Log* log, uint8_t* at, int64_t room) noexcept nogil:
    # How many there are; nothing is written if there is no room for all.
    cdef Producer* producer = log.producers.oldest
    if log.producers.by_id.count <= room:
        while producer != NULL:
            at = put_producer(at, producer)
            producer = producer.newer
    return log.producers.by_id.count


def encode_producers(LocalLog log not None) -> tuple:
    """(how many, their bytes in an answer), the least recently used first."""
    cdef Log* storage = log.storage
    cdef uint8_t* entries = NULL
    cdef int64_t room = 0, count = PRODUCERS_SPARE
    cdef int online = 1
    with nogil:
        while online and count > room:
            room = count + PRODUCERS_SPARE
            free(entries)
            entries = <uint8_t*>malloc(<size_t>(room * PRODUCER_BYTES))
            if entries == NULL:
                break
            lock_log(storage)
            online = storage.online
            count = put_producers(storage, entries, room)
            unlock_log(storage)
    if entries == NULL:
        raise MemoryError
    try:
        if not online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log.directory} is offline")
        return count, PyBytes_FromStringAndSize(
            <const char*>entries, <Py_ssize_t>(count * PRODUCER_BYTES))
    finally:
        free(entries)


def sizes(list logs not None) -> list:
    """The bytes of each log."""
    cdef Py_ssize_t count = len(logs), at
    cdef Log** found = <Log**>calloc(<size_t>count + 1, sizeof(Log*))
    cdef int64_t* size_bytes = <int64_t*>calloc(<size_t>count + 1, sizeof(int64_t))
    try:
        if found == NULL or size_bytes == NULL:
            raise MemoryError
        for at in range(count):
            found[at] = (<LocalLog?>logs[at]).storage  # the list keeps it alive
        with nogil:
            for at in range(count):
                lock_to_look(found[at])
                size_bytes[at] = log_size_bytes(found[at])
                unlock_log(found[at])
        return [size_bytes[at] for at in range(count)]
    finally:
        free(found)
        free(size_bytes)


def unreadable_bytes(list logs not None) -> int:
    """How many bytes of the segments of these logs are no whole batches, and never sent."""
    cdef Log* log
    cdef int64_t total = 0
    cdef Py_ssize_t number
    cdef int32_t at
    for number in range(len(logs)):
        log = (<LocalLog?>logs[number]).storage
        with nogil:
            lock_to_look(log)
            for at in range(log.segment_count):
                total += part_of(log.segments[at]).stray_bytes
            unlock_log(log)
    return total


def segment_figures(LocalLog log not None) -> list:
    """Of every segment, oldest first; the last one is active."""
    cdef Log* storage = log.storage
    cdef int64_t* figures = NULL
    cdef int32_t count = 0, at
    with nogil:
        lock_to_look(storage)
        count = storage.segment_count
        figures = <int64_t*>calloc(4 * <size_t>count + 1, sizeof(int64_t))
        if figures != NULL:
            for at in range(count):
                figures[4 * at] = storage.segments[at].base_offset
                figures[4 * at + 1] = storage.segments[at].size_bytes
                figures[4 * at + 2] = part_of(storage.segments[at]).first_timestamp_ms
                figures[4 * at + 3] = segment_newest_ms(storage.segments[at])
        unlock_log(storage)
    if figures == NULL:
        raise MemoryError
    found = [
        SegmentFigures(
            figures[4 * at], figures[4 * at + 1], figures[4 * at + 2], figures[4 * at + 3])
        for at in range(count)]
    free(figures)
    return found
