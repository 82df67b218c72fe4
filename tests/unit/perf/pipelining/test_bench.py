"""One block: its load, the causes that make it void, and its remains."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perf._load import LoadError
from perf.cells import CellError
from perf.pipelining import bench, java_producer, replicas
from perf.pipelining.bench import Bench, body_of
from perf.pipelining.java_producer import JavaRun
from perf.pipelining.plan import (
    ALL,
    KAFKA,
    PACED_S_MAX,
    PIPELINED,
    STOCK,
    Condition,
    paced_s,
)
from perf.process import Guard
from perf.requests import Topic
from perf.studies.measured import REQUEST, Measured
from perf.wire import WireError
from tests.unit.perf.pipelining.fake import FakeClient, counters

MATRIX = Condition("matrix", STOCK, 5000, ALL, 200)
TOPIC = Topic("t", bytes(16), 1)


class FakeCosts:
    guard = Guard(0.0, 0.0)

    def __init__(self, *_: object) -> None:
        pass

    def taken(self, answered: int, client_cpu_s: float = 0.0) -> dict[str, float]:
        return {"brokers_cpu_us": 1.0}


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


@pytest.fixture
def running(client: FakeClient, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench on a cluster that is not there; its loads answer ten requests."""
    monkeypatch.setattr(bench, "_Costs", FakeCosts)
    monkeypatch.setattr(bench, "DELETED_S", 0.0)
    for name in ("write_one_each", "touch_pages"):
        monkeypatch.setattr(bench, name, lambda *_, **__: None)
    monkeypatch.setattr(bench, "run_load", lambda spec: counters())
    monkeypatch.setattr(replicas, "check", lambda *_: None)
    node = SimpleNamespace(host="127.0.0.1", port=9, address="127.0.0.1:9", directory=Path("/none"))
    cluster: Any = SimpleNamespace(
        name="fake",
        directory=Path("/none"),
        nodes={1: node, 2: node},
        client=lambda number: client,
        in_sync=lambda *_: True,
    )
    networks: Any = SimpleNamespace(set_round_trip=lambda seconds: None)
    return Bench(cluster, networks, 0.5)


# -- the load


def test_a_closed_loop_is_warm_after_its_first_turn_and_has_time_to_drain(running: Bench) -> None:
    one = running.spec(MATRIX, TOPIC, 0.0, 1.0)
    assert one.warm_requests == 200
    # A drain of as many, one by one: never less than a stock channel needs for it.
    assert one.stall_s >= 30 + 200 * 0.005
    several = running.spec(Condition("producers", KAFKA, 500, ALL, 5, producers=16), TOPIC, 0.0, 1)
    assert several.warm_requests == 80
    slow = running.spec(Condition("matrix", KAFKA, 1_000_000, ALL, 2000), TOPIC, 0.0, 1.0)
    assert slow.stall_s > 2000
    small, large = (
        running.spec(Condition("batches", KAFKA, 500, ALL, 5, records=number), TOPIC, 0.0, 1.0)
        for number in (1, 100)
    )
    assert large.stall_s > small.stall_s


def test_a_paced_load_has_no_turn(running: Bench) -> None:
    spec = running.spec(Condition("paced", KAFKA, 500, ALL, 2000), TOPIC, 300.0, 7.0)
    assert (spec.warm_requests, spec.window_s, spec.streams[0].rate) == (0, 7.0, 300.0)


def test_a_paced_block_is_as_long_as_its_p99_needs() -> None:
    assert paced_s(329.0, 0.5) * 329 >= 2000  # of which 20 lie above
    assert paced_s(1e6, 0.5) == 0.5  # never shorter than asked for
    assert paced_s(1.0, 0.5) == PACED_S_MAX and paced_s(1.0, 90.0) == 90.0


def test_each_producer_s_records_are_distinguished_from_another_s(running: Bench) -> None:
    condition = Condition("producers", PIPELINED, 500, ALL, producers=16)
    bodies = [body_of(condition, number) for number in range(condition.producers)]
    (stamp_at,) = {one.stamp_at for one in bodies}
    assert stamp_at >= 0 and len({len(one.data) for one in bodies}) == 1
    assert len({one.data[stamp_at + 8 : stamp_at + 16] for one in bodies}) == len(bodies)
    connections = running.spec(condition, TOPIC, 0.0, 1.0).streams[0].connections
    assert len({one.frame for one in connections}) == len(connections) == 16
    assert all(one.batches[0].stamp_at == stamp_at for one in connections)


# -- void blocks


def test_a_valid_block_has_its_answers(running: Bench, client: FakeClient) -> None:
    found = running.run(MATRIX)
    assert found.requests == 10 and found.figures["rate"] == 0.0 and not client.topics


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_paced_block_is_no_closed_loop(running: Bench, rate: float) -> None:
    with pytest.raises(CellError, match="no pace"):
        running.run(Condition("paced", KAFKA, 500, ALL, 2000), rate=rate)


@pytest.mark.parametrize(
    "found",
    [counters(requests=0), counters(latencies=()), counters(requests=0, latencies=())],
)
def test_a_block_in_which_nothing_was_answered_is_void(
    running: Bench, found: dict[str, Any], monkeypatch: pytest.MonkeyPatch, client: FakeClient
) -> None:
    """Its latency would be no number, which no journal takes."""
    client.offsets_are = lambda: found["streams"][0]["records_all"] + 1
    monkeypatch.setattr(bench, "run_load", lambda spec: found)
    with pytest.raises(CellError, match="nothing was answered"):
        running.run(MATRIX)


@pytest.mark.parametrize(
    "error", [WireError("cut"), OSError(104, "reset"), LoadError("stalled"), TimeoutError()]
)
def test_whatever_breaks_makes_one_block_void_and_takes_its_topic_with_it(
    running: Bench, error: Exception, client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(spec: object) -> None:
        assert client.topics
        raise error

    monkeypatch.setattr(bench, "run_load", fail)
    with pytest.raises(CellError, match=f"^{MATRIX.key}: .+") as raised:
        running.run(MATRIX)
    assert raised.value.__cause__ is error and not client.topics


def test_a_broker_that_does_not_delete_hides_no_error(
    running: Bench, client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        client.broken = True
        raise CellError("3 records, not 4")

    monkeypatch.setattr(replicas, "check", fail)
    with pytest.raises(CellError, match="3 records, not 4"):
        running.run(MATRIX)


# -- the Java producer


def test_a_block_of_the_java_producer_is_one_that_is_published(
    running: Bench, client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has no histogram at all is not; of an empty one the counts are."""
    monkeypatch.setattr(java_producer, "run", lambda *_: JavaRun(10, 5.0, 19.0, 0.1))
    found = running.run(Condition("java", KAFKA, 500, ALL))
    assert found.histograms[REQUEST].total == 0 and found.figures["p99_us"] == 19_000
    assert Measured.from_json(found.to_json()).to_json() == found.to_json()
