"""Topics as the libraries see them: made, listed, described, deleted, made by being written to."""

from __future__ import annotations

import os
from collections.abc import Callable

import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin
import pytest

from tests.clients.adapters import (
    TIMEOUT_S,
    Admin,
    Client,
    KafkaPython,
    Record,
    next_number,
)

pytestmark = pytest.mark.client


def unused_name(stem: str) -> str:
    return f"{stem}-{os.getpid()}-{next_number()}"


def refusal(action: Callable[[], object]) -> int:
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        action()
    code: int = caught.value.args[0].code()
    return code


def test_a_topic_lives_from_creation_to_deletion(admin: Admin) -> None:
    name = unused_name("life")
    assert name not in admin.topics()
    admin.create(name, partitions=5)
    assert admin.topics()[name] == 5
    admin.delete(name)
    assert name not in admin.topics()


@pytest.mark.parametrize(
    ("name", "partitions", "configs", "code"),
    [
        ("with space", 1, {}, 17),
        ("..", 1, {}, 17),
        ("x" * 250, 1, {}, 17),
        ("no-partitions", 0, {}, 37),
        ("bad-config", 1, {"retention.ms": "soon"}, 40),
        ("unknown-config", 1, {"retention.parsecs": "1"}, 40),
    ],
)
def test_topics_that_cannot_be_created(
    admin: Admin, name: str, partitions: int, configs: dict[str, str], code: int
) -> None:
    assert refusal(lambda: admin.create(name, partitions, configs)) == code
    assert name not in admin.topics()


def test_a_topic_is_created_once(admin: Admin, topic: str) -> None:
    assert refusal(lambda: admin.create(topic)) == 36


def test_deleting_an_unknown_topic(admin: Admin) -> None:
    assert refusal(lambda: admin.delete(unused_name("nowhere"))) == 3


def test_a_deleted_topic_comes_back_empty(admin: Admin, client: Client) -> None:
    name = unused_name("again")
    for value in (b"first life", b"second life"):
        admin.create(name)
        assert [d.offset for d in client.produce(name, [Record(value)])] == [0]
        assert [r.value for r in client.consume(name, 1)] == [value]
        admin.delete(name)


def test_writing_creates_a_topic(admin: Admin, client: Client) -> None:
    name = unused_name(f"auto-{client.name}")
    (delivery,) = client.produce(name, [Record(b"hello")])
    assert (delivery.error, delivery.offset) == (0, 0)
    assert admin.topics()[name] == 1
    assert [r.value for r in client.consume(name, 1)] == [b"hello"]
    admin.delete(name)


def test_topic_settings_can_be_read_back(admin: Admin, make_topic: Callable[..., str]) -> None:
    topic = make_topic(retention_ms=123_456, cleanup_policy="compact")
    resource = confluent_kafka.admin.ConfigResource(
        confluent_kafka.admin.ConfigResource.Type.TOPIC, topic
    )
    (described,) = (f.result(TIMEOUT_S) for f in admin.client.describe_configs([resource]).values())
    assert described["retention.ms"].value == "123456"
    assert described["cleanup.policy"].value == "compact"
    assert not described["retention.ms"].is_default
    assert described["segment.bytes"].is_default
    assert described["segment.bytes"].value == str(1 << 30)


def test_kafka_python_adds_partitions_and_deletes_records(bootstrap: str, topic: str) -> None:
    client = KafkaPython(bootstrap)
    client.produce(topic, [Record(b"%d" % number) for number in range(10)])
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        grown = admin.create_partitions({topic: kafka.admin.NewPartitions(3)})
        assert [result.error_code for result in grown.results] == [0]
        (described,) = admin.describe_topics([topic])
        assert len(described["partitions"]) == 3
        first, last = kafka.TopicPartition(topic, 0), kafka.TopicPartition(topic, 2)
        assert client.produce(topic, [Record(b"x")], partition=2)[0].offset == 0
        for offset, start in ((4, 4), (-1, 10)):
            results = admin.delete_records({first: offset, last: 0})
            assert {at: result["low_watermark"] for at, result in results.items()} == {
                first: start,
                last: 0,
            }
            with client.consumer() as consumer:
                assert consumer.offsets(topic, 0) == (start, 10)
    finally:
        admin.close()


def test_the_cluster_can_be_described(admin: Admin) -> None:
    described = admin.cluster()
    assert described.cluster_id
    (node,) = described.nodes
    assert described.controller.id == node.id
