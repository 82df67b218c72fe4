"""The part of a page of docs/ that is drawn from a table of the code, between two markers.

For the developers' tools that draw it (`draw_*.py`); the broker never imports this.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

END: Final = "<!-- end -->"


def replaced(page: str, begin: str, drawn: str) -> str:
    """The page with its generated part drawn anew; the prose around it stays.

    Raises ValueError if a marker is missing.
    """
    before, found_begin, rest = page.partition(begin)
    _, found_end, after = rest.partition(END)
    if not found_begin or not found_end:
        raise ValueError("the page lacks the markers of the generated part")
    return f"{before}{begin}\n\n{drawn}\n\n{END}{after}"


def draw(arguments: list[str], begin: str, generated: Callable[[], str]) -> int:
    """Print the part, or rewrite it in the page that is named; an exit status."""
    if not arguments:
        print(generated())
        return 0
    path = Path(arguments[0])
    page = replaced(path.read_text(encoding="utf-8"), begin, generated())
    path.write_text(page, encoding="utf-8")
    return 0
