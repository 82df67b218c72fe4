"""Other people's clients of a broker with an authorizer: rights that come and go while they run.

One broker with a plain listener, whose clients are super users, and one with SASL for alice and for
admin, who may change ACLs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest
from confluent_kafka import admin as rdkafka_admin

from kbroker.testing import Broker
from lab.ports import free_port
from tests.clients.agents.driver import eventually
from tests.clients.agents.tools import Tools

WAIT_S: Final = 30
DENIED: Final = confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED: Final = confluent_kafka.KafkaError.GROUP_AUTHORIZATION_FAILED
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_numbers: Final = itertools.count()
Kind: Final = rdkafka_admin.ResourceType
Operation: Final = rdkafka_admin.AclOperation


class Guarded:
    def __init__(self, broker: Broker, port: int) -> None:
        self.broker, self.port = broker, port
        self.admin: Any = rdkafka_admin.AdminClient({"bootstrap.servers": broker.bootstrap})

    def topic(self) -> str:
        """One that only super users have a right to."""
        name = f"t{next(_numbers)}"
        wanted = rdkafka_admin.NewTopic(name, 1, 1)
        for made in self.admin.create_topics([wanted]).values():
            made.result(WAIT_S)
        return name

    def allow(self, kind: Any, name: str, *operations: Any) -> None:
        for made in self.admin.create_acls([*_bindings(kind, name, operations)]).values():
            made.result(WAIT_S)

    def take(self, kind: Any, name: str, *operations: Any) -> None:
        filters = [*_bindings(kind, name, operations, rdkafka_admin.AclBindingFilter)]
        for made in self.admin.delete_acls(filters).values():
            assert len(made.result(WAIT_S)) == 1

    def client(self, **settings: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"127.0.0.1:{self.port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "pw",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }

    def properties(self, place: Path, user: str) -> str:
        """For Java's clients and tools."""
        place.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={_PLAIN} required username="{user}" password="pw";\n'
        )
        return str(place)


def _bindings(
    kind: Any, name: str, operations: tuple[Any, ...], make: Any = rdkafka_admin.AclBinding
) -> Iterator[Any]:
    literal = rdkafka_admin.ResourcePatternType.LITERAL
    allow = rdkafka_admin.AclPermissionType.ALLOW
    for operation in operations:
        yield make(kind, name, literal, "User:alice", "*", operation, allow)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    port = free_port()
    overrides = {
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},SECURE://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": (
            f"{_PLAIN} required user_alice=pw user_admin=pw;"
        ),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }
    with Broker(overrides) as broker:
        yield Guarded(broker, port)


class Writer:
    """A producer, and what became of its messages."""

    def __init__(self, guarded: Guarded, topic: str, **settings: Any) -> None:
        settings = {"linger_ms": 0, **settings}
        self.producer = confluent_kafka.Producer(guarded.client(**settings))
        self._topic = topic

    def write(self, text: str) -> int:
        """The error's code; 0: it was written."""
        codes: list[int] = []

        def note(error: Any, _message: Any) -> None:
            codes.append(0 if error is None else error.code())

        try:
            self.producer.produce(self._topic, text, on_delivery=note)
        except confluent_kafka.KafkaException as error:
            # It remembers a denial until it has metadata of the topic again.
            return int(error.args[0].code())
        assert self.producer.flush(WAIT_S) == 0
        return codes[0]


def test_a_producer_whose_rights_come_and_go(guarded: Guarded) -> None:
    topic = guarded.topic()
    guarded.allow(Kind.TOPIC, topic, Operation.DESCRIBE)
    writer = Writer(guarded, topic, topic_metadata_refresh_interval_ms=100)
    assert writer.write("none") == DENIED
    for turn in range(3):
        guarded.allow(Kind.TOPIC, topic, Operation.WRITE)
        eventually(lambda turn=turn: writer.write(f"{turn} 0") == 0, "a message is written")
        assert [writer.write(f"{turn} {at}") for at in range(1, 20)] == [0] * 19
        guarded.take(Kind.TOPIC, topic, Operation.WRITE)
        assert [writer.write("denied") for _ in range(3)] == [DENIED] * 3
    values = [record.value for record in guarded.broker.records(topic)]
    assert values == [f"{turn} {at}".encode() for turn in range(3) for at in range(20)]


def test_an_idempotent_producer_needs_the_topic_only(guarded: Guarded) -> None:
    topic = guarded.topic()
    guarded.allow(Kind.TOPIC, topic, Operation.WRITE)
    assert Writer(guarded, topic, enable_idempotence=True).write("x") == 0


def test_a_transaction_needs_its_id(guarded: Guarded) -> None:
    topic, name = guarded.topic(), f"x{next(_numbers)}"
    guarded.allow(Kind.TOPIC, topic, Operation.WRITE)
    refused = confluent_kafka.Producer(guarded.client(transactional_id=name))
    with pytest.raises(confluent_kafka.KafkaException) as error:
        refused.init_transactions(WAIT_S)
    code = confluent_kafka.KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert error.value.args[0].code() == code
    guarded.allow(Kind.TRANSACTIONAL_ID, name, Operation.WRITE)
    producer = confluent_kafka.Producer(guarded.client(transactional_id=name))
    producer.init_transactions(WAIT_S)
    for _ in range(3):
        producer.begin_transaction()
        producer.produce(topic, "in a transaction")
        producer.commit_transaction(WAIT_S)
    assert len(guarded.broker.records(topic)) == 3


