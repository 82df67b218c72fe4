"""A broker whose metadata is in ZooKeeper: its changes outlive its restart."""

from __future__ import annotations

import confluent_kafka
import pytest

from kbroker.metadata.store.embedded import DATABASE_FILE
from kbroker.testing.broker import Broker
from lab.ports import free_port
from tests.support.zookeeper import ZooKeeper

pytestmark = [pytest.mark.client, pytest.mark.java]


def test_topics_are_in_zookeeper_and_outlive_a_restart(zookeeper: ZooKeeper) -> None:
    connect = zookeeper.connect + zookeeper.chroot()
    settings = {"zookeeper.connect": connect}
    with Broker(settings, port=free_port(), topics={"orders": 2}) as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("orders", b"book", partition=1)
        assert producer.flush(30) == 0
        broker.restart()
        assert [record.value for record in broker.records("orders")] == [b"book"]
        # ZooKeeper takes the killed one for alive, its registration and its office with it.
        broker.kill9()
        log_size = broker.log_bytes()
        broker.restart()
        # Its death can be proved, so nothing is waited for.
        assert "end of its session" not in broker.log_text(log_size)
        assert [record.value for record in broker.records("orders")] == [b"book"]
        assert not (broker.data_dir / DATABASE_FILE).exists()
