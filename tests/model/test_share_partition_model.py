"""A share-partition with members that come and go, a share coordinator that fails, and leaders that
follow each other, beside a simple account of the answers that members got.

The invariants are those of docs/adr/0059: an offset is with one member at a time, and only that one
acknowledges it, before its lock ends (K1); in the end each record is acknowledged or archived, and
the window is empty (K2); no record is delivered more often than is allowed, and its count grows
by each that counts (K3); the start never moves back, and lies before the end (K4); what was
acknowledged, and answered with NONE, is never delivered again, whatever leader comes (K5); the
window is bounded (K6); a write counts what is done (K8).
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kbroker.errors import ErrorCode
from kbroker.replica.share.acknowledging import Acknowledgement, acknowledge, check
from kbroker.replica.share.acquiring import LogBatch, Timed, Wanted, acquire
from kbroker.replica.share.partition import Settings, SharePartition
from kbroker.replica.share.ranges import NONE
from kbroker.replica.share.spared import SPARED_MAX
from kbroker.replica.share.states import NO_CAUSE, RENEW_TYPE, State
from kbroker.replica.share.writes import StoredBatch, Write
from tests.unit.replica.share.world import copy

SETTINGS: Final = Settings(lock_ms=100, deliveries=4, window=12)
OWNERS: Final = (1, 2, 3)
RELEASE: Final = 2
FAILURES: Final = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)


class Coordinator:
    """The share coordinator: the state that it keeps, an offset at a time."""

    def __init__(self) -> None:
        self.start = 0
        self.kept: dict[int, tuple[int, int]] = {}

    def apply(self, write: Write) -> None:
        self.start = write.start_offset
        for first, last, state, count in write.batches:
            for at in range(first, last + 1):
                before = self.kept.get(at)
                if before is None or (count, state) > (before[1], before[0]):
                    self.kept[at] = (state, count)
        self.kept = {at: what for at, what in self.kept.items() if at >= self.start}

    def batches(self) -> list[StoredBatch]:
        return [StoredBatch(at, at, *self.kept[at]) for at in sorted(self.kept)]


class SharePartitionMachine(RuleBasedStateMachine):
    group = SETTINGS

    def __init__(self) -> None:
        super().__init__()
        self.partition = SharePartition(0)
        self.coordinator = Coordinator()
        self.log: list[LogBatch] = []
        self.aborted: list[LogBatch] = []
        self.end = 0  # of the log: the high watermark
        self.now_ms = 0
        self.write: Write | None = None
        self.tokens = 0
        # By token: who acknowledged which offsets, and how.
        self.asked: dict[int, tuple[int, range, int]] = {}
        self.held: dict[int, tuple[int, int]] = {}  # offset -> owner, when its lock ends
        self.acquired_ms: dict[int, int] = {}
        self.waits_until_ms: dict[int, int] = {}  # of those that were released
        self.spared: Counter[int] = Counter()
        self.counts: dict[int, int] = {}  # offset -> the count of its last delivery by this leader
        self.finished: set[int] = set()
        self.start_before = 0

    # --- The log ----------------------------------------------------------------------------------

    @rule(size=st.integers(1, 8), gap=st.sampled_from((0, 0, 0, 1, 30)), aborts=st.booleans())
    def append(self, size: int, gap: int, aborts: bool) -> None:
        base = self.end + gap
        batch = LogBatch(base, base + size - 1)
        self.log.append(batch)
        if aborts and size > 4:
            self.aborted.append(batch)
        self.end = base + size

    @precondition(lambda self: len(self.log) > 1)
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        """A batch of the log loses its records."""
        del self.log[data.draw(st.integers(0, len(self.log) - 2))]

    @rule(offset=st.integers(0, 200))
    def delete_records(self, offset: int) -> None:
        start = min(offset, self.end)
        self.log = [batch for batch in self.log if batch.last_offset >= start]
        self.partition.log_starts_at(start)

    # --- Members ----------------------------------------------------------------------------------

    @rule(owner=st.sampled_from(OWNERS), records=st.integers(1, 12), exactly=st.booleans(),
          batches=st.integers(1, 4), size=st.integers(1, 9))  # fmt: skip
    def fetch(self, owner: int, records: int, exactly: bool, batches: int, size: int) -> None:
        read_from = self.partition.next_offset(self.group)
        if read_from is None:
            return
        found = [batch for batch in self.log if batch.last_offset >= read_from][:batches]
        aborted = [batch for batch in found if batch in self.aborted]
        timed = self._timed(found)
        given = acquire(
            self.partition, owner, read_from, found, Wanted(records, size, exactly), self.group,
            self.now_ms, aborted, timed,
        )  # fmt: skip
        offsets = [at for one in given for at in range(one.first_offset, one.last_offset + 1)]
        assert offsets == sorted(set(offsets))
        if exactly:
            assert len(offsets) <= records
        for one in given:
            assert found[0].base_offset <= one.first_offset
            assert one.last_offset <= found[-1].last_offset
            for at in range(one.first_offset, one.last_offset + 1):
                holder, until_ms = self.held.get(at, (0, 0))
                assert holder == 0 or until_ms <= self.now_ms  # K1
                assert at not in self.finished  # K5
                assert self.waits_until_ms.get(at, 0) <= self.now_ms
                assert self.counts.get(at, 0) < one.delivery_count <= self.group.deliveries  # K3
                assert at not in self.counts or one.delivery_count == self.counts[at] + 1
                assert not any(b.base_offset <= at <= b.last_offset for b in aborted)
                assert not any(each.first_offset == at for each in timed)
                self.counts[at] = one.delivery_count
                self.held[at] = owner, self.now_ms + self.group.lock_ms
                self.acquired_ms[at] = self.now_ms

    def _timed(self, found: list[LogBatch]) -> list[Timed]:
        """The first records of some batches have times."""
        if not self.group.heeds_times:
            return []
        kept_back = []
        for at in (batch.base_offset for batch in found):
            if at % 7 == 1:
                kept_back.append(Timed(at, at, None))
            elif at % 3 == 0 and self.now_ms < 10 * at:
                kept_back.append(Timed(at, at, 10 * at))
        return kept_back

    @rule(owner=st.sampled_from(OWNERS), first=st.integers(-2, 14), length=st.integers(1, 6),
          kind=st.integers(0, 4), other=st.integers(0, 4))  # fmt: skip
    def acknowledge(self, owner: int, first: int, length: int, kind: int, other: int) -> None:
        first = max(0, self.partition.start + first)
        last = first + length - 1
        types = [kind] * (length - 1) + [other]
        batch = Acknowledgement(first, last, types)
        assert check([batch], renews=True) is ErrorCode.NONE
        start, before = self.partition.start, copy(self.partition)
        self.tokens += 1
        outcome = acknowledge(self.partition, owner, [batch], self.group, self.now_ms, self.tokens)
        offsets = range(max(first, start), last + 1)
        if outcome.code not in (None, ErrorCode.NONE):
            if not outcome.released:
                assert copy(self.partition) == before
            return
        for at in offsets:  # K1
            holder, until_ms = self.held[at]
            assert holder == owner
            assert until_ms > self.now_ms
            if types[at - first] == RENEW_TYPE:
                self.held[at] = owner, self.now_ms + self.group.lock_ms
        if outcome.code is None:
            for at in offsets:
                if types[at - first] != RENEW_TYPE:
                    key = self.tokens * 100 + at - offsets.start
                    self.asked[key] = owner, range(at, at + 1), types[at - first]

    @rule(owner=st.sampled_from(OWNERS), first=st.integers(0, 12), length=st.integers(1, 6))
    def give_back(self, owner: int, first: int, length: int) -> None:
        """The answer with them did not leave: their members know nothing of it."""
        first += self.partition.start
        waiting = {at for _, offsets, _ in self.asked.values() for at in offsets}
        self.partition.give_back(owner, first, first + length - 1)
        for at in range(first, first + length):
            holder, until_ms = self.held.get(at, (0, 0))
            if holder == owner and until_ms > self.now_ms and at not in waiting:
                del self.held[at]
                self.counts[at] -= 1

    @rule(owner=st.sampled_from(OWNERS), short_ms=st.sampled_from((0, 20)))
    def end_session(self, owner: int, short_ms: int) -> None:
        """Where it is short, records that the owner has had for less do not count, twice each."""
        waiting = {at for _, offsets, _ in self.asked.values() for at in offsets}
        for at, (holder, _) in self.held.items():
            is_short = self.acquired_ms[at] > self.now_ms - short_ms
            if holder == owner and at not in waiting and is_short and self.spared[at] < SPARED_MAX:
                self.spared[at] += 1
                self.counts[at] -= 1
        settings = self.group._replace(short_ms=short_ms)
        self.partition.end_session(owner, settings, self.now_ms)
        self.held = {
            at: held for at, held in self.held.items() if held[0] != owner or at in waiting
        }

    @rule(ms=st.sampled_from((1, 10, 60, 100, 250)))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.partition.end_locks(self.now_ms, self.group)
        deadline_ms = self.partition.next_deadline_ms
        assert deadline_ms is None or deadline_ms > self.now_ms

    @rule(count=st.integers(1, 5), skips=st.booleans())
    def copy_dead_letters(self, count: int, skips: bool) -> None:
        for one in self.partition.to_copy(count)[int(skips) :]:
            self.partition.copied(one.first_offset, one.last_offset, self.group)

    # --- The share coordinator --------------------------------------------------------------------

    @precondition(lambda self: self.write is None)
    @rule()
    def begin_write(self) -> None:
        self.write = self.partition.take_write()
        if self.write is not None:
            terminal = {
                at
                for one in copy(self.partition)
                for at in range(one.first, one.last + 1)
                if one.state in (State.ACKNOWLEDGED, State.ARCHIVED)
                or (one.flags and one.target in (State.ACKNOWLEDGED, State.ARCHIVED))
            }
            assert self.write.complete == len(terminal)  # K8
            assert self.write.start_offset == self.partition.start

    @precondition(lambda self: self.write is not None)
    @rule(fails=st.sampled_from((None, None, None, *FAILURES)), is_applied=st.booleans())
    def end_write(self, fails: ErrorCode | None, is_applied: bool) -> None:
        assert self.write is not None
        if fails is None or is_applied:
            self.coordinator.apply(self.write)
        self.write = None
        written = self.partition.written(fails or ErrorCode.NONE, self.group, self.now_ms)
        for token in written.tokens:
            self._answered(token, written.code)

    def _answered(self, token: int, code: ErrorCode) -> None:
        for key in [key for key in self.asked if key // 100 == token]:
            _, offsets, kind = self.asked.pop(key)
            if code is not ErrorCode.NONE:
                continue
            for at in offsets:
                self.held.pop(at, None)
                if kind != RELEASE:
                    self.finished.add(at)
                elif self.group.delay_ms and at >= self.partition.start:
                    delay_ms = self.group.delay_after(self.counts[at])
                    self.waits_until_ms[at] = self.now_ms + delay_ms

    @rule(is_applied=st.booleans())
    def another_leader(self, is_applied: bool) -> None:
        """It reads the state that is kept; a write that was under way may be in it, or not."""
        if self.write is not None and is_applied:
            self.coordinator.apply(self.write)
        for token in self.partition.forget_write():
            self._answered(token, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.asked.clear()
        self.write = None
        self.held.clear()
        self.counts.clear()
        self.spared.clear()
        self.waits_until_ms.clear()
        log_start = self.log[0].base_offset if self.log else self.end
        self.partition, writes = SharePartition.load(
            self.coordinator.start, self.coordinator.batches(), log_start, self.end
        )
        assert writes == ()
        self.start_before = 0

    # --- Invariants -------------------------------------------------------------------------------

    @invariant()
    def the_window_is_whole(self) -> None:
        partition, expected = self.partition, self.partition.start
        terminal = 0
        offsets: Counter[State] = Counter()
        for one in copy(partition):
            assert one.first == expected
            assert one.last >= one.first
            assert (one.state == State.ACQUIRED) == (one.owner != 0)
            assert one.state == State.ACQUIRED or one.target == NONE
            assert 0 <= one.deliveries <= self.group.deliveries
            if one.state in (State.ACKNOWLEDGED, State.ARCHIVED):
                terminal += one.last - one.first + 1
            offsets[one.state] += one.last - one.first + 1
            assert one.cause == NO_CAUSE or State.ARCHIVING in (one.state, one.target)
            expected = one.last + 1
        assert expected == partition.end + 1
        assert terminal == partition.terminal  # K8
        assert offsets[State.ACQUIRED] == partition.acquired <= self.group.window
        assert offsets[State.ARCHIVING] == partition.archiving
        assert offsets[State.DELAYED] == partition.delayed

    @invariant()
    def the_start_moves_on(self) -> None:
        """K4, K6."""
        partition = self.partition
        assert self.start_before <= partition.start <= partition.end + 1 <= max(
            self.end, partition.start
        )  # fmt: skip
        self.start_before = partition.start
        if not self.group.delay_ms:  # when many delays end, it is exceeded
            assert partition.in_flight <= self.group.window
        first = copy(partition)[:1]
        assert not first or first[0].state not in (State.ACKNOWLEDGED, State.ARCHIVED)

    def teardown(self) -> None:
        """K2: once the coordinator answers and one member works, nothing stays."""
        if self.write is not None:
            self.end_write(None, True)
        for _ in range(10 * (self.end + 10)):
            self.now_ms += self.group.lock_ms
            self.partition.end_locks(self.now_ms, self.group)
            self.copy_dead_letters(1_000, False)
            self.begin_write()
            if self.write is not None:
                self.end_write(None, True)
            self.fetch(1, 5, False, 3, 5)
            for one in copy(self.partition):
                if one.owner == 1:
                    batch = Acknowledgement(one.first, one.last, [1])
                    self.tokens += 1
                    assert acknowledge(
                        self.partition, 1, [batch], self.group, self.now_ms, self.tokens
                    ).code is None  # fmt: skip
            self.begin_write()
            if self.write is not None:
                self.end_write(None, True)
            last = max((batch.last_offset for batch in self.log), default=-1)
            if self.partition.in_flight == 0 and self.partition.start > last:
                return
        raise AssertionError(f"records stay: {copy(self.partition)}")


class WaitingMachine(SharePartitionMachine):
    """Released records wait, some have times, and those that are given up have copies."""

    group = SETTINGS._replace(copies=True, delay_ms=15, delay_ms_max=50, heeds_times=True)


EXAMPLES: Final = settings(
    max_examples=int(os.environ.get("KBROKER_SHARE_EXAMPLES", "30")),
    stateful_step_count=60,
    deadline=None,
)
TestSharePartition = SharePartitionMachine.TestCase
TestSharePartition.settings = EXAMPLES
TestWaiting = WaitingMachine.TestCase
TestWaiting.settings = EXAMPLES
