"""Each rule of the checker finds what breaks it, and nothing else."""

from __future__ import annotations

import pytest

from tests.exactly_once.checker import (
    Ends,
    all_committed,
    each_once,
    none_aborted,
    nothing_open,
    rising_by_one,
)

WANTED = {0: [b"0", b"2", b"4"], 1: [b"1", b"3"]}


def test_output_that_equals_its_input() -> None:
    assert each_once(WANTED, {0: [b"0", b"2", b"4"], 1: [b"1", b"3"]}) == []
    assert none_aborted([b"5"], WANTED) == []


@pytest.mark.parametrize(
    ("found", "line"),
    [
        ([b"0", b"4"], "partition 0: lost: 1: b'2'"),
        ([b"0", b"2", b"2", b"4"], "partition 0: read more than once: 1: b'2'"),
        ([b"0", b"2", b"4", b"x"], "partition 0: never written: 1: b'x'"),
        ([b"0", b"4", b"2"], "partition 0: order: b'4' instead of b'2' at 1"),
        ([], "partition 0: lost: 3: b'0', b'2', b'4'"),
    ],
)
def test_output_that_differs(found: list[bytes], line: str) -> None:
    assert each_once(WANTED, {**WANTED, 0: found}) == [line]


def test_a_record_in_another_partition_is_lost_in_its_own() -> None:
    found = {0: [b"0", b"2", b"4", b"3"], 1: [b"1"]}
    assert each_once(WANTED, found) == [
        "partition 0: never written: 1: b'3'", "partition 1: lost: 1: b'3'",
    ]  # fmt: skip


def test_an_aborted_record_that_is_read() -> None:
    assert none_aborted([b"3"], WANTED) == ["partition 1: aborted, and read: 1: b'3'"]


def test_open_transactions() -> None:
    over = Ends({"a-0": 5, "b-0": 0}, {"a-0": 5, "b-0": 0})
    assert nothing_open([], over) == []
    assert nothing_open(["one in Ongoing"], over) == ["open at its coordinator: one in Ongoing"]
    assert nothing_open([], Ends({"a-0": 4}, {"a-0": 5})) == [
        "open in a-0: last stable 4, high watermark 5"
    ]


def test_offsets_that_are_not_the_end() -> None:
    assert all_committed({0: 5, 1: 3}, {0: 5, 1: 3}) == []
    assert all_committed({0: 5, 1: 3}, {0: 4}) == [
        "partition 0: the group has committed 4 of 5",
        "partition 1: the group has committed None of 3",
    ]


@pytest.mark.parametrize(
    ("counts", "line"),
    [
        ([1, 2, 2, 3], "word b'a': 2 in place of 3, of 3"),
        ([1, 3], "word b'a': 3 in place of 2, of 3"),
        ([1, 2], "word b'a': nothing in place of 3, of 3"),
        ([1, 2, 3, 4], "word b'a': 4 counts, of 3"),
    ],
)
def test_counts_that_do_not_rise_by_one(counts: list[int], line: str) -> None:
    assert rising_by_one({b"a": [1, 2, 3]}, {b"a": 3}) == []
    assert rising_by_one({b"a": counts}, {b"a": 3}) == [line]
