# cython: language_level=3
"""Images of transactional ids between C and Python, and their bytes for Python's writes.

Everything here holds the GIL and no lock.
"""

from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from kbroker.coordinator.txn._places cimport (
    Place, PlacesWalk, places_free, places_new, places_next, places_sort, places_walk)
from kbroker.coordinator.txn._records cimport txn_put_value, txn_value_bound
from kbroker.coordinator.txn._structs cimport Places, TxnImage
from kbroker.core._limits cimport TEXT_BYTES_MAX

from kbroker.coordinator.txn.image import NO_PARTITIONS, TransactionImage
from kbroker.coordinator.txn.states import State
from kbroker.outside_text import untellable
from kbroker.types import TopicPartition

cdef dict _STATES = {state.value: state for state in State}


cdef Places* _places_of(object partitions) except? NULL:
    cdef list names = []          # which the places point into
    cdef Place* places
    cdef Places* made = NULL
    cdef bytes name
    cdef int32_t count = <int32_t>len(partitions)
    cdef int32_t at = 0
    cdef int status
    if count == 0:
        return NULL
    places = <Place*>calloc(<size_t>count, sizeof(Place))
    if places == NULL:
        raise MemoryError
    try:
        for topic, index in partitions:
            name = topic.encode()
            if len(name) > TEXT_BYTES_MAX:
                raise untellable(len(name))
            names.append(name)
            places[at].topic = <const uint8_t*><const char*>name
            places[at].topic_length = <int32_t>len(name)
            places[at].index = index
            at += 1
        status = places_new(places, places_sort(places, at), &made)
    finally:
        free(places)
    if status != 0:
        raise MemoryError
    return made


cdef int image_take(object image, TxnImage* taken) except -1:
    memset(taken, 0, sizeof(TxnImage))
    taken.producer_id = image.producer_id
    taken.epoch = image.epoch
    taken.timeout_ms = image.timeout_ms
    taken.state = image.state
    taken.update_ms = image.update_ms
    taken.start_ms = image.start_ms
    taken.previous_producer_id = image.previous_producer_id
    taken.next_producer_id = image.next_producer_id
    taken.last_epoch = image.last_epoch
    taken.client_version = image.client_version
    taken.places = _places_of(image.partitions)
    return 0


cdef object _partitions_of(const Places* places):
    cdef PlacesWalk walk = places_walk(places)
    cdef Place place
    cdef const uint8_t* last = NULL
    cdef str topic = ""
    if places == NULL:
        return NO_PARTITIONS
    found = []
    while places_next(&walk, &place):
        if place.topic != last:
            last = place.topic
            topic = (<const char*>place.topic)[:place.topic_length].decode()
        found.append(TopicPartition(topic, place.index))
    return frozenset(found)


cdef object image_of(const TxnImage* image):
    return TransactionImage(
        image.producer_id,
        image.epoch,
        image.timeout_ms,
        _STATES[image.state],
        image.update_ms,
        image.start_ms,
        _partitions_of(image.places),
        image.previous_producer_id,
        image.next_producer_id,
        image.last_epoch,
        image.client_version,
    )


def encode_value(image not None, int version):
    cdef TxnImage taken
    cdef uint8_t* memory
    image_take(image, &taken)
    memory = <uint8_t*>calloc(1, txn_value_bound(&taken))
    try:
        if memory == NULL:
            raise MemoryError
        end = txn_put_value(memory, &taken, version)
        return (<const char*>memory)[:end - memory]
    finally:
        free(memory)
        places_free(taken.places)
