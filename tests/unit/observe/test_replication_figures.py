"""What a broker of a cluster says of its replication, and of the cluster."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.metadata.controller import NewTopic
from kbroker.metrics.catalogue import BY_KEY
from kbroker.metrics.model import Summary
from kbroker.observe import replication_figures
from kbroker.observe.replication_figures import STEP
from tests.unit.metadata.controller.brokers import Cluster, Wire
from tests.unit.metadata.controller.harness import eventually


class Replicating:
    """What the Observer asks of a Replication."""

    def __init__(self, followed: int = 0) -> None:
        self.changes = 3, 2
        self.partitions = [
            SimpleNamespace(
                lag=number % 700,
                lag_bytes=10 * (number % 700),
                failures=number == 1,
                offline=number in (1, 2),
            )
            for number in range(followed)
        ]
        self.fetchers: Any = SimpleNamespace(bytes_fetched=500, followed=lambda: self.partitions)

    def in_sync_changes(self) -> tuple[int, int]:
        return self.changes


def found_in(pieces: Iterator[Any]) -> tuple[int, dict[str, Any]]:
    """How many pieces there were, and what was in them."""
    listed = list(pieces)
    return len(listed), {key: rows for piece in listed for key, rows in piece.items()}


def test_a_broker_alone_follows_none() -> None:
    assert replication_figures.totals(None, None, 7) == {
        "replica_fetcher_bytes": [((), 0)],
        "replication_bytes_in": [(("",), 0)],
        "replication_bytes_out": [(("",), 7)],
        "isr_shrinks": [((), 0)],
        "isr_expands": [((), 0)],
    }
    found = found_in(replication_figures.followed(None, None))[1]
    assert found["replica_max_lag"] == [(("Replica",), 0)]
    assert found["replica_lag_bytes"] == found["replica_catch_up"] == [((), 0)]


def test_the_largest_lag_counts_and_thousands_come_in_steps() -> None:
    replication: Any = Replicating(followed=2 * STEP + 1)
    pieces, found = found_in(replication_figures.followed(replication, 5_000.0))
    missing = 10 * sum(number % 700 for number in range(2 * STEP + 1))
    assert pieces == 3
    assert found == {
        "replica_max_lag": [(("Replica",), 699)],
        "replica_failed_partitions": [(("Replica",), 2)],
        "replica_lag_bytes": [((), missing)],
        "replica_catch_up": [((), missing / 5_000)],
    }
    assert found.keys() <= BY_KEY.keys()


@pytest.mark.parametrize(
    ("missing", "rate", "seconds"),
    [(0, None, 0), (0, 5.0, 0), (100, 50.0, 2), (100, 0.0, math.inf), (100, None, math.inf)],
)
def test_when_it_will_have_caught_up(missing: int, rate: float | None, seconds: float) -> None:
    assert replication_figures.catch_up_s(missing, rate) == seconds


def test_only_the_controller_speaks_for_the_cluster(tmp_path: Path) -> None:
    brokers = Cluster(tmp_path, Wire())
    one, two = brokers.controller, brokers.brokers[2]
    assert not one.create(NewTopic("t", assignments={0: (2,), 1: (3,)}))[0].error
    brokers.end(3)
    eventually(lambda: two.image.offline_partition_count == 1)
    said = [replication_figures.cluster(each.controller) for each in (one, two)]
    assert [each["leader_elections"] for each in said] == [[((), 0)], [((), 0)]]
    one.controller.give_up_office()
    said = [replication_figures.cluster(each.controller) for each in (one, two)]
    assert [each["offices_given_up"] for each in said] == [[((), 1)], [((), 0)]]
    for key in ("controller_queue_time", "controller_event_time"):
        for each in said:  # both have events of their own
            ((_, summary),) = each[key]
            assert isinstance(summary, Summary) and summary.total > 0
    keys = ("active_controllers", "offline_partitions", "global_topics", "global_partitions")
    assert [[each[key][0][1] for key in keys] for each in said] == [[1, 1, 1, 2], [0, 0, 0, 0]]
    two.stop()
    one.stop()
