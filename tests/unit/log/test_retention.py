"""Old or excess segments go whole, on leaders and followers, and nothing else does."""

from __future__ import annotations

import errno
import os
import random
import struct
from pathlib import Path
from typing import Final

import pytest

from kbroker.clock import ManualClock
from kbroker.config import BrokerConfig, TopicConfig
from kbroker.log.engine.partition_log import KEPT_FOR_EVER
from kbroker.replica._replica import Replica
from kbroker.replica.manager import log_settings
from kbroker.replica.retention import Retention
from kbroker.testing.file_faults import FOREVER, Fault, FileFaults
from kbroker.types import TopicPartition
from tests.support.led_log import LedLog, open_led_log
from tests.support.record_batches import Record, build_batch
from tests.unit.log.conftest import TOPIC_ID, OpenLog

HOUR_MS: Final = 3_600_000
NOW_MS: Final = 1_800_000_000_000
NODE, OTHER = 1, 2


class Ages:
    """One batch a segment: what each was written for, and how large they are."""

    def __init__(self, log: LedLog) -> None:
        self.log = log
        self.ends = [0]
        self.newest_ms: list[int] = []
        self.sizes: list[int] = []

    def write(self, timestamp_ms: int, count: int = 1) -> None:
        batch = build_batch([Record(b"x" * 50, timestamp_ms=timestamp_ms)] * count)
        if self.sizes:
            self.log.roll()
        self.log.append(batch)
        self.ends.append(self.log.log_end_offset)
        self.newest_ms.append(timestamp_ms)
        self.sizes.append(len(batch))

    def kept_from(self, age_ms: int, size_bytes: int, high_watermark: int) -> int:
        """The rule in other words: by size as many as leave enough, then by age from there."""
        first = self.ends.index(self.log.log_start_offset)
        bound = max(at for at, end in enumerate(self.ends) if end <= high_watermark)
        by_size = [at for at in range(bound + 1) if 0 <= size_bytes <= sum(self.sizes[at:])]
        first = max([first, *by_size])
        while age_ms >= 0 and first < bound and NOW_MS - self.newest_ms[first] > age_ms:
            first += 1
        return self.ends[first]


@pytest.fixture
def ages(open_log: OpenLog) -> Ages:
    return Ages(open_log())


def apply(log: Replica, age_ms: int = KEPT_FOR_EVER, size_bytes: int = KEPT_FOR_EVER) -> int:
    return log.apply_retention(age_ms, size_bytes, NOW_MS)


def test_segments_whose_newest_record_is_too_old_go(ages: Ages) -> None:
    for hours in (5, 4, 3, 2):
        ages.write(NOW_MS - hours * HOUR_MS)
    assert apply(ages.log, 3 * HOUR_MS) == 2  # what is just as old stays
    assert apply(ages.log, 3 * HOUR_MS) == -1
    assert apply(ages.log, 3 * HOUR_MS - 1) == 3
    # The active one, too: the log is empty then, and goes on.
    assert apply(ages.log, 0) == 4 == ages.log.log_end_offset
    ages.log.trim()
    assert len(list(ages.log.path.glob("*.log"))) == 1
    ages.write(NOW_MS)
    assert (ages.log.log_start_offset, ages.log.log_end_offset) == (4, 5)


def test_an_old_segment_after_a_young_one_stays(ages: Ages) -> None:
    for hours in (9, 1, 9):
        ages.write(NOW_MS - hours * HOUR_MS)
    assert apply(ages.log, 2 * HOUR_MS) == 1


def test_without_timestamps_the_file_says_how_old_it_is(ages: Ages) -> None:
    ages.write(-1)
    ages.write(-1)
    for path, seconds in zip(sorted(ages.log.path.glob("*.log")), (10, 5), strict=True):
        os.utime(path, (NOW_MS / 1000 - seconds,) * 2)
    assert apply(ages.log, 11_000) == -1
    assert apply(ages.log, 9_000) == 1


