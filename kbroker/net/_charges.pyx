# cython: language_level=3
"""What requests are charged to the quotas of their clients, and how answers tell it.

The hot path charges bytes and time before it writes an answer, for the answer has the time for
which the client is to wait. Answers of Python are written by then: the time goes to its place in
them, which nearly all have first. The channel is not read for that long after the answer
(`_throttle`, KIP-219).

The client id is read from the frame; where that was let go of, it is that of the channel's last
charge. Any thread that has the request; the quotas' lock.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kbroker.core._sync cimport kb_now_ns
from kbroker.net._types cimport ACTION_SEND, API_KEYS_MAX, Request, RequestChannel
from kbroker.protocol._cursor cimport kb_get_u16, kb_put_u32
from kbroker.protocol._versions cimport API_VERSIONS
from kbroker.quota._quota_table cimport (
    LAST_CLIENT_ID, NO_QUOTA, QuotaAsker, QuotaCharge, quota_bounds_fetch, quota_charge,
    quota_fetch_most)

cdef enum:
    NS_PER_MS = 1000000
    CLIENT_ID_AT = 8              # of a frame: after key, version and correlation id
    NS_PER_PERCENT = 10000000     # of a second


cdef inline void _ask(Request* request, QuotaAsker* asker) noexcept nogil:
    cdef int16_t length
    asker.held = &request.channel.quotas
    asker.session = request.channel.session
    asker.user = request.channel.session.user
    asker.user_length = request.channel.session.user_length
    asker.client = NULL
    asker.client_length = LAST_CLIENT_ID
    if request.data == NULL or request.length_bytes < CLIENT_ID_AT + 2:
        return
    length = <int16_t>kb_get_u16(request.data + CLIENT_ID_AT)
    asker.client_length = 0
    if 0 < length <= <int64_t>request.length_bytes - (CLIENT_ID_AT + 2):
        asker.client = request.data + CLIENT_ID_AT + 2
        asker.client_length = length


cdef inline int32_t _charge(
    RequestChannel* channel, Request* request, const QuotaAsker* asker, const QuotaCharge* charge,
    int64_t now_ns,
) noexcept nogil:
    cdef int32_t delay_ms = quota_charge(channel.quotas, asker, charge, now_ns // NS_PER_MS)
    request.throttle_ms = max(request.throttle_ms, delay_ms)
    return delay_ms


cdef double _percent(int64_t time_ns) noexcept nogil:
    return <double>time_ns / NS_PER_PERCENT if time_ns >= 0 else -1


cdef int32_t request_charge(
    RequestChannel* channel, Request* request, int kind, int64_t size_bytes,
    int takes_back, int64_t time_ns, int64_t now_ns,
) noexcept nogil:
    cdef QuotaAsker asker
    cdef QuotaCharge charge
    if channel.quotas == NULL:
        return 0
    _ask(request, &asker)
    charge.kind = kind
    charge.bytes = <double>size_bytes
    charge.takes_back = takes_back
    charge.percent = _percent(time_ns)
    return _charge(channel, request, &asker, &charge, now_ns)


cdef int64_t request_fetch_most(
    RequestChannel* channel, Request* request, int64_t size_bytes
) noexcept nogil:
    cdef QuotaAsker asker
    if not quota_bounds_fetch(channel.quotas, size_bytes):
        return size_bytes
    _ask(request, &asker)
    return min(
        size_bytes, quota_fetch_most(channel.quotas, &asker, kb_now_ns() // NS_PER_MS))


cdef void request_charge_answer(
    RequestChannel* channel, Request* request, const uint8_t* client, int32_t client_length,
    int64_t time_ns, int64_t now_ns,
) noexcept nogil:
    cdef QuotaAsker asker
    cdef QuotaCharge charge
    if channel.quotas == NULL or (
        0 <= request.api_key < API_KEYS_MAX and channel.between_brokers[request.api_key]
    ):
        return
    _ask(request, &asker)
    if client != NULL:
        asker.client = client
        asker.client_length = client_length
    charge.kind = NO_QUOTA
    charge.bytes = 0
    charge.takes_back = 0
    charge.percent = _percent(max(time_ns, 0))
    _charge(channel, request, &asker, &charge, now_ns)
    if request.throttle_ms > 0:
        request_tell_throttle(channel, request)


cdef void request_tell_throttle(RequestChannel* channel, Request* request) noexcept nogil:
    cdef int64_t at = 8           # after its size and correlation id
    cdef int since
    cdef int flexible
    if not 0 <= request.api_key < API_KEYS_MAX or request.action != ACTION_SEND:
        return
    since = channel.throttle_from[request.api_key]
    flexible = channel.flexible_from[request.api_key]
    if since < 0 or request.api_version < since or request.part_count < 1:
        return
    if 0 <= flexible <= request.api_version and request.api_key != API_VERSIONS:
        at += 1                   # an empty buffer of tagged fields
    if request.parts[0].fd < 0 and request.parts[0].length >= at + 4:
        kb_put_u32(request.parts[0].data + at, <unsigned int>request.throttle_ms)
