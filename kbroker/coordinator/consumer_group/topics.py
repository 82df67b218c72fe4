"""The topics of the cluster as consumer groups see them: ids, numbers of partitions, hashes.

A group has the hash of its topics in its record; if the hash is another one at a heartbeat, a topic
was created, deleted, has more partitions or other racks, and the group needs another assignment.
Hashes are kept for topics that have not changed since, so a heartbeat costs a look at the image.

An image has only the brokers that live. Racks are remembered of brokers that have left, so that a
restart of a broker changes no hash. After a restart of the coordinator the rack of a broker that is
down is not known, which may cost a group one assignment.

Any thread: what is kept is replaced, never changed in place, but for the hashes, which any thread
may compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kbroker.coordinator.runtime.topic_hashes import group_hash, topic_hash

if TYPE_CHECKING:
    from uuid import UUID

    from kbroker.metadata.image import BrokerImage, ClusterImage, TopicImage

Racks = Mapping[int, str]  # node id -> rack

# Topics of which hashes are kept: those of a large cluster. More: all are computed again.
HASHES_KEPT_MAX: Final = 100_000


class TopicsSeen:
    """The topics of one image."""

    __slots__ = ("_hashes", "_topics", "image", "racks")

    def __init__(
        self, image: ClusterImage, racks: Racks, hashes: dict[str, tuple[TopicImage, Racks, int]]
    ) -> None:
        self.image: Final = image
        self.racks: Final = racks
        self._topics: Final = image.topics
        self._hashes = hashes

    def is_same(self, other: TopicsSeen | None) -> bool:
        """Whether no topic and no rack differs."""
        return other is not None and self._topics is other._topics and self.racks is other.racks

    @property
    def version(self) -> int:
        return self.image.version

    def names(self) -> Iterable[str]:
        return self._topics.keys()

    def name_of(self, topic_id: UUID) -> str | None:
        return self.image.topic_ids.get(topic_id)

    def ids_of(self, names: Iterable[str]) -> frozenset[UUID]:
        """Of those that exist."""
        return frozenset(
            topic.topic_id for name in names if (topic := self._topics.get(name)) is not None
        )

    def ids_in_order(self, names: Iterable[str]) -> tuple[UUID, ...]:
        """Of those that exist, in the order of the names. No id is hashed, which takes long."""
        return tuple(
            [topic.topic_id for name in names if (topic := self._topics.get(name)) is not None]
        )

    def partition_count(self, topic_id: UUID) -> int:
        """0: there is no such topic."""
        name = self.name_of(topic_id)
        topic = None if name is None else self._topics.get(name)
        return 0 if topic is None else len(topic.partitions)

    def count_of(self, name: str) -> int | None:
        """The number of its partitions; None: there is no such topic."""
        topic = self._topics.get(name)
        return None if topic is None else len(topic.partitions)

    def partition_counts(self, names: Iterable[str]) -> dict[UUID, int]:
        """Of those that exist."""
        return {
            topic.topic_id: len(topic.partitions)
            for name in names
            if (topic := self._topics.get(name)) is not None
        }

    def known(self, partitions: Mapping[str, Iterable[int]]) -> dict[UUID, frozenset[int]]:
        """Those of these that exist, by their topics' ids."""
        found: dict[UUID, frozenset[int]] = {}
        for name, some in partitions.items():
            topic = self._topics.get(name)
            if topic is None:
                continue
            there = frozenset(each for each in some if 0 <= each < len(topic.partitions))
            if there:
                found[topic.topic_id] = there
        return found

    def hash_of(self, names: Iterable[str]) -> int:
        """Of those that exist; 0: of none."""
        return group_hash(
            {
                name: self._hash(topic)
                for name in names
                if (topic := self._topics.get(name)) is not None
            }
        )

    def _hash(self, topic: TopicImage) -> int:
        known = self._hashes.get(topic.name)
        if known is not None and known[0] is topic and known[1] is self.racks:
            return known[2]
        racks: list[list[str]] = []
        if self.racks:
            racks = [
                [rack for node in each.replicas if (rack := self.racks.get(node)) is not None]
                for each in topic.partitions
            ]
        found = topic_hash(topic.topic_id, topic.name, len(topic.partitions), racks)
        if len(self._hashes) >= HASHES_KEPT_MAX:
            self._hashes.clear()
        self._hashes[topic.name] = (topic, self.racks, found)
        return found


class Topics:
    """The newest view, for all groups of this broker."""

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image
        self._hashes: dict[str, tuple[TopicImage, Racks, int]] = {}
        self._brokers: Mapping[int, BrokerImage] | None = None
        self._racks: Racks = {}
        self._seen: TopicsSeen | None = None

    def seen(self) -> TopicsSeen:
        image = self._image()
        seen = self._seen
        if seen is None or seen.image is not image:
            seen = self._seen = TopicsSeen(image, self._racks_with(image.brokers), self._hashes)
        return seen

    def _racks_with(self, brokers: Mapping[int, BrokerImage]) -> Racks:
        if brokers is not self._brokers:
            known = dict(self._racks)
            for node, broker in brokers.items():
                if broker.rack is not None:
                    known[node] = broker.rack
                else:
                    known.pop(node, None)
            if known != self._racks:
                self._racks = known
            self._brokers = brokers
        return self._racks
