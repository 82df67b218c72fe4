"""What a report is: plain, frozen data, made by sections/, drawn by html/, kept as JSON.

    Report -> Section -> Table -> Cell -> Rows
                      -> Plot  -> Series
                      -> Finding

A report is made first and drawn afterwards, so the HTML and the JSON cannot differ, a section is
tested without a browser and the page without Spark. Every number of a table says by `Rows` how its
rows are found; its address, `section.t<table>.r<row>.c<column>` (all counted from 0), is what the
page shows and what spark_jobs.rows takes. See docs/adr/0023-report-as-data.md.

What cannot be is refused when it is made (ValueError): rows of another width than their table's,
series of unequal length, two sections of one key. JSON is strict: a number that does not exist (a
gap in a line) is NaN here and null there. What is read back is checked field by field, because a
file may hold anything; an error names the place in it.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import math
import re
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

JSON_VERSION: Final = 2
JSON_BYTES_MAX: Final = 64 << 20  # far above what tables of a page hold
TIME_MS_MAX: Final = 253_402_300_799_000  # the end of 9999
DEPTH_MAX: Final = 16  # of the file: a report has 7 levels

Verdict = Literal["", "good", "bad", "open"]
PlotKind = Literal["line", "bars", "intervals"]
# An alarm: the report exits with 10. A warning: a rule that fires at its end. Unknown: no data.
Severity = Literal["alarm", "warning", "unknown"]

_KEY: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_CELL_ID: Final = re.compile(r"([a-z][a-z0-9_-]*)\.t(\d{1,6})\.r(\d{1,6})\.c(\d{1,6})")


class ReportError(ValueError):
    """A report's JSON, or an address in it, is not what it should be; one line."""


@dataclass(frozen=True)
class Rows:
    """How the rows of a number are found.

    `where` is a Spark SQL predicate over the table as tables.read gives it; `count` is how many
    rows it held when the report was made.
    """

    table: str
    where: str
    count: int


@dataclass(frozen=True)
class Cell:
    """One place of a table: its text, its number, and where that comes from."""

    text: str
    value: float | None = None
    rows: Rows | None = None
    verdict: Verdict = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells under named columns; a column's name carries its unit, as in "p99, ms"."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table {self.title!r}: row {number} has {len(row)} cells"
                    f" for {len(self.columns)} columns"
                )


@dataclass(frozen=True)
class Series:
    """One line (or set of bars) of a plot; NaN in y is a gap.

    `low` and `high` are the ends of the interval around each y; both or neither are given.
    """

    name: str
    x: tuple[float | str, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"series {self.name!r}: {len(self.x)} x for {len(self.y)} y")
        if len(self.low) != len(self.high) or len(self.low) not in (0, len(self.y)):
            raise ValueError(
                f"series {self.name!r}: {len(self.low)} low and {len(self.high)} high"
                f" for {len(self.y)} y"
            )


@dataclass(frozen=True)
class Plot:
    """Series over one x axis.

    `x` and `y` are the axes' labels with units. `x_is_time`: x is ms since 1970 UTC. "bars" and
    "intervals" take names (str) for x; "line" takes numbers. `reference` is a y that is marked
    across the plot: 1 of a ratio, the threshold of an alarm.
    """

    title: str
    kind: PlotKind
    x: str
    y: str
    series: tuple[Series, ...]
    x_is_time: bool = False
    log_x: bool = False
    log_y: bool = False
    reference: float | None = None

    def __post_init__(self) -> None:
        names = any(isinstance(x, str) for series in self.series for x in series.x)
        if self.kind == "line" and names:
            raise ValueError(f"plot {self.title!r}: a line needs numbers for x")


@dataclass(frozen=True)
class Finding:
    """What is wrong, since when (ms since 1970 UTC; None: not known), and where to look."""

    what: str
    since_ms: int | None = None
    look: str = ""
    severity: Severity = "alarm"

    @property
    def text(self) -> str:
        """In one line, as cron mails it."""
        since = "" if self.since_ms is None else f", since {moment(self.since_ms)} UTC"
        return f"{self.what}{since}{f': {self.look}' if self.look else ''}"


@dataclass(frozen=True)
class Section:
    """One chapter: words first, then plots and tables; what it finds wrong heads the page."""

    key: str
    title: str
    words: tuple[str, ...]
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()
    findings: tuple[Finding, ...] = ()

    def __post_init__(self) -> None:
        if not _KEY.fullmatch(self.key):
            raise ValueError(f"section key {self.key!r}: small letters, digits, - and _")


