"""Which metadata store a configuration opens, and what is said where it cannot be."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.clock import ManualClock
from kbroker.config import BrokerConfig
from kbroker.errors import ConfigError, DataDirectoryError, MetadataStoreError
from kbroker.metadata.controller import records
from kbroker.metadata.controller.skeleton import ensure_skeleton
from kbroker.metadata.store.base import SessionExpiredError
from kbroker.metadata.store.embedded import DATABASE_FILE, EmbeddedStore
from kbroker.metadata.store.zookeeper import ZooKeeperStore
from kbroker.metadata.store.zookeeper_settings import DIGEST, SASL, Tls, ZooKeeperSettings
from kbroker.metadata.transfer.export import export_store, undo_export
from kbroker.metadata.transfer.file import Export
from kbroker.metadata.transfer.into_zookeeper import TreeImport
from kbroker.server.metadata_store import open_store
from kbroker.testing.zookeeper.server import ZooKeeperServer


def test_without_zookeeper_it_is_a_file_of_the_brokers_own(tmp_path: Path) -> None:
    store = open_store(BrokerConfig.load(), tmp_path)
    assert isinstance(store, EmbeddedStore)
    store.close()


def test_a_broker_that_is_alone_needs_no_kazoo() -> None:
    code = "import sys, kbroker.server.broker; print('kazoo' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_kazoo_that_is_missing_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "kbroker.metadata.store.zookeeper", raising=False)
    for name in [each for each in sys.modules if each.partition(".")[0] == "kazoo"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with pytest.raises(ConfigError, match=r"pip install 'kbroker\[cluster\]'"):
        open_store(BrokerConfig.load(overrides=["zookeeper.connect=localhost"]), tmp_path)


def test_directories_of_a_cluster_do_not_begin_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its logs would be those of topics that are no more."""
    opened: list[EmbeddedStore] = []

    def open_one(settings: ZooKeeperSettings) -> EmbeddedStore:
        opened.append(EmbeddedStore.open(tmp_path))
        return opened[-1]

    monkeypatch.setattr(ZooKeeperStore, "open", open_one)
    config = BrokerConfig.load(overrides=["zookeeper.connect=localhost/typo"])
    with pytest.raises(DataDirectoryError, match=r"at localhost:2181/typo.* to cluster ours"):
        open_store(config, tmp_path, "ours")
    with pytest.raises(SessionExpiredError):
        opened[-1].exists("/")  # it was closed
    store = open_store(config, tmp_path)  # new directories: the first start begins a cluster
    ensure_skeleton(store, "ours")
    store.close()
    open_store(config, tmp_path, "ours").close()


@pytest.fixture
def zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


def cluster_config(zookeeper: ZooKeeperServer, path: str = "kafka") -> BrokerConfig:
    return BrokerConfig.load(overrides=[f"zookeeper.connect={zookeeper.connect}/{path}"])


def take_there(zookeeper: ZooKeeperServer, export: Export, path: str = "kafka") -> None:
    store = ZooKeeperStore.open(ZooKeeperSettings.of(cluster_config(zookeeper, path)))
    try:
        TreeImport(store, export, "there").run()
    finally:
        store.close()


