"""DescribeLogDirs (35): data directories, and the size and lag of each replica in them."""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
)
from kbroker.types import ApiKey


class DescribableLogDirTopic(Record):
    topic: str = string()
    partitions: list[int] = array(int32)


class Request(Message, api=ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 5)):
    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, null=0)


class DescribeLogDirsPartition(Record):
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


class DescribeLogDirsTopic(Record):
    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Record):
    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(since=4, default=-1)
    usable_bytes: int = int64(since=4, default=-1)
    is_cordoned: bool = boolean(since=5, default=False)


class Response(Message, api=ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 5)):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(since=3, default=0)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult, default=())
