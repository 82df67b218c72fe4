"""Finalized features: raised once, kept over restarts and controllers, and what forbids it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kbroker.errors import DataDirectoryError, ErrorCode, KafkaError
from kbroker.metadata.controller import own_nodes, records
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.controller.feature_changes import FeatureUpdate, UpgradeType, plan_features
from kbroker.metadata.controller.skeleton import ensure_skeleton
from kbroker.metadata.features import (
    FEATURES,
    GROUP_VERSION,
    SHARE_VERSION,
    TRANSACTION_VERSION,
    FeatureLevels,
    FinalizedFeatures,
    Supported,
    first_features,
    supported,
)
from kbroker.metadata.formats import Format
from kbroker.metadata.image import BrokerImage, ClusterImage, new_uuid
from kbroker.metadata.store.embedded import EmbeddedStore
from tests.unit.metadata.controller.harness import OneBroker

# Of a tree that a broker of Apache Kafka 3.9 has made.
FOLDERS_OF_KAFKA_3_9 = (
    "/admin/delete_topics", "/brokers/ids", "/brokers/seqid", "/brokers/topics", "/cluster",
    "/config/brokers", "/config/changes", "/config/clients", "/config/ips", "/config/topics",
    "/config/users", "/consumers", "/isr_change_notification", "/latest_producer_id_block",
    "/log_dir_event_notification",
)  # fmt: skip

UP, DOWN, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE


def image_of(level: int, *brokers: BrokerImage, state_topic: bool = False) -> ClusterImage:
    image = ClusterImage().with_brokers(brokers or (BrokerImage(1, features=supported()),))
    if level:
        image = image.with_features(FinalizedFeatures().changed({TRANSACTION_VERSION: level}))
    if state_topic:
        topic = new_topic_image("__transaction_state", new_uuid(), [(1,)], {})
        image = image.with_topics([topic])
    return image


def plan(image: ClusterImage, level: int, kind: int = UP) -> dict[str, int] | str:
    try:
        return plan_features(image, [FeatureUpdate(TRANSACTION_VERSION, level, kind)])
    except KafkaError as error:
        assert error.code is ErrorCode.INVALID_UPDATE_VERSION
        return error.message


def test_every_change_is_an_epoch_and_level_0_is_not_listed() -> None:
    features = FinalizedFeatures()
    for epoch, level in enumerate((1, 2, 1, 0), start=1):
        features = features.changed({TRANSACTION_VERSION: level})
        assert features.epoch == epoch
        assert dict(features.levels) == ({TRANSACTION_VERSION: level} if level else {})
        assert features.level(TRANSACTION_VERSION) == level


def test_a_level_that_is_there_is_no_change() -> None:
    assert plan(image_of(2), 2) == {}
    assert plan(image_of(2), 2, DOWN) == {}
    assert plan(image_of(0), 2) == {TRANSACTION_VERSION: 2}


def test_every_broker_must_support_the_level() -> None:
    old = BrokerImage(2)
    lower = BrokerImage(3, features=(Supported(TRANSACTION_VERSION, 0, 1),))
    ours = BrokerImage(1, features=supported())
    assert "Broker 2 does not support this feature." in plan(image_of(0, ours, old), 1)
    assert plan(image_of(0, ours, lower), 1) == {TRANSACTION_VERSION: 1}
    assert "Broker 3 only supports versions 0-1" in plan(image_of(0, ours, lower), 2)


def test_records_forbid_level_0() -> None:
    assert plan(image_of(2), 0, DOWN) == {TRANSACTION_VERSION: 0}
    with_records = image_of(2, state_topic=True)
    assert plan(with_records, 1, DOWN) == {TRANSACTION_VERSION: 1}
    for kind in (DOWN, UNSAFE):
        assert "__transaction_state have the format of level 2" in plan(with_records, 0, kind)


def test_features_that_are_not_here_end_at_0() -> None:
    here = [each.name for each in FEATURES if each.highest]
    assert here == [GROUP_VERSION, SHARE_VERSION, TRANSACTION_VERSION]
    assert all(len(each.levels) == each.highest for each in FEATURES)


def test_a_new_cluster_begins_at_the_newest_level(tmp_path: Path) -> None:
    first = first_features()
    assert (first.epoch, first.level(TRANSACTION_VERSION)) == (1, 2)
    store = EmbeddedStore.open(tmp_path)
    ensure_skeleton(store, "c")
    assert own_nodes.load_features(store) == first_features()
    store.close()


def test_the_tree_of_apache_kafka_begins_at_level_0(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path)
    for path in FOLDERS_OF_KAFKA_3_9:
        store.ensure(path)
    cluster_id = "X3aIeG17QkmxgHxb_xwpTg"
    store.create(records.CLUSTER_ID, records.encode_cluster_id(cluster_id))
    store.create(records.CONTROLLER_EPOCH, records.encode_controller_epoch(7))
    broker = OneBroker(tmp_path)
    image = broker.start(store).image
    assert image.cluster_id == cluster_id
    assert image.features == FinalizedFeatures()
    broker.stop()


def test_nodes_are_read_back(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path)
    assert own_nodes.load_features(store) == FinalizedFeatures()
    for level in (2, 1, 0):
        features = replace(FinalizedFeatures(), epoch=10 - level).changed(
            {TRANSACTION_VERSION: level}
        )
        store.multi(own_nodes.writing(store, features))
        assert own_nodes.load_features(store) == features
    assert own_nodes.load_formats(store) == ({}, "")
    low = {Format.NODES: 1, Format.INTERNAL_TOPICS: 0}
    assert own_nodes.raise_formats(store, low, "0.1.0")
    assert not own_nodes.raise_formats(store, low, "0.2.0")
    assert own_nodes.raise_formats(store, {Format.BETWEEN_BROKERS: 3}, "0.2.0")
    numbers, written_by = own_nodes.load_formats(store)
    assert written_by == "0.2.0"
    assert numbers == {Format.NODES: 1, Format.INTERNAL_TOPICS: 0, Format.BETWEEN_BROKERS: 3}
    store.close()


@pytest.mark.parametrize(
    "data",
    [
        b"{}", b"[]", b"", b'{"version":2}', b'{"version":1,"epoch":"1"}',
        b'{"version":1,"epoch":"-1","levels":{}}', b'{"version":1,"epoch":"1","levels":{"a":0}}',
        b'{"version":1,"epoch":"1","levels":{"a":"1"}}',
        b'{"version":1,"epoch":"1","levels":{"a":40000}}',
    ],
)  # fmt: skip
def test_damaged_nodes_are_refused(data: bytes) -> None:
    with pytest.raises(DataDirectoryError):
        own_nodes.decode_features(own_nodes.FEATURES, data)


@pytest.mark.parametrize(
    "data",
    [b"{}", b'{"version":1,"numbers":{"nodes":-1},"written_by":""}', b'{"version":1,"numbers":{}}'],
)
def test_damaged_formats_are_refused(data: bytes) -> None:
    with pytest.raises(DataDirectoryError):
        own_nodes.decode_formats(own_nodes.FORMATS, data)


def test_a_registration_has_the_supported_levels() -> None:
    data = records.encode_broker(BrokerImage(1, "h", 9, features=supported()), 0)
    assert b'"transaction.version":{"min_version":0,"max_version":2}}' in data
    assert records.decode_broker("/brokers/ids/1", data).features == supported()
    with pytest.raises(DataDirectoryError, match="no range"):
        records.decode_broker("/brokers/ids/1", data.replace(b"min_version", b"lowest"))


def test_levels_of_the_published_image() -> None:
    image = image_of(0)
    levels = FeatureLevels(lambda: image)
    assert levels.level(TRANSACTION_VERSION) == 0
    image = image_of(2)
    assert levels.level(TRANSACTION_VERSION) == 2
