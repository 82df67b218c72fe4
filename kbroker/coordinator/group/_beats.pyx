# cython: language_level=3
"""The heartbeats of consumer groups (KIP-848) that change nothing, which C answers.

    Python has answered a heartbeat that changed nothing   -> HotBeats.show: a Beat of the member
    the same member sends the next one, with nothing new   -> beat_renew_locked: its session begins
    anything of the group changes                          -> the group's generation, before others
                                                              can see the change: no Beat holds

A Beat holds under the generation that its group had when it was published, for the images of the
cluster that had been published by then, and until a pattern of the group is to be looked for. A
member whose Beat does not hold keeps it for the time of its last heartbeat, which Python's session
timer asks for. It costs 48 bytes and its ids. Python decides, this repeats.

The shard's lock is held. -1 or NULL: no memory, and what there was stays.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from kbroker.coordinator.group._structs cimport Beat, Beats, Group, GroupShard
from kbroker.coordinator.group._table cimport table_put, table_remove, table_room
from kbroker.coordinator.runtime._batches cimport Text
from kbroker.core._keyed_hash cimport kb_keyed_hash, kb_keyed_number, kb_random_key
from kbroker.core._live_objects cimport LIVE_MEMBERS, live_add
from kbroker.core._name_hash cimport name_hash
from kbroker.core._require cimport require_count

cdef enum:
    FOR_PYTHON = -1

cdef uint64_t _key = kb_random_key()


cdef uint64_t beat_peer(
    const uint8_t* client_id, int64_t length, const uint8_t* address, int is_ipv6,
) noexcept nogil:
    cdef uint64_t halves[2]
    cdef uint64_t found
    memcpy(halves, address, sizeof(halves))
    # A client without an id is as one with an empty one.
    found = kb_keyed_hash(
        _key, client_id if length > 0 else address, <size_t>length if length > 0 else 0)
    found = kb_keyed_number(_key, found, halves[0])
    found = kb_keyed_number(_key, found, halves[1])
    return kb_keyed_number(_key, found, 1 if is_ipv6 else 0)


cdef inline uint32_t _hash_of(void* item) noexcept nogil:
    return (<Beat*>item).hash


cdef inline int64_t _bytes_of(const Beat* beat) noexcept nogil:
    return <int64_t>sizeof(Beat) + beat.id_length + (
        beat.instance_length if beat.instance_length > 0 else 0)


cdef Beat* beat_find_locked(Group* group, const uint8_t* id, int32_t length) noexcept nogil:
    cdef Beats* beats = group.beats
    cdef uint32_t wanted, place
    cdef Beat* beat
    if beats == NULL or beats.members == NULL:
        return NULL
    wanted = name_hash(id, length)
    place = wanted & beats.mask
    while True:
        beat = beats.members[place]
        if beat == NULL:
            return NULL
        if (
            beat.hash == wanted and beat.id_length == length
            and memcmp(beat.id, id, <size_t>length) == 0
        ):
            return beat
        place = (place + 1) & beats.mask


cdef inline int _has_instance(const Beat* beat, const Text* instance) noexcept nogil:
    return beat.instance_length == instance.length and (
        instance.length <= 0
        or memcmp(beat.id + beat.id_length, instance.at, <size_t>instance.length) == 0)


cdef Beat* _new(const Text* id, const Text* instance) noexcept nogil:
    cdef int32_t rest = instance.length if instance.length > 0 else 0
    cdef Beat* beat = <Beat*>calloc(1, sizeof(Beat) + <size_t>id.length + <size_t>rest)
    if beat == NULL:
        return NULL
    beat.id = <uint8_t*>beat + sizeof(Beat)
    beat.id_length = id.length
    beat.instance_length = instance.length
    beat.hash = name_hash(id.at, id.length)
    memcpy(beat.id, id.at, <size_t>id.length)
    if rest > 0:
        memcpy(beat.id + id.length, instance.at, <size_t>rest)
    live_add(LIVE_MEMBERS, 1)
    return beat


cdef void _free(Beat* beat) noexcept nogil:
    live_add(LIVE_MEMBERS, -1)
    free(beat)


cdef void _drop_locked(GroupShard* shard, Group* group, Beat* beat) noexcept nogil:
    table_remove(<void**>group.beats.members, group.beats.mask, beat, _hash_of)
    group.beats.count -= 1
    shard.bytes = require_count(
        shard.bytes - _bytes_of(beat), "shard: the bytes of its beats are counted")
    _free(beat)


cdef Beat* beat_take_locked(
    GroupShard* shard, Group* group, const Text* id, const Text* instance,
) noexcept nogil:
    cdef Beat* known = beat_find_locked(group, id.at, id.length)
    cdef Beat* beat
    if known != NULL and _has_instance(known, instance):
        return known
    if group.beats == NULL:
        group.beats = <Beats*>calloc(1, sizeof(Beats))
        if group.beats == NULL:
            return NULL
        shard.bytes += sizeof(Beats)
    if table_room(
        <void***>&group.beats.members, &group.beats.mask, group.beats.count, _hash_of,
    ) != 0:
        return NULL
    beat = _new(id, instance)
    if beat == NULL:
        return NULL
    if known != NULL:
        beat.heard_ms = known.heard_ms
        _drop_locked(shard, group, known)
    table_put(<void**>group.beats.members, group.beats.mask, beat, beat.hash)
    group.beats.count += 1
    shard.bytes += _bytes_of(beat)
    return beat


cdef void beat_forget_locked(GroupShard* shard, Group* group, const Text* id) noexcept nogil:
    cdef Beat* beat = beat_find_locked(group, id.at, id.length)
    if beat != NULL:
        _drop_locked(shard, group, beat)
        if group.beats.count == 0:
            beats_clear_locked(shard, group)


cdef void beats_clear_locked(GroupShard* shard, Group* group) noexcept nogil:
    shard.bytes = require_count(
        shard.bytes - beats_bytes(group), "shard: the bytes of a group's beats are counted")
    beats_free(group)


cdef void beats_free(Group* group) noexcept nogil:
    cdef Beats* beats = group.beats
    cdef int64_t place
    if beats == NULL:
        return
    if beats.members != NULL:
        for place in range(<int64_t>beats.mask + 1):
            if beats.members[place] != NULL:
                _free(beats.members[place])
        free(beats.members)
    free(beats)
    group.beats = NULL


cdef int64_t beats_bytes(Group* group) noexcept nogil:
    cdef Beats* beats = group.beats
    cdef int64_t place
    cdef int64_t total = sizeof(Beats)
    if beats == NULL:
        return 0
    if beats.members != NULL:
        for place in range(<int64_t>beats.mask + 1):
            if beats.members[place] != NULL:
                total += _bytes_of(beats.members[place])
    return total


cdef int32_t beat_renew_locked(
    Group* group, const AskedBeat* asked, int64_t images, int64_t now_ms,
) noexcept nogil:
    cdef Beats* beats
    cdef Beat* beat
    if group == NULL or not group.published or group.beats == NULL:
        return FOR_PYTHON
    beats = group.beats
    if beats.images != images or now_ms >= beats.until_ms:
        return FOR_PYTHON
    beat = beat_find_locked(group, asked.member.at, asked.member.length)
    if (
        beat == NULL or beat.generation != group.generation or beat.epoch != asked.epoch
        or beat.peer != asked.peer
        or (asked.instance.length >= 0 and not _has_instance(beat, &asked.instance))
    ):
        return FOR_PYTHON
    beat.heard_ms = now_ms
    return beats.interval_ms
