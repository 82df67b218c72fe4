"""The time wheel against a sorted list, over any order of adding, cancelling and turning."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from kbroker.purgatory.time_wheel import TimeWheel, WheelEntry

# Distances around every edge of the first wheels, and far ones.
DISTANCES = st.one_of(
    st.integers(-5, 25),
    st.sampled_from([19, 20, 21, 39, 40, 399, 400, 401, 7_999, 8_000, 8_001, 159_999, 160_000]),
    st.integers(0, 10_000_000),
)


class WheelMachine(RuleBasedStateMachine):
    entries = Bundle("entries")

    def __init__(self) -> None:
        super().__init__()
        self.now = 123
        self.wheel = TimeWheel(self.now)
        self.waiting: list[tuple[int, WheelEntry]] = []

    @rule(target=entries, distance=DISTANCES)
    def add(self, distance: int) -> WheelEntry:
        entry = WheelEntry()
        turn_at = self.wheel.add(entry, self.now + distance)
        due = max(self.now + distance, self.now + 1)
        assert self.now < turn_at <= due
        self.waiting.append((due, entry))
        return entry

    @rule(entry=entries)
    def remove(self, entry: WheelEntry) -> None:
        waits = any(waiting is entry for _, waiting in self.waiting)
        assert self.wheel.remove(entry) == waits
        self.waiting = [pair for pair in self.waiting if pair[1] is not entry]

    @rule(distance=DISTANCES)
    def advance(self, distance: int) -> None:
        self.turn_to(self.now + distance)

    @rule()
    def advance_to_next_due(self) -> None:
        due = self.wheel.next_due()
        if due is not None:
            self.turn_to(due)

    def turn_to(self, tick: int) -> None:
        self.now = max(self.now, tick)
        expired = self.wheel.advance(tick)
        self.waiting.sort(key=lambda pair: pair[0])
        due = [pair for pair in self.waiting if pair[0] <= self.now]
        self.waiting = self.waiting[len(due) :]
        assert [entry.due_tick for entry in expired] == [tick for tick, _ in due]
        assert {id(entry) for entry in expired} == {id(entry) for _, entry in due}

    @invariant()
    def agrees(self) -> None:
        assert len(self.wheel) == len(self.waiting)
        assert self.wheel.hand == self.now
        due = self.wheel.next_due()
        if not self.waiting:
            assert due is None
        else:
            assert due is not None
            assert self.now < due <= min(tick for tick, _ in self.waiting)
        assert self.wheel.buckets_in_use <= 20 * self.wheel.depth


TestTimeWheel = WheelMachine.TestCase
TestTimeWheel.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
