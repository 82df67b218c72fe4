"""A controller that cannot read the store tries again by itself, and another broker may try."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbroker.clock import ManualClock
from kbroker.errors import DataDirectoryError, ErrorCode
from kbroker.metadata.controller import NewTopic, own_nodes, records
from kbroker.metadata.controller.load_retry import (
    ASIDE_MS,
    PAUSE_MS,
    PAUSE_MS_MAX,
    PAUSES,
    LoadRetry,
)
from kbroker.metadata.controller.office_watch import AGAIN_MS
from kbroker.metadata.store.base import Node, StoreUnavailableError
from tests.unit.metadata.controller.brokers import Cluster, Wire
from tests.unit.metadata.controller.harness import OneBroker, eventually
from tests.unit.metadata.controller.test_unreadable import reload

DAMAGED = DataDirectoryError("a node cannot be read", "mend it")


class Calls:
    """What a `LoadRetry` has done."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.pauses: list[tuple[int, Callable[[], None]]] = []
        self.done: list[str] = []
        self.error: Exception | None = None

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self.pauses.append((delay_ms, call))

    def give_up(self) -> None:
        self.done.append("gives up")
        if self.error is not None:
            raise self.error

    def pause_ms(self) -> int:
        """Of the one pause that there is; it ends."""
        ((delay_ms, call),) = self.pauses
        self.pauses.clear()
        self.clock.advance(delay_ms)
        call()
        return delay_ms

    def retry(self, *, alone: bool = False) -> LoadRetry:
        return LoadRetry(
            self.clock,
            self.later,
            lambda: self.done.append("load"),
            lambda: self.done.append("run"),
            None if alone else self.give_up,
        )


def test_the_pause_doubles_until_a_load_works() -> None:
    calls = Calls()
    retry = calls.retry(alone=True)
    lasted: list[int] = []
    for _ in range(8):
        retry.failed(DAMAGED)
        retry.failed(DAMAGED)  # after another event: the pause goes on
        lasted.append(calls.pause_ms())
    assert lasted == [PAUSE_MS << each for each in range(6)] + [PAUSE_MS_MAX] * 2
    assert calls.done == ["load"] * 8
    retry.worked()
    retry.failed(DAMAGED)
    assert calls.pause_ms() == PAUSE_MS


def test_after_a_pause_whose_end_is_lost_the_next_event_reads_again() -> None:
    """The timer had no memory for it, or its thread has ended."""
    calls = Calls()
    retry = calls.retry(alone=True)
    retry.failed(DAMAGED)
    calls.pauses.clear()
    calls.clock.advance(PAUSE_MS)
    retry.failed(DAMAGED)
    assert calls.pause_ms() == 2 * PAUSE_MS
    assert calls.done == ["load"]


def test_a_store_that_is_away_says_itself_when_it_is_back() -> None:
    calls = Calls()
    calls.retry().failed(StoreUnavailableError("", "injected"))
    assert not calls.pauses


def fail_until_it_gives_up(calls: Calls, retry: LoadRetry) -> None:
    for _ in range(PAUSES):
        retry.failed(DAMAGED)
        calls.pause_ms()
    assert not retry.stands_aside
    retry.failed(DAMAGED)


def test_the_office_is_given_up_once_a_minute() -> None:
    calls = Calls()
    retry = calls.retry()
    fail_until_it_gives_up(calls, retry)
    assert retry.stands_aside
    assert calls.pause_ms() == ASIDE_MS
    assert not retry.stands_aside
    assert calls.done == [*["load"] * PAUSES, "gives up", "run"]
    while calls.clock.monotonic_ms() < AGAIN_MS - PAUSE_MS_MAX:
        retry.failed(DAMAGED)
        calls.pause_ms()
    assert calls.done.count("gives up") == 1
    calls.clock.advance(AGAIN_MS)
    retry.failed(DAMAGED)
    assert calls.done.count("gives up") == 2


def test_an_office_that_cannot_be_given_up_is_held() -> None:
    calls = Calls()
    calls.error = StoreUnavailableError("", "injected")
    retry = calls.retry()
    fail_until_it_gives_up(calls, retry)
    assert not retry.stands_aside
    assert calls.pause_ms() == PAUSE_MS << PAUSES


def test_it_runs_again_without_the_end_of_the_pause() -> None:
    calls = Calls()
    retry = calls.retry()
    fail_until_it_gives_up(calls, retry)
    calls.clock.advance(ASIDE_MS)
    assert not retry.stands_aside


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, Wire())
    made.make(3, 2)
    assert not made.controller.create(NewTopic("u", assignments={0: (2, 3)}))[0].error
    eventually(lambda: all("u" in each.image.topics for each in made.brokers.values()))
    yield made
    for node_id in sorted(made.brokers, reverse=True):
        made.brokers[node_id].stop()


