"""Random schedules of clients, faults and coordinators; see played.py.

python -m tests.unit.coordinator.streams_group.test_played FIRST COUNT    more of them
"""

from __future__ import annotations

import sys

import pytest

from tests.unit.coordinator.streams_group.played import Played

ACTS = 120
SEEDS = 30


def play(seed: int, acts: int = ACTS) -> None:
    played = Played(seed)
    try:
        played.run(acts)
    except AssertionError as error:
        tail = "\n".join(played.history[-40:])
        raise AssertionError(f"seed {seed}: {error}\n{tail}") from error


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_the_rules_hold_under_random_schedules(first: int) -> None:
    for seed in range(first, first + 10):
        play(seed)


if __name__ == "__main__":
    begin, count = int(sys.argv[1]), int(sys.argv[2])
    for each in range(begin, begin + count):
        play(each)
    print(f"{count} schedules from {begin} on: no complaint")
