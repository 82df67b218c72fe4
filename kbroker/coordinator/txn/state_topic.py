"""`__transaction_state`: what the topic is, and its creation.

A transactional id belongs to one partition, found by the hash of the id; the leader of that
partition is the id's coordinator. The topic is created when the first client asks for a
coordinator, which is answered COORDINATOR_NOT_AVAILABLE and asks again. Its number of partitions is
the topic's own from then on, whatever the configuration says later: with another number every id
would have another place.

Where fewer brokers live than `transaction.state.log.replication.factor`, it gets as many replicas
as there are brokers, and a `min.insync.replicas` of no more than that, with a warning.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kbroker.coordinator.runtime.state_topic import StateTopicCreation
from kbroker.metadata.controller.decisions import NewTopic
from kbroker.metadata.image import TRANSACTIONS_TOPIC

if TYPE_CHECKING:
    from kbroker.coordinator.txn.seams import Settings

logger: Final = logging.getLogger("kbroker.transactions")

REPLICATION_FACTOR: Final = "transaction.state.log.replication.factor"


def new_topic(config: Settings, brokers: int) -> NewTopic:
    """The topic as its first client gets it, on so many live brokers."""
    factor = max(1, min(config["transaction.state.log.replication.factor"], brokers))
    return NewTopic(
        TRANSACTIONS_TOPIC,
        partitions=config["transaction.state.log.num.partitions"],
        replication_factor=factor,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(min(config["transaction.state.log.min.isr"], factor)),
            "segment.bytes": str(config["transaction.state.log.segment.bytes"]),
            "unclean.leader.election.enable": "false",
        },
    )


def creation() -> StateTopicCreation:
    return StateTopicCreation(
        logger,
        f"{TRANSACTIONS_TOPIC} cannot be created yet, so no transactional id has a coordinator: %s",
        new_topic,
        REPLICATION_FACTOR,
    )
