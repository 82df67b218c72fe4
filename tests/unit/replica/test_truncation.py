"""Where a follower's log is cut: every small pair of histories, and the loop of asking and cutting.

A history is the leader epoch of each record, so two logs agree at an offset when their epochs up to
it do. Only its leader writes in an epoch, so the records after the fork have epochs that only one
side knows, but for the one in which the other lost a tail.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement
from pathlib import Path
from typing import NamedTuple

import pytest

from kbroker.log.engine.leader_epochs import LeaderEpochs
from kbroker.replica.truncation import Divergence, cut_offset

EPOCHS = range(4)
LENGTH_MAX = 3


NO_FILE = Path("none")


class History:
    """A log of which only the epochs are kept."""

    def __init__(self, records: tuple[int, ...], own_epoch: int = -1, start: int = 0) -> None:
        self.records = list(records)
        self.start = start
        self.epochs = LeaderEpochs(NO_FILE)
        for offset, epoch in enumerate(records):
            self.epochs.assign(epoch, offset)
        if own_epoch >= 0:
            self.epochs.assign(own_epoch, len(records))
        self.epochs.truncate_from_start(start)

    @property
    def end(self) -> int:
        return len(self.records)

    def cut(self, offset: int) -> None:
        del self.records[offset:]
        self.epochs.truncate_from_end(offset)


def divergence(leader: History, offset: int, epoch: int) -> Divergence | None:
    """A leader's answer to a fetch from there, after a record of that epoch."""
    if epoch < 0:
        return None
    known, end = leader.epochs.end_offset_for(epoch, leader.end)
    assert known >= 0, "a leader knows its own epoch, and none is newer"
    return Divergence(known, end) if known < epoch or end < offset else None


def nondecreasing(low: int) -> Iterator[tuple[int, ...]]:
    values = [epoch for epoch in EPOCHS if epoch >= low]
    for length in range(LENGTH_MAX + 1):
        yield from combinations_with_replacement(values, length)


class Pair(NamedTuple):
    common: tuple[int, ...]
    follower: tuple[int, ...]
    leader: tuple[int, ...]


def pairs() -> Iterator[Pair]:
    for common in nondecreasing(0):
        last = common[-1] if common else -1
        for follower in nondecreasing(max(last, 0)):
            for leader in nondecreasing(max(last, 0)):
                if not set(follower) & set(leader):
                    yield Pair(common, follower, leader)


def catch_up(follower: History, leader: History) -> int:
    """Asks and cuts until the leader finds what it is asked in its own log; how often it cut."""
    cuts = 0
    while found := divergence(leader, follower.end, follower.epochs.latest):
        offset = cut_offset(follower.epochs, follower.end, found)
        before = follower.end, follower.epochs.entries
        follower.cut(offset)
        assert (follower.end, follower.epochs.entries) != before, "it would ask for ever"
        cuts += 1
    return cuts


@pytest.mark.parametrize("led_before", [False, True])
def test_all_small_histories_end_in_the_records_of_both(led_before: bool) -> None:
    """`led_before`: the follower led an epoch of which it wrote nothing, newer than its records."""
    tried = most = 0
    for common, follower_tail, leader_tail in pairs():
        leader = History((*common, *leader_tail), own_epoch=len(EPOCHS) + 1)
        follower = History((*common, *follower_tail), own_epoch=len(EPOCHS) if led_before else -1)
        known = len(follower.epochs.entries)
        cuts = catch_up(follower, leader)
        assert follower.records == list(common), (common, follower_tail, leader_tail)
        assert cuts <= known
        tried, most = tried + 1, max(most, cuts)
    assert tried > 3_000 and most >= 2


def test_a_leader_whose_beginning_is_deleted() -> None:
    """What lies below its start it no longer has, so that is not compared: all above is."""
    for common, follower_tail, leader_tail in pairs():
        records = (*common, *leader_tail)
        for start in range(1, len(records) + 1):
            leader = History(records, own_epoch=len(EPOCHS) + 1, start=start)
            follower = History((*common, *follower_tail))
            if follower.end < start:
                continue  # out of range: it empties itself
            catch_up(follower, leader)
            if follower.end >= start:
                both = range(start, follower.end)
                assert [follower.records[at] for at in both] == [records[at] for at in both]
            assert follower.end >= min(len(common), start)
            if len(common) >= start:
                assert follower.end >= len(common)


def test_a_follower_whose_beginning_is_deleted() -> None:
    for common, follower_tail, leader_tail in pairs():
        own = (*common, *follower_tail)
        for start in range(1, len(own) + 1):
            leader = History((*common, *leader_tail), own_epoch=len(EPOCHS) + 1)
            follower = History(own, start=start)
            catch_up(follower, leader)
            agreed = follower.records == list(common)
            assert agreed or (
                follower.end <= start and follower.records == list(own)[: follower.end]
            )


@pytest.mark.parametrize(
    ("entries", "end", "leader", "cut"),
    [
        ([(0, 0)], 10, Divergence(0, 7), 7),
        ([(0, 0), (3, 5)], 10, Divergence(2, 8), 5),  # 0 is the largest that both may know
        ([(0, 0), (3, 5)], 10, Divergence(2, 4), 4),
        ([(4, 6)], 10, Divergence(2, 8), 6),  # of epochs before 4 nothing is known
        ([], 10, Divergence(2, 8), 8),
        ([], 10, Divergence(2, 80), 10),
        ([(0, 0), (5, 10)], 10, Divergence(0, 12), 10),  # the epoch at the end goes
    ],
)
def test_cases(entries: list[tuple[int, int]], end: int, leader: Divergence, cut: int) -> None:
    epochs = LeaderEpochs(NO_FILE)
    epochs.add(entries)
    assert cut_offset(epochs, end, leader) == cut
