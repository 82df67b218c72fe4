"""Values by time as lines that break where there were none, and the plots that they make.

A line through an outage would draw it as traffic. So a series of a plot has NaN wherever two
values are further apart than its sampling leaves free, and it spans the whole of
`from` to `until`, so that silence at the end is seen as well as silence between.

A bin is a dictionary with `broker_id`, `metric_name`, `entity` (what a broker has several of in one
kind of sample, such as devices; None otherwise), `at` and what was added up over it. Intervals of
entities run side by side, so each has a line of its own and they are never averaged. Plain Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kbroker.metrics.samples import OFTEN_S, SELDOM_S
from spark_jobs.report_model import Plot, Series
from spark_jobs.sections.cells import STEPS, brief

POINTS_MAX: Final = 240
SELDOM: Final = SELDOM_S // OFTEN_S  # resources are sampled every second time
LATE: Final = 1.5  # intervals: a sample that comes a little late leaves no gap

Bin = dict[str, Any]
Value = Callable[[Bin], float | None]


def series(
    name: str,
    values: Iterable[tuple[float, float | None]],
    step_ms: float,
    between: tuple[float, float],
    *,
    every_ms: float,
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


@dataclass(frozen=True)
class Axis:
    """The time that plots are over, how long one of their points is, how often samples come.

    `every_ms` is of the samples that come most seldom.
    """

    step: int
    from_ms: int
    until_ms: int
    every_ms: int

    def line(self, name: str, values: Iterable[tuple[float, float | None]]) -> Series | None:
        between = (self.from_ms, self.until_ms)
        return series(name, values, self.step, between, every_ms=LATE * self.every_ms)


def axis(since_ms: int, from_ms: int, until_ms: int, every_ms: int) -> Axis:
    """At most POINTS_MAX points, each of whole rounds of the samples taken every second time."""
    seldom = SELDOM * every_ms
    least = (until_ms - since_ms) / POINTS_MAX
    return Axis(max(1, -int(-least // seldom)) * seldom, from_ms, until_ms, seldom)


def over_time(
    bins: Sequence[Bin], brokers: Sequence[Any], metric: str, value: Value, name: str, axis: Axis
) -> list[Series]:
    """A line for each broker's each entity that has any value."""
    found = []
    for broker in brokers:
        mine = [row for row in bins if (row["broker_id"], row["metric_name"]) == (broker, metric)]
        for entity in dict.fromkeys(row["entity"] for row in mine):
            its = ((row["at"], value(row)) for row in mine if row["entity"] == entity)
            of = "" if entity is None else brief(entity)
            words = " ".join(filter(None, (f"broker {brief(broker)}", of, name)))
            found.append(axis.line(words, its))
    return [one for one in found if one is not None]


def per_s(rows: Iterable[Bin], column: str) -> float | None:
    """Growth over the samples' own intervals."""
    known = list(rows)
    time_s = sum(row["interval_ms"] or 0 for row in known) / 1000
    return sum(row[column] or 0 for row in known) / time_s if time_s > 0 else None


def rate(column: str) -> Value:
    return lambda row: per_s([row], column)


def finite(value: float | None) -> float | None:
    """A percentile beyond the last bound has no place in a plot."""
    return None if value is None or not math.isfinite(value) else value


def plot(
    title: str, y: str, lines: Sequence[Series], reference: float | None = None
) -> Plot | None:
    """None if there is nothing but zeroes to draw."""
    if not any(value for one in lines for value in one.y if math.isfinite(value)):
        return None
    return Plot(title, "line", "time, UTC", y, tuple(lines), x_is_time=True, reference=reference)


def of_bytes(title: str, per: str, lines: Sequence[Series]) -> Plot | None:
    """In the unit that the greatest value has: kB/s, MB/s."""
    values = [abs(value) for one in lines for value in one.y if math.isfinite(value)]
    most = max(values, default=0.0)
    scale, unit = next((step for step in STEPS if most >= step[0]), (1.0, ""))
    scaled = [replace(one, y=tuple(value / scale for value in one.y)) for one in lines]
    return plot(title, f"{unit}B{per}", scaled)
