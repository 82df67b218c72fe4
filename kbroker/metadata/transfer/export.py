"""The embedded store's tree goes out: into a file first, then the store is marked.

Place in the flow: `kbroker metadata export` and `undo-export`, with the broker stopped: the store's
lock is held throughout. A crash in between leaves a file and a store that a broker may still start
from; the file is then of no use once one has, and `server/metadata_store.py` refuses a broker whose
own store is not the one that ZooKeeper's tree was made of.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from kbroker.clock import Clock
from kbroker.errors import DataDirectoryError
from kbroker.log.engine import file_operations
from kbroker.metadata.store.base import StoreError
from kbroker.metadata.store.embedded import DATABASE_FILE, EmbeddedStore, Exported
from kbroker.metadata.transfer.file import Export, save
from kbroker.metadata.transfer.tree import read_tree


def export_store(directory: Path, file: Path, clock: Clock) -> Export:
    """Write the store's tree to a new file; no broker starts from the store from then on. One that
    was exported before is exported again, as it was."""
    with _opened(directory) as store:
        now = datetime.fromtimestamp(clock.wall_ms() // 1000, UTC)
        export = Export.of(read_tree(store), f"{now:%Y-%m-%dT%H:%M:%SZ}")
        save(file, export)
        try:
            gone_on = store.exported.import_id if store.exported is not None else None
            store.mark_exported(
                Exported(export.exported_at, str(file.absolute()), export.sha256, gone_on)
            )
        except StoreError:
            file_operations.unlink(file)
            raise
    return export


def undo_export(directory: Path) -> Exported | None:
    """A broker may start from the store again; what was undone, None if it was not exported."""
    with _opened(directory) as store:
        exported = store.exported
        if exported is not None:
            store.mark_exported(None)
    return exported


@contextmanager
def _opened(directory: Path) -> Iterator[EmbeddedStore]:
    if not (directory / DATABASE_FILE).is_file():
        raise DataDirectoryError(
            f"there is no metadata store in {directory}",
            f"name the directory that has {DATABASE_FILE}, the first one of log.dirs",
        )
    store = EmbeddedStore.open(directory, exported_too=True)
    try:
        yield store
    except StoreError as error:
        raise DataDirectoryError(f"the metadata store in {directory} fails: {error}") from error
    finally:
        store.close()
