"""Brokers that speak TLS with each other, with certificates on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.testing.plain import PlainBroker as Broker
from lab.ports import free_port
from tests.support.certificates import Authority
from tests.support.zookeeper import ZooKeeper

pytestmark = [pytest.mark.client, pytest.mark.java, pytest.mark.timeout(300)]

NODES = (1, 2)
WAIT_S = 60.0
RECORDS = 200


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def brokers(
    zookeeper: ZooKeeper, tmp_path: Path, authority: Authority
) -> Iterator[dict[int, Broker]]:
    connect = zookeeper.connect + zookeeper.chroot()
    made: dict[int, Broker] = {}
    try:
        for node_id in NODES:
            port, store = free_port(), tmp_path / f"store-{node_id}.pem"
            store.write_bytes(authority.issue(f"broker-{node_id}").both)
            made[node_id] = Broker(
                {
                    "zookeeper.connect": connect,
                    "node.id": str(node_id),
                    "listeners": f"SSL://127.0.0.1:{port}",
                    "security.inter.broker.protocol": "SSL",
                    "ssl.client.auth": "required",
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.location": str(store),
                    "ssl.truststore.type": "PEM",
                    "ssl.truststore.location": str(authority.certificate),
                    "min.insync.replicas": "2",
                    "offsets.topic.replication.factor": "2",
                },
                port=port,
            ).start()
        yield made
    finally:
        for broker in made.values():
            broker.close()


def test_records_are_replicated_and_requests_forwarded(
    brokers: dict[int, Broker], authority: Authority
) -> None:
    client = authority.issue("client")
    common: dict[str, Any] = {
        "bootstrap.servers": brokers[1].bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.certificate),
        "ssl.certificate.location": str(client.chain),
        "ssl.key.location": str(client.key),
    }
    for node_id in NODES:  # one of them forwards it to the controller
        admin = AdminClient(common | {"bootstrap.servers": brokers[node_id].bootstrap})
        new = NewTopic(f"t{node_id}", 2, 2)
        admin.create_topics([new])[new.topic].result(WAIT_S)
    producer = Producer(common | {"acks": "all"})
    for at in range(RECORDS):
        producer.produce("t1", b"%d" % at * 5_000)
    assert producer.flush(WAIT_S) == 0
    consumer = Consumer(common | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t1"])
    found = 0
    while found < RECORDS:
        messages = consumer.consume(RECORDS, WAIT_S)
        assert messages
        found += sum(message.error() is None for message in messages)
    consumer.commit(asynchronous=False)
    consumer.close()
    partitions = admin.list_topics("t1", WAIT_S).topics["t1"].partitions.values()
    assert {tuple(sorted(each.isrs)) for each in partitions} == {NODES}
