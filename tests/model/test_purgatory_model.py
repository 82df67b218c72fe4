"""The purgatory against a naive model: lists that are searched, and a clock that is compared."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from kbroker.clock import ManualClock
from kbroker.purgatory.delayed_operation import DelayedOperation
from kbroker.purgatory.purgatory import Purgatory
from kbroker.purgatory.timer import Timer

KEYS = st.integers(0, 4)


class WaitsForLevel(DelayedOperation):
    """Over when every key it watches has reached its level."""

    def __init__(self, delay_ms: int, wanted: dict[int, int], levels: dict[int, int]) -> None:
        super().__init__(delay_ms)
        self.wanted = wanted
        self.levels = levels
        self.ended: list[str] = []

    def try_complete(self) -> bool:
        if any(self.levels[key] < level for key, level in self.wanted.items()):
            return False
        return self.force_complete()

    def on_complete(self) -> None:
        self.ended.append("complete")

    def on_expiration(self) -> None:
        self.ended.append("expiration")


@dataclass
class Expected:
    operation: WaitsForLevel
    deadline_ms: int
    ended: list[str] = field(default_factory=list)

    def satisfied(self, levels: dict[int, int]) -> bool:
        return all(levels[key] >= level for key, level in self.operation.wanted.items())


class PurgatoryMachine(RuleBasedStateMachine):
    operations = Bundle("operations")

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.timer = Timer(self.clock)
        self.purgatory = Purgatory("model", self.timer)
        self.levels = dict.fromkeys(range(5), 0)
        self.all: list[Expected] = []

    def parked(self) -> list[Expected]:
        return [expected for expected in self.all if not expected.ended]

    @rule(
        target=operations,
        delay_ms=st.sampled_from([0, 1, 5, 19, 20, 21, 500, 30_000]),
        wanted=st.dictionaries(KEYS, st.integers(0, 6), min_size=1),
    )
    def park(self, delay_ms: int, wanted: dict[int, int]) -> Expected:
        operation = WaitsForLevel(delay_ms, wanted, self.levels)
        expected = Expected(operation, self.clock.monotonic_ms() + delay_ms)
        ended = self.purgatory.try_complete_else_watch(operation, list(wanted))
        if expected.satisfied(self.levels):
            expected.ended = ["complete"]
        elif delay_ms == 0:
            expected.ended = ["complete", "expiration"]
        assert ended == bool(expected.ended)
        self.all.append(expected)
        return expected

    @rule(key=KEYS, by=st.integers(0, 3))
    def event(self, key: int, by: int) -> None:
        self.levels[key] += by
        count = 0
        for expected in self.parked():
            if key in expected.operation.wanted and expected.satisfied(self.levels):
                expected.ended = ["complete"]
                count += 1
        assert self.purgatory.check_and_complete(key) == count

    @rule(key=KEYS, by=st.integers(1, 3))
    def silent_change(self, key: int, by: int) -> None:
        """No notice: only the timeout, or another key's event, can end an operation on it."""
        self.levels[key] += by

    @rule(ms=st.sampled_from([1, 4, 15, 20, 399, 400, 29_500]))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)
        due = [e for e in self.parked() if e.deadline_ms <= self.clock.monotonic_ms()]
        for expected in due:
            expected.ended = ["complete", "expiration"]
        assert self.timer.advance() == len(due)

    @rule(expected=operations)
    def force(self, expected: Expected) -> None:
        assert expected.operation.force_complete() == (not expected.ended)
        expected.ended = expected.ended or ["complete"]

    @invariant()
    def agrees(self) -> None:
        parked = self.parked()
        for expected in self.all:
            assert expected.operation.ended == expected.ended
        assert self.purgatory.delayed == len(parked) == len(self.timer)
        assert self.purgatory.watched == sum(len(e.operation.wanted) for e in parked)
        watched_keys = {key for e in parked for key in e.operation.wanted}
        assert self.purgatory.statistics()["keys"] == len(watched_keys)


TestPurgatory = PurgatoryMachine.TestCase
TestPurgatory.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
