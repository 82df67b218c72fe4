"""Plots: nothing that a series may hold makes drawing fail; the same plot gives the same bytes."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

pytest.importorskip("matplotlib", reason="missing: matplotlib (extra `report`)")

from spark_jobs.html import plots
from spark_jobs.html.plots import COLOURS, NAMES_MAX, POINTS_MAX, SERIES_MAX, draw
from spark_jobs.report_model import Plot, Series
from tests.unit.spark_jobs.sample import HOSTILE, sample

ANY = st.floats() | st.sampled_from([0.0, -0.0, 1e300, -1e300, 5e-324, math.nan, math.inf])
NAMES = st.text(max_size=8) | st.sampled_from(["$", "$x$", "\\frac", HOSTILE, "kbroker", "limit"])


def line(*y: float, name: str = "s", **fields: object) -> Plot:
    x = tuple(float(n) for n in range(len(y)))
    return Plot("p", "line", "x", "y", (Series(name, x, y),), **fields)  # type: ignore[arg-type]


@st.composite
def anything(draw: st.DrawFn) -> Plot:
    kind = draw(st.sampled_from(["line", "bars", "intervals"]))
    x = ANY if kind == "line" else NAMES
    made = []
    for _ in range(draw(st.integers(0, 3))):
        length = draw(st.integers(0, 6))

        def listed(what: st.SearchStrategy[object], size: int = length) -> tuple[Any, ...]:
            return tuple(draw(st.lists(what, min_size=size, max_size=size)))

        low, high = (listed(ANY), listed(ANY)) if draw(st.booleans()) else ((), ())
        made.append(Series(draw(NAMES), listed(x), listed(ANY), low, high))
    flags = {name: draw(st.booleans()) for name in ("x_is_time", "log_x", "log_y")}
    reference = draw(st.none() | ANY)
    return Plot(
        draw(NAMES), kind, draw(NAMES), draw(NAMES), tuple(made), **flags, reference=reference
    )


LOG_TIME = Plot(
    "t", "line", "x", "y", (Series("s", (0.0, 576.0), (0.0, 0.0)),), x_is_time=True, log_x=True
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@example(LOG_TIME)
@given(anything())
def test_nothing_that_a_series_holds_makes_drawing_fail(plot: Plot) -> None:
    drawing = draw(plot, "a.p0.")
    if drawing.svg:
        ElementTree.fromstring(drawing.svg)
        assert "http" not in drawing.svg
        assert all(found.startswith("a.p0.") for found in re.findall(r' id="([^"]*)"', drawing.svg))


def test_the_same_plot_gives_the_same_bytes() -> None:
    for section in sample().sections:
        for plot in section.plots:
            assert draw(plot, "p.") == draw(plot, "p.")


def test_only_colours_that_follow_the_theme() -> None:
    for section in sample().sections:
        for plot in section.plots:
            svg = draw(plot, "p.").svg
            colours = set(re.findall(r"(?:fill|stroke): ([^;\"]+)", svg))
            assert all(c == "none" or re.fullmatch(r"var\(--\w+\)", c) for c in colours), colours


def test_a_name_is_text() -> None:
    plot = Plot("p", "bars", "x", "y", (Series("s", ("$x_{1}$", "<b>"), (1.0, 2.0)),))
    texts = [each.text for each in ElementTree.fromstring(draw(plot, "p.").svg).iter("text")]
    assert "$x_{1}$" in texts
    assert "<b>" in texts


def test_brokers_keep_their_colour_and_others_do_not_take_it() -> None:
    series = tuple(Series(n, (1.0,), (1.0,)) for n in ("a", "Apache Kafka", "b", "kbroker"))
    legend = draw(Plot("p", "line", "x", "y", series), "p.").legend
    assert [(key.name, key.colour) for key in legend] == [
        ("a", 2), ("Apache Kafka", 1), ("b", 3), ("kbroker", 0),
    ]  # fmt: skip


def test_many_series_differ_by_colour_or_dash_and_the_rest_is_counted() -> None:
    series = tuple(Series(f"s{n}", (1.0, 2.0), (1.0, n)) for n in range(SERIES_MAX + 3))
    drawing = draw(Plot("p", "line", "x", "y", series), "p.")
    assert len({(key.colour, key.dash) for key in drawing.legend}) == SERIES_MAX
    assert drawing.notes == ("3 more series are in the JSON.",)
    assert len(plots.DASHES) * COLOURS >= SERIES_MAX


def test_many_names_are_bounded() -> None:
    names = tuple(f"n{n}" for n in range(NAMES_MAX + 4))
    drawing = draw(Plot("p", "bars", "x", "y", (Series("s", names, (1.0,) * len(names)),)), "p.")
    assert drawing.notes == ("4 more are in the JSON.",)


def test_a_long_line_keeps_its_peaks() -> None:
    y = [1.0] * 100_000
    y[70_001] = 900.0
    x, thinned, _, _ = plots._thinned(Series("s", tuple(map(float, range(len(y)))), tuple(y)))
    assert len(thinned) <= POINTS_MAX
    assert max(thinned) == 900.0
    assert x[list(thinned).index(900.0)] == 70_001
    assert list(x) == sorted(x)


def test_a_long_line_keeps_its_gaps() -> None:
    y = [1.0] * 100_000
    y[50_000:50_003] = [math.nan] * 3
    _, thinned, _, _ = plots._thinned(Series("s", tuple(map(float, range(len(y)))), tuple(y)))
    assert len(thinned) <= POINTS_MAX and sum(map(math.isnan, thinned)) == 1


def test_silence_at_the_end_has_its_place_on_the_axis() -> None:
    """A broker that died is a line that ends, not a plot that ends with it."""
    begin, end = 1_763_802_000_000.0, 1_763_812_800_000.0  # 09:00 and 12:00
    x = (begin, begin + 60_000, begin + 120_000, end)
    plot = Plot("p", "line", "", "y", (Series("s", x, (1.0, 2.0, math.nan, math.nan)),),
                x_is_time=True)  # fmt: skip
    assert "12:00" in _texts(draw(plot, "p.").svg)


def test_a_value_between_two_gaps_is_seen() -> None:
    y = [1.0] * 200
    without = draw(line(*y), "p.").svg
    y[99], y[101] = math.nan, math.nan
    assert draw(line(*y), "p.").svg.count("<use") == without.count("<use") + 1


@pytest.mark.parametrize(
    ("reference", "drawn", "notes"),
    [
        (5.0, True, ()),
        (500.0, False, ("The mark at 500 lies above what is drawn.",)),
        (math.nan, False, ()),
        (None, False, ()),
    ],
)
def test_a_reference_is_drawn_or_named(
    reference: float | None, drawn: bool, notes: tuple[str, ...]
) -> None:
    without = draw(line(1.0, 6.0), "p.")
    drawing = draw(line(1.0, 6.0, reference=reference), "p.")
    assert drawing.notes == notes
    assert (drawing.svg != without.svg) is drawn


@pytest.mark.parametrize("y", [(), (math.nan,), (math.inf, -math.inf)])
def test_nothing_to_draw(y: tuple[float, ...]) -> None:
    assert draw(line(*y), "p.").svg == ""


def test_zero_has_no_place_on_a_logarithmic_axis() -> None:
    assert draw(line(0.0, -1.0, log_y=True), "p.").svg == ""
    assert draw(line(0.0, 1.0, log_y=True), "p.").svg != ""


def test_series_of_one_broker_share_its_colour() -> None:
    names = ("kafka p50", "kafka p99", "kbroker p50", "kbroker p99", "kafkaesque")
    series = tuple(Series(name, ("a",), (1.0,)) for name in names)
    legend = draw(Plot("p", "bars", "x", "y", series), "p.").legend
    assert [key.colour for key in legend] == [1, 1, 0, 0, 2]
    assert [key.opacity for key in legend] == [1.0, 0.6, 1.0, 0.6, 1.0]


def test_a_single_moment_is_drawn_in_its_hour() -> None:
    plot = Plot(
        "p", "line", "", "y", (Series("s", (1_795_225_200_000.0,), (1.0,)),), x_is_time=True
    )
    texts = [each.text or "" for each in ElementTree.fromstring(draw(plot, "p.").svg).iter("text")]
    assert [text for text in texts if re.fullmatch(r"\d\d:\d\d", text)]


def _texts(svg: str) -> list[str]:
    return [text for text in ElementTree.fromstring(svg).itertext() if text.strip()]


def test_ticks_tell_themselves_apart() -> None:
    labels = _texts(draw(line(207.04123, 207.0413), "p.").svg)
    assert len(labels) == len(set(labels)) > 5


def test_a_share_is_seen_as_one_of_the_whole() -> None:
    share = Plot("p", "line", "x", "%", (Series("s", (0.0, 1.0), (98.0, 99.0)),), reference=20.0)
    drawing = draw(share, "p.")
    assert {"0", "20", "100"} <= set(_texts(drawing.svg)) and drawing.notes == ()


def test_times_are_of_the_clock_and_the_day_is_given_once() -> None:
    x = tuple(float(1_763_802_120_000 + n * 30_000) for n in range(5))
    plot = Plot("p", "line", "time, UTC", "y", (Series("s", x, x),), x_is_time=True)
    labels = _texts(draw(plot, "p.").svg)
    assert {"09:02:30", "09:03:00"} <= set(labels) and labels.count("2025-11-22") == 1


def test_one_long_interval_does_not_hide_the_others() -> None:
    series = Series("s", ("a", "b"), (0.5, 2.0), (0.4, 0.5), (0.6, 50.0))
    labels = _texts(draw(Plot("p", "intervals", "", "ratio", (series,), reference=1.0), "p.").svg)
    assert {"0.5", "5", "50"} <= set(labels)
