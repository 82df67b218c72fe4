"""A shared budget: who waits, in which order, and that it comes back whatever happens."""

from __future__ import annotations

import threading

import pytest

from kbroker.bytes_budget import BytesBudget
from tests.unit.net.harness import eventually


def test_first_come_first_served() -> None:
    budget = BytesBudget(100)
    order: list[str] = []

    def take(name: str, wanted: int) -> None:
        with budget.held(wanted):
            order.append(name)

    with budget.held(60):
        large = threading.Thread(target=take, args=("large", 80))
        large.start()
        assert eventually(lambda: budget.waiting == 1)
        small = threading.Thread(target=take, args=("small", 10))
        small.start()  # would fit, and does not pass the large one
        assert eventually(lambda: budget.waiting == 2)
        assert order == []
    large.join(10)
    small.join(10)
    assert order == ["large", "small"]


def test_more_than_there_is_means_all_of_it() -> None:
    budget = BytesBudget(100)
    with budget.held(1000) as held:
        assert held == 100
    with budget.held(0) as held, budget.held(100):
        assert held == 0


def test_it_comes_back_after_an_error() -> None:
    budget = BytesBudget(100)
    with pytest.raises(ZeroDivisionError), budget.held(100):
        _ = 1 // 0
    with budget.held(100) as held:
        assert held == 100
