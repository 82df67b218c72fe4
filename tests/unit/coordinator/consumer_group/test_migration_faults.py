"""What is refused or raises while a group with members changes its protocol, or comes between."""

from __future__ import annotations

import pytest

from kbroker.coordinator.group.states import GroupState
from tests.unit.coordinator.consumer_group.migrating import (
    MigratingWorld,
    made,
    subscription,
)


@pytest.fixture
def world() -> MigratingWorld:
    return made()


# --- to the consumer protocol ---


@pytest.mark.parametrize("topics", [5_000, 2_500])
def test_members_that_do_not_fit_into_one_batch_stay(world: MigratingWorld, topics: int) -> None:
    """The subscription of the smaller one fits, its records do not."""
    names = [f"{'x' * 200}{number}" for number in range(topics)]
    world.stable({"t": [0]}, protocols=(("range", subscription("t", *names)),))
    assert "one batch" in (world.enter("c").message or "")
    assert world.classic.state is GroupState.STABLE


def test_members_that_are_too_large_are_not_read(
    world: MigratingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{'x' * 200}{number}" for number in range(5_000)]
    world.stable({"t": [0]}, protocols=(("range", subscription("t", *names)),))
    read: list[bytes] = []
    monkeypatch.setattr("kbroker.coordinator.consumer_group.migration.subscription_of", read.append)
    assert "one batch" in (world.enter("c").message or "")
    assert read == []
