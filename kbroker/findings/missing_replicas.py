"""Which partitions lack replicas, in words for an operator.

A replica that a reassignment adds is not missing: it is on its way, and is not counted on yet. As
Apache Kafka's UnderReplicatedPartitions has it; its Metadata answer names such replicas all the
same, so both are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kbroker.errors import KafkaError
from kbroker.findings.pieces import Pause, in_pieces, no_pause
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


def partitions_in(
    cluster: ClusterMetadata, pause: Pause = no_pause
) -> Iterator[tuple[TopicPartition, PartitionMetadata]]:
    """Every partition that the client may see."""
    every = ((topic.name, each) for topic in cluster.topics.values() for each in topic.partitions)
    for topic, partition in in_pieces(every, pause):
        yield TopicPartition(topic, partition.index), partition


def missing_replicas(
    cluster: ClusterMetadata, moving: Moving, pause: Pause = no_pause
) -> dict[TopicPartition, set[int]]:
    """Brokers of which a replica is offline or not in sync, by partition, in the names' order."""
    found = {
        name: who
        for name, partition in partitions_in(cluster, pause)
        if (who := _missing(partition, moving.get(name)))
    }
    return {name: found[name] for name in sorted(found)}


def _missing(partition: PartitionMetadata, moving: ReassignedPartition | None) -> set[int]:
    adding = {*moving.adding} if moving is not None else set()
    there = {*partition.isr} - {*partition.offline}
    return {*partition.replicas} - adding - there
