"""What is to be on the disk by `flush.messages` counts as soon as it is there, and not before.

A follower's fetch claims what is synced, and a leader's high watermark passes only what is synced
at the leader, too: what a power cut takes from both was never acknowledged.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from kbroker.config import BrokerConfig
from kbroker.errors import ErrorCode
from kbroker.log.manager import LogManager
from kbroker.log_lines import LogLines
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.image import ClusterImage, ImageDelta
from kbroker.peer.replica_fetch import Fetched
from kbroker.replica._replica import Replica
from kbroker.replica._topic_table import TopicTable
from kbroker.replica.fetcher_partition import FollowedPartition, Outcome, logger
from kbroker.replica.held_replicas import HeldReplicas
from kbroker.replica.leadership import set_leadership
from kbroker.replica.manager import ReplicaManager
from kbroker.testing.file_faults import Fault, FileFaults
from kbroker.types import TopicPartition
from tests.support.led_log import LedLog, open_led_log
from tests.support.record_batches import build_batch

NODE, OTHER = 1, 2
TOPIC = UUID(int=1)
NAME = TopicPartition("words", 0)
# One that loses no write: the log stays, and the next flush may work.
PASSES = Fault(("sync",), error=errno.EAGAIN)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LedLog]:
    opened = open_led_log(tmp_path / "words-0", *NAME, TOPIC, {"flush_messages": 1})
    yield opened
    opened.log.close(clean=opened.online)


@pytest.fixture
def followed(log: LedLog) -> FollowedPartition:
    """Led by another broker, in epoch 0."""
    log.set_leadership(OTHER, False, 0, 2)
    return following(log, 0)


def following(log: Replica, leader_epoch: int) -> FollowedPartition:
    return FollowedPartition(NAME, TOPIC, leader_epoch, log, LogLines(logger), lambda _: None)


def batches(*offsets: int, epochs: tuple[int, int] = (0, 0)) -> bytearray:
    pairs = zip(offsets, epochs, strict=True)
    return bytearray().join(build_batch(base_offset=at, leader_epoch=of) for at, of in pairs)


def claimed(followed: FollowedPartition) -> int:
    """Up to where its next fetch says that it has everything; all of that is on the disk."""
    assert followed.bring_to_disk() is None
    asked = followed.asked()
    assert asked.fetch_offset == followed.replica.log.recovery_point
    return asked.fetch_offset


def take(followed: FollowedPartition, records: bytearray) -> Outcome:
    asked = followed.asked()
    fetched = Fetched(TOPIC.int, 0, ErrorCode.NONE, 0, 0, None, memoryview(records))
    return followed.apply(asked, fetched, 0)


def test_a_follower_claims_the_records_that_came(followed: FollowedPartition) -> None:
    assert take(followed, batches(0, 1)) is Outcome.APPENDED
    assert claimed(followed) == 2


def test_a_follower_claims_records_before_a_fault(followed: FollowedPartition) -> None:
    second = Fault(("write",), ".log", nth=2, error=errno.ENOSPC)
    with FileFaults(second):
        assert take(followed, batches(0, 1, epochs=(0, 1))) is Outcome.FAULT
    assert claimed(followed) == 1


def test_a_follower_claims_the_records_that_a_cut_has_left(followed: FollowedPartition) -> None:
    take(followed, batches(0, 1))
    take(followed, batches(2, 3))
    followed.replica.truncate_to(3)
    assert claimed(followed) == 3


def test_a_follower_that_cannot_sync_asks_nothing(followed: FollowedPartition) -> None:
    with FileFaults(Fault(("sync",), times=2, error=errno.EAGAIN)):
        assert take(followed, batches(0, 1)) is Outcome.FAULT
        assert followed.bring_to_disk() is Outcome.FAULT
    assert claimed(followed) == 2


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_follower_whose_disk_lost_a_write_asks_no_more(
    followed: FollowedPartition, error: int
) -> None:
    with FileFaults(Fault(("sync",), error=error)):
        assert take(followed, batches(0, 1)) is Outcome.OFFLINE
    assert not followed.replica.online


def test_a_leader_counts_records_on_its_own_disk(log: LedLog) -> None:
    log.set_leadership(NODE, True, 0, 2, {OTHER: True})
    with FileFaults(PASSES), pytest.raises(OSError):
        log.append(build_batch())
    log.note_fetch(OTHER, 1, 1)  # the follower has it, synced
    assert (log.high_watermark, log.recovery_point) == (0, 0)
    log.flush_if_due()
    assert log.high_watermark == log.recovery_point == 1


@pytest.mark.parametrize("leads", [True, False])
def test_records_of_a_killed_broker_are_synced_before_they_count(
    log: LedLog, tmp_path: Path, leads: bool
) -> None:
    log.set_leadership(NODE, True, 0, 1)
    with FileFaults(PASSES), pytest.raises(OSError):
        log.append(build_batch())
    copy = tmp_path / "after" / str(NAME)
    shutil.copytree(tmp_path / str(NAME), copy)
    again = open_led_log(copy, *NAME, TOPIC, {"flush_messages": 1})
    assert (again.log_end_offset, again.recovery_point) == (1, 0)
    if leads:
        again.set_leadership(NODE, True, 1, 1)
        assert again.high_watermark == again.recovery_point == 1
    else:
        again.set_leadership(OTHER, False, 1, 2)
        assert claimed(following(again, 1)) == 1
    again.close()


def test_a_new_leader_has_its_records_on_the_disk(followed: FollowedPartition) -> None:
    """Nothing would flush it, and the high watermark stay, until something is appended."""
    replica = followed.replica
    with FileFaults(PASSES):
        take(followed, batches(0, 1))
    assert replica.log.recovery_point == 0
    followed.end()
    replica.set_leadership(NODE, True, 1, 1)
    assert replica.high_watermark == replica.log.recovery_point == 2


def test_a_leader_that_may_not_wait_for_the_disk_has_them_there_soon(tmp_path: Path) -> None:
    """Where nothing is appended, the high watermark waits for the background alone."""
    woken: list[Replica] = []
    held = HeldReplicas(woken.append)
    logs = LogManager([tmp_path], listener=held)
    logs.start()
    lead = partial(set_leadership, NODE, wait_ns=0)
    replicas = ReplicaManager(BrokerConfig.load(), NODE, logs, TopicTable(), held, lead)
    topic = new_topic_image("words", TOPIC, [(OTHER, NODE)], {"flush.messages": "1"})
    replicas.apply(ClusterImage().with_topics([topic]), ImageDelta(created=(topic,)))
    replica = replicas.partition(*NAME)
    assert replica is not None
    with FileFaults(PASSES):
        take(following(replica, 0), batches(0, 1))
    (partition,) = topic.partitions
    topic = replace(
        topic, partitions=(replace(partition, leader=NODE, leader_epoch=1, isr=(NODE,)),)
    )
    replicas.apply(ClusterImage().with_topics([topic]), ImageDelta(changed=(topic,)))
    assert replica.leader_epoch == 1 and replica.high_watermark == 0
    assert [*replicas.flush_due()] == []  # an append may be about to flush it
    with FileFaults(PASSES):
        assert len([*replicas.flush_due()]) == 1
    assert replica.high_watermark == 0 and not woken
    assert len([*replicas.flush_due()]) == 1
    assert replica.high_watermark == replica.log.recovery_point == 2
    assert woken == [replica] and [*replicas.flush_due()] == []
    logs.stop()
