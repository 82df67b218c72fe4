"""A marker goes when the batches before it have gone, and who read those had time to read it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kbroker.log.looking.verify import verify
from kbroker.log.upkeep._cleaning import Cleaning
from kbroker.replica._committed_read import aborted_transactions
from tests.support.record_batches import ParsedBatch, parse_batches
from tests.unit.log.compacted_log import CONTROL, NOW_MS, RETENTION_MS, TRANSACTIONAL, Compacted

HORIZON = 0x40


def test_a_marker_goes_after_its_data_and_the_retention(compacted: Compacted) -> None:
    compacted.append(b"a", 7)
    aborted = compacted.end(7, committed=False)
    compacted.append(b"b", 8)
    committed = compacted.end(8, committed=True)
    compacted.append(b"b")
    compacted.append(b"c", 7)
    kept = compacted.end(7, committed=True)
    compacted.clean()
    # The data of the first goes; the second one's is there without records, for its sequence.
    assert compacted.markers() == [aborted, committed, kept]
    assert aborted_transactions(compacted.log, 0) == [(7, 0)]
    compacted.clean()
    marker = next(each for each in compacted.batches() if each.base_offset == aborted)
    assert marker.attributes == TRANSACTIONAL | CONTROL | HORIZON
    assert marker.base_timestamp_ms == compacted.clock.wall_ms() + RETENTION_MS
    assert (marker.max_timestamp_ms, marker.records[0].timestamp_ms) == (NOW_MS, NOW_MS)
    compacted.clean(RETENTION_MS - 1)
    assert compacted.markers() == [aborted, committed, kept]
    assert aborted_transactions(compacted.log, 0) == [(7, 0)]
    compacted.clean(1)
    assert compacted.markers() == [committed, kept]
    assert aborted_transactions(compacted.log, 0) == []
    assert not list(compacted.log.path.glob("*.txnindex"))
    # Its producer goes on: the empty batch is needed no more, and then the marker is not.
    compacted.append(b"d", 8)
    last = compacted.end(8, committed=True)
    for later_ms in (0, 0, RETENTION_MS):
        assert compacted.markers() == [committed, kept, last]
        compacted.clean(later_ms)
    assert compacted.markers() == [kept, last]
    assert [key for _, key in compacted.keyed()] == [b"b", b"c", b"d"]
    assert not verify(compacted.log.path).damage


def test_a_marker_by_which_an_epoch_is_known_stays(compacted: Compacted) -> None:
    compacted.append(b"a", 7)
    marker = compacted.end(7, committed=False, bumps=True)
    compacted.append(b"a")
    for _ in range(4):
        compacted.clean(RETENTION_MS)
    assert compacted.markers() == [marker]
    assert aborted_transactions(compacted.log, 0) == [(7, 0)]
    compacted.append(b"b", 7)
    last = compacted.end(7, committed=True, bumps=True)
    compacted.clean()
    compacted.clean(RETENTION_MS)
    assert compacted.markers() == [last]


def test_a_transaction_without_data_leaves_after_two_cleanings(compacted: Compacted) -> None:
    compacted.append(b"a", 7)
    compacted.end(7, committed=True)
    compacted.end(7, committed=True)
    compacted.end(8, committed=False)
    compacted.append(b"b", 8)
    compacted.end(8, committed=True)
    compacted.clean()
    assert compacted.markers() == [1, 2, 3, 5]
    compacted.clean(RETENTION_MS)
    assert compacted.markers() == [1, 5]


def test_the_last_that_is_cleaned_leaves_the_end_of_the_log(compacted: Compacted) -> None:
    compacted.append(b"a")
    compacted.end(7, committed=True)
    compacted.append(b"b", 7)
    compacted.end(7, committed=True)
    compacted.end(9, committed=True)  # of a producer that is forgotten
    compacted.log.expire_producers(NOW_MS + 1)
    compacted.clean()
    compacted.clean(RETENTION_MS)
    assert compacted.batches()[-1].last_offset == compacted.log.log_end_offset - 1 == 4
    assert compacted.batches()[-1].record_count == 0
    compacted.stop()
    compacted.start()
    assert compacted.log.log_end_offset == 5


def test_a_segment_as_large_as_there_can_be(compacted: Compacted) -> None:
    """A delete horizon makes a marker larger: where that does not fit it waits."""
    for producer_id in (7, 8, 9):
        compacted.end(producer_id, committed=True)
    compacted.append(b"a")
    compacted.log.roll()
    path = compacted.log.path / f"{0:020d}.log"
    data = path.read_bytes()

    def cleaned(more_bytes: int) -> list[int]:
        """Offsets of the markers with a horizon."""
        cleaning = Cleaning(
            compacted.log.log, 0, 4, map_bytes_max=1 << 20, load_factor=0.9, now_ms=NOW_MS,
            delete_retention_ms=RETENTION_MS, segment_bytes_max=len(data) + more_bytes,
        )  # fmt: skip
        while cleaning.map_keys(1 << 20):
            pass
        ((first, end),) = cleaning.groups(1 << 30)
        cleaning.begin_group(first, end)
        while cleaning.clean(1 << 20):
            pass
        cleaning.finish()
        fresh = parse_batches((path.parent / f"{path.name}.cleaned").read_bytes())
        cleaning.give_up()
        return [each.base_offset for each in fresh if each.attributes & HORIZON]

    assert cleaned(1000) == [0, 1, 2]
    assert cleaned(10) == [0]
    assert cleaned(9) == []


class Cleaned(RuleBasedStateMachine):
    """Whatever is appended, ended, cleaned and started again: of the committed records each key's
    last is read, and of the aborted none."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="kbroker-markers-"))
        self.compacted = Compacted(self.root / "data")
        self.last: dict[bytes, int] = {}  # by key, of committed records
        self.committed: set[int] = set()
        self.open: dict[int, list[tuple[int, bytes]]] = {}

    def teardown(self) -> None:
        for producer_id in list(self.open):
            self.end(producer_id, committed=False, bumps=False)
        self.append(b"a", -1)
        for _ in range(3):
            self.compacted.clean(RETENTION_MS)
        self.reads_what_is_committed()
        self._markers_have_data()
        self.compacted.stop()
        shutil.rmtree(self.root)

    @rule(key=st.sampled_from((b"a", b"b", b"c")), producer_id=st.sampled_from((7, 8, -1)))
    def append(self, key: bytes, producer_id: int) -> None:
        offset = self.compacted.append(key, producer_id)
        if producer_id >= 0:
            self.open.setdefault(producer_id, []).append((offset, key))
        else:
            self._commit([(offset, key)])

    @rule(producer_id=st.sampled_from((7, 8)), committed=st.booleans(), bumps=st.booleans())
    def end(self, producer_id: int, committed: bool, bumps: bool) -> None:
        self.compacted.end(producer_id, committed=committed, bumps=bumps)
        data = self.open.pop(producer_id, [])
        if committed:
            self._commit(data)

    def _commit(self, data: list[tuple[int, bytes]]) -> None:
        for offset, key in data:
            self.committed.add(offset)
            self.last[key] = max(offset, self.last.get(key, -1))

    @rule()
    def roll(self) -> None:
        self.compacted.log.roll()

    @rule(later_ms=st.sampled_from((0, RETENTION_MS)))
    def clean(self, later_ms: int) -> None:
        self.compacted.clean(later_ms)

    @rule()
    def restart(self) -> None:
        self.compacted.stop()
        self.compacted.start()

    @invariant()
    def reads_what_is_committed(self) -> None:
        log = self.compacted.log
        stable = log.last_stable_offset
        assert stable == min(
            (data[0][0] for data in self.open.values()), default=log.log_end_offset
        )
        seen = {*self._consumed()}
        assert seen <= self.committed
        assert {offset for offset in self.last.values() if offset < stable} <= seen

    def _consumed(self) -> list[int]:
        """As a read_committed consumer does: where an entry has no marker it would drop what the
        producer writes later."""
        log = self.compacted.log
        offset = log.log_start_offset
        seen: list[int] = []
        while data := log.read(offset, read_committed=True):
            waiting = aborted_transactions(log, offset)
            skipped: set[int] = set()
            for batch in parse_batches(data):
                skipped |= {each[0] for each in waiting if each[1] <= batch.last_offset}
                waiting = [each for each in waiting if each[1] > batch.last_offset]
                if batch.attributes & CONTROL:
                    if batch.record_count and batch.records[0].key == b"\0\0\0\0":
                        skipped.discard(batch.producer_id)
                elif not (batch.attributes & TRANSACTIONAL and batch.producer_id in skipped):
                    seen += [batch.base_offset] * batch.record_count
                offset = batch.last_offset + 1
        return seen

    def _markers_have_data(self) -> None:
        """After three cleanings there is no useless one."""
        known = {
            each.producer_id: (each.last_offset, each.producer_epoch)
            for each in self.compacted.log.producer_entries()[1]
        }
        with_data: set[int] = set()
        for batch in self.compacted.batches()[:-1]:
            if not batch.attributes & CONTROL:
                with_data |= {batch.producer_id} if batch.attributes & TRANSACTIONAL else set()
                continue
            needed = batch.producer_id in with_data or (-1, batch.producer_epoch) == known.get(
                batch.producer_id
            )
            assert needed, _shown(batch)
            with_data.discard(batch.producer_id)


def _shown(batch: ParsedBatch) -> tuple[int, int, int]:
    return batch.base_offset, batch.producer_id, batch.producer_epoch


TestCleaned = Cleaned.TestCase
TestCleaned.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
