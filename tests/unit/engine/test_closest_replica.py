"""From which replica a leader sends its consumers to read (KIP-392), by racks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from kbroker.errors import ErrorCode
from tests.support.record_batches import build_batch
from tests.unit.engine.wire import (
    FETCH_VERSIONS,
    SESSION_VERSIONS,
    Ask,
    Fetched,
    fetch,
    fetch_frame,
    fetched_in,
)
from tests.unit.net.harness import NODE_ID, Client, Rig, Topic

ONE, TWO, FAR, HIDDEN, GONE = 2, 3, 4, 5, 6
# By broker: its rack, and whether it listens where clients come. GONE is not registered.
RACKS: dict[int, str | None] = {NODE_ID: "a", ONE: "b", TWO: "b", FAR: "c", HIDDEN: "b"}
BATCHES = 5
LONG_MS = 600_000
BATCH = build_batch([b"x" * 100])
VERSIONS = [version for version in FETCH_VERSIONS if version >= 11]
every_version = pytest.mark.parametrize("version", VERSIONS)


class At(NamedTuple):
    """A follower by its fetches."""

    end: int
    start: int = 0
    in_sync: bool = True
    caught_up_ms: int = 1


@pytest.fixture
def aware(make_rig: Callable[..., Rig]) -> Rig:
    rig = make_rig(hot={"rack_aware": True})
    show(rig)
    return rig


def show(rig: Rig, racks: Mapping[int, str | None] = RACKS) -> None:
    """What Metadata shows of the brokers, which is what a leader knows of them."""
    brokers: list[Any] = [
        (node, [None if node == HIDDEN else ("here", 9000 + node)], rack)
        for node, rack in racks.items()
    ]
    rig.table.show([], [], brokers, "cluster")


def led(rig: Rig, followers: Mapping[int, At], name: str = "t") -> Topic:
    """Five batches, the first of which followers may have lost again."""
    topic = rig.create(name)
    place(topic, followers)
    return topic


def place(topic: Topic, followers: Mapping[int, At], leader_epoch: int = 0) -> None:
    (log,) = topic.logs
    known = {broker: at.in_sync for broker, at in followers.items()}
    log.set_leadership(NODE_ID, True, leader_epoch, 1 + len(followers), known)
    while log.log_end_offset < BATCHES:
        log.append(BATCH)
    for broker, at in followers.items():
        if at.end >= 0:
            now_ns = at.caught_up_ms * 1_000_000
            log.note_fetch(broker, at.end, now_ns, log_start_offset=at.start)


def ask(
    rig: Rig, topic: Topic, rack: str = "b", *, version: int = 17, offset: int = 0, **options: Any
) -> Fetched:
    asks = [Ask(topic, 0, offset)]
    return fetch(rig.client(), version, asks, rack=rack, **options).only


def test_a_client_that_is_to_read_elsewhere_is_answered_at_once_with_nothing(aware: Rig) -> None:
    topic = led(aware, {ONE: At(3)})
    for version in VERSIONS:
        found = ask(aware, topic, version=version, max_wait_ms=LONG_MS)
        assert (found.error, found.preferred, found.records) == (0, ONE, b"")
        assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (3, 3, 0)
    assert aware.hot.statistics()["parked_fetches"] == 0


# Of three followers: where they stand, the consumer's rack and offset, and who is chosen.
CHOICES: dict[str, tuple[dict[int, At], str, int, int]] = {
    "the one of its rack": ({ONE: At(5), FAR: At(5)}, "b", 2, ONE),
    "another rack, another one": ({ONE: At(5), FAR: At(5)}, "c", 2, FAR),
    "the leader is in that rack": ({ONE: At(5)}, "a", 2, -1),
    "no broker is in that rack": ({ONE: At(5)}, "d", 2, -1),
    "a rack is more than how it begins": ({ONE: At(5)}, "bb", 2, -1),
    "no rack": ({ONE: At(5)}, "", 2, -1),
    "racks are compared by their letters": ({ONE: At(5)}, "B", 2, -1),
    "of two the one that is further": ({ONE: At(5), TWO: At(4)}, "b", 2, ONE),
    "the same, in the other order": ({ONE: At(4), TWO: At(5)}, "b", 2, TWO),
    "of two at the end who was there last": (
        {ONE: At(5, caught_up_ms=9), TWO: At(5, caught_up_ms=8)}, "b", 2, ONE),
    "of two alike the higher id": ({ONE: At(5), TWO: At(5)}, "b", 2, TWO),
    "it has to hold the offset": ({ONE: At(5), TWO: At(1)}, "b", 2, ONE),
    "it may stand right there": ({ONE: At(2)}, "b", 2, ONE),
    "it is not there yet": ({ONE: At(1)}, "b", 2, -1),
    "it has not fetched in this epoch": ({ONE: At(-1)}, "b", 0, -1),
    "its log begins after the offset": ({ONE: At(5, start=3)}, "b", 2, -1),
    "its log begins at the offset": ({ONE: At(5, start=2)}, "b", 2, ONE),
    "it does not say where its log begins": ({ONE: At(5, start=-1)}, "b", 0, ONE),
    "the further one does not hold it": ({ONE: At(5, start=3), TWO: At(4)}, "b", 2, TWO),
    "it is not in sync": ({ONE: At(5, in_sync=False)}, "b", 2, -1),
    "clients do not reach it": ({HIDDEN: At(5)}, "b", 2, -1),
    "it is not registered any more": ({GONE: At(5), ONE: At(4)}, "b", 2, ONE),
    "an offset beyond the end": ({ONE: At(5)}, "b", 6, -1),
    "an offset before the start": ({ONE: At(5)}, "b", -1, -1),
    "no followers": ({}, "b", 0, -1),
}  # fmt: skip


@pytest.mark.parametrize("followers, rack, offset, chosen", CHOICES.values(), ids=CHOICES)
def test_a_choice(
    aware: Rig, followers: dict[int, At], rack: str, offset: int, chosen: int
) -> None:
    topic = led(aware, followers)
    found = ask(aware, topic, rack, offset=offset)
    assert found.preferred == chosen
    if chosen >= 0:
        assert found.records == b""
    elif 0 <= offset < topic.logs[0].high_watermark:
        assert found.records


def test_a_leader_without_a_rack_is_nobodys_neighbour(aware: Rig) -> None:
    topic = led(aware, {ONE: At(5)})
    show(aware, RACKS | {NODE_ID: None})
    assert ask(aware, topic).preferred == ONE
    show(aware, RACKS | {ONE: None})
    assert ask(aware, topic).preferred == -1
    aware.table.hide()
    assert ask(aware, topic).preferred == -1


def test_records_that_are_deleted_here_are_asked_of_no_follower(aware: Rig) -> None:
    """Its follower does not have it yet."""
    topic = led(aware, {ONE: At(5)})
    assert topic.logs[0].delete_records(2) == 2
    assert ask(aware, topic, offset=1).error == ErrorCode.OFFSET_OUT_OF_RANGE
    assert ask(aware, topic, offset=2).preferred == ONE


def test_versions_that_cannot_say_it(aware: Rig) -> None:
    topic = led(aware, {ONE: At(5)})
    for version in [version for version in FETCH_VERSIONS if version < 11]:
        found = fetch(aware.client(), version, [Ask(topic)], max_wait_ms=LONG_MS).only
        assert found.records is not None and len(found.records) == BATCHES * len(BATCH)


@every_version
def test_without_a_selector_all_read_from_the_leader(rig: Rig, version: int) -> None:
    show(rig)
    topic = led(rig, {ONE: At(5)})
    found = ask(rig, topic, version=version, max_wait_ms=LONG_MS)
    assert (found.preferred, bool(found.records)) == (-1, True)


@every_version
def test_a_follower_is_sent_nowhere(aware: Rig, version: int) -> None:
    topic = led(aware, {ONE: At(5), TWO: At(5)})
    found = ask(aware, topic, version=version, replica_id=ONE)
    assert found.preferred == -1
    assert found.records is not None and len(found.records) == BATCHES * len(BATCH)


@every_version
def test_an_epoch_comes_first(aware: Rig, version: int) -> None:
    topic = led(aware, {ONE: At(5)})
    place(topic, {ONE: At(5)}, leader_epoch=3)
    for epoch, error in (
        (2, ErrorCode.FENCED_LEADER_EPOCH),
        (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        asks = [Ask(topic, leader_epoch=epoch)]
        found = fetch(aware.client(), version, asks, rack="b").only
        assert (found.error, found.preferred, found.high_watermark) == (error, -1, -1)
    asks = [Ask(topic, leader_epoch=3)]
    assert fetch(aware.client(), version, asks, rack="b").only.preferred == ONE


def test_a_follower_sends_no_consumer_elsewhere(aware: Rig) -> None:
    topic = led(aware, {ONE: At(5)})
    topic.logs[0].set_leadership(ONE, False, 1, 2)
    assert ask(aware, topic).preferred == -1


def test_where_a_follower_begins_comes_with_its_fetches(aware: Rig) -> None:
    """Also in a session whose later requests do not name the partition."""
    topic = led(aware, {ONE: At(-1)})
    follower = aware.client()
    asks = [Ask(topic, 0, 5, leader_epoch=0, log_start=3)]
    first = fetch(follower, 17, asks, replica_id=ONE, session=(0, 0))
    assert [ask(aware, topic, offset=at).preferred for at in (2, 3)] == [-1, ONE]
    fetch(follower, 17, [], replica_id=ONE, session=(first.session_id, 1))
    assert [ask(aware, topic, offset=at).preferred for at in (2, 3)] == [-1, ONE]


def test_only_the_partitions_that_are_nearer_elsewhere(aware: Rig) -> None:
    """The others of the request are read and answered with it."""
    near, far = led(aware, {ONE: At(5)}), led(aware, {FAR: At(5)}, "u")
    answer = fetch(aware.client(), 17, [Ask(near), Ask(far)], rack="b", max_wait_ms=LONG_MS)
    found = list(answer.partitions.values())
    assert [(each.preferred, bool(each.records)) for each in found] == [(ONE, False), (-1, True)]


def test_a_waiting_consumer_is_sent_when_it_is_woken(aware: Rig) -> None:
    """No broker of its rack was in sync when it came."""
    topic = led(aware, {ONE: At(5, in_sync=False)})
    reader = aware.client()
    reader.send(fetch_frame(17, [Ask(topic, 0, 5)], rack="b", max_wait_ms=LONG_MS))
    aware.wait_parked(1)
    place(topic, {ONE: At(5)})
    topic.logs[0].append(BATCH)
    topic.logs[0].note_fetch(ONE, 6, 1)
    aware.hot.wake(topic.logs[0])
    found = fetched_in(17, reader.receive()).only
    assert (found.preferred, found.records) == (ONE, b"")


@pytest.mark.parametrize("version", [version for version in SESSION_VERSIONS if version >= 11])
def test_a_session_tells_it_with_every_answer(aware: Rig, version: int) -> None:
    """Though nothing of the partition has changed: the client may have forgotten it again."""
    near, far = led(aware, {ONE: At(5)}), led(aware, {FAR: At(5)}, "u")
    client = aware.client()
    asks = [Ask(near, 0, 5), Ask(far, 0, 5)]
    first = fetch(client, version, asks, rack="b", session=(0, 0))
    assert [each.preferred for each in first.partitions.values()] == [ONE, -1]
    for epoch in (1, 2):
        again = fetch(
            client, version, [], rack="b", session=(first.session_id, epoch), max_wait_ms=LONG_MS
        )
        assert again.only.preferred == ONE
    left = fetch(
        client, version, [], rack="b", session=(first.session_id, 3), forgotten=[(near, 0)]
    )
    assert left.partitions == {}


def test_a_rack_that_is_no_text_and_one_that_is_too_long(aware: Rig) -> None:
    topic = led(aware, {ONE: At(5)})
    assert ask(aware, topic, "b" * 30_000).preferred == -1
    frame = bytearray(fetch_frame(11, [Ask(topic)], rack="bbbb"))
    at = frame.rindex(b"bbbb")
    frame[at - 2 : at] = b"\x7f\xff"  # longer than the frame
    client = aware.client()
    client.send(bytes(frame))
    assert client.ended()
    frame[at - 2 : at] = b"\x00\x04"
    frame[at : at + 4] = b"\xff\xfe\x00\x80"
    assert answered(aware.client(), bytes(frame)).preferred == -1


def answered(client: Client, frame: bytes) -> Fetched:
    client.send(frame)
    return fetched_in(11, client.receive()).only
