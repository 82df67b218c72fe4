# cython: language_level=3
"""A produce request that Python has looked into: its batches are listed, checked and appended.

A batch that C cannot unpack, or that is stored in another codec than it came in, goes to Python
(`handlers/produce.py`) and comes back with the parts that C needs: an uncompressed twin, whose
records are walked in place of the original's, and the bytes to write. The request is planned again
each time, since its topic and settings may have changed. Its batches are numbered in their order.
"""

from cpython.bytearray cimport PyByteArray_AsString
from libc.stdint cimport int16_t, uint8_t, uint32_t, uint64_t

from kbroker.core._error_codes cimport MESSAGE_TOO_LARGE
from kbroker.core._sync cimport kb_wall_ms
from kbroker.log.engine._records cimport AT_CRC, AT_MAX_TIMESTAMP, batch_crc
from kbroker.log.engine._types cimport VALIDATED, Batch
from kbroker.log.engine._validate cimport log_validate
from kbroker.net._types cimport ACTION_CLOSE
from kbroker.protocol._cursor cimport get_i64, kb_put_u32, kb_put_u64
from kbroker.replica._partition cimport partition_offsets
from kbroker.replica._snapshot cimport Snapshot
from kbroker.engine.worker._answers cimport worker_answer, worker_hand_over
from kbroker.engine.worker._context cimport REASON_NONE, HotWorker
from kbroker.engine.apis._produce cimport produce_finish, produce_validate
from kbroker.engine.apis._produce_plan cimport PlanWalk, ProducePartition, ProducePlan, plan_next
from kbroker.engine.apis._produce_verify cimport produce_let_guards_go


cdef list produce_unchecked(ProducePlan* plan):
    cdef ProducePartition* place
    batches = []
    for ordinal, address in enumerate(_places(plan)):
        place = <ProducePartition*><size_t>address
        if place.batch.error == 0:
            batches.append((
                ordinal,
                <size_t>place.batch.unpacked_left,
                place.batch.unpacked_left[0],
                (<char*>place.partition.topic_id)[:16],
                place.batch.data - plan.request.data,
                place.batch.length_bytes,
            ))
    return batches


cdef list produce_check(ProducePlan* plan, dict twins, dict stored, dict errors):
    cdef ProducePartition* place
    unknown = []
    for ordinal, address in enumerate(_places(plan)):
        place = <ProducePartition*><size_t>address
        if place.batch.error != 0:
            continue
        place.batch.repacked = ordinal in stored
        if ordinal in errors:
            _refuse_checked(place, errors[ordinal])
        elif ordinal in twins:
            _check_twin(place, twins[ordinal])
        elif not _check(place):
            unknown.append(ordinal)
        if place.batch.repacked and place.batch.error == 0:
            _replace(&place.batch, stored[ordinal])
            _put_max_timestamp(&place.batch)
    return unknown


cdef list _places(ProducePlan* plan):
    # The addresses of a plan's partitions, in the order of the frames.
    cdef PlanWalk walk = PlanWalk(plan.frames, 0, 0)
    cdef ProducePartition* place = plan_next(&walk)
    addresses = []
    while place != NULL:
        addresses.append(<size_t>place)
        place = plan_next(&walk)
    return addresses


cdef int _replace(Batch* batch, bytearray content) except -1:
    # Other bytes for a batch: the caller's, who keeps them until the request is answered.
    batch.data = <uint8_t*>PyByteArray_AsString(content)
    batch.length_bytes = <uint32_t>len(content)
    return 0


cdef void _put_max_timestamp(Batch* batch) noexcept nogil:
    # What the walk found, which need not be what the client says.
    if get_i64(batch.data + AT_MAX_TIMESTAMP) != batch.max_timestamp_ms:
        kb_put_u64(batch.data + AT_MAX_TIMESTAMP, <uint64_t>batch.max_timestamp_ms)
        kb_put_u32(batch.data + AT_CRC, batch_crc(batch.data, batch.length_bytes))


cdef int _check(ProducePartition* place) except -1:
    # 1: C has walked it, and it need not be walked again; 0: C cannot.
    cdef int verdict
    with nogil:
        verdict = log_validate(place.partition.log, &place.batch, kb_wall_ms())
    place.batch.prechecked = verdict == VALIDATED
    if place.batch.prechecked and place.batch.error == 0:
        _put_max_timestamp(&place.batch)
    return place.batch.prechecked


cdef int _check_twin(ProducePartition* place, bytearray content) except -1:
    # The verdict on the uncompressed twin's records is the verdict on the original's.
    cdef Batch twin = place.batch
    twin.prechecked = 1           # it is here already: not to be sent to Python once more
    twin.sent_bytes = place.batch.length_bytes  # unpacked it may be larger than a batch
    _replace(&twin, content)
    with nogil:
        log_validate(place.partition.log, &twin, kb_wall_ms())
    place.batch.error = twin.error
    place.batch.error_record = twin.error_record
    place.batch.error_message = twin.error_message
    place.batch.bad_records = twin.bad_records
    place.batch.bad_record_count = twin.bad_record_count
    place.batch.log_start_offset = twin.log_start_offset
    place.batch.prechecked = 1
    if twin.error == 0:
        place.batch.max_timestamp_ms = twin.max_timestamp_ms
        _put_max_timestamp(&place.batch)
    return 0


cdef int _refuse_checked(ProducePartition* place, int16_t error) except -1:
    # Its records do not unpack, unless header or CRC say something more exact.
    cdef Batch* batch = &place.batch
    batch.prechecked = 1
    with nogil:
        log_validate(place.partition.log, batch, kb_wall_ms())
        if batch.error == 0:
            batch.error = error
            if error != MESSAGE_TOO_LARGE:
                partition_offsets(place.partition, &batch.log_start_offset, NULL, NULL, NULL)
    return 0


cdef void produce_finish_checked(
    HotWorker* worker, Snapshot* snapshot, ProducePlan* plan
) noexcept nogil:
    plan.reason = REASON_NONE
    produce_validate(worker, plan)
    if plan.reason != REASON_NONE:
        # A topic came or changed since Python looked, and its batch has not been checked. Nothing
        # is written; the client sends it again.
        if plan.request.guards != NULL:
            produce_let_guards_go(plan)
        plan.request.action = ACTION_CLOSE
        worker_answer(worker, plan.request)
        worker_hand_over(worker)
        return
    produce_finish(worker, snapshot, plan)
