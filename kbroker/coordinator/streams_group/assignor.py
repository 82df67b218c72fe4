"""The assignor of streams groups, `sticky`: which member is to have which tasks (KIP-1071).

    1. a member keeps an active task that it was to have last
    2. an active task goes to a member that was to keep a copy of its state
    3. the others go to the process with the fewest tasks for each of its members, there to the
       member with the fewest
    4. copies of tasks with state: to the member that processed the task before, to one that had a
       copy before, else to the process with the fewest tasks

1, 2 and the first two of 4 only as long as the member has less than its part, which is the number
of tasks divided by that of members, rounded up; when a member has its part, the rest is divided
again. No process has a task twice. Where there are fewer processes than copies, some are left out.

Ties are decided by ids, so the outcome follows from the question. A pure function; any thread.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kbroker.coordinator.streams_group.images import TaskSet, tasks_of

STICKY: Final = "sticky"

Task = tuple[str, int]  # subtopology id, partition


class Worker(NamedTuple):
    """A member, and what it was to have last."""

    member_id: str
    process_id: str
    target: TaskSet


class Parts(NamedTuple):
    """What there is to assign: the number of tasks of each subtopology; `stateful` has those whose
    tasks keep state."""

    task_counts: Mapping[str, int]
    stateful: frozenset[str]


class _Process:
    """Tasks of the members of one process."""

    __slots__ = ("counts", "process_id", "tasks", "total")

    def __init__(self, process_id: str) -> None:
        self.process_id = process_id
        self.counts: dict[str, int] = {}  # by member
        self.tasks: set[Task] = set()
        self.total = 0

    @property
    def load(self) -> float:
        return self.total / len(self.counts)

    def least_loaded(self) -> str:
        return min(self.counts, key=lambda member_id: (self.counts[member_id], member_id))


class _Quota:
    """How many tasks a member may have before it is no longer given what it had before."""

    __slots__ = ("_members", "_tasks", "value")

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.value = -(-tasks // members) if members else 0

    def reached(self, count: int) -> None:
        """A member has so many now. One that has its part does not count any more."""
        if count == self.value:
            self._members -= 1
            self._tasks -= count
            self.value = -(-self._tasks // self._members) if self._members > 0 else 0


class _Sharing:
    """One assignment in the making."""

    def __init__(self, workers: Sequence[Worker], parts: Parts, standbys: int) -> None:
        self._standbys = standbys
        self._tasks = sorted(
            (id_, index) for id_, count in parts.task_counts.items() for index in range(count)
        )
        self._stateful = [task for task in self._tasks if task[0] in parts.stateful]
        self._processes: dict[str, _Process] = {}
        self._process_of: dict[str, _Process] = {}
        self._before: dict[Task, str] = {}
        self._copies_before: dict[Task, list[str]] = {}
        for worker in sorted(workers, key=lambda each: each.member_id):
            process = self._processes.setdefault(worker.process_id, _Process(worker.process_id))
            process.counts[worker.member_id] = 0
            self._process_of[worker.member_id] = process
            for task in _each(worker.target.active):
                self._before[task] = worker.member_id
            for tasks in (worker.target.standby, worker.target.warmup):
                for task in _each(tasks):
                    self._copies_before.setdefault(task, []).append(worker.member_id)
        members = len(self._process_of)
        self._active_quota = _Quota(len(self._tasks), members)
        self._quota = _Quota(len(self._tasks) + standbys * len(self._stateful), members)
        self.active: dict[str, list[Task]] = {each: [] for each in self._process_of}
        self.standby: dict[str, list[Task]] = {each: [] for each in self._process_of}

    def share_out(self) -> None:
        left = self._keep(sorted(self._tasks, key=_by_partition))
        for task in self._take_from_copies(left):
            self._give_to_least_loaded(task)
        if self._standbys:
            self._share_out_copies()

    # --- active tasks ---

    def _keep(self, tasks: Sequence[Task]) -> list[Task]:
        left = []
        for task in tasks:
            member_id = self._before.get(task)
            if member_id is not None and self._has_room(member_id, self._active_quota):
                self._give(task, member_id)
            else:
                left.append(task)
        return left

    def _take_from_copies(self, tasks: Sequence[Task]) -> list[Task]:
        left = []
        for task in tasks:
            member_id = self._lightest(self._copies_before.get(task, ()), task)
            if member_id is not None and self._has_room(member_id, self._active_quota):
                self._give(task, member_id)
            else:
                left.append(task)
        # By subtopology from here on: neighbours go to members in turn.
        self._heap = [(each.load, key) for key, each in self._processes.items()]
        heapq.heapify(self._heap)
        return sorted(left)

    def _give_to_least_loaded(self, task: Task) -> None:
        _, process_id = heapq.heappop(self._heap)
        process = self._processes[process_id]
        self._give(task, process.least_loaded())
        heapq.heappush(self._heap, (process.load, process_id))

    def _give(self, task: Task, member_id: str) -> None:
        self.active[member_id].append(task)
        self._active_quota.reached(self._count(task, member_id))

    # --- copies ---

    def _share_out_copies(self) -> None:
        late: list[tuple[Task, int]] = []
        for task in sorted(self._stateful, key=_by_partition, reverse=True):
            for done in range(self._standbys):
                member_id = self._had_it(task)
                if member_id is None:
                    late.append((task, self._standbys - done))
                    break
                self._give_copy(task, member_id)
        for task, count in sorted(late, reverse=True):
            for _ in range(count):
                process = self._lightest_without(task)
                if process is None:
                    break  # too few processes
                self._give_copy(task, process.least_loaded())

    def _had_it(self, task: Task) -> str | None:
        member_id = self._before.get(task)
        if member_id is not None and self._may_have_copy(task, member_id):
            return member_id
        found = self._lightest(self._copies_before.get(task, ()), task)
        return found if found is not None and self._may_have_copy(task, found) else None

    def _may_have_copy(self, task: Task, member_id: str) -> bool:
        has_it = task in self._process_of[member_id].tasks
        return not has_it and self._has_room(member_id, self._quota)

    def _lightest_without(self, task: Task) -> _Process | None:
        able = [each for each in self._processes.values() if task not in each.tasks]
        return min(able, key=lambda each: (each.load, each.process_id), default=None)

    def _give_copy(self, task: Task, member_id: str) -> None:
        self.standby[member_id].append(task)
        self._count(task, member_id)

    # --- loads ---

    def _has_room(self, member_id: str, quota: _Quota) -> bool:
        return self._process_of[member_id].counts[member_id] < quota.value

    def _count(self, task: Task, member_id: str) -> int:
        process = self._process_of[member_id]
        process.tasks.add(task)
        process.total += 1
        process.counts[member_id] += 1
        count = process.counts[member_id]
        self._quota.reached(count)
        return count

    def _lightest(self, member_ids: Sequence[str], task: Task) -> str | None:
        """Of those whose process does not have the task."""
        able = [each for each in member_ids if task not in self._process_of[each].tasks]

        def load(member_id: str) -> tuple[float, int, str]:
            process = self._process_of[member_id]
            return process.load, process.counts[member_id], member_id

        return min(able, key=load, default=None)


def assign(workers: Sequence[Worker], parts: Parts, standbys: int) -> dict[str, TaskSet]:
    """By member. `standbys`: how many copies of each task with state."""
    if not workers:
        return {}
    sharing = _Sharing(workers, parts, standbys)
    sharing.share_out()
    return {
        each.member_id: TaskSet(
            _by_subtopology(sharing.active[each.member_id]),
            _by_subtopology(sharing.standby[each.member_id]),
        )
        for each in workers
    }


def _each(tasks: Mapping[str, frozenset[int]]) -> Iterator[Task]:
    return ((id_, index) for id_, some in tasks.items() for index in some)


def _by_partition(task: Task) -> tuple[int, str]:
    return task[1], task[0]


def _by_subtopology(tasks: Sequence[Task]) -> Mapping[str, frozenset[int]]:
    return tasks_of((id_, (index,)) for id_, index in tasks)
