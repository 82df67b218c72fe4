# cython: language_level=3
"""The transactional ids of a broker, in memory: what the log says of each, and what is under way.

The memory is C's, so that handlers which do not come to Python find an id and change it, too. Both
halves change an id in one way: a thread that finds it without a write under way claims it
(`pending`), writes its record, and then puts the record's image into the memory. So an id has one
write at a time, and the order of its records is that of the decisions.

One lock, of the rank "queue", is around every look at an entry. Python tries it with the GIL held,
and lets go of the GIL only where it has to wait. It is held for a copy, never over a write.

An entry belongs to its `Transaction`, which lives while Python refers to it. C finds it by name
while it is in a `TransactionalIds`; a name that is not ASCII is for Python alone. An id costs some
200 bytes beside its name, and in a transaction those of its partitions' list.
"""

cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from cpython.unicode cimport PyUnicode_AsUTF8AndSize

from kbroker.coordinator.txn._images cimport image_of, image_take
from kbroker.coordinator.txn._places cimport places_free
from kbroker.coordinator.txn._structs cimport TXN_NONE, TXN_ONGOING, Places, TxnImage
from kbroker.core._limits cimport TEXT_BYTES_MAX
from kbroker.core._lock_order cimport (
    RANK_QUEUE, kb_mutex_init, lock_ranked, try_lock_ranked, unlock_ranked)
from kbroker.core._name_hash cimport name_hash
from kbroker.core._sync cimport pthread_mutex_t
from kbroker.core._table cimport (
    table_find, table_free, table_put, table_remove, table_room)

from kbroker.coordinator.txn.states import State

__all__ = ["ENTRY_BYTES", "Transaction", "TransactionalIds"]

# Of an id in C, without its partitions: what is allocated, and its share of the table's places.
ENTRY_BYTES = sizeof(TxnEntry) + 16 + 2 * sizeof(void*)

cdef pthread_mutex_t _lock        # of all entries of the process
kb_mutex_init(&_lock)

cdef int64_t _last_number = 0     # under the GIL


cdef struct Name:
    const uint8_t* at
    int32_t length


cdef void ids_lock() noexcept nogil:
    lock_ranked(&_lock, RANK_QUEUE)


cdef void ids_unlock() noexcept nogil:
    unlock_ranked(&_lock, RANK_QUEUE)


cdef inline uint32_t _hash_of(const void* item) noexcept nogil:
    return (<const TxnEntry*>item).hash


cdef inline int _has_name(const void* item, const void* key) noexcept nogil:
    cdef const TxnEntry* entry = <const TxnEntry*>item
    cdef const Name* name = <const Name*>key
    return (entry.name_length == name.length
            and memcmp(entry.name, name.at, <size_t>name.length) == 0)


cdef TxnEntry* ids_find_locked(
    const TxnIds* ids, const uint8_t* name, int32_t length
) noexcept nogil:
    cdef Name wanted = Name(name, length)
    if length > TEXT_BYTES_MAX:   # of no id; a request may bring megabytes, and others wait
        return NULL
    return <TxnEntry*>table_find(&ids.by_name, name_hash(name, length), _has_name, &wanted)


# --- Python ---------------------------------------------------------------------------------------

cdef inline void _lock_from_python() noexcept:
    # The end of `nogil` waits for the GIL, so the lock is given back before it; handlers in C would
    # wait for the lock as long.
    while not try_lock_ranked(&_lock, RANK_QUEUE):
        with nogil:
            ids_lock()
            ids_unlock()


cdef Places* _copied(const Places* places) noexcept nogil:
    cdef size_t size_bytes = sizeof(Places) + <size_t>places.size_bytes
    cdef Places* copy = <Places*>malloc(size_bytes)
    if copy != NULL:
        memcpy(copy, places, size_bytes)
    return copy


cdef inline int _state_of(const TxnEntry* entry) noexcept:
    cdef int state
    _lock_from_python()
    state = entry.image.state
    ids_unlock()
    return state


