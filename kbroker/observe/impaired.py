"""Since when partitions have been without a leader, or with replicas out of sync.

Place in the flow: `MetadataPublisher` calls `follow` with the topics that have changed, each time
the controller publishes an image; `why` asks `since`. Partitions that have a leader and all their
replicas in sync are not kept. A state that the first image of this process has is of unknown age.

`follow` on the controller's thread, `since` on any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kbroker.metadata.image import NO_LEADER

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.metadata.image import TopicImage
    from kbroker.types import TopicPartition

_State = tuple[int, tuple[int, ...]]  # leader, replicas in sync


class ImpairedPartitions:
    """See the head of this file."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_first = True
        # By topic and partition. What one look has found of a topic is not changed any more, and it
        # goes with the topic, at the same cost however many others are kept.
        self._since: dict[str, Mapping[int, tuple[_State, int | None]]] = {}

    def follow(self, changed: Iterable[TopicImage], removed: Iterable[str]) -> None:
        """These topics are new or have other partitions; these are gone."""
        now_ms = None if self._is_first else self._clock.wall_ms()
        self._is_first = False
        for name in removed:
            self._since.pop(name, None)
        for topic in changed:
            before, found = self._since.get(topic.name, {}), {}
            for each in topic.partitions:
                if each.leader != NO_LEADER and len(each.isr) >= each.replication_factor:
                    continue
                state, known = (each.leader, each.isr), before.get(each.index)
                if known is None or known[0] != state:
                    known = state, now_ms
                found[each.index] = known
            if found:
                self._since[topic.name] = found
            elif before:
                del self._since[topic.name]

    def since(self, name: TopicPartition) -> int | None:
        """Wall clock in ms; None: it is not impaired, or was so before this process began."""
        known = self._since.get(name.topic, {}).get(name.partition)
        return None if known is None else known[1]
