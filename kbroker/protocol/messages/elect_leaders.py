"""ElectLeaders (43): the preferred leader, or any replica that is left."""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    int8,
    int16,
    int32,
    string,
)
from kbroker.types import ApiKey


class TopicPartitions(Record):
    topic: str = string()
    partitions: list[int] = array(int32)


class Request(Message, api=ApiKey.ELECT_LEADERS, versions=(0, 2)):
    election_type: int = int8(since=1, default=0)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, null=0)
    timeout_ms: int = int32(default=60_000)


class PartitionResult(Record):
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null=0)


class ReplicaElectionResult(Record):
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult, each="partitions")


class Response(Message, api=ApiKey.ELECT_LEADERS, versions=(0, 2)):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(since=1, default=0)
    replica_election_results: list[ReplicaElectionResult] = array(
        ReplicaElectionResult, each="topic_partitions"
    )
