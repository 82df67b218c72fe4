"""A follower that is cut at or below the start of its leader's log begins there with nothing.

Its records below that start may be others than the leader's were: their epochs are all that two
logs compare, and the leader has deleted its own. What they say of producers would, in a later
leader, refuse a producer's next batch for ever, or take it for one that is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from kbroker.errors import ErrorCode
from kbroker.log_lines import LogLines
from kbroker.peer.replica_fetch import Asked, Fetched
from kbroker.replica.fetcher_partition import FollowedPartition, Outcome, logger
from kbroker.types import TopicPartition
from tests.support.led_log import LedLog, open_led_log
from tests.support.record_batches import build_batch

NAME = TopicPartition("words", 0)
TOPIC = UUID(int=1)
PRODUCER = 7
OWN, LEADER = 1, 2
END = 8


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LedLog]:
    """Offsets 0 to 7 are one producer's, of epoch 0; another broker leads in epoch 2."""
    opened = open_led_log(tmp_path / str(NAME), *NAME, TOPIC, {})
    opened.set_leadership(OWN, True, 0, 1)
    for sequence in range(END):
        opened.append(numbered(sequence))
    opened.set_leadership(LEADER, False, 2, 2)
    yield opened
    opened.log.close(clean=False)


def numbered(sequence: int) -> bytes:
    return build_batch(producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence)


@pytest.fixture
def followed(log: LedLog) -> FollowedPartition:
    return FollowedPartition(NAME, TOPIC, 2, log, LogLines(logger), lambda _: None)


def diverging(epoch: int, end_offset: int, leader_start: int) -> Fetched:
    bounds = end_offset, leader_start
    return Fetched(TOPIC.int, 0, ErrorCode.NONE, *bounds, (epoch, end_offset), None)


@pytest.mark.parametrize("leader_start", [5, 7])
def test_a_log_cut_there_begins_anew(
    log: LedLog, followed: FollowedPartition, leader_start: int
) -> None:
    asked = followed.asked()
    outcome = followed.apply(asked, diverging(0, 5, leader_start), 0)
    assert outcome is Outcome.CUT
    assert (log.log_start_offset, log.log_end_offset) == (leader_start, leader_start)
    assert log.high_watermark == leader_start
    assert log.epochs.entries == [] and log.encode_producers()[0] == 0
    log.set_leadership(OWN, True, 3, 1)
    assert log.append(numbered(3)).base_offset == leader_start  # neither refused nor a duplicate


def test_a_log_cut_above_it_keeps_its_producers(log: LedLog, followed: FollowedPartition) -> None:
    assert followed.apply(followed.asked(), diverging(0, 5, 4), 0) is Outcome.CUT
    assert (log.log_start_offset, log.log_end_offset) == (0, 5)
    log.set_leadership(OWN, True, 3, 1)
    assert log.append(numbered(5)).base_offset == 5


def test_a_log_that_loses_no_record_keeps_its_producers(
    log: LedLog, followed: FollowedPartition
) -> None:
    """An epoch in which it wrote nothing is all that its leader does not have."""
    log.epochs.assign(1, END)
    assert followed.apply(followed.asked(), diverging(0, END, END), 0) is Outcome.CUT
    assert (log.log_end_offset, log.epochs.entries) == (END, [(0, 0)])
    assert log.encode_producers()[0] == 1


@pytest.mark.parametrize("leader_start", [0, 5])
def test_a_log_beyond_the_end_of_an_empty_one(
    log: LedLog, followed: FollowedPartition, leader_start: int
) -> None:
    asked: Asked = followed.asked()
    assert followed.enter_range(asked, leader_start, 5) is Outcome.CUT
    assert log.log_end_offset == 5
    begins_anew = leader_start == 5
    assert log.log_start_offset == leader_start
    assert log.encode_producers()[0] == (0 if begins_anew else 1)
