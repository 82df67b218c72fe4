"""Outcomes of transactions, counted: by the coordinator, and of ids that abort."""

from __future__ import annotations

from kbroker.coordinator.txn.image import Pair
from tests.unit.coordinator.txn.world import World


def begun(world: World, name: str) -> Pair:
    answer = world.init(name=name)
    assert answer is not None
    world.add(answer[1], name=name)
    return answer[1]


def counts(world: World) -> tuple[int, int, int]:
    found = world.coordinator.counts
    return found.committed, found.aborted, found.timed_out


def test_each_outcome_counts_once() -> None:
    world = World()
    pair = begun(world, "pay")
    world.end(pair, name="pay")
    world.end(pair, name="pay")  # a retry
    assert counts(world) == (1, 0, 0)
    world.end(begun(world, "pay"), False, name="pay")
    assert counts(world) == (1, 1, 0)
    begun(world, "other")
    world.init(name="other")  # the next producer of the id
    assert counts(world) == (1, 2, 0)
    begun(world, "late")
    world.pass_ms(60_001)
    world.look()
    assert counts(world) == (1, 3, 1)
    by_id = {name: each.aborts for piece in world.coordinator.pieces() for name, each in piece}
    assert by_id == {"pay": (1, 0), "other": (1, 0), "late": (1, 1)}


def test_an_abort_of_nothing_is_none() -> None:
    world = World()
    answer = world.init()
    assert answer is not None
    world.end(answer[1], False, version=2)
    assert counts(world) == (0, 0, 0)
