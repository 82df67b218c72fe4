"""What brokers say of themselves, read and put beside what their producer saw."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from lab.jars import Jars
from perf.brokers import own_figures
from perf.brokers.base import BrokerError
from perf.brokers.own_figures import OwnFigures
from perf.cells import CellError
from perf.pipelining import diagnosis
from perf.pipelining.conclusions import conclusions, records
from perf.pipelining.plan import (
    ALL,
    KAFKA,
    LEADER,
    MIDDLE_US,
    PIPELINED,
    STOCK,
    Condition,
    Plan,
)
from perf.pipelining.tables import tables
from perf.results_table import columns
from tests.unit.perf.pipelining.fake import block, outcome

PLAN = Plan(sections=("diagnosis",))
METRICS = """# TYPE kafka_network_requestmetrics_totaltimems summary
kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.5"} 0.75
kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"} 1.5
kafka_network_requestmetrics_totaltimems{request="Fetch",quantile="0.99"} 500
kafka_network_requestmetrics_requestqueuetimems{request="Produce",quantile="0.5"} 0.0625
kafka_network_requestmetrics_remotetimems{request="Produce",quantile="0.5"} 0.5
kafka_network_requestmetrics_remotetimems{request="Produce",quantile="0.99"} 8
kafka_network_requestmetrics_totaltimems_count{request="Produce"} 1000
kafka_network_requestmetrics_totaltimems_count{request="FetchFollower"} 250
kafka_server_brokertopicmetrics_bytesin_total 10240000
kafka_server_brokertopicmetrics_bytesin_total{topic="t"} 7
kafka_server_brokertopicmetrics_replicationbytesout_total 1.024e+07
kbroker_channel_state_seconds_total{request="Produce",state="MUTED"} 0.5
kbroker_channel_state_seconds_total{request="Fetch",state="MUTED"} 9
"""
LEGS = {"queue": 62.5, "local": 0.0, "remote": 500.0, "answer queue": 0.0, "send": 0.0}
TIMES = {"p50": 750.0, "p99": 1500.0, "p99.9": 0.0}
SAID = OwnFigures(TIMES, LEGS, 1000, 10240000, 250, 10240000, {})


@pytest.fixture
def address() -> Iterator[str]:
    """Where METRICS are served."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(METRICS.encode())

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


# -- read


def test_a_kbroker_says_it_over_http(address: str) -> None:
    assert own_figures.of_kbroker(address) == SAID._replace(state_s={"MUTED": 0.5})


def test_one_that_says_nothing_is_one_line(address: str) -> None:
    with pytest.raises(BrokerError, match=r"127\.0\.0\.1:1 says no metrics: "):
        own_figures.of_kbroker("127.0.0.1:1")


def test_apache_kafka_says_it_over_jmx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = "kafka.network:type=RequestMetrics,name="
    bean = f"{requests}TotalTimeMs,request="
    topics = "kafka.server:type=BrokerTopicMetrics,name="
    lines = [
        f"{bean}Produce:50thPercentile=0.75",
        f"{bean}Produce:99thPercentile=1.5",
        f"{bean}Produce:Count=1000",
        f"{requests}RequestQueueTimeMs,request=Produce:50thPercentile=0.0625",
        f"{requests}RemoteTimeMs,request=Produce:50thPercentile=0.5",
        f"{bean}FetchFollower:Count=250",
        f"{topics}BytesInPerSec:Count=10240000",
        f"{topics}BytesInPerSec:EventType=bytes",
        f"{topics}ReplicationBytesOutPerSec:Count=10240000",
    ]
    _java(tmp_path, monkeypatch, "\n".join(["cat <<'END'", *lines, "END"]))
    assert own_figures.of_kafka("127.0.0.1:9") == SAID
    _java(tmp_path, monkeypatch, "echo no server is there; exit 1")
    with pytest.raises(BrokerError, match=r"127\.0\.0\.1:9 over JMX: no server is there"):
        own_figures.of_kafka("127.0.0.1:9")


