"""A compacted log beside a plain list of its appended records, through a seeded history.

    python -m tests.unit.log.compaction_model 0..10000

A history appends batches of random keys, tombstones, codecs and producers, rolls, moves the start,
cuts the end, stops, crashes, and cleans as far as a map of random size reaches. After every
cleaning the log must hold exactly the records that the rules keep, each as it was appended; its
files must be sound; and what was lent before must still be what it was.
"""

from __future__ import annotations

import random
import sys
import tempfile
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kbroker.log.engine.partition_log import PartitionLog
from kbroker.log.looking._describe import segment_figures
from kbroker.log.looking.verify import verify
from kbroker.log.opening.loader import Checkpointed
from kbroker.log.upkeep._cleaning import Cleaning
from kbroker.protocol.record_batch import RecordBatch, decode_batches
from tests.support.led_log import LedLog, open_led_log
from tests.support.record_batches import CODECS, Record, build_batch

TOPIC_ID: Final = uuid.UUID(int=9)
RETENTION_MS: Final = 1_000
STEP_BYTES: Final = 700  # some batches
KEYS: Final = [None, b"", *(b"key-%d" % n for n in range(12)), b"long " * 40]
BIG: Final = b"v" * 70_000  # does not fit into a codec's window


@dataclass
class Known:
    """A batch as it was appended, and what of it is to be there."""

    base_offset: int
    last_offset: int
    producer_id: int
    records: dict[int, Record]  # by offset
    horizon_ms: int | None = None


@dataclass
class Model:
    """What the log has to hold."""

    batches: list[Known] = field(default_factory=list)

    def append(self, base_offset: int, records: list[Record], producer_id: int) -> None:
        last = base_offset + len(records) - 1
        placed = {base_offset + at: record for at, record in enumerate(records)}
        self.batches.append(Known(base_offset, last, producer_id, placed))

    def cut(self, end_offset: int) -> None:
        self.batches = [each for each in self.batches if each.last_offset < end_offset]

    def drop_below(self, offset: int) -> None:
        self.batches = [each for each in self.batches if each.last_offset >= offset]

    def clean(self, first_dirty: int, mapped_end: int, end: int, now_ms: int) -> None:
        """The rules in other words; segments below `end` were read."""
        last: dict[bytes, int] = {}
        for each in self.batches:
            for offset, record in each.records.items():
                if record.key is not None and first_dirty <= offset < mapped_end:
                    last[record.key] = max(offset, last.get(record.key, -1))

        def stays(each: Known, offset: int, record: Record) -> bool:
            if offset >= mapped_end:
                return True
            if record.key is None or last.get(record.key, offset) > offset:
                return False
            over = each.horizon_ms is not None and each.horizon_ms <= now_ms
            return record.value is not None or not over

        for each in self.batches:
            if each.base_offset >= end:
                continue
            each.records = {o: r for o, r in each.records.items() if stays(each, o, r)}
            tombstones = any(record.value is None for record in each.records.values())
            if tombstones and each.horizon_ms is None and each.last_offset < mapped_end:
                each.horizon_ms = now_ms + RETENTION_MS

    def records(self) -> dict[int, Record]:
        return {offset: r for each in self.batches for offset, r in each.records.items()}


