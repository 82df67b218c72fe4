"""Which metadata store a broker opens: its own file, or the ZooKeeper of its cluster.

Directories that belong to a cluster do not begin it a second time, as in Apache Kafka: under a
mistyped path, or in a ZooKeeper that lost its files, there is no topic that would own their logs.
Nor do they go on with a tree that is older than they are: where ZooKeeper's was imported, and an
embedded store is beside the logs, it must be the one that was exported for it, not used since, and
the broker must not have gone on in another import of it. The first one is noted in that store.

kazoo is imported here when it is wanted and not before: a broker without a cluster needs it not.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kbroker.errors import ConfigError, DataDirectoryError, MetadataStoreError
from kbroker.metadata.controller import records
from kbroker.metadata.features import UNSTABLE_KEY
from kbroker.metadata.store.base import MetadataStore, NoNodeError
from kbroker.metadata.store.embedded import DATABASE_FILE, EmbeddedStore
from kbroker.metadata.store.zookeeper_settings import CONNECT, ZooKeeperSettings
from kbroker.server.formats import check_cluster

S = TypeVar("S", bound=MetadataStore)

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.metadata.store.zookeeper import ZooKeeperStore

    Store = EmbeddedStore | ZooKeeperStore


def open_store(config: BrokerConfig, data_directory: Path, cluster_id: str | None = None) -> Store:
    """Raises a UserError that says what is wrong with the one that is configured. `cluster_id` is
    of the cluster that the data directories belong to, if they do."""
    if config[CONNECT] is None:
        return _checked(EmbeddedStore.open(data_directory), config)
    settings = ZooKeeperSettings.of(config)
    store = open_zookeeper(settings)
    try:
        _check_import(store, settings, data_directory, cluster_id)
        if cluster_id is not None and not store.exists(records.CLUSTER_ID):
            raise DataDirectoryError(
                f"there is no cluster in ZooKeeper at {settings}, and the data directories belong"
                f" to cluster {cluster_id}",
                _way_in(data_directory),
            )
    except BaseException:
        store.close()
        raise
    return _checked(store, config)


def check_of(config: BrokerConfig) -> Callable[[MetadataStore], None]:
    """Whether this broker knows the formats and feature levels of a store: when it is opened, and
    when the broker registers, since they may be raised in between. A UserError if not."""
    return partial(check_cluster, unstable=config[UNSTABLE_KEY])


def _checked(store: S, config: BrokerConfig) -> S:
    try:
        check_of(config)(store)
    except BaseException:
        store.close()
        raise
    return store


def open_zookeeper(settings: ZooKeeperSettings) -> ZooKeeperStore:
    """A session; the UserError says what is missing, here or there."""
    try:
        from kbroker.metadata.store.zookeeper import ZooKeeperStore
    except ImportError as error:
        raise ConfigError(
            f"{CONNECT} is set, and {error.name} is not installed",
            "pip install 'kbroker[cluster]'",
        ) from None
    return ZooKeeperStore.open(settings)


def _way_in(data_directory: Path) -> str:
    if (data_directory / DATABASE_FILE).exists():
        return (
            f"take its metadata there: kbroker metadata export --data-dir {data_directory} FILE,"
            " and kbroker metadata import"
        )
    return f"see whether {CONNECT} has the right path; for a new cluster, use other directories"


def _check_import(
    store: ZooKeeperStore,
    settings: ZooKeeperSettings,
    data_directory: Path,
    cluster_id: str | None,
) -> None:
    try:
        imported = records.decode_import(records.IMPORT, store.get(records.IMPORT).data)
    except NoNodeError:
        return
    if not imported.complete:
        raise MetadataStoreError(
            f"the import into ZooKeeper at {settings} ended half way",
            "run kbroker metadata import again with the file that was exported at"
            f" {imported.exported_at}: it goes on",
        )
    cluster = records.decode_cluster_id(records.CLUSTER_ID, store.get(records.CLUSTER_ID).data)
    if cluster_id != cluster or not (data_directory / DATABASE_FILE).exists():
        return
    with closing(EmbeddedStore.open(data_directory, exported_too=True)) as own:
        exported = own.exported
        if exported is not None and exported.sha256 == imported.sha256 and not exported.import_id:
            own.mark_exported(exported._replace(import_id=imported.import_id))
            return
    if exported is not None and exported.import_id not in (None, imported.import_id):
        raise DataDirectoryError(
            f"ZooKeeper at {settings} has another import of the metadata in {data_directory} than"
            " the one in which this broker has gone on: the same producer ids would be given again",
            f"set {CONNECT} to where it went on; if that is lost, remove"
            f" {data_directory / DATABASE_FILE} to begin from the export, as it was",
        )
    if exported is None or exported.sha256 != imported.sha256:
        raise DataDirectoryError(
            f"ZooKeeper at {settings} has what was exported at {imported.exported_at}, and the"
            f" metadata store in {data_directory} "
            + ("is in use" if exported is None else f"was used until {exported.at}"),
            "export it, which is all if no broker has used it since; if one has, import that to"
            f" another path, or remove {data_directory / DATABASE_FILE} to go on with ZooKeeper's",
        )
