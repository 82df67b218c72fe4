"""A log against a list: random appends, reads, searches, rolls, flushes, stops and crashes.

The model is the list of batches that were acknowledged. A crash is a copy of the directory while
the log is open, with or without some bytes of the last batch: every acknowledged batch is there
again, but for the one that the test tears.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from kbroker.log.opening.loader import Checkpointed
from tests.model.log.producer_model import ProducerModel
from tests.support.led_log import LedLog, open_led_log
from tests.support.record_batches import CODECS, Record, build_batch, parse_batches

TOPIC_ID = uuid.UUID(int=1)
PRODUCER_ID = 7


@dataclass(frozen=True)
class Kept:
    base: int
    times: list[int]
    data: bytes  # as stored
    sequence: int  # -1: not of the idempotent producer

    @property
    def last(self) -> int:
        return self.base + len(self.times) - 1


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.scratch = tempfile.TemporaryDirectory()
        self.path = Path(self.scratch.name) / "words-0"
        self.kept: list[Kept] = []
        self.producers = ProducerModel()
        self.next_sequence = 0
        self.epoch = 0
        self.settings: dict[str, int] = {}
        self.log: LedLog

    @initialize(
        segment_bytes=st.sampled_from([400, 1_500, 1 << 20]),
        index_interval_bytes=st.sampled_from([0, 150, 4_096]),
        segment_index_bytes=st.sampled_from([60, 1 << 20]),
    )
    def begin(self, **chosen: int) -> None:
        self.settings = chosen
        self.open(Checkpointed())

    def open(self, checkpointed: Checkpointed) -> None:
        self.log = open_led_log(self.path, "words", 0, TOPIC_ID, self.settings, checkpointed)
        self.epoch += 1
        self.log.set_leadership(1, True, self.epoch, 1)

    @property
    def end(self) -> int:
        return self.kept[-1].last + 1 if self.kept else 0

    # --- Rules ------------------------------------------------------------------------------------

    @rule(
        group=st.lists(
            st.tuples(
                st.lists(st.integers(0, 500), min_size=1, max_size=4),
                st.sampled_from(list(CODECS)),
                st.integers(0, 60),
                st.booleans(),
            ),
            min_size=1,
            max_size=5,
        )
    )
    def append(self, group: list[tuple[list[int], str, int, bool]]) -> None:
        batches, expected = [], []
        end = self.end
        for times, codec, size, idempotent in group:
            records = [Record(b"v" * size, timestamp_ms=time_ms) for time_ms in times]
            producer = {}
            sequence = -1
            if idempotent:
                sequence = self.next_sequence
                self.next_sequence += len(times)
                producer = {
                    "producer_id": PRODUCER_ID, "producer_epoch": 0, "base_sequence": sequence,
                }  # fmt: skip
                self.producers.note(PRODUCER_ID, 0, sequence, len(times), end)
            batch = build_batch(records, codec=codec, **producer)  # type: ignore[arg-type]
            batches.append(batch)
            stored = end.to_bytes(8, "big") + batch[8:12] + self.epoch.to_bytes(4, "big")
            expected.append(Kept(end, times, stored + batch[16:], sequence))
            end += len(times)
        results = self.log.append_group(batches)
        assert [(r.error, r.base_offset) for r in results] == [(0, kept.base) for kept in expected]
        self.kept += expected

    @rule(data=st.data(), max_bytes=st.sampled_from([1, 100, 500, 5_000]), whole=st.booleans())
    def read(self, data: st.DataObject, max_bytes: int, whole: bool) -> None:
        offset = data.draw(st.integers(0, self.end))
        found = self.log.read(offset, max_bytes, whole_first=whole)
        at = next((i for i, kept in enumerate(self.kept) if kept.last >= offset), None)
        if at is None:
            assert found == b""
            return
        first = self.kept[at].data
        if len(first) > max_bytes:
            assert found == (first if whole else b"")
            return
        # A prefix of the records that follow, up to the end of a segment or to the bound.
        following = b"".join(kept.data for kept in self.kept[at:])
        assert found == following[: len(found)]
        assert len(first) <= len(found) <= max_bytes
        if len(found) < min(max_bytes, len(following)):
            assert len(found) in ends_of_batches(self.kept[at:])

    @rule(wanted=st.integers(-1, 501))
    def search(self, wanted: int) -> None:
        times = [time_ms for kept in self.kept for time_ms in kept.times]
        offset = next((o for o, time_ms in enumerate(times) if time_ms >= wanted), None)
        expected = None if offset is None else (offset, times[offset])
        found = self.log.offset_for_time(wanted)
        assert (None if found is None else found[:2]) == expected
        largest = self.log.offset_of_max_timestamp()
        assert (None if largest is None else largest[:2]) == (
            (times.index(max(times)), max(times)) if times else None
        )

    @precondition(lambda self: self.producers.producers)
    @rule(back=st.integers(0, 6))
    def send_again(self, back: int) -> None:
        batches = self.producers.producers[PRODUCER_ID].batches
        first, last, base = batches[-min(back, len(batches) - 1) - 1]
        again = build_batch(
            [b"v"] * (last - first + 1), producer_id=PRODUCER_ID, producer_epoch=0,
            base_sequence=first,
        )  # fmt: skip
        assert self.log.append(again).base_offset == base

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(active=st.booleans())
    def flush(self, active: bool) -> None:
        assert self.log.flush(active=active) <= self.end

    @rule()
    def snapshot(self) -> None:
        self.log.write_snapshot()

    @rule()
    def stop_and_start(self) -> None:
        self.log.close()
        self.producers.only_last_batches()
        self.open(Checkpointed(clean=True, recovery_point=self.end, high_watermark=self.end))

    @rule(trusts_flushes=st.booleans(), torn_bytes=st.integers(0, 40), noise=st.booleans())
    def crash_and_start(self, trusts_flushes: bool, torn_bytes: int, noise: bool) -> None:
        point = self.log.recovery_point if trusts_flushes else 0
        left = self.path.with_name("left")
        shutil.copytree(self.path, left)
        self.log.close(clean=False)
        shutil.rmtree(self.path)
        left.rename(self.path)
        active = max(self.path.glob("*.log"))
        if noise:
            with active.open("ab") as file:
                file.write(b"\x00" * torn_bytes)
        elif torn_bytes and active.stat().st_size and point < self.end:
            active.write_bytes(active.read_bytes()[:-torn_bytes])
            self.lose_last()
        self.producers.only_last_batches()
        self.open(Checkpointed(recovery_point=point))

    def lose_last(self) -> None:
        gone = self.kept.pop()
        if gone.sequence >= 0:
            # What the log still holds is what the producer has to go on from.
            self.producers = ProducerModel()
            for kept in self.kept:
                if kept.sequence >= 0:
                    self.producers.note(PRODUCER_ID, 0, kept.sequence, len(kept.times), kept.base)
            self.next_sequence = gone.sequence

    @rule(data=st.data(), lends=st.booleans())
    def truncate(self, data: st.DataObject, lends: bool) -> None:
        offset = data.draw(st.integers(0, self.end + 1))
        lent = None
        if lends and self.end:
            lent = self.log.borrow(data.draw(st.integers(0, self.end - 1)), whole_first=True)
            promised = lent.read()
        self.log.truncate_to(offset)
        lost = [kept for kept in self.kept if kept.last >= offset]
        for _ in lost:
            self.lose_last()
        self.producers.only_last_batches()
        if lent is not None:
            assert lent.read() == promised
            lent.release()
        assert all(start < self.end for _, start in self.log.epochs.entries) or not lost
        # The next leader begins an epoch.
        self.epoch += 1
        self.log.set_leadership(1, True, self.epoch, 1)

    # --- Always -----------------------------------------------------------------------------------

    @invariant()
    def offsets_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.log_end_offset == self.log.high_watermark == self.end
        assert self.log.size_bytes == sum(len(kept.data) for kept in self.kept)
        assert self.log.readable_bytes(0, 1 << 40) == self.log.size_bytes

    def teardown(self) -> None:
        if hasattr(self, "log"):
            offset = 0
            while data := self.log.read(offset):
                offset = parse_batches(data)[-1].last_offset + 1
            assert offset == self.end
            self.log.close(clean=False)
        self.scratch.cleanup()


def ends_of_batches(kept: list[Kept]) -> set[int]:
    ends, total = set(), 0
    for batch in kept:
        total += len(batch.data)
        ends.add(total)
    return ends


TestLogModel = LogMachine.TestCase
TestLogModel.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
