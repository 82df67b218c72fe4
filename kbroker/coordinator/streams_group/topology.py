"""What a topology needs of the topics of the cluster: how many tasks, and which topics are missing.

    a repartition topic   as many partitions as it says; else as many as the largest topic that is
                          read by a subtopology that writes it; else, in a co-partition group, as
                          many as the group
    a subtopology         a task for each partition of the largest topic that it reads
    a changelog           a partition for each task

The broker makes the topics of the application itself (repartition topics and changelogs); topics
that the application reads must be there. Partition numbers pass from topic to topic in one walk
over the graph, so the time is that of its size, whatever a client sends. Source: KIP-1071.

Pure functions; any thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from kbroker.coordinator.streams_group.images import InternalTopic, Subtopology, TopologyImage
from kbroker.limits import STREAMS_TASKS_MAX

# The number of a topic's partitions; None: there is no such topic.
CountOf = Callable[[str], int | None]

NAMES_IN_WORDS_MAX: Final = 3
_UNRESOLVED: Final = (
    "Failed to compute number of partitions for all repartition topics. There may be loops in the"
    " topology that cannot be resolved."
)


class StatusCode(IntEnum):
    """What a member is to know beside its tasks."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class Status(NamedTuple):
    code: StatusCode
    detail: str


class Configured(NamedTuple):
    """A topology with the topics of a moment. Without a problem all its topics are there.

    `task_counts`: of each subtopology; empty where the problem hides them. `counts`: partitions of
    the application's own topics. `missing`: those of them that are to be made."""

    task_counts: Mapping[str, int]
    counts: Mapping[str, int]
    missing: tuple[InternalTopic, ...] = ()
    problem: Status | None = None

    @property
    def is_ready(self) -> bool:
        return self.problem is None


