"""Who registers under an id that is registered: the same broker after a kill, or another one."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kbroker.errors import DataDirectoryError
from kbroker.metadata.controller import records
from kbroker.metadata.controller.registration import (
    Incarnation,
    add_directories,
    register,
)
from kbroker.metadata.image import BrokerImage, ClusterImage
from kbroker.metadata.store.embedded import EmbeddedStore

OURS = BrokerImage(3, "h", 9092)
PATH = records.broker_path(3)


@pytest.fixture
def dead(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """A session with a registration, of which the process is gone and the end is not known."""
    store = EmbeddedStore.open(tmp_path)
    store.ensure(records.BROKER_IDS)
    register(store, OURS, (), 1)
    add_directories(store, 3, {"a", "b"})
    yield store
    store.close()


@pytest.fixture
def store(dead: EmbeddedStore) -> Iterator[EmbeddedStore]:
    store = dead.new_session()
    yield store
    store.close()


def test_who_has_one_of_its_directories_takes_its_place(store: EmbeddedStore) -> None:
    moved = BrokerImage(3, "h", 9093, "r")
    register(store, moved, {"b", "c"}, 2)
    node = store.get(PATH)
    assert node.owner == store.session_id
    assert records.decode_broker(PATH, node.data) == moved
    assert records.decode_broker_directories(PATH, node.data) == {"b", "c"}


@pytest.mark.parametrize("directories", [set(), {"c"}])
def test_who_has_none_of_them_is_another_broker(
    dead: EmbeddedStore, store: EmbeddedStore, directories: set[str]
) -> None:
    with pytest.raises(DataDirectoryError, match=r"node\.id 3 is registered already"):
        register(store, OURS, directories, 2)
    assert store.get(PATH).owner == dead.session_id


@pytest.mark.parametrize("by_the_dead", [True, False])
def test_its_office_goes_with_it_and_no_others(
    dead: EmbeddedStore, store: EmbeddedStore, by_the_dead: bool
) -> None:
    other = dead.new_session()
    holder = dead if by_the_dead else other
    holder.create(records.CONTROLLER, records.encode_controller(9, 1), ephemeral=True)
    register(store, OURS, {"a"}, 2)
    assert store.exists(records.CONTROLLER) is not by_the_dead
    other.close()


def test_a_session_that_ends_meanwhile_is_no_trouble(
    dead: EmbeddedStore, store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = store.get

    def get(path: str) -> object:
        node = read(path)
        dead.close()
        return node

    monkeypatch.setattr(store, "get", get)
    register(store, OURS, {"a"}, 2)
    assert read(PATH).owner == store.session_id


def test_directories_are_added_to_what_is_registered(dead: EmbeddedStore) -> None:
    node = dead.get(PATH)
    assert records.decode_broker(PATH, node.data) == OURS
    assert records.decode_broker_directories(PATH, node.data) == {"a", "b"}
    add_directories(dead, 3, {"b", "a"})
    assert dead.get(PATH).version == node.version


def test_a_registration_of_kafkas_has_no_directories() -> None:
    data = b'{"version":4,"host":"h","port":1,"endpoints":[],"rack":null}'
    assert records.decode_broker_directories(PATH, data) == frozenset()
    with pytest.raises(DataDirectoryError, match="no text"):
        records.decode_broker_directories(PATH, b'{"version":5,"directories":[1]}')


def test_that_a_lossy_start_is_known_is_noted_again_once_however_many_images_come() -> None:
    full, tried = [True], [0]

    def note() -> None:
        tried[0] += 1
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")

    lossy = BrokerImage(3, lossy=True)
    ours = Incarnation(lossy, note)
    unknown = ClusterImage().with_brokers([replace(lossy, epoch=7)])
    image = ClusterImage().with_brokers([replace(lossy, epoch=7, lossy=False)])
    assert ours.heard(6, image) and ours.heard(7, unknown) and ours.broker.lossy
    assert not ours.heard(7, image)  # it is to come again
    assert not ours.broker.lossy  # or another session would make it a second loss
    assert all(ours.heard(7, image) for _ in range(5))
    assert tried == [1]
    assert not ours.heard(7, image, again=True)
    full[0] = False
    assert ours.heard(7, image) and tried == [2]
    assert ours.heard(7, image, again=True) and tried == [3]
    assert ours.heard(7, image) and tried == [3]
