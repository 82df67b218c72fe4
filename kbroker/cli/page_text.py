"""A page of the console as text: for `kbroker top --page`, plainly or with rich.

Forms and links lead nowhere in a terminal and are left out. Values are drawn as in the console
(`console/units.py`), so nothing that a client has sent moves a cursor. Pure but for printing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from kbroker.cli.output import print_table, say
from kbroker.console.page import Cell, Facts, Notice, Page, Section, Table, Tone, Unit
from kbroker.console.units import drawn, is_number

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

_STYLES: Final = {
    Tone.PLAIN: "",
    Tone.GOOD: "green",
    Tone.WARN: "yellow",
    Tone.BAD: "bold red",
    Tone.QUIET: "dim",
}
# Tones that a reader must not miss where there is no colour.
_WORDS: Final = {Tone.WARN: "warning: ", Tone.BAD: "failing: "}


class Word(NamedTuple):
    """A cell as it is drawn."""

    text: str
    tone: Tone


class Block(NamedTuple):
    """A table with its title; without rows its `empty` line is all there is. `is_right`: of each
    column, whether its values are numbers."""

    title: str
    titles: Sequence[str]
    is_right: Sequence[bool]
    lines: Sequence[Sequence[Word]]
    empty: str
    more: str


Part = Word | Block


def parts_of(page: Page, rows: int) -> Iterator[Part]:
    """`rows`: of each table at most."""
    for section in page.sections:
        yield from _parts(section, rows)


def _parts(section: Section, rows: int) -> Iterator[Part]:
    match section:
        case Notice():
            step = f" -> {_line(section.next_step)}" if section.next_step else ""
            word = _WORDS.get(section.tone, "")
            yield Word(f"{word}{_line(section.what)}{step}", section.tone)
        case Facts():
            facts = [(Word(_line(each.title), Tone.QUIET), _word(each.cell, each.unit))
                     for each in section.items]  # fmt: skip
            yield Block(_line(section.title), ("", ""), (False, False), facts, "", "")
        case Table():
            yield _table(section, rows)


def _table(table: Table, rows: int) -> Block:
    lines = [
        [_word(cell, column.unit) for cell, column in zip(row, table.columns, strict=True)]
        for row in table.rows[:rows]
    ]
    total = len(table.rows) if table.total is None else table.total
    more = f"and {total - len(lines):,} more" if total > len(lines) else ""
    return Block(
        _line(table.title),
        [_line(each.title).upper() for each in table.columns],
        [is_number(each.unit) for each in table.columns],
        lines, table.empty, more,
    )  # fmt: skip


def _word(cell: Cell, unit: Unit) -> Word:
    return Word(" ".join(drawn(cell.value, unit).split("\n")), cell.tone)


def _line(text: str) -> str:
    return drawn(text, Unit.TEXT)


# --- plainly --------------------------------------------------------------------------------------


def print_page(page: Page, rows: int) -> None:
    say(_line(page.title))
    for part in parts_of(page, rows):
        if isinstance(part, Word):
            say(part.text)
            continue
        click.echo()
        say(f"{part.title}:" if part.lines else f"{part.title}: {part.empty}")
        lines = [[word.text for word in line] for line in part.lines]
        if any(part.titles):
            print_table(part.titles, lines)
        else:
            width = max((len(line[0]) for line in lines), default=0)
            for title, value in lines:
                say(f"  {title:<{width}}  {value}")
        if part.more:
            say(part.more)


# --- with rich ------------------------------------------------------------------------------------


def draw_page(page: Page, rows: int, headline: str) -> Group:
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn_parts: list[Text | RichTable] = [Text(headline, style="bold")]
    for part in parts_of(page, rows):
        if isinstance(part, Word):
            drawn_parts.append(_text(part))
            continue
        has_titles = any(part.titles)
        drawn_parts += [Text(), Text(part.title, style="bold")]
        table = RichTable(
            box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0),
            show_header=has_titles,
        )  # fmt: skip
        for title, is_right in zip(part.titles, part.is_right, strict=True):
            table.add_column(Text(title), justify="right" if is_right else "left", no_wrap=True)
        for line in part.lines:
            table.add_row(*map(_text, line))
        drawn_parts.append(table if part.lines else Text(part.empty, style="dim"))
        if part.more:
            drawn_parts.append(Text(part.more, style="dim"))
    return Group(*drawn_parts)


def _text(word: Word) -> Text:
    """Names are text of others: no markup."""
    from rich.text import Text

    return Text(word.text, style=_STYLES[word.tone])
