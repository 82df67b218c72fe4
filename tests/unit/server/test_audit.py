"""The audit log that settings ask for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbroker.clock import ManualClock
from kbroker.config import BrokerConfig
from kbroker.errors import ConfigError
from kbroker.security.audit import Kind
from kbroker.server.audit import FILE, audit_of


def config(*overrides: str) -> BrokerConfig:
    return BrokerConfig.load(None, {}, [*overrides])


def test_there_is_none_unless_a_file_is_named() -> None:
    assert audit_of(config(), ManualClock()) is None


def test_its_settings(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    overrides = (f"{FILE}={path}", "node.id=5", "kbroker.audit.max.lines.per.second=1")
    audit = audit_of(config(*overrides), ManualClock())
    assert audit is not None
    assert [audit.note(Kind.CHANGE, lambda: {"event": "Test"}) for _ in range(2)] == [True, False]
    audit.stop()
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted(each["event"] for each in records) == ["LeftOut", "Test"]
    assert {each["node_id"] for each in records} == {5}


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    for path in (tmp_path / "none" / "audit.log", tmp_path):
        with pytest.raises(ConfigError, match=r"kbroker\.audit\.file=.* cannot be written"):
            audit_of(config(f"{FILE}={path}"), ManualClock())
