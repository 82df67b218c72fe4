"""What is looked at before the first process, and what one broken block does to the rest."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perf.brokers.base import HERE, BrokerError
from perf.cells import CellError
from perf.pipelining import experiment, placement
from perf.pipelining.experiment import Experiment, prepare
from perf.pipelining.plan import KAFKA, PIPELINED, STOCK, Plan, points
from perf.studies.study import StudyError
from perf.wire import WireError

ALONE = Plan(sections=("matrix",), systems=(STOCK,))


# -- before


def test_the_java_section_names_its_needs_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whether Apache Kafka is measured or not: the producer is of its jars."""

    monkeypatch.setenv("KBROKER_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(experiment, "TwoNetworks", lambda: pytest.fail("it went on"))
    plan = Plan(sections=("java",), systems=(STOCK, PIPELINED))
    with pytest.raises(StudyError, match=r"section java needs .* jars: .*no mvn on this machine"):
        experiment.run(plan, print, Path("/none"))
    prepare(ALONE, print)  # which needs none


def test_a_pace_that_is_not_kafka_s_is_said_beforehand() -> None:
    said: list[str] = []
    prepare(Plan(sections=("paced",), systems=(STOCK, PIPELINED)), said.append)
    assert said == [
        "paced: Apache Kafka is not in this study; the pace is half of the rate of kbroker, stock"
    ]
    said.clear()
    prepare(Plan(sections=("paced",), systems=(STOCK, KAFKA)), said.append)
    assert not said


# -- broken blocks


class _Turns:
    """No broker answers when it is its turn."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    @contextmanager
    def alone(self, kind: str) -> Iterator[Any]:
        raise self._error
        yield


@pytest.mark.parametrize("error", [WireError("cut"), OSError(104, "reset"), BrokerError("gone")])
def test_a_system_that_does_not_answer_makes_its_blocks_void(
    error: Exception, tmp_path: Path
) -> None:
    """Warming says so and goes on: the other systems are measured."""
    networks: Any = SimpleNamespace(near=HERE, far=HERE)
    turns: Any = _Turns(error)
    running = Experiment(ALONE, turns, networks, tmp_path)
    with pytest.raises(CellError, match=r"matrix: stock, acks=-1, .*: "):
        running.measure(points(ALONE)[0])
    said: list[str] = []
    running.warm((STOCK,), said.append)
    assert said[0].startswith("VOID while warming: ") and said[-1] == "stock warm after 0 requests"


# -- ports


class _Place:
    host = "127.0.0.1"

    def __init__(self) -> None:
        self.entries = 0

    @contextmanager
    def entered(self) -> Iterator[None]:
        self.entries += 1
        yield


def _cluster(*addresses: tuple[_Place, int]) -> Any:
    running = [
        SimpleNamespace(place=place, host=place.host, port=port, address=f"{place.host}:{port}")
        for place, port in addresses
    ]
    return SimpleNamespace(running=running)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_port_that_is_taken_where_the_broker_listens_is_not_given(tmp_path: Path) -> None:
    near, far = _Place(), _Place()
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        ports = iter([taken.getsockname()[1], _free_port()])
        offered: list[Any] = []

        def make(directory: Path, brokers: int, **how: Any) -> Any:
            assert (how["near"], how["far"], how["settings"]) == (near, far, {})
            offered.append(_cluster((far, next(ports))))
            return offered[-1]

        found = placement.placed(make, near, far, tmp_path, 2, settings={})
    assert found is offered[1] and far.entries == 2 and near.entries == 0


def test_two_brokers_of_one_network_have_two_ports(tmp_path: Path) -> None:
    far, port = _Place(), _free_port()

    def make(*_: object, **__: object) -> Any:
        return _cluster((far, port), (far, port))

    with pytest.raises(BrokerError, match="no free ports in 20 tries"):
        placement.placed(make, far, far, tmp_path, 2)
