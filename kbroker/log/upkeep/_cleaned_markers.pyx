# cython: language_level=3
"""Which markers of transactions stay in a log that is cleaned.

A marker says what became of the batches before it, so it stays while there is one. A cleaning reads
the log from its beginning: where it has read no batch of a producer since that producer's last
marker, the next one has nothing to say any more. Who has read the batches before they went may
still need it: as a tombstone, it gets a delete horizon first, and goes with a cleaning after that.
Its entry in the index of aborted transactions goes with it: an entry without its marker would have
a reader drop what the producer writes later. A control batch that cannot be read stays.
https://kafka.apache.org/documentation/#compaction

One thread; no GIL.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc

from kbroker.core._name_hash cimport name_hash
from kbroker.core._table cimport (
    table_find, table_free, table_places, table_put, table_remove, table_room)
from kbroker.log.engine._markers cimport marker_read, may_be_marker
from kbroker.log.engine._types cimport Marker
from kbroker.log.upkeep._batch_filter cimport (
    DELETE_HORIZON_BIT, filter_give_horizon, filter_has_room)
from kbroker.log.upkeep._batch_source cimport STEP_DONE, STEP_FAILED

cdef enum Fate:
    STAYS
    GETS_HORIZON                  # its transaction has no data any more
    GOES                          # and had none when a cleaning was here long ago


cdef inline uint32_t hash_of_id(const void* item) noexcept nogil:
    return name_hash(<const uint8_t*>item, <int32_t>sizeof(int64_t))


cdef inline int is_id(const void* item, const void* key) noexcept nogil:
    return (<const int64_t*>item)[0] == (<const int64_t*>key)[0]


cdef void markers_close(CleanedMarkers* markers) noexcept nogil:
    cdef int64_t place
    for place in range(table_places(&markers.with_data)):
        free(markers.with_data.places[place])
    table_free(&markers.with_data)
    free(markers.gone)
    markers.gone = NULL
    markers.gone_count = markers.gone_max = 0


cdef int markers_note_data(CleanedMarkers* markers, const Header* header) noexcept nogil:
    cdef int64_t* producer_id
    cdef uint32_t hash = hash_of_id(&header.producer_id)
    if table_find(&markers.with_data, hash, is_id, &header.producer_id) != NULL:
        return 0
    if table_room(&markers.with_data, hash_of_id) != 0:
        return ENOMEM
    producer_id = <int64_t*>malloc(sizeof(int64_t))
    if producer_id == NULL:
        return ENOMEM
    producer_id[0] = header.producer_id
    table_put(&markers.with_data, producer_id, hash)
    return 0


cdef int had_data(CleanedMarkers* markers, const int64_t* producer_id) noexcept nogil:
    # It is another transaction's from now on.
    cdef void* found = table_find(
        &markers.with_data, hash_of_id(producer_id), is_id, producer_id)
    if found == NULL:
        return 0
    table_remove(&markers.with_data, found, hash_of_id, "markers: a producer that goes is known")
    free(found)
    return 1


cdef int note_gone(CleanedMarkers* markers, int64_t offset) noexcept nogil:
    cdef int32_t wanted = markers.gone_max * 2 if markers.gone_max else 64
    cdef int64_t* larger
    if markers.gone_count == markers.gone_max:
        larger = <int64_t*>realloc(markers.gone, <size_t>wanted * sizeof(int64_t))
        if larger == NULL:
            return ENOMEM
        markers.gone = larger
        markers.gone_max = wanted
    markers.gone[markers.gone_count] = offset
    markers.gone_count += 1
    return 0


cdef Fate fate_of(
    CleanedMarkers* markers, const Header* header, const uint8_t* records, int64_t length,
    int64_t now_ms
) noexcept nogil:
    cdef Marker _marker
    if header.record_count == 0:
        return GOES               # it has been one
    if not may_be_marker(header) or not marker_read(header, records, length, &_marker):
        return STAYS
    if had_data(markers, &header.producer_id):
        return STAYS
    if not header.attributes & DELETE_HORIZON_BIT:
        return GETS_HORIZON
    return GOES if header.base_timestamp_ms <= now_ms else STAYS


cdef Step filter_marker(
    CleanedMarkers* markers, BatchFilter* filter, const Header* header, const uint8_t* batch,
    const uint8_t* records, int64_t length, int is_needed, Trouble* trouble
) noexcept nogil:
    cdef Fate fate = fate_of(markers, header, records, length, filter.now_ms)
    filter.out.size = 0
    filter.passed.seen = filter.passed.kept = header.record_count
    if fate == GETS_HORIZON and filter_has_room(filter, header.record_count):
        return filter_give_horizon(filter, header, batch, records, length, trouble)
    if fate != GOES or is_needed:
        return STEP_DONE
    filter.passed.kept = 0
    trouble.status = note_gone(markers, header.base_offset)
    return STEP_DONE if trouble.status == 0 else STEP_FAILED
