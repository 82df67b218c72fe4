"""Ranges of offsets: looking up, cutting, joining and dropping, beside a dictionary of offsets."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from kbroker.errors import InvariantError
from kbroker.replica.share.ranges import UNWRITTEN, Ranges
from kbroker.replica.share.states import State


def made(*lengths: int, first: int = 0) -> Ranges:
    ranges = Ranges()
    for length in lengths:
        ranges.append(first, first + length - 1, State.ACQUIRED, 1, length=length)
        first += length
    return ranges


def spans(ranges: Ranges) -> list[tuple[int, int]]:
    return list(zip(ranges.first, ranges.last, strict=True))


def test_find() -> None:
    ranges = made(10, 1, 5, first=100)
    assert [ranges.find(offset) for offset in (0, 100, 109, 110, 111, 115, 116)] == [
        0, 0, 0, 1, 2, 2, 3,
    ]  # fmt: skip
    assert Ranges().find(5) == 0


def test_a_cut_keeps_all_that_a_range_has() -> None:
    ranges = made(10)
    ranges.owner[0], ranges.deadline_ms[0], ranges.flags[0] = 7, 99, UNWRITTEN
    assert ranges.cut(4) == 1
    assert spans(ranges) == [(0, 3), (4, 9)]
    assert ranges.at(1)[2:] == ranges.at(0)[2:]
    assert ranges.at(1).origin == 0
    assert ranges.at(1).length == 10
    assert ranges.cut(4) == 1
    assert ranges.cut(10) == 2
    assert len(ranges) == 2


def test_a_span_is_exact() -> None:
    ranges = made(10, 10)
    assert ranges.span(5, 14) == range(1, 3)
    assert spans(ranges) == [(0, 4), (5, 9), (10, 14), (15, 19)]
    assert ranges.span(18, 40) == range(4, 5)


def test_overlapping_cuts_nothing() -> None:
    ranges = made(10, 10, first=10)
    assert ranges.overlapping(15, 22) == range(2)
    assert ranges.overlapping(0, 9) == range(0)
    assert ranges.overlapping(30, 40) == range(0)
    assert ranges.overlapping(25, 99) == range(1, 2)
    assert ranges.overlapping(0, 99) == range(2)
    assert ranges.overlapping(12, 11) == range(0)


def test_neighbours_that_differ_are_not_joined() -> None:
    ranges = made(10)
    ranges.cut(5)
    ranges.join(0, 9)
    assert spans(ranges) == [(0, 9)]
    for column in (ranges.count, ranges.owner, ranges.deadline_ms, ranges.target, ranges.flags):
        ranges.cut(5)
        column[1] += 1
        ranges.join(0, 9)
        assert len(ranges) == 2
        column[1] -= 1
        ranges.join(5, 5)
        assert len(ranges) == 1


def test_terminal_neighbours_are_joined_whatever_their_counts() -> None:
    ranges = made(5, 5)
    for place, count in enumerate((1, 3)):
        ranges.state[place], ranges.count[place] = State.ARCHIVED, count
    ranges.flags[1] = UNWRITTEN
    ranges.join(0, 9)
    assert len(ranges) == 2
    ranges.flags[1] = 0
    ranges.join(0, 9)
    assert spans(ranges) == [(0, 9)]


def test_a_gap_is_refused() -> None:
    with pytest.raises(InvariantError):
        made(5).append(6, 7, State.AVAILABLE, 0, length=2)
    with pytest.raises(InvariantError):
        Ranges().append(6, 5, State.AVAILABLE, 0, length=2)


def test_a_split_record_takes_less_than_64_bytes() -> None:
    ranges = made(2_000)
    for offset in range(1, 2_000):
        ranges.cut(offset)
    columns = [getattr(ranges, name) for name in Ranges.__slots__]
    assert len(ranges) == 2_000
    assert sum(column.buffer_info()[1] * column.itemsize for column in columns) <= 64 * 2_000
    assert sum(column.__sizeof__() for column in columns) <= 64 * 2_000 + 1_000


@pytest.mark.parametrize("seed", range(20))
def test_beside_a_dictionary(seed: int) -> None:
    dice = random.Random(seed)
    ranges, owners = Ranges(), dict[int, int]()
    end = 0
    for _ in range(200):
        act = dice.randrange(5)
        first = dice.randrange(min(owners, default=0), end + 3)
        last = first + dice.randrange(8)
        if act == 0 or not owners:
            length = dice.randint(1, 9)
            ranges.append(end, end + length - 1, State.ACQUIRED, 1, length=0)
            owners.update(dict.fromkeys(range(end, end + length), 0))
            end += length
        elif act in (1, 2):
            owner = dice.randrange(3)
            for place in ranges.span(first, last):
                ranges.owner[place] = owner
            owners.update({at: owner for at in range(first, last + 1) if at in owners})
        elif act == 3:
            ranges.join(first, last)
        elif dice.randrange(4) == 0:
            ranges.drop_before(first)
            owners = {at: owner for at, owner in owners.items() if at >= first}
            if not owners:
                end = ranges.last[-1] + 1 if ranges.first else end
        for place in range(len(ranges)):
            ranges.origin[place] = ranges.length[place] = 0  # that they do not keep any apart
        found = {
            at: ranges.owner[place]
            for place, (low, high) in enumerate(spans(ranges))
            for at in range(low, high + 1)
        }
        assert found == owners
        assert all(one[1] + 1 == other[0] for one, other in pairwise(spans(ranges)))
