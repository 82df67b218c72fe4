"""Who registers under an id that is registered: the same broker after a kill, or another one."""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kbroker.clock import Clock, ManualClock
from kbroker.errors import DataDirectoryError
from kbroker.metadata.controller import records
from kbroker.metadata.controller.registration import (
    SESSION_END_MS,
    Registration,
    register,
)
from kbroker.metadata.image import BrokerImage, ClusterImage
from kbroker.metadata.store.base import MetadataStore
from kbroker.metadata.store.embedded import EmbeddedStore

OURS = BrokerImage(3, "h", 9092)
PATH = records.broker_path(3)
SESSION_MS = 6_000


def registration(
    *,
    broker: BrokerImage = OURS,
    locks: Collection[str] = (),
    clock: Clock | None = None,
    session_ms: int | None = SESSION_MS,
    known: Callable[[], None] = lambda: None,
) -> Registration:
    return Registration(broker, lambda: locks, clock or ManualClock(), session_ms, known)


@pytest.fixture
def dead(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """A session with a registration, of which the process is gone and the end is not known."""
    store = EmbeddedStore.open(tmp_path)
    store.ensure(records.BROKER_IDS)
    register(store, OURS, {"a", "b"}, 1)
    yield store
    store.close()


@pytest.fixture
def store(dead: EmbeddedStore) -> Iterator[EmbeddedStore]:
    store = dead.new_session()
    yield store
    store.close()


def test_a_process_that_holds_one_of_its_locks_takes_its_place(store: EmbeddedStore) -> None:
    moved = BrokerImage(3, "h", 9093, "r")
    register(store, moved, {"b", "c"}, 2)
    node = store.get(PATH)
    assert node.owner == store.session_id
    assert records.decode_broker(PATH, node.data) == moved
    assert records.decode_broker_locks(PATH, node.data) == {"b", "c"}


@pytest.mark.parametrize("locks", [set(), {"c"}])
def test_a_process_that_holds_none_of_them_is_another_broker(
    dead: EmbeddedStore, store: EmbeddedStore, locks: set[str]
) -> None:
    with pytest.raises(DataDirectoryError, match=r"node\.id 3 is in use"):
        register(store, OURS, locks, 2)
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


@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_broker_that_does_not_know_a_level_is_not_there(
    dead: EmbeddedStore, store: EmbeddedStore, fails_at: int
) -> None:
    """Before the registration, and after it: a level may be raised in between."""
    dead.close()
    was_there: list[bool] = []

    def check(store: MetadataStore) -> None:
        was_there.append(store.exists(PATH))
        if len(was_there) == fails_at:
            raise DataDirectoryError("a level is too high", "start a later kbroker")

    with pytest.raises(DataDirectoryError, match="a level is too high"):
        register(store, OURS, set(), 2, check)
    assert was_there == [False, True][:fails_at]
    assert not store.exists(PATH)


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


@pytest.mark.parametrize(
    "said",
    [
        b'{"version":4,"host":"h","port":1,"endpoints":[],"rack":null}',  # Apache Kafka's
        b'{"version":5,"host":"h","port":1,"endpoints":[],"directories":["a"]}',  # before locks
    ],
)
def test_a_registration_that_names_no_locks_is_left_alone(
    dead: EmbeddedStore, store: EmbeddedStore, said: bytes
) -> None:
    dead.set(PATH, said)
    with pytest.raises(DataDirectoryError, match=r"node\.id 3 is in use"):
        register(store, OURS, {"a"}, 2)
    with pytest.raises(DataDirectoryError, match="no text"):
        records.decode_broker_locks(PATH, b'{"version":5,"locks":[1]}')


def test_a_start_waits_for_the_end_of_a_session_whose_process_may_live(
    dead: EmbeddedStore, store: EmbeddedStore
) -> None:
    clock = ManualClock()
    begun_ms = clock.monotonic_ms()
    twin = registration(locks={"a copy's"}, clock=clock)
    until_ms = twin.wait_until_ms(store, None)
    assert until_ms == begun_ms + SESSION_MS + SESSION_END_MS
    clock.advance(SESSION_MS)
    assert twin.wait_until_ms(store, until_ms) == until_ms
    clock.advance(SESSION_END_MS)
    assert twin.wait_until_ms(store, until_ms) is None  # what follows is refused
    dead.close()
    assert registration(locks={"a copy's"}).wait_until_ms(store, None) is None


@pytest.mark.parametrize("alone", [True, False])
def test_a_start_does_not_wait_for_the_dead_or_alone(store: EmbeddedStore, alone: bool) -> None:
    ours = registration(locks={"c"} if alone else {"b"}, session_ms=None if alone else SESSION_MS)
    assert ours.wait_until_ms(store, None) is None


def test_another_ones_registration_is_not_ours_and_stays(
    dead: EmbeddedStore, store: EmbeddedStore
) -> None:
    ours = registration(locks={"a"})
    assert not ours.is_there(store)
    ours.make(store)
    assert ours.is_there(store)
    other = store.new_session()
    register(other, OURS, {"a"}, 3)
    assert not ours.is_there(store)
    ours.remove(store)
    assert store.exists(PATH)
    other.close()
    assert not ours.is_there(store)


def test_that_a_lossy_start_is_known_is_noted_again_once_however_many_images_come() -> None:
    full, tried = [True], [0]

    def note() -> None:
        tried[0] += 1
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")

    lossy = BrokerImage(3, lossy=True)
    ours = registration(broker=lossy, known=note)
    ours.epoch = 6
    unknown = ClusterImage().with_brokers([replace(lossy, epoch=7)])
    image = ClusterImage().with_brokers([replace(lossy, epoch=7, lossy=False)])
    assert ours.note_image(image)
    ours.epoch = 7
    assert ours.note_image(unknown) and ours.broker.lossy
    assert not ours.note_image(image)  # it is to come again
    assert not ours.broker.lossy  # or another session would make it a second loss
    assert all(ours.note_image(image) for _ in range(5))
    assert tried == [1]
    assert not ours.note_image(image, again=True)
    full[0] = False
    assert ours.note_image(image) and tried == [2]
    assert ours.note_image(image, again=True) and tried == [3]
    assert ours.note_image(image) and tried == [3]
