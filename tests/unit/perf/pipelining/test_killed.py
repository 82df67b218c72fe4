"""The producer that goes on through the loads around a killed follower."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perf.cells import CellError
from perf.pipelining import killed, replicas
from perf.pipelining.plan import ALL, PIPELINED, Condition
from perf.requests import Topic
from perf.spec import Run
from perf.studies.measured import REQUEST
from perf.wire import WireError
from tests.unit.perf.pipelining.fake import FakeClient, counters

TOPIC = Topic("killed", bytes(16), 1)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Every load that was begun; each has ten records acknowledged."""
    begun: list[Run] = []

    class FakeLoad:
        def __init__(self, spec: Run) -> None:
            begun.append(spec)

        def start(self) -> None: ...

        def stop(self) -> None: ...

        def join(self) -> dict[str, Any]:
            return counters()

    monkeypatch.setattr(killed, "LoadThread", FakeLoad)
    return begun


def _condition(in_flight: int) -> Condition:
    return Condition("killed", PIPELINED, 500, ALL, in_flight)


@pytest.mark.parametrize("in_flight", [5, 200])
def test_the_pipeline_is_full_when_the_follower_is_killed(
    in_flight: int, loads: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed loops before and after; a pace while it is away, which it can catch up with."""
    happened: list[str] = []
    client: Any = FakeClient()
    node = SimpleNamespace(
        directory=Path("/none"), kill=lambda: happened.append(f"killed in load {len(loads)}")
    )
    cluster: Any = SimpleNamespace(
        nodes={1: node, 2: node},
        in_sync=lambda *_: True,
        wait_in_sync=lambda *_: None,
        restart=lambda number: happened.append(f"back in load {len(loads)}"),
    )
    monkeypatch.setattr(killed, "write_one_each", lambda *_, **__: None)
    monkeypatch.setattr(killed, "until", lambda *_: None)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    checked: list[Any] = []
    monkeypatch.setattr(replicas, "check", lambda *given: checked.append(given))
    found = killed._run(_condition(in_flight), cluster, client)
    assert happened == ["killed in load 1", "back in load 2"]
    assert [one.streams[0].rate for one in loads] == [0.0, killed.AWAY_RATE, 0.0]
    assert {one.streams[0].in_flight for one in loads} == {in_flight}
    assert [given[2] for given in checked] == [31]  # and the record that was there before
    assert found.records == 30 and found.wall_s == 3.0 and found.histograms[REQUEST].total == 3


def test_one_load_goes_on_where_the_last_one_ended(loads: list[Run]) -> None:
    client: Any = FakeClient()
    producer = killed.Producer(_condition(5), client, TOPIC)
    for _ in range(3):
        with producer.load():
            pass
    begins = [one.streams[0].connections[0].partitions[0] for one in loads]
    assert [one.next_sequence for one in begins] == [0, 10, 20]
    assert [one.expected_offset for one in begins] == [1, 11, 21]
    assert all(one.streams[0].connections[0].idempotent for one in loads)


def test_a_run_in_which_nothing_was_answered_is_void(loads: list[Run]) -> None:
    client: Any = FakeClient()
    with pytest.raises(CellError, match="nothing was answered"):
        killed.Producer(_condition(200), client, TOPIC).measured({})


def test_a_cluster_that_breaks_makes_the_run_void(tmp_path: Path) -> None:
    def make(*_: object, **__: object) -> Any:
        raise WireError("cut")

    networks: Any = SimpleNamespace(set_round_trip=lambda seconds: None)
    with pytest.raises(CellError, match=r"killed: pipelined, .*: cut"):
        killed.measure(_condition(5), make, networks, tmp_path)
