"""The metadata tree as it goes from one store to another: what is carried, and what it must hold.

Place in the flow: `export.py` reads a tree out of the embedded store, `into_zookeeper.py` makes one
in ZooKeeper; both have it checked here, so that what no broker could read is said by the command,
and not by the broker that starts after it. Pure but for `read_tree`.

Carried are the persistent nodes with their contents. The store's own counts are not carried:
versions and creations start again. Nothing outlives a broker's process that depends on them: the
version of a partition's node (its partition epoch) and the creation of a registration (the broker
epoch) are compared among processes that run, and all of them start after an import; what is noted
of broker epochs (`/brokers/losses`) is not carried. What must not go back is content: leader
epochs, the controller epoch, the producer ids that were handed out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kbroker.errors import DataDirectoryError
from kbroker.metadata.controller import own_nodes, records
from kbroker.metadata.store.base import NODE_BYTES_MAX, MetadataStore, check_path, parent_of
from kbroker.outside_text import printable

# Nodes that a broker reads without a check that they exist.
_NEEDED: Final = (
    records.CLUSTER_ID,
    records.CONTROLLER_EPOCH,
    records.BROKER_IDS,
    records.TOPICS,
    records.TOPIC_CONFIGS,
    records.DELETED_TOPICS,
)


def read_tree(store: MetadataStore) -> dict[str, bytes]:
    """What is carried: persistent nodes below the root, parents before their children."""
    found: dict[str, bytes] = {}
    left = ["/"]
    while left:
        parent = left.pop()
        for name, node in store.children_data(parent).items():
            if not node.ephemeral and parent != records.LOSSES:
                path = f"{parent.rstrip('/')}/{name}"
                found[path] = node.data
                left.append(path)
    return dict(sorted(found.items()))


def check_tree(tree: Mapping[str, bytes]) -> str:
    """The id of the cluster that it is of; DataDirectoryError names what is wrong with it."""
    for path in _NEEDED:
        if path not in tree:
            raise records.damaged(path, "it is not there")
    for path, data in tree.items():
        _check_place(path, tree)
        if len(data) > NODE_BYTES_MAX:
            raise _damaged(path, f"{len(data)} bytes are more than {NODE_BYTES_MAX}")
        _check_content(path, data)
    return records.decode_cluster_id(records.CLUSTER_ID, tree[records.CLUSTER_ID])


def _check_place(path: str, tree: Mapping[str, bytes]) -> None:
    try:
        check_path(path)
        path.encode("ascii")  # a store counts characters, and ZooKeeper bytes
    except ValueError:
        raise _damaged(path, "no node has such a path") from None
    parent = parent_of(path)
    if path == "/" or (parent != "/" and parent not in tree):
        raise _damaged(path, "it hangs under nothing")
    if parent in (records.BROKER_IDS, records.LOSSES) or path in (
        records.CONTROLLER,
        records.IMPORT,
    ):
        raise _damaged(path, "it is of a running broker, and not carried")


def _check_content(path: str, data: bytes) -> None:
    match path.split("/")[1:]:
        case ["cluster", "id"]:
            records.decode_cluster_id(path, data)
        case ["controller_epoch"]:
            records.decode_controller_epoch(path, data)
        case ["latest_producer_id_block"]:
            records.decode_producer_id_block(path, data)
        case ["brokers", "topics", _]:
            records.decode_topic(path, data)
        case ["brokers", "topics", _, "partitions", _, "state"]:
            records.decode_partition(path, data)
        case ["brokers", "directories", _]:
            records.decode_used_directories(path, data)
        case ["config", "topics" | "brokers" | "groups" | "client-metrics", _]:
            records.decode_configs(path, data)
        case ["kbroker", "features"]:
            own_nodes.decode_features(path, data)
        case ["kbroker", "formats"]:
            own_nodes.decode_formats(path, data)
        case ["admin", "deleted_topics", _]:
            records.decode_tombstone_id(path)
            records.decode_tombstone(path, data)


def _damaged(path: str, reason: str) -> DataDirectoryError:
    return records.damaged(printable(path), reason)