class _Wrong(Exception):
    def __init__(self, code: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.status = Status(code, detail)


def in_words(names: list[str]) -> str:
    """Some names of many."""
    first = ", ".join(names[:NAMES_IN_WORDS_MAX])
    more = len(names) - NAMES_IN_WORDS_MAX
    return f"{first} and {more} additional topics" if more > 0 else first


# --- what a topology is to be by itself -----------------------------------------------------------


def mistake_of(topology: TopologyImage) -> str | None:
    """Why no topics at all would make it right."""
    seen: set[str] = set()
    for part in topology.subtopologies:
        if part.subtopology_id in seen:
            return f"Subtopology {part.subtopology_id} is there twice."
        seen.add(part.subtopology_id)
        wrong = _mistake_of_part(part)
        if wrong is not None:
            return wrong
    return _UNRESOLVED if _unresolved(topology) else None


def _mistake_of_part(part: Subtopology) -> str | None:
    for topic in part.changelogs:
        if topic.partitions != 0:
            return (
                f"Changelog topic {topic.name} must have an undefined partition count, but it is"
                f" set to {topic.partitions}."
            )
    for topic in part.repartition_sources:
        if topic.partitions < 0:
            return f"Repartition topic {topic.name} is to have {topic.partitions} partitions."
    if not part.sources and not part.repartition_sources:
        return f"Subtopology {part.subtopology_id} has no source topics."
    sources, repartition_sources = len(part.sources), len(part.repartition_sources)
    for group in part.copartition_groups:
        inside = all(0 <= at < sources for at in group.sources)
        if not inside or not all(0 <= at < repartition_sources for at in group.repartition_sources):
            return (
                f"A co-partition group of subtopology {part.subtopology_id} names a topic that is"
                " not there."
            )
    return None


def _unresolved(topology: TopologyImage) -> bool:
    """Whether the number of a repartition topic follows from no topic at all."""
    found = _repartition_counts(topology, lambda name: 1)
    return any(
        each.name not in found
        for part in topology.subtopologies
        for each in part.repartition_sources
    )


# --- with topics ----------------------------------------------------------------------------------


def configured(topology: TopologyImage, count_of: CountOf) -> Configured:
    """A topology without a mistake of its own (`mistake_of`)."""
    counts: dict[str, int] = {}
    task_counts: dict[str, int] = {}
    try:
        _check_sources(topology, count_of)
        counts.update(_repartition_counts(topology, count_of))
        _enforce_groups(topology, counts, count_of)
        for part in topology.subtopologies:
            tasks = max(_count(name, counts, count_of) for name in part.inputs())
            task_counts[part.subtopology_id] = tasks
            for topic in _own_changelogs(part):
                counts[topic.name] = tasks
        _check_tasks(sum(task_counts.values()))
        missing = _missing(topology, counts, count_of)
    except _Wrong as wrong:
        return Configured({}, {}, (), wrong.status)
    problem = None
    if missing:
        words = f"Internal topics are missing: {in_words([each.name for each in missing])}"
        problem = Status(StatusCode.MISSING_INTERNAL_TOPICS, words)
    return Configured(task_counts, counts, missing, problem)


def _check_tasks(tasks: int) -> None:
    if tasks > STREAMS_TASKS_MAX:
        words = (
            f"The partitions of the topics make {tasks} tasks. A streams group has no more than"
            f" {STREAMS_TASKS_MAX}: use topics with fewer partitions."
        )
        raise _Wrong(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, words)


def _own_changelogs(part: Subtopology) -> Iterator[InternalTopic]:
    """A topic that the subtopology reads may serve as a changelog: it is the user's."""
    sources = set(part.sources)
    return (each for each in part.changelogs if each.name not in sources)


def _check_sources(topology: TopologyImage, count_of: CountOf) -> None:
    own = {each.name for part in topology.subtopologies for each in part.repartition_sources}
    names = {name for part in topology.subtopologies for name in part.sources} - own
    missing = sorted(name for name in names if count_of(name) is None)
    if missing:
        words = f"Source topics {in_words(missing)} are missing."
        raise _Wrong(StatusCode.MISSING_SOURCE_TOPICS, words)


def _count(name: str, counts: Mapping[str, int], count_of: CountOf) -> int:
    count = count_of(name)
    if count is None:
        count = counts.get(name)
    if count is None:
        words = f"Source topics {name} are missing."
        raise _Wrong(StatusCode.MISSING_SOURCE_TOPICS, words)
    return count


class _Walk:
    """Numbers pass from the topics that a subtopology reads to those that it writes.

    A subtopology is done when all its inputs have a number, a repartition topic when all that write
    it are done. Where a circle is left, a topic takes the numbers that are there."""

    def __init__(self, topology: TopologyImage, count_of: CountOf) -> None:
        self.counts: dict[str, int] = {}
        self._readers: dict[str, list[int]] = {}
        self._sinks: list[tuple[str, ...]] = []
        self._open_inputs: list[int] = []
        self._most: list[int] = []  # of the inputs with a number
        self._open_writers: dict[str, int] = {}
        self._likely: dict[str, None] = {}  # topics with a number at one of those that write them
        self._writers: dict[str, list[int]] = {}
        own = {
            each.name: each.partitions
            for part in topology.subtopologies
            for each in part.repartition_sources
        }
        self._free = {name for name, partitions in own.items() if partitions == 0}
        for at, part in enumerate(topology.subtopologies):
            inputs = set(part.inputs())
            for name in inputs:
                self._readers.setdefault(name, []).append(at)
            self._open_inputs.append(len(inputs))
            self._most.append(0)
            sinks = tuple(name for name in dict.fromkeys(part.repartition_sinks))
            self._sinks.append(sinks)
            for name in sinks:
                if name in self._free:
                    self._writers.setdefault(name, []).append(at)
        self._open_writers = {name: len(some) for name, some in self._writers.items()}
        self._ready: deque[tuple[str, int]] = deque()
        for name in self._readers:
            count = own.get(name)
            if count is None:
                count = count_of(name) or 0
            if count:
                self._ready.append((name, count))

    def run(self) -> dict[str, int]:
        while self._ready or self._likely:
            if self._ready:
                self._pass_on(*self._ready.popleft())
            else:
                name = next(iter(self._likely))
                self._settle(name)
        return self.counts

    def _pass_on(self, name: str, count: int) -> None:
        self.counts[name] = count
        for at in self._readers.get(name, ()):
            first = not self._most[at]
            self._most[at] = max(self._most[at], count)
            self._open_inputs[at] -= 1
            for sink in self._sinks[at] if first or not self._open_inputs[at] else ():
                if sink not in self._open_writers:
                    continue
                if first:
                    self._likely[sink] = None
                if not self._open_inputs[at]:
                    self._open_writers[sink] -= 1
                    if not self._open_writers[sink]:
                        self._settle(sink)

    def _settle(self, name: str) -> None:
        self._likely.pop(name, None)
        if self._open_writers.pop(name, None) is not None:
            self._ready.append((name, max(self._most[at] for at in self._writers[name])))


def _repartition_counts(topology: TopologyImage, count_of: CountOf) -> dict[str, int]:
    """Of the repartition topics whose number is found."""
    found = _Walk(topology, count_of).run()
    return {
        each.name: found[each.name]
        for part in topology.subtopologies
        for each in part.repartition_sources
        if each.name in found
    }


def _enforce_groups(topology: TopologyImage, counts: dict[str, int], count_of: CountOf) -> None:
    """Topics that are joined have as many partitions."""
    own = {
        each.name: each.partitions
        for part in topology.subtopologies
        for each in part.repartition_sources
    }
    for part in topology.subtopologies:
        for group in part.copartition_groups:
            names = {part.sources[at] for at in group.sources}
            names |= {part.repartition_sources[at].name for at in group.repartition_sources}
            if names:
                _enforce(names, own, counts, count_of)


def _enforce(
    names: set[str], own: Mapping[str, int], counts: dict[str, int], count_of: CountOf
) -> None:
    # No operation of sets: it would take a look at all topics for each group.
    in_order = sorted(names)
    others = {name: _count(name, counts, count_of) for name in in_order if name not in own}
    fixed = {name: own[name] for name in in_order if own.get(name)}
    free = [name for name in names if name in own and not own[name]]
    wanted = others or fixed or {name: counts[name] for name in free if name in counts}
    if (others or fixed) and len(set(wanted.values())) > 1:
        listed = ", ".join(f"{name}={count}" for name, count in wanted.items())
        words = f"Following topics do not have the same number of partitions: [{{{listed}}}]"
        raise _Wrong(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, words)
    if not wanted:
        return
    count = max(wanted.values())
    for name, partitions in fixed.items():
        if partitions != count:
            words = (
                f"Number of partitions [{partitions}] of repartition topic [{name}] doesn't match"
                f" number of partitions [{count}] of the source topic."
            )
            raise _Wrong(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, words)
    for name in free:
        counts[name] = count


def _missing(
    topology: TopologyImage, counts: Mapping[str, int], count_of: CountOf
) -> tuple[InternalTopic, ...]:
    """By name, with the numbers that were found."""
    missing: dict[str, InternalTopic] = {}
    for part in topology.subtopologies:
        for topic in (*part.repartition_sources, *_own_changelogs(part)):
            count, there = counts[topic.name], count_of(topic.name)
            if there is None:
                missing[topic.name] = topic._replace(partitions=count)
            elif there != count:
                words = (
                    f"Existing topic {topic.name} has different number of partitions: expected"
                    f" {count}, found {there}"
                )
                raise _Wrong(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, words)
    return tuple(missing[name] for name in sorted(missing))
