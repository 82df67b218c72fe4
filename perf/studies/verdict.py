"""Whether two sets of a study's blocks differ: ratios inside rounds, judged by perf.verdict.

A ratio is taken inside a round, between quiet blocks that ran one after the other, and then the
median over the rounds. Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from perf.stats import PAIRS_MIN, estimate, ratio
from perf.studies.measured import Measured, Metric
from perf.verdict import Verdict, band_of, judge

ROUNDS_MIN = PAIRS_MIN
CELLS_SHARE_MIN = 0.5  # of the cells of a pooled comparison that a round must have

Rounds = Mapping[int, Measured]


def null_band(pairs: Iterable[tuple[Measured, Measured]], metric: Metric) -> float:
    """How far a broker held against itself comes out from 1, by its quiet pairs."""
    quiet = [(a, b) for a, b in pairs if a.quiet and b.quiet]
    values = [(metric(a), metric(b)) for a, b in quiet]
    usable = [(a, b) for a, b in values if _usable(a) and _usable(b)]
    return band_of(ratio([a for a, _ in usable], [b for _, b in usable]))


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
    return judge(estimate(values), noisy=noisy, band=null_band(null, metric))


def _usable(value: float) -> bool:
    return math.isfinite(value) and value > 0
