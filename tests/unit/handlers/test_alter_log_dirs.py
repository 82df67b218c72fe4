"""AlterReplicaLogDirs: every version, each partition by itself."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.errors import ErrorCode
from kbroker.types import ApiKey, TopicPartition
from tests.unit.handlers.support import FakeBroker, part_of, request_of

VERSIONS = (1, 2)
ALTER = ApiKey.ALTER_REPLICA_LOG_DIRS


def asked(version: int, *dirs: tuple[str, dict[str, tuple[int, ...]]]) -> Any:
    def topics(named: dict[str, tuple[int, ...]]) -> tuple[Any, ...]:
        return tuple(
            part_of(ALTER, version, "AlterReplicaLogDirTopic", name=name, partitions=indexes)
            for name, indexes in named.items()
        )

    return request_of(
        ALTER,
        version,
        dirs=tuple(
            part_of(ALTER, version, "AlterReplicaLogDir", path=path, topics=topics(named))
            for path, named in dirs
        ),
    )


def outcome(answer: Any) -> list[tuple[str, int, int]]:
    return [
        (topic.topic_name, each.partition_index, each.error_code.value)
        for topic in answer.results
        for each in topic.partitions
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_each_partition_is_asked_for_by_itself(version: int) -> None:
    broker = FakeBroker()
    refused = {
        "/gone": ErrorCode.LOG_DIR_NOT_FOUND,
        "/failed": ErrorCode.KAFKA_STORAGE_ERROR,
    }
    broker.replicas.refused_paths = refused
    answer = broker.call(
        asked(version, ("/b", {"t": (0, 1)}), ("/gone", {"t": (2,)}), ("/failed", {"u": (0,)}))
    )
    assert outcome(answer) == [
        ("t", 0, 0), ("t", 1, 0),
        ("t", 2, ErrorCode.LOG_DIR_NOT_FOUND), ("u", 0, ErrorCode.KAFKA_STORAGE_ERROR),
    ]  # fmt: skip
    assert broker.replicas.moved == {
        TopicPartition("t", 0): "/b", TopicPartition("t", 1): "/b",
    }  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_a_replica_that_is_named_twice_goes_to_the_last_place(version: int) -> None:
    broker = FakeBroker()
    answer = broker.call(asked(version, ("/b", {"t": (0, 0)}), ("/c", {"t": (0,)})))
    assert outcome(answer) == [("t", 0, 0)]
    assert broker.replicas.moved == {TopicPartition("t", 0): "/c"}
    assert outcome(broker.call(asked(version))) == []
