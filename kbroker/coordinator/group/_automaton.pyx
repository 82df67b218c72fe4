# cython: language_level=3
"""The automaton of a regular expression, run over names in time linear in their length.

A state takes one character of a set, forks, asserts something about where it is, or accepts. All
states that are possible are followed at once, each once for a character (Thompson), so a character
costs as many steps as there are states at most, whatever the expression is; nothing is tried twice.
Names are ASCII, as those of topics are; other bytes are in no set.

The GIL is released while names are matched. An automaton does not change once it is made; any
thread may use it, several at once.
"""

from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

cdef enum:
    ASCII = 128
    ROUND_MAX = 1 << 30         # a name has fewer bytes than are left

# The work of a state; `State.kind`, and the first item of a state for `Automaton`.
cpdef enum StateKind:
    TAKE = 0                    # a character of the set, then `next`
    FORK = 1                    # `next` and `other`
    AT_BEGIN = 2                # `next`, where it holds; and so on
    AT_END = 3
    AT_WORD_EDGE = 4
    NOT_AT_WORD_EDGE = 5
    ACCEPT = 6

cdef struct State:
    uint64_t characters[2]      # a bit for each that it takes
    uint16_t next
    uint16_t other
    uint8_t kind

cdef struct Run:
    const State* states
    uint16_t* now               # those that take, before the character
    uint16_t* after             # and after it
    uint16_t* open              # to be followed; a state is in it twice at most
    uint32_t* seen              # the round in which a state was reached last
    int32_t count               # of `now`
    uint32_t round
    int accepted                # at this place


cdef class Automaton:
    """`states`: (kind, next, other, characters) each, the characters as bits of their codes."""

    cdef State* _states
    cdef int32_t _count
    cdef uint16_t _start

    def __cinit__(self, list states not None, int start):
        cdef int32_t place
        self._count = <int32_t>len(states)
        if not 0 <= start < self._count <= 0xFFFF:
            raise ValueError(f"a start at {start} of {self._count} states")
        self._start = <uint16_t>start
        self._states = <State*>calloc(<size_t>self._count, sizeof(State))
        if self._states == NULL:
            raise MemoryError
        for place in range(self._count):
            self._set(&self._states[place], states[place])

    cdef int _set(self, State* state, tuple row) except -1:
        kind, following, other, characters = row
        if not (0 <= following < self._count and 0 <= other < self._count):
            raise ValueError(f"a state that goes on at {following} or {other}")
        state.kind = <uint8_t>kind
        state.next = following
        state.other = other
        state.characters[0] = characters & 0xFFFFFFFFFFFFFFFF
        state.characters[1] = characters >> 64
        return 0

    def __dealloc__(self):
        free(self._states)

    def matching(self, bytes names not None, const int32_t[::1] ends not None):
        """A byte for each name: whether the whole of it matches. The names follow each other; the
        first begins at 0, and `ends` has the end of each. MemoryError."""
        cdef Run run
        cdef int32_t count = <int32_t>ends.shape[0]
        cdef const uint8_t* text = <const uint8_t*>PyBytes_AsString(names)
        cdef bytes found = PyBytes_FromStringAndSize(NULL, count)
        cdef uint8_t* flags = <uint8_t*>PyBytes_AsString(found)
        cdef int32_t each, begin = 0
        cdef size_t states = <size_t>self._count
        for each in range(count):
            if not begin <= ends[each] <= len(names):
                raise ValueError(f"a name from {begin} to {ends[each]} of {len(names)} bytes")
            begin = ends[each]
        run.states = self._states
        run.seen = <uint32_t*>calloc(states, sizeof(uint32_t))
        run.now = <uint16_t*>calloc(4 * states + 1, sizeof(uint16_t))
        if run.seen == NULL or run.now == NULL:
            free(run.seen)
            free(run.now)
            raise MemoryError
        run.after = run.now + states
        run.open = run.after + states
        run.round = 0
        if count > 0:
            with nogil:
                _match_all(&run, self._start, <int32_t>states, text, &ends[0], count, flags)
        free(run.seen)
        free(run.now if run.now < run.after else run.after)
        return found


cdef void _match_all(
    Run* run, uint16_t start, int32_t states, const uint8_t* text, const int32_t* ends,
    int32_t count, uint8_t* flags,
) noexcept nogil:
    cdef int32_t each, place, begin = 0
    for each in range(count):
        if run.round > ROUND_MAX:
            for place in range(states):
                run.seen[place] = 0
            run.round = 0
        flags[each] = _matches(run, start, text + begin, ends[each] - begin)
        begin = ends[each]


cdef uint8_t _matches(
    Run* run, uint16_t start, const uint8_t* text, int32_t length
) noexcept nogil:
    cdef int32_t at, each, count
    cdef const State* state
    cdef uint16_t* before
    cdef uint8_t character
    run.count = 0
    run.accepted = 0
    run.round += 1
    _reach(run, start, text, 0, length)
    _turn(run)
    for at in range(length):
        if run.count == 0:
            return 0
        character = text[at]
        count = run.count
        before = run.now
        run.count = 0
        run.accepted = 0
        run.round += 1
        if character < ASCII:
            for each in range(count):
                state = &run.states[before[each]]
                if state.characters[character >> 6] >> (character & 63) & 1:
                    _reach(run, state.next, text, at + 1, length)
        _turn(run)
    return <uint8_t>run.accepted


cdef inline void _turn(Run* run) noexcept nogil:
    """What comes after the character is what the next one is tried on."""
    cdef uint16_t* now = run.now
    run.now = run.after
    run.after = now


cdef void _reach(
    Run* run, uint16_t first, const uint8_t* text, int32_t at, int32_t length
) noexcept nogil:
    """Adds the state to `after`, with all that it leads to without a character."""
    cdef int32_t left = 1
    cdef uint16_t place
    cdef const State* state
    run.open[0] = first
    while left > 0:
        left -= 1
        place = run.open[left]
        if run.seen[place] == run.round:
            continue
        run.seen[place] = run.round
        state = &run.states[place]
        if state.kind == TAKE:
            run.after[run.count] = place
            run.count += 1
        elif state.kind == FORK:
            run.open[left] = state.other
            run.open[left + 1] = state.next
            left += 2
        elif state.kind == ACCEPT:
            run.accepted = 1
        elif _holds(state.kind, text, at, length):
            run.open[left] = state.next
            left += 1


cdef inline int _is_word(uint8_t character) noexcept nogil:
    return (
        c"0" <= character <= c"9"
        or c"A" <= character <= c"Z"
        or c"a" <= character <= c"z"
        or character == c"_"
    )


cdef int _holds(uint8_t kind, const uint8_t* text, int32_t at, int32_t length) noexcept nogil:
    cdef int after, before
    if kind == AT_BEGIN:
        return at == 0
    if kind == AT_END:
        return at == length
    before = at > 0 and _is_word(text[at - 1])
    after = at < length and _is_word(text[at])
    return (before != after) == (kind == AT_WORD_EDGE)
