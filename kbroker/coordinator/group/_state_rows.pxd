# cython: language_level=3
"""What C answers of a group in a state, as states.py has it."""

from libc.stdint cimport int8_t, int16_t

from kbroker.coordinator.group._structs cimport GROUP_STATES

cdef enum:
    # Whose offsets a group takes.
    COMMITS_OF_NONE = 0
    COMMITS_OF_MEMBERS = 1
    COMMITS_OF_NO_MEMBER = 2      # the group has none

    HEARTBEAT_FOR_PYTHON = -1

cdef int8_t commits_in(int state) noexcept nogil
# The error of a member's heartbeat, or HEARTBEAT_FOR_PYTHON.
cdef int16_t heartbeat_error_in(int state) noexcept nogil
