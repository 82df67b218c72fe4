"""How fast counts grow: exponentially weighted moving averages over one and 15 minutes.

`tick` is called at a fixed pace (5 s) with all counts that there are; the first call only notes
where those stand that began before us. `meter` tells a count with its rates as of the
last tick. A count that appears later begins at 0, with the rate of its first period; one that is
missing is forgotten; one that has become less began anew.

One thread ticks, any thread asks: the tables are replaced, never changed.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from kbroker.metrics.model import Meter

NS_PER_S: Final = 1_000_000_000
MINUTE_S: Final = 60.0
QUARTER_S: Final = 900.0
# Counts taken in between two looks at whether another thread wants to run.
STEP: Final = 500


class _Speed(NamedTuple):
    total: float
    rate: float | None  # None: not known before the next tick
    rate15: float


def keep_over(elapsed_s: float, window_s: float = MINUTE_S) -> float:
    """What the past still weighs after so long."""
    return math.exp(-elapsed_s / window_s)


class Rates:
    """The speeds of any number of counts, by keys of any kind."""

    def __init__(self) -> None:
        self._ticked_ns: int | None = None
        self._speeds: Mapping[Hashable, _Speed] = {}

    def tick(self, now_ns: int, counts: Iterable[tuple[Hashable, float]]) -> Iterator[None]:
        """One period is over; in steps."""
        before, speeds = self._speeds, {}
        if self._ticked_ns is None:
            speeds = {key: _Speed(total, None, 0.0) for key, total in counts}
        else:
            elapsed_s = (now_ns - self._ticked_ns) / NS_PER_S
            if elapsed_s <= 0:
                return
            keeps = keep_over(elapsed_s), keep_over(elapsed_s, QUARTER_S)
            for number, (key, total) in enumerate(counts, 1):
                speeds[key] = _moved_on(before.get(key), total, elapsed_s, *keeps)
                if number % STEP == 0:
                    yield
        self._speeds = speeds
        self._ticked_ns = now_ns

    def meter(self, key: Hashable, total: int) -> Meter:
        """A count with its rates; 0 while they are not known."""
        speed = self._speeds.get(key)
        if speed is None or speed.rate is None:
            return Meter(total, 0.0, 0.0)
        return Meter(total, speed.rate, speed.rate15)

    def rate(self, key: Hashable) -> float | None:
        """The rate over one minute; None while it is not known."""
        speed = self._speeds.get(key)
        return None if speed is None else speed.rate


def _moved_on(
    known: _Speed | None, total: float, elapsed_s: float, keep: float, keep15: float
) -> _Speed:
    grown = total if known is None or total < known.total else total - known.total
    rate = grown / elapsed_s
    if known is None or known.rate is None:
        return _Speed(total, rate, rate)
    return _Speed(total, rate + (known.rate - rate) * keep, rate + (known.rate15 - rate) * keep15)
