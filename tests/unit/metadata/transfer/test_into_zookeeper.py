"""A tree is made elsewhere, whole or to be gone on with, and what counts goes on above."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.errors import MetadataStoreError
from kbroker.metadata.controller import records
from kbroker.metadata.controller.records import ImportRecord
from kbroker.metadata.store.base import (
    MULTI_BYTES_MAX,
    OPERATION_BYTES,
    Create,
    MetadataStore,
)
from kbroker.metadata.store.embedded import EmbeddedStore
from kbroker.metadata.transfer import into_zookeeper
from kbroker.metadata.transfer.file import Export
from kbroker.metadata.transfer.into_zookeeper import TreeImport
from kbroker.metadata.transfer.tree import read_tree
from tests.unit.metadata.controller.harness import FaultyStore, OneBroker
from tests.unit.metadata.store.conftest import harness as harness
from tests.unit.metadata.store.conftest import store as store
from tests.unit.metadata.transfer.trees import EXPORTED_AT, LAST_PRODUCER_ID, export_of, used_store

WHERE = "127.0.0.1:2181/kafka"


@pytest.fixture
def export(tmp_path: Path) -> Export:
    used_store(tmp_path / "old")
    return export_of(tmp_path / "old")


@pytest.fixture
def target(tmp_path: Path) -> Iterator[EmbeddedStore]:
    made = EmbeddedStore.open(tmp_path / "new")
    yield made
    made.close()


@pytest.fixture
def small_multis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(into_zookeeper, "MULTI_BYTES_MAX", 400)


def run(store: MetadataStore, export: Export) -> None:
    TreeImport(store, export, WHERE).run()


def refusal(store: MetadataStore, export: Export) -> str:
    with pytest.raises(MetadataStoreError) as raised:
        run(store, export)
    return raised.value.message


def imported(store: MetadataStore) -> dict[str, bytes]:
    tree = read_tree(store)
    tree.pop(records.IMPORT, None)
    return tree


def test_every_store_has_the_same_tree_then(store: MetadataStore, export: Export) -> None:
    run(store, export)
    assert imported(store) == export.tree
    record = records.decode_import(records.IMPORT, store.get(records.IMPORT).data)
    assert record == ImportRecord(record.import_id, export.sha256, EXPORTED_AT, complete=True)
    assert "there is /cluster/id in ZooKeeper" in refusal(store, export)


def test_a_broker_goes_on_above_where_the_old_one_was(tmp_path: Path) -> None:
    before = used_store(tmp_path / "used")
    export = export_of(tmp_path / "used")
    store = EmbeddedStore.open(tmp_path / "new")
    run(store, export)
    broker = OneBroker(tmp_path / "new")
    broker.start(store, cluster_id=export.cluster_id, new_epochs_at_start=True)
    assert {*broker.image.topics} == {*before.topics}
    for name, topic in before.topics.items():
        after = broker.image.topics[name]
        assert (after.topic_id, after.configs) == (topic.topic_id, topic.configs)
        for old, new in zip(topic.partitions, after.partitions, strict=True):
            assert new.leader_epoch == old.leader_epoch + 1
            assert (new.leader, new.isr) == (old.leader, old.isr)
    assert broker.take_ids(1_000).first == LAST_PRODUCER_ID + 1
    epoch = store.get(records.CONTROLLER_EPOCH).data
    assert int(epoch) == int(export.tree[records.CONTROLLER_EPOCH]) + 1
    broker.stop()


@pytest.mark.parametrize(
    "path", ["/admin", "/brokers", "/cluster", "/config", "/controller", "/controller_epoch",
             "/latest_producer_id_block", "/log_dir_event_notification"],
)  # fmt: skip
def test_where_something_is_nothing_is_written(
    target: EmbeddedStore, export: Export, path: str
) -> None:
    target.create(path)
    assert refusal(target, export) == (
        f"there is {path} in ZooKeeper at {WHERE} already"
        " -> name another path after the port, as in 127.0.0.1:2181/kafka"
    )
    assert read_tree(target) == {path: b""}


def test_nodes_that_are_not_ours_are_ignored(target: EmbeddedStore, export: Export) -> None:
    target.create("/zookeeper")
    run(target, export)
    assert imported(target) == {**export.tree, "/zookeeper": b""}


def test_cut_anywhere_it_goes_on_to_the_same_tree(
    tmp_path: Path, export: Export, small_multis: None
) -> None:
    """Before or after each write, and until the last one there is no cluster."""
    for step in itertools.count(1):
        for after_commit in (False, True):
            store = EmbeddedStore.open(tmp_path / f"{step}-{after_commit}")
            faulty = FaultyStore(store)
            faulty.die_at, faulty.die_after_commit = step, after_commit
            try:
                run(faulty, export)
            except MetadataStoreError as error:
                assert "ended half way" in error.message
                assert error.fix == "run it again: it goes on"
            if faulty.down and not store.exists(records.CLUSTER_ID):
                if store.exists(records.IMPORT):
                    data = store.get(records.IMPORT).data
                    assert not records.decode_import(records.IMPORT, data).complete
                else:
                    assert read_tree(store) == {}
                run(store, export)
            assert imported(store) == export.tree
            store.close()
        if not faulty.down:
            assert step > 5
            return


def half(store: EmbeddedStore, export: Export) -> None:
    faulty = FaultyStore(store)
    faulty.die_at = 3
    with pytest.raises(MetadataStoreError):
        run(faulty, export)


def test_a_part_of_another_tree_is_not_gone_on_with(
    target: EmbeddedStore, export: Export, small_multis: None, tmp_path: Path
) -> None:
    half(target, export)
    used_store(tmp_path / "other")
    before = read_tree(target)
    assert refusal(target, export_of(tmp_path / "other")) == (
        f"ZooKeeper at {WHERE} holds a part of another tree, exported at {EXPORTED_AT}"
        " -> import that file, or remove what is there with zkCli.sh deleteall"
    )
    assert read_tree(target) == before


def test_another_s_write_meanwhile_is_named(
    target: EmbeddedStore, export: Export, small_multis: None
) -> None:
    half(target, export)
    target.multi([Create("/controller_epoch", b"100")])
    message = refusal(target, export)
    assert "another client writes to ZooKeeper" in message
    assert "it is not what the file has" in message
    assert not target.exists(records.CLUSTER_ID)


def test_a_cluster_that_began_meanwhile_is_not_overwritten(
    target: EmbeddedStore, export: Export, small_multis: None
) -> None:
    half(target, export)
    theirs = records.encode_cluster_id("theirs")
    target.multi([Create(records.CLUSTER_ID, theirs)])
    assert "another client writes to ZooKeeper" in refusal(target, export)
    assert target.get(records.CLUSTER_ID).data == theirs
    data = target.get(records.IMPORT).data
    assert not records.decode_import(records.IMPORT, data).complete


def test_a_large_tree_comes_in_parts_that_zookeeper_takes(
    store: MetadataStore, export: Export
) -> None:
    """Many small nodes, and a few of the size that a node may have."""
    more = {f"/theirs-{each:05}": b"" for each in range(MULTI_BYTES_MAX // OPERATION_BYTES)}
    more |= {f"/large-{each}": b"x" * 512 * 1024 for each in range(3)}
    large = Export.of({**export.tree, **more}, EXPORTED_AT)
    run(store, large)
    assert imported(store) == large.tree
