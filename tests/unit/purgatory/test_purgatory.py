"""The purgatory: the ends of operations, which leave nothing, and races made by hand."""

from __future__ import annotations

import logging
from collections.abc import Hashable

import pytest

from kbroker.clock import ManualClock
from kbroker.purgatory.purgatory import Purgatory
from kbroker.purgatory.timer import Timer
from tests.unit.purgatory.test_delayed_operation import Probe


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timer(clock: ManualClock) -> Timer:
    return Timer(clock)


@pytest.fixture
def purgatory(timer: Timer) -> Purgatory:
    return Purgatory("test", timer)


def empty(purgatory: Purgatory, timer: Timer) -> bool:
    return (purgatory.delayed, purgatory.watched, purgatory.statistics()["keys"], len(timer)) == (
        0, 0, 0, 0,
    )  # fmt: skip


def test_an_operation_that_can_end_now_is_not_parked(purgatory: Purgatory, timer: Timer) -> None:
    operation = Probe()
    operation.ready = True
    assert purgatory.try_complete_else_watch(operation, ["a"])
    assert (operation.looks, operation.ends) == (1, ["complete"])
    assert purgatory.statistics()["parked_total"] == 0
    assert empty(purgatory, timer)


def test_an_event_on_any_key_ends_it_and_clears_all_keys(
    purgatory: Purgatory, timer: Timer
) -> None:
    operation, other = Probe(), Probe()
    assert not purgatory.try_complete_else_watch(operation, ["a", "b", "c"])
    assert not purgatory.try_complete_else_watch(other, ["b"])
    assert (purgatory.delayed, purgatory.watched, len(timer)) == (2, 4, 2)
    assert purgatory.check_and_complete("b") == 0
    operation.ready = True
    assert purgatory.check_and_complete("no key") == 0
    assert purgatory.check_and_complete("b") == 1
    assert (purgatory.delayed, purgatory.watched, len(timer)) == (1, 1, 1)
    assert purgatory.check_and_complete("a") == 0
    other.ready = True
    assert purgatory.check_and_complete("b") == 1
    assert empty(purgatory, timer)
    assert (operation.ends, other.ends) == (["complete"], ["complete"])


def test_the_timeout_ends_it_and_clears_all_keys(
    purgatory: Purgatory, timer: Timer, clock: ManualClock
) -> None:
    operation = Probe(delay_ms=30)
    purgatory.try_complete_else_watch(operation, ["a", "b"])
    clock.advance(29)
    assert timer.advance() == 0
    clock.advance(1)
    assert timer.advance() == 1
    assert operation.ends == ["complete", "expiration"]
    assert purgatory.statistics()["expired_total"] == 1
    assert empty(purgatory, timer)


@pytest.mark.parametrize("delay_ms", [0, -1])
def test_without_a_wait_it_expires_at_once(
    purgatory: Purgatory, timer: Timer, delay_ms: int
) -> None:
    operation = Probe(delay_ms)
    assert purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.ends == ["complete", "expiration"]
    assert empty(purgatory, timer)


def test_a_change_between_the_look_and_the_watch_is_seen(
    purgatory: Purgatory, timer: Timer
) -> None:
    class Missed(Probe):
        """Its event comes right after the first look, when nothing is under the key yet."""

        def try_complete(self) -> bool:
            done = super().try_complete()
            if self.looks == 1:
                self.ready = True
                assert purgatory.check_and_complete("a") == 0
            return done

    operation = Missed()
    assert purgatory.try_complete_else_watch(operation, ["a"])
    assert (operation.looks, operation.ends) == (2, ["complete"])
    assert empty(purgatory, timer)


def test_an_end_from_outside_while_it_is_parked_leaves_nothing(
    purgatory: Purgatory, timer: Timer
) -> None:
    class Torn(Probe):
        def try_complete(self) -> bool:
            self.looks += 1
            self.force_complete()
            return False  # another thread ended it, as far as this look can tell

    operation = Torn()
    assert purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert operation.ends == ["complete"]
    assert empty(purgatory, timer)


