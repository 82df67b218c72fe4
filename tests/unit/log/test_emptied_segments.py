"""What a cleaning leaves of segments whose records are all superseded, and who reads it how."""

from __future__ import annotations

import shutil
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.clock import ManualClock
from kbroker.log.engine.partition_log import Compaction
from kbroker.log.looking.verify import verify
from kbroker.log.upkeep.cleaner import CleanerSettings, LogCleaner
from kbroker.protocol.record_batch import RecordBatch, decode_batches
from kbroker.types import TopicPartition
from tests.support.led_log import LedLog, LedLogManager
from tests.support.record_batches import Record, build_batch, seal
from tests.unit.log.conftest import OpenLog

TOPIC = uuid.UUID(int=4)
NAME = TopicPartition("words", 0)
SETTINGS: dict[str, Any] = {
    "segment_bytes": 900,  # one before it is cleaned, and some after that
    "compacted": True,
    "compaction": Compaction(delete_retention_ms=0),
}
KEYS = 4
EMPTY_BYTES = 61
SEGMENTS = 12
CRASHED = "crashed"


class Log:
    """A compacted log in a manager of its own, with a cleaner."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.logs = LedLogManager([data])
        self.logs.start()
        self.log: LedLog = self.logs.open(*NAME, TOPIC, SETTINGS)
        self.log.set_leadership(1, True, 1, 1)
        self._cleaner = LogCleaner(self.logs, CleanerSettings, ManualClock())
        self._written = 0

    def write_segment(self, producer_id: int = -1, *, tombstones: bool = False) -> None:
        """All keys anew, from the same producer, in a segment of its own."""
        for number in range(KEYS):
            value = None if tombstones else b"%d" % self._written + b"." * 100
            batch = build_batch(
                [Record(value, b"key %d" % number)],
                producer_id=producer_id,
                producer_epoch=-1 if producer_id < 0 else 0,
                base_sequence=-1 if producer_id < 0 else number,
            )
            assert self.log.append(batch).error == 0
            self._written += 1
        self.log.roll()

    def clean(self) -> None:
        self._cleaner.clean_all()

    @property
    def sizes(self) -> list[int]:
        """Of the segments before the active one."""
        return [path.stat().st_size for path in sorted(self.log.path.glob("*.log"))[:-1]]

    def batches(self, *, as_follower: bool) -> list[RecordBatch]:
        found: list[RecordBatch] = []
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            found += decode_batches(self.log.read(offset, to_log_end=as_follower))
            offset = found[-1].last_offset + 1
        return found

    def after_a_crash(self) -> Log:
        copy = self.data.with_name(CRASHED)
        shutil.copytree(self.data, copy)
        (copy / ".lock").unlink(missing_ok=True)
        return Log(copy)

    def stop(self) -> None:
        self.logs.stop()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    made = Log(tmp_path / "data")
    yield made
    made.stop()


def empties(batches: list[RecordBatch]) -> list[int]:
    return [batch.last_offset for batch in batches if not batch.records]


def test_an_emptied_segment_holds_no_bytes_and_the_next_cleaning_merges_it(log: Log) -> None:
    for _ in range(SEGMENTS + 1):
        log.write_segment()
    log.clean()
    assert log.sizes[:-1] == [0] * SEGMENTS
    assert [len(batch.records) for batch in log.batches(as_follower=True)] == [1] * KEYS
    for _ in range(9):
        log.clean()
    assert len(log.sizes) == 1
    assert log.log.log_start_offset == 0
    assert not verify(log.log.path).damage


def test_a_later_cleaning_drops_the_empty_batch_that_the_end_needed(log: Log) -> None:
    for number in range(1, 4):
        log.write_segment()
        log.write_segment(tombstones=True)
        log.clean()
        log.clean()  # their horizon is over
        end = 2 * KEYS * number
        assert empties(log.batches(as_follower=True)) == [end - 1]
        assert sum(log.sizes) == EMPTY_BYTES
        assert log.log.log_end_offset == end


def test_the_last_sequence_of_a_producer_stays_and_no_client_gets_it(log: Log) -> None:
    for producer_id in range(SEGMENTS):
        log.write_segment(producer_id)
    log.write_segment()
    log.clean()
    kept = [KEYS * number + KEYS - 1 for number in range(SEGMENTS)]
    assert log.sizes[:-1] == [EMPTY_BYTES] * SEGMENTS
    assert empties(log.batches(as_follower=True)) == kept
    assert empties(log.batches(as_follower=False)) == []
    for _ in range(9):
        log.clean()
    assert empties(log.batches(as_follower=True)) == kept
    assert empties(log.batches(as_follower=False)) == []


def test_a_client_does_not_keep_a_follower_from_emptied_segments(log: Log) -> None:
    """The places that reads leave for each other say where a batch is, to both."""
    for producer_id in range(3):
        log.write_segment(producer_id)
    log.write_segment()
    log.clean()
    log.clean()  # one segment
    for _ in range(2):
        for offset in range(log.log.log_end_offset):
            (first, *_) = decode_batches(log.log.read(offset, 100))
            assert first.records
            (first, *_) = decode_batches(log.log.read(offset, 100, to_log_end=True))
            assert bool(first.records) == (offset > 11)


def test_where_all_up_to_the_end_is_empty_a_client_comes_to_the_end(log: Log) -> None:
    for producer_id in range(5):
        log.write_segment(producer_id)
    log.write_segment(tombstones=True)
    log.clean()
    log.clean()
    end = 6 * KEYS
    assert empties(log.batches(as_follower=True)) == [3, 7, 11, 15, 19, end - 1]
    for offset in range(end):
        (batch,) = decode_batches(log.log.read(offset))
        assert (batch.last_offset, list(batch.records)) == (end - 1, [])
    log.write_segment()
    (batch, *_) = decode_batches(log.log.read(0))
    assert (batch.base_offset, len(batch.records)) == (end, 1)


def empty_batch(offset: int) -> bytes:
    batch = build_batch([], base_offset=offset, leader_epoch=1)
    return seal(batch[:23] + struct.pack(">i", 0) + batch[27:])


def test_a_read_passes_a_bounded_number_of_empty_batches(open_log: OpenLog) -> None:
    log = open_log(lead=False)
    log.set_leadership(2, False, 1, 2)
    log.append_as_follower(b"".join(empty_batch(offset) for offset in range(5_000)), 1)
    log.set_leadership(1, True, 2, 1)
    assert log.append(build_batch([b"v"])).error == 0
    offsets = []
    offset = 0
    while offset <= 5_000:
        (batch, *_) = decode_batches(log.read(offset, EMPTY_BYTES))
        offsets.append(batch.last_offset)
        offset = batch.last_offset + 1
    assert offsets == [4_096, 5_000]


@pytest.mark.parametrize("checkpoints", [True, False], ids=["", "without-checkpoints"])
def test_a_crash_takes_no_gap_for_a_loss(log: Log, *, checkpoints: bool) -> None:
    for number in range(SEGMENTS):
        log.write_segment(number if number % 3 == 0 else -1)
    log.clean()
    before = log.batches(as_follower=True)
    if not checkpoints:
        for path in log.data.glob("*-checkpoint"):
            path.unlink()
    again = log.after_a_crash()
    try:
        assert again.log.log_end_offset == log.log.log_end_offset
        assert again.batches(as_follower=True) == before
        assert not list(again.log.path.glob("*.cut"))
    finally:
        again.stop()


def test_a_follower_has_the_same_batches(log: Log, open_log: OpenLog) -> None:
    for number in range(SEGMENTS):
        log.write_segment(number if number % 3 == 0 else -1)
    log.clean()
    follower = open_log(lead=False, segment_bytes=300)
    follower.set_leadership(2, False, 1, 2)
    while (offset := follower.log_end_offset) < log.log.log_end_offset:
        follower.append_as_follower(log.log.read(offset, to_log_end=True), 1)
    follower.set_leadership(1, True, 2, 1)  # so that it may be read
    batches = log.batches(as_follower=True)
    sent: list[RecordBatch] = []
    while not sent or sent[-1].last_offset + 1 < follower.log_end_offset:
        offset = sent[-1].last_offset + 1 if sent else 0
        sent += decode_batches(follower.read(offset, to_log_end=True))
    assert sent == batches
    assert empties(batches)
    assert len(list(follower.path.glob("*.log"))) > 1
