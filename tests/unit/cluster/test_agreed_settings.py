"""Settings in which the brokers of a cluster should agree: registered, compared, reported."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kbroker.cluster.agreed_settings import warn_of_differences
from kbroker.config import BrokerConfig
from kbroker.config.agreed import AGREED, SECRETS, agreed_settings, same_text
from kbroker.config.definition import BROKER_KEYS
from kbroker.config.key import READ_ONLY
from kbroker.metadata.controller import records
from kbroker.metadata.controller.skeleton import ensure_skeleton
from kbroker.metadata.image import (
    BrokerEndpoint,
    BrokerImage,
    ClusterImage,
    ConfigKind,
    ConfigResource,
)
from kbroker.metadata.store.embedded import EmbeddedStore
from kbroker.security.secret_fingerprint import fingerprint
from kbroker.server.advertised import Advertised, secrets_of
from kbroker.server.dynamic_config import DynamicConfig
from tests.support.source_tree import ROOT

MIN_IN_SYNC = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
CLUSTER = "zookeeper.connect=127.0.0.1:2181"


# Settings of coordinators that one broker may have for itself: buffers, pauses of its own work.
BY_BROKER = {
    "transaction.state.log.load.buffer.size",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    "share.coordinator.state.topic.prune.interval.ms",
    "group.consumer.regex.refresh.interval.ms",
    "group.share.initialize.retry.interval.ms",
    "group.share.max.share.sessions",
    "group.share.assignors",  # one is accepted
}
COORDINATORS = (
    "group.consumer.", "group.share.", "group.streams.", "share.coordinator.state.topic.",
    "transaction.", "transactional.", "group.coordinator.rebalance.",
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    made = EmbeddedStore.open(tmp_path)
    ensure_skeleton(made, CLUSTER_ID)
    yield made
    made.close()


def register(store: EmbeddedStore, node_id: int, *overrides: str) -> None:
    config = BrokerConfig.load(overrides=[f"node.id={node_id}", CLUSTER, *overrides])
    bound = {name: [("127.0.0.1", 9092)] for name in config.listeners.names}
    broker = Advertised(config.listeners).broker(config, bound, lossy=False)
    secrets = secrets_of(config)(CLUSTER_ID).items()
    broker = replace(broker, settings=(*broker.settings, *secrets))
    path = records.broker_path(node_id)
    store.create(path, records.encode_broker(broker, 1), ephemeral=True)


def lines(store: EmbeddedStore, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What broker 1 says."""
    caplog.clear()
    warn_of_differences(store, 1)
    assert {record.levelno for record in caplog.records} <= {logging.WARNING}
    return [record.getMessage() for record in caplog.records]


def test_brokers_that_differ_are_named_with_both_values(
    store: EmbeddedStore, caplog: pytest.LogCaptureFixture
) -> None:
    register(store, 1, f"{MIN_IN_SYNC}=2")
    assert lines(store, caplog) == []  # alone
    register(store, 2, f"{MIN_IN_SYNC}=2")
    assert lines(store, caplog) == []
    register(store, 3, f"{MIN_IN_SYNC}=1", "log.retention.hours=1")
    register(store, 4)
    minimum, retention = lines(store, caplog)
    assert minimum.startswith(f"brokers differ in {MIN_IN_SYNC}: 2 here, 1 at 3, 4;")
    assert f"in log.retention.ms: {7 * 24 * 3_600_000} here, 3600000 at 3;" in retention


def test_a_setting_made_at_run_time_counts(
    store: EmbeddedStore, caplog: pytest.LogCaptureFixture
) -> None:
    register(store, 1, f"{MIN_IN_SYNC}=2")
    register(store, 2)
    every, two = (ConfigResource(ConfigKind.BROKER, name) for name in ("", "2"))
    store.create(records.config_path(every), records.encode_configs({MIN_IN_SYNC: " 3"}))
    assert lines(store, caplog) == []
    store.create(records.config_path(two), records.encode_configs({UNCLEAN: "TRUE"}))
    (line,) = lines(store, caplog)
    assert f"{UNCLEAN}: false here, true at 2;" in line


def test_settings_by_which_coordinators_decide_are_compared(
    store: EmbeddedStore, caplog: pytest.LogCaptureFixture
) -> None:
    register(store, 1)
    register(store, 2, "group.coordinator.rebalance.protocols=classic,share")
    register(store, 3, "transaction.state.log.min.isr=1", "group.share.max.delivery.count.limit=9")
    kinds, deliveries, minimum = lines(store, caplog)
    assert "protocols: classic,consumer,streams here, classic,share at 2;" in kinds
    assert "group.share.max.delivery.count.limit: 10 here, 9 at 3;" in deliveries
    assert "transaction.state.log.min.isr: 2 here, 1 at 3;" in minimum


def test_each_setting_of_a_coordinator_is_compared_or_is_a_brokers_own() -> None:
    keys = {
        name for name, key in BROKER_KEYS.items() if key.supported and name.startswith(COORDINATORS)
    }
    assert keys - {*AGREED} == BY_BROKER


