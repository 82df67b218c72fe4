"""A log whose records are deleted from the front, against a list: every offset is there or is not.

Random appends, deletions at any offset (inside batches, too), removals of segments, reads, slices
that are kept, stops and crashes. A crash keeps the start that was checkpointed, as the manager does
before it answers. The model is the list of batches and one number, the start.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.engine._slice import Slice
from kbroker.log.opening.loader import Checkpointed
from tests.support.led_log import LedLog, open_led_log
from tests.support.record_batches import Record, build_batch, parse_batches

TOPIC_ID = uuid.UUID(int=1)


class TrimMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.scratch = tempfile.TemporaryDirectory()
        self.path = Path(self.scratch.name) / "words-0"
        self.batches: list[range] = []
        self.sequence = 0
        self.start = 0
        self.lent: list[tuple[Slice, bytes]] = []
        self.log: LedLog

    @initialize(segment_bytes=st.sampled_from([150, 600, 1 << 20]))
    def begin(self, segment_bytes: int) -> None:
        self.segment_bytes = segment_bytes
        self.open(Checkpointed())

    def open(self, checkpointed: Checkpointed) -> None:
        self.log = open_led_log(
            self.path, "words", 0, TOPIC_ID, {"segment_bytes": self.segment_bytes}, checkpointed
        )
        self.log.set_leadership(1, True, 0, 1)

    @property
    def end(self) -> int:
        return self.batches[-1].stop if self.batches else 0

    # --- Rules ------------------------------------------------------------------------------------

    @rule(counts=st.lists(st.integers(1, 5), min_size=1, max_size=8))
    def append(self, counts: list[int]) -> None:
        for count in counts:
            batch = build_batch(
                [Record(b"x" * 10, timestamp_ms=self.end + at) for at in range(count)],
                producer_id=9,
                producer_epoch=0,
                base_sequence=self.sequence,
            )
            assert self.log.append(batch).base_offset == self.end
            self.batches.append(range(self.end, self.end + count))
            self.sequence += count

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(-1, self.end))
        self.start = max(self.start, self.end if offset == -1 else offset)
        assert self.log.delete_records(offset) == self.start

    @rule(beyond=st.integers(1, 100))
    def delete_beyond(self, beyond: int) -> None:
        for offset in (self.end + beyond, -1 - beyond):
            with pytest.raises(KafkaError):
                self.log.delete_records(offset)

    @rule(removed=st.booleans())
    def trim(self, removed: bool) -> None:
        for path in self.log.trim():
            if removed:
                os.unlink(path)
        assert self.log.trim() == []

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.end + 1))
        if not self.start <= offset <= self.end:
            with pytest.raises(KafkaError) as caught:
                self.log.read(offset)
            assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
            return
        found = [each.base_offset for each in parse_batches(self.log.read(offset))]
        wanted = [batch.start for batch in self.batches if batch.stop > offset]
        assert found == wanted[: len(found)] and bool(found) == bool(wanted)

    @rule(wanted=st.integers(0, 200))
    def search(self, wanted: int) -> None:
        # The timestamp of each record is its offset.
        found = self.log.offset_for_time(wanted)
        expected = max(wanted, self.start)
        assert (None if found is None else found[0]) == (expected if expected < self.end else None)

    @rule(data=st.data())
    def lend(self, data: st.DataObject) -> None:
        if self.start < self.end:
            lent = self.log.borrow(data.draw(st.integers(self.start, self.end - 1)))
            self.lent.append((lent, lent.read()))

    @rule(data=st.data())
    def send_the_last_again(self, data: st.DataObject) -> None:
        if self.batches:
            last = self.batches[-1]
            first = self.sequence - len(last)
            again = build_batch(
                [b"x"] * len(last), producer_id=9, producer_epoch=0, base_sequence=first
            )
            assert self.log.append(again).base_offset == last.start

    @rule()
    def flush(self) -> None:
        self.log.flush_rolled()

    @rule()
    def stop_and_start(self) -> None:
        self.log.close()
        self.open(Checkpointed(True, self.end, self.end, self.start))

    @rule()
    def crash_and_start(self) -> None:
        point = self.log.recovery_point
        left = self.path.with_name("left")
        shutil.copytree(self.path, left)
        self.log.close(clean=False)
        shutil.rmtree(self.path)
        left.rename(self.path)
        self.open(Checkpointed(False, point, 0, self.start))

    # --- Always -----------------------------------------------------------------------------------

    @invariant()
    def offsets_agree(self) -> None:
        if hasattr(self, "log"):
            found = (self.log.log_start_offset, self.log.log_end_offset, self.log.high_watermark)
            assert found == (self.start, self.end, self.end)
            assert self.log.recovery_point <= self.end

    def teardown(self) -> None:
        for lent, promised in self.lent:
            assert lent.read() == promised
            lent.release()
        if hasattr(self, "log"):
            self.log.close(clean=False)
        self.scratch.cleanup()


TestTrimModel = TrimMachine.TestCase
TestTrimModel.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
