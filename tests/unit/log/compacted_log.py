"""A compacted log with transactions, which is cleaned when that is asked for."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path

from kbroker.clock import ManualClock
from kbroker.log.upkeep.cleaner import CleanerSettings, LogCleaner
from tests.support.led_log import LedLog, LedLogManager
from tests.support.record_batches import ParsedBatch, Record, build_batch, parse_batches

NOW_MS = 1_700_000_000_000
RETENTION_MS = 86_400_000  # delete.retention.ms
TRANSACTIONAL, CONTROL = 0x10, 0x20


class Compacted:
    """Records without a producer id are of no transaction."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.clock = ManualClock()
        self.sequences: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.start()

    def start(self) -> None:
        self.logs = LedLogManager([self.data], clock=self.clock)
        self.logs.start()
        self.cleaner = LogCleaner(self.logs, CleanerSettings, self.clock, threading.Event())
        self.log: LedLog = self.logs.open("words", 0, uuid.UUID(int=4), {"compacted": True})
        self.log.set_leadership(1, True, 1, 1)

    def stop(self) -> None:
        self.cleaner.stop()
        self.logs.stop()

    def append(self, key: bytes, producer_id: int = -1) -> int:
        how: dict[str, int] = {}
        if producer_id >= 0:
            how = {
                "producer_id": producer_id,
                "producer_epoch": self.epochs.get(producer_id, 0),
                "base_sequence": self.sequences.get(producer_id, 0),
                "attributes": TRANSACTIONAL,
            }
            self.sequences[producer_id] = self.sequences.get(producer_id, 0) + 1
        batch = build_batch([Record(b"value", key, timestamp_ms=NOW_MS)], **how)
        return self.log.append(batch, guard=-1, now_ms=NOW_MS).base_offset

    def end(self, producer_id: int, *, committed: bool, bumps: bool = False) -> int:
        """`bumps`: the producer has an epoch for each transaction."""
        if bumps:
            self.epochs[producer_id] = self.epochs.get(producer_id, 0) + 1
            self.sequences[producer_id] = 0
        found = self.log.append_marker(
            producer_id, self.epochs.get(producer_id, 0), 0, committed=committed,
            transaction_version=2 if bumps else 0, now_ms=NOW_MS,
        )  # fmt: skip
        assert found.error == 0
        return found.offset

    def clean(self, later_ms: int = 0) -> None:
        """All but the segment that begins now."""
        self.clock.advance(later_ms)
        self.cleaner.clean_all()

    def batches(self) -> list[ParsedBatch]:
        """As a follower gets them: a consumer is brought past those without records."""
        found: list[ParsedBatch] = []
        offset = self.log.log_start_offset
        while data := self.log.read(offset, to_log_end=True):
            found += parse_batches(data)
            offset = found[-1].last_offset + 1
        return found

    def keyed(self) -> list[tuple[int, bytes | None]]:
        """Offset and key of each record that is no marker."""
        return [
            (batch.base_offset + at, record.key)
            for batch in self.batches()
            if not batch.attributes & CONTROL and batch.record_count
            for at, record in enumerate(batch.records)
        ]

    def markers(self) -> list[int]:
        """Offsets of those that are whole."""
        return [
            batch.base_offset
            for batch in self.batches()
            if batch.attributes & CONTROL and batch.record_count
        ]
