"""DescribeProducers (61): the producers that a partition remembers.

Fields with a tag are kbroker's own: a record as the leader of a share-partition has it, for those
who ask for it.
"""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    OWN_TAGS_SINCE,
    Message,
    Record,
    array,
    int8,
    int16,
    int32,
    int64,
    string,
)
from kbroker.types import ApiKey


class TopicRequest(Record):
    name: str = string()
    partition_indexes: list[int] = array(int32)


class Request(Message, api=ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0)):
    topics: list[TopicRequest] = array(TopicRequest)
    # Of this offset of each partition, as this share group reads it.
    share_group_id: str = string(tag=OWN_TAGS_SINCE, default="")
    share_offset: int = int64(tag=OWN_TAGS_SINCE + 1, default=0)


class ProducerState(Record):
    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


class ShareRecord(Record):
    """See `replica/share/description.py`; times are those that are left, -1: none."""

    is_serving: int = int8()  # 0: its state is being read
    start_offset: int = int64()
    end_offset: int = int64()
    state: int = int8()
    next_state: int = int8()
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_count: int = int16()
    deliveries_max: int = int16()
    window_max: int = int32()
    member_id: str = string()
    connection: str = string()
    lock_left_ms: int = int64()
    # Of ARCHIVING: why it was given up, and where its copy goes, in words.
    given_up: str = string(tag=OWN_TAGS_SINCE, default="")
    # Offsets of the window that wait for their time, and those that do not count in it.
    delayed: int = int32(tag=OWN_TAGS_SINCE + 1, default=0)
    uncounted: int = int64(tag=OWN_TAGS_SINCE + 2, default=0)


class PartitionResponse(Record):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null=0, default=None)
    active_producers: list[ProducerState] = array(ProducerState, default=())
    share_records: list[ShareRecord] = array(ShareRecord, tag=OWN_TAGS_SINCE, default=())


class TopicResponse(Record):
    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse, each="partition_indexes")


class Response(Message, api=ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0)):
    throttle_time_ms: int = int32(default=0)
    topics: list[TopicResponse] = array(TopicResponse, each="topics")