cdef class Transaction:
    """See _ids.pyi."""

    def __cinit__(self, image, long long term):
        global _last_number
        self.entry = <TxnEntry*>calloc(1, sizeof(TxnEntry))
        if self.entry == NULL:
            raise MemoryError
        _last_number += 1
        self.entry.number = _last_number
        self.entry.term = term
        self.entry.image.state = TXN_NONE
        if image is not None:
            image_take(image, &self.entry.image)

    def __dealloc__(self):
        if self.entry != NULL:
            places_free(self.entry.image.places)
            free(self.entry)

    def become(self, image not None):
        cdef TxnImage fresh
        cdef Places* before
        image_take(image, &fresh)
        _lock_from_python()
        before = self.entry.image.places
        self.entry.image = fresh
        ids_unlock()
        places_free(before)

    def claim(self):
        cdef int was_pending
        _lock_from_python()
        was_pending = self.entry.pending
        self.entry.pending = 1
        ids_unlock()
        return not was_pending

    @property
    def image(self):
        cdef TxnImage copy
        cdef int failed = 0
        _lock_from_python()
        copy = self.entry.image
        if copy.places != NULL:
            copy.places = _copied(copy.places)
            failed = copy.places == NULL
        ids_unlock()
        if failed:
            raise MemoryError
        if copy.state == TXN_NONE:
            return None
        try:
            return image_of(&copy)
        finally:
            places_free(copy.places)

    @property
    def term(self):
        return self.entry.term

    @property
    def pending(self):
        cdef int pending
        _lock_from_python()
        pending = self.entry.pending
        ids_unlock()
        return bool(pending)

    @pending.setter
    def pending(self, bint pending):
        _lock_from_python()
        self.entry.pending = <int8_t>pending
        ids_unlock()

    @property
    def client(self):
        return self.its_client

    @client.setter
    def client(self, client not None):
        self.its_client = client
        _lock_from_python()
        self.entry.has_client = 1
        ids_unlock()

    def take_left(self):
        cdef int left
        _lock_from_python()
        left = self.entry.left
        self.entry.left = 0
        ids_unlock()
        return bool(left)

    @property
    def fence_failed(self):
        cdef int failed
        _lock_from_python()
        failed = self.entry.fence_failed
        ids_unlock()
        return bool(failed)

    @fence_failed.setter
    def fence_failed(self, bint failed):
        _lock_from_python()
        self.entry.fence_failed = <int8_t>failed
        ids_unlock()

    @property
    def state(self):
        cdef int state = _state_of(self.entry)
        return None if state == TXN_NONE else State(state)

    @property
    def is_open(self):
        return _state_of(self.entry) == TXN_ONGOING

    @property
    def aborts(self):
        cdef int32_t aborted, timed_out
        _lock_from_python()
        aborted, timed_out = self.entry.aborted, self.entry.timed_out
        ids_unlock()
        return aborted, timed_out

    def count_abort(self, bint timed_out):
        _lock_from_python()
        self.entry.aborted += 1
        self.entry.timed_out += timed_out
        ids_unlock()

    def unused_since(self, int64_t before_ms):
        cdef int unused
        _lock_from_python()
        unused = (
            self.entry.image.state != TXN_NONE and self.entry.image.update_ms <= before_ms)
        ids_unlock()
        return bool(unused)


@cython.no_gc_clear  # C finds entries while they are in it
cdef class TransactionalIds:
    """See _ids.pyi."""

    def __cinit__(self):
        self.known = {}
        self.ids.ended = &self.its_ended

    def __dealloc__(self):
        # The entries are freed with their transactions.
        table_free(&self.ids.by_name)

    def __len__(self):
        return len(self.known)

    @property
    def ended(self):
        cdef TxnEnded ended
        _lock_from_python()
        ended = self.its_ended
        ids_unlock()
        return ended.committed, ended.aborted

    def get(self, str name not None):
        return self.known.get(name)

    def items(self):
        return list(self.known.items())

    def put(self, str name not None, Transaction transaction not None):
        cdef TxnEntry* entry = transaction.entry
        cdef Py_ssize_t length = 0
        cdef const char* text = NULL
        cdef int failed = 0
        self.drop(name)
        transaction.name = name
        self.known[name] = transaction  # first, since it may fail: C finds no freed entry
        if name.isascii():
            text = PyUnicode_AsUTF8AndSize(name, &length)
        if text != NULL:
            _lock_from_python()
            failed = table_room(&self.ids.by_name, _hash_of)
            if not failed:
                entry.name = <const uint8_t*>text
                entry.name_length = <int32_t>length
                entry.hash = name_hash(entry.name, entry.name_length)
                table_put(&self.ids.by_name, entry, entry.hash)
            ids_unlock()
        if failed:
            self.drop(name)
            raise MemoryError

    def drop(self, str name not None):
        cdef Transaction transaction = self.known.pop(name, None)
        cdef TxnEntry* entry
        if transaction is None:
            return
        entry = transaction.entry
        _lock_from_python()
        if entry.name != NULL:
            table_remove(&self.ids.by_name, entry, _hash_of, "ids: one that goes is known")
            entry.name = NULL
        ids_unlock()
        transaction.name = None
