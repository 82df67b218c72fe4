"""Every planted fault is found, within as many seeds as it says."""

from __future__ import annotations

import pytest

from tests.simulation.history import run
from tests.simulation.plant import Plant
from tests.simulation.planted import PLANTED


@pytest.mark.parametrize("name", PLANTED)
def test_it_is_found(name: str) -> None:
    plant = PLANTED[name]
    with plant.switched_on():
        seeds = range(plant.first, plant.first + plant.seeds)
        assert any(violates(seed, plant) for seed in seeds)
    if plant.schedule is not None:
        assert not violates(plant.first, plant)


def violates(seed: int, plant: Plant) -> bool:
    """In a history without transactions; `test_transactions.py` has the others."""
    return run(seed, plant.schedule, transactions=False).violation is not None


@pytest.mark.parametrize("name", ["producers-kept", "duplicate-at-once"])
def test_it_is_found_by_producers_that_do_not_wait(name: str) -> None:
    with PLANTED[name].switched_on():
        assert any(run(seed, pipelined=True).violation is not None for seed in range(20))
