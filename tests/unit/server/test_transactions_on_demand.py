"""What a broker has for transactions: nothing before it is needed, and threads that end."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kbroker.clock import SystemClock
from kbroker.limits import TASK_RETRY_MS
from kbroker.log.log_workers import THREAD_NAME
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.features import TRANSACTION_VERSION, FinalizedFeatures
from kbroker.metadata.image import TRANSACTIONS_TOPIC, ClusterImage, ImageDelta
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


class Later:
    """The timer and the controller's thread: what was asked for later."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, Callable[[], object]]] = []
        self.image = ClusterImage()

    def call_later(self, delay_ms: int, call: Callable[[], object]) -> Callable[[], None]:
        self.calls.append((delay_ms, call))
        return lambda: None

    def in_step(self, call: Callable[[], None]) -> None:
        call()

    def run(self) -> None:
        ((delay_ms, call),) = self.calls
        self.calls = []
        assert delay_ms == TASK_RETRY_MS
        call()


@pytest.fixture
def later() -> Later:
    return Later()


def retried(later: Later, hot: Any = None) -> TransactionsOnDemand:
    nothing: Any = None
    given = Given(
        lambda: SimpleNamespace(node_id=1),  # type: ignore[arg-type, return-value]
        SystemClock(), later.call_later, nothing, nothing,
        lambda: later,  # type: ignore[arg-type, return-value]
        nothing, nothing, nothing, nothing, hot,
    )  # fmt: skip
    return TransactionsOnDemand(given)


STATE = new_topic_image(TRANSACTIONS_TOPIC, UUID(int=1), [(1,)], {})
OTHER = new_topic_image("other", UUID(int=2), [(1,)], {})
SHORT = OSError(errno.EMFILE, "Too many open files")


class FailsTwice:
    """In place of an import, when descriptors are out."""

    def __init__(self, made: Any) -> None:
        self.left = 2
        self._made = made

    def __call__(self, *given: Any) -> Any:
        if self.left:
            self.left -= 1
            raise SHORT
        return self._made


def test_a_coordinator_that_could_not_be_made_follows_its_topic_later(
    later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No topic goes offline for it, and an image of other topics does not make it forget its own.
    What it is to watch is begun with it."""
    followed: list[ImageDelta] = []
    made: Any = SimpleNamespace(follow=lambda image, delta: followed.append(delta))
    monkeypatch.setattr("kbroker.cluster.transactions.Transactions", FailsTwice(made))
    watch: Any = object()
    monkeypatch.setattr("kbroker.server.watched_transactions.watched", lambda *given: watch)
    transactions = retried(later)
    later.image = ClusterImage().with_topics([STATE])
    transactions.follow(later.image, ImageDelta(created=(STATE,)))
    assert transactions.made is None and transactions.failures.count == 1
    later.image = later.image.with_topics([OTHER])
    transactions.follow(later.image, ImageDelta(created=(OTHER,)))
    assert transactions.failures.count == 2 and not followed
    later.run()
    assert transactions.made is made and transactions._watched is watch
    assert followed == [ImageDelta(created=(STATE,))] and not later.calls
    transactions.follow(later.image, ImageDelta(changed=(OTHER,)))
    assert followed[1:] == [ImageDelta(changed=(OTHER,))]


def test_python_serves_transactions_until_c_can(
    later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its modules are imported at the first one, and memory may be short then."""
    began: list[Any] = []
    made: Any = SimpleNamespace(
        start=began.append, follow=lambda image, delta: None, table=None, ids=None
    )
    monkeypatch.setattr("kbroker.cluster.transactions.Transactions", lambda parts: made)
    monkeypatch.setattr("kbroker.server.watched_transactions.watched", lambda *given: object())
    in_c: Any = SimpleNamespace(follow_version=lambda version: None)
    make = FailsTwice(in_c)
    monkeypatch.setattr(
        "kbroker.engine._transactions.HotTransactions", lambda *given, **named: make()
    )
    transactions = retried(later, hot=object())
    transactions.start()
    monkeypatch.setattr(transactions, "_schedule_watch", lambda watched: None)
    later.image = ClusterImage().with_topics([STATE])
    transactions.follow(later.image, ImageDelta(created=(STATE,)))
    assert transactions.made is made and began == [None]  # it loads
    assert transactions._in_c is None
    later.run()
    assert transactions._in_c is None and transactions.failures.count == 2
    later.run()
    assert transactions._in_c is in_c and not later.calls


def test_a_start_that_failed_at_its_last_part_begins_the_others_once(
    later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[Any] = []
    transactions = retried(later)
    transactions._made = SimpleNamespace(start=began.append)  # type: ignore[assignment]
    transactions._watched = SimpleNamespace(look=None)  # type: ignore[assignment]
    scheduled = FailsTwice(None)
    monkeypatch.setattr(transactions, "_schedule_watch", scheduled)
    for _ in range(2):
        with pytest.raises(OSError, match="Too many open files"):
            transactions.start()
    transactions.start()
    assert began == [None] and not scheduled.left


def test_the_watch_over_transactions_is_begun_later_where_it_fails(
    later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch: Any = SimpleNamespace(look=None)
    monkeypatch.setattr("kbroker.server.watched_transactions.watched", lambda *given: watch)
    transactions = retried(later)
    scheduled = FailsTwice(None)
    monkeypatch.setattr(transactions, "_schedule_watch", scheduled)
    transactions.start()
    later.image = ClusterImage().with_topics([replace(STATE, partitions=())])
    transactions.follow(later.image, ImageDelta(created=(STATE,)))
    assert transactions._watched is None
    later.run()
    assert transactions._watched is None
    later.run()
    assert transactions._watched is watch and not later.calls


def test_a_worker_is_there_before_it_is_needed(
    later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timer that cannot have it loses its call."""
    transactions = retried(later)
    with transactions._lock:
        transactions._make_offsets()

    def fail() -> None:
        raise SHORT

    monkeypatch.setattr(transactions, "_make_workers", fail)
    with transactions._lock:
        assert transactions._workers_locked() is transactions._workers is not None
