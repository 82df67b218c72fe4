"""Figures of replication, for the Observer: what is fetched from leaders, and who is in sync.

A broker that stands alone has all of them at 0. On any thread; thousands of partitions in steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kbroker.metrics.model import Sample
from kbroker.server.observe_traffic import Samples, Totals

if TYPE_CHECKING:
    from kbroker.metadata.controller import Controller
    from kbroker.server.replication import Replication

# Kafka's name of the client that its replica fetchers are.
CLIENT_ID: Final = "Replica"
# Partitions looked at before who waits for the GIL has it.
STEP: Final = 500


def totals(replication: Replication | None) -> Totals:
    """What has a rate."""
    shrinks, expands = (0, 0) if replication is None else replication.in_sync_changes()
    fetched = 0 if replication is None else replication.fetchers.bytes_fetched
    return {
        "replica_fetcher_bytes": [((), fetched)],
        "isr_shrinks": [((), shrinks)],
        "isr_expands": [((), expands)],
    }


def followed(replication: Replication | None) -> Iterator[Mapping[str, list[Sample]]]:
    """How far the partitions that others lead are behind."""
    lag = failed = 0
    partitions = () if replication is None else replication.fetchers.followed()
    for looked_at, partition in enumerate(partitions, start=1):
        lag = max(lag, partition.lag)
        failed += bool(partition.failures or partition.offline)
        if looked_at % STEP == 0:
            yield {}
    yield {
        "replica_max_lag": [((CLIENT_ID,), lag)],
        "replica_failed_partitions": [((CLIENT_ID,), failed)],
    }


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
    }
