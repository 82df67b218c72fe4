"""The wheel: cascades, horizons, cancellation, and that its heap stays as small as promised."""

from __future__ import annotations

import pytest

from kbroker.errors import InvariantError
from kbroker.purgatory.time_wheel import TimeWheel, WheelEntry


def added(wheel: TimeWheel, tick: int) -> WheelEntry:
    entry = WheelEntry()
    wheel.add(entry, tick)
    return entry


@pytest.mark.parametrize(
    "tick", [1, 2, 19, 20, 21, 399, 400, 401, 1234, 7999, 8000, 160_000, 10**9]
)
def test_an_entry_fires_in_its_own_tick(tick: int) -> None:
    wheel = TimeWheel()
    entry = added(wheel, tick)
    turned = []
    while (due := wheel.next_due()) is not None and due < tick:
        turned.append(due)
        assert wheel.advance(due) == []
    assert wheel.advance(tick - 1) == []
    assert wheel.advance(tick) == [entry]
    # Each coarser wheel passes it down once at most.
    assert len(turned) < wheel.depth
    assert (len(wheel), wheel.buckets_in_use, wheel.next_due()) == (0, 0, None)


def test_the_documented_walk_of_tick_1234() -> None:
    wheel = TimeWheel()
    entry = WheelEntry()
    assert wheel.add(entry, 1234) == 1200
    assert (wheel.advance(1200), wheel.next_due()) == ([], 1220)
    assert (wheel.advance(1220), wheel.next_due()) == ([], 1234)
    assert wheel.advance(1234) == [entry]


def test_a_jump_hands_out_everything_in_order_of_ticks() -> None:
    wheel = TimeWheel(start_tick=5)
    ticks = [9000, 7, 400, 26, 25, 24, 8005, 7, 160_001, 6]
    entries = [added(wheel, tick) for tick in ticks]
    expired = wheel.advance(10**7)
    assert [entry.due_tick for entry in expired] == sorted(ticks)
    assert set(expired) == set(entries)
    assert wheel.hand == 10**7


def test_a_tick_that_has_passed_is_the_next_one() -> None:
    wheel = TimeWheel(start_tick=100)
    entry = added(wheel, 3)
    assert (entry.due_tick, wheel.next_due()) == (101, 101)
    assert wheel.advance(101) == [entry]


def test_the_hand_never_goes_back() -> None:
    wheel = TimeWheel(start_tick=50)
    added(wheel, 60)
    assert wheel.advance(10) == []
    assert wheel.hand == 50


def test_removal_is_once_and_an_emptied_bucket_wakes_none() -> None:
    wheel = TimeWheel()
    first, second = added(wheel, 500), added(wheel, 9_000)
    assert wheel.remove(first)
    assert not wheel.remove(first)
    assert wheel.next_due() == 8_000
    assert wheel.remove(second)
    assert (wheel.next_due(), wheel.buckets_in_use, len(wheel)) == (None, 0, 0)
    assert wheel.advance(10_000) == []


def test_an_emptied_bucket_is_used_again() -> None:
    wheel = TimeWheel()
    wheel.remove(added(wheel, 15))
    entry = added(wheel, 15)
    assert wheel.buckets_in_use == 1
    assert wheel.advance(15) == [entry]


def test_an_entry_is_in_one_place() -> None:
    wheel = TimeWheel()
    entry = added(wheel, 4)
    with pytest.raises(InvariantError, match="due at tick 4"):
        wheel.add(entry, 9)
    assert wheel.advance(4) == [entry]
    wheel.add(entry, 9)
    assert wheel.advance(9) == [entry]


def test_wheels_are_made_when_needed_and_buckets_are_bounded() -> None:
    wheel = TimeWheel()
    assert wheel.depth == 1
    for tick in range(1, 30_000):
        added(wheel, tick)
    assert wheel.depth == 4
    assert wheel.buckets_in_use <= 19 * wheel.depth + wheel.depth
    assert len(wheel) == 29_999
    assert [e.due_tick for e in wheel.advance(29_999)] == list(range(1, 30_000))
