"""How much a fetch waits for, in all of its partitions together."""

from __future__ import annotations

import random

import pytest

from kbroker.engine.share.amount import Amount


class Log:
    def __init__(self) -> None:
        self.count = 0
        self.watched: int | None = None
        self.looks = 0

    def readable(self, max_bytes: int) -> tuple[int | None, int]:
        self.looks += 1
        return 0, min(max_bytes, self.count)

    def watch(self, offset: int, count_bytes: int) -> None:
        self.watched = count_bytes


def test_one_partition_is_watched_for_all_of_it() -> None:
    log = Log()
    amount = Amount(100)
    assert not amount.is_there(lambda _: log, [0], [0])
    assert log.watched == 100
    log.count = 99
    assert not amount.is_there(lambda _: log, [0], [0])
    assert log.watched == 100
    log.count = 100
    assert amount.is_there(lambda _: log, [0], [0])


@pytest.mark.parametrize("count", [2, 3, 40, 1_000])
def test_it_is_found_as_soon_as_it_is_there_and_costs_few_looks(count: int) -> None:
    dice = random.Random(count)
    logs, wanted = [Log() for _ in range(count)], 10_000
    places, amount, wakes = range(count), Amount(wanted), 0
    is_there = amount.is_there(logs.__getitem__, places, places)
    while not is_there:
        assert sum(log.count for log in logs) < wanted
        at = dice.randrange(count)
        logs[at].count += dice.randrange(1, 50)
        if logs[at].count >= (logs[at].watched or 0):
            wakes += 1
            is_there = amount.is_there(logs.__getitem__, [at], places)
    assert sum(log.looks for log in logs) <= wakes + 20 * count


def test_bytes_that_others_have_taken_are_not_there() -> None:
    """All partitions are looked at before it is said to be."""
    logs = [Log(), Log()]
    amount = Amount(100)
    assert not amount.is_there(logs.__getitem__, [0, 1], [0, 1])
    logs[0].count = 60
    assert not amount.is_there(logs.__getitem__, [0], [0, 1])
    logs[0].count, logs[1].count = 0, 60
    assert not amount.is_there(logs.__getitem__, [1], [0, 1])
    logs[0].count = 40
    assert amount.is_there(logs.__getitem__, [0], [0, 1])
