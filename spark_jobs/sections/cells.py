"""What the sections write with: predicates that find rows, numbers as text, cells that join both.

A predicate is a Spark SQL text over a table as tables.read gives it. Values come from records,
which may hold anything, so every literal is escaped; a predicate's text never depends on how Spark
escapes.

Plain Python; no Spark here.
"""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from spark_jobs.report_model import Cell, Rows, Verdict
from spark_jobs.report_model import moment as moment

TEXT_CHARS_MAX: Final = 200  # of a value that a record brought
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS

_ESCAPED: Final = {"\\": "\\\\", "'": "\\'", "$": "\\u0024"}  # $: or Spark puts ${...} in
STEPS: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


# -- predicates


def literal(value: Any) -> str:
    """A value as Spark SQL writes it. TypeError for a value that no column holds."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value}L" if -(1 << 63) < value < 1 << 63 else str(value)
    if isinstance(value, float):
        return repr(value) + "D" if math.isfinite(value) else f"double('{value}')"
    if isinstance(value, datetime.date):
        return f"DATE'{value.isoformat()}'"
    if isinstance(value, str):
        return "'" + "".join(_ESCAPED.get(char, char) for char in value) + "'"
    raise TypeError(f"{type(value).__name__} is no value of a column")


def same(values: Mapping[str, Any]) -> str:
    """Rows that have these values; a null is a value like any other."""
    return " AND ".join(
        f"{name} IS NULL" if value is None else f"{name} = {literal(value)}"
        for name, value in values.items()
    )


def both(*predicates: str) -> str:
    """Rows that all of them hold for; empty ones say nothing."""
    return " AND ".join(predicate for predicate in predicates if predicate) or "true"


def between(since_ms: int, until_ms: int) -> str:
    """Rows whose event lies in [since, until); the day is named too, so others are not read."""
    first, last = day_of(since_ms), day_of(max(since_ms, until_ms - 1))
    days = f"event_date BETWEEN DATE'{first}' AND DATE'{last}'"
    return both(days, moments("event_time", since_ms, until_ms))


def moments(column: str, since_ms: int, until_ms: int) -> str:
    """Rows whose timestamp lies in [since, until)."""
    return (
        f"{column} >= timestamp_millis({int(since_ms)}L)"
        f" AND {column} < timestamp_millis({int(until_ms)}L)"
    )


# -- text


def day_of(ms: float) -> str:
    """2026-11-22, in UTC."""
    return moment(ms)[: len("2026-11-22")]


def days(dates: Iterable[str]) -> str:
    """1 day, 2026-11-20; or 3 days, 2026-11-18 to 2026-11-21: the first and the last."""
    found = sorted(dates)
    if len(found) < 2:
        return f"{len(found)} day" + "".join(f", {date}" for date in found)
    return f"{len(found)} days, {found[0]} to {found[-1]}"


def span(ms: float) -> str:
    """A duration in its two largest units; a dash where it is none."""
    if not math.isfinite(ms):
        return "-" if ms != ms else "∞"
    seconds = max(0, round(ms / 1000))
    if seconds < 60:
        return f"{ms / 1000:.3g} s"
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    for (size, name), (next_size, next_name) in itertools.pairwise(units):
        if seconds >= size:
            rest = seconds % size // next_size
            return f"{seconds // size} {name}" + (f" {rest} {next_name}" if rest else "")
    return f"{seconds} s"


def number(value: float | None) -> str:
    """Three digits that count, large ones whole with commas; a dash where there is none."""
    if value is None or value != value:
        return "-"
    if math.isinf(value):
        return "beyond the last bound" if value > 0 else "-∞"
    if abs(value) >= 1e15:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def percent(value: float | None) -> str:
    return "-" if value is None or value != value else f"{value * 100:.3g} %"


def size(value: float | None) -> str:
    """Bytes by powers of ten: 1.5 MB."""
    if value is None or value != value:
        return "-"
    for step, unit in STEPS:
        if abs(value) >= step:
            return f"{value / step:.3g} {unit}B"
    return f"{value:,.0f} B"


def brief(value: Any) -> str:
    """A record's text: one line, of bounded length, a dash where there is none."""
    if value is None:
        return "-"
    text = " ".join(str(value).split())
    return text if len(text) <= TEXT_CHARS_MAX else text[: TEXT_CHARS_MAX - 1] + "…"


# -- cells


def words(value: Any, verdict: Verdict = "") -> Cell:
    """A cell of text alone."""
    return Cell(brief(value), verdict=verdict)


def figure(value: float | None, rows: Rows, text: str | None = None, verdict: Verdict = "") -> Cell:
    """A number with its rows; one that is not finite has a text and no value."""
    finite = None if value is None or not math.isfinite(value) else float(value)
    return Cell(number(value) if text is None else text, finite, rows, verdict)