def test_records_beyond_the_size_go_and_the_bound_is_kept(ages: Ages) -> None:
    for _ in range(5):
        ages.write(NOW_MS)
    one = ages.sizes[0]
    assert apply(ages.log, size_bytes=5 * one) == -1
    assert apply(ages.log, size_bytes=5 * one - 1) == -1  # less than the bound would be left
    assert apply(ages.log, size_bytes=3 * one + 1) == 1
    assert apply(ages.log, size_bytes=3 * one) == 2
    assert apply(ages.log, size_bytes=0) == 5


def test_the_segments_that_size_leaves_are_checked_by_age(ages: Ages) -> None:
    for hours in (1, 9, 9):
        ages.write(NOW_MS - hours * HOUR_MS)
    assert apply(ages.log, 2 * HOUR_MS, 2 * ages.sizes[0]) == 3


def test_an_empty_file_at_the_front_is_in_nobodys_way(ages: Ages, open_log: OpenLog) -> None:
    for hours in (9, 8, 7):
        ages.write(NOW_MS - hours * HOUR_MS)
    ages.log.close(clean=True)
    os.truncate(min(ages.log.path.glob("*.log")), 0)
    log = open_log(clean=True, recovery_point=3, high_watermark=3)
    assert log.log_end_offset == 3
    assert apply(log, 0) == 3


def test_uncommitted_records_stay(ages: Ages) -> None:
    ages.log.set_leadership(NODE, True, 1, 2, {OTHER: True})
    for _ in range(4):
        ages.write(NOW_MS - HOUR_MS)
    ages.log.set_high_watermark(2)
    assert apply(ages.log, 0, 0) == 2


def test_a_follower_applies_it_too(ages: Ages) -> None:
    for _ in range(3):
        ages.write(NOW_MS - HOUR_MS)
    ages.log.set_leadership(OTHER, False, 2, 2)
    assert apply(ages.log, 0) == 3


def test_a_closed_log_keeps_its_records(ages: Ages) -> None:
    ages.write(NOW_MS - HOUR_MS)
    ages.log.close(clean=False)
    assert apply(ages.log, 0, 0) == -1


@pytest.mark.parametrize("seed", range(50))
def test_it_is_the_rule_whatever_is_written(ages: Ages, seed: int) -> None:
    dice = random.Random(seed)
    ages.log.set_leadership(NODE, True, 1, 2, {OTHER: True})
    for _ in range(30):
        if len(ages.sizes) < 12 and dice.random() < 0.6:
            ages.write(NOW_MS - dice.randrange(10) * HOUR_MS, dice.randrange(1, 5))
            continue
        if dice.random() < 0.5 and ages.log.high_watermark < ages.log.log_end_offset:
            ages.log.set_high_watermark(
                dice.choice([end for end in ages.ends if end >= ages.log.high_watermark])
            )
        age_ms = dice.choice([KEPT_FOR_EVER, *(hours * HOUR_MS for hours in range(10))])
        size_bytes = dice.choice([KEPT_FOR_EVER, 0, *(200 * n for n in range(1, 8))])
        before = ages.log.log_start_offset
        wanted = ages.kept_from(age_ms, size_bytes, ages.log.high_watermark)
        assert apply(ages.log, age_ms, size_bytes) == (wanted if wanted > before else -1)
        if dice.random() < 0.3:
            ages.log.trim()
        assert ages.log.log_start_offset == wanted


# --- the sweep ------------------------------------------------------------------------------------


def test_a_sweep_moves_each_by_its_own_settings_and_wakes_waiting_requests(tmp_path: Path) -> None:
    logs: dict[TopicPartition, Replica] = {}
    for number, settings in enumerate(({"retention_ms": HOUR_MS}, {}, {"retention_bytes": 0})):
        log = open_led_log(tmp_path / f"t-{number}", "t", number, TOPIC_ID, settings)
        log.set_leadership(NODE, True, 0, 1)
        log.append(build_batch([Record(b"x", timestamp_ms=NOW_MS - 2 * HOUR_MS)]))
        logs[TopicPartition("t", number)] = log
    woken: list[Replica] = []
    clock = ManualClock(NOW_MS)
    list(Retention(lambda: logs, woken.append, clock).sweep())
    assert [log.log_start_offset for log in logs.values()] == [1, 0, 1]
    assert woken == [logs[TopicPartition("t", number)] for number in (0, 2)]
    list(Retention(lambda: logs, woken.append, clock).sweep())
    assert len(woken) == 2
    for replica in logs.values():
        replica.log.close(clean=False)


