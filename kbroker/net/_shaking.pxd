# cython: language_level=3
"""When handshakes go on: after those that are served already. Inline, no module after it.

A step of a handshake takes a tenth of a millisecond to a whole one, and thousands of clients may
come at once, as when a broker has started again. So they wait in their order, and a Processor's
round takes a few steps after it has served all other connections and handed their requests over: as
long as all else has taken since the last step. So those who are served wait twice as long at most,
or for one step. A Processor that has nothing else to do polls after each of them.

The step after the transport's answer, the costly one, is before those of others. Else, where
connections come faster than steps are taken, most are closed for newer ones (`close_crowding`) by
then, with all that they have cost. What the client sends then may
come in pieces, such as a chain of certificates: a step that lacks the rest costs little, and the
next one is before the others as well, up to SHAKES_STEPS_MAX of them in all.

In the Processor's turn, on its thread.
"""

from libc.stdint cimport int64_t

from kbroker.core._sync cimport kb_now_ns
from kbroker.net._channel cimport channel_shake
from kbroker.net._processor_lists cimport remove_shaking
from kbroker.net._types cimport Channel, Processor

cdef enum:
    STEPS_MAX = 4                 # of a round, however long the rest of it has taken


cdef inline void shake_hands(Processor* processor) noexcept nogil:
    cdef Channel* channel
    cdef int64_t began_ns = kb_now_ns()
    cdef int64_t others_ns = (
        began_ns - processor.shaken_ns - (processor.idle_ns - processor.shaken_idle_ns))
    cdef int steps = 0
    processor.now_ns = began_ns
    while (
        processor.shaking != NULL and steps < STEPS_MAX
        and (steps == 0 or processor.now_ns - began_ns < others_ns)
    ):
        channel = processor.shaking
        remove_shaking(channel)
        channel_shake(channel)
        steps += 1
    processor.shaken_ns = processor.now_ns
    processor.shaken_idle_ns = processor.idle_ns
