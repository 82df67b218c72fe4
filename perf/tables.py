"""One rendering of results: tables of text, for a terminal and for a page of Markdown.

A measurement gives its results as `Table`s; how a number, an interval and a bar are written is
decided here, once. Pure functions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from perf.judge import Bar
from perf.stats import Estimate

NOTHING: Final = "-"  # where there is no number
WORDS_CHARS_MAX: Final = 100  # of a file's words for its machine


class Table(NamedTuple):
    """One table; every row has as many cells as the head."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def number(value: float) -> str:
    if value != value:
        return NOTHING
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def interval(found: Estimate) -> str:
    return found.text(number)


def machine_line(machine: Mapping[str, Any]) -> str:
    """Where figures come from (perf.machine.describe_machine), and over which network."""
    return (
        f"{machine['model']}, {machine['cpus']} CPUs, Linux {machine['kernel']}, commit"
        f" {machine['commit']}, {machine['when']}; network: {machine.get('network', NOTHING)}"
    )


def one_line(words: object, chars_max: int = WORDS_CHARS_MAX) -> str:
    """Words of a file as a few words that a page, a picture and a terminal can show."""
    plain = "".join(one if one.isprintable() else " " for one in str(words))
    return " ".join(plain.split())[:chars_max]


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines for a terminal: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        first = row[0].ljust(widths[0])
        others = (cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))
        return "  ".join([first, *others]).rstrip()

    return [line(head), "  ".join("-" * width for width in widths), *map(line, rows)]


def text(tables: Iterable[Table]) -> list[str]:
    """Lines for a terminal."""
    return [line for one in tables for line in ("", one.title, *aligned(one.head, one.rows))]


def markdown(tables: Iterable[Table]) -> list[str]:
    """Lines for a page, each table with a heading of the third level."""
    lines = []
    for one in tables:
        lines += ["", f"### {one.title}", "", _row(one.head), _row(["---"] * len(one.head))]
        lines += map(_row, one.rows)
    return lines


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("*", "\\*")


def bars_table(bars: Iterable[Bar]) -> Table:
    """Each bar, what was measured, and the verdict."""
    rows = [
        [
            bar.what,
            f"<= {number(bar.bar)} {bar.unit}",
            interval(bar.value) if bar.value else NOTHING,
            bar.verdict,
        ]
        for bar in bars
    ]
    return Table("What it must show", ("bar", "wanted", "found", "verdict"), rows)


def bar_lines(bars: Iterable[Bar]) -> list[str]:
    """The same for a terminal, without a title."""
    return aligned(*bars_table(bars)[1:])


def bar_json(bar: Bar) -> dict[str, Any]:
    return {
        "what": bar.what,
        "bar": bar.bar,
        "unit": bar.unit,
        "value": bar.value.to_json() if bar.value and bar.value.values else None,
        "band": bar.band,
        "verdict": bar.verdict,
    }


def json_rows(data: Mapping[str, Any]) -> str:
    """JSON in which each entry of a part has one line, so that a diff names what changed."""

    def part(value: Any) -> str:
        if isinstance(value, Mapping):
            entries = [f"{json.dumps(key)}: {_json(each)}" for key, each in value.items()]
        elif isinstance(value, list):
            entries = [_json(each) for each in value]
        else:
            return _json(value)
        opens, closes = "{}" if isinstance(value, Mapping) else "[]"
        return "\n  ".join([opens, ",\n  ".join(entries)]) + f"\n {closes}"

    parts = [f" {json.dumps(name)}: {part(value)}" for name, value in data.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False)
