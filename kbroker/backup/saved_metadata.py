"""The nodes of the metadata tree that a backup saves, and how they are read beside a broker.

The embedded store is opened by one process alone, so its files are copied and the copy is opened.
Two reads of both files that find the same bytes are a state in which a crash could have left them:
what the write-ahead log has is in it whole, and SQLite recovers the rest. The store of a cluster is
ZooKeeper, which is asked.

Saved are topics, their settings, those of groups and of client metrics, quotas of clients and
addresses; ACLs and users where they are asked for, and of users without that only their quotas.
Left out is what belongs to one broker or one cluster: registrations, settings of brokers, tokens,
the secret of SCRAM. Nodes are chosen by a list of those that are saved, so that a secret which a
later kbroker adds is not saved by accident.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from kbroker.backup.files import make_directory, read_bounded, write_file
from kbroker.errors import DataDirectoryError
from kbroker.metadata.controller import own_nodes, records
from kbroker.metadata.controller.acl_records import ACL_FOLDERS, CHANGES
from kbroker.metadata.store.base import (
    MULTI_BYTES_MAX,
    Create,
    MetadataStore,
    Operation,
    parent_of,
)
from kbroker.metadata.store.embedded import DATABASE_FILE, EmbeddedStore
from kbroker.metadata.transfer.tree import read_tree
from kbroker.quota.entities import CLIENT_QUOTAS, IP_QUOTAS

DATABASE_BYTES_MAX: Final = 1 << 30
_ATTEMPTS: Final = 100
_USERS: Final = "/config/users"
_SETTINGS: Final = ("/config/groups", "/config/client-metrics", "/config/clients", "/config/ips")
_ACLS: Final = ("/kafka-acl", "/kafka-acl-extended")
_QUOTAS: Final = frozenset((*CLIENT_QUOTAS, *IP_QUOTAS))
_ALONE: Final = (
    *records.SKELETON, *ACL_FOLDERS, records.CLUSTER_ID, records.CONTROLLER_EPOCH,
    records.PRODUCER_ID_BLOCK, "/kbroker", own_nodes.FEATURES, own_nodes.FORMATS,
)  # fmt: skip

Tree = Mapping[str, bytes]


def read_embedded(directory: Path, scratch: Path, pause: Callable[[], None]) -> dict[str, bytes]:
    """The tree of a broker that may run. `scratch`: a directory for the copy, removed again."""
    if not (directory / DATABASE_FILE).is_file():
        raise DataDirectoryError(
            f"there is no metadata store in {directory}",
            "name the first entry of log.dirs first, or --zookeeper for a broker of a cluster",
        )
    shutil.rmtree(scratch, ignore_errors=True)
    make_directory(scratch)
    try:
        for name, data in _same_twice(directory, pause).items():
            write_file(scratch / name, data)
        with closing(EmbeddedStore.open(scratch)) as store:
            return read_tree(store)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _same_twice(directory: Path, pause: Callable[[], None]) -> dict[str, bytes]:
    for _ in range(_ATTEMPTS):
        found = _files(directory)
        if found == _files(directory):
            return found
        pause()
    raise DataDirectoryError(
        f"the metadata in {directory} changes all the time", "run the backup again"
    )


def _files(directory: Path) -> dict[str, bytes]:
    try:
        return {
            name: read_bounded(directory / name, DATABASE_BYTES_MAX)
            for name in (DATABASE_FILE, f"{DATABASE_FILE}-wal")
            if (directory / name).exists()
        }
    except ValueError as error:
        raise DataDirectoryError(
            str(error), "run the backup as the user whose broker it is"
        ) from error


def saved(tree: Tree, topics: Collection[str], *, users: bool, acls: bool) -> dict[str, bytes]:
    """Those of the nodes that are saved, with these topics."""
    found = {path: data for path, data in tree.items() if path in _ALONE}
    for topic in topics:
        for path in (records.topic_path(topic), records.topic_config_path(topic)):
            if path in tree:
                found[path] = tree[path]
    return found | settings(tree, users=users, acls=acls)


def settings(tree: Tree, *, users: bool, acls: bool) -> dict[str, bytes]:
    """The nodes that a new cluster is given; those of users without credentials, unless they are
    asked for."""
    roots = (*_SETTINGS, *(_ACLS if acls else ()))
    found = {path: data for path, data in tree.items() if _is_below(path, roots)}
    of_users = {path: data for path, data in tree.items() if _is_below(path, (_USERS,))}
    if not users:
        of_users = _without_credentials(of_users)
    return dict(sorted((found | of_users).items()))


def _is_below(path: str, roots: Collection[str]) -> bool:
    is_one = any(path.startswith(f"{root}/") for root in roots)
    return is_one and path not in ACL_FOLDERS and parent_of(path) not in CHANGES


def _without_credentials(nodes: Tree) -> dict[str, bytes]:
    """Users with quotas alone; a node that has nothing left is there where others are below it."""
    found: dict[str, bytes] = {}
    for path, data in nodes.items():
        if not _is_below(path, (_USERS,)) or not data:
            found[path] = data
            continue
        configs = records.decode_configs(path, data)
        left = {key: value for key, value in configs.items() if key in _QUOTAS}
        has_some_below = any(other.startswith(f"{path}/") for other in nodes)
        if left or has_some_below:
            found[path] = data if left == configs else records.encode_configs(left)
    return found


def put(store: MetadataStore, nodes: Tree) -> None:
    """Makes those of the nodes that are not there, parents first, as many at once as the store
    takes: a run that was broken off goes on."""
    some: list[Operation] = []
    some_bytes = 0
    for path, data in sorted(nodes.items()):
        if store.exists(path):
            continue
        create = Create(path, data)
        if some and some_bytes + create.size_bytes > MULTI_BYTES_MAX:
            store.multi(some)
            some, some_bytes = [], 0
        some.append(create)
        some_bytes += create.size_bytes
    if some:
        store.multi(some)
