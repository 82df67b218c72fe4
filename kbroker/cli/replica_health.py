"""Which partitions lack replicas, as an operator is told it.

A replica that a reassignment adds is not missing: it is on its way, and nobody counts on it yet. As
Apache Kafka's UnderReplicatedPartitions has it; its Metadata answer names such replicas all the
same, so both are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kbroker.errors import KafkaError
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.peer.client import Client
    from kbroker.peer.messages import ClusterMetadata, PartitionMetadata
    from kbroker.peer.placement_messages import ReassignedPartition

Moving = Mapping[TopicPartition, "ReassignedPartition"]


def moving_now(client: Client) -> Moving:
    """What is on its way to other brokers; nothing where nobody says, as without a controller."""
    try:
        return client.reassignments()
    except KafkaError:
        return {}


def under_replicated(cluster: ClusterMetadata, moving: Moving) -> list[TopicPartition]:
    """Partitions of which a replica is offline or not in sync, in the order of their names."""
    return sorted(
        name
        for topic in cluster.topics.values()
        for partition in topic.partitions
        if _lacks(partition, moving.get(name := TopicPartition(topic.name, partition.index)))
    )


def _lacks(partition: PartitionMetadata, moving: ReassignedPartition | None) -> bool:
    adding = {*moving.adding} if moving is not None else set()
    there = {*partition.isr} - {*partition.offline}
    return not there >= {*partition.replicas} - adding
