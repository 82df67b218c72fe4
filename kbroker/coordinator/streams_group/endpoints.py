"""Who answers interactive queries about which partitions: the table that members are sent.

A member that has an endpoint is in it with the partitions of all topics that its tasks read. The
table has an epoch, which a member repeats; it is sent to those that have another one. It is in
memory only, and begins again with each load of the group. The group keeps it until a member, its
tasks or a topic changes. Pure functions; any thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kbroker.coordinator.streams_group.messages import EndpointPartitions

if TYPE_CHECKING:
    from kbroker.coordinator.streams_group.images import Tasks, TopologyImage
    from kbroker.coordinator.streams_group.state import StreamsGroupState

CountOf = Callable[[str], int]


def endpoints_of(
    state: StreamsGroupState, topology: TopologyImage, count_of: CountOf
) -> tuple[EndpointPartitions, ...]:
    """`count_of`: the number of a topic's partitions; 0: there is no such topic."""
    inputs = {each.subtopology_id: tuple(each.inputs()) for each in topology.subtopologies}
    found = []
    for member_id, member in state.members.items():
        if member.endpoint is not None:
            tasks = state.current_of(member_id).assigned.plain()
            found.append(
                EndpointPartitions(
                    member.endpoint,
                    _partitions(tasks.active, inputs, count_of),
                    _partitions(tasks.standby, inputs, count_of),
                )
            )
    return tuple(found)


def _partitions(
    tasks: Tasks, inputs: Mapping[str, tuple[str, ...]], count_of: CountOf
) -> dict[str, tuple[int, ...]]:
    """A topic may be read by more than one subtopology."""
    found: dict[str, tuple[int, ...]] = {}
    for subtopology_id, some in tasks.items():
        in_order = tuple(sorted(some))
        for topic in inputs.get(subtopology_id, ()):
            # Most topics have them all, and share one list.
            indexes = in_order[: bisect_left(in_order, count_of(topic))]
            before = found.get(topic)
            found[topic] = indexes if before is None else tuple(sorted({*before, *indexes}))
    return {topic: indexes for topic, indexes in found.items() if indexes}
