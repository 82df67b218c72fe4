"""The Observer over a network core of its own: counts, rates by hand, and what a scrape costs."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.clock import Clock, ManualClock, SystemClock
from kbroker.config import BrokerConfig
from kbroker.coordinator.groups import Groups
from kbroker.metrics.catalogue import BY_KEY
from kbroker.metrics.families import families
from kbroker.metrics.model import Figures, Meter, Summary
from kbroker.observe.health import Health
from kbroker.observe.observer import TICK_MS, Observer, Parts
from kbroker.observe.readiness import RUNNING, Readiness
from kbroker.purgatory.delayed_operation import DelayedOperation
from kbroker.purgatory.purgatory import Purgatory
from kbroker.purgatory.timer import Timer
from kbroker.replica import _partition_figures
from kbroker.scheduler import Scheduler
from kbroker.types import TopicPartition
from tests.support.alone import slowness
from tests.support.record_batches import build_batch
from tests.unit.engine.wire import Ask, fetch, fetch_frame, produce_frame
from tests.unit.net.harness import NODE_ID, Rig, Topic, eventually, running
from tests.unit.net.test_idle_meters import blasting

WINDOW_NS = 700_000_000
SCRAPE_CPU_S_MAX = 0.05
STEP_CPU_S_MAX = 0.001
FOLLOWER = 2


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    rigs = []

    def make(**options: object) -> Rig:
        context = running(tmp_path / "logs", **options)
        rigs.append(context)
        return context.__enter__()

    (tmp_path / "logs").mkdir()
    yield make
    for context in rigs:
        context.__exit__(None, None, None)


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    return make_rig()


class Watched:
    """An Observer of a rig, ticked by the test."""

    def __init__(self, rig: Rig, clock: Clock, *, every_partition: bool = False) -> None:
        self.rig = rig
        readiness = Readiness([str(rig.directory)])
        readiness.phase = RUNNING
        config = BrokerConfig.load(None, {}, [])
        self.groups = Groups(
            lambda: config, clock, Timer(clock), lambda topic, index: None, rig.hot
        )
        self.timer = Timer(clock)
        self.purgatories = (Purgatory("topic", self.timer),)
        self.observer = Observer(
            Parts(
                server=rig.server,
                hot=rig.hot,
                replicas=self._logs,
                log_tasks=SimpleNamespace(  # type: ignore[arg-type]
                    flush_times=rig.flush_times, samples=dict
                ),
                scheduler=Scheduler(clock),
                readiness=readiness,
                log_dirs=(str(rig.directory),),
                node_id=NODE_ID,
                groups=self.groups,
                health=Health(lambda: (), (self.groups.coordinator.failures,)),
                purgatories=self.purgatories,
                controller=lambda: None,
            ),
            clock,
            every_partition=every_partition,
        )

    def _logs(self) -> dict[TopicPartition, object]:
        return {
            TopicPartition(name, index): log
            for name, topic in self.rig.topics.items()
            for index, log in enumerate(topic.logs)
        }

    def tick(self) -> None:
        for _ in self.observer.tick():
            pass

    def figures(self) -> Figures:
        return self.observer.figures()

    def meter(self, key: str, *labels: str) -> Meter:
        found = self.figures().value(key, *labels)
        assert isinstance(found, Meter)
        return found


def produce(rig: Rig, topic: Topic, records: int, size: int = 1) -> bytes:
    """One batch, acknowledged or refused; its bytes."""
    batch = build_batch([b"x" * size] * records)
    client = rig.client()
    client.send(produce_frame(9, [(topic, {0: batch})]))
    client.receive()
    return batch


def test_counts_and_rates_by_topic(rig: Rig) -> None:
    clock = ManualClock()
    watched = Watched(rig, clock)
    orders, other = rig.create("orders"), rig.create("other")
    watched.tick()
    batch = produce(rig, orders, 50)
    produce(rig, other, 25)
    client = rig.client()
    client.send(fetch_frame(12, [Ask(orders, 0)]))
    client.receive()
    clock.advance(TICK_MS)
    watched.tick()
    assert watched.meter("messages_in", "orders") == (50, 10.0, 10.0)
    assert watched.meter("messages_in", "other") == (25, 5.0, 5.0)
    assert watched.meter("messages_in", "") == (75, 15.0, 15.0)
    assert watched.meter("bytes_in", "orders").total == len(batch)
    assert watched.meter("bytes_out", "orders").total == len(batch)
    assert watched.meter("fetch_requests", "orders").total == 1
    assert watched.meter("produce_requests", "").total == 2
    with pytest.raises(KeyError):
        watched.figures().value("bytes_out", "other")


def test_the_sum_outlives_a_topic(rig: Rig) -> None:
    watched = Watched(rig, ManualClock())
    produce(rig, rig.create("orders"), 50)
    rig.delete("orders")
    assert watched.meter("messages_in", "").total == 50
    with pytest.raises(KeyError):
        watched.figures().value("messages_in", "orders")


def test_refusals_have_their_code_and_their_topic(rig: Rig) -> None:
    watched = Watched(rig, ManualClock())
    small = rig.create("small", max_message_bytes=500)
    batch = produce(rig, small, 1, size=1_000)
    produce(rig, Topic("nowhere", uuid.uuid4(), []), 1)
    client = rig.client()
    client.send(fetch_frame(12, [Ask(small, 0, 99)]))
    client.receive()
    assert watched.meter("errors", "Produce", "MESSAGE_TOO_LARGE").total == 1
    assert watched.meter("errors", "Produce", "UNKNOWN_TOPIC_OR_PARTITION").total == 1
    assert watched.meter("errors", "Fetch", "OFFSET_OUT_OF_RANGE").total == 1
    assert watched.meter("failed_produce_requests", "small").total == 1
    assert watched.meter("failed_produce_requests", "").total == 2
    assert watched.meter("failed_fetch_requests", "small").total == 1
    assert watched.meter("bytes_rejected", "small").total == len(batch)
    assert watched.meter("bytes_rejected", "").total == len(batch)
    assert watched.meter("produce_requests", "small").total == 1


def test_request_times_are_sampled_by_request(rig: Rig) -> None:
    watched = Watched(rig, ManualClock())
    produce(rig, rig.create("t"), 1)
    eventually(lambda: rig.total("responses") == 1, "counted")
    found = watched.figures().value("total_time", "Produce")
    assert isinstance(found, Summary)
    assert found.total == 1
    assert found.quantiles[0][1] == pytest.approx(found.sum, rel=0.07)
    reported = {(t.request, t.part): t.buckets_ms for t in watched.observer.request_times()}
    assert sum(count for _, count in reported["Produce", "TotalTimeMs"]) == 1


def test_flushes_are_counted(rig: Rig) -> None:
    watched = Watched(rig, ManualClock())
    before = watched.figures().value("log_flush_time")
    topic = rig.create("t")
    produce(rig, topic, 1)
    topic.logs[0].flush()
    topic.logs[0].flush()  # nothing is left to sync
    after = watched.figures().value("log_flush_time")
    assert isinstance(before, Summary)
    assert isinstance(after, Summary)
    assert after.total == before.total + 1
    assert after.sum > before.sum


def test_the_gauges_fall_at_saturation(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(handlers=8)
    # Dear to check and cheap to send: whatever share of the processors each gets, handlers lag.
    batch = build_batch([b"x" * 200] * 4_000, codec="gzip")
    frame = produce_frame(9, [(rig.create("t"), {0: batch})], acks=0)

    def handlers_are_busy() -> bool:
        watched = Watched(rig, SystemClock())
        watched.tick()
        began_ns = time.monotonic_ns()
        eventually(lambda: time.monotonic_ns() - began_ns > WINDOW_NS, "a window")
        watched.tick()
        idle = watched.figures().value("handler_idle")
        assert isinstance(idle, float)
        return idle < 0.1

    with blasting(rig, frame, 2):
        eventually(handlers_are_busy, "no handler is idle")


def test_idle_is_not_claimed_to_be_saturation_before_it_is_known(rig: Rig) -> None:
    figures = Watched(rig, ManualClock()).figures()
    assert figures.value("handler_idle") == figures.value("network_idle") == 1.0


def test_replication_is_sampled_with_its_rates(rig: Rig) -> None:
    clock = ManualClock()
    watched = Watched(rig, clock)
    replication: Any = SimpleNamespace(
        fetchers=SimpleNamespace(bytes_fetched=500, followed=lambda: ()),
        in_sync_changes=lambda: (3, 2),
    )
    watched.observer._parts.replication = replication
    watched.tick()
    replication.fetchers.bytes_fetched += 5_000
    replication.in_sync_changes = lambda: (4, 2)
    clock.advance(TICK_MS)
    watched.tick()
    assert watched.meter("isr_shrinks") == Meter(4, 0.8, 0.8)
    assert watched.meter("isr_expands") == Meter(2, 0.4, 0.4)
    assert watched.meter("replica_fetcher_bytes") == Meter(5_500, 1_100.0, 1_100.0)
    assert watched.meter("replication_bytes_in", "") == Meter(5_500, 1_100.0, 1_100.0)


def test_the_purgatories_of_requests_are_listed(rig: Rig) -> None:
    class Waits(DelayedOperation):
        def try_complete(self) -> bool:
            return False

        def on_complete(self) -> None:
            pass

    clock = ManualClock()
    watched = Watched(rig, clock)
    (purgatory,) = watched.purgatories
    for delay_ms in (5, 50):
        assert not purgatory.try_complete_else_watch(Waits(delay_ms), ["key"])
    clock.advance(20)
    watched.timer.advance()
    assert watched.figures().value("purgatory_size", "topic") == 1
    assert watched.figures().value("purgatory_expired", "topic") == 1


@pytest.mark.parametrize("before", [0, 1])
def test_an_unclean_election_has_a_rate(rig: Rig, before: int) -> None:
    """By which the alert goes; that at the start of the process as well, when it was elected."""
    clock = ManualClock()
    watched = Watched(rig, clock)
    figures = SimpleNamespace(unclean_elections=before)
    controller: Any = SimpleNamespace(statistics=lambda: figures)
    watched.observer._parts.controller = lambda: controller
    watched.tick()
    figures.unclean_elections = 1
    clock.advance(TICK_MS)
    watched.tick()
    assert watched.observer._rates.rate(("unclean_elections", ())) == 0.2


def test_fetches_of_followers_are_no_traffic_of_consumers(rig: Rig) -> None:
    watched = Watched(rig, ManualClock())
    topic = rig.create("orders")
    batch = produce(rig, topic, 50)
    topic.logs[0].set_leadership(NODE_ID, True, 0, 1, {FOLLOWER: False})
    ask = [Ask(topic, 0, leader_epoch=0)]
    got = fetch(rig.client(), 17, ask, replica_id=FOLLOWER).only.records
    assert got is not None and len(got) == len(batch)
    eventually(lambda: rig.total("responses") == 2, "counted")
    assert watched.meter("bytes_out", "").total == 0
    assert watched.meter("replication_bytes_out", "").total == len(batch)
    assert "FetchConsumer" not in {
        reported.request for reported in watched.observer.request_times()
    }
    for _ in range(2):
        fetch(rig.client(), 17, [Ask(topic, 0)])
    eventually(lambda: rig.total("responses") == 4, "counted")
    assert watched.meter("bytes_out", "orders").total == 2 * len(batch)
    assert watched.meter("replication_bytes_out", "").total == len(batch)
    times = dict(watched.figures().samples("total_time"))
    counts = {}
    for (name,), summary in times.items():
        assert isinstance(summary, Summary)
        counts[name] = summary.total
    assert counts == {"Produce": 1, "Fetch": 3, "FetchConsumer": 2, "FetchFollower": 1}
    assert watched.meter("requests", "Fetch", "17").total == 3
    reported = {(t.request, t.part): t.buckets_ms for t in watched.observer.request_times()}
    assert {request for request, _ in reported} == {"Produce", "FetchConsumer", "FetchFollower"}
    assert sum(count for _, count in reported["FetchConsumer", "TotalTimeMs"]) == 2


def test_every_key_is_one_of_the_catalogue(rig: Rig) -> None:
    figures = Watched(rig, ManualClock(), every_partition=True).figures()
    assert set(figures.keys()) <= set(BY_KEY)


def test_a_scrape_of_a_thousand_partitions_is_cheap(rig: Rig) -> None:
    rig.create("wide", 1_000)
    watched = Watched(rig, ManualClock())

    def cpu_s() -> float:
        began_s = time.thread_time()
        count = sum(len(family.samples) for family in families(watched.figures()))
        assert count > 2_000
        return time.thread_time() - began_s

    slow = slowness()
    assert min(cpu_s() for _ in range(5)) < SCRAPE_CPU_S_MAX * slow
    logs = rig.topics["wide"].logs[: _partition_figures.BATCH]

    def step_cpu_s() -> float:
        began_s = time.thread_time()
        assert len(_partition_figures.read(logs)) == _partition_figures.BATCH
        return time.thread_time() - began_s

    assert min(step_cpu_s() for _ in range(5)) < STEP_CPU_S_MAX * slow
    with pytest.raises(ValueError, match="at most"):
        _partition_figures.read(rig.topics["wide"].logs)


def test_two_may_ask_at_once(rig: Rig) -> None:
    watched = Watched(rig, ManualClock())
    produce(rig, rig.create("t"), 1)
    found: list[Figures] = []
    threads = [threading.Thread(target=lambda: found.append(watched.figures())) for _ in range(4)]
    for thread in threads:
        thread.start()
    watched.tick()
    for thread in threads:
        thread.join()
    assert [f.value("messages_in", "") for f in found] == [(1, 0.0, 0.0)] * 4
