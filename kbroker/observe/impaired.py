"""Since when partitions have been without a leader, or with replicas out of sync.

Place in the flow: `MetadataPublisher` calls `follow` with the topics that have changed, each time
the controller publishes an image; `why` asks `since`. Partitions that have a leader and all their
replicas in sync are not kept. A state that the first image of this process has is of unknown age.

`follow` on the controller's thread, `since` on any.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kbroker.metadata.image import NO_LEADER
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.metadata.image import TopicImage

_State = tuple[int, tuple[int, ...]]  # leader, replicas in sync


class ImpairedPartitions:
    """See the head of this file."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_first = True
        self._since: dict[TopicPartition, tuple[_State, int | None]] = {}

    def follow(self, changed: Iterable[TopicImage], removed: Iterable[str]) -> None:
        """These topics are new or have other partitions; these are gone."""
        now_ms = None if self._is_first else self._clock.wall_ms()
        self._is_first = False
        gone = {*removed}
        for topic in changed:
            for each in topic.partitions:
                if each.leader != NO_LEADER and len(each.isr) >= each.replication_factor:
                    if self._since:
                        self._since.pop(TopicPartition(topic.name, each.index), None)
                    continue
                name, state = TopicPartition(topic.name, each.index), (each.leader, each.isr)
                if name not in self._since or self._since[name][0] != state:
                    self._since[name] = state, now_ms
        if gone:
            for name in [name for name in self._since if name.topic in gone]:
                del self._since[name]

    def since(self, name: TopicPartition) -> int | None:
        """Wall clock in ms; None: it is not impaired, or was so before this process began."""
        known = self._since.get(name)
        return None if known is None else known[1]
