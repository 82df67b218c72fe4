from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.metadata.controller import controller
from kbroker.metadata.store import watches
from tests.unit.metadata.controller.brokers import Cluster, Wire, follow
from tests.unit.metadata.controller.harness import OneBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    """A running controller; stopped afterwards, which must leave no thread."""
    made = OneBroker(tmp_path / "metadata")
    made.start()
    yield made
    made.stop()
    names = {thread.name for thread in threading.enumerate()}
    assert not names & {controller.THREAD_NAME, watches.THREAD_NAME}
    assert made.replicas.seen_early == []


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def cluster(tmp_path: Path, wire: Wire) -> Iterator[Cluster]:
    made = Cluster(tmp_path, wire)
    follow(made)
    yield made
    for node_id in sorted(made.brokers, reverse=True):
        made.brokers[node_id].stop()