def test_a_broker_without_an_import_gets_advice(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    EmbeddedStore.open(tmp_path).close()
    with pytest.raises(DataDirectoryError, match=rf"kbroker metadata export --data-dir {tmp_path}"):
        open_store(cluster_config(zookeeper), tmp_path, "ours")


def test_half_of_an_import_is_no_cluster(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    """Nor for a broker that is new, and would begin one."""
    config = cluster_config(zookeeper)
    store = ZooKeeperStore.open(ZooKeeperSettings.of(config))
    store.create("/cluster")
    record = records.ImportRecord("once", "0", "2026-11-24T06:00:00Z", complete=False)
    store.create(records.IMPORT, records.encode_import(record))
    for cluster_id in (None, "ours"):
        with pytest.raises(MetadataStoreError, match=r"half way -> .* at 2026-11-24T06:00:00Z"):
            open_store(config, tmp_path, cluster_id)
    store.close()


def test_a_store_that_was_used_since_differs_from_the_import(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    """Its logs would have leader epochs, and its producers ids, that ZooKeeper does not know."""
    config, data = cluster_config(zookeeper), tmp_path / "data"
    clock = ManualClock()
    store = EmbeddedStore.open(data)
    ensure_skeleton(store, "ours")
    store.close()
    take_there(zookeeper, export_store(data, tmp_path / "first.json", clock))
    open_store(config, data, "ours").close()
    open_store(config, tmp_path, "ours").close()  # another broker of the cluster
    open_store(config, data).close()
    before = (data / DATABASE_FILE).read_bytes()

    undo_export(data)
    with pytest.raises(DataDirectoryError, match=rf"the metadata store in {data} is in use -> "):
        open_store(config, data, "ours")
    open_store(config, data, "theirs").close()  # that is said where the cluster's id is read
    store = EmbeddedStore.open(data)
    store.create("/used")
    store.close()
    export_store(data, tmp_path / "second.json", clock)
    with pytest.raises(
        DataDirectoryError, match=r"was used until .* -> .* or remove .*metadata\.db"
    ):
        open_store(config, data, "ours")

    undo_export(data)
    (data / DATABASE_FILE).write_bytes(before)
    open_store(config, data, "ours").close()


def settings(*overrides: str) -> ZooKeeperSettings:
    every = ["zookeeper.connect=a,b:2182/kafka", *overrides]
    return ZooKeeperSettings.of(BrokerConfig.load(overrides=every))


def test_a_missing_setting_is_kafkas_default() -> None:
    assert settings() == ZooKeeperSettings(("a:2181", "b:2182"), "/kafka", 18_000, 18_000)


def test_every_key_arrives() -> None:
    found = settings(
        "zookeeper.session.timeout.ms=6000",
        "zookeeper.connection.timeout.ms=500",
        "zookeeper.set.acl=true",
        "zookeeper.auth.scheme=sasl",
        "zookeeper.auth.username=u",
        "zookeeper.auth.password=p",
        "zookeeper.ssl.client.enable=true",
        "zookeeper.ssl.keystore.location=/k.pem",
        "zookeeper.ssl.keystore.password=kp",
        "zookeeper.ssl.keystore.type=PEM",
        "zookeeper.ssl.truststore.location=/t.pem",
        "zookeeper.ssl.truststore.type=pem",
        "zookeeper.ssl.endpoint.identification.algorithm=",
    )
    tls = Tls("/k.pem", "kp", "/t.pem", verify_host=False)
    assert found == ZooKeeperSettings(
        ("a:2181", "b:2182"), "/kafka", 6_000, 500, True, SASL, "u", "p", tls
    )
    assert "p'" not in f"{found} {found!r}"


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["zookeeper.set.acl=true"], "zookeeper.auth.scheme"),
        ([f"zookeeper.auth.scheme={DIGEST}"], "zookeeper.auth.password"),
        (
            [
                "zookeeper.ssl.client.enable=true",
                "zookeeper.ssl.truststore.location=/t.jks",
                "zookeeper.ssl.truststore.type=JKS",
            ],
            "say PEM",
        ),
    ],
)
def test_settings_that_do_not_go_together_name_the_key_to_set(
    overrides: list[str], key: str
) -> None:
    with pytest.raises(ConfigError, match=key):
        settings(*overrides)


def test_one_export_is_gone_on_with_in_one_import(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    """Else both would give out the same producer ids, and begin leader epochs again."""
    data = tmp_path / "data"
    store = EmbeddedStore.open(data)
    ensure_skeleton(store, "ours")
    store.close()
    export = export_store(data, tmp_path / "tree.json", ManualClock())
    for path in ("trial", "real"):
        take_there(zookeeper, export, path)
    trial, real = cluster_config(zookeeper, "trial"), cluster_config(zookeeper, "real")
    for _ in range(2):
        open_store(trial, data, "ours").close()
    for again in (False, True):
        if again:  # an export of an exported tree is the same
            export_store(data, tmp_path / "again.json", ManualClock())
        with pytest.raises(
            DataDirectoryError, match=r"/real has another import .* given again -> "
        ):
            open_store(real, data, "ours")
    open_store(trial, data, "ours").close()
    open_store(real, tmp_path, "ours").close()  # a broker without that store has given nothing
