"""`__share_group_state`: what the topic is, and its creation.

A share-partition belongs to one partition of it, found by the hash of `group:topic id:partition`;
the leader of that partition is its coordinator. The topic is created when the first coordinator is
looked for, which is answered COORDINATOR_NOT_AVAILABLE and asked again. Its number of partitions is
the topic's own from then on, whatever the configuration says later. It is not compacted: records
build on each other, and the coordinator has those deleted that nothing needs any more.

Where fewer brokers live than `share.coordinator.state.topic.replication.factor`, it gets as many
replicas as there are brokers, and a `min.insync.replicas` of no more than that, with a warning.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kbroker.coordinator.runtime.state_topic import StateTopicCreation
from kbroker.metadata.controller.decisions import NewTopic
from kbroker.metadata.image import SHARE_STATE_TOPIC

if TYPE_CHECKING:
    from kbroker.coordinator.share.coordinator import Settings

logger: Final = logging.getLogger("kbroker.share-state")

REPLICATION_FACTOR: Final = "share.coordinator.state.topic.replication.factor"
MIN_IN_SYNC: Final = "share.coordinator.state.topic.min.isr"


def new_topic(config: Settings, brokers: int) -> NewTopic:
    """The topic as its first client gets it, on so many live brokers."""
    factor = max(1, min(config[REPLICATION_FACTOR], brokers))
    return NewTopic(
        SHARE_STATE_TOPIC,
        partitions=config["share.coordinator.state.topic.num.partitions"],
        replication_factor=factor,
        configs={
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": str(min(config[MIN_IN_SYNC], factor)),
            "retention.bytes": "-1",
            "retention.ms": "-1",
            "segment.bytes": str(config["share.coordinator.state.topic.segment.bytes"]),
        },
    )


def creation() -> StateTopicCreation:
    return StateTopicCreation(
        logger,
        f"{SHARE_STATE_TOPIC} cannot be created yet, so no share-partition has a coordinator: %s",
        new_topic,
        REPLICATION_FACTOR,
    )
