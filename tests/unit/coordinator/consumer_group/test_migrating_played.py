"""Random schedules of consumers of both protocols; see migrating_played.py.

python -m tests.unit.coordinator.consumer_group.test_migrating_played FIRST COUNT    more of them
"""

from __future__ import annotations

import sys

import pytest

from tests.unit.coordinator.consumer_group.migrating_played import Walk

ACTS = 250
SEEDS = 30


def walk(seed: int, acts: int = ACTS) -> tuple[int, int]:
    """How often the group with members has changed its kind: up and down."""
    played = Walk(seed)
    try:
        played.run(acts)
    except AssertionError as error:
        tail = "\n".join(played.history[-60:])
        raise AssertionError(f"seed {seed}: {error}\n{tail}") from error
    return played.changes


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_the_rules_hold_while_the_group_changes_its_kind(first: int) -> None:
    changes = [walk(seed) for seed in range(first, first + 10)]
    assert sum(up for up, _ in changes) > 0
    assert sum(down for _, down in changes) > 0


if __name__ == "__main__":
    begin, count = int(sys.argv[1]), int(sys.argv[2])
    totals = [walk(each) for each in range(begin, begin + count)]
    up, down = (sum(each) for each in zip(*totals, strict=True))
    print(f"{count} schedules from {begin} on: {up} changes up, {down} down, no complaint")
