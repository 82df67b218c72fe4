"""AlterReplicaLogDirs (34): replicas move to another data directory of their broker."""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    int16,
    int32,
    string,
)
from kbroker.types import ApiKey


class AlterReplicaLogDirTopic(Record):
    name: str = string()
    partitions: list[int] = array(int32)


class AlterReplicaLogDir(Record):
    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


class Request(Message, api=ApiKey.ALTER_REPLICA_LOG_DIRS, versions=(1, 2)):
    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


class AlterReplicaLogDirPartitionResult(Record):
    partition_index: int = int32()
    error_code: int = int16()


class AlterReplicaLogDirTopicResult(Record):
    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


class Response(Message, api=ApiKey.ALTER_REPLICA_LOG_DIRS, versions=(1, 2)):
    throttle_time_ms: int = int32(default=0)
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
