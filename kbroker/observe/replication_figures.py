"""Figures of replication, for the Observer: what is fetched from leaders, and the replicas in sync.

A broker without a cluster has all of them at 0. On any thread; thousands of partitions in steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kbroker.metrics.catalogue import QUANTILES
from kbroker.metrics.model import Sample
from kbroker.observe.traffic_figures import Samples, Totals

if TYPE_CHECKING:
    from kbroker.cluster.replication import Replication
    from kbroker.metadata.controller import Controller

# Kafka's name of the client that its replica fetchers are.
CLIENT_ID: Final = "Replica"
# Partitions looked at before who waits for the GIL has it.
STEP: Final = 500


def totals(
    replication: Replication | None, controller: Controller | None, bytes_sent: int
) -> Totals:
    """What has a rate. `bytes_sent`: to followers."""
    shrinks, expands = (0, 0) if replication is None else replication.in_sync_changes()
    fetched = 0 if replication is None else replication.fetchers.bytes_fetched
    found: Totals = {
        "replica_fetcher_bytes": [((), fetched)],
        "replication_bytes_in": [(("",), fetched)],
        "replication_bytes_out": [(("",), bytes_sent)],
        "isr_shrinks": [((), shrinks)],
        "isr_expands": [((), expands)],
    }
    if controller is not None:
        found["unclean_elections"] = [((), controller.statistics().unclean_elections)]
    return found


def followed(
    replication: Replication | None, fetched_bytes_per_s: float | None
) -> Iterator[Mapping[str, list[Sample]]]:
    """How far the partitions that other brokers lead lag."""
    lag = failed = missing_bytes = 0
    partitions = () if replication is None else replication.fetchers.followed()
    for looked_at, partition in enumerate(partitions, start=1):
        lag = max(lag, partition.lag)
        missing_bytes += partition.lag_bytes
        failed += bool(partition.failures or partition.offline)
        if looked_at % STEP == 0:
            yield {}
    yield {
        "replica_max_lag": [((CLIENT_ID,), lag)],
        "replica_failed_partitions": [((CLIENT_ID,), failed)],
        "replica_lag_bytes": [((), missing_bytes)],
        "replica_catch_up": [((), catch_up_s(missing_bytes, fetched_bytes_per_s))],
    }


def catch_up_s(missing_bytes: int, fetched_bytes_per_s: float | None) -> float:
    """Bytes that are missing over the rate at which they come; infinite where none come."""
    if not missing_bytes:
        return 0.0
    return missing_bytes / fetched_bytes_per_s if fetched_bytes_per_s else math.inf


def cluster(controller: Controller) -> Samples:
    """What the controller says of the whole cluster; of the others each says 0, as in Kafka, so
    that their sum is right."""
    figures = controller.statistics()
    says = int(figures.active)
    return {
        "active_controllers": [((), says)],
        "offline_partitions": [((), says * figures.offline_partitions)],
        "global_topics": [((), says * figures.topics)],
        "global_partitions": [((), says * figures.partitions)],
        "controller_queue": [((), figures.events_queued)],
        "controller_queue_time": [((), figures.events_waited.summary(QUANTILES))],
        "controller_event_time": [((), figures.events_took.summary(QUANTILES))],
        "leader_elections": [((), figures.leader_elections)],
        "offices_given_up": [((), controller.offices_given_up)],
    }
