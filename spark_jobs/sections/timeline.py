"""Values by time as a line that breaks where there were none.

A line through an outage would draw it as traffic. So a series of a plot has NaN wherever two
values lie further apart than what was measured so often leaves free, and it spans the whole of
`from` to `until`, so that silence at the end is seen as well as silence between.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from kbroker.metrics.samples import SELDOM_S
from spark_jobs.report_model import Series

# Samples of every SELDOM_S come a little late: half of that is no gap.
SAMPLES_MS: Final = SELDOM_S * 1500


def series(
    name: str,
    values: Iterable[tuple[float, float | None]],
    step_ms: float,
    between: tuple[float, float],
    *,
    every_ms: float = SAMPLES_MS,
) -> Series | None:
    """A line of (ms, value), each value of `step_ms` from there on; None where there is none.

    A gap is what is left empty for longer than `every_ms`.
    """
    known = sorted((at, value) for at, value in values if value is not None)
    if not known:
        return None
    first, until = between
    points: list[tuple[float, float]] = []
    ends = first
    for at, value in known:
        if at - ends > every_ms:
            points.append((ends, math.nan))
        points.append((at, value))
        ends = at + step_ms
    if until - ends > every_ms:
        points += [(ends, math.nan), (until, math.nan)]
    x, y = zip(*points, strict=True)
    return Series(name, x, y)
