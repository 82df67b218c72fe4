# cython: language_level=3


cdef enum ParkedState:
    BUILDING = 0                  # its watches are being linked; the parker's alone
    OPEN = 1                      # on every list: any thread with something for it may complete it
    DONE = 2                      # completed: once only
    PARKED_STATES = 3


cdef enum ParkedEvent:
    LISTED = 0                    # the parker has put it on the last list
    GIVEN_UP = 1                  # the parker could not
    COMPLETED = 2                 # enough, an error, its deadline, its connection's end, ours
    PARKED_EVENTS = 3


cdef enum ParkedVerdict:
    PARKED_ILLEGAL = -1           # nothing has changed
    PARKED_STAYED = 0             # the event came too early or too late: another thread acts on it
    PARKED_MOVED = 1              # by this caller alone

# The one place where the state of a parked request moves; any thread, without a lock.
cdef int parked_fire(int* state, int event) noexcept nogil
