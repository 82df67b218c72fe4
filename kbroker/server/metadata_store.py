"""Which metadata store a broker opens: its own file, or the ZooKeeper of its cluster.

Directories that belong to a cluster do not begin it a second time, as in Apache Kafka: under a
mistyped path, or in a ZooKeeper that lost its files, there is no topic that would own their logs.

kazoo is imported here when it is wanted and not before: a broker that stands alone needs it not.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.errors import ConfigError, DataDirectoryError
from kbroker.metadata.controller import records
from kbroker.metadata.store.embedded import EmbeddedStore
from kbroker.metadata.store.zookeeper_settings import CONNECT, ZooKeeperSettings

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.metadata.store.zookeeper import ZooKeeperStore

    Store = EmbeddedStore | ZooKeeperStore


def open_store(config: BrokerConfig, data_directory: Path, cluster_id: str | None = None) -> Store:
    """Raises a UserError that says what is wrong with the one that is configured. `cluster_id` is
    of the cluster that the data directories belong to, if they do."""
    if config[CONNECT] is None:
        return EmbeddedStore.open(data_directory)
    settings = ZooKeeperSettings.of(config)
    try:
        from kbroker.metadata.store.zookeeper import ZooKeeperStore
    except ImportError as error:
        raise ConfigError(
            f"{CONNECT} is set, and {error.name} is not installed",
            "pip install 'kbroker[cluster]'",
        ) from None
    store = ZooKeeperStore.open(settings)
    try:
        if cluster_id is not None and not store.exists(records.CLUSTER_ID):
            raise DataDirectoryError(
                f"there is no cluster in ZooKeeper at {settings}, and the data directories belong"
                f" to cluster {cluster_id}",
                f"see whether {CONNECT} has the right path; for a new cluster, use other"
                " directories",
            )
    except BaseException:
        store.close()
        raise
    return store
