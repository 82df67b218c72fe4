"""Every planted fault is found, within as many seeds as it says."""

from __future__ import annotations

import pytest

from tests.simulation.history import run
from tests.simulation.planted import PLANTED


@pytest.mark.parametrize("name", PLANTED)
def test_it_is_found(name: str) -> None:
    plant = PLANTED[name]
    with plant.switched_on():
        seeds = range(plant.first, plant.first + plant.seeds)
        assert any(run(seed, plant.schedule).violation is not None for seed in seeds)
    if plant.schedule is not None:
        assert run(plant.first, plant.schedule).violation is None


@pytest.mark.parametrize("name", ["producers-kept", "duplicate-at-once"])
def test_it_is_found_by_producers_that_do_not_wait(name: str) -> None:
    with PLANTED[name].switched_on():
        assert any(run(seed, pipelined=True).violation is not None for seed in range(20))
