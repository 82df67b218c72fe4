"""Every cell of `kbroker perf before-after`, and the stages that measure some of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from perf.before_after import handlers, several
from perf.before_after.driver import Say, Stage
from perf.before_after.one_broker import Requests
from perf.before_after.several import Sizes
from perf.before_after.starts import START, Starts
from perf.cells import BY_KEY

GROUPS: Final = {
    "requests": tuple(BY_KEY),
    "handlers": tuple(handlers.APIS),
    "several": several.CELLS,
}
CELLS: Final = (*GROUPS["requests"], *GROUPS["handlers"], START, *GROUPS["several"])


def chosen(given: str | None) -> tuple[str, ...]:
    """Keys of cells and names of groups, with commas. ValueError where one is unknown."""
    if given is None:
        return CELLS
    words = given.split(",")
    if unknown := set(words) - set(CELLS) - set(GROUPS):
        known = ", ".join((*GROUPS, *CELLS))
        raise ValueError(f"{', '.join(sorted(unknown))}: not a cell; there are {known}")
    wanted = {cell for word in words for cell in GROUPS.get(word, (word,))}
    return tuple(cell for cell in CELLS if cell in wanted)


def stages(
    cells: Sequence[str],
    root: Path,
    old: Path,
    seconds: float,
    say: Say,
    sizes: Sizes | None = None,
) -> list[Stage]:
    found: list[Stage] = []
    if requests := [cell for cell in cells if cell in (*BY_KEY, *handlers.APIS)]:
        found.append(Requests(requests, root / "requests", old, seconds, say))
    if START in cells:
        found.append(Starts(root / "starts", old))
    sizes = sizes or Sizes(seconds=seconds)
    return [*found, *several.stages(cells, sizes, root / "several", old, say)]
