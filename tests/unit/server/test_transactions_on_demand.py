"""What a broker has for transactions: nothing before it is needed, and threads that end."""

from __future__ import annotations

import threading
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.clock import SystemClock
from kbroker.log.log_workers import THREAD_NAME
from kbroker.metadata.features import TRANSACTION_VERSION, FinalizedFeatures
from kbroker.metadata.image import ClusterImage
from kbroker.server.transactions import Given, TransactionsOnDemand
from kbroker.types import TopicPartition


def on_demand(replica_of: Any = None) -> TransactionsOnDemand:
    nothing: Any = None
    given = Given(
        lambda: SimpleNamespace(node_id=1),  # type: ignore[arg-type, return-value]
        SystemClock(), nothing, replica_of, nothing, nothing, nothing, nothing, nothing, nothing,
    )  # fmt: skip
    return TransactionsOnDemand(given)


def test_work_on_a_log_is_done_by_a_worker_that_ends_with_the_broker() -> None:
    replica = SimpleNamespace(log=SimpleNamespace(path=Path("/data/t-0")))
    asked: list[tuple[str, int]] = []

    def replica_of(*place: Any) -> Any:
        asked.append(place)
        return replica

    transactions = on_demand(replica_of)
    assert not list(transactions.threads)
    threads: list[str] = []
    done = Event()
    place = TopicPartition("t", 0)
    transactions._parts().on_worker(
        place, lambda: (threads.append(threading.current_thread().name), done.set())
    )
    assert done.wait(30)
    assert threads == [THREAD_NAME] and asked == [place]
    (thread,) = transactions.threads
    transactions.stop()
    assert not thread.is_alive()
    transactions.on_worker(place, done.clear)
    assert done.is_set()


def test_c_writes_records_of_the_published_level_of_transactions() -> None:
    """A feature's level changes without a topic."""
    versions: list[int] = []
    transactions = on_demand()
    transactions.show(ClusterImage())  # C does not serve yet
    in_c: Any = SimpleNamespace(follow_version=versions.append)
    transactions._in_c = in_c
    for level in (0, 2, 1):
        features = FinalizedFeatures().changed({TRANSACTION_VERSION: level})
        transactions.show(ClusterImage().with_features(features))
    assert versions == [0, 1, 1]


def test_python_serves_transactions_where_c_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its modules are imported at the first one, and memory may be short then."""
    began: list[Any] = []
    made: Any = SimpleNamespace(start=began.append)
    monkeypatch.setattr("kbroker.cluster.transactions.Transactions", lambda parts: made)

    def fail(of: Any) -> None:
        raise MemoryError

    transactions = on_demand()
    monkeypatch.setattr(transactions, "_make_hot", fail)
    transactions.start()
    transactions._make()
    assert transactions.made is made
    assert began == [None]  # it loads
    assert transactions.failures.count == 1
