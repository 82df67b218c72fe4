"""The command line and the ready file of the Broker under test."""

from __future__ import annotations

import json
import sys

import pytest

from kbroker.testing.plain import PlainBroker as Broker


def test_the_command() -> None:
    broker = Broker({"auto.create.topics.enable": False}, data_dir="/d", port=5)
    assert broker.command() == [
        sys.executable, "-m", "kbroker", "start", "--data-dir", "/d",
        "--ready-file", str(broker.ready_path), "--port", "5",
        "--override", "admin.listeners=http://127.0.0.1:0",
        "--override", "auto.create.topics.enable=false",
    ]  # fmt: skip
    broker.close()
    with_listeners = Broker({"listeners": "A://:1,B://:2"}, port=5)
    assert "--port" not in with_listeners.command()
    with_listeners.close()


def test_it_is_ready_when_the_ready_file_is_there() -> None:
    broker = Broker()
    assert broker.poll_ready() is None
    ready = {"pid": 1, "node_id": 0, "bootstrap": "127.0.0.1:1234", "admin": ""}
    broker.ready_path.write_text(json.dumps(ready))
    assert broker.poll_ready() == "127.0.0.1:1234"
    assert (broker.node_id, broker.ready) == (0, ready)
    broker.prepare()  # a start must not see an earlier one's file
    assert broker.poll_ready() is None
    broker.close()


def test_another_interpreter_gets_no_path_to_these_sources(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    ours, other = Broker(), Broker(python="/other/bin/python")
    assert "PYTHONPATH" in ours.environment()
    assert other.environment().get("PYTHONPATH") is None
    assert other.command()[0] == "/other/bin/python"
    ours.close()
    other.close()
