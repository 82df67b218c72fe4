"""`__consumer_offsets`: what the topic is, which partition a group has, and its creation.

A group belongs to one partition, found by the hash of its id; the leader of that partition is the
group's coordinator. The topic appears when the first client asks for a coordinator, which
gets COORDINATOR_NOT_AVAILABLE and tries again, as with Apache Kafka. While fewer brokers live
than it shall have replicas it is not made, and every client gets that answer (KIP-115): with fewer,
the commits of groups would go with one broker for good. Its number of partitions is the topic's own
from then on, whatever the configuration says later.

Pure but for `OffsetsTopicCreation`, which any thread may call.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

from kbroker.coordinator.runtime.topic_creation import TopicCreation
from kbroker.metadata.controller.decisions import NewTopic
from kbroker.metadata.image import OFFSETS_TOPIC

if TYPE_CHECKING:
    from kbroker.coordinator.runtime.topic_creation import Controller

logger: Final = logging.getLogger("kbroker.groups")


class Settings(Protocol):
    """The broker's configuration, of which the keys offsets.topic.*."""

    def __getitem__(self, name: str, /) -> Any: ...


def new_topic(config: Settings) -> NewTopic:
    """The topic as its first client gets it."""
    return NewTopic(
        OFFSETS_TOPIC,
        partitions=config["offsets.topic.num.partitions"],
        replication_factor=config["offsets.topic.replication.factor"],
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config["offsets.topic.segment.bytes"]),
        },
    )


class OffsetsTopicCreation:
    """Has the topic made when a group needs it."""

    __slots__ = ("_creation",)

    def __init__(self) -> None:
        self._creation = TopicCreation(
            logger,
            f"{OFFSETS_TOPIC} cannot be created yet, so no group has a coordinator: %s; it needs as"
            " many brokers as offsets.topic.replication.factor says",
        )

    def ensure(self, controller: Controller, config: Settings) -> None:
        """Returns at once. Several callers cause one creation."""
        self._creation.begin(controller, lambda: new_topic(config))
