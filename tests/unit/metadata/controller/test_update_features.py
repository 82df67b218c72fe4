"""UpdateFeatures at the controller: written, published, sent to the other brokers, kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import DataDirectoryError, ErrorCode, KafkaError
from kbroker.metadata.controller import Controller, own_nodes
from kbroker.metadata.controller.feature_changes import FeatureUpdate, UpgradeType
from kbroker.metadata.controller.own_nodes import FEATURES, load_features
from kbroker.metadata.controller.records import broker_path
from kbroker.metadata.controller.registration import register
from kbroker.metadata.features import TRANSACTION_VERSION, Supported, supported
from kbroker.metadata.image import NO_BROKER_EPOCH, BrokerImage
from kbroker.metadata.store.base import MetadataStore, Operation
from kbroker.metadata.store.embedded import EmbeddedStore
from tests.unit.metadata.controller.brokers import Cluster, Wire, agree, follow
from tests.unit.metadata.controller.harness import OneBroker, eventually, wait

OURS = BrokerImage(0, features=supported())


def update(
    controller: Controller, level: int, kind: int = UpgradeType.UPGRADE, *, dry: bool = False
) -> KafkaError | None:
    updates = [FeatureUpdate(TRANSACTION_VERSION, level, kind)]
    return wait(lambda done: controller.update_features(updates, dry, done))


def test_a_level_is_kept_over_restarts_and_its_epoch_only_grows(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path)
    controller = broker.start(broker=OURS)
    epoch = controller.image.features.epoch
    assert controller.image.features.level(TRANSACTION_VERSION) == 2  # of a new cluster
    for level, kind in ((1, UpgradeType.SAFE_DOWNGRADE), (2, UpgradeType.UPGRADE)):
        assert update(controller, level, kind) is None
        features = controller.image.features
        assert features.level(TRANSACTION_VERSION) == level
        assert features.epoch > epoch
        epoch = features.epoch
        assert own_nodes.load_features(broker.store) == features
        controller = broker.restart(broker=OURS)
        assert controller.image.features == features
    assert update(controller, 1, UpgradeType.SAFE_DOWNGRADE) is None
    assert controller.image.features.epoch == epoch + 1
    broker.stop()


def test_an_update_that_is_only_validated_is_not_written(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path)
    controller = broker.start(broker=OURS)
    before, writes = controller.image, broker.store.writes
    assert update(controller, 1, UpgradeType.SAFE_DOWNGRADE, dry=True) is None
    assert (controller.image, broker.store.writes) == (before, writes)
    refused = update(controller, 3, dry=True)
    assert refused is not None and refused.code is ErrorCode.INVALID_UPDATE_VERSION
    broker.stop()


def test_a_write_that_fails_changes_nothing(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path)
    controller = broker.start(broker=OURS)
    before = controller.image.features
    broker.store.die_at = broker.store.writes + 1
    failed = update(controller, 1, UpgradeType.SAFE_DOWNGRADE)
    assert failed is not None and failed.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert controller.image.features == before
    controller = broker.restart(broker=OURS)
    assert controller.image.features == before
    broker.stop()


def test_a_broker_of_an_earlier_kbroker_forbids_a_level(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path)
    controller = broker.start()  # it registers no features
    refused = update(controller, 1)
    assert refused is not None
    assert "Broker 0 does not support this feature." in refused.message
    broker.stop()


class Supporting(OneBroker):
    """A broker that registers the levels that it supports."""

    def start(self, store: EmbeddedStore | None = None, **options: Any) -> Controller:
        broker = BrokerImage(self.node_id, features=supported())
        return super().start(store, **{"broker": broker, **options})


OLDER = BrokerImage(2, features=(Supported(TRANSACTION_VERSION, 0, 1),))


def lowered(tmp_path: Path) -> OneBroker:
    """A controller, and a level that a broker has that comes."""
    broker = OneBroker(tmp_path)
    assert update(broker.start(broker=OURS), 1, UpgradeType.SAFE_DOWNGRADE) is None
    return broker


def older_check(store: MetadataStore) -> None:
    if load_features(store).level(TRANSACTION_VERSION) > 1:
        raise DataDirectoryError("a level is too high", "start a later kbroker")


def test_a_level_is_not_raised_over_a_broker_that_is_not_published_yet(tmp_path: Path) -> None:
    broker = lowered(tmp_path)
    late = broker.embedded.new_session()
    answered: list[KafkaError | None] = []

    def ask() -> None:  # on the controller's thread: it sees the broker after this
        register(late, OLDER, set(), 1, older_check)
        updates = [FeatureUpdate(TRANSACTION_VERSION, 2, UpgradeType.UPGRADE)]
        broker.controller.update_features(updates, False, answered.append)

    broker.controller.in_step(ask)
    eventually(lambda: bool(answered))
    assert answered[0] is not None and "Broker 2 only supports versions 0-1" in answered[0].message
    late.close()
    broker.stop()


def test_of_a_level_and_a_broker_that_come_at_once_one_sees_the_other(tmp_path: Path) -> None:
    """The level is written after the broker has looked at it: it is taken back."""
    broker = lowered(tmp_path)
    late, multi = broker.embedded.new_session(), broker.store.multi
    before = broker.image.features

    def registers_first(operations: Sequence[Operation]) -> list[int]:
        if any(each.path == FEATURES for each in operations) and not late.exists(broker_path(2)):
            register(late, OLDER, set(), 1, older_check)
        return multi(operations)

    broker.store.multi = registers_first  # type: ignore[method-assign]
    refused = update(broker.controller, 2)
    assert refused is not None and "Broker 2 only supports versions 0-1" in refused.message
    features = load_features(late)
    assert features.levels == before.levels and features.epoch > before.epoch
    assert broker.image.features == features
    late.close()
    broker.stop()


def test_a_broker_that_registers_again_does_so_when_it_has_the_levels(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wire = Wire()
    cluster = Cluster(tmp_path, wire, Supporting)
    one, three = cluster.controller, OneBroker(tmp_path, 3)
    cluster.end(3)
    assert update(one.controller, 1, UpgradeType.SAFE_DOWNGRADE) is None
    cluster.brokers[3] = three
    three.start(
        one.embedded.new_session(), broker=replace(OLDER, node_id=3), check=older_check,
        transport=wire.end_of(3), renew=three.next_session, locks=lambda: ["d3"],
    )  # fmt: skip
    follow(cluster)
    three.store_is_away = True
    three.embedded.expire()
    eventually(lambda: 3 not in cluster.epochs())
    assert update(one.controller, 2) is None
    three.store_is_away = False
    said = "broker 3 is not registered, and tries again: KB1004 a level is too high"
    eventually(lambda: (wire.pauses_end(), said in caplog.text)[1])
    assert three.controller.broker_epoch == NO_BROKER_EPOCH
    assert 3 not in cluster.epochs()
    assert update(one.controller, 1, UpgradeType.SAFE_DOWNGRADE) is None
    eventually(lambda: (wire.pauses_end(), 3 in cluster.epochs())[1])
    for node_id in (3, 2, 1):
        cluster.brokers[node_id].stop()


def test_a_level_reaches_the_other_brokers_and_the_next_controller(tmp_path: Path) -> None:
    wire = Wire()
    cluster = Cluster(tmp_path, wire, Supporting)
    assert update(cluster.controller.controller, 1, UpgradeType.SAFE_DOWNGRADE) is None
    assert update(cluster.controller.controller, 2) is None
    follow(cluster)
    features = cluster.controller.image.features
    one, two, three = (cluster.brokers[node_id] for node_id in (1, 2, 3))
    assert two.image.features == three.image.features == features
    one.store_is_away = True  # so that it does not come back
    one.embedded.expire()
    eventually(lambda: two.controller.active or three.controller.active)
    eventually(lambda: agree(two.image, three.image) and 1 not in two.image.brokers)
    assert two.image.features == three.image.features == features
    active, other = (two, three) if two.controller.active else (three, two)
    assert update(other.controller, 1, UpgradeType.SAFE_DOWNGRADE) is not None
    assert update(active.controller, 1, UpgradeType.SAFE_DOWNGRADE) is None
    eventually(lambda: agree(two.image, three.image))
    assert other.image.features.epoch == features.epoch + 1
    assert other.image.features.level(TRANSACTION_VERSION) == 1
    for node_id in (3, 2, 1):
        cluster.brokers[node_id].stop()
