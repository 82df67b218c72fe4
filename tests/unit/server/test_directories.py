"""A data directory that is not mounted: its partitions are offline, and its place stays empty.

A disk that is away leaves no directory at all, or the empty one that it is mounted on.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from kbroker.config import BrokerConfig
from kbroker.errors import DataDirectoryError, KafkaError
from kbroker.log.engine.checkpoints import PARTITION_METADATA_FILE, write_partition_metadata
from kbroker.log.manager import LogManager
from kbroker.log.opening.data_directory import BOOT_FILE, CLEAN_SHUTDOWN_FILE
from kbroker.log.opening.placement import Absence
from kbroker.metadata.controller import NewTopic
from kbroker.metadata.controller.directory_nodes import save_used_directories
from kbroker.metadata.controller.records import encode_topic, topic_path
from kbroker.metadata.controller.skeleton import ensure_skeleton
from kbroker.metadata.store.embedded import EmbeddedStore
from kbroker.replica._replica import Replica
from kbroker.replica.held_replicas import HeldReplicas
from kbroker.server.broker import Broker
from kbroker.server.directories import Directories
from tests.support.record_batches import build_batch
from tests.unit.server.test_failed_start import EXPECTED, ask, ends, fill, make, tree


@contextmanager
def running(data: Path) -> Iterator[Broker]:
    broker = make(data)
    broker.start()
    try:
        yield broker
    finally:
        assert broker.stop()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("filled") / "data"
    with running(data) as broker:
        fill(broker)
    return data


@pytest.fixture
def data(filled: Path, tmp_path: Path) -> Path:
    """Two directories with topics in both."""
    shutil.copytree(filled, tmp_path / "data")
    return tmp_path / "data"


def held_in(directory: Path) -> set[str]:
    return {each.name for each in directory.iterdir() if each.name in EXPECTED}


def log_of(broker: Broker, topic: str, index: int) -> Replica:
    log = broker._replicas.partition(topic, index)
    assert log is not None
    return log


@pytest.mark.parametrize("place", ["nothing", "an empty directory"])
def test_a_disk_that_is_away(data: Path, tmp_path: Path, place: str) -> None:
    two, away = data / "two", tmp_path / "away"
    os.rename(two, away)
    if place != "nothing":
        two.mkdir()
    gone = held_in(away)
    assert gone and gone != EXPECTED.keys()
    for _ in range(2):  # the second start knows as well
        with running(data) as broker:
            assert ends(broker) == {n: v for n, v in EXPECTED.items() if n not in gone}
            assert broker._controller is not None
            image = broker._controller.image
            leaderless = {f"{p.topic}-{p.index}" for p in image.partitions() if p.leader < 0}
            assert leaderless == gone
            use = {each.path: each.failed for each in broker._logs.use_of_directories(None)}
            assert use == {str(two): True, str(data / "one"): False}
            assert [check.ok for check in broker.readiness.checks()] == [True, True, False]
        assert not two.exists() or not any(two.iterdir())
    if two.exists():
        two.rmdir()
    os.rename(away, two)
    with running(data) as broker:
        assert ends(broker) == EXPECTED


def test_new_topics_go_to_the_directories_that_are_there(data: Path, tmp_path: Path) -> None:
    os.rename(data / "two", tmp_path / "away")
    with running(data) as broker:
        controller = broker._controller
        assert controller is not None
        ask(lambda done: controller.create_topics([NewTopic("new", 4, 1)], False, done))
        assert log_of(broker, "new", 3).append(build_batch()).base_offset == 0
    os.rename(tmp_path / "away", data / "two")
    with running(data) as broker:
        assert log_of(broker, "new", 3).log_end_offset == 1
        assert {**ends(broker), **EXPECTED} == ends(broker)


def test_a_directory_that_is_lost_for_good_is_forgotten_with_its_topics(data: Path) -> None:
    shutil.rmtree(data / "two")
    with running(data) as broker:
        controller = broker._controller
        assert controller is not None
        delete, create = controller.delete_topics, controller.create_topics
        ask(lambda done: delete(["kept", "cut"], done))
        ask(lambda done: create([NewTopic("kept", 4, 1)], False, done))
    with running(data) as broker:
        assert (data / "two" / "meta.properties").exists()
        controller = broker._controller
        assert controller is not None
        ask(lambda done: controller.create_topics([NewTopic("after", 9, 1)], False, done))
        assert len(broker._replicas.replicas()) == 13
    assert any(each.name.startswith("after-") for each in (data / "two").iterdir())


def test_a_directory_that_held_nothing_is_not_missed(data: Path) -> None:
    with running(data) as broker:
        controller = broker._controller
        assert controller is not None
        ask(lambda done: controller.delete_topics(["kept", "cut"], done))
    shutil.rmtree(data / "two")
    with running(data):
        assert (data / "two" / "meta.properties").exists()


def test_causes_of_a_lossy_start_where_others_have_replicas(data: Path) -> None:
    two = data / "two"

    def look(*, shared: bool = True) -> tuple[frozenset[Path], bool]:
        directories = make(data)._directories
        directories.identify()
        store = EmbeddedStore.open(data / "one")
        directories.look(store, shared=shared)
        store.close()
        return directories.foreign, directories.lack_logs

    assert look() == (frozenset(), False)
    meta = two / "meta.properties"
    before = meta.read_text()
    meta.write_text(re.sub("directory.id=.*", "directory.id=another", before))
    assert look() == (frozenset({two}), False)  # a copy of before: no log is missed
    meta.write_text(before)
    shutil.rmtree(two / min(held_in(two)))
    assert look() == (frozenset(), True)
    assert look(shared=False) == (frozenset(), False)


def test_a_broker_that_lost_its_disk_gets_advice_to_follow_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The store is elsewhere, in a cluster; no directory is left that a log could be made in."""
    path, store = tmp_path / "data", EmbeddedStore.open(tmp_path / "store")
    ensure_skeleton(store, "a-cluster")
    save_used_directories(store, 1, {"the one that was": "/old"})
    replicas = encode_topic(UUID(int=7), [(1, 2)])
    store.create(topic_path("t"), replicas)

    def look() -> tuple[Absence, bool]:
        directories = Directories([path], path, 1)
        directories.identify()
        return directories.look(store, shared=True), directories.lack_logs

    absence, lossy = look()
    assert absence == Absence(("/old",), frozenset({path})) and lossy
    assert "if it is lost, delete /brokers/directories/1 in ZooKeeper and start" in caplog.text
    logs = LogManager([path], listener=HeldReplicas(lambda replica: None))
    logs.start(absence)
    for new in (True, False):
        with pytest.raises(KafkaError, match="a data directory is missing or has failed: /old"):
            logs.open("t", 0, UUID(int=7), {}, new=new)
    logs.stop()
    store.delete("/brokers/directories/1")
    absence, lossy = look()
    assert not absence and lossy
    store.close()


