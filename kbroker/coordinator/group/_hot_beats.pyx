# cython: language_level=3
"""The heartbeats of consumer groups that C answers, as Python shows them: `HotBeats`.

Any thread may call. Every method reads its arguments with the GIL, lets go of it, and takes one
shard's lock. The hot path compares requests with them (`_beats`).
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

import socket as _socket

from kbroker.coordinator.group._beats cimport (
    beat_find_locked, beat_forget_locked, beat_peer, beat_take_locked)
from kbroker.coordinator.group._groups cimport GroupTable
from kbroker.coordinator.group._shards cimport group_find_locked, group_shard_lock
from kbroker.coordinator.group._structs cimport Beat, Group, GroupShard
from kbroker.coordinator.runtime._batches cimport Text
from kbroker.coordinator.runtime._python cimport name_bytes, text_of
from kbroker.coordinator.runtime._shards cimport shard_hangs, shard_unlock
from kbroker.coordinator.runtime._structs cimport SHARD_NOT_OWNER
from kbroker.core._atomics cimport kb_add_i64, kb_load_i64, kb_load_int
from kbroker.core._sync cimport kb_now_ns

cdef enum:
    ADDRESS_BYTES = 16
    NS_PER_MS = 1000000


cdef int _put_address(uint8_t* address, str host) except -1:
    # As channels have it, IPv4 mapped into IPv6; whether it is IPv6. OSError: it is no address.
    cdef int is_ipv6 = ":" in host
    cdef bytes packed = _socket.inet_pton(_socket.AF_INET6 if is_ipv6 else _socket.AF_INET, host)
    cdef int i
    for i in range(ADDRESS_BYTES):
        address[i] = 0xff if 10 <= i < 12 else 0
    memcpy(&address[ADDRESS_BYTES - len(packed)], <const char*>packed, <size_t>len(packed))
    return is_ipv6


cdef class HotBeats:
    """See _hot_beats.pyi."""

    cdef GroupTable table

    def __init__(self, GroupTable table not None):
        self.table = table

    @property
    def images(self):
        return kb_load_i64(&self.table.shards.images_shown)

    def image_shown(self):
        kb_add_i64(&self.table.shards.images_shown, 1)

    def show(self, str group_id not None, beat not None):
        cdef GroupShard* shard = self.table._group_shard_of(group_id)
        cdef bytes id = name_bytes(group_id)
        cdef bytes member = name_bytes(beat.member_id)
        cdef bytes instance = name_bytes(beat.instance_id or "")
        cdef bytes client = name_bytes(beat.client_id)
        cdef Text group_text = text_of(id)
        cdef Text member_text = text_of(member)
        cdef Text instance_text = text_of(instance)
        cdef Text client_text = text_of(client)
        cdef int32_t generation = beat.generation
        cdef int32_t epoch = beat.epoch
        cdef int32_t interval_ms = beat.interval_ms
        cdef int64_t images = beat.images
        cdef int64_t until_ms = beat.until_ms
        cdef uint8_t[ADDRESS_BYTES] address
        cdef uint64_t peer
        cdef int is_ipv6 = _put_address(address, beat.host)
        cdef Group* group
        cdef Beat* kept = NULL
        cdef int is_there = 0
        if beat.instance_id is None:
            instance_text.length = -1
        if shard == NULL:
            return
        with nogil:
            peer = beat_peer(client_text.at, client_text.length, address, is_ipv6)
            group_shard_lock(shard)
            group = group_find_locked(shard, group_text.at, group_text.length)
            if (
                kb_load_int(&shard.base.state) != SHARD_NOT_OWNER and group != NULL
                and group.published and group.generation == generation
            ):
                is_there = 1
                kept = beat_take_locked(shard, group, &member_text, &instance_text)
                if kept != NULL:
                    kept.generation = generation
                    kept.epoch = epoch
                    kept.peer = peer
                    group.beats.images = images
                    group.beats.until_ms = until_ms
                    group.beats.interval_ms = interval_ms
            shard_unlock(&shard.base)
        if is_there and kept == NULL:
            raise MemoryError

    def forget(self, str group_id not None, str member_id not None):
        cdef GroupShard* shard = self.table._group_shard_of(group_id)
        cdef bytes id = name_bytes(group_id)
        cdef bytes member = name_bytes(member_id)
        cdef Text group_text = text_of(id)
        cdef Text member_text = text_of(member)
        cdef Group* group
        if shard == NULL:
            return
        with nogil:
            group_shard_lock(shard)
            group = group_find_locked(shard, group_text.at, group_text.length)
            if group != NULL:
                beat_forget_locked(shard, group, &member_text)
            shard_unlock(&shard.base)

    def heard_ms(self, str group_id not None, str member_id not None):
        cdef GroupShard* shard = self.table._group_shard_of(group_id)
        cdef bytes id = name_bytes(group_id)
        cdef bytes member = name_bytes(member_id)
        cdef Text group_text = text_of(id)
        cdef Text member_text = text_of(member)
        cdef Group* group
        cdef Beat* beat = NULL
        cdef int64_t heard_ms = 0
        if shard == NULL:
            return 0
        # No heartbeat gets in, so silence means nothing; the timer goes on.
        if shard_hangs(&shard.base):
            return kb_now_ns() // NS_PER_MS + self.table._shift_ms()
        with nogil:
            group_shard_lock(shard)
            group = group_find_locked(shard, group_text.at, group_text.length)
            if group != NULL:
                beat = beat_find_locked(group, member_text.at, member_text.length)
                if beat != NULL:
                    heard_ms = beat.heard_ms
            shard_unlock(&shard.base)
        return heard_ms
