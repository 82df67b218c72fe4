"""No process has a task twice, also where a member comes again in another process."""

from __future__ import annotations

from kbroker.coordinator.streams_group.images import TaskSet
from tests.unit.coordinator.consumer_group.world import topic_of
from tests.unit.coordinator.streams_group.world import STATEFUL, Client, World


def tasks_in(world: World, process_id: str) -> list[tuple[str, int]]:
    state = world.group._state
    return [
        (id_, index)
        for member_id, member in state.members.items()
        if member.process_id == process_id
        for part in state.current_of(member_id).assigned.plain()
        for id_, some in part.items()
        for index in some
    ]


def in_two_processes() -> tuple[World, Client, Client]:
    """Each member has active tasks and copies of the other's."""
    world = World(standbys=1)
    world.create(topic_of("t", 4), topic_of("store", 4))
    a, b = world.client("a", "p"), world.client("b", "q")
    a.join(STATEFUL)
    b.join(STATEFUL)
    for _ in range(4):
        a.settle()
        b.settle()
    assert [len(tasks_in(world, each)) for each in ("p", "q")] == [4, 4]
    return world, a, b


def test_a_member_that_moves_gives_up_tasks_of_its_new_process() -> None:
    world, a, b = in_two_processes()
    a.process_id = "q"
    a.join(STATEFUL)
    assert sorted(tasks_in(world, "q")) == sorted(set(tasks_in(world, "q")))
    for _ in range(4):
        a.settle()
        b.settle()
    held = tasks_in(world, "q")
    assert sorted(held) == [("0", index) for index in range(4)]
    assert TaskSet() not in (a.owned, b.owned)


def test_a_member_that_moves_keeps_all_other_tasks() -> None:
    _, a, _ = in_two_processes()
    kept = a.owned
    a.process_id = "r"
    a.join(STATEFUL)
    assert a.owned.active == kept.active
