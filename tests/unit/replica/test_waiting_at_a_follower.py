"""A follower wakes the consumers that wait at it, when their readable records have changed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest

from kbroker.errors import ErrorCode
from kbroker.log_lines import LogLines
from kbroker.peer.replica_fetch import Fetched
from kbroker.replica.fetcher_partition import FollowedPartition, Outcome
from kbroker.types import TopicPartition
from tests.support.led_log import LedLog, open_led_log
from tests.support.record_batches import build_batch

LEADER, EPOCH = 2, 1
TOPIC: Final = UUID(int=1)
NAME: Final = TopicPartition("words", 0)


class Watched(FollowedPartition):
    """Its replica with a consumer that waits there, and the ends that it was woken at."""

    def __init__(self, log: LedLog) -> None:
        self.woken: list[tuple[int, int]] = []
        super().__init__(
            NAME, TOPIC, EPOCH, log, LogLines(logging.getLogger("tests")), lambda _: self.note()
        )

    def note(self) -> None:
        assert not self._lock.locked(), "a woken consumer reads, and the end of this waits for it"
        self.woken.append((self.replica.high_watermark, self.replica.log_end_offset))

    def fetched_answer(
        self,
        records: int = 0,
        high_watermark: int = -1,
        log_start: int = 0,
        diverging: tuple[int, int] | None = None,
        error: ErrorCode = ErrorCode.NONE,
    ) -> Outcome:
        """One answer of the leader."""
        asked = self.asked()
        sent = b"".join(
            build_batch(base_offset=asked.fetch_offset + at, leader_epoch=EPOCH)
            for at in range(records)
        )
        fetched = Fetched(
            TOPIC.int, 0, error, high_watermark, log_start, diverging, memoryview(bytearray(sent))
        )
        return self.apply(asked, fetched, 0)


class WatchedLog(LedLog):
    has_watchers = True


@pytest.fixture
def follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Watched]]:
    opened: list[LedLog] = []

    def follow_it(kind: type[LedLog] = WatchedLog) -> Watched:
        monkeypatch.setattr("tests.support.led_log.LedLog", kind)
        log = open_led_log(tmp_path / "words-0", *NAME, TOPIC, {})
        log.set_leadership(LEADER, False, EPOCH, 2)
        opened.append(log)
        return Watched(log)

    yield follow_it
    for log in opened:
        log.log.close(clean=False)


def test_records_wake_when_they_are_committed(follow: Callable[..., Watched]) -> None:
    followed = follow()
    assert followed.fetched_answer(records=3, high_watermark=0) is Outcome.APPENDED
    assert followed.woken == []
    assert followed.fetched_answer(records=1, high_watermark=3) is Outcome.APPENDED
    assert followed.woken == [(3, 4)]
    assert followed.fetched_answer(high_watermark=4) is Outcome.NOTHING_NEW
    assert followed.woken == [(3, 4), (4, 4)]
    assert followed.fetched_answer(high_watermark=4) is Outcome.NOTHING_NEW
    assert len(followed.woken) == 2


def test_a_start_of_the_log_that_moves_wakes(follow: Callable[..., Watched]) -> None:
    followed = follow()
    followed.fetched_answer(records=3, high_watermark=3)
    followed.woken.clear()
    followed.fetched_answer(high_watermark=3, log_start=2)
    assert followed.woken == [(3, 3)]


def test_a_cut_wakes(follow: Callable[..., Watched]) -> None:
    followed = follow()
    followed.fetched_answer(records=3, high_watermark=1)
    followed.woken.clear()
    assert followed.fetched_answer(diverging=(EPOCH, 2)) is Outcome.CUT
    assert followed.woken == [(1, 2)]
    assert followed.enter_range(followed.asked(), 7, 9) is Outcome.CUT
    assert followed.woken == [(1, 2), (7, 7)]


def test_an_answer_without_a_change_wakes_none(follow: Callable[..., Watched]) -> None:
    followed = follow()
    followed.fetched_answer(records=2, high_watermark=1)
    followed.woken.clear()
    assert followed.fetched_answer(error=ErrorCode.FENCED_LEADER_EPOCH) is Outcome.NOT_YET
    assert followed.fetched_answer(error=ErrorCode.OFFSET_OUT_OF_RANGE) is Outcome.OUT_OF_RANGE
    followed.end()
    assert followed.fetched_answer(records=1, high_watermark=2) is Outcome.DROPPED
    assert followed.woken == []


def test_where_none_waits_none_is_woken(follow: Callable[..., Watched]) -> None:
    followed = follow(LedLog)
    assert followed.fetched_answer(records=3, high_watermark=3) is Outcome.APPENDED
    assert followed.replica.high_watermark == 3
    assert followed.woken == []
