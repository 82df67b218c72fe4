"""Which partitions lack replicas, in words for an operator.

A replica that a reassignment adds is not missing: it is on its way, and is not counted on yet. As
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
    """What is on its way to other brokers; nothing where no broker reports it, as without a
    controller."""
    try:
        return client.reassignments()
    except KafkaError:
        return {}


def missing_replicas(cluster: ClusterMetadata, moving: Moving) -> dict[TopicPartition, set[int]]:
    """Brokers of which a replica is offline or not in sync, by partition, in the names' order."""
    found = {
        name: _missing(partition, moving.get(name))
        for topic in cluster.topics.values()
        for partition in topic.partitions
        if (name := TopicPartition(topic.name, partition.index))
    }
    return {name: found[name] for name in sorted(found) if found[name]}


def _missing(partition: PartitionMetadata, moving: ReassignedPartition | None) -> set[int]:
    adding = {*moving.adding} if moving is not None else set()
    there = {*partition.isr} - {*partition.offline}
    return {*partition.replicas} - adding - there
