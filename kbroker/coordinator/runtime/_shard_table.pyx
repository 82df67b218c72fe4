# cython: language_level=3
"""The partitions of an internal topic, for any machine: `ShardTable`, the face for Python.

    CoordinatorStore  -> open, activate, close, append, written_before, when_replicated
    Loader            -> load_batches, activate, close

Everything that a machine writes to its topic goes through here, from Python or from C, so that
what its memory says is what the log says, in its order; `when_replicated` says when the followers
have it, too. A machine that has memory in C has a subclass, which sets `ShardKind`; one without is
given every record of a load.

Any thread may call. Every method reads its arguments with the GIL, lets go of it, takes one shard's
lock, and makes objects of its copies when it has let go of that. The lock's rank is "session". The
listener is called after an append, with nothing held.
"""

from libc.stdint cimport int32_t, int64_t

from kbroker.coordinator.runtime._batches cimport Records, batch_of_records
from kbroker.coordinator.runtime._python cimport java_hash, load_batch, records_take
from kbroker.coordinator.runtime._python import LoadedBatches, LoadedRecord, partition_for
from kbroker.coordinator.runtime._shards cimport (
    appended_of, coordinator_error, records_write_locked, shard_change, shard_error, shard_index,
    shard_lock, shard_lock_within, shard_unlock, shard_written_locked, shards_free, shards_grow,
    shards_new)
from kbroker.coordinator.runtime._structs cimport (
    SHARD_ACTIVE, SHARD_LOADING, SHARD_NOT_OWNER, SHARDS_MAX, Appended, Shard)
from kbroker.coordinator.runtime.open_transactions import OpenTransactions
from kbroker.core._arena cimport Arena, arena_free
from kbroker.core._atomics cimport kb_cas_int, kb_load_i64, kb_load_int, kb_store_i64
from kbroker.core._error_codes cimport (
    COORDINATOR_NOT_AVAILABLE, KAFKA_STORAGE_ERROR, MESSAGE_TOO_LARGE, NOT_COORDINATOR,
    UNKNOWN_SERVER_ERROR)
from kbroker.core._sync cimport kb_now_ns, kb_wall_ms
from kbroker.errors import ErrorCode
from kbroker.log.engine._records cimport HEADER_BYTES
from kbroker.log.engine._types cimport Batch
from kbroker.replica._partition cimport Partition
from kbroker.replica._replica cimport Replica

__all__ = [
    "ACTIVE",
    "LOADING",
    "NOT_OWNER",
    "LoadedBatches",
    "LoadedRecord",
    "ShardTable",
    "Written",
    "partition_for",
]

cdef enum:
    CHANGE_WAIT_MS = 20           # for the holder of the lock
    WRITE_TIMEOUT_MS = 5000
    NS_PER_MS = 1000000

NOT_OWNER = SHARD_NOT_OWNER
LOADING = SHARD_LOADING
ACTIVE = SHARD_ACTIVE


cdef class Written:
    """What one call has written, for `when_replicated`; once."""


