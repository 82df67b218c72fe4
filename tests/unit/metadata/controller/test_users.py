"""Users at the controller: written, published, kept; and what others write of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.errors import DataDirectoryError, ErrorCode
from kbroker.limits import NOTICES_KEPT_MAX
from kbroker.metadata.cluster_delta import ClusterDelta
from kbroker.metadata.controller import Controller, user_nodes
from kbroker.metadata.controller.nodes import MetadataNodes
from kbroker.metadata.controller.propagation import Propagation
from kbroker.metadata.controller.user_changes import UserChange, UserChanges, UserResults
from kbroker.metadata.image import EVERY_USER, ClusterImage
from kbroker.metadata.store.base import Check
from kbroker.metadata.store.embedded import EmbeddedStore
from tests.unit.metadata.controller.brokers import Cluster, Wire
from tests.unit.metadata.controller.harness import OneBroker, eventually, wait

SALT = {"SCRAM-SHA-256": "salt=1"}


def alter(controller: Controller, *changes: UserChange) -> UserResults:
    return wait(lambda done: controller.alter_users(changes, done))


def codes(results: UserResults) -> list[ErrorCode | None]:
    return [None if each is None else each.code for each in results]


def stop(cluster: Cluster) -> None:
    for node_id in (3, 2, 1):
        cluster.brokers[node_id].stop()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    store = EmbeddedStore.open(tmp_path)
    folders = ("users", "clients", "ips", "changes")
    for path in ("/config", *(f"/config/{name}" for name in folders), "/controller_epoch"):
        store.create(path)
    yield store
    store.close()


def changes_of(store: EmbeddedStore) -> tuple[UserChanges, MetadataNodes, Propagation]:
    """As in ZooKeeper, with notices."""
    propagation = Propagation(lambda image, delta: [])
    users = UserChanges(propagation, has_notices=True)
    propagation.publish(users.read_into(ClusterImage(), store))
    return users, MetadataNodes(store, Check("/controller_epoch", 0), 1), propagation


def node(store: EmbeddedStore, path: str) -> object:
    return json.loads(store.get(path).data)


def write(store: EmbeddedStore, path: str, config: Mapping[str, str]) -> None:
    """As kafka-configs 3.9 does."""
    data = json.dumps({"version": 1, "config": config}).encode()
    (store.set if store.exists(path) else store.create)(path, data)


def note(store: EmbeddedStore, number: int, entity: str) -> None:
    data = json.dumps({"version": 2, "entity_path": entity}).encode()
    store.create(f"/config/changes/config_change_{number:010d}", data)


# --- a controller ---------------------------------------------------------------------------------


def test_users_are_kept_over_restarts(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path)
    controller = broker.start()
    assert alter(controller, UserChange("alice", SALT), UserChange("b*b", {"x": "y"})) == [None] * 2
    assert controller.image.users == {"alice": SALT, "b*b": {"x": "y"}}
    controller = broker.restart()
    assert controller.image.users == {"alice": SALT, "b*b": {"x": "y"}}
    gone = UserChange("alice", remove=frozenset(SALT))
    assert alter(controller, gone) == [None]
    assert broker.store.children("/config/users") == ["b%2Ab"]
    assert codes(alter(controller, gone)) == [ErrorCode.RESOURCE_NOT_FOUND]
    assert broker.restart().image.users == {"b*b": {"x": "y"}}
    assert broker.store.children("/config/changes") == []  # no other program writes there
    broker.stop()


def test_one_that_fails_does_not_hurt_the_others(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path)
    controller = broker.start()
    results = alter(
        controller,
        UserChange("alice", SALT),
        UserChange("bob", SALT, remove=frozenset({"SCRAM-SHA-512"})),
        UserChange(".", SALT),
        UserChange("carol", SALT),
    )
    expected = [None, ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.INVALID_REQUEST, None]
    assert codes(results) == expected
    assert controller.image.users == {"alice": SALT, "carol": SALT}
    broker.stop()


def test_a_write_that_fails_changes_nothing(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path)
    controller = broker.start()
    broker.store.down = True
    assert codes(alter(controller, UserChange("a", SALT))) == [ErrorCode.KAFKA_STORAGE_ERROR]
    broker.store.down = False
    assert controller.image.users == {}
    broker.stop()


def test_other_brokers_get_the_users(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, Wire())
    controller = cluster.controller.controller
    second = cluster.brokers[2].controller
    assert alter(controller, UserChange("alice", SALT)) == [None]
    eventually(lambda: second.image.users == {"alice": SALT})
    assert alter(controller, UserChange("alice", remove=frozenset(SALT))) == [None]
    eventually(lambda: second.image.users == {})
    stop(cluster)


def test_a_broker_knows_the_users_before_the_controller_reaches_it(tmp_path: Path) -> None:
    """Which may have to log in there."""
    wire = Wire()
    cluster = Cluster(tmp_path, wire)
    assert alter(cluster.controller.controller, UserChange("alice", SALT)) == [None]
    cluster.end(3)
    wire.loses.add(3)
    cluster.start(3, tmp_path)
    assert cluster.brokers[3].controller.image.users == {"alice": SALT}
    stop(cluster)


# --- nodes ----------------------------------------------------------------------------------------


def test_nodes_and_notices_are_as_kafka_writes_them(store: EmbeddedStore) -> None:
    users, nodes, _ = changes_of(store)
    assert users.alter(nodes, [UserChange("a b/c~", SALT), UserChange("bob", SALT)]) == [None] * 2
    assert sorted(store.children("/config/users")) == ["a%20b%2Fc%7E", "bob"]
    assert node(store, "/config/users/bob") == {"version": 1, "config": SALT}
    first = "/config/changes/config_change_0000000000"
    assert node(store, first) == {"version": 2, "entity_path": "users/a%20b%2Fc%7E"}
    assert users.notices_came(nodes)  # its own are not news


def test_settings_that_mean_nothing_here_are_kept(store: EmbeddedStore) -> None:
    write(store, "/config/users/bob", {"producer_byte_rate": "1"})
    users, nodes, propagation = changes_of(store)
    users.alter(nodes, [UserChange("bob", SALT)])
    both = {"producer_byte_rate": "1", **SALT}
    assert propagation.image.users["bob"] == both
    users.alter(nodes, [UserChange("bob", remove=frozenset(SALT))])
    assert node(store, "/config/users/bob") == {
        "version": 1, "config": {"producer_byte_rate": "1"}
    }  # fmt: skip


def test_a_change_builds_on_the_node_and_not_on_the_image(store: EmbeddedStore) -> None:
    users, nodes, propagation = changes_of(store)
    write(store, "/config/users/bob", {"x": "y"})
    users.alter(nodes, [UserChange("bob", SALT)])
    assert propagation.image.users["bob"] == {"x": "y", **SALT}


def test_a_node_with_others_below_it_stays(store: EmbeddedStore) -> None:
    write(store, "/config/users/bob", SALT)
    store.create("/config/users/bob/clients")
    users, nodes, propagation = changes_of(store)
    assert users.alter(nodes, [UserChange("bob", remove=frozenset(SALT))]) == [None]
    assert node(store, "/config/users/bob") == {"version": 1, "config": {}}
    assert propagation.image.users == {}


def test_a_change_that_is_overtaken_begins_again(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    users, nodes, propagation = changes_of(store)
    write(store, "/config/users/bob", {"x": "0"})
    original, times = nodes.write, iter(range(1, 4))

    def write_late(units: object) -> None:
        if (at := next(times, None)) is not None:
            write(store, "/config/users/bob", {"x": str(at)})
        original(units)  # type: ignore[arg-type]

    monkeypatch.setattr(nodes, "write", write_late)
    assert users.alter(nodes, [UserChange("bob", SALT)]) == [None]
    assert propagation.image.users["bob"] == {"x": "3", **SALT}


def test_a_user_that_cannot_be_read_is_left_out(store: EmbeddedStore) -> None:
    write(store, "/config/users/alice", SALT)
    store.create("/config/users/bob", b"{")
    store.create("/config/users/%FF", b'{"version":1,"config":{"x":"y"}}')
    store.create("/config/users/carol", b"")
    users, nodes, propagation = changes_of(store)
    assert propagation.image.users == {"alice": SALT}
    assert codes(users.alter(nodes, [UserChange("bob", SALT)])) == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_the_last_notices_are_kept(store: EmbeddedStore) -> None:
    users, nodes, _ = changes_of(store)
    for at in range(NOTICES_KEPT_MAX + 5):
        users.alter(nodes, [UserChange("bob", {"x": str(at)})])
    assert user_nodes.notices(store) == list(range(5, NOTICES_KEPT_MAX + 5))


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_names(name: str) -> None:
    if name in (".", ".."):
        with pytest.raises(ValueError, match="cannot be stored"):
            user_nodes.user_path(name)
        return
    child = user_nodes.user_path(name).removeprefix("/config/users/")
    assert user_nodes.user_name(child) == name and "/" not in child
    assert name == EVERY_USER or child != "<default>"


def test_the_default_user() -> None:
    assert user_nodes.user_path(EVERY_USER) == "/config/users/<default>"
    assert user_nodes.user_name("<default>") == EVERY_USER
    assert user_nodes.user_name("a+b") == "a b"
    with pytest.raises(DataDirectoryError):
        user_nodes.user_name("%FF")


# --- what others write ----------------------------------------------------------------------------


def test_notices_of_others_are_followed(store: EmbeddedStore) -> None:
    users, nodes, propagation = changes_of(store)
    users.alter(nodes, [UserChange("alice", SALT)])
    write(store, "/config/users/alice", {})
    write(store, "/config/users/b%20b", {"SCRAM-SHA-512": "salt=2"})
    note(store, 5, "users/alice")
    note(store, 6, "users/b%20b")
    note(store, 7, "users/b%20b/clients/c")
    assert users.notices_came(nodes)
    assert propagation.image.users == {"b b": {"SCRAM-SHA-512": "salt=2"}}
    version = propagation.image.version
    assert users.notices_came(nodes) and propagation.image.version == version


def test_a_notice_with_a_lower_number_is_news_too(store: EmbeddedStore) -> None:
    note(store, 500, "users/alice")
    users, nodes, propagation = changes_of(store)
    write(store, "/config/users/bob", SALT)
    note(store, 3, "users/bob")
    assert users.notices_came(nodes)
    assert propagation.image.users == {"bob": SALT}


@pytest.mark.parametrize(
    "entity", ["topics/t", "brokers/1", "clients/", "users//clients/c", "users/%FF", "", "x"]
)
def test_a_notice_about_something_else(store: EmbeddedStore, entity: str) -> None:
    users, nodes, _ = changes_of(store)
    note(store, 0, entity)
    assert not users.notices_came(nodes)
    assert users.notices_came(nodes)


def test_a_notice_that_cannot_be_read(store: EmbeddedStore) -> None:
    users, nodes, _ = changes_of(store)
    store.create("/config/changes/config_change_0000000000", b"\xff")
    store.create("/config/changes/other", b"")
    assert not users.notices_came(nodes)


def test_a_damaged_user_of_a_notice_is_left_out(store: EmbeddedStore) -> None:
    write(store, "/config/users/bob", SALT)
    users, nodes, propagation = changes_of(store)
    store.set("/config/users/bob", b"[]")
    note(store, 0, "users/bob")
    assert users.notices_came(nodes)
    assert propagation.image.users == {}


def test_settings_of_every_user_that_others_change(store: EmbeddedStore) -> None:
    users, nodes, propagation = changes_of(store)
    write(store, "/config/users/<default>", {"x": "y"})
    note(store, 0, "users/<default>")
    assert users.notices_came(nodes)
    assert propagation.image.users == {EVERY_USER: {"x": "y"}}


def test_a_broker_without_an_image_follows_the_users_of_the_store(tmp_path: Path) -> None:
    """The controller logs in there, perhaps with a password that it has not had for long."""
    cluster = Cluster(tmp_path, Wire())
    assert cluster.wire is not None
    cluster.brokers.pop(3).stop()
    cluster.wire.loses.add(3)
    cluster.start(3, tmp_path)
    assert alter(cluster.controller.controller, UserChange("alice", SALT)) == [None]
    eventually(lambda: cluster.brokers[3].controller.image.users == {"alice": SALT})
    stop(cluster)


def test_an_unchanged_user_stays_the_same_object() -> None:
    """There may be 100,000 users, and a change is of one."""
    before = ClusterImage().with_users({"a": SALT, "b": SALT, "c": SALT})
    after = before.with_users({"b": {"x": "y"}, "c": {}, "d": {}})
    assert after.users == {"a": SALT, "b": {"x": "y"}}
    assert after.users["a"] is before.users["a"]
    delta = ClusterDelta.between(before, after)
    assert delta.users == {"b": {"x": "y"}, "c": {}}
    assert ClusterDelta.between(before, before.with_users({"a": dict(SALT)})).users == {}


def test_a_controller_follows_notices_of_others(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, Wire())
    controller, store = cluster.controller.controller, cluster.controller.embedded
    write(store, "/config/users/bob", SALT)
    note(store, 0, "users/bob")
    eventually(lambda: controller.image.users == {"bob": SALT})
    write(store, "/config/users/eve", SALT)
    note(store, 1, "brokers/1")
    eventually(lambda: "eve" in controller.image.users)
    stop(cluster)
