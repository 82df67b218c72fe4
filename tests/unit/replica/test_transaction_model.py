"""One partition's transactions beside a model of a few lines, over restarts, cuts and deletions."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kbroker.errors import ErrorCode
from kbroker.log.opening.loader import Checkpointed
from kbroker.replica._committed_read import aborted_transactions
from tests.support.led_log import LedLog, open_led_log
from tests.support.record_batches import Record, build_batch, parse_batches
from tests.unit.log.conftest import TOPIC_ID

NOW_MS = 1_700_000_000_000
TRANSACTIONAL, CONTROL = 0x10, 0x20
PRODUCERS = (7, 8)


@dataclass
class Entry:
    """A batch of the log; `marker` is None of data."""

    offset: int
    count: int
    producer_id: int
    marker: bool | None = None  # whether it commits


class Model:
    """All that can be said of a log follows from its batches."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.start = 0

    @property
    def end(self) -> int:
        return self.entries[-1].offset + self.entries[-1].count if self.entries else 0

    def sequence(self, producer_id: int) -> int:
        return sum(
            each.count
            for each in self.entries
            if each.producer_id == producer_id and each.marker is None
        )

    def decided(self) -> tuple[dict[int, int], list[int]]:
        """First offset of each open transaction by producer, and the committed offsets in order."""
        first: dict[int, int] = {}
        data: dict[int, list[int]] = {}
        committed: list[int] = []
        for each in self.entries:
            offsets = range(each.offset, each.offset + each.count)
            if each.producer_id < 0:
                committed += offsets
            elif each.marker is None:
                first.setdefault(each.producer_id, each.offset)
                data.setdefault(each.producer_id, []).extend(offsets)
            else:
                first.pop(each.producer_id, None)
                committed += data.pop(each.producer_id, []) if each.marker else []
                data.pop(each.producer_id, None)
        return first, sorted(committed)

    def cut(self, offset: int) -> None:
        self.entries = [each for each in self.entries if each.offset + each.count <= offset]


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="kbroker-transactions-"))
        self.model = Model()
        self.trimmed = False
        self.epoch = 0
        self.log = self._open(Checkpointed(clean=False))

    def _open(self, checkpointed: Checkpointed) -> LedLog:
        log = open_led_log(self.root / "words-0", "words", 0, TOPIC_ID, {}, checkpointed)
        log.set_leadership(1, True, self.epoch, 1)
        return log

    def teardown(self) -> None:
        self.log.close(clean=False)
        shutil.rmtree(self.root)

    def _append(self, producer_id: int, count: int) -> None:
        records = [Record(value=b"v", timestamp_ms=NOW_MS)] * count
        how: dict[str, Any] = {}
        if producer_id >= 0:
            how = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": self.model.sequence(producer_id),
                "attributes": TRANSACTIONAL,
            }
        result = self.log.append(build_batch(records, **how), guard=-1, now_ms=NOW_MS)
        assert result.base_offset == self.model.end
        self.model.entries.append(Entry(result.base_offset, count, producer_id))

    @rule(producer_id=st.sampled_from((*PRODUCERS, -1)), count=st.integers(1, 3))
    def append(self, producer_id: int, count: int) -> None:
        self._append(producer_id, count)

    @rule(producer_id=st.sampled_from(PRODUCERS), committed=st.booleans())
    def end(self, producer_id: int, committed: bool) -> None:
        appended = self.log.append_marker(
            producer_id, 0, 0, committed=committed, transaction_version=0, now_ms=NOW_MS
        )
        assert (appended.error, appended.offset) == (ErrorCode.NONE, self.model.end)
        self.model.entries.append(Entry(appended.offset, 1, producer_id, committed))

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)
        self.log.flush_rolled()

    @precondition(lambda self: not self.trimmed)
    @rule(share=st.floats(0.5, 1))
    def truncate(self, share: float) -> None:
        offset = self.model.start + int(share * (self.model.end - self.model.start))
        self.epoch += 1
        self.log.set_leadership(2, False, self.epoch, 1)
        self.log.truncate_to(offset)
        self.model.cut(offset)
        self.model.start = min(self.model.start, self.model.end)
        self.epoch += 1
        self.log.set_leadership(1, True, self.epoch, 1)

    @rule(share=st.floats(0, 0.5))
    def delete(self, share: float) -> None:
        offset = self.model.start + int(share * (self.model.end - self.model.start))
        self.log.delete_records(offset)
        self.model.start = offset

    @rule()
    def trim(self) -> None:
        for path in self.log.trim():
            path.unlink(missing_ok=True)  # a segment may have come and gone twice
        self.trimmed = min(int(path.stem) for path in self.log.path.glob("*.log")) > 0

    @rule(clean=st.booleans(), snapshots=st.booleans(), indexes=st.booleans())
    def restart(self, clean: bool, snapshots: bool, indexes: bool) -> None:
        clean |= self.trimmed
        high_watermark = self.log.high_watermark
        self.log.close(clean=clean)
        if not snapshots and not self.trimmed:
            for path in self.log.path.glob("*.snapshot"):
                path.unlink()
        if not indexes and not clean:  # of which a crash may leave anything
            for path in self.log.path.glob("*.txnindex"):
                path.unlink()
        self.log = self._open(
            Checkpointed(
                clean,
                self.model.end if clean else 0,
                high_watermark,
                self.model.start,
            )
        )

    @invariant()
    def the_log_says_the_same(self) -> None:
        log, model = self.log, self.model
        first, committed = model.decided()
        stable = max(model.start, min(first.values(), default=model.end))
        assert (log.log_end_offset, log.high_watermark) == (model.end, model.end)
        assert log.last_stable_offset == stable
        known = {
            each.producer_id: each.transaction_first_offset
            for each in log.producer_entries()[1]
            if each.transaction_first_offset >= 0
        }
        assert known == first
        assert self._consumed() == [
            offset for offset in committed if model.start <= offset < stable
        ]

    def _consumed(self) -> list[int]:
        """The offsets that a read_committed consumer gets."""
        offset = self.log.log_start_offset
        seen: list[int] = []
        while data := self.log.read(offset, 200, read_committed=True):
            waiting = sorted(aborted_transactions(self.log, offset, 200), key=lambda each: each[1])
            skipped: set[int] = set()
            for batch in parse_batches(data):
                while waiting and waiting[0][1] <= batch.last_offset:
                    skipped.add(waiting.pop(0)[0])
                if batch.attributes & CONTROL:
                    skipped.discard(batch.producer_id)
                elif not (batch.attributes & TRANSACTIONAL and batch.producer_id in skipped):
                    seen += range(batch.base_offset, batch.last_offset + 1)
                offset = batch.last_offset + 1
        return [each for each in seen if each >= self.log.log_start_offset]


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
