"""The embedded store's tree goes to a file, and no broker starts from it until that is undone."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from kbroker.clock import ManualClock
from kbroker.errors import DataDirectoryError, UserError
from kbroker.log.engine import file_operations
from kbroker.metadata.controller import records
from kbroker.metadata.store.base import StoreUnavailableError
from kbroker.metadata.store.embedded import DATABASE_FILE, EmbeddedStore, Exported
from kbroker.metadata.transfer.export import export_store, undo_export
from kbroker.metadata.transfer.file import load
from tests.unit.metadata.controller.harness import OneBroker
from tests.unit.metadata.transfer.trees import used_store

CLOCK = ManualClock()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    used_store(directory)
    return directory


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "tree.json"


def test_every_persistent_node_is_in_the_file(data: Path, target: Path) -> None:
    store = EmbeddedStore.open(data)
    cluster_id = records.decode_cluster_id(records.CLUSTER_ID, store.get(records.CLUSTER_ID).data)
    store.create(records.losses_path(0), records.encode_losses(7))
    store.create("/alive", ephemeral=True)  # and its process dies
    os.close(store._tree._directory_lock._fd)
    store._tree._connection.close()
    export = export_store(data, target, CLOCK)
    assert load(target) == export
    assert export.cluster_id == cluster_id
    assert export.tree[records.CONTROLLER_EPOCH] == b"2"
    assert {"/brokers/topics/orders-1/partitions/2/state", "/config/topics/orders-0"} < {
        *export.tree
    }
    gone = {"/", "/alive", records.CONTROLLER, records.broker_path(0), records.losses_path(0)}
    assert not gone & {*export.tree}
    assert [each.name for each in target.parent.iterdir() if each != data] == [target.name]


def test_no_broker_starts_from_it_then_and_the_line_says_why(data: Path, target: Path) -> None:
    export = export_store(data, target, CLOCK)
    before = (data / DATABASE_FILE).read_bytes()
    with pytest.raises(DataDirectoryError) as raised:
        EmbeddedStore.open(data)
    assert raised.value.message == (
        f"the metadata store in {data} was exported to {target} at {export.exported_at}, to go on"
        " in ZooKeeper -> set zookeeper.connect to where it was imported; if it was not, kbroker"
        f" metadata undo-export --data-dir {data}"
    )
    assert (data / DATABASE_FILE).read_bytes() == before
    # A kbroker of before knows schemas 1 and 2, and refuses another by its number.
    with sqlite3.connect(data / DATABASE_FILE) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (3,)


def test_an_exported_cluster_can_be_exported_again_and_is_the_same(
    data: Path, target: Path
) -> None:
    first = export_store(data, target, CLOCK)
    again = export_store(data, target.with_name("again.json"), CLOCK)
    assert again == first
    with pytest.raises(DataDirectoryError, match=r"exported to .*again\.json"):
        EmbeddedStore.open(data)


def test_undone_it_goes_on(data: Path, target: Path) -> None:
    export = export_store(data, target, CLOCK)
    undone = undo_export(data)
    assert undone == Exported(export.exported_at, str(target), export.sha256)
    assert undo_export(data) is None
    broker = OneBroker(data)
    broker.start()
    assert {*broker.image.topics} == {"orders-0", "orders-1"}
    broker.stop()
    later = export_store(data, target.with_name("later.json"), CLOCK)
    assert later.sha256 != export.sha256


def test_a_broker_that_runs_is_named(data: Path, target: Path) -> None:
    running = EmbeddedStore.open(data)
    try:
        for command in (lambda: export_store(data, target, CLOCK), lambda: undo_export(data)):
            with pytest.raises(DataDirectoryError, match=rf"\(pid {os.getpid()}\) -> stop that"):
                command()
    finally:
        running.close()
    assert not target.exists()


def test_a_directory_without_a_store_stays_as_it_is(tmp_path: Path, target: Path) -> None:
    """Of several in log.dirs the first has it."""
    second = tmp_path / "second"
    second.mkdir()
    for directory in (second, tmp_path / "typo"):
        with pytest.raises(
            DataDirectoryError, match=r"no metadata store in .* first one of log\.di"
        ):
            export_store(directory, target, CLOCK)
    assert [*second.iterdir()] == []
    assert not (tmp_path / "typo").exists()


def test_a_store_that_no_broker_has_used_has_nothing_to_export(
    tmp_path: Path, target: Path
) -> None:
    EmbeddedStore.open(tmp_path / "new").close()
    with pytest.raises(DataDirectoryError, match=r"/cluster/id .*not there"):
        export_store(tmp_path / "new", target, CLOCK)
    EmbeddedStore.open(tmp_path / "new").close()  # not marked


def test_a_tree_that_no_broker_could_read_is_not_exported(data: Path, target: Path) -> None:
    store = EmbeddedStore.open(data)
    store.set("/brokers/topics/orders-0", b"{}")
    store.close()
    with pytest.raises(DataDirectoryError, match="/brokers/topics/orders-0"):
        export_store(data, target, CLOCK)
    EmbeddedStore.open(data).close()
    assert not target.exists()


@pytest.mark.parametrize("operation", ["open", "write", "sync", "rename"])
def test_a_file_that_cannot_be_written_marks_nothing(
    data: Path, target: Path, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(tried: str, path: str) -> None:
        if tried == operation and path.startswith(str(target)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    with monkeypatch.context() as patched:
        patched.setattr(file_operations, "hook", fail)
        with pytest.raises(UserError, match=r"cannot write .*tree\.json: No space left"):
            export_store(data, target, CLOCK)
    assert [*target.parent.iterdir()] == [data]
    EmbeddedStore.open(data).close()


def test_a_store_that_cannot_be_marked_leaves_no_file(
    data: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(store: EmbeddedStore, exported: Exported | None) -> None:
        raise StoreUnavailableError("", "database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(EmbeddedStore, "mark_exported", fail)
        with pytest.raises(DataDirectoryError, match="disk is full"):
            export_store(data, target, CLOCK)
    assert not target.exists()
    EmbeddedStore.open(data).close()
