"""Three brokers and a ZooKeeper: what one of them decides, all of them know."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from kbroker.peer.client import Client
from kbroker.testing.broker import Broker
from lab.ports import free_port
from tests.clients.agents.driver import eventually as until
from tests.support.zookeeper import ZooKeeper

pytestmark = [pytest.mark.client, pytest.mark.java, pytest.mark.timeout(300)]

NODES = (1, 2, 3)
PARTITIONS = 6
TIMEOUT_S = 30


@pytest.fixture
def brokers(zookeeper: ZooKeeper) -> Iterator[dict[int, Broker]]:
    connect = zookeeper.connect + zookeeper.chroot()
    made: dict[int, Broker] = {}
    try:
        for node_id in NODES:
            port = free_port()
            settings = {
                "zookeeper.connect": connect,
                # No broker loses its session because the machine is busy.
                "zookeeper.session.timeout.ms": "6000",
                "node.id": str(node_id),
                # Brokers and clients come to listeners of their own.
                "listeners": f"OUTSIDE://127.0.0.1:{port},INSIDE://127.0.0.1:0",
                "listener.security.protocol.map": "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT",
                "inter.broker.listener.name": "INSIDE",
            }
            made[node_id] = Broker(settings, port=port)
            made[node_id].start()
        yield made
    finally:
        for broker in made.values():
            broker.close()


def leaders(broker: Broker) -> dict[int, int]:
    """As this very broker tells them, of the topic `spread`; librdkafka may ask another."""
    with Client(broker.bootstrap) as client:
        topic = client.metadata(["spread"]).topics["spread"]
    return {partition.index: partition.leader for partition in topic.partitions}


def retention_ms(asked: AdminClient, resource: ConfigResource) -> str | None:
    """None where the topic is not known yet."""
    try:
        configs = asked.describe_configs([resource])[resource].result(TIMEOUT_S)
    except confluent_kafka.KafkaException:
        return None
    value: str | None = configs["retention.ms"].value
    return value


def write(broker: Broker, partitions: list[int], value: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True}
    )
    failed: list[object] = []
    for index in partitions:
        producer.produce(
            "spread", value, partition=index, on_delivery=lambda e, _: e and failed.append(e)
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert not failed


def test_a_client_of_any_broker_gets_topics_and_groups(brokers: dict[int, Broker]) -> None:
    """Broker 3 is not the controller."""
    producer = confluent_kafka.Producer({"bootstrap.servers": brokers[3].bootstrap})
    producer.produce("made-by-naming-it", b"x")
    assert producer.flush(TIMEOUT_S) == 0
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": brokers[3].bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["made-by-naming-it"])
    found = consumer.poll(TIMEOUT_S)
    assert found is not None and found.error() is None and found.value() == b"x"
    consumer.commit(asynchronous=False)
    consumer.close()
    admin = AdminClient({"bootstrap.servers": brokers[3].bootstrap})
    resource = ConfigResource(
        ConfigResource.Type.TOPIC,
        "made-by-naming-it",
        incremental_configs=[
            ConfigEntry("retention.ms", "5", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    for each in brokers.values():
        asked = AdminClient({"bootstrap.servers": each.bootstrap})
        until(lambda a=asked: retention_ms(a, resource) == "5", "it has the setting")


def test_a_decision_of_one_is_known_to_all(brokers: dict[int, Broker]) -> None:
    admin = AdminClient({"bootstrap.servers": brokers[3].bootstrap})  # which is not the controller
    topics = [NewTopic("spread", PARTITIONS, 1), NewTopic("gone", PARTITIONS, 1)]
    for made in admin.create_topics(topics).values():
        made.result(TIMEOUT_S)
    everywhere = {index: NODES[index % 3] for index in range(PARTITIONS)}
    until(
        lambda: sorted(leaders(brokers[2]).values()) == sorted(everywhere.values()),
        "broker 2 knows who leads",
    )
    with Client(brokers[2].bootstrap) as client:
        addresses = {f"{each.host}:{each.port}" for each in client.metadata([]).brokers.values()}
    assert addresses == {each.bootstrap for each in brokers.values()}  # none of the inside
    led = leaders(brokers[2])
    until(lambda: all(leaders(each) == led for each in brokers.values()), "all know the same")
    write(brokers[2], list(led), "first")

    brokers[1].kill9()
    of_one = [index for index, leader in led.items() if leader == 1]
    others = [index for index in led if index not in of_one]
    gone = led | dict.fromkeys(of_one, -1)
    for node_id in (2, 3):
        until(lambda n=node_id: leaders(brokers[n]) == gone, f"{node_id} knows that 1 is gone")
    write(brokers[3], others, "second")
    admin = AdminClient({"bootstrap.servers": brokers[3].bootstrap})  # which asks no dead one
    admin.delete_topics(["gone"])["gone"].result(TIMEOUT_S)
    at_one = {path.name.partition(".")[0] for path in brokers[1].data_dir.glob("gone-*")}
    assert len(at_one) == PARTITIONS // len(NODES)

    # Without an image of a controller a start is not ready; when the others are gone it has one.
    for node_id in (2, 3):
        brokers[node_id].signal(signal.SIGSTOP)
    try:
        brokers[1].start()
        known = leaders(brokers[1])
    finally:
        for node_id in (2, 3):
            brokers[node_id].signal(signal.SIGCONT)
    assert known.keys() == led.keys()
    aside = {path.name.partition(".")[0] for path in brokers[1].data_dir.glob("gone-*-stray")}
    assert aside == at_one and not any((brokers[1].data_dir / each).exists() for each in at_one)
    until(lambda: all(leaders(each) == led for each in brokers.values()), "1 is back")
    write(brokers[1], list(led), "third")
    found = {
        index: [each.value for each in brokers[2].records("spread") if each.partition == index]
        for index in led
    }
    assert found == {
        index: [b"first", b"third"] if index in of_one else [b"first", b"second", b"third"]
        for index in led
    }
