# cython: language_level=3
"""The questions to coordinators for produces that wait (`_produce_verify`), for Python.

A train may name a partition more than once, and wait for more than one transaction: a partition is
asked once for each transaction, and its answer is that of all its batches. A question is known by a
number until its answer has come, or the broker stops: answers after that are passed over. With the
GIL; the fields that are read here do not change while there is a reference to the request.
"""

from libc.stdint cimport int16_t, int32_t

from kbroker.core._atomics cimport kb_load_int
from kbroker.engine.apis._produce_verify cimport Verification, produce_go_on
from kbroker.engine.waiting._parked cimport parked_complete, parked_drop
from kbroker.engine.worker._context cimport HotWorker, ParkedRequest
from kbroker.errors import InvariantError
from kbroker.types import TopicPartition


cdef class ProduceQuestions:
    """Those of one hot path that are not answered."""

    def __cinit__(self):
        self.asked = {}

    cdef list take(self, HotWorker* worker):
        """The questions of a worker: (number, version, places, transactions), and of each
        transaction its id, producer id, epoch, partitions, and the places of each partition in the
        answer."""
        cdef ParkedRequest* parked
        asking = []
        while worker.asking != NULL:
            parked = worker.asking
            asking.append(_question(<size_t>parked, parked))
            self.asked[<size_t>parked] = True
            worker.asking = parked.next_asking
        if kb_load_int(&self.context.parked.closing):
            self.forget()
            return []
        return asking

    cdef int answered(self, object number, list errors) except -1:
        """For each place (error, the coordinator's own). Places that are missing keep theirs."""
        cdef ParkedRequest* parked
        cdef int mine
        if self.asked.pop(number, None) is None:
            if kb_load_int(&self.context.parked.closing):
                return 0
            raise InvariantError(f"produce {number} waits for no coordinator")
        parked = <ParkedRequest*><size_t>number
        with nogil:
            mine = parked_complete(&parked, 1)
        try:
            if mine:
                _note_errors(parked, errors)
        finally:
            with nogil:
                if mine:
                    produce_go_on(self.context, parked)
                parked_drop(parked)
        return 0

    cdef int forget(self) except -1:
        """The broker stops: everything that waited has been completed."""
        cdef ParkedRequest* parked
        for number in list(self.asked):
            if self.asked.pop(number, None) is not None:
                parked = <ParkedRequest*><size_t>number
                with nogil:
                    parked_drop(parked)
        return 0


cdef tuple _question(object number, const ParkedRequest* parked):
    cdef const Verification* kept = <const Verification*>parked.kept
    cdef int32_t at
    transactions = []
    for at in range(kept.transaction_count):
        transactions.append((
            _text(kept.transactions[at].transactional_id, kept.transactions[at].id_length),
            kept.transactions[at].producer_id,
            kept.transactions[at].producer_epoch,
            {},
        ))
    for at in range(kept.count):
        partition = TopicPartition(
            _text(kept.partitions[at].topic, kept.partitions[at].topic_length),
            kept.partitions[at].index)
        transactions[kept.partitions[at].transaction][3].setdefault(partition, []).append(at)
    return number, kept.version, kept.count, [
        (transactional_id, producer_id, epoch, list(places), list(places.values()))
        for transactional_id, producer_id, epoch, places in transactions
    ]


cdef str _text(const unsigned char* data, int32_t length):
    return (<const char*>data)[:length].decode("utf-8", "replace")


cdef int _note_errors(ParkedRequest* parked, list errors) except -1:
    cdef Verification* kept = <Verification*>parked.kept
    cdef int32_t at = 0
    cdef int16_t error
    cdef int16_t cause
    for error, cause in errors[:kept.count]:
        kept.guards.batches[at].error = error
        kept.guards.batches[at].cause = cause
        at += 1
    return 0
