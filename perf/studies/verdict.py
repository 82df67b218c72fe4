"""Whether two sets of a study's blocks differ: ratios inside rounds, judged by perf.judge.

A ratio is taken inside a round, between quiet blocks that ran one after the other, and then the
median over the rounds. Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from perf.judge import Block, Together, Verdict, judge, together
from perf.stats import PAIRS_MIN
from perf.studies.measured import Measured, Metric

ROUNDS_MIN = PAIRS_MIN
CELLS_SHARE_MIN = 0.5  # of the cells of a pooled comparison that a round must have

Rounds = Mapping[int, Measured]


def of_rounds(ours: Rounds, theirs: Rounds, metric: Metric) -> Together:
    """A metric that is not a positive number (nothing was timed) leaves its round out."""
    return together(_side(ours.items(), metric), _side(theirs.items(), metric))


def of_null(pairs: Iterable[tuple[Measured, Measured]], metric: Metric) -> Together:
    """Pairs of blocks of one and the same, of whatever points and rounds."""
    every = list(pairs)
    return together(*(_side(enumerate(pair[at] for pair in every), metric) for at in (0, 1)))


def _side(blocks: Iterable[tuple[int, Measured]], metric: Metric) -> list[Block]:
    found = []
    for number, one in blocks:
        value = metric(one)
        found.append(Block(number, one.quiet, value if value > 0 else math.nan))
    return found


def compare(
    ours: Rounds,
    theirs: Rounds,
    metric: Metric,
    *,
    null: Sequence[tuple[Measured, Measured]] = (),
) -> Verdict:
    """ours / theirs, from blocks by round; `null`: pairs of blocks of one and the same."""
    return judge(of_rounds(ours, theirs, metric), [of_null(null, metric)])


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
    found = [of_rounds(ours, theirs, metric) for ours, theirs in cells]
    enough = max(1.0, CELLS_SHARE_MIN * len(cells))
    pooled = {}
    for number in dict.fromkeys(number for each in found for number in each.quiet):
        both = [each.quiet[number] for each in found if number in each.quiet]
        if len(both) >= enough:
            logs = math.fsum(math.log(over / under) for over, under in both)
            pooled[number] = (math.exp(logs / len(both)), 1.0)
    noisy = sum(each.noisy for each in found)
    return judge(Together(pooled, noisy), [of_null(null, metric)])
