"""A topic that a nemesis makes and deletes; no producer writes to it."""

from __future__ import annotations

import itertools
from typing import Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.client import Client
from kbroker.peer.messages import NewTopic
from tests.cluster.brokers import NODES, Cluster, wait

ALREADY: Final = (
    ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_PARTITIONS, ErrorCode.ELECTION_NOT_NEEDED,
)  # fmt: skip
_numbers: Final = itertools.count(1)


class Scratch:
    """A name that no other one has; every broker has a replica of each partition."""

    def __init__(self, cluster: Cluster) -> None:
        self.name = f"scratch-{next(_numbers)}"
        self._cluster = cluster

    def create(self, client: Client) -> None:
        refused(client.create_topics([NewTopic(self.name, 2, replication_factor=len(NODES))]))

    def delete(self, client: Client) -> None:
        refused(client.delete_topics([self.name]))

    def is_everywhere(self) -> bool:
        return self._known() == [True] * len(NODES)

    def is_gone(self) -> bool:
        return self._known() == [False] * len(NODES)

    def make(self) -> None:
        self._cluster.admin(f"{self.name} is created", self.create)
        wait(f"{self.name} is there", self.is_everywhere)

    def remove(self) -> None:
        self._cluster.admin(f"{self.name} is deleted", self.delete)
        wait(f"{self.name} is gone", self.is_gone)

    def _known(self) -> list[bool]:
        """By those brokers that say what they know."""
        views = [self._cluster.seen_by(node) for node in NODES]
        return [
            any(place.topic == self.name for place in seen) for seen in views if seen is not None
        ]


def refused(results: list[object]) -> None:
    for result in results:
        if result.error not in ALREADY:  # type: ignore[attr-defined]
            raise KafkaError(result.error, "")  # type: ignore[attr-defined]
