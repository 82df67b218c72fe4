"""`perf produce` and `perf consume`, and the line that other tools parse."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perf import cli, tool
from perf.brokers import LimitBroker
from perf.cells import CellError, Path_
from perf.histogram import Histogram
from perf.tool import Summary, read_values

# Consumers of the perf-test line look for this.
LINE = re.compile(
    r"^\d+ records sent, \d+\.\d records/sec \(\d+\.\d\d MB/sec\), \d+\.\d\d ms avg latency, "
    r"\d+\.\d\d ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\.$"
)


def test_the_line() -> None:
    histogram = Histogram.of([1_000_000] * 98 + [20_000_000, 30_000_000])
    summary = Summary("sent", 1000, 100_000, 0.5, histogram, 0.0, 0.01, 100)
    assert LINE.match(summary.line())
    assert summary.line() == (
        "1000 records sent, 2000.0 records/sec (0.19 MB/sec), 1.48 ms avg latency, "
        "30.00 ms max latency, 1 ms 50th, 1 ms 95th, 20 ms 99th, 30 ms 99.9th."
    )


@pytest.mark.parametrize("path", ["plain", "java"])
def test_produce_then_consume(tmp_path: Path, path: Path_, monkeypatch: pytest.MonkeyPatch) -> None:
    payload = tmp_path / "lines"
    payload.write_bytes(b"one\ntwo two\n\nthree\r\n")
    values = read_values(str(payload))
    assert values == (b"one", b"two two", b"three")
    with LimitBroker(tmp_path / "limit") as broker:
        # The limit server has no topics to ask for: the client says what a broker would.
        with broker.client() as client:
            topic = client.create_topic("tool", 1)
        monkeypatch.setattr(tool, "Client", lambda host, port: _limit_client(broker, topic))
        work = tool.Work(
            broker.host, broker.port, "tool", 5000, batch_bytes=300, path=path, values=values
        )
        sent = tool.produce(work)
        assert sent.records >= 5000
        assert sent.value_bytes >= 5000 * 4
        received = tool.consume(tool.Work(broker.host, broker.port, "tool", 0, path=path))
        assert received.records == sent.records


@pytest.mark.parametrize("acks", [1, 0])
def test_a_rate_ends_when_all_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    """Also when the last answer comes after the next request would have been due, or none comes."""
    with LimitBroker(tmp_path / "limit") as broker:
        with broker.client() as client:
            topic = client.create_topic("tool", 1)
        monkeypatch.setattr(tool, "Client", lambda host, port: _limit_client(broker, topic))
        work = tool.Work(broker.host, broker.port, "tool", 50, batch_bytes=1, rate=1e6, acks=acks)
        assert tool.produce(work).records == 50


def test_produce_waits_for_the_followers_of_acknowledged_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """acks=1: the high watermark, all that a client sees of the end, comes after the answer."""
    with LimitBroker(tmp_path / "limit") as broker:
        with broker.client() as client:
            topic = client.create_topic("tool", 1)
        ends = iter([0, 0, 20, 50])
        lagging = _limit_client(broker, topic)
        monkeypatch.setattr(lagging, "offsets", lambda topic: [next(ends)])
        monkeypatch.setattr(tool, "Client", lambda host, port: lagging)
        work = tool.Work(broker.host, broker.port, "tool", 50, batch_bytes=1)
        assert tool.produce(work).records == 50
        assert list(ends) == []


def test_followers_that_never_come_are_waited_for_no_longer_than_said() -> None:
    clock_s = 0.0

    def sleep(pause_s: float) -> None:
        nonlocal clock_s
        clock_s += pause_s

    with pytest.raises(CellError, match=r"^50 records acknowledged, 49 readable after 10 s: "):
        tool._check_grown(lambda: 49, 50, now_s=lambda: clock_s, sleep=sleep)
    assert tool.GROWN_WAIT_S <= clock_s < tool.GROWN_WAIT_S + 2 * tool.GROWN_PAUSE_S


def _limit_client(broker: LimitBroker, topic: object) -> object:
    client = broker.client()
    monkeypatched: Any = client
    monkeypatched.topic = lambda name, wait_s=0: topic
    return client


def test_help_needs_neither_numpy_nor_the_generator() -> None:
    code = (
        "import sys; from perf import cli; status = cli.main(['--help']);"
        "print(status, 'numpy' in sys.modules, 'perf._load' in sys.modules)"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert printed.splitlines()[-1] == "0 False False"
    for verb in ("produce", "consume", "e2e", "idle", "start", "limit", "compare", "latency-study"):
        assert f"  {verb} " in printed


def test_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["produce", "--topic", "t"]) == 2
    assert cli.main(["compare", "--cells", "nonsense"]) == 2
    assert cli.main(["consume", "-b", "127.0.0.1:1", "--topic", "t"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: ")
