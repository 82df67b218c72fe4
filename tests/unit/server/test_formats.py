"""Format numbers at a start and while a broker runs: checked, raised, never lowered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbroker import __version__
from kbroker.errors import DataDirectoryError
from kbroker.metadata import directory_format
from kbroker.metadata.controller import own_nodes
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.controller.records import BROKER_IDS
from kbroker.metadata.controller.registration import register
from kbroker.metadata.controller.skeleton import ensure_skeleton
from kbroker.metadata.features import TRANSACTION_VERSION, FinalizedFeatures
from kbroker.metadata.formats import IN_NODE, Format
from kbroker.metadata.image import TRANSACTIONS_TOPIC, BrokerImage, ClusterImage, new_uuid
from kbroker.metadata.store.base import MetadataStore
from kbroker.metadata.store.embedded import DATABASE_FILE, EmbeddedStore, Exported
from kbroker.server.formats import Formats, check_cluster

PLAIN = ClusterImage()
RAISED = PLAIN.with_features(FinalizedFeatures().changed({TRANSACTION_VERSION: 1}))
WITH_TOPIC = PLAIN.with_topics([new_topic_image(TRANSACTIONS_TOPIC, new_uuid(), [(1,)], {})])


class Later:
    """A scheduler that runs nothing by itself."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def once(self, name: str, work: Callable[[], None], delay_ms: int) -> None:
        self.calls.append(work)


def numbers(paths: list[Path]) -> list[int]:
    return [directory_format.load(path) for path in paths]


@pytest.fixture
def store(tmp_path: Path) -> Any:
    made = EmbeddedStore.open(tmp_path / "store")
    yield made
    made.close()


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    made = [tmp_path / "a", tmp_path / "b"]
    for path in made:
        path.mkdir()
    return made


@pytest.mark.parametrize("image", [RAISED, WITH_TOPIC])
def test_numbers_are_raised_when_transactions_may_be_written(
    store: EmbeddedStore, paths: list[Path], image: ClusterImage
) -> None:
    later: Any = Later()
    formats = Formats(lambda: paths, lambda: store, later)
    formats.follow(PLAIN)
    formats.raise_at_start()
    assert numbers(paths) == [0, 0]
    assert (store.format, own_nodes.load_formats(store)) == (0, ({}, ""))
    formats.follow(PLAIN)
    assert later.calls == []
    formats.follow(image)
    assert numbers(paths) == [0, 0]  # the controller's thread waits for no disk
    later.calls.pop()()
    assert numbers(paths) == [1, 1]
    assert store.format == 1
    assert own_nodes.load_formats(store) == (dict.fromkeys(IN_NODE, 1), __version__)
    formats.follow(PLAIN)
    assert later.calls == []
    assert numbers(paths) == [1, 1]


def test_records_of_consumer_groups_have_a_number(store: EmbeddedStore, paths: list[Path]) -> None:
    """Raised with the feature's level, and not lowered with it."""
    later: Any = Later()
    formats = Formats(lambda: paths, lambda: store, later)
    formats.follow(PLAIN.with_features(FinalizedFeatures().changed({"group.version": 1})))
    formats.raise_at_start()
    formats.follow(PLAIN)
    expected = {**dict.fromkeys(IN_NODE, 1), Format.INTERNAL_TOPICS: 2}
    assert own_nodes.load_formats(store) == (expected, __version__)
    assert later.calls == []


def test_records_of_share_groups_have_a_number(store: EmbeddedStore, paths: list[Path]) -> None:
    """Raised with the feature's level, and not lowered with it."""
    later: Any = Later()
    formats = Formats(lambda: paths, lambda: store, later)
    formats.follow(PLAIN.with_features(FinalizedFeatures().changed({"share.version": 1})))
    formats.raise_at_start()
    formats.follow(PLAIN)
    expected = {**dict.fromkeys(IN_NODE, 1), Format.INTERNAL_TOPICS: 3}
    assert own_nodes.load_formats(store) == (expected, __version__)
    assert later.calls == []


def test_a_start_raises_them_itself(store: EmbeddedStore, paths: list[Path]) -> None:
    later: Any = Later()
    formats = Formats(lambda: paths, lambda: store, later)
    formats.follow(RAISED)
    assert later.calls == []
    formats.raise_at_start()
    assert numbers(paths) == [1, 1]


def test_a_directory_that_fails_does_not_stop_the_others(
    store: EmbeddedStore, paths: list[Path], tmp_path: Path
) -> None:
    later: Any = Later()
    formats = Formats(lambda: [tmp_path / "gone", *paths], lambda: store, later)
    formats.follow(RAISED)
    formats.raise_at_start()
    assert numbers(paths) == [1, 1]


def test_a_cluster_that_writes_more_is_refused(store: EmbeddedStore) -> None:
    check_cluster(store)
    own_nodes.raise_formats(store, {Format.INTERNAL_TOPICS: 4}, "9.0.0")
    with pytest.raises(
        DataDirectoryError, match=r"records in internal topics.*start kbroker 9\.0\.0"
    ):
        check_cluster(store)


@pytest.mark.parametrize("name", [TRANSACTION_VERSION, "group.version", "share.version", "another"])
def test_a_level_that_is_not_known_is_refused(store: EmbeddedStore, name: str) -> None:
    store.multi(own_nodes.writing(store, FinalizedFeatures().changed({name: 3})))
    with pytest.raises(DataDirectoryError, match=f"has {name} at level 3"):
        check_cluster(store)


def test_a_level_that_is_raised_before_the_registration_is_refused(store: EmbeddedStore) -> None:
    """With the line of the check when the store is opened."""
    ensure_skeleton(store, "cluster")

    def check(store: MetadataStore) -> None:
        check_cluster(store)
        store.multi(own_nodes.writing(store, FinalizedFeatures().changed({TRANSACTION_VERSION: 3})))

    with pytest.raises(DataDirectoryError, match=f"has {TRANSACTION_VERSION} at level 3"):
        register(store, BrokerImage(2, "h", 9092), set(), 1, check)
    assert not store.children(BROKER_IDS)


def test_an_embedded_store_keeps_its_number(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path)
    store.raise_format(1, "0.1.0")
    store.raise_format(0, "0.1.0")
    assert store.format == 1
    store.close()
    store = EmbeddedStore.open(tmp_path)
    assert store.format == 1
    store.mark_exported(Exported("now", "file", "0"))
    store.close()
    with pytest.raises(DataDirectoryError, match="was exported"):
        EmbeddedStore.open(tmp_path)
    store = EmbeddedStore.open(tmp_path, exported_too=True)
    store.mark_exported(None)
    assert store.format == 1
    store.raise_format(2, "9.0.0")
    store.close()
    with pytest.raises(DataDirectoryError, match=rf"{DATABASE_FILE} has format 2.*kbroker 9\.0\.0"):
        EmbeddedStore.open(tmp_path)


def test_a_number_is_a_schema_that_an_earlier_kbroker_refuses(tmp_path: Path) -> None:
    import sqlite3

    store = EmbeddedStore.open(tmp_path)
    store.raise_format(1, "0.1.0")
    store.close()
    connection = sqlite3.connect(tmp_path / DATABASE_FILE)
    assert connection.execute("PRAGMA user_version").fetchone() == (4,)
    connection.close()
