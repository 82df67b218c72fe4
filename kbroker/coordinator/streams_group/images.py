"""What a streams group is made of, as its records have it: immutable values (KIP-1071).

Each value belongs to one key of `__consumer_offsets`; a group is nothing but these values
(`state.py`). What is assigned are tasks: a partition number of a subtopology, which reads that
partition of all its input topics. One member processes a task (active); others may keep a copy of
its state (standby, warm-up), each in a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from kbroker.coordinator.consumer_group.images import JOINS_EPOCH, TargetEpoch
from kbroker.coordinator.consumer_group.states import MemberState

# Subtopology id -> partitions.
Tasks = Mapping[str, frozenset[int]]
# Subtopology id -> partition -> the member's epoch in which it got the task.
TaskEpochs = Mapping[str, Mapping[int, int]]
Pairs = tuple[tuple[str, str], ...]  # keys and values

NO_TASKS: Final[Tasks] = MappingProxyType({})
NO_EPOCHS: Final[TaskEpochs] = MappingProxyType({})
# Of a group whose topology has not been found complete.
NOT_VALIDATED: Final = -1
# A new group has had an assignment, of nothing, in this one; no record says so.
FIRST_EPOCH: Final = 1


class Kind(IntEnum):
    """The keys of a streams group's records; the number is the key's version."""

    GROUP = 17
    MEMBER = 19
    TARGET_EPOCH = 20
    TARGET = 21
    CURRENT = 22
    TOPOLOGY = 23


class GroupImage(NamedTuple):
    """`validated_epoch`: of the topology whose topics are there, all of them. `configs`: those that
    the last assignment was computed with; None: it is not known."""

    epoch: int
    metadata_hash: int
    validated_epoch: int = NOT_VALIDATED
    configs: Pairs | None = None


class Endpoint(NamedTuple):
    """Where a process answers interactive queries."""

    host: str
    port: int


class MemberImage(NamedTuple):
    """What a member has said of itself."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topology_epoch: int
    process_id: str
    endpoint: Endpoint | None = None
    tags: Pairs = ()  # sorted, each key once


class TaskSet(NamedTuple):
    """Tasks by their kind."""

    active: Tasks = NO_TASKS
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS


NO_TASK: Final = TaskSet()


class HeldTasks(NamedTuple):
    """Tasks of a member; of active ones, since when it has them."""

    active: TaskEpochs = NO_EPOCHS
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS

    def plain(self) -> TaskSet:
        return TaskSet(
            {id_: frozenset(some) for id_, some in self.active.items() if some},
            self.standby,
            self.warmup,
        )


HOLDS_NOTHING: Final = HeldTasks()


class CurrentImage(NamedTuple):
    """What a member has now. `revoking` are tasks that it is to give up first."""

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: HeldTasks = HOLDS_NOTHING
    revoking: HeldTasks = HOLDS_NOTHING


# Of a member without a record of it.
NEW_MEMBER: Final = CurrentImage(JOINS_EPOCH, -1, MemberState.STABLE)


class InternalTopic(NamedTuple):
    """A topic that belongs to the application. `partitions` 0: as many as follow from the topics
    before it; `replication_factor` 0: the broker's default."""

    name: str
    partitions: int
    replication_factor: int
    configs: Pairs


class CopartitionGroup(NamedTuple):
    """Positions of topics that are to have as many partitions, in the lists of a subtopology."""

    sources: tuple[int, ...]
    patterns: tuple[int, ...]
    repartition_sources: tuple[int, ...]


class Subtopology(NamedTuple):
    subtopology_id: str
    sources: tuple[str, ...]
    patterns: tuple[str, ...]
    changelogs: tuple[InternalTopic, ...]
    repartition_sinks: tuple[str, ...]
    repartition_sources: tuple[InternalTopic, ...]
    copartition_groups: tuple[CopartitionGroup, ...]

    def inputs(self) -> Iterator[str]:
        """The topics that its tasks read, each once."""
        names = (*self.sources, *(each.name for each in self.repartition_sources))
        yield from dict.fromkeys(names)

    def required(self) -> Iterator[str]:
        """The topics that have to be there."""
        yield from self.inputs()
        yield from (each.name for each in self.changelogs)


class TopologyImage(NamedTuple):
    epoch: int
    subtopologies: tuple[Subtopology, ...]

    def required(self) -> set[str]:
        return {name for each in self.subtopologies for name in each.required()}

    def inputs(self) -> set[str]:
        return {name for each in self.subtopologies for name in each.inputs()}


Value = GroupImage | MemberImage | TargetEpoch | TaskSet | CurrentImage | TopologyImage


def tasks_of(pairs: Iterable[tuple[str, Iterable[int]]]) -> dict[str, frozenset[int]]:
    """By subtopology, which may come more than once."""
    found: dict[str, set[int]] = {}
    for subtopology_id, some in pairs:
        found.setdefault(subtopology_id, set()).update(some)
    return {subtopology_id: frozenset(some) for subtopology_id, some in found.items() if some}
