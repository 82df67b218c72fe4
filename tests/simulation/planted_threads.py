"""Faults that histories of brokers with threads must find; a plant is described in `plant.py`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from kbroker.metadata.image import PartitionImage
from kbroker.replica import in_sync, leadership
from kbroker.replica._replica import Replica
from kbroker.replica.fetcher_partition import FollowedPartition
from tests.simulation.plant import Plant
from tests.simulation.planted import PLANTED


def _however_long(
    node_id: int, replica: Replica, partition: PartitionImage, joining: Collection[int] = (),
    broker_epochs: Mapping[int, int] = {}, wait_ns: int = -1,
) -> bool:  # fmt: skip
    """The controller's thread waits for the log of each replica that it gives a new leader."""
    return leadership.set_leadership(node_id, replica, partition, joining, broker_epochs)


def _when_it_is_over(partition: FollowedPartition, wait_s: float = 0) -> bool:
    """It also waits for an append of an earlier leader's records to the log."""
    with partition._lock:
        return True


PLANTED_IN_THREADS: dict[str, Plant] = {
    "a-hung-log-awaited": Plant(
        in_sync,
        "set_leadership",
        _however_long,
        40,
        also=((FollowedPartition, "is_over", _when_it_is_over),),
    ),
    "compared-before-waited-for": replace(
        PLANTED["compared-before-waited-for"], seeds=20, first=150
    ),
    "elections-without-end": replace(PLANTED["elections-without-end"], seeds=40, first=0),
}
