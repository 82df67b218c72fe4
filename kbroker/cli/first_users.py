"""`kbroker start --add-scram`: users that are made before the broker starts.

A user that has a credential of that mechanism keeps it, so that a container that always starts with
the same arguments does not take a changed password back.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.cli.scram_arguments import parse_add_scram

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig


def add_first_users(config: BrokerConfig, arguments: Sequence[str]) -> None:
    """UsageError for an argument that is none; what opening the store raises."""
    users = [parse_add_scram(each) for each in arguments]
    from kbroker.metadata.offline_users import add
    from kbroker.metadata.store.embedded import EmbeddedStore
    from kbroker.metadata.store.zookeeper_settings import CONNECT, ZooKeeperSettings

    if config[CONNECT] is None:
        directory = Path(config.log_dirs[0])
        directory.mkdir(parents=True, exist_ok=True)
        with closing(EmbeddedStore.open(directory)) as store:
            add(store, users, only_new=True)
        return
    from kbroker.server.metadata_store import open_zookeeper

    with closing(open_zookeeper(ZooKeeperSettings.of(config))) as tree:
        add(tree, users, only_new=True, with_notices=True)
