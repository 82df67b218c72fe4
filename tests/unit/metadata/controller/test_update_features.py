"""UpdateFeatures at the controller: written, published, sent to the other brokers, kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller import Controller, own_nodes
from kbroker.metadata.controller.feature_changes import FeatureUpdate, UpgradeType
from kbroker.metadata.features import TRANSACTION_VERSION, supported
from kbroker.metadata.image import BrokerImage
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
