# cython: language_level=3
"""A batch held against its topic's rules, before anything of the log changes.

On a handler's thread, without the GIL and without the log's lock: the rules are atomic, each alone.
"""

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t

from kbroker.core._atomics cimport kb_load_i64
from kbroker.log.engine._records cimport (
    AT_ATTRIBUTES, CODEC_MASK, HEADER_BYTES, Rules, batch_validate, rules_none)
from kbroker.log.engine._storage cimport (
    RULE_CODEC_AT, RULE_COMPACTED, RULE_LOG_APPEND_TIME, RULE_RECOMPRESS, Log, TopicRules)
from kbroker.log.engine._types cimport NEEDS_PYTHON, VALIDATED, Batch


cdef inline int64_t shifted(int64_t time_ms, int64_t by_ms) noexcept nogil:
    # Saturates: the window's defaults are the largest int64.
    if by_ms > 0 and time_ms > INT64_MAX - by_ms:
        return INT64_MAX
    if by_ms < 0 and time_ms < INT64_MIN - by_ms:
        return INT64_MIN
    return time_ms + by_ms


cdef int log_repacks(Log* log, const Batch* batch) noexcept nogil:
    cdef int64_t flags = kb_load_i64(&log.rules.flags)
    return (flags & RULE_RECOMPRESS != 0 and batch.length_bytes >= HEADER_BYTES
            and batch.data[AT_ATTRIBUTES + 1] & CODEC_MASK != flags >> RULE_CODEC_AT)


cdef int log_validate(Log* log, Batch* batch, int64_t now_ms) noexcept nogil:
    cdef Rules rules
    cdef TopicRules* topic = &log.rules
    cdef int64_t flags = kb_load_i64(&topic.flags)
    cdef int64_t before_ms = kb_load_i64(&topic.timestamp_before_max_ms)
    cdef int64_t after_ms = kb_load_i64(&topic.timestamp_after_max_ms)
    rules_none(&rules)
    rules.compacted = flags & RULE_COMPACTED != 0
    rules.log_append_time = flags & RULE_LOG_APPEND_TIME != 0
    # Where one side has a bound, so has the other: a time from which int64 cannot count up to now
    # is in the future, as in Apache Kafka.
    if not rules.log_append_time and (before_ms < INT64_MAX or after_ms < INT64_MAX):
        rules.timestamp_min_ms = shifted(now_ms, -before_ms)
        rules.timestamp_max_ms = shifted(now_ms, after_ms)
    rules.arena = batch.arena
    if (flags & RULE_RECOMPRESS and not batch.prechecked and not batch.repacked
            and log_repacks(log, batch)):
        return NEEDS_PYTHON
    if batch_validate(
            batch, &rules, kb_load_i64(&topic.max_message_bytes),
            flags & RULE_LOG_APPEND_TIME != 0, now_ms) == NEEDS_PYTHON:
        return NEEDS_PYTHON
    if batch.log_start_offset == 0:
        batch.log_start_offset = kb_load_i64(&log.log_start_offset)
    return VALIDATED
