"""A report as data: what cannot be is refused, addresses find their cell, JSON gives it back."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.report_model import (
    Cell,
    Finding,
    Plot,
    Report,
    ReportError,
    Rows,
    Section,
    Series,
    Table,
    cell_id,
)

NUMBER = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(max_size=12)
ROWS = st.builds(Rows, table=TEXT, where=TEXT, count=st.integers(0, 2**63))
CELL = st.builds(
    Cell,
    text=TEXT,
    value=st.none() | NUMBER,
    rows=st.none() | ROWS,
    verdict=st.sampled_from(["", "good", "bad", "open"]),
)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    columns = draw(st.lists(TEXT, min_size=1, max_size=4))
    row = st.tuples(*[CELL] * len(columns))
    return Table(
        draw(TEXT), tuple(columns), tuple(draw(st.lists(row, max_size=4))), note=draw(TEXT)
    )


@st.composite
def series(draw: st.DrawFn) -> Series:
    length = draw(st.integers(0, 5))
    numbers = st.lists(NUMBER | st.just(math.nan), min_size=length, max_size=length).map(tuple)
    x = st.lists(NUMBER, min_size=length, max_size=length).map(tuple)
    low, high = (draw(numbers), draw(numbers)) if draw(st.booleans()) else ((), ())
    return Series(draw(TEXT), draw(x), draw(numbers), low, high)


SECTION = st.builds(
    Section,
    key=st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True),
    title=TEXT,
    words=st.lists(TEXT, max_size=2).map(tuple),
    tables=st.lists(tables(), max_size=3).map(tuple),
    plots=st.lists(
        st.builds(
            Plot,
            title=TEXT,
            kind=st.sampled_from(["line", "bars", "intervals"]),
            x=TEXT,
            y=TEXT,
            series=st.lists(series(), max_size=2).map(tuple),
            x_is_time=st.booleans(),
            log_y=st.booleans(),
            reference=st.none() | NUMBER,
        ),
        max_size=2,
    ).map(tuple),
    findings=st.lists(
        st.builds(
            Finding,
            TEXT,
            st.none() | st.integers(0, 2**53),
            TEXT,
            st.sampled_from(["alarm", "warning", "unknown"]),
        ),
        max_size=2,
    ).map(tuple),
)
REPORT = st.builds(
    Report,
    made_at_ms=st.integers(0, 2**53),
    root=TEXT,
    since_ms=st.integers(0, 2**53),
    until_ms=st.integers(0, 2**53),
    sections=st.lists(SECTION, max_size=3, unique_by=lambda section: section.key).map(tuple),
)


def small(**fields: object) -> Report:
    rows = Rows("results", "cell = 'p-1k-4x5'", 21)
    table = Table("t", ("cell", "p99, ms"), ((Cell("p-1k"), Cell("1.5", 1.5, rows, "good")),))
    whole = {
        "made_at_ms": 3,
        "root": "file:/tables",
        "since_ms": 1,
        "until_ms": 2,
        "sections": (Section("latency", "Latency", ("words",), (table,)),),
    }
    return Report(**{**whole, **fields})  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(REPORT)
def test_json_gives_the_same_report_back(report: Report) -> None:
    text = report.to_json()
    again = Report.from_json(text)
    assert again.to_json() == text
    assert [address for address, _ in again.cells()] == [a for a, _ in report.cells()]
    # NaN is equal to nothing, so what has gaps is compared as text above.
    if "null" not in text or not any(section.plots for section in report.sections):
        assert again == report


def test_a_gap_is_null_in_json_and_no_number_here() -> None:
    line = Series("kbroker", (1.0, 2.0), (math.nan, 3.0))
    report = small(sections=(Section("s", "S", (), plots=(Plot("p", "line", "x", "y", (line,)),)),))
    assert json.loads(report.to_json())["sections"][0]["plots"][0]["series"][0]["y"] == [None, 3.0]
    y = Report.from_json(report.to_json()).sections[0].plots[0].series[0].y
    assert math.isnan(y[0])
    assert y[1] == 3.0


@settings(max_examples=60, deadline=None)
@given(REPORT)
def test_every_cell_is_found_at_its_address(report: Report) -> None:
    for address, cell in report.cells():
        assert report.cell(address) is cell


def test_an_address_says_where() -> None:
    assert cell_id("latency", 0, 0, 1) == "latency.t0.r0.c1"
    assert small().cell("latency.t0.r0.c1").value == 1.5


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("latency.t0.r0.c2", "has no latency.t0.r0.c2"),
        ("latency.t1.r0.c0", "has no latency.t1.r0.c0"),
        ("brokers.t0.r0.c0", "no section brokers; it has latency"),
        ("latency.t-1.r0.c0", "no cell's address"),
        ("'; drop table", "no cell's address"),
        ("latency.t0.r0.c1\n", "no cell's address"),
    ],
)
def test_an_address_that_is_none(address: str, says: str) -> None:
    with pytest.raises(ReportError, match=says):
        small().cell(address)


def test_an_impossible_value_is_refused() -> None:
    with pytest.raises(ValueError, match="row 1 has 1 cells for 2 columns"):
        Table("t", ("a", "b"), ((Cell("1"), Cell("2")), (Cell("3"),)))
    with pytest.raises(ValueError, match="1 x for 2 y"):
        Series("s", (1.0,), (1.0, 2.0))
    with pytest.raises(ValueError, match="1 low and 0 high"):
        Series("s", (1.0,), (1.0,), low=(0.5,))
    with pytest.raises(ValueError, match="a line needs numbers"):
        Plot("p", "line", "x", "y", (Series("s", ("a",), (1.0,)),))
    with pytest.raises(ValueError, match="section key"):
        Section("No Key", "", ())
    with pytest.raises(ValueError, match="one key"):
        small(sections=(Section("a", "", ()), Section("a", "", ())))


def test_errors_are_of_all_sections_and_alarms_come_first() -> None:
    warning, unknown = Finding("w", severity="warning"), Finding("u", severity="unknown")
    alarm = Finding("silent", 1_764_072_000_000, "the broker")
    sections = (Section("a", "", (), findings=(unknown, warning)),
                Section("b", "", (), findings=(alarm,)))  # fmt: skip
    report = small(sections=sections)
    assert report.findings == (("b", alarm), ("a", warning), ("a", unknown))
    assert report.alarms == ("silent, since 2025-11-25 12:00:00 UTC: the broker",)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda raw: raw.pop("sections"), "report: sections is missing"),
        (lambda raw: raw.update(report_version=1), "a report of version 1"),
        (lambda raw: raw.update(made_at_ms="3"), "report.made_at_ms: an integer"),
        (lambda raw: raw.update(made_at_ms=True), "report.made_at_ms: an integer"),
        (lambda raw: raw.update(sections={}), "report.sections: a list"),
        (lambda raw: raw["sections"].append(3), r"report.sections\[1\]: an object"),
        (lambda raw: raw["sections"].append(raw["sections"][0]), "two sections have one key"),
        (lambda raw: raw["sections"][0].update(words=[1]), r"words\[0\]: text"),
        (
            lambda raw: raw["sections"][0]["tables"][0]["rows"][0][1].update(verdict="great"),
            r"rows\[0\]\[1\].verdict: one of",
        ),
        (
            lambda raw: raw["sections"][0]["tables"][0]["rows"][0][1].update(value=10**400),
            r"rows\[0\]\[1\].value: a number",
        ),
        (lambda raw: raw["sections"][0]["tables"][0]["rows"][0].pop(), "has 1 cells"),
    ],
)
def test_json_that_is_no_report(change: object, says: str) -> None:
    raw = json.loads(small().to_json())
    change(raw)  # type: ignore[operator]
    with pytest.raises(ReportError, match=says):
        Report.from_json(json.dumps(raw))


@pytest.mark.parametrize("text", ["", "[]", "3", "{", '{"a": NaN}', "[" * 100_000, b"\xff\xfe\xfa"])
def test_text_that_is_no_report(text: str | bytes) -> None:
    with pytest.raises(ReportError):
        Report.from_json(text)


def test_fields_that_came_later_are_passed_over() -> None:
    raw = json.loads(small().to_json())
    raw["sections"][0]["mood"] = "fine"
    assert Report.from_json(json.dumps(raw)) == small()
