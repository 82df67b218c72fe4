"""The broker under test: kbroker, or Apache Kafka where KBROKER_TEST_REFERENCE=kafka is set."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kbroker.testing import Broker
from kbroker.testing.process import ServerProcess
from tests.support.kafka import KafkaBroker


def reference() -> bool:
    """Whether the tests run against Apache Kafka, to check the tests."""
    return os.environ.get("KBROKER_TEST_REFERENCE") == "kafka"


def make(
    overrides: Mapping[str, object] | None = None, data_dir: Path | None = None
) -> ServerProcess:
    return (KafkaBroker if reference() else Broker)(overrides, data_dir)
