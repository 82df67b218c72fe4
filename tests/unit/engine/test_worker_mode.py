"""Walks every cell of a worker's table against a grid that is written down here."""

from __future__ import annotations

import pytest

from kbroker.engine.worker._worker_mode import ROWS, May, Mode, may_of

# "x": it may. In the order of May: locks, disk, park, gather, unpack, keep deadlines,
# use blocks.
GRID = {
    Mode.RUN: "x-xx-x-",
    Mode.UNPACKING: "x-xxxx-",
    Mode.ASIDE: "xxx----",
    Mode.ASIDE_UNPACKING: "xxx-x--",
    Mode.AT_ONCE: "-----xx",
}


def test_the_grid_has_every_mode_and_right() -> None:
    assert set(GRID) == set(ROWS) == set(Mode)
    assert {len(row) for row in GRID.values()} == {len(May)}


@pytest.mark.parametrize("mode", Mode)
def test_every_cell(mode: Mode) -> None:
    granted = "".join("x" if right in may_of(mode) else "-" for right in May)
    assert granted == GRID[mode]


def test_modes_that_exclude_one_another_are_none() -> None:
    for mode in (Mode.AT_ONCE | Mode.ASIDE, Mode.AT_ONCE | Mode.UNPACKING, -1, 8):
        with pytest.raises(ValueError, match="is not a valid Mode"):
            may_of(mode)
