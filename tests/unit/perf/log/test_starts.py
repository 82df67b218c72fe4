"""What is removed before a start, what is read into the cache, and when a broker is ready."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest

from perf.brokers.base import Broker, BrokerError
from perf.client import Client, ClientError
from perf.log import starts
from perf.process import reads
from perf.requests import Topic

TOPICS = [Topic("a", bytes(16), 2), Topic("b", bytes(16), 1)]


def test_a_start_is_spared_nothing_and_loses_nothing_else(tmp_path: Path) -> None:
    kept = ["meta.properties", "replication-offset-checkpoint", "a-0/00000000000000000000.log"]
    for name in [*starts.SPARING, *kept]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    assert starts.spare_nothing(tmp_path) == list(starts.SPARING)
    assert starts.spare_nothing(tmp_path) == []
    assert all((tmp_path / name).exists() for name in kept)


def test_bytes_of_logs_and_of_all_files(tmp_path: Path) -> None:
    for name, size in (("a-0/0.log", 5), ("a-1/0.log", 7), ("a-1/0.index", 3), ("ab-0/0.log", 11)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))
    assert starts.log_bytes(tmp_path, TOPICS) == 12
    assert starts.read_into_cache(tmp_path) == 26


def test_bytes_that_a_process_has_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    before = reads(os.getpid())
    path.read_bytes()
    assert reads(os.getpid()).asked - before.asked >= 1 << 20


class Answering(Broker):
    """Gives these answers to ListOffsets, one after the other; raises what is an error."""

    def __init__(self, directory: Path, *answers: list[int] | Exception) -> None:
        super().__init__(directory)
        self.given = list(answers)
        self.asked: list[str] = []
        self.connections = 0

    def client(self) -> Client:
        self.connections += 1
        return cast(Client, self)

    def close(self) -> None:
        pass

    def check_alive(self) -> None:
        pass

    def offsets(self, topic: Topic) -> list[int]:
        self.asked.append(topic.name)
        answer = self.given.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_ready_is_when_every_partition_has_answered_with_its_end(tmp_path: Path) -> None:
    broker = Answering(
        tmp_path, ConnectionRefusedError(), ClientError("a", 5), [1, 0], [1, 1], [0], [1]
    )
    starts.until_answered(broker, TOPICS, 1)
    assert broker.asked == ["a", "a", "a", "a", "b", "b"]
    assert broker.connections == 2
    assert not broker.given


def test_a_broker_with_lost_records_is_never_ready(tmp_path: Path) -> None:
    broker = Answering(tmp_path, [1, 0])
    with pytest.raises(BrokerError, match="a ends at 0 to 1, not 1"):
        starts.until_answered(broker, TOPICS, 1, wait_s=0)


class Stopping(Broker):
    """Is gone when it is asked to."""

    def __init__(self, directory: Path, marks: bool) -> None:
        super().__init__(directory)
        self.marks, self.there = marks, True

    @property
    def runs(self) -> bool:
        return self.there

    def terminate(self) -> None:
        self.there = False
        data = starts.data_of(self)
        data.mkdir()
        if self.marks:
            (data / starts.CLEAN_MARK).touch()


def test_a_stop_without_its_mark_is_none(tmp_path: Path) -> None:
    for name, marks in (("marks", True), ("does-not", False)):
        (tmp_path / name).mkdir()
        broker: Any = Stopping(tmp_path / name, marks)
        if marks:
            starts.stop_cleanly(broker)
            continue
        with pytest.raises(BrokerError, match="did not stop cleanly"):
            starts.stop_cleanly(broker)
