"""A tree that was exported is made in ZooKeeper, in steps that a crash may part.

Place in the flow: `kbroker metadata import`, with a store that is open. ZooKeeper takes a megabyte
at once, and a tree may be larger, so it comes in several transactions:

1. the node `/cluster/import` says of which tree this is a part, and that it is not whole;
2. all others, parents first, each transaction only as long as that node is as it was;
3. `/cluster/id`, which makes it a cluster, in one with: it is whole.

No broker starts on a tree that is not whole. An import that ended half way goes on where it is run
again with the same file: what is there must be what the file has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kbroker.errors import MetadataStoreError
from kbroker.metadata.controller import records
from kbroker.metadata.controller.records import ImportRecord
from kbroker.metadata.image import new_uuid
from kbroker.metadata.store.base import (
    MULTI_BYTES_MAX,
    Check,
    Create,
    MetadataStore,
    MultiError,
    NodeExistsError,
    NoNodeError,
    Set,
    StoreError,
    parent_of,
)
from kbroker.metadata.transfer.file import Export
from kbroker.types import uuid_text

_FIRST: Final = 0  # the version of the node that says it, until the tree is whole


class TreeImport:
    """One export on its way into one store; `where` is what people call that."""

    def __init__(self, store: MetadataStore, export: Export, where: str) -> None:
        self._store = store
        self._export = export
        self._where = where
        self._import_id = uuid_text(new_uuid())

    def run(self) -> None:
        """MetadataStoreError where there is something already, or ZooKeeper goes away meanwhile."""
        try:
            if self._may_go_on() or self._may_begin():
                for batch in _batches(self._export):
                    self._create(batch)
                self._finish()
        except MultiError as error:
            raise MetadataStoreError(
                f"another client writes to ZooKeeper at {self._where}: {error.cause}",
                "stop what it is, and run the import again: it goes on",
            ) from error
        except StoreError as error:
            raise MetadataStoreError(
                f"the import into ZooKeeper at {self._where} ended half way: {error}",
                "run it again: it goes on",
            ) from error

    def _record(self, *, complete: bool) -> bytes:
        export = self._export
        return records.encode_import(
            ImportRecord(self._import_id, export.sha256, export.exported_at, complete)
        )

    def _may_go_on(self) -> bool:
        """Whether an import of the same tree has begun; MetadataStoreError if it is another."""
        try:
            data = self._store.get(records.IMPORT).data
        except NoNodeError:
            return False
        begun = records.decode_import(records.IMPORT, data)
        if begun.complete:
            raise self._taken(records.CLUSTER_ID)
        if begun.sha256 != self._export.sha256:
            raise MetadataStoreError(
                f"ZooKeeper at {self._where} holds a part of another tree, exported at"
                f" {begun.exported_at}",
                "import that file, or remove what is there with zkCli.sh deleteall",
            )
        self._import_id = begun.import_id
        return True

    def _may_begin(self) -> bool:
        tops = {f"/{path.split('/')[1]}" for path in (*self._export.tree, records.CONTROLLER)}
        for path in sorted(tops):
            if self._store.exists(path):
                raise self._taken(path)
        above = parent_of(records.IMPORT)
        self._store.multi(
            [
                Create(above, self._export.tree[above]),
                Create(records.IMPORT, self._record(complete=False)),
            ]
        )
        return True

    def _taken(self, path: str) -> MetadataStoreError:
        return MetadataStoreError(
            f"there is {path} in ZooKeeper at {self._where} already",
            "name another path after the port, as in 127.0.0.1:2181/kafka",
        )

    def _create(self, batch: list[Create]) -> None:
        there = self._store.get_many([each.path for each in batch])
        for each in batch:
            if each.path in there and there[each.path].data != each.data:
                raise MultiError(0, NodeExistsError(each.path, "it is not what the file has"))
        missing = [each for each in batch if each.path not in there]
        if missing:
            self._store.multi([Check(records.IMPORT, _FIRST), *missing])

    def _finish(self) -> None:
        self._store.multi(
            [
                Set(records.IMPORT, self._record(complete=True), _FIRST),
                Create(records.CLUSTER_ID, self._export.tree[records.CLUSTER_ID]),
            ]
        )


def _batches(export: Export) -> Iterator[list[Create]]:
    """All but the cluster's id, parents first, in parts that ZooKeeper takes."""
    room = MULTI_BYTES_MAX - Check(records.IMPORT, _FIRST).size_bytes
    batch: list[Create] = []
    batch_bytes = 0
    for path, data in sorted(export.tree.items()):
        create = Create(path, data)
        if path == records.CLUSTER_ID:
            continue
        if batch_bytes + create.size_bytes > room:
            yield batch
            batch, batch_bytes = [], 0
        batch.append(create)
        batch_bytes += create.size_bytes
    if batch:
        yield batch
