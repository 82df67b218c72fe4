"""Quotas at the controller: their nodes, the parents of these, the image, and what others write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from kbroker.errors import ErrorCode
from kbroker.metadata.controller import user_nodes
from kbroker.metadata.controller.user_changes import QuotaChange, UserChange
from kbroker.metadata.store.base import MultiError, NodeExistsError, Operation
from kbroker.metadata.store.embedded import EmbeddedStore
from kbroker.quota.entities import EVERY, QuotaEntity
from tests.unit.metadata.controller.brokers import Cluster, Wire
from tests.unit.metadata.controller.harness import OneBroker, eventually, wait
from tests.unit.metadata.controller.test_users import (
    SALT,
    changes_of,
    codes,
    node,
    note,
    stop,
    store,
    write,
)

__all__ = ["store"]  # a fixture

RATE = {"producer_byte_rate": "1024"}
GONE = frozenset(RATE)
ALICE = QuotaEntity(user="alice")
ALICE_C = QuotaEntity(user="alice", client_id="c")
ALICE_D = QuotaEntity(user="alice", client_id="d")
ENTITIES = {
    "users/alice": ALICE,
    "users/<default>": QuotaEntity(user=EVERY),
    "users/alice/clients/c": ALICE_C,
    "users/alice/clients/<default>": QuotaEntity("alice", EVERY),
    "users/<default>/clients/<default>": QuotaEntity(EVERY, EVERY),
    "clients/a%20b%2Fc%3Cdefault%3E%2A": QuotaEntity(client_id="a b/c<default>*"),
    "clients/<default>": QuotaEntity(client_id=EVERY),
    "ips/192.0.2.1": QuotaEntity(ip="192.0.2.1"),
    "ips/::1": QuotaEntity(ip="::1"),  # Apache Kafka 3.9 does not start with %3A%3A1
}


@pytest.mark.parametrize("path", ENTITIES)
def test_nodes_and_notices_are_as_kafka_writes_them(store: EmbeddedStore, path: str) -> None:
    changes, nodes, propagation = changes_of(store)
    entity = ENTITIES[path]
    assert changes.alter(nodes, [QuotaChange(entity, RATE)]) == [None]
    assert node(store, f"/config/{path}") == {"version": 1, "config": RATE}
    first = "/config/changes/config_change_0000000000"
    assert node(store, first) == {"version": 2, "entity_path": path}
    assert propagation.image.quota_settings(entity) == RATE
    assert changes.notices_came(nodes)  # its own are not news
    assert user_nodes.entity_at(f"/config/{path}") == entity
    again = changes_of(store)[2].image  # as the next controller reads it
    assert (again.users, again.quotas) == (propagation.image.users, propagation.image.quotas)
    assert again.settings_bytes == propagation.image.settings_bytes
    changes.alter(nodes, [QuotaChange(entity, remove=GONE)])
    assert store.children("/config/users") == store.children("/config/clients") == []
    assert store.children("/config/ips") == []
    assert not propagation.image.users and not propagation.image.quotas
    assert propagation.image.settings_bytes == 0


EARLIER = "/config/ips/%3A%3A1"  # as an earlier kbroker wrote ::1
LOOPBACK = QuotaEntity(ip="::1")
FASTER = {"producer_byte_rate": "2048"}


@pytest.mark.parametrize("settings", [FASTER, RATE])
def test_a_change_of_an_address_replaces_its_quoted_node(
    store: EmbeddedStore, settings: dict[str, str]
) -> None:
    write(store, EARLIER, RATE)
    changes, nodes, propagation = changes_of(store)
    assert propagation.image.quotas == {LOOPBACK: RATE}
    assert changes.alter(nodes, [QuotaChange(LOOPBACK, settings)]) == [None]
    assert store.children("/config/ips") == ["::1"]
    assert node(store, "/config/ips/::1") == {"version": 1, "config": settings}
    assert changes.alter(nodes, [QuotaChange(LOOPBACK, remove=GONE)]) == [None]
    assert store.children("/config/ips") == []
    assert propagation.image.quotas == {}


@pytest.mark.parametrize("right", [FASTER, {}])
def test_the_right_node_of_an_address_counts_beside_a_quoted_one(
    store: EmbeddedStore, right: dict[str, str]
) -> None:
    write(store, "/config/ips/::1", right)
    write(store, EARLIER, RATE)
    changes, nodes, propagation = changes_of(store)
    assert propagation.image.quotas == ({LOOPBACK: right} if right else {})
    note(store, 0, "ips/%3A%3A1")
    assert changes.notices_came(nodes)
    assert propagation.image.quotas == ({LOOPBACK: right} if right else {})
    assert changes.alter(nodes, [QuotaChange(LOOPBACK, remove=GONE)]) == [None]
    assert store.children("/config/ips") == []
    assert changes_of(store)[2].image.quotas == {}


def test_an_address_without_settings_loses_its_quoted_node(store: EmbeddedStore) -> None:
    write(store, EARLIER, RATE)
    changes, nodes, propagation = changes_of(store)
    assert changes.alter(nodes, [QuotaChange(LOOPBACK, remove=GONE)]) == [None]
    assert store.children("/config/ips") == []
    assert propagation.image.quotas == {}


def test_parents_stay_as_long_as_they_have_something(store: EmbeddedStore) -> None:
    changes, nodes, propagation = changes_of(store)
    new = [QuotaChange(each, RATE) for each in (ALICE_C, ALICE, ALICE_D)]
    assert changes.alter(nodes, new) == [None] * 3
    assert node(store, "/config/users/alice") == {"version": 1, "config": RATE}
    changes.alter(nodes, [QuotaChange(ALICE, remove=GONE), QuotaChange(ALICE_C, remove=GONE)])
    assert store.children("/config/users/alice/clients") == ["d"]
    changes.alter(nodes, [QuotaChange(ALICE_D, remove=GONE), QuotaChange(ALICE_C, RATE)])
    assert store.children("/config/users/alice/clients") == ["c"]
    changes.alter(nodes, [UserChange("alice", SALT)])
    changes.alter(nodes, [QuotaChange(ALICE_C, remove=GONE)])
    assert store.children("/config/users/alice") == []
    assert propagation.image.users == {"alice": SALT}
    assert propagation.image.quotas == {}


def test_a_user_keeps_password_and_quotas_apart(store: EmbeddedStore) -> None:
    changes, nodes, propagation = changes_of(store)
    changes.alter(nodes, [UserChange("alice", SALT)])
    changes.alter(nodes, [QuotaChange(ALICE, RATE)])
    assert propagation.image.users["alice"] == {**SALT, **RATE}
    changes.alter(nodes, [QuotaChange(ALICE, remove=frozenset({"request_percentage"}) | GONE)])
    assert propagation.image.users["alice"] == SALT
    assert list(propagation.image.all_quotas()) == []


def test_a_name_too_long_for_a_node_is_refused(store: EmbeddedStore) -> None:
    changes, nodes, _ = changes_of(store)
    long = QuotaEntity(client_id="c" * 32_000)
    results = changes.alter(nodes, [QuotaChange(long, RATE), QuotaChange(ALICE, RATE)])
    assert codes(results) == [ErrorCode.INVALID_REQUEST, None]


def test_the_first_half_of_a_failed_write_is_published(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, nodes, propagation = changes_of(store)
    original, failures = nodes.write, iter([True])

    def write_half(units: Iterable[Sequence[Operation]]) -> None:
        planned = list(units)
        if next(failures, False):
            original(planned[:1])
            raise MultiError(0, NodeExistsError("/config/x"))
        original(planned)

    monkeypatch.setattr(nodes, "write", write_half)
    assert (
        changes.alter(nodes, [QuotaChange(ALICE_C, RATE), QuotaChange(ALICE_D, RATE)]) == [None] * 2
    )
    assert set(propagation.image.quotas) == {ALICE_C, ALICE_D}
    assert len(user_nodes.notices(store)) == 2


def test_a_store_that_fails_half_way_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = OneBroker(tmp_path)
    controller = broker.start()
    changes = [QuotaChange(ALICE_C, RATE), QuotaChange(ALICE_D, RATE)]
    broker.store.down = True
    failed = wait(lambda done: controller.alter_quotas(changes, done))
    assert codes(failed) == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    broker.store.down = False
    assert wait(lambda done: controller.alter_quotas(changes, done)) == [None] * 2
    assert set(controller.image.quotas) == {ALICE_C, ALICE_D}
    assert set(broker.restart().image.quotas) == {ALICE_C, ALICE_D}
    broker.stop()


def test_notices_of_others_are_followed(store: EmbeddedStore) -> None:
    changes, nodes, propagation = changes_of(store)
    store.create("/config/users/alice")
    store.create("/config/users/alice/clients")
    write(store, "/config/users/alice/clients/c", RATE)
    write(store, "/config/ips/%3A%3A1", {"connection_creation_rate": "5"})
    note(store, 3, "users/alice/clients/c")
    note(store, 4, "ips/%3A%3A1")
    assert changes.notices_came(nodes)
    found = {"connection_creation_rate": "5"}
    assert propagation.image.quotas == {ALICE_C: RATE, QuotaEntity(ip="::1"): found}


def test_a_damaged_node_is_left_out(store: EmbeddedStore) -> None:
    store.create("/config/clients/c", b"{")
    store.create("/config/clients/%FF", b'{"version":1,"config":{"x":"y"}}')
    write(store, "/config/clients/d", {"producer_byte_rate": "many", "consumer_byte_rate": "5"})
    image = changes_of(store)[2].image
    assert list(image.all_quotas()) == [(QuotaEntity(client_id="d"), {"consumer_byte_rate": 5.0})]


def test_other_brokers_get_the_quotas(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, Wire())
    controller = cluster.controller.controller
    changes = [QuotaChange(each, RATE) for each in (ALICE, ALICE_C, QuotaEntity(ip="::1"))]
    assert wait(lambda done: controller.alter_quotas(changes, done)) == [None] * 3
    for broker in cluster.brokers.values():
        other = broker.controller
        eventually(lambda other=other: other.image.quotas == controller.image.quotas)
        eventually(lambda other=other: other.image.users == {"alice": RATE})
    gone = [QuotaChange(ALICE_C, remove=GONE)]
    assert wait(lambda done: controller.alter_quotas(gone, done)) == [None]
    for broker in cluster.brokers.values():
        other = broker.controller
        eventually(lambda other=other: set(other.image.quotas) == {QuotaEntity(ip="::1")})
    stop(cluster)
