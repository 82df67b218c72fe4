"""How often the end of a share session was not counted as a delivery, for each record.

A group may say that a session which ends soon after it has acquired records does not count
(kb.share.session.end.count): its member has hardly seen them. A record that ends its members at
once has such sessions too, so each record is spared SPARED_MAX times; from then on it counts, and
is archived at last. Members come back later, perhaps when the share-partition has ended with its
group's last session, so its owner keeps this for the next one (`engine/share/spared_before.py`).

Not synchronized: the owner of the share-partition has its lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

SPARED_MAX: Final = 2


class Span(NamedTuple):
    """Offsets that were spared as often; both ends included."""

    first: int
    last: int
    times: int


class Spared:
    """In order, without overlaps. Offsets that are in none were never spared."""

    __slots__ = ("spans",)

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def spare(self, offsets: Sequence[tuple[int, int]], start: int) -> list[tuple[int, int]]:
        """Those of the offsets, which are in order, that are spared now. What is before the start
        is done with, and forgotten."""
        left, kept, spared = deque(self.spans), list[Span](), list[tuple[int, int]]()
        while left and left[0].last < start:
            left.popleft()
        for first, last in offsets:
            while left and left[0].first < first:
                each = left.popleft()
                if each.last >= first:
                    left.appendleft(each._replace(first=first))
                    each = each._replace(last=first - 1)
                _put(kept, each)
            while first <= last:
                ends, times = last, 0
                if left and left[0].first == first:
                    each = left.popleft()
                    ends, times = min(last, each.last), each.times
                    if ends < each.last:
                        left.appendleft(each._replace(first=ends + 1))
                elif left:
                    ends = min(last, left[0].first - 1)
                if times < SPARED_MAX:
                    times += 1
                    spared.append((first, ends))
                _put(kept, Span(first, ends, times))
                first = ends + 1
        for each in left:
            _put(kept, each)
        self.spans = kept
        return spared


def _put(kept: list[Span], span: Span) -> None:
    """After the last one, or as a part of it."""
    if kept and kept[-1].times == span.times and kept[-1].last + 1 == span.first:
        kept[-1] = kept[-1]._replace(last=span.last)
    else:
        kept.append(span)
