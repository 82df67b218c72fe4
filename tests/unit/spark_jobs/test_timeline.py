"""A line breaks where nothing was measured, between values, before them and after them."""

from __future__ import annotations

import math

import pytest

from spark_jobs.sections.timeline import axis, series

MINUTE_MS = 60_000.0


def line(*minutes: int, step: float = 1, until: float = 10, every: float = 0.75) -> str:
    """Values at these minutes: each minute's first letter, and a dot for each gap."""
    found = series("s", ((n * MINUTE_MS, float(n)) for n in minutes), step * MINUTE_MS,
                   (0.0, until * MINUTE_MS), every_ms=every * MINUTE_MS)  # fmt: skip
    assert found is not None
    assert list(found.x) == sorted(found.x)
    assert float(found.x[-1]) <= until * MINUTE_MS
    return "".join("." if math.isnan(y) else f"{y:.0f}" for y in found.y)


def test_a_whole_line() -> None:
    assert line(*range(10)) == "0123456789"


def test_an_outage_is_a_gap() -> None:
    assert line(0, 1, 2, 7, 8, 9) == "012.789"
    assert line(0, 1, 3, 4, 5, 6, 7, 8, 9) == "01.3456789"


def test_silence_at_either_end_is_seen() -> None:
    assert line(4, 5, 6) == ".456.."


def test_a_sample_that_comes_a_little_late_is_no_gap() -> None:
    """Points of half a minute, samples of half a minute: one may fall into the next point."""
    found = series("s", [(0.0, 1.0), (60_000.0, 2.0)], 30_000.0, (0.0, 90_000.0),
                   every_ms=45_000)  # fmt: skip
    assert found is not None and found.y == (1.0, 2.0)


def test_a_series_that_is_measured_seldom_has_seldom_gaps() -> None:
    assert line(0, 3, 6, 9, every=3) == "0369"


def test_no_value_no_line() -> None:
    assert series("s", [(0.0, None)], 1.0, (0.0, 1.0), every_ms=1) is None


@pytest.mark.parametrize(
    ("minutes", "every_s", "step_s"),
    [(1440, 15, 360), (60, 15, 30), (2, 1, 2), (1440, 3600, 7200)],
    ids=["a day", "an hour", "a first report, every second", "every hour"],
)
def test_points_are_as_long_as_samples_allow(minutes: int, every_s: int, step_s: int) -> None:
    """Curves where samples come every second; a point has samples of all kinds in any case."""
    made = axis(0, 0, minutes * 60_000, every_s * 1000)
    assert (made.step, made.every_ms) == (step_s * 1000, 2000 * every_s)
