"""The page of a report: `render(report, json_name) -> str`, one HTML document with all it needs.

No script, no link to anything outside, nothing fetched; a content security policy says so to the
browser too. A record may hold any bytes: the template escapes everything, and words.py
takes out what hides.

Every number is a link to the line below its table that says which rows it was made of, and names
its address when the pointer rests on it. A page is bounded: tables beyond ROWS_MAX rows end with a
line that says how many more the JSON has. The same report gives the same bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup, escape

from spark_jobs.html import theme, words
from spark_jobs.html.plots import Drawing, Key, draw
from spark_jobs.report_model import Cell, Finding, Plot, Report, Rows, Section, Table, cell_id

ROWS_MAX: Final = 400
ONE_LINE_CHARS: Final = 34  # text of so few is not broken
SIGNS: Final = {"": "", "good": "\u2713", "bad": "\u2717", "open": "?"}
TITLE: Final = "kbroker report"


@dataclass(frozen=True)
class CellView:
    """A cell as the template needs it."""

    id: str
    text: str
    style: str  # classes: n of a column of numbers, w where the text stays on one line
    verdict: str
    sign: str
    source: str  # id of the line that says where it comes from; "" without
    hint: str


@dataclass(frozen=True)
class SourceView:
    """One line under a table: which numbers were made of which rows."""

    id: str
    cells: str
    table: str
    where: str
    count: str
    example: str


@dataclass(frozen=True)
class TableView:
    """A table as the template needs it; `numbers` says of each column whether it holds numbers."""

    id: str
    title: str
    columns: tuple[str, ...]
    numbers: tuple[bool, ...]
    rows: tuple[tuple[CellView, ...], ...]
    note: str
    more: int
    sources: tuple[SourceView, ...]


@dataclass(frozen=True)
class PlotView:
    """A plot as the template needs it."""

    id: str
    title: str
    svg: Markup
    legend: tuple[Key, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class FindingView:
    """What is wrong as the template needs it; `since` and `ago` are empty where it is not known."""

    key: str
    severity: str
    what: str
    since: str
    ago: str
    look: str


@dataclass(frozen=True)
class SectionView:
    """A section as the template needs it."""

    key: str
    title: str
    words: tuple[Markup, ...]
    findings: tuple[FindingView, ...]
    plots: tuple[PlotView, ...]
    tables: tuple[TableView, ...]


def render(report: Report, json_name: str = "report.json") -> str:
    """The whole document. `json_name` is the JSON's file, as the page's commands name it."""
    sections = [_section(section, report, json_name) for section in report.sections]
    return _template().render(
        title=TITLE,
        light=Markup(theme.css(theme.LIGHT)),
        dark=Markup(theme.css(theme.DARK)),
        sections=sections,
        findings=[_finding(found, key, report) for key, found in report.findings],
        alarms=len(report.alarms),
        root=words.clean(report.root),
        since=words.moment(report.since_ms),
        until=words.moment(report.until_ms),
        span=words.duration(report.until_ms - report.since_ms),
        made=words.moment(report.made_at_ms),
        json_name=words.clean(json_name),
    )


def _template() -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(
        files("spark_jobs.html").joinpath("report.html.j2").read_text("utf-8")
    )


def _finding(found: Finding, key: str, report: Report) -> FindingView:
    since = found.since_ms
    return FindingView(
        key, found.severity, words.clean(found.what),
        "" if since is None else words.moment(since),
        "" if since is None else words.duration(report.until_ms - since),
        words.clean(found.look),
    )  # fmt: skip


def _section(section: Section, report: Report, json_name: str) -> SectionView:
    return SectionView(
        key=section.key,
        title=words.clean(section.title),
        words=tuple(_prose(text) for text in section.words),
        findings=tuple(_finding(found, section.key, report) for found in section.findings),
        plots=tuple(_plot(plot, f"{section.key}.p{n}") for n, plot in enumerate(section.plots)),
        tables=tuple(
            _table(table, section.key, n, json_name) for n, table in enumerate(section.tables)
        ),
    )


_CODE: Final = re.compile(r"`([^`]{1,400})`")


def _prose(text: str) -> Markup:
    """A paragraph; text in `backticks` is set as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(words.clean(text)))))


def _plot(plot: Plot, place: str) -> PlotView:
    drawing: Drawing = draw(plot, f"{place}.")
    legend = drawing.legend if len(drawing.legend) > 1 else ()
    return PlotView(place, words.clean(plot.title), Markup(drawing.svg), legend, drawing.notes)


def _table(table: Table, key: str, number: int, json_name: str) -> TableView:
    place = f"{key}.t{number}"
    numbers = tuple(
        any(row[c].value is not None for row in table.rows[:ROWS_MAX])
        for c in range(len(table.columns))
    )
    rows: list[tuple[CellView, ...]] = []
    sources: list[SourceView] = []
    for r, row in enumerate(table.rows[:ROWS_MAX]):
        known = _sources(row, key, number, r, json_name)
        sources.extend(known.values())
        rows.append(
            tuple(
                _cell(cell, cell_id(key, number, r, c), numbers[c], known)
                for c, cell in enumerate(row)
            )
        )
    return TableView(
        id=place,
        title=words.clean(table.title),
        columns=tuple(words.clean(column, 200) for column in table.columns),
        numbers=numbers,
        rows=tuple(rows),
        note=words.clean(table.note),
        more=max(0, len(table.rows) - ROWS_MAX),
        sources=tuple(sources),
    )


def _sources(
    row: tuple[Cell, ...], key: str, table: int, number: int, json_name: str
) -> dict[Rows, SourceView]:
    """What the numbers of one row of a table were made of, each set of rows once."""
    columns: dict[Rows, list[int]] = {}
    for c, cell in enumerate(row):
        if cell.rows is not None:
            columns.setdefault(cell.rows, []).append(c)
    return {
        rows: SourceView(
            id=f"{key}.t{table}.r{number}.s{n}",
            cells=f"{key}.t{table}.r{number}." + " ".join(f"c{c}" for c in found),
            table=words.clean(rows.table, 100),
            where=words.clean(rows.where),
            count=f"{rows.count:,}",
            example=f"python -m spark_jobs.rows {words.clean(json_name)}"
            f" {cell_id(key, table, number, found[0])}",
        )
        for n, (rows, found) in enumerate(columns.items())
    }


def _cell(cell: Cell, place: str, number: bool, known: dict[Rows, SourceView]) -> CellView:
    source = known[cell.rows] if cell.rows is not None else None
    one_line = len(cell.text) <= ONE_LINE_CHARS
    styles = ("n" if number else "", "w" if one_line else "", cell.verdict)
    hint = place
    if source is not None:
        rows = "row" if source.count == "1" else "rows"
        hint = f"{place}: {source.count} {rows} of {source.table}"
    return CellView(
        id=place,
        text=words.clean(cell.text, 400),
        style=" ".join(filter(None, styles)),
        verdict=cell.verdict,
        sign=SIGNS[cell.verdict],
        source=source.id if source else "",
        hint=hint,
    )
