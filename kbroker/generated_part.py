"""The part of a page of docs/ that is drawn from a table of the code, between two markers.

For the developers' tools that draw it (`draw_*.py`); the broker never imports this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import Final, TypeVar

END: Final = "<!-- end -->"

Event = TypeVar("Event", bound=Enum)
State = TypeVar("State", bound=Enum)


def replaced(page: str, begin: str, drawn: str) -> str:
    """The page with its generated part drawn again; the prose around it stays.

    Raises ValueError if a marker is missing.
    """
    before, found_begin, rest = page.partition(begin)
    _, found_end, after = rest.partition(END)
    if not found_begin or not found_end:
        raise ValueError("the page lacks the markers of the generated part")
    return f"{before}{begin}\n\n{drawn}\n\n{END}{after}"


def cells(
    events: Iterable[Event],
    states: Iterable[tuple[State, str]],
    in_words: Callable[[State, Event], str],
) -> str:
    """A state machine's table: a row for each event, a column for each state and its label."""
    columns = list(states)
    lines = [
        "| event | " + " | ".join(label for _, label in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for event in events:
        row = [in_words(state, event) for state, _ in columns]
        lines.append(f"| {event.name} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def meanings(title: str, meaning: str, members: Iterable[Enum]) -> str:
    """A table of names and what they stand for, which are their values."""
    lines = [f"| {title} | {meaning} |", "|---|---|"]
    return "\n".join([*lines, *(f"| {each.name} | {each.value} |" for each in members)])


def draw(arguments: list[str], begin: str, generated: Callable[[], str]) -> int:
    """Print the part, or rewrite it in the page that is named; an exit status."""
    if not arguments:
        print(generated())
        return 0
    path = Path(arguments[0])
    page = replaced(path.read_text(encoding="utf-8"), begin, generated())
    path.write_text(page, encoding="utf-8")
    return 0
