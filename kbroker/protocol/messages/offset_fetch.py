"""OffsetFetch (9): where a group goes on reading.

Before version 8 a request names one group, and its topics are fields of the request; from there on
it names any number. Indexes of partitions stay the bytes that came (`packed_int32`), since the
table of offsets reads them in C and writes the partitions of the answer.
"""

from __future__ import annotations

from uuid import UUID

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    boolean,
    int16,
    int32,
    int64,
    packed_int32,
    string,
    uuid,
)
from kbroker.types import ApiKey


class OffsetFetchRequestTopics(Record):
    name: str = string(until=9, default="")
    topic_id: UUID | None = uuid(since=10, default=None)
    partition_indexes: bytes = packed_int32()


class OffsetFetchRequestGroup(Record):
    group_id: str = string()
    member_id: str | None = string(since=9, null=9, default=None)
    member_epoch: int = int32(since=9, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, null=8)


class Request(Message, api=ApiKey.OFFSET_FETCH, versions=(1, 10)):
    group_id: str = string(until=7, default="")
    topics: list[OffsetFetchRequestTopics] | None = array(
        OffsetFetchRequestTopics, until=7, null=2, default=()
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8, default=())
    require_stable: bool = boolean(since=7, default=False)


class OffsetFetchResponsePartition(Record):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=5, default=-1)
    metadata: str | None = string(null=0)
    error_code: int = int16()


class OffsetFetchResponseTopics(Record):
    name: str = string(until=9, default="")
    topic_id: UUID | None = uuid(since=10, default=None)
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


class OffsetFetchResponseGroup(Record):
    group_id: str = string()
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics)
    error_code: int = int16(default=0)


class Response(Message, api=ApiKey.OFFSET_FETCH, versions=(1, 10)):
    throttle_time_ms: int = int32(since=3, default=0)
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, until=7, default=())
    error_code: int = int16(since=2, until=7, default=0)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8, default=())