def _java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str) -> None:
    fake = tmp_path / "java"
    fake.write_text(f"#!/bin/sh\n{does}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(own_figures, "KAFKA", Jars("none", ()))


# -- between two looks


def test_earlier_counts_are_not_of_the_load() -> None:
    before = OwnFigures({}, {"remote": 9.0}, 100, 1e6, 50, 1e6, {"MUTED": 1.0})
    times, states = {"p50": 700.0, "p99": 900.0}, {"MUTED": 2.0, "NOT_MUTED": 3.0}
    after = OwnFigures(times, {"remote": 600.0}, 300, 3e6, 100, 3e6, states)
    found = diagnosis.figures_between(before, after, block())  # of 1,000 requests a second
    assert found == {
        "broker_p50_us": 700.0, "broker_p99_us": 900.0, "leg_remote_us": 600.0,
        "fetches_per_s": 250.0, "fetch_bytes": 40_000.0, "fetched_mb_per_s": 10.0,
        "state_MUTED": 0.25, "state_NOT_MUTED": 0.75,
    }  # fmt: skip


def test_a_follower_that_lagged_has_fetched_for_longer() -> None:
    before = OwnFigures({}, {}, 0, 0, 0, 0, {})
    after = OwnFigures({}, {}, 100, 1e6, 50, 1e6, {})
    slow = block(behind_s=3.0)  # it lags a second
    assert slow.wall_s == 1.0
    found = diagnosis.figures_between(before, after, slow)
    alike = diagnosis.figures_between(before, after, block(behind_s=0.0))
    assert found["fetched_mb_per_s"] == pytest.approx(alike["fetched_mb_per_s"] / 4)


def test_a_leader_that_counted_nothing_makes_the_block_void() -> None:
    with pytest.raises(CellError, match="no client produced"):
        diagnosis.figures_between(SAID, SAID, block())


# -- what is reported

FIGURES = {
    "broker_p50_us": 50.0, "broker_p99_us": 90.0, "broker_p99.9_us": 95.0, "in_flight": 199.5,
    "leg_queue_us": 6.0, "leg_remote_us": 40.0, "zero_windows": 12.0, "fetches_per_s": 40.0,
    "fetch_bytes": 250_000.0, "fetched_mb_per_s": 10.0,
}  # fmt: skip


def diagnosed(system: str, mode: str, in_flight: int) -> Condition:
    return Condition("diagnosis", system, MIDDLE_US, mode, in_flight)


def test_both_clocks_stand_beside_each_other() -> None:
    cells = {
        diagnosed(KAFKA, ALL, 200): block(us=1000, timed=40_000, **FIGURES),
        diagnosed(PIPELINED, ALL, 200): block(
            us=100, timed=40_000, **FIGURES, state_MUTED=0.25, state_NOT_MUTED=0.75
        ),
        diagnosed(STOCK, LEADER, 200): block(rate=10.0, **FIGURES),
    }
    found = outcome(PLAN, cells, rounds=1)
    clocks, legs, follower, states = tables(found, PLAN)
    rows = {tuple(row[:3]): list(row[3:]) for row in clocks[2]}
    kafka = rows["Apache Kafka", "acks=-1", "200"]
    assert kafka[0].startswith("50 / ") and kafka[3:] == ["199.5", "12"]
    assert rows["Apache Kafka", "acks=-1", "5"][0] == "- / -"  # not measured
    by_leg = {tuple(row[:3]): list(row[3:]) for row in legs[2]}
    before, *inside = by_leg["Apache Kafka", "acks=-1", "200"]
    assert float(before.replace(",", "")) == pytest.approx(950, rel=0.05)
    assert inside == ["6", "-", "40", "-", "-"]
    assert set(by_leg["Apache Kafka", "acks=-1", "5"]) == {"-"}  # not measured
    beside = {tuple(row[:3]): list(row[3:]) for row in follower[2]}
    assert beside["kbroker, stock", "acks=1", "200"][-2:] == ["40", "250"]
    assert [row[-1] for row in states[2]] == ["NOT_MUTED 75.0%; MUTED 25.0%"]


def test_waits_are_described_where_they_were_measured() -> None:
    cells = {
        diagnosed(KAFKA, ALL, 200): block(us=1000, **FIGURES),
        diagnosed(STOCK, LEADER, 200): block(rate=10.0, **FIGURES),
        diagnosed(PIPELINED, LEADER, 200): block(rate=20.0, **FIGURES),
        diagnosed(PIPELINED, ALL, 5): block(),  # of a broker that said nothing
    }
    said = conclusions(outcome(PLAN, cells, rounds=1), PLAN)
    assert ["5% of it in the broker" in said[0].answer, len(said)] == [True, 3]
    assert [one.answer.partition(":")[0] for one in said[1:]] == ["yes", "no"]
    json.dumps([one.evidence for one in said], allow_nan=False)


def test_the_figures_are_records_of_the_results() -> None:
    cells = {diagnosed(KAFKA, ALL, 200): block(**FIGURES, written=3.0)}
    rows = list(records(outcome(PLAN, cells, rounds=1)))
    assert {row.name: row.unit for row in rows}["produce p99 by the broker's clock"] == "us"
    assert len(rows) == len(FIGURES)
    assert all(set(row.dims) <= columns().keys() for row in rows)
