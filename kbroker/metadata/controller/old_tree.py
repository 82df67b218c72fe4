"""The metadata tree as it was before it had Apache Kafka's names, and where its nodes went.

Place in the flow: `embedded.py` calls `moved` once, in the transaction in which it takes over a
file of schema 1; no other module knows these forms. Pure. What a node counts goes with it: the
version of a partition's node is its partition epoch, that of /controller_epoch the controller's
fence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from kbroker.errors import DataDirectoryError
from kbroker.metadata.controller import records
from kbroker.types import parse_uuid

_OLD_DELETED: Final = "/topics/deleted"
_GONE: Final = frozenset({"/topics", _OLD_DELETED})


class OldNode(NamedTuple):
    data: bytes
    version: int


def moved(old: Mapping[str, OldNode]) -> dict[str, OldNode]:
    """The whole tree under its new names, without the root; DataDirectoryError names a node that
    cannot be read."""
    tree = {path: OldNode(b"", 0) for path in records.SKELETON} if old else {}
    for path, node in old.items():
        if path not in _GONE:
            try:
                tree.update(_moved(path, node))
            except (KeyError, TypeError, ValueError) as error:
                raise records.damaged(path, f"{type(error).__name__}: {error}") from None
    return tree


def _moved(path: str, node: OldNode) -> Iterator[tuple[str, OldNode]]:
    if not node.data:  # what others hang under
        yield path, node
        return
    fields: dict[str, Any] = json.loads(node.data)
    if fields.pop("v") != 1:
        raise DataDirectoryError(f"metadata node {path} is newer than its store")
    version = node.version
    match path.split("/")[1:]:
        case ["brokers", "topics", _]:
            topic_id = parse_uuid(fields["topic_id"])
            yield path, OldNode(records.encode_topic(topic_id, fields["replicas"]), version)
        case ["brokers", "topics", _, "partitions", _]:
            yield path, OldNode(b"", 0)
            yield f"{path}/state", OldNode(_same(fields), version)
        case ["topics", "deleted", topic_id_text]:
            yield f"{records.DELETED_TOPICS}/{topic_id_text}", OldNode(_same(fields), version)
        case ["controller_epoch"]:
            yield path, OldNode(records.encode_controller_epoch(fields["epoch"]), version)
        case ["latest_producer_id_block"]:
            block = records.encode_producer_id_block(
                fields["broker"], fields["first"], fields["count"]
            )
            yield path, OldNode(block, version)
        case ["cluster", "id"]:
            yield path, OldNode(records.encode_cluster_id(fields["id"]), version)
        case _:  # settings, data directories
            yield path, OldNode(_same(fields), version)


def _same(fields: dict[str, Any]) -> bytes:
    return json.dumps({"version": 1, **fields}, separators=(",", ":")).encode()
