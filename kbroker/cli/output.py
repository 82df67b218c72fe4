"""What commands share: the option `-o text|json` and the way each form is printed.

Text is for people and may change; JSON is for programs: one document on standard output, field
names in snake_case, nothing else beside it. Errors go to standard error in both forms.

Text may quote what clients have sent, so it is printed by `say`, `say_to_programs` and
`print_table` alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

from kbroker.outside_text import escaped

Command = TypeVar("Command", bound=Callable[..., Any])


def output_option(function: Command) -> Command:
    """Adds `-o/--output text|json`, which arrives as `output`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="For people, or for programs.",
    )(function)


def write_json(document: object) -> None:
    """One JSON document on standard output."""
    import json

    json.dump(document, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def say(line: str, *, err: bool = False) -> None:
    """One line for people. Ids and names are others' text: what moves a cursor is escaped."""
    click.echo(escaped(line), err=err)


def say_to_programs(line: str, *, err: bool = False) -> None:
    """A line as programs read it. On a terminal what moves a cursor is escaped, tabs are not."""
    stream = sys.stderr if err else sys.stdout
    if stream.isatty():
        line = "\t".join(escaped(part) for part in line.split("\t"))
    stream.write(line + "\n")  # click.echo would take escape sequences out
    stream.flush()


def as_cell(value: object) -> str:
    return "-" if value is None or value == "" else str(value)


def write_rows(rows: Sequence[Mapping[str, object]], titles: Sequence[str], output: str) -> None:
    """Rows of one kind, in the form that is asked for; each title is that of a field."""
    if output == "json":
        write_json(rows)
    else:
        print_table(titles, [[as_cell(value) for value in row.values()] for row in rows])


def print_table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns as wide as they must be; nothing at all, not even titles, without rows."""
    lines = [[escaped(str(cell)) for cell in row] for row in rows]
    if not lines:
        return
    widths = [max(map(len, column)) for column in zip(titles, *lines, strict=True)]
    for line in [list(titles), *lines]:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        say("  ".join(cells).rstrip())
