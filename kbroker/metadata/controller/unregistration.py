"""A broker is unregistered (UnregisterBroker, KIP-631): the store is to have nothing more of it.

Place in the flow: the controller's thread, for a broker that is gone for good, or whose disks are.
In this order, and asked for again it goes on where a crash cut it:

    its registration, if it has one    others lead then what it led, as when its session ends
    the directories that it has used   it may come back with others, as new
    its place in sets of replicas      where others are in sync or eligible; alone it stays the one
                                       replica that has what was committed
    its own settings

It stays a replica of its partitions; only reassignments change that.

A registration in ZooKeeper is of a session that lives, or has not been found dead. So a broker that
runs is not unregistered for long: it sees that its registration is gone (the controller's
`_brokers_changed`), leads nothing, and registers again in a new session, as after one that was
lost. In Apache Kafka it would have to be started again for that. The only broker that there is
stays registered, since no broker would serve.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller.config_changes import ResourceChange
from kbroker.metadata.controller.events import AlterResources
from kbroker.metadata.controller.nodes import MetadataNodes
from kbroker.metadata.controller.partition_changes import PartitionChanges
from kbroker.metadata.image import ClusterImage, ConfigKind, ConfigResource

log = logging.getLogger("kbroker.controller")

# Makes the change; what it returns, called, tells the outcome.
Alter = Callable[[MetadataNodes, AlterResources], Callable[[], None]]


def unregister(
    nodes: MetadataNodes,
    partitions: PartitionChanges,
    alter: Alter,
    image: ClusterImage,
    node_id: int,
) -> None:
    """See the head of this file; `image` is the one that is published. KafkaError if there is
    nothing of that broker, or no other broker."""
    if image.brokers.keys() == {node_id}:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"broker {node_id} is the only one that runs: start another one first",
        )
    known = nodes.forget_broker(node_id)
    others = [broker for broker in image.brokers.values() if broker.node_id != node_id]
    partitions.brokers_changed(nodes, others)
    known = partitions.forget_broker(nodes, node_id) or known
    own = ConfigResource(ConfigKind.BROKER, str(node_id))
    if image.configs_of(*own):
        known = True
        _clear(nodes, alter, own)
    if not known:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {node_id} is not registered")
    log.info("broker %d is unregistered", node_id)


def _clear(nodes: MetadataNodes, alter: Alter, own: ConfigResource) -> None:
    outcomes: list[KafkaError | None] = []
    alter(nodes, AlterResources((ResourceChange(own, replace=True),), False, outcomes.extend))()
    for error in outcomes:
        if error is not None:
            raise error