def test_brokers_with_other_secrets_are_named_and_no_secret_is(
    store: EmbeddedStore, caplog: pytest.LogCaptureFixture
) -> None:
    encoder, tokens = SECRETS
    register(store, 1, f"{encoder}=geheim", f"{tokens}=of-tokens")
    register(store, 2, f"{encoder}=geheim", f"{tokens}=of-tokens")
    assert lines(store, caplog) == []
    register(store, 3, f"{encoder}=anders", f"{tokens}=of-tokens")
    register(store, 4, f"{tokens}=of-tokens")
    (line,) = lines(store, caplog)
    ours, theirs = (fingerprint(text, encoder, CLUSTER_ID) for text in ("geheim", "anders"))
    assert f"{encoder}: {ours} here, {theirs} at 3, unset at 4;" in line
    assert "geheim" not in store.get(records.broker_path(1)).data.decode()
    # One that registers without them is passed by, as brokers of an earlier kbroker do.
    store.delete(records.broker_path(3))
    broker = records.decode_broker(records.broker_path(1), store.get(records.broker_path(1)).data)
    early = replace(broker, node_id=3, settings=((MIN_IN_SYNC, "1"),))
    store.create(records.broker_path(3), records.encode_broker(early, 1), ephemeral=True)
    assert "at 3" not in "".join(lines(store, caplog))


def test_a_fingerprint_says_little_and_is_of_its_cluster() -> None:
    made = fingerprint("geheim", SECRETS[0], CLUSTER_ID)
    assert re.fullmatch("fingerprint [0-9a-f]{5}", made)
    assert made == fingerprint("geheim", SECRETS[0], CLUSTER_ID)
    others = [
        fingerprint("geheim", SECRETS[1], CLUSTER_ID),
        fingerprint("geheim", SECRETS[0], "B" * 22),
        fingerprint("", SECRETS[0], CLUSTER_ID),
    ]
    assert made not in others
    assert secrets_of(BrokerConfig.load(overrides=[f"{SECRETS[0]}=x"]))(CLUSTER_ID) == {}


def test_racks_and_listeners_are_compared(
    store: EmbeddedStore, caplog: pytest.LogCaptureFixture
) -> None:
    register(store, 1, "broker.rack=a")
    register(store, 2, "broker.rack=b")
    assert lines(store, caplog) == []
    register(
        store,
        3,
        "listeners=INSIDE://127.0.0.1:9092",
        "listener.security.protocol.map=INSIDE:PLAINTEXT",
        "inter.broker.listener.name=INSIDE",
    )
    rack, inside, names = lines(store, caplog)
    assert "whether broker.rack is set: yes here, no at 3;" in rack
    assert "inter.broker.listener.name: PLAINTEXT here, INSIDE at 3;" in inside
    assert "the names of listeners: PLAINTEXT here, INSIDE at 3;" in names


def test_a_broker_that_does_not_publish_its_settings_is_passed_by(
    store: EmbeddedStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Brokers of an earlier kbroker, and what cannot be read."""
    register(store, 1, f"{MIN_IN_SYNC}=2")
    old = BrokerImage(2, "h", 9092, endpoints=(BrokerEndpoint("PLAINTEXT", "h", 9092),))
    store.create(records.broker_path(2), records.encode_broker(old, 1), ephemeral=True)
    data = store.get(records.broker_path(1)).data
    for node_id, damaged in (
        (3, b"?"),
        (4, data.replace(b'"settings":{', b'"settings":{"x":[],')),
    ):
        store.create(records.broker_path(node_id), damaged, ephemeral=True)
    assert lines(store, caplog) == []
    store.delete(records.broker_path(1))
    register(store, 1, "broker.rack=a")
    assert len(lines(store, caplog)) == 1


def test_a_registration_with_settings_is_read_like_one_without(store: EmbeddedStore) -> None:
    register(store, 1)
    path = records.broker_path(1)
    data = store.get(path).data
    assert records.decode_broker_settings(path, data)[MIN_IN_SYNC] == "1"
    assert records.decode_broker(path, data).settings == ()
    assert len(data) < 6_000


def test_a_broker_that_is_alone_registers_with_none() -> None:
    config = BrokerConfig.load()
    bound = {"PLAINTEXT": [("127.0.0.1", 9092)]}
    broker = Advertised(config.listeners).broker(config, bound, lossy=False)
    assert broker.settings == () and b"settings" not in records.encode_broker(broker, 1)


def test_a_setting_of_one_broker_alone_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    dynamic = DynamicConfig(BrokerConfig.load(overrides=["node.id=1", f"{MIN_IN_SYNC}=2"]))
    own = ConfigResource(ConfigKind.BROKER, "1")

    def warnings(own_value: str) -> list[str]:
        caplog.clear()
        dynamic.follow(ClusterImage().with_configs({own: {MIN_IN_SYNC: own_value}}))
        return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]

    (line,) = warnings("1")
    assert line.startswith(f"{MIN_IN_SYNC} is 1 at this broker alone, and 2 without")
    assert warnings("1") == warnings("2") == []


def test_texts_can_be_compared_between_languages() -> None:
    config = BrokerConfig.load()
    assert [*agreed_settings(config)] == [*AGREED]
    for name, text in agreed_settings(config).items():
        assert text == "unset" or same_text(name, f" {text} ") == text
    assert same_text(MIN_IN_SYNC, "two") == "two"


def test_the_document_names_each() -> None:
    document = (ROOT / "docs/cluster.md").read_text(encoding="utf-8")
    for name in (*AGREED, *SECRETS):
        assert f"`{name}`" in document, name
        assert BROKER_KEYS[name].supported
    # What else says how long records are kept cannot be set at run time.
    assert BROKER_KEYS["log.retention.hours"].dynamic is READ_ONLY
