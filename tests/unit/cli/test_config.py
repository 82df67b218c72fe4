"""`kbroker config explain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kbroker.cli.main import main


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("KAFKA_NUM_IO_THREADS", "KBROKER_NUM_IO_THREADS"):
        monkeypatch.delenv(variable, raising=False)


def _explain(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["config", "explain", *words, "-o", "json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_a_broker_key(capsys: pytest.CaptureFixture[str]) -> None:
    document = _explain(capsys, "num.io.threads")
    assert document["value"] == document["default"] == "8"
    assert document["origin"] == "default"
    assert document["allowed"] == "an integer of at least 1"
    assert document["dynamic"] == "cluster-wide"
    assert document["in_effect"] is True
    assert document["synonyms"] == [
        {"name": "num.io.threads", "value": "8", "source": "DEFAULT_CONFIG"}
    ]


def test_where_a_value_comes_from(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.io.threads=2\n")
    document = _explain(capsys, "num.io.threads", "--config", str(file))
    assert (document["value"], document["origin"]) == ("2", str(file))
    monkeypatch.setenv("KAFKA_NUM_IO_THREADS", "3")
    document = _explain(capsys, "num.io.threads", "--config", str(file))
    assert (document["value"], document["origin"]) == ("3", "environment, KAFKA_NUM_IO_THREADS")
    document = _explain(capsys, "num.io.threads", "--override", "num.io.threads=4")
    assert (document["value"], document["origin"]) == ("4", "--override")


def test_a_topic_key_and_its_synonyms(capsys: pytest.CaptureFixture[str]) -> None:
    document = _explain(capsys, "retention.ms", "--override", "log.retention.minutes=1")
    assert document["kind"] == "topic"
    assert document["value"] == "60000"
    assert document["origin"] == "log.retention.minutes (--override)"


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "explain", "group.initial.rebalance.delay.ms"]) == 0
    out = capsys.readouterr().out
    assert "0 (Apache Kafka: 3000)" in out
    assert main(["config", "explain", "segment.ms"]) == 0
    assert "log.roll.hours" in capsys.readouterr().out
    assert main(["config", "explain", "broker.rack"]) == 0
    assert "unset, from: default" in capsys.readouterr().out


def test_secrets_stay_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["ssl.keystore.password", "--override", "ssl.keystore.password=hunter2"]
    assert main(["config", "explain", *words]) == 0
    assert main(["config", "explain", *words, "-o", "json"]) == 0
    out = capsys.readouterr().out
    assert "hunter2" not in out
    assert "(hidden)" in out


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("num.io.thread", ["there is no key num.io.thread", "did you mean num.io.threads?"]),
        ("retention.msx", ["did you mean retention.ms?"]),
        ("qqq", ["there is no key qqq"]),
        ("port", ["older releases", "use listeners"]),
    ],
)
def test_unknown_key(name: str, parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "explain", name]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    for part in parts:
        assert part in err


def test_a_key_of_one_listener(capsys: pytest.CaptureFixture[str]) -> None:
    name = "listener.name.internal.num.network.threads"
    document = _explain(capsys, name, "--override", f"{name}=2")
    assert (document["key"], document["value"], document["origin"]) == (name, "2", "--override")
    assert _explain(capsys, name)["value"] is None