def test_force_complete_from_outside_clears_keys_and_timer(
    purgatory: Purgatory, timer: Timer
) -> None:
    operation = Probe()
    purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert operation.force_complete()
    assert empty(purgatory, timer)


def test_a_key_given_twice_is_one(purgatory: Purgatory, timer: Timer) -> None:
    operation = Probe()
    purgatory.try_complete_else_watch(operation, ["a", "a"])
    assert purgatory.watched == 1
    operation.ready = True
    assert purgatory.check_and_complete("a") == 1
    assert empty(purgatory, timer)


def test_an_answer_may_park_the_next_operation_under_the_same_key(
    purgatory: Purgatory, timer: Timer
) -> None:
    following = Probe()

    class Chained(Probe):
        def on_complete(self) -> None:
            super().on_complete()
            assert purgatory.delayed == 0
            assert not purgatory.try_complete_else_watch(following, ["a"])

    operation = Chained()
    purgatory.try_complete_else_watch(operation, ["a"])
    operation.ready = True
    assert purgatory.check_and_complete("a") == 1
    assert (purgatory.delayed, following.ends) == (1, [])


def test_operations_of_one_key_end_in_the_order_they_came(purgatory: Purgatory) -> None:
    order: list[int] = []

    class Numbered(Probe):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        def on_complete(self) -> None:
            order.append(self.number)

    operations = [Numbered(number) for number in range(5)]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["a"])
        operation.ready = True
    assert purgatory.check_and_complete("a") == 5
    assert order == [0, 1, 2, 3, 4]


def test_one_that_fails_does_not_keep_the_others_waiting(
    purgatory: Purgatory, timer: Timer, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Probe):
        def try_complete(self) -> bool:
            self.looks += 1
            if self.looks > 2:
                raise OSError("bad disk")
            return False

    broken, well = Broken(), Probe()
    purgatory.try_complete_else_watch(broken, ["a"])
    purgatory.try_complete_else_watch(well, ["a"])
    well.ready = True
    with caplog.at_level(logging.ERROR, logger="kbroker.purgatory"):
        assert purgatory.check_and_complete("a") == 1
    assert "bad disk" in caplog.text
    assert purgatory.statistics()["failed_total"] == 1
    clock.advance(100)
    timer.advance()
    assert broken.ends == ["complete", "expiration"]
    assert empty(purgatory, timer)


def test_the_first_looks_failure_is_the_callers(purgatory: Purgatory, timer: Timer) -> None:
    class Broken(Probe):
        def try_complete(self) -> bool:
            raise OSError("bad disk")

    with pytest.raises(OSError, match="bad disk"):
        purgatory.try_complete_else_watch(Broken(), ["a"])
    assert empty(purgatory, timer)


def test_an_operation_needs_a_key(purgatory: Purgatory, timer: Timer) -> None:
    keys: list[Hashable] = []
    with pytest.raises(ValueError, match="without a key"):
        purgatory.try_complete_else_watch(Probe(), keys)
    assert empty(purgatory, timer)


def test_close_ends_all_parked_operations_and_parks_no_more(
    purgatory: Purgatory, timer: Timer
) -> None:
    operations = [Probe() for _ in range(3)]
    for number, operation in enumerate(operations):
        purgatory.try_complete_else_watch(operation, ["a", number])
    assert purgatory.close() == 3
    late = Probe()
    assert purgatory.try_complete_else_watch(late, ["a"])
    for operation in [*operations, late]:
        assert operation.ends == ["complete", "expiration"]
    assert purgatory.close() == 0
    assert empty(purgatory, timer)


def test_two_purgatories_may_share_a_timer(timer: Timer, clock: ManualClock) -> None:
    first, second = Purgatory("first", timer), Purgatory("second", timer)
    first.try_complete_else_watch(Probe(10), ["a"])
    second.try_complete_else_watch(Probe(20), ["a"])
    clock.advance(10)
    timer.advance()
    assert (first.delayed, second.delayed) == (0, 1)
