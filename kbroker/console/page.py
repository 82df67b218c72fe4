"""A page of the console as data: what the templates draw, and what `?format=json` answers.

Place in the flow: a module of `pages/` makes one from an `Asked`; `render.py` draws it. Level 0:
values only. Text in it is as it was sent by clients: `render.py` escapes it, once, for all pages;
no page makes HTML. A link is a path of the console, made by `to`, which quotes its parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import quote, urlencode

# None is drawn as a dash: it is not known, or does not apply.
Value = str | int | float | bool | None


class Unit(StrEnum):
    """How a value is drawn; JSON has the value itself."""

    TEXT = "text"
    COUNT = "count"
    BYTES = "bytes"
    BYTES_PER_S = "bytes_per_s"
    PER_S = "per_s"
    DURATION_MS = "duration_ms"
    MOMENT_MS = "moment_ms"  # milliseconds since 1970, UTC
    RATIO = "ratio"  # 0 to 1, drawn as per cent
    PAYLOAD = "payload"  # text of any length in a fixed-width font, over several lines


class Tone(StrEnum):
    """Drawn as a colour and, for readers who do not see it, as a word."""

    PLAIN = "plain"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    QUIET = "quiet"


class Cell(NamedTuple):
    value: Value
    path: str = ""  # where it leads, of `to`
    tone: Tone = Tone.PLAIN


class Column(NamedTuple):
    name: str  # its key in JSON
    title: str
    unit: Unit = Unit.TEXT


class Table(NamedTuple):
    """Each row has a cell for each column. `next_path`: the next rows; `total`: of all pages."""

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    empty: str = "none"
    total: int | None = None
    next_path: str = ""


class Fact(NamedTuple):
    name: str
    title: str
    cell: Cell
    unit: Unit = Unit.TEXT


class Facts(NamedTuple):
    """A short list of names and values."""

    name: str
    title: str
    items: Sequence[Fact]


class Notice(NamedTuple):
    """What happened, why, and what to do: a line for people at the top of its place."""

    tone: Tone
    what: str
    next_step: str = ""


class Field(NamedTuple):
    """`options`: (value, label) of a choice; without them a text field of `kind`."""

    name: str
    label: str
    value: str = ""
    kind: str = "text"  # an HTML input's type: text, number, datetime-local, search, hidden
    options: Sequence[tuple[str, str]] = ()
    help: str = ""


class Form(NamedTuple):
    """`writes`: sent by POST, to a route of Kind.WRITE; else by GET, which changes the view."""

    name: str
    title: str
    path: str
    fields: Sequence[Field]
    submit: str
    writes: bool = False


class Links(NamedTuple):
    """Ways to pages that belong together: (title, path)."""

    name: str
    title: str
    items: Sequence[tuple[str, str]]


Section = Table | Facts | Notice | Form | Links


class Page(NamedTuple):
    """`trail`: (title, path) of the pages above it. `refresh_s`: how often it is worth another
    look, 0 for never; `tail_path`: an event stream whose rows go before the first table's."""

    title: str
    sections: Sequence[Section]
    trail: Sequence[tuple[str, str]] = ()
    refresh_s: int = 0
    tail_path: str = ""
    status: int = 200


def to(*parts: str | int, **query: str | int | None) -> str:
    """A path of the console: `to("topics", topic, "messages", offset=5)`. None is left out."""
    path = "/ui/" + "/".join(_quoted(str(part)) for part in parts)
    pairs = [(name, value) for name, value in query.items() if value is not None]
    return f"{path}?{urlencode(pairs, errors='replace')}" if pairs else path


def _quoted(part: str) -> str:
    """Browsers take dots and empty parts out of a path, so these have a tilde before them."""
    changed = part.startswith("~") or part in ("", ".", "..")
    return ("~" if changed else "") + quote(part, safe="", errors="replace")
