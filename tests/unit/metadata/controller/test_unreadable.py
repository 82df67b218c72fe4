"""A damaged node costs its own content, and a line; everything else goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from kbroker.errors import DataDirectoryError, ErrorCode, KafkaError
from kbroker.metadata.controller import ConfigChange, MorePartitions, NewTopic, records
from kbroker.metadata.controller.config_nodes import load_resource_configs
from kbroker.metadata.controller.events import Reassignment
from kbroker.metadata.controller.nodes import load_brokers
from kbroker.metadata.controller.partition_states import ElectionRules
from kbroker.metadata.image import BrokerImage, ConfigKind, ConfigResource, TopicImage
from kbroker.metadata.store.base import MetadataStore
from kbroker.metadata.store.embedded import EmbeddedStore
from kbroker.types import TopicPartition
from tests.unit.metadata.controller.brokers import Cluster, Wire
from tests.unit.metadata.controller.harness import OneBroker, eventually, wait

DAMAGED = [b"no JSON", b"", b"\xff", b"[]", b'{"version":99}', b'{"version":1}']
PATHS = {
    "topic": records.topic_path("t"),
    "state": records.partition_state_path("t", 0),
    "settings": records.topic_config_path("t"),
}
T = TopicPartition("t", 0)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, Wire())
    made.make(3, 2)
    assert not made.controller.create(NewTopic("u", assignments={0: (3, 2)}))[0].error
    eventually(lambda: all("u" in each.image.topics for each in made.brokers.values()))
    yield made
    for node_id in sorted(made.brokers, reverse=True):
        made.brokers[node_id].stop()


def topic(cluster: Cluster, name: str) -> TopicImage:
    return cluster.controller.image.topics[name]


def reload(broker: OneBroker) -> None:
    """And what was asked before it has been done."""
    broker.controller.reload()
    done: list[None] = []
    broker.controller.in_step(lambda: done.append(None))
    eventually(lambda: bool(done))


@pytest.mark.parametrize("data", DAMAGED)
@pytest.mark.parametrize("what", PATHS)
def test_the_others_are_led_on_and_this_one_stays(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, what: str, data: bytes
) -> None:
    one, path, before = cluster.controller, PATHS[what], topic(cluster, "t")
    if what == "settings" and data == DAMAGED[-1]:
        data = b'{"version":1,"config":{"a":1}}'
    intact = one.embedded.get(path).data
    one.embedded.set(path, data)
    with caplog.at_level(logging.ERROR, "kbroker.controller"):
        reload(one)
    (line,) = [each.getMessage() for each in caplog.records if "topic 't'" in each.getMessage()]
    assert f"metadata node {path} cannot be read" in line and "\n" not in line
    assert topic(cluster, "t") == before
    assert before.topic_id in one.replicas.logs
    cluster.end(3)
    assert topic(cluster, "u").partitions[0].leader == 2
    # Its known state may be old: no leader is elected by that.
    assert topic(cluster, "t").partitions == before.partitions
    assert one.embedded.get(path).data == data
    # Mended and read again, it is as any other.
    one.embedded.set(path, intact)
    reload(one)
    assert topic(cluster, "t").partitions[0].isr == (2,)
    assert topic(cluster, "t").partitions[0].leader == 2


def test_a_request_for_it_is_refused_and_the_others_are_served(cluster: Cluster) -> None:
    one = cluster.controller
    one.embedded.set(PATHS["state"], b"no JSON")
    reload(one)
    storage = ErrorCode.KAFKA_STORAGE_ERROR
    (answer,) = cluster.alter(3, 3)
    assert isinstance(answer, KafkaError) and answer.code is storage
    assert "topic 't' cannot be read" in answer.message
    other = TopicPartition("u", 0)
    elected = wait(lambda done: one.controller.elect_leaders(True, [T, other], done))
    assert [error.code for _, error in elected] == [storage, ErrorCode.ELECTION_NOT_NEEDED]
    moves = [Reassignment(T, (2, 3)), Reassignment(other, (2, 3))]
    moved = wait(lambda done: one.controller.reassign(moves, True, done))
    assert [error and error.code for _, error in moved] == [storage, None]
    before = topic(cluster, "t")
    more = [MorePartitions(name, len(topic(cluster, name).partitions) + 1) for name in ("t", "u")]
    assert [each.error for each in one.grow(*more)] == [storage, ErrorCode.NONE]
    assert topic(cluster, "t") == before


def test_the_next_controller_has_it_from_the_last_one(cluster: Cluster) -> None:
    before = topic(cluster, "t")
    cluster.controller.embedded.set(PATHS["topic"], b"no JSON")
    two, three = cluster.brokers[2], cluster.brokers[3]
    cluster.brokers.pop(1).stop()
    eventually(lambda: two.controller.active or three.controller.active)
    (now,) = [each for each in (two, three) if each.controller.active]
    eventually(lambda: now.image.brokers.keys() == {2, 3})
    assert now.image.topics["t"] == before
    for broker in (two, three):
        assert before.topic_id in broker.replicas.logs
    assert not now.create(NewTopic("v", assignments={0: (2,)}))[0].error


def damage(store: MetadataStore, path: str) -> None:
    store.set(path, b"no JSON")


@pytest.mark.parametrize("what", PATHS)
def test_a_broker_that_starts_without_knowing_a_node_names_it(tmp_path: Path, what: str) -> None:
    """Its logs would be taken for logs of no topic."""
    first = OneBroker(tmp_path, 1)
    first.start()
    first.create(NewTopic("t", partitions=1))
    damage(first.embedded, PATHS[what])
    first.stop()
    again = OneBroker(tmp_path, 1)
    with pytest.raises(DataDirectoryError, match=f"metadata node {PATHS[what]} cannot be read"):
        again.start()
    again.stop()


def test_settings_that_were_known_stay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = EmbeddedStore.open(tmp_path)
    resource = ConfigResource(ConfigKind.BROKER, "1")
    path = records.config_path(resource)
    store.ensure(path)
    damage(store, path)
    with pytest.raises(DataDirectoryError, match=f"metadata node {path} cannot be read"):
        load_resource_configs(store, [ConfigKind.BROKER])
    known = {resource: {"a": "b"}}
    assert load_resource_configs(store, [ConfigKind.BROKER], known) == known
    assert f"settings stay as they were: metadata node {path}" in caplog.text
    store.close()


def test_another_setting_of_it_writes_its_node_anew(cluster: Cluster) -> None:
    one = cluster.controller
    one.embedded.set(PATHS["settings"], b"no JSON")
    reload(one)
    altered = wait(
        lambda done: one.controller.alter_topic_configs(
            [ConfigChange("t", set={"retention.ms": "1"})], False, done
        )
    )
    assert altered[0].error is ErrorCode.NONE
    data = one.embedded.get(PATHS["settings"]).data
    assert records.decode_configs(PATHS["settings"], data) == {"retention.ms": "1"}


@pytest.mark.parametrize("holds_it", [True, False])
def test_a_lossy_start_leaves_the_sets_of_a_topic_when_it_can_be_read(
    cluster: Cluster, tmp_path: Path, holds_it: bool
) -> None:
    """It stays lossy until then, and does not say that it is known; not for others' topics."""
    cluster.rules = ElectionRules(min_in_sync=2)
    one, noted = cluster.controller, Mock()
    if not holds_it:
        cluster.end(2)
        assert not one.create(NewTopic("of-others", assignments={0: (1,)}))[0].error
    name = "t" if holds_it else "of-others"
    path = records.partition_state_path(name, 0)
    intact = one.embedded.get(path).data
    one.embedded.set(path, b"no JSON")
    reload(one)
    first, second = cluster.brokers[3], OneBroker(tmp_path, 3)
    cluster.brokers[3] = second
    first.store.down = True  # its process is dead, and its session has not ended
    second.start(
        first.embedded.new_session(),
        locks=lambda: ["d3"],
        broker=BrokerImage(3, lossy=True),
        start_is_known=noted,
        transport=cluster.wire,
        renew=second.next_session,
    )
    eventually(lambda: cluster.epochs().get(3) == second.controller.broker_epoch)
    first.embedded.expire()
    first.stop()
    eventually(lambda: "u" in second.image.topics)
    if not holds_it:
        eventually(lambda: noted.called)
        return
    assert topic(cluster, "u").partitions[0].isr == (2,)
    cluster.alter(2, 2, 3, topic_name="u")
    reload(one)  # what it left already is not left again
    assert topic(cluster, "u").partitions[0].isr == (3, 2)
    assert not noted.called and load_brokers(one.embedded)[2].lossy
    one.embedded.set(path, intact)
    reload(one)
    assert topic(cluster, "t").partitions[0].isr == (2,)
    assert topic(cluster, "t").partitions[0].leader == 2
    eventually(lambda: noted.called)
    assert not load_brokers(one.embedded)[2].lossy
