"""The sticky assignor: every task has one member, in about equal numbers, and few move."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kbroker.coordinator.streams_group.assignor import Parts, Worker, assign
from kbroker.coordinator.streams_group.images import NO_TASK, TaskSet

counts = st.dictionaries(st.sampled_from("0123"), st.integers(1, 6), max_size=4)
processes = st.lists(st.sampled_from("pqrs"), min_size=1, max_size=8)
TaskList = list[tuple[str, int]]


def workers_of(process_ids: list[str]) -> list[Worker]:
    return [Worker(f"m{n}", each, NO_TASK) for n, each in enumerate(process_ids)]


def listed(some: dict[str, TaskSet], which: str) -> TaskList:
    return [
        (id_, index)
        for each in some.values()
        for id_, indexes in getattr(each, which).items()
        for index in indexes
    ]


@given(counts, processes, st.integers(0, 3))
def test_every_task_has_one_member_and_copies_in_other_processes(
    task_counts: dict[str, int], process_ids: list[str], standbys: int
) -> None:
    workers = workers_of(process_ids)
    parts = Parts(task_counts, frozenset("02"))
    found = assign(workers, parts, standbys)
    wanted = {(id_, index) for id_, count in task_counts.items() for index in range(count)}
    assert Counter(listed(found, "active")) == Counter(wanted)
    copies = Counter(listed(found, "standby"))
    possible = min(standbys, len(set(process_ids)) - 1)
    stateful = [task for task in wanted if task[0] in "02"]
    assert copies == +Counter(dict.fromkeys(stateful, possible))
    process_of = {each.member_id: each.process_id for each in workers}
    in_process: Counter[tuple[str, str, int]] = Counter()
    for member_id, target in found.items():
        for tasks in (target.active, target.standby):
            in_process.update(
                (process_of[member_id], id_, index) for id_, some in tasks.items() for index in some
            )
    assert set(in_process.values()) <= {1}


@given(counts, st.integers(1, 8))
def test_members_have_about_as_many_active_tasks(task_counts: dict[str, int], members: int) -> None:
    workers = [Worker(f"m{n}", f"p{n}", NO_TASK) for n in range(members)]
    found = assign(workers, Parts(task_counts, frozenset()), 0)
    sizes = [sum(map(len, each.active.values())) for each in found.values()]
    assert max(sizes) - min(sizes) <= 1


@given(counts, processes, st.integers(0, 2))
def test_an_assignment_of_equal_processes_is_kept(
    task_counts: dict[str, int], process_ids: list[str], standbys: int
) -> None:
    """Where no process has more members than another, what was computed stays."""
    unique = sorted(set(process_ids))
    workers = [Worker(f"m{n}", each, NO_TASK) for n, each in enumerate(unique)]
    parts = Parts(task_counts, frozenset(task_counts))
    first = assign(workers, parts, standbys)
    again = [each._replace(target=first[each.member_id]) for each in workers]
    second = assign(again, parts, standbys)
    assert {key: each.active for key, each in second.items()} == {
        key: each.active for key, each in first.items()
    }


@given(counts, st.integers(2, 8))
def test_a_member_that_goes_moves_only_its_own_tasks(
    task_counts: dict[str, int], members: int
) -> None:
    workers = [Worker(f"m{n}", f"p{n}", NO_TASK) for n in range(members)]
    parts = Parts(task_counts, frozenset())
    first = assign(workers, parts, 0)
    left = [each._replace(target=first[each.member_id]) for each in workers[1:]]
    second = assign(left, parts, 0)
    for each in left:
        for id_, some in first[each.member_id].active.items():
            assert some <= second[each.member_id].active.get(id_, frozenset())


def test_a_task_goes_to_the_member_with_a_copy_of_its_state() -> None:
    workers = [
        Worker("a", "p", NO_TASK),
        Worker("b", "q", TaskSet({}, {"0": frozenset({1})})),
    ]
    found = assign(workers, Parts({"0": 2}, frozenset("0")), 0)
    assert found["b"].active == {"0": {1}}


def test_without_members_there_is_nothing() -> None:
    assert assign([], Parts({"0": 2}, frozenset()), 1) == {}
