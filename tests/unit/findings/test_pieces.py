"""Long lists in order: as `sorted`, with pauses."""

from __future__ import annotations

import random

import pytest

from kbroker.findings.pieces import PIECE, RUN, in_order, no_pause


@pytest.mark.parametrize("count", [0, 1, RUN - 1, RUN, RUN + 1, 3 * RUN + 7])
def test_rows_come_as_sorted_gives_them(count: int) -> None:
    chance = random.Random(count)
    rows = [(chance.randrange(50), number) for number in range(count)]
    assert list(in_order(rows, no_pause, lambda row: row[0])) == sorted(
        rows, key=lambda row: row[0]
    )


def test_there_are_pauses_while_runs_are_made_and_merged() -> None:
    pauses: list[None] = []
    found = in_order(range(3 * RUN), lambda: pauses.append(None), lambda row: -row)
    assert len(pauses) == 3 * RUN // PIECE
    assert next(found) == 3 * RUN - 1
    assert len(list(found)) == 3 * RUN - 1
    assert len(pauses) == 2 * (3 * RUN // PIECE)