def test_a_brokers_logs_know_the_boot(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for boot, lossy in (("another", True), ("another", False)):
        (data / "one" / CLEAN_SHUTDOWN_FILE).unlink()  # as after a kill
        monkeypatch.setattr("kbroker.server.broker.boot_id", lambda boot=boot: boot)
        with running(data) as broker:
            assert broker._logs.lossy is lossy
            noted = (data / "one" / BOOT_FILE).read_text()
            assert noted.startswith(f"{boot}:")  # its controller knows


def test_the_store_is_not_begun_anew_where_it_is_not_mounted(data: Path, tmp_path: Path) -> None:
    os.rename(data / "one", tmp_path / "away")
    before = tree(tmp_path)
    with pytest.raises(DataDirectoryError, match="metadata store should be, is new"):
        make(data).start()
    assert tree(tmp_path) == before


def test_directories_of_two_clusters_are_refused(data: Path) -> None:
    meta = data / "two" / "meta.properties"
    lines = meta.read_text().splitlines()
    changed = ["cluster.id=another" if line.startswith("cluster.id") else line for line in lines]
    meta.write_text("\n".join(changed))
    before = tree(data)
    with pytest.raises(DataDirectoryError, match="belongs to cluster another"):
        make(data).start()
    assert tree(data) == before


def test_the_store_is_not_begun_anew_in_another_entry(data: Path, tmp_path: Path) -> None:
    one, two = data / "one", data / "two"
    before = tree(tmp_path)
    values = [f"log.dirs={two},{one}", "listeners=PLAINTEXT://127.0.0.1:0"]
    with pytest.raises(DataDirectoryError, match=f"the metadata store is in {one}"):
        Broker(BrokerConfig.load(None, {}, values), two).start()
    assert tree(tmp_path) == before


def test_the_log_of_a_deleted_topic_is_not_the_one_that_is_away(data: Path, tmp_path: Path) -> None:
    """It has the name, since its directory was away when the topic was deleted and made again."""
    gone = held_in(data / "two")
    for name in gone:
        left = data / "one" / name
        shutil.copytree(data / "two" / name, left)
        write_partition_metadata(left / PARTITION_METADATA_FILE, UUID(int=1))
    os.rename(data / "two", tmp_path / "away")
    with running(data) as broker:
        assert ends(broker) == {n: v for n, v in EXPECTED.items() if n not in gone}
    os.rename(tmp_path / "away", data / "two")
    with running(data) as broker:
        assert ends(broker) == EXPECTED
