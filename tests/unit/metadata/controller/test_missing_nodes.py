"""A tree that lacks nodes, or has others than the controller's: as a controller of Apache Kafka or
a removal by hand leaves it that was cut."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller import NewTopic, records
from kbroker.metadata.controller.config_nodes import load_resource_configs
from kbroker.metadata.controller.directory_nodes import load_replicas
from kbroker.metadata.image import ConfigKind, ConfigResource
from kbroker.metadata.store.base import Delete, MetadataStore
from kbroker.metadata.store.embedded import EmbeddedStore
from tests.unit.metadata.controller.brokers import Cluster, Wire
from tests.unit.metadata.controller.harness import OneBroker, eventually
from tests.unit.metadata.controller.test_unreadable import reload

FOLDER = records.partitions_path("t")
PARTITION, STATE = records.partition_path("t", 0), records.partition_state_path("t", 0)
# The nodes that are not there.
CUTS = {"folder": (STATE, PARTITION, FOLDER), "partition": (STATE, PARTITION), "state": (STATE,)}


def cut(store: MetadataStore, what: str) -> None:
    store.multi([Delete(path) for path in CUTS[what]])


@pytest.mark.parametrize("what", CUTS)
def test_a_start_makes_the_missing_nodes(tmp_path: Path, what: str) -> None:
    broker = OneBroker(tmp_path)
    broker.start()
    assert not broker.create(NewTopic("t", partitions=1))[0].error
    cut(broker.embedded, what)
    broker.restart()
    assert broker.image.topics["t"].partitions[0].leader == 0
    assert broker.embedded.exists(STATE)
    broker.stop()


@pytest.mark.parametrize("what", CUTS)
def test_leaders_of_the_others_are_elected(tmp_path: Path, what: str) -> None:
    cluster = Cluster(tmp_path, Wire())
    cluster.make(3, 2)
    one = cluster.controller
    assert not one.create(NewTopic("u", assignments={0: (3, 2)}))[0].error
    cut(one.embedded, what)
    cluster.end(3)
    assert one.image.topics["u"].partitions[0].leader == 2
    reload(one)
    assert one.embedded.exists(STATE)
    for node_id in sorted(cluster.brokers, reverse=True):
        cluster.brokers[node_id].stop()


@pytest.mark.parametrize("what", CUTS)
def test_the_topic_can_be_deleted(tmp_path: Path, what: str) -> None:
    broker = OneBroker(tmp_path)
    broker.start()
    broker.create(NewTopic("t", partitions=1), NewTopic("u", partitions=1))
    cut(broker.embedded, what)
    assert not broker.delete("t")[0].error
    assert [*broker.image.topics] == ["u"]
    assert broker.embedded.children(records.TOPICS) == ["u"]
    assert not broker.embedded.children(records.DELETED_TOPICS)
    broker.stop()


@pytest.mark.parametrize("what", CUTS)
def test_its_deletion_is_finished(tmp_path: Path, what: str) -> None:
    broker = OneBroker(tmp_path)
    broker.start()
    broker.create(NewTopic("t", partitions=1), NewTopic("u", partitions=1))
    topic_id = broker.image.topics["t"].topic_id
    tombstone = records.encode_tombstone("t", 1)
    broker.embedded.create(records.tombstone_path(topic_id), tombstone)
    cut(broker.embedded, what)
    broker.restart()
    assert [*broker.image.topics] == ["u"]
    assert broker.embedded.children(records.TOPICS) == ["u"]
    assert not broker.embedded.children(records.DELETED_TOPICS)
    broker.stop()


def test_a_known_partition_goes_on_as_it_was(tmp_path: Path) -> None:
    """Replicas that are not in sync do not become so, and its leader epochs go on."""
    cluster = Cluster(tmp_path, Wire())
    cluster.make(3, 2)
    one = cluster.controller
    cluster.end(3)
    before = cluster.state
    assert before.isr == (2,)
    cut(one.embedded, "folder")
    reload(one)
    assert (cluster.state.isr, cluster.state.leader) == ((2,), 2)
    assert cluster.state.leader_epoch == before.leader_epoch + 1
    assert records.decode_partition(STATE, one.embedded.get(STATE).data).isr == (2,)
    assert not isinstance(cluster.alter(2, 2)[0], KafkaError)
    for node_id in sorted(cluster.brokers, reverse=True):
        cluster.brokers[node_id].stop()


def half_deleted(broker: OneBroker) -> None:
    """The deletion has begun, and below a partition is a node that is not the controller's."""
    topic_id = broker.image.topics["t"].topic_id
    broker.embedded.create(f"{PARTITION}/other")
    broker.embedded.create(records.tombstone_path(topic_id), records.encode_tombstone("t", 1))


def test_a_topic_that_cannot_be_removed_stays_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(tmp_path, Wire())
    cluster.make(3, 2)
    one, before = cluster.controller, cluster.controller.image.topics["t"]
    assert not one.create(NewTopic("u", assignments={0: (3, 2)}))[0].error
    half_deleted(one)
    with caplog.at_level(logging.ERROR, "kbroker.controller"):
        reload(one)
    said = f"NotEmptyError: {PARTITION}"
    assert f"topic 't' stays as it is, and nothing of it is changed: {said}" in caplog.text
    assert one.image.topics["t"] == before
    assert one.delete("t")[0].error is ErrorCode.UNKNOWN_SERVER_ERROR
    cluster.end(3)
    assert one.image.topics["u"].partitions[0].leader == 2
    one.embedded.delete(f"{PARTITION}/other")
    reload(one)
    eventually(lambda: "t" not in one.image.topics)
    assert not one.embedded.children(records.DELETED_TOPICS)
    for node_id in sorted(cluster.brokers, reverse=True):
        cluster.brokers[node_id].stop()


def test_a_start_leaves_it_out(tmp_path: Path) -> None:
    """It does not come back, and its node is there until it can be removed."""
    broker = OneBroker(tmp_path)
    broker.start()
    broker.create(NewTopic("t", partitions=1), NewTopic("u", partitions=1))
    half_deleted(broker)
    broker.restart()
    assert [*broker.image.topics] == ["u"]
    broker.embedded.delete(f"{PARTITION}/other")
    reload(broker)
    assert broker.embedded.children(records.TOPICS) == ["u"]
    broker.stop()


def odd_child(path: str) -> Callable[[MetadataStore], None]:
    return lambda store: store.create(path, b'{"version":1,"config":{}}')


def test_settings_of_no_broker_are_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker = OneBroker(tmp_path)
    broker.start()
    path = f"{records.CONFIG_FOLDERS[ConfigKind.BROKER]}/one"
    odd_child(path)(broker.embedded)
    reload(broker)
    assert not broker.create(NewTopic("u", partitions=1))[0].error
    broker.restart()
    assert [*broker.image.topics] == ["u"]
    assert f"settings of no broker, remove their node: metadata node {path}" in caplog.text
    broker.stop()


def test_settings_beside_them_are_read(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path)
    resource = ConfigResource(ConfigKind.BROKER, "1")
    store.ensure(records.CONFIG_FOLDERS[ConfigKind.BROKER])
    store.create(records.config_path(resource), records.encode_configs({"a": "b"}))
    odd_child(f"{records.CONFIG_FOLDERS[ConfigKind.BROKER]}/one")(store)
    assert load_resource_configs(store) == {resource: {"a": "b"}}
    assert not list(load_replicas(store))
    store.close()
