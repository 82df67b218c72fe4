"""Which metadata store a broker opens: its own file, or the ZooKeeper of its cluster.

kazoo is imported here when it is wanted and not before: a broker that stands alone needs it not.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.errors import ConfigError
from kbroker.metadata.store.embedded import EmbeddedStore
from kbroker.metadata.store.zookeeper_settings import CONNECT, ZooKeeperSettings

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.metadata.store.zookeeper import ZooKeeperStore

    Store = EmbeddedStore | ZooKeeperStore


def open_store(config: BrokerConfig, data_directory: Path) -> Store:
    """Raises a UserError that says what is wrong with the one that is configured."""
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
    return ZooKeeperStore.open(settings)
