"""A data directory of before the tree had Apache Kafka's names is taken over whole, or not at all.

The vector is what that code wrote: two topics, three partitions each, in their second leader epoch;
a deletion whose logs could not be removed; blocks of producer ids, settings, data directories.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from kbroker.errors import DataDirectoryError
from kbroker.metadata.controller import records
from kbroker.metadata.controller.directory_nodes import load_used_directories
from kbroker.metadata.controller.old_tree import OldNode, moved
from kbroker.metadata.image import ConfigKind, ConfigResource
from kbroker.metadata.store.embedded import DATABASE_FILE, EmbeddedStore
from tests.unit.metadata.controller.harness import OneBroker

ROOT = Path(__file__).parents[4]
VECTOR = ROOT / "tests" / "vectors" / "metadata_store_schema_1.sql"
ORDERS, GONE = UUID(int=0x1000), UUID(int=0x1001)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    connection = sqlite3.connect(tmp_path / DATABASE_FILE)
    connection.executescript(VECTOR.read_text(encoding="utf-8"))
    connection.close()
    return tmp_path


def contents(directory: Path) -> tuple[int, list[object]]:
    connection = sqlite3.connect(directory / DATABASE_FILE)
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    rows = connection.execute("SELECT * FROM node ORDER BY parent, name").fetchall()
    connection.close()
    return version, rows


def test_a_controller_finds_everything_where_it_was(directory: Path) -> None:
    broker = OneBroker(directory, node_id=3)
    broker.start(cluster_id="td1oS7a7TU-n3josdqba8w")
    try:
        image = broker.image
        assert set(image.topics) == {"orders", "plain"}
        orders = image.topics["orders"]
        assert (orders.topic_id, dict(orders.configs)) == (ORDERS, {"retention.ms": "1000"})
        assert [(each.leader, each.leader_epoch, each.isr) for each in orders.partitions] == [
            (3, 1, (3,))
        ] * 3
        assert {each.partition_epoch for each in orders.partitions} == {1}
        assert broker.controller.statistics().controller_epoch == 3
        assert broker.replicas.calls[0].deleted[0].topic_id == GONE
        assert broker.take_ids(10).first == 1500
        assert image.configs[ConfigResource(ConfigKind.BROKER, "")] == {"num.io.threads": "9"}
        assert ConfigResource(ConfigKind.GROUP, "a/b") in image.configs
        assert load_used_directories(broker.embedded, 3) == {"JwQ3": "/data/a"}
        assert broker.embedded.children("/") == [
            "admin", "brokers", "cluster", "config", "controller", "controller_epoch",
            "delegation_token",
            "kafka-acl", "kafka-acl-changes", "kafka-acl-extended", "kafka-acl-extended-changes",
            "latest_producer_id_block", "log_dir_event_notification",
        ]  # fmt: skip
    finally:
        broker.stop()


def test_it_is_taken_over_once(directory: Path) -> None:
    EmbeddedStore.open(directory).close()
    first = contents(directory)
    EmbeddedStore.open(directory).close()
    assert contents(directory) == first


KILLED_HALF_WAY = """
import os, signal, sys
from kbroker.metadata.controller import old_tree
from kbroker.metadata.store.embedded import EmbeddedStore

class DiesHalfWay(dict):
    def items(self):
        for number, item in enumerate(super().items()):
            if number == len(self) // 2:
                os.kill(os.getpid(), signal.SIGKILL)
            yield item

whole = old_tree.moved
old_tree.moved = lambda old: DiesHalfWay(whole(old))
EmbeddedStore.open(sys.argv[1])
"""


def test_a_kill_half_way_leaves_the_old_tree(directory: Path) -> None:
    before = contents(directory)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_HALF_WAY, str(directory)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert killed.returncode == -signal.SIGKILL
    assert contents(directory) == before
    store = EmbeddedStore.open(directory)  # and it goes on from there
    assert store.exists(records.partition_state_path("orders", 2))
    store.close()


def test_a_node_that_cannot_be_read_is_named_and_nothing_is_changed(directory: Path) -> None:
    connection = sqlite3.connect(directory / DATABASE_FILE)
    connection.execute(
        "UPDATE node SET data = X'7B7D' WHERE parent = '/brokers/topics' AND name = 'plain'"
    )
    connection.commit()
    connection.close()
    before = contents(directory)
    with pytest.raises(DataDirectoryError, match="/brokers/topics/plain"):
        EmbeddedStore.open(directory)
    assert contents(directory) == before


def test_a_store_without_nodes_stays_without() -> None:
    assert moved({}) == {}
    assert "/topics" not in moved({"/topics": OldNode(b"", 0)})