class History:
    """One log and its model."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.random = random.Random(seed)
        self.path = directory / "words-0"
        self.settings = {
            "segment_bytes": self.random.choice([1_500, 6_000, 40_000]),
            "index_interval_bytes": self.random.choice([100, 1_000, 4_096]),
            "log_append_time": self.random.random() < 0.2,
        }
        self.model = Model()
        self.now_ms = 1_000_000
        self.epoch = 0
        self.cleaned_to = 0
        self.recovery_point = 0  # as the checkpoint has it
        self.sequences: dict[int, int] = {}
        self.restored: set[int] = set()  # producers as a snapshot had them, of before a cut
        self.lent: list[tuple[object, bytes]] = []
        self.log = self._open(Checkpointed())
        self.cleanings = 0

    def _open(self, checkpointed: Checkpointed) -> LedLog:
        log = open_led_log(
            self.path, "words", 0, TOPIC_ID, self.settings, checkpointed,
            points_fell=self._note_recovery_point,
        )  # fmt: skip
        self.epoch += 1
        log.set_leadership(1, True, self.epoch, 1)
        return log

    def _note_recovery_point(self, log: PartitionLog) -> None:
        self.recovery_point = log.settled_recovery_point

    def run(self, steps: int) -> None:
        doings = [
            (self.append, 10), (self.roll, 3), (self.clean, 4), (self.let_time_pass, 2),
            (self.reopen, 1), (self.crash, 1), (self.move_start, 0.5), (self.cut, 0.5),
            (self.lend, 1),
        ]  # fmt: skip
        calls, weights = zip(*doings, strict=True)
        for _ in range(steps):
            self.random.choices(calls, weights)[0]()
        self.log.roll()
        self.clean()
        self.check()
        self.close(clean=True)

    # --- What happens -----------------------------------------------------------------------------

    def append(self) -> None:
        for _ in range(self.random.randrange(1, 6)):
            records = [
                Record(
                    self.random.choice([None, b"", b"v%d" % self.random.randrange(10**6), BIG])
                    if self.random.random() < 0.05
                    else self.random.choice([None, b"v%d" % self.random.randrange(10**6)]),
                    self.random.choice(KEYS),
                    self.now_ms - self.random.randrange(500),
                    [(b"h", b"1")] if self.random.random() < 0.2 else (),
                )
                for _ in range(self.random.randrange(1, 5))
            ]
            producer = self.random.choice([-1, -1, 5, 6, 7])
            sequence = self.sequences.get(producer, 0)
            batch = build_batch(
                records,
                codec=self.random.choice(list(CODECS)),
                producer_id=producer,
                producer_epoch=-1 if producer < 0 else 0,
                base_sequence=-1 if producer < 0 else sequence,
            )
            if len(batch) > self.settings["segment_bytes"]:
                continue
            result = self.log.append(batch, now_ms=self.now_ms)
            assert result.error == 0, result
            if producer >= 0:
                self.sequences[producer] = sequence + len(records)
                self.restored.discard(producer)
            if self.settings["log_append_time"]:
                records = [Record(r.value, r.key, self.now_ms, r.headers) for r in records]
            self.model.append(result.base_offset, records, producer)

    def roll(self) -> None:
        self.log.roll()

    def let_time_pass(self) -> None:
        self.now_ms += self.random.randrange(2 * RETENTION_MS)

    def lend(self) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        if start < end:
            piece = self.log.borrow(self.random.randrange(start, end), 5_000)
            self.lent.append((piece, piece.read()))

    def move_start(self) -> None:
        start = self.random.randrange(self.log.log_start_offset, self.log.log_end_offset + 1)
        self.log.delete_records(start)
        self.log.trim()
        if segment_figures(self.log.log):
            self.model.drop_below(segment_figures(self.log.log)[0].base_offset)

    def cut(self) -> None:
        """A follower's cut, after an election that lost records."""
        start, end = self.log.log_start_offset, self.log.log_end_offset
        offset = self.random.randrange(start, end + 1)
        self.log.set_leadership(2, False, self.epoch + 1, 1)
        self.log.truncate_to(offset)
        self.epoch += 2
        self.log.set_leadership(1, True, self.epoch, 1)
        self.model.cut(self.log.log_end_offset)
        self.cleaned_to = min(self.cleaned_to, self.log.log_end_offset)
        assert self.log.cleaned_to <= self.log.log_end_offset
        self.log.trim()
        self.sequences = self._sequences()
        self.restored = set(self.sequences)
        self.check()

    def _sequences(self) -> dict[int, int]:
        """What each producer sends next, as the log knows them."""
        entries = self.log.producer_entries()[1]
        return {entry.producer_id: entry.last_sequence + 1 for entry in entries}

    def reopen(self) -> None:
        self.close(clean=True)
        self.recovery_point = end = self.end
        start = self.start
        self.log = self._open(Checkpointed(True, end, end, start))
        self.check()

    def crash(self) -> None:
        known = self._sequences()
        self.close(clean=False)
        self.log = self._open(Checkpointed(False, self.recovery_point, self.end, self.start))
        assert self._sequences() == known
        self.check()

    def close(self, *, clean: bool) -> None:
        self.end, self.start = self.log.log_end_offset, self.log.log_start_offset
        self.log.close(clean=clean)
        for piece, data in self.lent:
            assert piece.read() == data  # type: ignore[attr-defined]
        self.lent.clear()

    # --- The cleaning -----------------------------------------------------------------------------

    def clean(self) -> None:
        figures = segment_figures(self.log.log)
        bases = [each.base_offset for each in figures]
        ends = [base for base in bases[1:] if base > self.log.log_start_offset]
        if not ends:
            return
        end = self.random.choice(ends[-3:])
        first_dirty = max(self.cleaned_to, self.log.log_start_offset)
        if first_dirty > end:
            return
        cleaning = Cleaning(
            self.log.log, first_dirty, end,
            map_bytes_max=self.random.choice([24 * 16, 24 * 20, 10_000]), load_factor=0.9,
            now_ms=self.now_ms, delete_retention_ms=RETENTION_MS,
        )  # fmt: skip
        while cleaning.map_keys(STEP_BYTES):
            pass
        self.log.flush_rolled()
        self._note_recovery_point(self.log.log)
        assert first_dirty <= cleaning.mapped_end <= end
        read_end = 0
        for first, after_last in cleaning.groups(self.settings["segment_bytes"]):
            cleaning.begin_group(first, after_last)
            while cleaning.clean(STEP_BYTES):
                pass
            cleaning.finish()
            read_end = bases[bases.index(cleaning.group_bases[-1]) + 1]
            assert self.log.replace_by_cleaned(cleaning)
        self.model.clean(first_dirty, cleaning.mapped_end, read_end, self.now_ms)
        self.cleaned_to = self.log.log.cleaned_to = cleaning.mapped_end
        self.cleanings += 1
        self._check_empty_ones(read_end)
        self.check()
        self.log.trim()

    # --- What must be so --------------------------------------------------------------------------

    def check(self) -> None:
        """Records below the start are there until their segment goes."""
        found, start = self._read_all(as_follower=True), self.log.log_start_offset
        assert [batch for batch in found if batch.records] == [
            batch for batch in self._read_all(as_follower=False) if batch.records
        ]
        held = {
            record.offset: (record.key, record.value, record.timestamp_ms, len(record.headers))
            for batch in found
            for record in batch.records
            if record.offset >= start
        }
        expected = {
            offset: (record.key, record.value, record.timestamp_ms, len(record.headers))
            for offset, record in self.model.records().items()
            if offset >= start
        }
        assert held == expected
        there = {(batch.producer_id, batch.last_offset) for batch in found}
        for entry in self.log.producer_entries()[1]:
            if entry.last_offset >= start and entry.producer_id not in self.restored:
                assert (entry.producer_id, entry.last_offset) in there
        assert not (damage := verify(self.path).damage), damage

    def _check_empty_ones(self, read_end: int) -> None:
        """Of a batch without records the broker needs the last sequence, or the offset at which
        the cleaning ended."""
        entries = self.log.producer_entries()[1]
        needed = {(entry.producer_id, entry.last_offset) for entry in entries}
        for batch in self._read_all(as_follower=True):
            if not batch.records and batch.last_offset + 1 < read_end:
                assert (batch.producer_id, batch.last_offset) in needed

    def _read_all(self, *, as_follower: bool) -> list[RecordBatch]:
        """A consumer is brought to the end as well, over batches that it does not get."""
        batches: list[RecordBatch] = []
        offset, end = self.log.log_start_offset, self.log.log_end_offset
        while offset < end:
            data = self.log.read(offset, 10_000, to_log_end=as_follower)
            parsed = list(decode_batches(data))
            if not parsed:
                break  # the end was cut to where a segment begins, whose batches are gone
            assert as_follower or parsed[0].records or parsed[-1].last_offset + 1 == end
            batches += parsed
            offset = parsed[-1].last_offset + 1
        return batches


def run(seed: int, steps: int = 40) -> int:
    """How many cleanings there were."""
    with tempfile.TemporaryDirectory(prefix="kbroker-compaction-") as place:
        history = History(seed, Path(place))
        history.run(steps)
        return history.cleanings


def main() -> None:
    first, _, end = sys.argv[1].partition("..")
    cleanings = 0
    for seed in range(int(first), int(end)):
        try:
            cleanings += run(seed)
        except BaseException:
            print(f"seed {seed}", flush=True)
            raise
    print(f"{int(end) - int(first)} histories, {cleanings} cleanings, no difference")


if __name__ == "__main__":
    main()
