# cython: language_level=3
"""A rate over windows of time, and how long to wait until it is within a bound; see _rate.pyx."""

from libc.stdint cimport int32_t, int64_t


# quota.window.num and quota.window.size.seconds.
cdef struct QuotaWindow:
    int32_t samples
    int64_t sample_ms


cdef struct QuotaSample:
    double value
    int64_t began_ms
    int64_t last_ms               # of the last record in it


# All zero, but for `samples`: nothing has been recorded.
cdef struct QuotaRate:
    int32_t count
    int32_t current
    int64_t now_ms                # of the last call: time does not go back
    # Until `known_until_ms` no sample is over, and these are of all that there are.
    int64_t known_until_ms
    int64_t oldest_ms             # when the first of them began
    double total
    QuotaSample* samples          # room for QuotaWindow.samples + 1


cdef void rate_record(
    QuotaRate* rate, const QuotaWindow* window, double value, int64_t now_ms) noexcept nogil
# By the second.
cdef double rate_measure(
    QuotaRate* rate, const QuotaWindow* window, int64_t now_ms) noexcept nogil
# How long nothing is to be recorded so that the rate is within the bound, which is above 0; 0: it
# is. Not above `most_ms`.
cdef int64_t rate_delay_ms(
    QuotaRate* rate, const QuotaWindow* window, double bound, int64_t most_ms, int64_t now_ms,
) noexcept nogil
# The delay after this record.
cdef int64_t rate_use(
    QuotaRate* rate, const QuotaWindow* window, double value, double bound, int64_t most_ms,
    int64_t now_ms) noexcept nogil


# Tokens that may be spent at once, refilled continuously (KIP-599).
cdef struct TokenBucket:
    double tokens
    int64_t filled_ms
    int is_used                   # 0: it is new, and full


# Below 0: so many are owed.
cdef double tokens_left(
    TokenBucket* bucket, const QuotaWindow* window, double rate, int64_t now_ms) noexcept nogil
cdef void tokens_take(
    TokenBucket* bucket, const QuotaWindow* window, double rate, double count, int64_t now_ms,
) noexcept nogil