cdef class ShardTable:
    """One per machine and broker. It knows no partition until `set_partition_count`."""

    def __cinit__(
        self, listener=None, *, int64_t write_timeout_ms=WRITE_TIMEOUT_MS, bint any_size=False,
        int32_t base_sequence=0, **of_machine,
    ):
        self.listener = listener
        self.shards = shards_new()
        if self.shards == NULL:
            raise MemoryError
        self.shards.write_timeout_ms = write_timeout_ms
        self.shards.any_size = any_size
        self.shards.base_sequence = base_sequence
        self.replicas = {}
        self.open_transactions = OpenTransactions()

    def __dealloc__(self):
        shards_free(self.shards)

    @property
    def partition_count(self):
        return kb_load_int(&self.shards.count)

    def set_partition_count(self, int count):
        if not 0 <= count <= SHARDS_MAX:
            raise ValueError(f"{count} partitions")
        if shards_grow(self.shards, count) != 0:
            raise MemoryError

    def set_clock_shift_ms(self, int64_t shift_ms):
        kb_store_i64(&self.shards.clock_shift_ms, shift_ms)

    cdef Shard* _shard(self, int partition) except NULL:
        # One of more partitions that the topic had before is closed after their number has changed.
        if not 0 <= partition < SHARDS_MAX or self.shards.shards[partition] == NULL:
            raise ValueError(f"the topic has no partition {partition}")
        return self.shards.shards[partition]

    cdef Shard* _shard_of(self, str key):
        # NULL: there is no topic.
        cdef int count = kb_load_int(&self.shards.count)
        if count == 0:
            return NULL
        return self.shards.shards[shard_index(java_hash(key), count)]

    # --- Shards -----------------------------------------------------------------------------------

    def open(self, int partition, Replica replica not None, int64_t wait_ms=CHANGE_WAIT_MS):
        return self._change(partition, SHARD_LOADING, replica, wait_ms)

    def activate(self, int partition):
        kb_cas_int(&self._shard(partition).state, SHARD_LOADING, SHARD_ACTIVE)

    def close(self, int partition, int64_t wait_ms=CHANGE_WAIT_MS):
        return self._change(partition, SHARD_NOT_OWNER, None, wait_ms)

    cdef _change(self, int partition, int state, Replica replica, int64_t wait_ms):
        cdef Shard* shard = self._shard(partition)
        cdef Partition* of = NULL if replica is None else replica.partition
        cdef int changed
        with nogil:
            changed = shard_change(shard, state, of, kb_now_ns() + wait_ms * NS_PER_MS)
        if not changed:
            return False
        if replica is None:
            self.replicas.pop(partition, None)
        else:
            self.replicas[partition] = replica
        self.open_transactions.forget(partition)
        return True

    def shard_state(self, int partition):
        return kb_load_int(&self._shard(partition).state)

    def term(self, int partition):
        return kb_load_i64(&self._shard(partition).term)

    def state_of(self, str key not None):
        cdef Shard* shard = self._shard_of(key)
        cdef int error = COORDINATOR_NOT_AVAILABLE
        return error if shard == NULL else shard_error(shard)

    # --- The log ----------------------------------------------------------------------------------

    def load_batches(self, int partition, bytes data not None):
        cdef Shard* shard = self._shard(partition)
        cdef Py_ssize_t at = 0
        cdef int used
        cdef int64_t following = -1
        found, left_out = [], []
        while len(data) - at >= HEADER_BYTES:
            used = load_batch(shard, data, at, found, left_out, self.open_transactions, &following)
            if used == 0:
                break
            at += used
        return LoadedBatches(at, following, found, left_out)

    def append(
        self, int partition, records, Written written=None, int64_t term=-1,
        int64_t patience_ms=-1,
    ):
        cdef Shard* shard = self._shard(partition)
        cdef list pairs = list(records)
        cdef Arena arena
        cdef Records taken
        cdef Batch batch
        cdef Appended appended
        cdef int error
        if not pairs:
            return 0
        arena.block = NULL
        try:
            records_take(&arena, pairs, &taken)
            with nogil:
                batch_of_records(
                    &batch, &taken, kb_wall_ms() + self._shift_ms(), self.shards.base_sequence)
                error = COORDINATOR_NOT_AVAILABLE
                if shard_lock_within(shard, patience_ms * NS_PER_MS):
                    error = shard_error(shard)
                    if error == 0 and term >= 0 and term != kb_load_i64(&shard.term):
                        error = NOT_COORDINATOR
                    if error == 0:
                        error = records_write_locked(shard, &batch, &taken)
                    shard_unlock(shard)
            appended = appended_of(&batch)
        finally:
            arena_free(&arena)
        return self._written(shard, error, &appended, written)

    cdef int _written(
        self, Shard* shard, int error, const Appended* appended, Written written,
    ) except? -2:
        # With nothing held: to the disk, where the topic asks for it; fetches that wait at the end
        # of the log learn of it. The error of the whole.
        cdef Replica replica
        if error != 0:
            return error
        if (found := self.replicas.get(shard.index)) is None:  # led elsewhere since it was written
            return NOT_COORDINATOR if appended.awaits_followers else 0
        replica = found
        try:
            replica.flush_if_due()
        except OSError:
            return coordinator_error(KAFKA_STORAGE_ERROR)
        if self.listener is not None:
            self.listener.wake(replica)
        if written is not None and appended.awaits_followers:
            written.appended = appended[0]
            written.replica = replica
        return 0

    def written_before(self, str key not None, Written written not None):
        cdef Shard* shard = self._shard_of(key)
        cdef Appended appended = Appended(-1, -1, 0)
        cdef int error
        if shard == NULL:
            return COORDINATOR_NOT_AVAILABLE
        with nogil:
            shard_lock(shard)
            error = shard_error(shard)
            if error == 0:
                appended = shard_written_locked(shard)
            shard_unlock(shard)
        return self._written(shard, error, &appended, written)

    def when_replicated(
        self, Written written not None, int code, done not None, timeout_ms=None,
    ):
        cdef int64_t wait_ms = self.shards.write_timeout_ms if timeout_ms is None else timeout_ms
        if code == MESSAGE_TOO_LARGE:    # clients of a coordinator do not know this error
            code = UNKNOWN_SERVER_ERROR
        if code != 0 or written.replica is None or self.listener is None:
            done(ErrorCode(code))
            return
        self.listener.await_followers(
            written.replica, written.appended.last_offset, written.appended.led_since,
            wait_ms, done)

    cdef int64_t _shift_ms(self) noexcept nogil:
        return kb_load_i64(&self.shards.clock_shift_ms)