@pytest.mark.parametrize(
    ("configs", "kept"),
    [
        ({}, (604_800_000, KEPT_FOR_EVER)),
        ({"retention.ms": "5", "retention.bytes": "6"}, (5, 6)),
        ({"retention.ms": "5", "cleanup.policy": "compact"}, (KEPT_FOR_EVER, KEPT_FOR_EVER)),
        ({"retention.ms": "5", "cleanup.policy": "compact,delete"}, (5, KEPT_FOR_EVER)),
    ],
)
def test_the_settings_of_a_topic(configs: dict[str, str], kept: tuple[int, int]) -> None:
    found = log_settings(TopicConfig(BrokerConfig.load(None, {}, []), configs), 1)
    assert (found["retention_ms"], found["retention_bytes"]) == kept


# --- A time index that is damaged -----------------------------------------------------------------


def opened_with(open_log: OpenLog, newest_ms: int, said_ms: int) -> LedLog:
    """A log whose first segment has its newest record in the midst, and a time index that says
    something else of it."""
    log = open_log(segment_bytes=20_000, index_interval_bytes=1_000)
    for number in range(400):
        timestamp_ms = newest_ms if number == 60 else NOW_MS - 72 * HOUR_MS
        log.append(build_batch([Record(b"x" * 100, timestamp_ms=timestamp_ms)]))
    log.close()
    path = log.path / f"{0:020d}.timeindex"
    entries = bytearray(path.read_bytes())
    at = len(entries) - 12
    assert struct.unpack_from(">q", entries, at)[0] == newest_ms
    struct.pack_into(">q", entries, at, said_ms)
    path.write_bytes(entries)
    return open_log(clean=True, recovery_point=400, high_watermark=400)


def sweep(log: LedLog, age_ms: int) -> int:
    """Where the log begins after it."""
    log.configure(retention_ms=age_ms)
    clock = ManualClock(NOW_MS)
    list(Retention(lambda: {log.log.name: log}, lambda replica: None, clock).sweep())
    return log.log_start_offset


@pytest.mark.parametrize("said_ms", [NOW_MS - 71 * HOUR_MS, NOW_MS + 1, 1 << 60, NOW_MS - HOUR_MS])
@pytest.mark.parametrize("newest_hours", [70, 5])
def test_a_segment_is_as_old_as_its_batches(
    open_log: OpenLog, said_ms: int, newest_hours: int
) -> None:
    log = opened_with(open_log, NOW_MS - newest_hours * HOUR_MS, said_ms)
    second = sorted(int(path.stem) for path in log.path.glob("*.log"))[1]
    start = sweep(log, 24 * HOUR_MS)
    if newest_hours < 24 or said_ms == NOW_MS - HOUR_MS:
        assert start == 0
    else:
        assert start >= second


def test_a_segment_is_looked_at_once_by_one_batch(open_log: OpenLog) -> None:
    newest_ms = NOW_MS - 5 * HOUR_MS
    log = opened_with(open_log, newest_ms, newest_ms)
    with FileFaults() as faults:
        assert sweep(log, 4 * HOUR_MS) > 0
    read = [each for each in faults.seen if each.operation == "read" and "0.log" in each.path]
    assert 1 <= len(read) <= 2 and sum(each.length for each in read) <= 2 * 4096
    with FileFaults() as faults:
        sweep(log, 4 * HOUR_MS)
    assert not [each for each in faults.seen if each.operation == "read"]


def test_a_segment_that_cannot_be_read_is_taken_by_its_word(open_log: OpenLog) -> None:
    log = opened_with(open_log, NOW_MS - 5 * HOUR_MS, NOW_MS + HOUR_MS)
    with FileFaults(Fault(("read",), error=errno.EIO, times=FOREVER)):
        assert sweep(log, 4 * HOUR_MS) == 0
    assert log.online
