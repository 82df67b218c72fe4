"""What compaction and moves make of transactions."""

from __future__ import annotations

import struct
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.clock import ManualClock
from kbroker.log.looking.verify import verify
from kbroker.log.upkeep.cleaner import CleanerSettings, LogCleaner
from kbroker.replica._committed_read import aborted_transactions
from tests.support.led_log import LedLog, LedLogManager
from tests.support.record_batches import Record, build_batch, parse_batches
from tests.unit.log.two_directories import Two

NOW_MS = 1_700_000_000_000
TRANSACTIONAL, CONTROL = 0x10, 0x20


class Compacted:
    """A compacted log that is cleaned when that is asked for."""

    def __init__(self, data: Path) -> None:
        self.clock = ManualClock()
        self.logs = LedLogManager([data], clock=self.clock)
        self.logs.start()
        self.cleaner = LogCleaner(self.logs, CleanerSettings, self.clock, threading.Event())
        self.log: LedLog = self.logs.open("words", 0, uuid.UUID(int=4), {"compacted": True})
        self.log.set_leadership(1, True, 1, 1)
        self.sequences: dict[int, int] = {}

    def append(self, key: bytes, producer_id: int = -1) -> int:
        how = {}
        if producer_id >= 0:
            how = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": self.sequences.get(producer_id, 0),
                "attributes": TRANSACTIONAL,
            }
            self.sequences[producer_id] = self.sequences.get(producer_id, 0) + 1
        batch = build_batch([Record(b"value", key, timestamp_ms=NOW_MS)], **how)
        return self.log.append(batch, guard=-1, now_ms=NOW_MS).base_offset

    def end(self, producer_id: int, *, committed: bool) -> None:
        end(self.log, producer_id, committed=committed)

    def keys(self) -> list[tuple[int, bytes | None]]:
        """Offset and key of each record that is no marker."""
        found, offset = [], self.log.log_start_offset
        while data := self.log.read(offset):
            for batch in parse_batches(data):
                offset = batch.last_offset + 1
                if not batch.attributes & CONTROL and batch.record_count:
                    found += [
                        (batch.base_offset + at, record.key)
                        for at, record in enumerate(batch.records)
                    ]
        return found


def end(log: LedLog, producer_id: int, *, committed: bool) -> None:
    found = log.append_marker(
        producer_id, 0, 0, committed=committed, transaction_version=0, now_ms=NOW_MS
    )
    assert found.error == 0


@pytest.fixture
def compacted(tmp_path: Path) -> Iterator[Compacted]:
    made = Compacted(tmp_path / "data")
    yield made
    made.cleaner.stop()
    made.logs.stop()


def test_an_aborted_record_is_no_value_of_its_key(compacted: Compacted) -> None:
    compacted.append(b"a")
    compacted.append(b"b", 7)
    compacted.append(b"a", 8)
    compacted.end(7, committed=True)
    compacted.end(8, committed=False)
    compacted.append(b"b", 8)
    compacted.end(8, committed=True)
    compacted.append(b"c")
    compacted.cleaner.clean_all()
    assert compacted.keys() == [(0, b"a"), (5, b"b"), (7, b"c")]
    index = compacted.log.path / f"{0:020d}.txnindex"
    assert index.read_bytes() == struct.pack(">hqqqq", 0, 8, 2, 4, 5)
    assert aborted_transactions(compacted.log, 0) == [(8, 2)]
    assert not list(compacted.log.path.glob("*.cleaned"))
    assert not list(compacted.log.path.glob("*.swap"))
    assert not verify(compacted.log.path).damage


def test_nothing_is_cleaned_that_is_not_decided(compacted: Compacted) -> None:
    compacted.append(b"a")
    compacted.log.roll()
    compacted.append(b"a", 7)
    compacted.log.roll()
    compacted.append(b"a")
    compacted.cleaner.clean_all()
    assert compacted.keys() == [(0, b"a"), (1, b"a"), (2, b"a")]
    compacted.end(7, committed=False)
    compacted.cleaner.clean_all()
    assert compacted.keys() == [(2, b"a")]


def test_segments_that_become_one_keep_their_entries(compacted: Compacted) -> None:
    for producer_id in (7, 8, 9):
        compacted.append(b"a", producer_id)
        compacted.log.roll()
        compacted.end(producer_id, committed=False)
    compacted.append(b"b")
    compacted.cleaner.clean_all()
    assert compacted.keys() == [(6, b"b")]
    index = compacted.log.path / f"{0:020d}.txnindex"
    assert [each[1:4] for each in struct.iter_unpack(">hqqqq", index.read_bytes())] == [
        (7, 0, 1),
        (8, 2, 3),
        (9, 4, 5),
    ]
    assert not verify(compacted.log.path).damage


def test_a_move_takes_them_along(two: Two) -> None:
    def append(producer_id: int, sequence: int) -> None:
        batch = build_batch(
            [Record(b"v" * 400, timestamp_ms=NOW_MS)], producer_id=producer_id, producer_epoch=0,
            base_sequence=sequence, attributes=TRANSACTIONAL,
        )  # fmt: skip
        two.log.append(batch, guard=-1, now_ms=NOW_MS)

    for sequence in range(6):
        append(7, sequence)
        end(two.log, 7, committed=False)
    append(8, 0)
    before = aborted_transactions(two.log, 0, 1 << 20), two.log.last_stable_offset
    files = {path.name: path.read_bytes() for path in two.log.path.glob("*.txnindex")}
    assert files and before[1] == 12
    two.move(two.second)
    assert two.here() == ["second"]
    moved = two.second / "words-0"
    assert {path.name: path.read_bytes() for path in moved.glob("*.txnindex")} == files
    assert (aborted_transactions(two.log, 0, 1 << 20), two.log.last_stable_offset) == before
    end(two.log, 8, committed=False)
    assert two.log.last_stable_offset == two.log.log_end_offset == 14
    two.manager.stop()
    two.start()
    assert two.log.last_stable_offset == 14