@dataclass(frozen=True)
class Report:
    """The whole: when it was made, over which tables and which span (ms since 1970 UTC)."""

    made_at_ms: int
    root: str
    since_ms: int
    until_ms: int
    sections: tuple[Section, ...]

    def __post_init__(self) -> None:
        keys = [section.key for section in self.sections]
        if len(set(keys)) != len(keys):
            raise ValueError(f"two sections have one key: {', '.join(keys)}")

    @property
    def alarms(self) -> tuple[str, ...]:
        """Of all sections, in their order, each in one line."""
        return tuple(found.text for _, found in self.findings if found.severity == "alarm")

    @property
    def findings(self) -> tuple[tuple[str, Finding], ...]:
        """Each with its section's key: alarms first, then in the order of the page."""
        every = [(section.key, one) for section in self.sections for one in section.findings]
        order = get_args(Severity)
        return tuple(sorted(every, key=lambda found: order.index(found[1].severity)))

    def cells(self) -> Iterator[tuple[str, Cell]]:
        """Every cell with its address, in the order of the page."""
        for section in self.sections:
            for t, table in enumerate(section.tables):
                for r, row in enumerate(table.rows):
                    for c, cell in enumerate(row):
                        yield cell_id(section.key, t, r, c), cell

    def cell(self, address: str) -> Cell:
        """The cell at an address; ReportError if there is none."""
        match = _CELL_ID.fullmatch(address)
        if match is None:
            raise ReportError(
                f"{address!r} is no cell's address: they look like latency.t0.r0.c7, and the page"
                " shows each number's when the pointer rests on it"
            )
        key = match[1]
        table, row, column = (int(match[n]) for n in (2, 3, 4))
        for section in self.sections:
            if section.key == key:
                try:
                    return section.tables[table].rows[row][column]
                except IndexError:
                    raise ReportError(f"section {key} of this report has no {address}") from None
        keys = ", ".join(section.key for section in self.sections)
        raise ReportError(f"this report has no section {key}; it has {keys}")

    def to_json(self) -> str:
        """As strict JSON; from_json() gives an equal report."""
        plain = _plain(dataclasses.asdict(self))
        return json.dumps(
            {"report_version": JSON_VERSION, **plain}, allow_nan=False, ensure_ascii=False, indent=1
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Report:
        """What to_json() wrote; ReportError in one line for anything else. Extra fields pass."""
        if len(text) > JSON_BYTES_MAX:
            raise ReportError(f"a report of {len(text)} bytes: at most {JSON_BYTES_MAX} are read")
        try:
            raw = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise ReportError(f"not a report's JSON: {error}") from None
        version = raw.get("report_version") if isinstance(raw, dict) else None
        if version != JSON_VERSION:
            raise ReportError(
                f"a report of version {version!r}: this reads {JSON_VERSION}; make it again with"
                " python -m spark_jobs.report"
            )
        try:
            return _read(cls, raw, "report", DEPTH_MAX)  # type: ignore[no-any-return]
        except ReportError:
            raise
        except ValueError as error:
            raise ReportError(f"report: {error}") from None


def moment(ms: float | None) -> str:
    """2026-11-22 01:45:03, in UTC; of nonsense the nearest that exists."""
    if ms is None:
        return "-"
    at = datetime.datetime.fromtimestamp(min(max(ms, 0), TIME_MS_MAX) / 1000, tz=datetime.UTC)
    return at.strftime("%Y-%m-%d %H:%M:%S")


def cell_id(section: str, table: int, row: int, column: int) -> str:
    """A cell's address; tables, rows and columns are counted from 0."""
    return f"{section}.t{table}.r{row}.c{column}"


# -- JSON


def _plain(value: Any) -> Any:
    """What strict JSON can hold: a number that is not finite becomes null."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _read(wanted: Any, value: Any, place: str, depth: int) -> Any:
    """`value` as the type `wanted`; ReportError with the place if it is something else."""
    if depth == 0:
        raise ReportError(f"{place}: nested too deeply")
    if dataclasses.is_dataclass(wanted):
        return _read_object(wanted, value, place, depth)
    origin = get_origin(wanted)
    if origin is tuple:
        if not isinstance(value, list):
            raise _wrong(place, "a list", value)
        inner = get_args(wanted)[0]
        return tuple(_read(inner, item, f"{place}[{n}]", depth - 1) for n, item in enumerate(value))
    if origin is Literal:
        if not isinstance(value, str) or value not in get_args(wanted):
            raise _wrong(place, f"one of {', '.join(map(repr, get_args(wanted)))}", value)
        return value
    if origin in (Union, types.UnionType):
        return _read_union(get_args(wanted), value, place, depth)
    return _read_scalar(wanted, value, place)


def _read_object(wanted: Any, value: Any, place: str, depth: int) -> Any:
    if not isinstance(value, dict):
        raise _wrong(place, "an object", value)
    given = {}
    for field in dataclasses.fields(wanted):
        if field.name in value:
            inner = _hints(wanted)[field.name]
            given[field.name] = _read(inner, value[field.name], f"{place}.{field.name}", depth - 1)
        elif field.default is dataclasses.MISSING:
            raise ReportError(f"{place}: {field.name} is missing")
    return wanted(**given)


def _read_union(kinds: tuple[Any, ...], value: Any, place: str, depth: int) -> Any:
    if value is None and type(None) in kinds:
        return None
    if isinstance(value, str) and str in kinds:
        return value
    rest = [kind for kind in kinds if kind not in (type(None), str)]
    return _read(rest[0], value, place, depth - 1)


def _read_scalar(wanted: type, value: Any, place: str) -> Any:
    if wanted is float:
        if value is None:
            return math.nan
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                number = float(value)
            except OverflowError:
                number = math.inf
            if math.isfinite(number):
                return number
        raise _wrong(place, "a number", value)
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise _wrong(place, {str: "text", int: "an integer", bool: "true or false"}[wanted], value)
    return value


def _wrong(place: str, wanted: str, value: Any) -> ReportError:
    found = "null" if value is None else type(value).__name__
    return ReportError(f"{place}: {wanted} was expected, not {found} ({str(value)[:40]!r})")


@functools.cache
def _hints(wanted: type) -> dict[str, Any]:
    return get_type_hints(wanted)
