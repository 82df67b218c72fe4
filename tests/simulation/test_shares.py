"""Histories with share groups: seeds in which everything must hold, and faults that are found."""

from __future__ import annotations

import pytest

from tests.simulation.history import run
from tests.simulation.planted_shares import PLANTED_IN_SHARES

SEEDS = (*range(6), 14)


def test_everything_holds_in_share_groups() -> None:
    outcomes = [run(seed, shares=True) for seed in SEEDS]
    assert [each.violation for each in outcomes if each.violation] == []
    assert sum(each.shared for each in outcomes) > 10 * len(SEEDS)
    assert sum(each.delivered for each in outcomes) > sum(each.shared for each in outcomes)
    assert sum(each.archived for each in outcomes) > 0


@pytest.mark.parametrize("name", PLANTED_IN_SHARES)
def test_it_is_found(name: str) -> None:
    plant = PLANTED_IN_SHARES[name]
    seeds = range(plant.first, plant.first + plant.seeds)
    with plant.switched_on():
        assert any(run(seed, shares=True).violation is not None for seed in seeds)


def test_all_other_acts_are_the_same_with_share_groups_and_without() -> None:
    without, some = run(0), run(0, shares=True)
    added = [each for each in some.schedule if each not in without.schedule]
    assert len(some.schedule) == len(without.schedule) + len(added)
    assert {"serve_shares", "share"} < {each.what for each in added}
    assert not without.delivered
