"""Which logs a broker says that others should lead: real logs, whose disk fails."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from kbroker.clock import ManualClock
from kbroker.errors import KafkaError
from kbroker.log.manager import LogManager
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.image import BrokerImage, ClusterImage
from kbroker.replica._replica import Replica
from kbroker.replica.failing_logs import PAUSE_MS, FailingLogs, Trouble
from kbroker.replica.held_replicas import HeldReplicas
from kbroker.testing.file_faults import Fault, FileFaults
from kbroker.types import TopicPartition
from tests.support.record_batches import build_batch

US, OTHER = 1, 2
NAME = TopicPartition("t", 0)
TOPIC_ID = UUID(int=7)
BATCH = build_batch()


class Disk:
    """One replica, which we lead, and what is said of it."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock()
        self.logs = LogManager(
            [path], clock=self.clock, listener=HeldReplicas(lambda replica: None)
        )
        self.logs.start()
        self.log = self.logs.open(*NAME, TOPIC_ID, {"segment_bytes": len(BATCH)})
        self.replica = Replica(self.log)
        self.replica.set_leadership(US, True, 0, 1, {}, {})
        self.failing = FailingLogs(US, self.clock)
        self.replicas: tuple[int, ...] = (US, OTHER)
        self.alive: tuple[int, ...] = (US, OTHER)

    def look(self) -> frozenset[TopicPartition]:
        return self.trouble().failing

    def trouble(self) -> Trouble:
        topic = new_topic_image(NAME.topic, TOPIC_ID, [self.replicas], {})
        image = ClusterImage().with_topics([topic])
        image = image.with_brokers([BrokerImage(node_id) for node_id in self.alive])
        return self.failing.look({NAME: self.replica}, image)

    def fail(self, work: Callable[[], object], *operations: str) -> None:
        with (
            FileFaults(Fault(operations, str(NAME), times=99, error=errno.ENOSPC)),
            pytest.raises((KafkaError, OSError)),
        ):
            work()

    def append(self) -> None:
        self.replica.append(BATCH)


def test_a_log_on_a_disk_that_is_nearly_full_refuses_and_does_not_fail(disk: Disk) -> None:
    """Its leader, and whether others could lead: that is the controller's to judge."""
    disk.log.refuse_producers(True)
    assert disk.trouble() == Trouble(frozenset(), {NAME})
    disk.alive = (US,)
    assert disk.trouble() == Trouble(frozenset(), {NAME})
    disk.alive, disk.replicas = (US, OTHER), (OTHER, US)  # the other one leads
    assert disk.trouble() == Trouble(frozenset(), {NAME})
    disk.log.refuse_producers(False)
    assert disk.trouble() == Trouble()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path)
    yield made
    made.logs.stop()


@pytest.mark.parametrize("operation", ["write", "open"])
def test_a_log_that_refuses_writes_is_named_for_a_while(disk: Disk, operation: str) -> None:
    """At an append, and at a roll."""
    disk.append()
    assert disk.look() == frozenset()
    disk.fail(disk.append, operation)
    assert disk.look() == {NAME}
    disk.clock.advance(PAUSE_MS - 1)
    assert disk.look() == {NAME}
    disk.fail(disk.append, operation)
    assert disk.look() == {NAME}
    disk.clock.advance(PAUSE_MS - 1)
    assert disk.look() == {NAME}
    disk.clock.advance(1)
    assert disk.look() == frozenset()
    disk.append()
    assert disk.look() == frozenset()


@pytest.mark.parametrize("lost", ["sync", "what cannot be undone"])
def test_a_log_that_lost_a_write_is_named_for_good(disk: Disk, lost: str) -> None:
    disk.append()
    if lost == "sync":
        disk.fail(disk.log.flush, "sync")
    else:
        disk.log.configure(segment_bytes=10_000)
        disk.fail(disk.append, "write", "truncate")
    assert disk.look() == {NAME}
    disk.clock.advance(PAUSE_MS)
    disk.replicas = disk.alive = (US,)
    assert disk.look() == {NAME}


def test_where_no_other_could_lead_a_full_disk_is_not_named(disk: Disk) -> None:
    disk.append()
    disk.fail(disk.append, "write")
    disk.alive = (US,)
    assert disk.look() == frozenset()
    disk.alive, disk.replicas = (US, OTHER), (US,)
    assert disk.look() == frozenset()
    disk.replicas = (OTHER, US)  # it follows
    assert disk.look() == {NAME}
