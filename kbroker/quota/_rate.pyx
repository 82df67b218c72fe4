# cython: language_level=3
"""A rate as Apache Kafka's quotas measure it, so that the delays agree with its own.

Values are added up in samples, each as long as quota.window.size.seconds. The last
quota.window.num of them are the window, and one more is kept that began before it and ended in it.
The rate is their sum by the time since the oldest began, at least as long as all samples but one:
a client that has just begun is not measured by its first moment.

The sum is kept until a sample begins or is over, which is once in a sample's length. So a record
costs no walk over the samples.

Where the rate is above a bound, the delay is the time in which the rate would fall to the bound if
nothing more were recorded and the window grew: (rate - bound) / bound * window (KIP-13).

`now_ms` is an argument. It never goes back: an earlier one counts as the last. No lock.
"""

from libc.math cimport isfinite
from libc.stdint cimport int32_t, int64_t

cdef enum:
    MS_PER_S = 1000


cdef inline int64_t _now(QuotaRate* rate, int64_t now_ms) noexcept nogil:
    rate.now_ms = max(rate.now_ms, now_ms)
    return rate.now_ms


cdef inline void _begin(QuotaSample* sample, int64_t now_ms) noexcept nogil:
    sample.value = 0
    sample.began_ms = now_ms
    sample.last_ms = now_ms


cdef inline QuotaSample* _current(
    QuotaRate* rate, const QuotaWindow* window, int64_t now_ms
) noexcept nogil:
    # The sample of this moment.
    cdef QuotaSample* sample = &rate.samples[rate.current]
    if rate.count == 0:
        rate.count = 1
        rate.known_until_ms = 0
        _begin(sample, now_ms)
    elif now_ms - sample.began_ms >= window.sample_ms:
        rate.current = (rate.current + 1) % (window.samples + 1)
        rate.count = max(rate.count, rate.current + 1)
        sample = &rate.samples[rate.current]
        rate.known_until_ms = 0
        _begin(sample, now_ms)
    return sample


cdef inline void _record(
    QuotaRate* rate, const QuotaWindow* window, double value, int64_t now_ms
) noexcept nogil:
    cdef QuotaSample* sample = _current(rate, window, now_ms)
    sample.value += value
    rate.total += value
    sample.last_ms = now_ms


cdef void rate_record(
    QuotaRate* rate, const QuotaWindow* window, double value, int64_t now_ms
) noexcept nogil:
    _record(rate, window, value, _now(rate, now_ms))


cdef void _add_up(QuotaRate* rate, int64_t all_ms, int64_t now_ms) noexcept nogil:
    cdef QuotaSample* sample
    cdef int32_t at
    rate.total = 0
    rate.oldest_ms = now_ms
    rate.known_until_ms = now_ms + all_ms
    for at in range(rate.count):
        sample = &rate.samples[at]
        if now_ms - sample.last_ms >= all_ms:
            _begin(sample, now_ms)
        rate.total += sample.value
        rate.oldest_ms = min(rate.oldest_ms, sample.began_ms)
        rate.known_until_ms = min(rate.known_until_ms, sample.last_ms + all_ms)


cdef inline double _sum(
    QuotaRate* rate, const QuotaWindow* window, int64_t now_ms, int64_t* window_ms
) noexcept nogil:
    # Of the samples that are not over, and how long they are together.
    cdef int64_t all_ms = window.samples * window.sample_ms
    cdef int64_t whole
    if now_ms >= rate.known_until_ms:
        _add_up(rate, all_ms, now_ms)
    window_ms[0] = now_ms - rate.oldest_ms
    whole = window_ms[0] // window.sample_ms
    if whole < window.samples - 1:
        window_ms[0] += (window.samples - 1 - whole) * window.sample_ms
    window_ms[0] = max(window_ms[0], <int64_t>1)
    return rate.total


cdef double rate_measure(
    QuotaRate* rate, const QuotaWindow* window, int64_t now_ms
) noexcept nogil:
    cdef int64_t window_ms
    cdef double total = _sum(rate, window, _now(rate, now_ms), &window_ms)
    return total * MS_PER_S / <double>window_ms


cdef inline int64_t _delay_ms(
    QuotaRate* rate, const QuotaWindow* window, double bound, int64_t most_ms, int64_t now_ms
) noexcept nogil:
    cdef int64_t window_ms
    cdef double total = _sum(rate, window, now_ms, &window_ms)
    cdef double found = total * MS_PER_S / <double>window_ms
    cdef double delay_ms
    if not found > bound:
        return 0
    delay_ms = (found - bound) / bound * <double>window_ms + 0.5
    if not isfinite(delay_ms) or delay_ms >= <double>most_ms:
        return most_ms
    return <int64_t>delay_ms


cdef int64_t rate_delay_ms(
    QuotaRate* rate, const QuotaWindow* window, double bound, int64_t most_ms, int64_t now_ms,
) noexcept nogil:
    return _delay_ms(rate, window, bound, most_ms, _now(rate, now_ms))


cdef int64_t rate_use(
    QuotaRate* rate, const QuotaWindow* window, double value, double bound, int64_t most_ms,
    int64_t now_ms,
) noexcept nogil:
    now_ms = _now(rate, now_ms)
    _record(rate, window, value, now_ms)
    return _delay_ms(rate, window, bound, most_ms, now_ms)


# --- tokens ---------------------------------------------------------------------------------------

cdef void _fill(
    TokenBucket* bucket, const QuotaWindow* window, double rate, int64_t now_ms
) noexcept nogil:
    cdef double burst = rate * <double>window.samples * <double>window.sample_ms / MS_PER_S
    if not bucket.is_used:
        bucket.is_used = 1
        bucket.tokens = burst
        bucket.filled_ms = now_ms
        return
    now_ms = max(now_ms, bucket.filled_ms)
    bucket.tokens += rate * <double>(now_ms - bucket.filled_ms) / MS_PER_S
    bucket.tokens = min(bucket.tokens, burst)
    bucket.filled_ms = now_ms


cdef double tokens_left(
    TokenBucket* bucket, const QuotaWindow* window, double rate, int64_t now_ms
) noexcept nogil:
    _fill(bucket, window, rate, now_ms)
    return bucket.tokens


cdef void tokens_take(
    TokenBucket* bucket, const QuotaWindow* window, double rate, double count, int64_t now_ms,
) noexcept nogil:
    _fill(bucket, window, rate, now_ms)
    bucket.tokens -= count
