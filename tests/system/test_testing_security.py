"""kbroker.testing with users, TLS and ACLs, as an application's tests use it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka import KafkaProducer

from kbroker.cli.main import main
from kbroker.security.acls import PatternType, Permission
from kbroker.security.rights import Operation, ResourceType
from kbroker.testing import Broker
from kbroker.testing.secured import MECHANISMS, parse_acl

pytestmark = pytest.mark.client

WAIT_S = 30
USERS = {"alice": 'p"w \\', "bob": "other"}


def write(settings: dict[str, Any], topic: str, value: bytes) -> KafkaError | None:
    errors: list[KafkaError | None] = []
    producer = Producer({**settings, "message.timeout.ms": 20_000})
    producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    producer.flush(WAIT_S)
    (error,) = errors
    return error


def values(broker: Broker, topic: str) -> list[bytes | None]:
    return [each.value for each in broker.records(topic)]


@pytest.mark.parametrize("tls", [False, True])
def test_users_with_each_mechanism(tls: bool) -> None:
    with Broker(topics={"t": 1}, users=USERS, tls=tls) as broker:
        for mechanism in MECHANISMS:
            settings = broker.client_settings("alice", mechanism=mechanism)
            assert write(settings, "t", mechanism.encode()) is None
        assert values(broker, "t") == [each.encode() for each in MECHANISMS]
        wrong = broker.client_settings("alice", password="wrong")
        with pytest.raises(KafkaException):
            Producer(wrong).list_topics(timeout=1)
        assert "Failed authentication with 127.0.0.1" in broker.log_text()


def test_python_clients_and_our_commands(tmp_path: Path) -> None:
    with Broker(topics={"t": 1}, users=USERS, tls=True) as broker:
        settings = broker.python_settings("bob", mechanism="SCRAM-SHA-512")
        producer = KafkaProducer(**settings)
        producer.send("t", b"kafka-python").get(WAIT_S)
        producer.close()

        async def send() -> None:
            async with AIOKafkaProducer(**settings) as other:
                await other.send_and_wait("t", b"aiokafka")

        asyncio.run(send())
        assert values(broker, "t") == [b"kafka-python", b"aiokafka"]
        file = tmp_path / "client.properties"
        lines = [
            f"{key}={value}".replace("\\", "\\\\")
            for key, value in broker.java_settings("alice").items()
        ]
        file.write_text("\n".join(lines))
        words = ["topic", "list", "-b", broker.bootstrap, "--command-config", str(file)]
        assert main(words) == 0


def test_acls() -> None:
    acls = ["alice Write topic:ord*", "bob Read topic:orders"]
    with Broker(topics={"orders": 1}, users=USERS, acls=acls) as broker:
        assert write(broker.client_settings("alice"), "orders", b"1") is None
        refused = write(broker.client_settings("bob"), "orders", b"2")
        assert refused is not None
        assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert values(broker, "orders") == [b"1"]


def test_a_client_with_a_certificate() -> None:
    with Broker(topics={"t": 1}, tls=True) as broker:
        store = broker.client_certificate("carol")
        settings = broker.client_settings() | {
            "ssl.certificate.location": str(store),
            "ssl.key.location": str(store),
        }
        assert write(settings, "t", b"1") is None
        assert values(broker, "t") == [b"1"]


def test_a_restart_keeps_users_and_port() -> None:
    with Broker(topics={"t": 1}, users=USERS, tls=True) as broker:
        settings = broker.client_settings("alice")
        assert write(settings, "t", b"before") is None
        broker.restart()
        assert broker.client_settings("alice") == settings
        assert write(settings, "t", b"after") is None
        assert values(broker, "t") == [b"before", b"after"]


def test_in_the_process_of_the_test() -> None:
    with Broker(topics={"t": 1}, users=USERS, in_process=True) as broker:
        assert write(broker.client_settings("alice"), "t", b"1") is None


def test_passwords_are_in_no_argument() -> None:
    with Broker(users=USERS, tls=True) as broker:
        arguments = Path(f"/proc/{broker.pid}/cmdline").read_bytes()
        assert not any(password.encode() in arguments for password in USERS.values())


def test_a_broker_without_users() -> None:
    broker = Broker()
    try:
        assert broker.client_settings() == {"bootstrap.servers": ""}
        with pytest.raises(ValueError, match="no users"):
            broker.client_settings("alice")
    finally:
        broker.close()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"acls": []}, "name users"),
        ({"users": USERS, "acls": ["alice Fly topic:t"]}, "no operation"),
        ({"users": USERS, "acls": ["alice Read"]}, "no ACL"),
        ({"users": USERS, "overrides": {"listeners": "A://:1"}}, "leave listeners out"),
    ],
)
def test_arguments_that_cannot_be(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Broker(**arguments)


def test_acls_as_text() -> None:
    acl = parse_acl("deny User:alice Read topic:ord*")
    assert acl.pattern == (ResourceType.TOPIC, PatternType.PREFIXED, "ord")
    assert acl.entry == ("User:alice", "*", Operation.READ, Permission.DENY)
    acl = parse_acl("alice All topic:*")
    assert acl.pattern == (ResourceType.TOPIC, PatternType.LITERAL, "*")
    assert acl.entry.principal == "User:alice"
