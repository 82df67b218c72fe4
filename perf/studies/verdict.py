"""Whether two sets of blocks differ, by how much, and when nothing can be said.

A ratio is taken inside a round, between blocks that ran one after the other, and then the median
over the rounds with its bootstrap interval (perf.stats). It is "no result" if

- fewer than three rounds have a quiet block on both sides (too few, or the machine was noisy);
- the interval contains 1: no difference shown; the interval says how large one could still be;
- the null test is not passed: a broker (or value) held against itself, two blocks in a row, comes
  out as 1 give or take its own *band*, and the interval reaches into that band. A ratio of 10 is
  decided although the band is 20 % wide; a ratio of 1.1 is not.

Only a whole interval outside of the band is a verdict. Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from perf.stats import Estimate, estimate, ratio
from perf.studies.measured import Measured, Metric

ROUNDS_MIN = 3
CELLS_SHARE_MIN = 0.5  # of the cells of a pooled comparison that a round must have

Rounds = Mapping[int, Measured]
Direction = Literal["more", "less", ""]


@dataclass(frozen=True)
class Verdict:
    """A ratio and whether it stands. `reason` says why it does not; "" if it does."""

    ratio: Estimate
    reason: str = ""
    band: float = 1.0  # what the null test allows: from 1/band to band

    @property
    def decided(self) -> bool:
        return not self.reason

    @property
    def direction(self) -> Direction:
        """Which way the ratio lies; "" if that is not decided."""
        if not self.decided:
            return ""
        return "more" if self.ratio.median > 1 else "less"

    @property
    def rounds(self) -> int:
        return len(self.ratio.values)

    def numbers(self) -> str:
        """The ratio in words: "1.31 times (1.22 to 1.40, n=5)"."""
        if not self.ratio.values:
            return "nothing to compare"
        found = self.ratio
        return (
            f"{_times(found.median)} times ({_times(found.low)} to {_times(found.high)},"
            f" n={self.rounds})"
        )

    def seen(self) -> str:
        """The ratio, and behind it why it does not stand: "1.05 times (0.97 to 1.1, n=5), ..."."""
        if self.decided:
            return self.numbers()
        return f"{self.numbers()}, {self.reason}" if self.ratio.values else self.reason

    def words(self) -> str:
        """The ratio, or that there is no result, what was seen and why it does not stand."""
        return self.seen() if self.decided else f"no result: {self.seen()}"

    def to_json(self) -> dict[str, Any]:
        """Without NaN, which JSON does not know."""
        numbers = self.ratio.to_json() if self.ratio.values else None
        return {
            "ratio": numbers,
            "decided": self.decided,
            "direction": self.direction,
            "reason": self.reason,
            "band": self.band,
        }


def _times(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def null_band(pairs: Iterable[tuple[Measured, Measured]], metric: Metric) -> float:
    """How far a broker held against itself comes out from 1, as a factor of at least 1.

    The wider end of the interval, taken in both directions: which of two equal blocks came first
    says nothing. 1 without a pair of quiet blocks, which leaves the interval as the only test.
    """
    quiet = [(a, b) for a, b in pairs if a.quiet and b.quiet]
    values = [(metric(a), metric(b)) for a, b in quiet]
    usable = [(a, b) for a, b in values if _usable(a) and _usable(b)]
    if not usable:
        return 1.0
    found = ratio([a for a, _ in usable], [b for _, b in usable])
    return max(1.0, found.high, 1 / found.low)


def compare(
    ours: Rounds,
    theirs: Rounds,
    metric: Metric,
    *,
    null: Sequence[tuple[Measured, Measured]] = (),
) -> Verdict:
    """ours / theirs by `metric`, from blocks by round; `null`: pairs of blocks of one and the same.

    A metric that is not a positive number (nothing was timed) leaves its round out.
    """
    return pool([(ours, theirs)], metric, null=null)


def pool(
    cells: Sequence[tuple[Rounds, Rounds]],
    metric: Metric,
    *,
    null: Sequence[tuple[Measured, Measured]] = (),
) -> Verdict:
    """Several cells at once: a round's value is the geometric mean of its cells' ratios.

    Ratios are pooled, never times, so that no cell counts for more because it is slow. A round
    counts if at least half of the cells have quiet blocks on both sides in it.
    """
    logs: dict[int, list[float]] = {}
    noisy = 0
    for ours, theirs in cells:
        for number in sorted(set(ours) & set(theirs)):
            a, b = ours[number], theirs[number]
            if not (a.quiet and b.quiet):
                noisy += 1
                continue
            over, under = metric(a), metric(b)
            if _usable(over) and _usable(under):
                logs.setdefault(number, []).append(math.log(over / under))
    enough = max(1.0, CELLS_SHARE_MIN * len(cells))
    values = [
        math.exp(math.fsum(found) / len(found))
        for _number, found in sorted(logs.items())
        if len(found) >= enough
    ]
    return _judge(estimate(values), noisy, null_band(null, metric))


def _usable(value: float) -> bool:
    return math.isfinite(value) and value > 0


def _judge(found: Estimate, noisy: int, band: float) -> Verdict:
    n = len(found.values)
    if n < ROUNDS_MIN:
        why = f" ({noisy} noisy blocks left out: something else ran)" if noisy else ""
        return Verdict(found, f"{n} of {ROUNDS_MIN} rounds needed{why}", band)
    if found.low <= 1 <= found.high:
        return Verdict(found, "no difference shown", band)
    if found.low <= band and found.high >= 1 / band:
        return Verdict(found, f"within the null test's {_times(band)}", band)
    return Verdict(found, "", band)