def damage(broker: OneBroker) -> bytes | None:
    """The node of features; what it was."""
    store = broker.embedded
    before = store.get(own_nodes.FEATURES).data if store.exists(own_nodes.FEATURES) else None
    store.ensure(own_nodes.FEATURES)
    store.set(own_nodes.FEATURES, b"no JSON")
    return before


def mend(broker: OneBroker, data: bytes | None) -> None:
    if data is None:
        broker.embedded.delete(own_nodes.FEATURES)
    else:
        broker.embedded.set(own_nodes.FEATURES, data)


def until_it_gives_up(broker: OneBroker, wire: Wire) -> None:
    def has_given_up() -> bool:
        if not broker.controller.offices_given_up:
            wire.pauses_end()
        return broker.controller.offices_given_up == 1

    eventually(has_given_up)


def test_a_cluster_goes_on_when_the_node_is_mended(cluster: Cluster) -> None:
    one, wire = cluster.controller, cluster.wire
    assert wire is not None
    before = damage(one)
    reload(one)
    cluster.brokers.pop(3).stop()
    eventually(lambda: wire.pauses_of(1) > 0)
    assert cluster.state.leader == 3
    mend(one, before)
    wire.pauses_end()
    eventually(lambda: cluster.state.leader == 2)


def test_another_broker_elects_where_the_fault_is_this_ones(cluster: Cluster) -> None:
    one, two, wire = cluster.controller, cluster.brokers[2], cluster.wire
    assert wire is not None
    get = one.store.get

    def faulty_get(path: str) -> Node:
        if path == own_nodes.FEATURES:
            raise DAMAGED
        return get(path)

    one.store.get = faulty_get  # type: ignore[method-assign]
    reload(one)
    cluster.brokers.pop(3).stop()
    until_it_gives_up(one, wire)
    eventually(lambda: two.controller.active)
    eventually(lambda: two.image.topics["t"].partitions[0].leader == 2)
    eventually(lambda: one.image.controller_id == 2)
    assert not one.controller.active
    wire.pauses_end()
    eventually(lambda: one.image.topics["t"].partitions[0].leader == 2)
    assert two.controller.active


def test_the_only_broker_takes_the_office_again(cluster: Cluster) -> None:
    one, wire = cluster.controller, cluster.wire
    assert wire is not None
    for node_id in (3, 2):
        cluster.end(node_id)
    before = damage(one)
    reload(one)
    until_it_gives_up(one, wire)
    eventually(lambda: not one.controller.active)
    mend(one, before)
    wire.pauses_end()
    eventually(lambda: one.controller.active)
    assert not one.create(NewTopic("v", assignments={0: (1,)}))[0].error


def test_a_broker_that_could_not_run_for_office_tries_again(cluster: Cluster) -> None:
    two, three, wire = cluster.brokers[2], cluster.brokers[3], cluster.wire
    assert wire is not None
    store = two.embedded
    before = store.get(records.CONTROLLER_EPOCH).data
    store.set(records.CONTROLLER_EPOCH, b"no number")
    cluster.brokers.pop(1).stop()
    eventually(lambda: wire.pauses_of(2) > 0 and wire.pauses_of(3) > 0)
    store.set(records.CONTROLLER_EPOCH, before)
    wire.pauses_end()
    eventually(lambda: two.controller.active or three.controller.active)


def test_a_broker_without_a_cluster_goes_on_when_the_node_is_mended(tmp_path: Path) -> None:
    broker, pauses = OneBroker(tmp_path), list[tuple[int, Callable[[], None]]]()
    broker.start(once=lambda name, call, delay_ms: pauses.append((delay_ms, call)))
    broker.create(NewTopic("t", partitions=1))
    before = damage(broker)
    reload(broker)
    assert broker.create(NewTopic("u", partitions=1))[0].error is ErrorCode.UNKNOWN_SERVER_ERROR
    mend(broker, before)
    ((delay_ms, call),) = pauses
    assert delay_ms == PAUSE_MS
    epoch = broker.controller.statistics().controller_epoch
    call()
    done: list[None] = []
    broker.controller.in_step(lambda: done.append(None))
    eventually(lambda: bool(done))
    assert broker.controller.active and broker.embedded.get(records.CONTROLLER)
    assert broker.controller.statistics().controller_epoch == epoch
    assert not broker.controller._stale
    broker.stop()
