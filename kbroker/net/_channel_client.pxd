# cython: language_level=3
"""What a channel holds of its client, beside the requests; inline, without a module."""

from kbroker.net._sessions cimport session_drop
from kbroker.net._types cimport Channel
from kbroker.quota._quota_table cimport quota_client_free


# The last of it; in its Processor's turn.
cdef inline void channel_drop_client(Channel* channel) noexcept nogil:
    session_drop(channel.session)
    if channel.quotas != NULL:
        quota_client_free(channel.processor.request_channel.quotas, channel.quotas)
        channel.quotas = NULL
