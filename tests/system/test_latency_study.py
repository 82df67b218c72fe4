"""The latency study against a real broker: its blocks, a block that is void, a run that is cut."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perf.brokers import KbrokerBroker
from perf.cells import CellError
from perf.results_table import TOPIC
from perf.studies import latency
from perf.studies.answers import ACKNOWLEDGED, FROM_DUE
from perf.studies.conditions import RATE, Condition, Plan
from perf.studies.latency import LatencyBench
from perf.studies.measured import END_TO_END
from perf.studies.stamped import value
from tests.support import zookeeper

pytest.importorskip("confluent_kafka")

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 0.4


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KbrokerBroker]:
    with KbrokerBroker(tmp_path_factory.mktemp("latency") / "kbroker") as running:
        assert isinstance(running, KbrokerBroker)
        yield running


@pytest.fixture
def bench(broker: KbrokerBroker) -> Iterator[LatencyBench]:
    made = LatencyBench({"kbroker": broker}, Plan(brokers=("kbroker",), seconds=SECONDS))
    yield made
    made.close()


@pytest.mark.parametrize(
    "condition",
    [
        Condition("paced", 0, "async"),
        Condition("paced", 1, "sync"),
        Condition("paced", -1, "async", 1 << 10, 5),
        Condition("flat-out", 1, "async"),
        Condition("flat-out", 0, "sync"),
    ],
    ids=lambda condition: condition.cell,
)
def test_a_block(bench: LatencyBench, broker: KbrokerBroker, condition: Condition) -> None:
    found = bench.block(broker, condition)
    sent = found.histograms[END_TO_END]
    assert sent.total > 0 and sent.min > 0
    if condition.load == "paced":
        assert set(found.histograms) == {END_TO_END, FROM_DUE}
        due = found.histograms[FROM_DUE]
        assert due.total == sent.total and due.sum >= sent.sum  # none sends before it is due
    else:
        assert set(found.histograms) == {END_TO_END, ACKNOWLEDGED}
        assert found.broker_cpu_s > 0  # in ticks of 10 ms, of which a paced block may meet none
    assert found.wall_s >= SECONDS and found.own_cpu_s > 0
    if condition.load == "paced":
        # Late records are sent as soon as it goes, those of the warm-up too; never more than due.
        assert found.figures["sent"] <= RATE * (found.wall_s + latency.WARM_S) + 1


def test_sync_waits_for_the_whole_linger(bench: LatencyBench, broker: KbrokerBroker) -> None:
    found = bench.block(broker, Condition("paced", 1, "sync", linger_ms=50))
    assert found.histograms[END_TO_END].min >= 45_000_000
    assert found.figures["held"] < 0.1


def test_a_doubled_record_voids_its_block_alone(
    bench: LatencyBench, broker: KbrokerBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(latency, "value", lambda n, *rest: value(min(n, 7), *rest))
        with pytest.raises(CellError, match="record 7 came where 8 was due"):
            bench.block(broker, Condition("paced", 1, "async"))
    assert bench.block(broker, Condition("paced", 1, "async")).records > 0


def test_no_broker_keeps_a_deleted_topic(bench: LatencyBench, broker: KbrokerBroker) -> None:
    bench.block(broker, Condition("paced", 1, "async"))
    data = broker.directory / "data"
    assert not [one.name for one in data.glob("latency-*-0")]


@pytest.mark.java
def test_a_cluster_is_measured_as_one_broker_is(tmp_path: Path) -> None:
    """The topic on all of its brokers, and what all of them cost."""
    zookeeper.required()
    plan = Plan(brokers=("kbroker",), replicas=2, seconds=SECONDS)
    front = latency._made(plan, "kbroker", {}, tmp_path / "cluster")
    with front:
        bench = LatencyBench({"kbroker": front}, plan)
        try:
            found = bench.block(front, Condition("paced", -1, "async"))
        finally:
            bench.close()
        assert found.histograms[END_TO_END].total > 0 and found.broker_cpu_s > 0
        assert len(front.measured_pids) == 2
        front.hold()
        front.resume()
        front.check_alive()
    assert not (tmp_path / "cluster").exists()


def _verb(cache: Path, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "kbroker", "perf", "latency-study", "--brokers", "kbroker"),
        *("--quick", "--rounds", "1", "--seconds", "0.1", "--directory", str(cache)),
        *more,
    ]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_cut_study_goes_on_and_publishes(broker: KbrokerBroker, tmp_path: Path) -> None:
    environment = {**os.environ, "KBROKER_CACHE": str(tmp_path), "PYTHONPATH": str(ROOT)}
    first = subprocess.Popen(_verb(tmp_path), stderr=subprocess.PIPE, env=environment, text=True)
    assert first.stderr is not None
    said = ""
    for line in first.stderr:
        said += line
        if line.startswith("[20/"):
            first.send_signal(signal.SIGINT)
            break
    said += first.stderr.read()
    assert first.wait(60) == 130, said
    assert "the same command goes on from here" in said and "Traceback" not in said

    file = tmp_path / "study.json"
    second = subprocess.run(
        _verb(tmp_path, "--json", str(file), "--results-bootstrap", broker.address),
        capture_output=True,
        env=environment,
        text=True,
        timeout=200,
    )
    assert second.returncode == 0, second.stderr
    # Whole groups of four; it may be blocks ahead of the signal.
    going_on = re.search(r"going on with (\d+) of 30 blocks", second.stderr)
    assert going_on is not None
    resumed = int(going_on[1])
    assert 16 <= resumed <= len(re.findall(r"^\[", said, re.MULTILINE)) + 1
    assert "Is acks=0 slower end to end than acks=1?" in second.stdout
    data = json.loads(file.read_text())
    blocks = sum(map(len, data["blocks"].values()))
    # On a busy machine a block may be void, one of a null test too.
    assert data["resumed_blocks"] == resumed and blocks <= 24 <= blocks + len(data["faults"])
    assert not list((tmp_path / "studies").iterdir())  # the journal went with the end
    with broker.client() as client:
        records = sum(client.offsets(client.topic(TOPIC)))
    again = sum(map(len, data["null"].values()))  # second blocks of the null tests
    assert records == 2 * (blocks + again) + len(data["answers"])