def polled(consumer: Any, until: Callable[[Any], bool]) -> list[Any]:
    """Messages and errors, up to one that this holds for."""
    found: list[Any] = []

    def next_one() -> bool:
        message = consumer.poll(0.2)
        if message is not None:
            found.append(message)
        return message is not None and until(message)

    eventually(next_one, "a message or an error")
    return found


def test_a_consumer_whose_rights_come_and_go(guarded: Guarded) -> None:
    topic, group = guarded.topic(), f"g{next(_numbers)}"
    guarded.allow(Kind.TOPIC, topic, Operation.READ)
    guarded.allow(Kind.GROUP, group, Operation.READ)
    writer = confluent_kafka.Producer({"bootstrap.servers": guarded.broker.bootstrap})
    consumer = confluent_kafka.Consumer(
        guarded.client(group_id=group, auto_offset_reset="earliest", enable_auto_commit=False)
    )
    consumer.subscribe([topic])
    seen = []
    for turn in range(3):
        for at in range(5):
            writer.produce(topic, f"{turn} {at}")
        assert writer.flush(WAIT_S) == 0
        last = f"{turn} 4".encode()
        messages = polled(consumer, lambda m, last=last: not m.error() and m.value() == last)
        seen += [message.value() for message in messages if not message.error()]
        consumer.commit(asynchronous=False)
        # It stays in its group, which it has a right to, and cannot read or commit.
        guarded.take(Kind.TOPIC, topic, Operation.READ)
        polled(consumer, lambda m: m.error() is not None and m.error().code() == DENIED)
        guarded.allow(Kind.TOPIC, topic, Operation.READ)
    assert seen == [f"{turn} {at}".encode() for turn in range(3) for at in range(5)]
    guarded.take(Kind.GROUP, group, Operation.READ)
    with pytest.raises(confluent_kafka.KafkaException) as error:
        consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 1)], asynchronous=False)
    assert error.value.args[0].code() == GROUP_DENIED
    consumer.close()


@pytest.mark.java
@pytest.mark.timeout(300)
def test_kafkas_tools(guarded: Guarded, tools: Tools, tmp_path: Path) -> None:
    """kafka-acls over SASL, and Java's producer and consumer."""
    topic = guarded.topic()
    server = ("--bootstrap-server", f"127.0.0.1:{guarded.port}")
    admin = guarded.properties(tmp_path / "admin", "admin")
    alice = guarded.properties(tmp_path / "alice", "alice")

    def change(*words: str, user: str = admin) -> tuple[int, str]:
        ran = tools.attempt("AclCommand", *server, "--command-config", user, *words)
        return ran.returncode, (ran.stdout + ran.stderr).decode()

    def write(text: str) -> str:
        ran = tools.attempt(
            "ConsoleProducer", *server, "--topic", topic, "--command-config", alice,
            stdin=f"{text}\n".encode(),
        )  # fmt: skip
        return (ran.stdout + ran.stderr).decode()

    def read() -> str:
        ran = tools.attempt(
            "consumer.ConsoleConsumer", *server, "--topic", topic, "--from-beginning",
            "--max-messages", "1", "--timeout-ms", "5000", "--group", f"g-{topic}",
            "--command-config", alice,
        )  # fmt: skip
        return (ran.stdout + ran.stderr).decode()

    refused = change("--list", user=alice)
    assert "ClusterAuthorizationException" in refused[1], refused
    assert "TopicAuthorizationException" in write("one")
    of_alice = ("--allow-principal", "User:alice", "--topic", topic)
    status, text = change("--add", *of_alice, "--producer")
    assert status == 0, text
    assert "AuthorizationException" not in write("two")
    assert "GroupAuthorizationException" in read()
    status, text = change("--add", *of_alice, "--consumer", "--group", f"g-{topic}")
    assert status == 0, text
    assert "two" in read()
    assert "operation=READ" in change("--list", "--topic", topic)[1]
    assert change("--remove", "--force", *of_alice, "--producer")[0] == 0
    assert "TopicAuthorizationException" in write("three")
    values = [record.value for record in guarded.broker.records(topic)]
    assert values == [b"two"]


def test_denials_are_in_the_log(guarded: Guarded) -> None:
    topic = guarded.topic()
    guarded.allow(Kind.TOPIC, topic, Operation.DESCRIBE)
    assert Writer(guarded, topic).write("none") == DENIED
    line = (
        "Principal = User:alice is Denied operation = WRITE from host = 127.0.0.1 on resource ="
        f" Topic:LITERAL:{topic} for request = Produce"
    )
    eventually(lambda: line in guarded.broker.log_text(), "the denial's line")
