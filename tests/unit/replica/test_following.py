"""A leader and its followers as it knows them: the high watermark, and how far each lags."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbroker.errors import ErrorCode, KafkaError
from tests.support.led_log import LedLog, open_led_log
from tests.support.record_batches import build_batch

LEADER, ONE, TWO, ELSEWHERE = 1, 2, 3, 9
Open = Callable[..., LedLog]


@pytest.fixture
def open_leader(tmp_path: Path) -> Iterator[Open]:
    opened: list[LedLog] = []

    def open_it(
        in_sync: int = 3, followers: dict[int, bool] | None = None, **settings: int
    ) -> LedLog:
        log = open_led_log(tmp_path / "words-0", "words", 0, uuid.UUID(int=1), settings)
        log.set_leadership(
            LEADER, True, 0, in_sync, {ONE: True, TWO: True} if followers is None else followers
        )
        opened.append(log)
        return log

    yield open_it
    for log in opened:
        log.close()


def fill(log: LedLog, count: int) -> None:
    for _ in range(count):
        log.append(build_batch())


def test_the_high_watermark_is_where_the_slowest_in_sync_is(open_leader: Open) -> None:
    log = open_leader()
    fill(log, 10)
    marks = []
    for broker, offset in ((ONE, 0), (TWO, 0), (ONE, 7), (TWO, 4), (TWO, 10), (ONE, 10)):
        log.note_fetch(broker, offset, 1)
        marks.append(log.high_watermark)
    assert marks == [0, 0, 0, 4, 7, 10]


def test_a_fetch_says_where_the_follower_was_before_it(open_leader: Open) -> None:
    """Two fetches: the first brings the record, the second tells that it is there."""
    log = open_leader(2, {ONE: True})
    fill(log, 1)
    log.note_fetch(ONE, 0, 1)
    assert log.high_watermark == 0
    log.note_fetch(ONE, 1, 2)
    assert log.high_watermark == 1


def test_a_follower_out_of_sync_is_not_waited_for(open_leader: Open) -> None:
    log = open_leader(2, {ONE: True, TWO: False})
    fill(log, 5)
    log.note_fetch(ONE, 5, 1)
    assert log.high_watermark == 5


def test_a_follower_that_is_to_join_is_waited_for_before_the_controller_has_said_so(
    open_leader: Open,
) -> None:
    log = open_leader(2, {ONE: True, TWO: False})
    fill(log, 5)
    log.set_leadership(LEADER, True, 0, 2, {ONE: True, TWO: True})
    log.note_fetch(ONE, 5, 1)
    assert log.high_watermark == 0
    log.note_fetch(TWO, 3, 1)
    assert log.high_watermark == 3


def test_it_stays_while_too_few_are_in_sync_and_moves_when_they_are_back(
    open_leader: Open,
) -> None:
    log = open_leader(1, {ONE: False, TWO: False}, min_insync_replicas=2)
    fill(log, 3)
    log.note_fetch(ONE, 3, 1)
    assert log.high_watermark == 0
    log.set_leadership(LEADER, True, 0, 2, {ONE: True, TWO: False})
    assert log.high_watermark == 3


def test_positions_stay_with_a_change_of_the_set_and_go_with_the_epoch(open_leader: Open) -> None:
    log = open_leader()
    fill(log, 4)
    log.note_fetch(ONE, 4, 1)
    log.note_fetch(TWO, 2, 1)
    log.set_leadership(LEADER, True, 0, 2, {ONE: True, TWO: False})
    assert log.high_watermark == 4
    log.set_leadership(LEADER, True, 1, 3, {ONE: True, TWO: True})
    assert [each[:3] for each in log.followers()] == [(ONE, True, -1), (TWO, True, -1)]
    fill(log, 1)
    log.note_fetch(ONE, 5, 2)
    assert log.high_watermark == 4  # where TWO is is unknown
    log.note_fetch(TWO, 5, 2)
    assert log.high_watermark == 5


def test_it_does_not_go_back_with_a_follower_that_does(open_leader: Open) -> None:
    log = open_leader(2, {ONE: True})
    fill(log, 4)
    log.note_fetch(ONE, 4, 1)
    log.note_fetch(ONE, 1, 2)
    assert log.high_watermark == 4


def test_when_a_follower_was_caught_up(open_leader: Open) -> None:
    log = open_leader(2, {ONE: True})

    def caught_up() -> int:
        return log.followers()[0][3]

    fill(log, 2)
    log.note_fetch(ONE, 0, 10)
    assert caught_up() == 0
    fill(log, 2)
    log.note_fetch(ONE, 2, 20)  # the end of before: it was caught up when it asked last
    assert caught_up() == 10
    log.note_fetch(ONE, 4, 30)
    assert caught_up() == 30
    fill(log, 9)
    log.note_fetch(ONE, 5, 40)
    assert caught_up() == 30
    log.note_fetch(ONE, 6, 50)
    assert caught_up() == 30


def test_a_broker_without_a_replica_is_no_follower(open_leader: Open) -> None:
    log = open_leader()
    with pytest.raises(KafkaError) as caught:
        log.note_fetch(ELSEWHERE, 0, 1)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    log.set_leadership(ONE, False, 1, 3)
    with pytest.raises(KafkaError) as caught:
        log.note_fetch(ONE, 0, 1)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert log.followers() == []


@pytest.mark.parametrize("offset", [1, 1 << 60])
def test_an_offset_that_the_log_does_not_have_says_nothing(open_leader: Open, offset: int) -> None:
    log = open_leader(1, {ONE: False})
    fill(log, 4)
    log.delete_records(3)
    log.set_leadership(LEADER, True, 0, 2, {ONE: True})
    with pytest.raises(KafkaError) as caught:
        log.note_fetch(ONE, offset, 1)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.followers()[0][2:] == (-1, 0, 0, -1)


def test_no_record_of_an_epoch_is_after_the_start_of_the_next(
    open_leader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a follower that has it is answered for ever that its log is another one there."""
    log = open_leader()
    fill(log, 3)
    assign = log.epochs.assign

    def assign_between_appends(epoch: int, start_offset: int, wait_s: float) -> bool:
        with pytest.raises(KafkaError) as caught:
            fill(log, 1)
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return assign(epoch, start_offset, wait_s)

    monkeypatch.setattr(log.epochs, "assign", assign_between_appends)
    log.set_leadership(LEADER, True, 2, 3, {ONE: True, TWO: True})
    assert log.epochs.entries == [(0, 0), (2, 3)]
    fill(log, 1)
    assert log.log_end_offset == 4


def test_an_epoch_that_cannot_be_written_down_leaves_the_leader_to_the_last_one(
    open_leader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_leader()

    def no_assign(epoch: int, start_offset: int, wait_s: float) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="no space"):
        patched.setattr(log.epochs, "assign", no_assign)
        log.set_leadership(LEADER, True, 2, 3, {ONE: True, TWO: True})
    fill(log, 1)
    log.set_leadership(LEADER, True, 2, 3, {ONE: True, TWO: True})
    assert log.epochs.entries == [(0, 0), (2, 1)]
