# cython: language_level=3
"""Topics by number for the assignors: what members subscribe to, and what they had, as numbers.

A topic's id is a UUID, which Python hashes in ten steps. Members that subscribe to a topic mostly
have the same object of it, so an id is looked up by the address of its object first; only the first
of each object is looked up by its value. Objects are kept until the end, so that no address is that
of two.

The GIL is held, and given up for a moment after each YIELD_AFTER topics.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc

from array import array

cdef enum:
    NOT_THERE = -1
    SLOTS_MIN = 64
    WORD_BITS = 64
    YIELD_AFTER = 1 << 15         # about a millisecond

cdef extern from *:
    int __builtin_ctzll(unsigned long long word) nogil

cdef struct Slot:
    uintptr_t address             # 0: empty
    int32_t number


cdef class TopicNumbers:
    """See _topic_numbers.pyi."""

    cdef dict by_id
    cdef list kept
    cdef Slot* slots
    cdef uint32_t mask
    cdef uint32_t used
    cdef uint32_t looked
    cdef int32_t count

    def __cinit__(self, list topics not None):
        self.by_id = {topic: number for number, topic in enumerate(topics)}
        self.kept = []
        self.count = <int32_t>len(topics)
        self.mask = SLOTS_MIN - 1
        self.slots = <Slot*>calloc(SLOTS_MIN, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.slots)

    cdef inline Slot* _slot(self, uintptr_t address) noexcept:
        # Objects are aligned: the lowest bits say nothing.
        cdef uint64_t mixed = (<uint64_t>address >> 4) * <uint64_t>0x9e3779b97f4a7c15
        cdef uint32_t place = <uint32_t>(mixed >> 32) & self.mask
        while self.slots[place].address != 0 and self.slots[place].address != address:
            place = (place + 1) & self.mask
        return &self.slots[place]

    cdef int _grow(self) except -1:
        cdef Slot* before = self.slots
        cdef uint32_t size = self.mask + 1
        cdef uint32_t place
        cdef Slot* fresh = <Slot*>calloc(2 * <size_t>size, sizeof(Slot))
        if fresh == NULL:
            raise MemoryError
        self.slots = fresh
        self.mask = 2 * size - 1
        for place in range(size):
            if before[place].address != 0:
                self._slot(before[place].address)[0] = before[place]
        free(before)
        return 0

    cdef int32_t _number(self, topic) except -2:
        # NOT_THERE: of a topic that has no number.
        cdef uintptr_t address = <uintptr_t><void*>topic
        cdef Slot* slot = self._slot(address)
        self.looked += 1
        if self.looked % YIELD_AFTER == 0:
            with nogil:
                pass
        if slot.address == 0:
            number = self.by_id.get(topic, NOT_THERE)
            if 2 * self.used > self.mask:
                self._grow()
                slot = self._slot(address)
            self.kept.append(topic)
            self.used += 1
            slot.number = number
            slot.address = address
        return slot.number

    def subscriptions(self, list collections not None):
        cdef Py_ssize_t total = sum([len(each) for each in collections])
        cdef Py_ssize_t words = (self.count + WORD_BITS - 1) // WORD_BITS
        cdef int32_t filled = 0
        cdef int32_t number
        cdef Py_ssize_t place, word, shared
        cdef uint64_t bits
        cdef uint64_t* marks
        starts = array("i", bytes(4 * (len(collections) + 1)))
        subscribed = array("i", bytes(4 * max(1, total)))
        cdef int32_t[::1] starts_of = starts
        cdef int32_t[::1] numbers = subscribed
        cdef dict known = {}
        seen = bytearray(max(1, self.count))
        cdef unsigned char[::1] seen_of = seen
        marks = <uint64_t*>calloc(<size_t>words + 1, sizeof(uint64_t))
        if marks == NULL:
            raise MemoryError
        try:
            for place in range(len(collections)):
                topics = collections[place]
                shared = known.setdefault(<uintptr_t><void*>topics, place)
                if shared != place:
                    for word in range(starts_of[shared], starts_of[shared + 1]):
                        numbers[filled] = numbers[word]
                        filled += 1
                    starts_of[place + 1] = filled
                    continue
                for topic in topics:
                    number = self._number(topic)
                    if number != NOT_THERE:
                        seen_of[number] = 1
                        marks[number // WORD_BITS] |= <uint64_t>1 << (number % WORD_BITS)
                for word in range(words):
                    bits = marks[word]
                    while bits != 0:
                        numbers[filled] = <int32_t>(
                            word * WORD_BITS + __builtin_ctzll(<unsigned long long>bits))
                        filled += 1
                        bits &= bits - 1
                    marks[word] = 0
                starts_of[place + 1] = filled
        finally:
            free(marks)
        numbers = starts_of = None  # an array that is looked at cannot be cut
        seen_of = None
        del subscribed[filled:]
        del seen[self.count:]
        return starts, subscribed, seen

    def assigned(self, const int32_t[::1] owners, const int32_t[::1] firsts not None, int members):
        cdef int32_t number, partition, place
        cdef list by_place = [{} for _ in range(members)]
        cdef list lists = [None] * members
        cdef list topics = list(self.by_id)
        cdef int32_t* last = <int32_t*>malloc(sizeof(int32_t) * (<size_t>members + 1))
        if last == NULL:
            raise MemoryError
        for place in range(members):
            last[place] = NOT_THERE
        try:
            for number in range(self.count):
                topic = topics[number]
                for partition in range(firsts[number + 1] - firsts[number]):
                    place = owners[firsts[number] + partition]
                    if not 0 <= place < members:
                        continue
                    if last[place] == number:
                        (<list>lists[place]).append(partition)
                    else:
                        last[place] = number
                        lists[place] = [partition]
                        (<dict>by_place[place])[topic] = lists[place]
        finally:
            free(last)
        return by_place

    def last_owners(self, list targets not None, const int32_t[::1] firsts not None):
        cdef int32_t place, number, first, count
        cdef Py_ssize_t size = firsts[self.count]
        owners = array("i", b"\xff" * (4 * size))
        cdef int32_t[::1] owners_of
        cdef int64_t partition
        if size == 0:
            return owners
        owners_of = owners
        for place in range(<int32_t>len(targets)):
            for topic, partitions in targets[place].items():
                number = self._number(topic)
                if number == NOT_THERE:
                    continue
                first = firsts[number]
                count = firsts[number + 1] - first
                for each in partitions:
                    partition = each
                    if 0 <= partition < count:
                        owners_of[first + partition] = place
        owners_of = None
        return owners
