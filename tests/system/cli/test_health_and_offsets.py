"""`kbroker health`, `kbroker offsets` and `kbroker logdirs` against a running broker."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from kbroker.cli.main import main
from kbroker.testing import Broker
from lab.ports import free_port
from tests.system.cli.conftest import Document, MakeTopic, Run

WAIT_S = 60


def test_a_broker_that_is_well(run: Run, make_topic: MakeTopic) -> None:
    make_topic(3)
    status, out, err = run("health", "-o", "json")
    document = json.loads(out)
    assert {check["name"] for check in document["checks"]} == {
        "brokers",
        "controller",
        "partitions",
        "disk",
    }
    (controller,) = (check for check in document["checks"] if check["name"] == "controller")
    assert controller["seen"].startswith("unknown")
    # The disk is the machine's own, and may be fuller than it should be.
    others = [check["verdict"] for check in document["checks"] if check["name"] != "disk"]
    assert others == ["ok"] * 3
    assert err == "" and status == {"ok": 0, "warning": 1, "failing": 2}[document["status"]]
    assert run("health", "--wait")[0] == status


def test_no_server_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "-b", "127.0.0.1:1"]) == 2
    captured = capsys.readouterr()
    assert captured.out.startswith("failing  brokers  cannot connect to 127.0.0.1:1")
    assert (captured.out.count("\n"), captured.err) == (1, "")
    assert main(["health", "--wait", "--timeout", "0.3", "-b", "127.0.0.1:1"]) == 2
    assert main(["health", "-b", "nonsense:x"]) == 1
    assert "is no broker address" in capsys.readouterr().err


def test_wait_until_a_broker_has_started() -> None:
    """The command begins before the broker does."""
    with Broker(port=free_port()) as broker:
        bootstrap = broker.bootstrap
        broker.stop()
        words = ["health", "--wait", "--timeout", str(WAIT_S), "-b", bootstrap]
        waiting = subprocess.Popen(
            [sys.executable, "-m", "kbroker", *words], stdout=subprocess.PIPE, text=True
        )
        broker.start()
        out, _ = waiting.communicate(timeout=WAIT_S)
        assert waiting.returncode in (0, 1), out
        assert out.splitlines()[0].split()[:2] == ["ok", "brokers"]


def test_offsets(run: Run, document: Document, make_topic: MakeTopic) -> None:
    topic = make_topic(2, records=10)
    assert run("topic", "trim-prefix", topic, "-p", "1", "--before", "4")[0] == 0
    assert document("offsets", topic) == [
        {"topic": topic, "partition": 0, "start": 0, "end": 10, "records_max": 10},
        {"topic": topic, "partition": 1, "start": 4, "end": 10, "records_max": 6},
    ]
    assert [row["at"] for row in document("offsets", topic, "--at", "1006")] == [6, 6]
    assert [row["at"] for row in document("offsets", topic, "--at", "newest")] == [9, 9]
    assert [row["at"] for row in document("offsets", topic, "--at", "2030-01-01")] == [None] * 2
    lines = run("offsets", f"{topic}:1", "--at", "2030-01-01")[1].splitlines()
    assert lines[0].split() == ["TOPIC", "PARTITION", "START", "END", "RECORDS", "AT"]
    assert [line.split() for line in lines[1:]] == [[topic, "1", "4", "10", "6", "-"]]
    assert topic in {row["topic"] for row in document("offsets")}


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        (["no-such-topic"], 1, "UNKNOWN_TOPIC_OR_PARTITION (3)"),
        ([":1"], 2, "names no partitions"),
        (["--at", "soon"], 2, "is no moment"),
    ],
)
def test_offsets_of_nothing(run: Run, words: list[str], status: int, line: str) -> None:
    got, out, err = run("offsets", *words)
    assert (got, out, err.count("\n")) == (status, "", 1)
    assert line in err


def test_logdirs(document: Document, make_topic: MakeTopic) -> None:
    topic = make_topic(2, records=10)
    (directory,) = document("logdirs", topic)
    assert [each["partition"] for each in directory["partitions"]] == [0, 1]
    assert all(each["size_bytes"] > 0 for each in directory["partitions"])
    assert directory["total_bytes"] > directory["usable_bytes"] > 0
