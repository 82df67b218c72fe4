"""Delegation tokens on three brokers and ZooKeeper: made at any of them, and known to all."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from kbroker.errors import ErrorCode, KafkaError, UserError
from kbroker.peer.client import Client
from kbroker.peer.token_messages import (
    KnownToken,
    decode_create_token,
    decode_describe_tokens,
    decode_expire_token,
    encode_create_token,
    encode_describe_tokens,
    encode_expire_token,
)
from kbroker.security.client_login import ClientLogin
from kbroker.security.delegation_token import password_of
from kbroker.testing.cluster import Cluster
from kbroker.types import ApiKey
from tests.clients.agents.driver import eventually

_MODULES = "org.apache.kafka.common.security"
ALICE = ClientLogin("PLAIN", "alice", "hers")
SETTINGS = {
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.brokers.plain.sasl.jaas.config": (
        f"{_MODULES}.plain.PlainLoginModule required username=b password=p user_b=p"
        " user_alice=hers;"
    ),
    "delegation.token.secret.key": "of the cluster",
    "delegation.token.expiry.check.interval.ms": 500,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, SETTINGS) as made:
        yield made


def address(cluster: Cluster, node_id: int) -> str:
    """Of the listener that authenticates."""
    return f"127.0.0.1:{cluster._to_brokers[node_id].port}"


def create(cluster: Cluster, node_id: int, lifetime_ms: int = -1) -> KnownToken:
    with Client(address(cluster, node_id), login=ALICE) as client:
        return client.cluster.anywhere(
            ApiKey.CREATE_DELEGATION_TOKEN,
            lambda version: encode_create_token(version, None, [], lifetime_ms),
            decode_create_token,
        )


def ids(cluster: Cluster, node_id: int) -> set[str]:
    with Client(address(cluster, node_id), login=ALICE) as client:
        found = client.cluster.anywhere(
            ApiKey.DESCRIBE_DELEGATION_TOKEN,
            lambda version: encode_describe_tokens(version, None),
            decode_describe_tokens,
        )
    return {each.token.token_id for each in found}


def by_token(made: KnownToken) -> ClientLogin:
    password = password_of(made.hmac)
    return ClientLogin("SCRAM-SHA-256", made.token.token_id, password, is_token=True)


def logs_in(cluster: Cluster, node_id: int, login: ClientLogin) -> bool:
    try:
        with Client(address(cluster, node_id), login=login) as client:
            client.metadata()
    except (UserError, KafkaError):
        return False
    return True


def test_a_token_is_known_to_all(cluster: Cluster) -> None:
    for node_id in (1, 2, 3):  # two of them forward it
        made = create(cluster, node_id)
        assert str(made.token.owner) == "User:alice"
        for other in (1, 2, 3):
            logs_in_soon(cluster, other, by_token(made))
        with (
            Client(address(cluster, node_id), login=by_token(made)) as client,
            pytest.raises(KafkaError) as raised,
        ):
            client.cluster.anywhere(
                ApiKey.CREATE_DELEGATION_TOKEN,
                lambda version: encode_create_token(version, None, [], -1),
                decode_create_token,
            )
        assert raised.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        expire(cluster, node_id, made)
        for other in (1, 2, 3):
            has_soon(cluster, other, set())
            assert not logs_in(cluster, other, by_token(made))


def test_tokens_end_and_outlive_their_controller(cluster: Cluster) -> None:
    short, stays = create(cluster, 1, lifetime_ms=300), create(cluster, 2)
    for node_id in (1, 2, 3):
        has_soon(cluster, node_id, {stays.token.token_id})
        assert not logs_in(cluster, node_id, by_token(short))
    zookeeper = KazooClient(f"127.0.0.1:{cluster.zookeeper.port}")
    zookeeper.start()
    folder = "/delegation_token/tokens"
    assert zookeeper.get_children(folder) == [stays.token.token_id]
    node = json.loads(zookeeper.get(f"{folder}/{stays.token.token_id}")[0])
    assert (node["version"], node["owner"]) == (3, "User%3Aalice")
    # As another program does it, which leaves a notice.
    later = {**node, "tokenId": "Another-token_of-a-tool"}
    zookeeper.create(f"{folder}/{later['tokenId']}", json.dumps(later).encode())
    changes = "/delegation_token/token_changes/token_change_"
    zookeeper.create(changes, later["tokenId"].encode(), sequence=True)
    zookeeper.stop()
    both = {stays.token.token_id, later["tokenId"]}
    for node_id in (1, 2, 3):
        has_soon(cluster, node_id, both)
    cluster.controller().kill9()
    left = [node_id for node_id, each in cluster.brokers.items() if each.alive]
    made = create_at_last(cluster, left[0])
    for node_id in left:
        logs_in_soon(cluster, node_id, by_token(made))
        assert logs_in(cluster, node_id, by_token(stays))


def logs_in_soon(cluster: Cluster, node_id: int, login: ClientLogin) -> None:
    eventually(lambda: logs_in(cluster, node_id, login), "a login")


def has_soon(cluster: Cluster, node_id: int, wanted: set[str]) -> None:
    eventually(lambda: ids(cluster, node_id) == wanted, f"{wanted} at {node_id}")


def expire(cluster: Cluster, node_id: int, made: KnownToken) -> None:
    with Client(address(cluster, node_id), login=ALICE) as client:
        client.cluster.anywhere(
            ApiKey.EXPIRE_DELEGATION_TOKEN,
            lambda version: encode_expire_token(version, made.hmac, -1),
            decode_expire_token,
        )


def create_at_last(cluster: Cluster, node_id: int) -> KnownToken:
    made: list[KnownToken] = []

    def tried() -> bool:
        try:
            made.append(create(cluster, node_id))
        except (UserError, KafkaError):
            return False
        return True

    eventually(tried, "there is a controller again")
    return made[0]
