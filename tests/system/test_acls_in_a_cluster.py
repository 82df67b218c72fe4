"""Three brokers with an authorizer, which log in at each other as a super user."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Final

import confluent_kafka
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from kbroker.errors import ErrorCode
from kbroker.peer import messages
from kbroker.peer.address import Address, parse_addresses
from kbroker.peer.client import Client
from kbroker.peer.messages import NewTopic
from kbroker.testing.cluster import Cluster, ClusterBroker
from kbroker.types import ApiKey
from tests.clients.agents.driver import eventually

WAIT_S: Final = 30
DENIED: Final = confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
NOT_ALLOWED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
ROUNDS: Final = 5
TIMES_A_TOPIC: Final = 3.0
ANYONE: Final = "User:ANONYMOUS"
SETTINGS: Final = {
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.brokers.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        " username=b password=p user_b=p;"
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:b",
    # Of resources that no ACL covers.
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, SETTINGS, topics={"t": 3, "open": 3}) as cluster:
        create(cluster.brokers[1], ResourceType.BROKER, "kafka-cluster", AclOperation.ALTER)
        yield cluster


def binding(kind: Any, name: str, operation: Any, make: Any = AclBinding) -> Any:
    return make(
        kind, name, ResourcePatternType.LITERAL, ANYONE, "*", operation, AclPermissionType.ALLOW
    )


def create(broker: ClusterBroker, *what: Any) -> None:
    admin: Any = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_acls([binding(*what)]).values():
        made.result(WAIT_S)


def delete(broker: ClusterBroker, kind: Any, name: str, operation: Any) -> None:
    admin: Any = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = binding(kind, name, operation, make=AclBindingFilter)
    for made in admin.delete_acls([wanted]).values():
        assert len(made.result(WAIT_S)) == 1


def write(cluster: Cluster, topic: str, count: int = 30) -> set[int]:
    """The codes of all messages, over all partitions; 0: written, to all replicas."""
    bootstrap = ",".join(each.bootstrap for each in cluster.brokers.values() if each.alive)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    codes: set[int] = set()
    for at in range(count):
        producer.produce(
            topic, f"{at}", partition=at % 3,
            on_delivery=lambda error, _: codes.add(0 if error is None else error.code()),
        )  # fmt: skip
    assert producer.flush(WAIT_S) == 0
    return codes


def test_replication_goes_on_and_every_broker_follows_the_acls(cluster: Cluster) -> None:
    assert write(cluster, "t") == {0}
    # From here on the topic is for those who are named.
    create(cluster.brokers[2], ResourceType.TOPIC, "t", AclOperation.DESCRIBE)
    eventually(lambda: write(cluster, "t") == {DENIED}, "each broker denies")
    assert write(cluster, "open") == {0}
    create(cluster.brokers[3], ResourceType.TOPIC, "t", AclOperation.WRITE)
    eventually(lambda: write(cluster, "t") == {0}, "each broker allows")
    delete(cluster.brokers[1], ResourceType.TOPIC, "t", AclOperation.WRITE)
    eventually(lambda: write(cluster, "t") == {DENIED}, "each broker denies again")


def test_another_controller_has_the_acls(cluster: Cluster) -> None:
    create(cluster.brokers[2], ResourceType.TOPIC, "t", AclOperation.DESCRIBE)
    eventually(lambda: write(cluster, "t") == {DENIED}, "each broker denies")
    cluster.controller().kill9()

    def is_denied() -> bool:
        """Until another broker leads a partition, its records fail; none is ever let in."""
        codes = write(cluster, "t")
        assert 0 not in codes
        return codes == {DENIED}

    eventually(is_denied, "the others lead, and deny")
    eventually(lambda: write(cluster, "open") == {0}, "the others lead")
    living = next(each for each in cluster.brokers.values() if each.alive)
    create(living, ResourceType.TOPIC, "t", AclOperation.WRITE)
    eventually(lambda: write(cluster, "t") == {0}, "each broker allows")


def until_each_answers(
    clients: Mapping[ClusterBroker, Client], topic: str, error: ErrorCode
) -> None:
    for broker, client in clients.items():
        (address,) = parse_addresses(broker.bootstrap)

        def answer(client: Client = client, address: Address = address) -> ErrorCode:
            answered = client.cluster.ask(
                address,
                ApiKey.METADATA,
                lambda version: messages.encode_metadata(version, [topic], auto_create=False),
                messages.decode_metadata,
            )
            return answered.topics[topic].error

        deadline = time.monotonic() + WAIT_S
        while (seen := answer()) is not error:
            assert time.monotonic() < deadline, (broker.bootstrap, seen)


def test_a_changed_acl_is_in_force_as_soon_as_a_new_topic_is_known(cluster: Cluster) -> None:
    """Both are news of the controller, which every broker follows; a topic is also made there."""
    news: dict[str, list[float]] = {"topics": [], "created": [], "deleted": []}
    covered = (ResourceType.TOPIC, "open", AclOperation.ALTER_CONFIGS)
    with ExitStack() as stack:
        clients = {
            broker: stack.enter_context(Client(broker.bootstrap))
            for broker in cluster.brokers.values()
        }
        first = cluster.brokers[1]
        for number in range(ROUNDS):
            name = f"new-{number}"

            def made(name: str = name) -> None:
                (result,) = clients[first].create_topics([NewTopic(name, 3, 3)])
                assert result.error is ErrorCode.NONE

            for kind, change, topic, error in (
                ("topics", made, name, ErrorCode.NONE),
                ("created", lambda: create(first, *covered), "open", NOT_ALLOWED),
                ("deleted", lambda: delete(first, *covered), "open", ErrorCode.NONE),
            ):
                began = time.monotonic()
                change()
                until_each_answers(clients, topic, error)
                news[kind].append(time.monotonic() - began)
    medians = {kind: statistics.median(each) for kind, each in news.items()}
    assert max(medians["created"], medians["deleted"]) <= TIMES_A_TOPIC * medians["topics"], news
