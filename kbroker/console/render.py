"""A page as HTML: the one template of all pages, and what it is given.

Place in the flow: `app.py` has a page drawn on the console's thread. Everything that the template
shows passes through here: text of clients becomes one of `units.py`, without a character that could
do something; the template escapes it for HTML; a link is one only if it is a path of the console.
jinja2 comes in through this file alone; nothing of a visitor is ever a template.

A table's rows are made while they are drawn, with a pause after each 200.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from kbroker.console.page import (
    Cell,
    Facts,
    Field,
    Form,
    Links,
    Notice,
    Page,
    Section,
    Table,
    Tone,
    Unit,
)
from kbroker.console.routes import ROOT
from kbroker.console.units import drawn, exact, is_number
from kbroker.limits import CONSOLE_PATH_CHARS_MAX, CONSOLE_TEXT_CHARS_MAX
from kbroker.outside_text import printable

_HERE: Final = Path(__file__).parent
_ENVIRONMENT: Final = Environment(
    loader=FileSystemLoader(_HERE / "templates"), autoescape=True, undefined=StrictUndefined,
    auto_reload=False, trim_blocks=False, enable_async=False,
)  # fmt: skip
_TEMPLATE: Final = _ENVIRONMENT.get_template("page.j2")
_ROWS_BETWEEN_PAUSES: Final = 200
_LONG_CHARS: Final = 400
_LONG_LINES: Final = 8
_KINDS: Final = ("text", "number", "datetime-local", "search", "hidden", "password")
_WORDS: Final = {
    Tone.PLAIN: "Note", Tone.QUIET: "Note", Tone.GOOD: "Good", Tone.WARN: "Warning",
    Tone.BAD: "Failing",
}  # fmt: skip
_SPOKEN: Final = {Tone.GOOD: "good", Tone.WARN: "warning", Tone.BAD: "failing"}

Pause = Callable[[], None]


class StaticFile(NamedTuple):
    body: bytes
    content_type: str
    path: str


def _static(name: str, content_type: str) -> StaticFile:
    body = (_HERE / "static" / name).read_bytes()
    # Its address changes with it, so that browsers may keep it.
    return StaticFile(body, content_type, f"{ROOT}/static/{sha256(body).hexdigest()[:12]}/{name}")


STYLE: Final = _static("console.css", "text/css; charset=utf-8")
SCRIPT: Final = _static("console.js", "text/javascript; charset=utf-8")
STATIC_FILES: Final = {each.path: each for each in (STYLE, SCRIPT)}


class Place(NamedTuple):
    """An entry of the navigation."""

    title: str
    path: str
    key: str
    current: bool = False


class Frame(NamedTuple):
    """What is around a page. `visitor`: the name that has logged in."""

    name: str
    navigation: Sequence[Place]
    visitor: str = ""
    footer: str = ""
    json_path: str = ""


class CellView(NamedTuple):
    """A cell as the template writes it. `word`: its tone for readers who do not see it."""

    text: str
    path: str
    style: str
    exact: str
    word: str
    block: bool = False
    long: bool = False
    tag: str = "td"


def as_html(page: Page, frame: Frame, pause: Pause) -> bytes:
    view = {
        "title": _line(page.title),
        "trail": [_link(*each) for each in page.trail],
        "refresh_s": page.refresh_s,
        "tail_path": _path(page.tail_path),
        "has_forms": any(isinstance(each, Form) for each in page.sections),
        "json_path": _path(frame.json_path),
        "sections": _sections(page, pause),
    }
    return "".join(
        _TEMPLATE.generate(page=view, frame=frame, style=STYLE.path, script=SCRIPT.path)
    ).encode(errors="replace")


def cell_view(cell: Cell, unit: Unit, tag: str = "td") -> CellView:
    text = drawn(cell.value, unit)
    block = unit is Unit.PAYLOAD and cell.value is not None
    styles = ["n"] if is_number(unit) else []
    if unit is Unit.MOMENT_MS:
        styles.append("moment")
    if block:
        styles.append("payload")
    tone = Tone.QUIET if cell.value is None and cell.tone is Tone.PLAIN else cell.tone
    if tone is not Tone.PLAIN:
        styles.append(tone.value)
    long = block and (len(text) > _LONG_CHARS or text.count("\n") > _LONG_LINES)
    return CellView(
        text, _path(cell.path), " ".join(styles), exact(cell.value, unit), _SPOKEN.get(tone, ""),
        block, long, tag,
    )  # fmt: skip


# --- sections -------------------------------------------------------------------------------------


def _sections(page: Page, pause: Pause) -> Iterator[dict[str, Any]]:
    tails = page.tail_path
    for number, section in enumerate(page.sections):
        view = _section(section, f"s{number}", pause, tails=bool(tails))
        if isinstance(section, Table):
            tails = ""  # its rows go into the first table
        yield view


def _section(section: Section, section_id: str, pause: Pause, *, tails: bool) -> dict[str, Any]:
    match section:
        case Notice():
            return {
                "kind": "notice", "tone": section.tone.value, "word": _WORDS[section.tone],
                "what": _line(section.what), "next_step": _line(section.next_step),
            }  # fmt: skip
        case Facts():
            facts = [
                {"title": _line(each.title), "cell": cell_view(each.cell, each.unit)}
                for each in section.items
            ]
            return _titled("facts", section.title, section_id) | {"facts": facts}
        case Table():
            return _titled("table", section.title, section_id) | _table(section, pause, tails)
        case Form():
            return _titled("form", section.title, section_id) | _form(section, section_id)
        case Links():
            links = [_link(*each) for each in section.items]
            return _titled("links", section.title, section_id) | {"links": links}


def _titled(kind: str, title: str, section_id: str) -> dict[str, Any]:
    return {"kind": kind, "title": _line(title), "id": section_id}


def _table(table: Table, pause: Pause, tails: bool) -> dict[str, Any]:
    columns = [
        {"title": _line(each.title), "style": "n" if is_number(each.unit) else ""}
        for each in table.columns
    ]
    listed = len(table.rows)
    count = f"{listed:,}" if listed else ""
    if table.total is not None and table.total != listed:
        count = f"{listed:,} of {table.total:,}"
    return {
        "columns": columns, "rows": _rows(table, pause), "count": count, "is_empty": not listed,
        "empty": _line(table.empty), "next_path": _path(table.next_path), "tails": tails,
    }  # fmt: skip


def _rows(table: Table, pause: Pause) -> Iterator[list[CellView]]:
    units = [each.unit for each in table.columns]
    for number, row in enumerate(table.rows, 1):
        yield row_view(row, units)
        if number % _ROWS_BETWEEN_PAUSES == 0:
            pause()


def row_view(row: Sequence[Cell], units: Sequence[Unit]) -> list[CellView]:
    """Its first cell is its head, if there are others."""
    tags = ["th"] + ["td"] * (len(units) - 1) if len(units) > 1 else ["td"]
    return [cell_view(*each) for each in zip(row, units, tags, strict=True)]


def _form(form: Form, section_id: str) -> dict[str, Any]:
    views = [_field(each, f"{section_id}-{number}") for number, each in enumerate(form.fields)]
    return {
        "path": _path(form.path), "submit": _line(form.submit), "writes": form.writes,
        "method": "post" if form.writes else "get",
        "fields": [each for each in views if each["kind"] != "hidden"],
        "hidden": [each for each in views if each["kind"] == "hidden"],
    }  # fmt: skip


def _field(field: Field, field_id: str) -> dict[str, Any]:
    """A value stays as it is: it is sent again."""
    kind = field.kind if field.kind in _KINDS else "text"
    return {
        "id": field_id, "name": field.name, "label": _line(field.label), "kind": kind,
        "value": field.value, "help": _line(field.help),
        "complete": {"user": "username", "password": "current-password"}.get(field.name, ""),
        "step": "1" if kind == "datetime-local" else "",
        "options": [
            {"value": value, "label": _line(label), "chosen": value == field.value}
            for value, label in field.options
        ],
    }  # fmt: skip


def _link(title: str, path: str) -> dict[str, str]:
    return {"text": _line(title), "path": _path(path)}


def _line(text: str) -> str:
    return printable(text, CONSOLE_TEXT_CHARS_MAX)


def _path(path: str) -> str:
    """Of the console, and not longer than a request may be: else it is no link."""
    fits = len(path) <= CONSOLE_PATH_CHARS_MAX and path.startswith(f"{ROOT}/")
    return path if fits and path.isprintable() else ""
