"""A partition as the controller says it, to its replica here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kbroker.metadata.image import PartitionImage
    from kbroker.replica._replica import Replica


_NOT_KNOWN: Final[Mapping[int, int]] = MappingProxyType({})


def set_leadership(
    node_id: int,
    replica: Replica,
    partition: PartitionImage,
    joining: Collection[int] = (),
    broker_epochs: Mapping[int, int] = _NOT_KNOWN,
    wait_ns: int = -1,
) -> bool:
    """The leader, and the followers for which the high watermark waits: the committed in-sync set
    and those that are joining it. `broker_epochs` are those of the registered brokers: fetches of
    an older start are refused. False: its log was being changed for `wait_ns`, and this is to be
    called once more; below 0 it is waited for."""
    return replica.set_leadership(
        partition.leader,
        partition.leader == node_id,
        partition.leader_epoch,
        len(partition.isr),
        {
            each: each in partition.isr or each in joining
            for each in partition.replicas
            if each != node_id
        },
        broker_epochs,
        wait_ns=wait_ns,
    )
