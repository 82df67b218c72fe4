"""A page as JSON: `?format=json`. Values are those of the page, not as they are drawn.

    {"title": "Topics", "sections": [
        {"kind": "table", "name": "topics", "title": "Topics", "total": 12, "next_path": "",
         "columns": [{"name": "bytes", "title": "Size", "unit": "bytes"}], "rows": [{"bytes": 17}]},
        {"kind": "facts", "name": "cluster", "title": "Cluster", "values": {"brokers": 3}},
        {"kind": "notice", "tone": "bad", "what": "...", "next_step": "..."},
        {"kind": "links", "name": "more", "title": "More", "items": [{"title": "", "path": ""}]}]}

Forms are left out: they have nothing that the page found. Pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any, Final

from kbroker.console.page import Facts, Links, Notice, Page, Section, Table, Value

_ROWS_BETWEEN_PAUSES: Final = 200


def as_json(page: Page, pause: Callable[[], None]) -> bytes:
    sections = [part for each in page.sections for part in _section(each, pause)]
    document = {"title": page.title, "sections": sections}
    return json.dumps(document, allow_nan=False).encode() + b"\n"


def _section(section: Section, pause: Callable[[], None]) -> Iterator[dict[str, Any]]:
    match section:
        case Table():
            yield {
                "kind": "table", "name": section.name, "title": section.title,
                "columns": [
                    {"name": each.name, "title": each.title, "unit": each.unit.value}
                    for each in section.columns
                ],
                "rows": list(_rows(section, pause)),
                "total": section.total, "next_path": section.next_path,
            }  # fmt: skip
        case Facts():
            values = {each.name: _plain(each.cell.value) for each in section.items}
            yield {"kind": "facts", "name": section.name, "title": section.title, "values": values}
        case Notice():
            yield {
                "kind": "notice", "tone": section.tone.value, "what": section.what,
                "next_step": section.next_step,
            }  # fmt: skip
        case Links():
            items = [{"title": title, "path": path} for title, path in section.items]
            yield {"kind": "links", "name": section.name, "title": section.title, "items": items}


def _rows(table: Table, pause: Callable[[], None]) -> Iterator[dict[str, Value]]:
    names = [each.name for each in table.columns]
    for number, row in enumerate(table.rows, 1):
        yield {name: _plain(cell.value) for name, cell in zip(names, row, strict=True)}
        if number % _ROWS_BETWEEN_PAUSES == 0:
            pause()


def _plain(value: Value) -> Value:
    """JSON has no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
