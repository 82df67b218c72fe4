# cython: language_level=3
from libc.stdint cimport int64_t

from kbroker.net._types cimport Channel, Processor

# 1: the channel is listed with this deadline; 0: it was already, with the later of the two.
cdef int throttle_until(Channel* channel, int64_t until_ns) noexcept nogil
# The next channel whose delay is over, off the list; NULL: none is.
cdef Channel* throttle_over(Processor* processor) noexcept nogil
# How long a Processor may sleep for them; `timeout_ms` if nothing comes before.
cdef int throttle_sleep_ms(Processor* processor, int timeout_ms) noexcept nogil
