# cython: language_level=3
"""The rows COMMIT and HEARTBEAT of the group's state table, as C reads them.

They are filled from `states.TABLE` at import and constant from then on. A group gets its cells when
Python publishes its state (`group_publish_locked`), so that a commit or a heartbeat compares one
value of the group. A cell that does not answer is Python's, which says why.
"""

from libc.stdint cimport int8_t, int16_t

from kbroker.coordinator.group._structs cimport GROUP_EMPTY
from kbroker.coordinator.group.states import TABLE, Do, Event, GroupState

cdef int8_t _COMMITS[GROUP_STATES]
cdef int16_t _HEARTBEATS[GROUP_STATES]


def _fill():
    for state in GroupState:
        cell = TABLE[state, Event.COMMIT]
        _COMMITS[<int>state] = COMMITS_OF_NONE
        if cell.do is Do.ANSWER and not cell.code:
            _COMMITS[<int>state] = (
                COMMITS_OF_NO_MEMBER if state == GROUP_EMPTY else COMMITS_OF_MEMBERS)
        cell = TABLE[state, Event.HEARTBEAT]
        _HEARTBEATS[<int>state] = (
            <int16_t><int>cell.code if cell.do is Do.ANSWER else HEARTBEAT_FOR_PYTHON)


_fill()


cdef int8_t commits_in(int state) noexcept nogil:
    return _COMMITS[state] if 0 <= state < GROUP_STATES else COMMITS_OF_NONE


cdef int16_t heartbeat_error_in(int state) noexcept nogil:
    return _HEARTBEATS[state] if 0 <= state < GROUP_STATES else HEARTBEAT_FOR_PYTHON
