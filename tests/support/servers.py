"""The broker under test: kbroker, or Apache Kafka where KBROKER_TEST_REFERENCE=kafka is set."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kbroker.testing.plain import KEEPS_WHAT_IS_OLD
from kbroker.testing.plain import PlainBroker as Broker
from kbroker.testing.process import ServerProcess, log_tail
from lab.ports import free_port
from tests.support.kafka import KafkaBroker


def reference() -> bool:
    """Whether the tests run against Apache Kafka, to check the tests."""
    return os.environ.get("KBROKER_TEST_REFERENCE") == "kafka"


def make(
    overrides: Mapping[str, object] | None = None, data_dir: Path | None = None
) -> ServerProcess:
    """Its port is its own while it is down, too."""
    settings = {**KEEPS_WHAT_IS_OLD, **(overrides or {})}
    return (KafkaBroker if reference() else Broker)(settings, data_dir, free_port())


def assert_nothing_unexpected(server: ServerProcess) -> None:
    """No test provokes a traceback, so each one in the log is a bug that its client did not see."""
    if isinstance(server, Broker):
        assert "Traceback" not in server.log_text(), log_tail(server.log_text())
