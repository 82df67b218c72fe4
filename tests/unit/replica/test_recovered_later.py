"""The replica manager on logs that a crash left, of which some are still to be read."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kbroker.log import manager as log_manager
from kbroker.log.engine.partition_log import PartitionLog
from kbroker.log.opening.loader import open_partition_log
from kbroker.log.opening.recovery import THREAD_NAME, Recovery
from kbroker.metadata.image import ImageDelta
from kbroker.types import TopicPartition
from tests.support.record_batches import build_batch
from tests.unit.replica.test_manager import Held

DEADLINE_S = 60.0
UNREAD = [TopicPartition("a", 1), TopicPartition("a", 2)]  # one after the other


class Gate:
    """The first of them waits for it."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def pass_through(self, path: Path, topic: str, index: int, *rest: Any, **how: Any) -> Any:
        if (topic, index) == UNREAD[0] and threading.current_thread().name == THREAD_NAME:
            self.reached.set()
            assert self.open.wait(DEADLINE_S)
        log: PartitionLog = open_partition_log(path, topic, index, *rest, **how)
        return log


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate()
    monkeypatch.setattr(log_manager, "open_partition_log", made.pass_through)
    yield made
    made.open.set()


@pytest.fixture
def held(tmp_path: Path, gate: Gate) -> Iterator[Held]:
    made = Held(tmp_path)
    yield made
    gate.open.set()
    made.logs.stop()


def test_partitions_are_offline_until_their_logs_are_read(
    held: Held, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    topic = held.create("a", 3)
    for index in range(3):
        held.log("a", index).append(build_batch())
    held.restart(as_found=True, recover=Recovery.begin)
    assert gate.reached.wait(DEADLINE_S)
    stored = ImageDelta(created=(topic,), from_store=True)
    assert held.replicas.apply(held.image, stored) == UNREAD
    assert held.log("a", 0).append(build_batch()).base_offset == 1
    assert [held.replicas.partition(*name) for name in UNREAD] == [None, None]
    (grown,) = held.grow((topic, 4))  # what is made meanwhile
    assert held.log("a", 3).append(build_batch()).base_offset == 0
    assert [held.replicas.partition(*name) for name in UNREAD] == [None, None]
    held.replicas.apply(held.image, ImageDelta(reconfigured=(grown,)))

    gate.open.set()
    for thread in held.logs.recoveries.threads:
        thread.join(DEADLINE_S)
    assert held.logs.recoveries.take_ready() == UNREAD
    assert held.replicas.partition(*UNREAD[0]) is None  # no image has said so yet
    first = held.log("a", 0)
    assert held.replicas.apply(held.image, ImageDelta(changed=(grown,), from_store=True)) == []
    assert held.log("a", 0) is first
    for name in UNREAD:
        assert held.log(*name).append(build_batch()).base_offset == 1
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_topic_that_is_deleted_before_its_logs_are_read(held: Held, gate: Gate) -> None:
    topic = held.create("a", 3)
    held.restart(as_found=True, recover=Recovery.begin)
    assert gate.reached.wait(DEADLINE_S)
    held.replicas.apply(held.image, ImageDelta(created=(topic,), from_store=True))
    clock = held.clock
    waited = partial(clock.wait_for_sleepers, 1, DEADLINE_S)
    threading.Thread(target=lambda: waited() and gate.open.set()).start()
    held.delete(topic)  # waits for the one that is being read, and not for later ones
    assert held.replicas.replicas() == {}
    assert all(path.name.endswith("-delete") for path in held.path.glob("a-*"))
    again = held.create("a", 3)
    assert again.topic_id != topic.topic_id
    assert all(held.log("a", index).log_end_offset == 0 for index in range(3))


def test_a_log_that_is_not_named_is_not_tried_again(
    held: Held, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that cannot be read says so once, not with each of its topic's that is read."""
    topic = held.create("a", 4)
    tried: list[int] = []

    def open_it(path: Path, name: str, index: int, *rest: Any, **how: Any) -> Any:
        if index == 3:
            tried.append(index)
            raise OSError(errno.EIO, "Input/output error")
        return gate.pass_through(path, name, index, *rest, **how)

    monkeypatch.setattr(log_manager, "open_partition_log", open_it)
    held.restart(as_found=True, recover=Recovery.begin)
    assert gate.reached.wait(DEADLINE_S)
    broken = TopicPartition("a", 3)
    stored = ImageDelta(created=(topic,), from_store=True)
    assert held.replicas.apply(held.image, stored) == [*UNREAD, broken]
    gate.open.set()
    for thread in held.logs.recoveries.threads:
        thread.join(DEADLINE_S)
    assert {*held.logs.recoveries.take_ready()} >= {*UNREAD}
    tried.clear()
    for name in UNREAD:
        ready = ImageDelta(changed=(topic,), from_store=True, only=frozenset([name]))
        assert broken in held.replicas.apply(held.image, ready)
        assert held.replicas.partition(*name) is not None
    assert tried == []
    assert held.replicas.apply(held.image, stored) == [broken]  # the store is read again
    held.replicas.apply(held.image, stored)
    assert tried
