"""Consumers that read from a follower (KIP-392): how far, their answers, and when they wake."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kbroker.errors import ErrorCode
from kbroker.types import ApiKey
from tests.support.led_log import LedLog
from tests.support.record_batches import build_batch
from tests.unit.engine.wire import (
    FETCH_VERSIONS,
    Ask,
    Fetched,
    answer_in,
    fetch,
    fetch_frame,
    fetched_in,
)
from tests.unit.net.harness import Client, Rig, Topic

LEADER, OTHER = 7, 8
EPOCH = 4
LONG_MS = 600_000
BATCH = build_batch([b"x" * 100])
VERSIONS = [version for version in FETCH_VERSIONS if version >= 11]
OLDER = [version for version in FETCH_VERSIONS if version < 11]
every_version = pytest.mark.parametrize("version", VERSIONS)


def from_leader(log: LedLog, count: int, high_watermark: int, log_start: int = 0) -> None:
    """So many batches more came from the leader, and how far it says to be."""
    for _ in range(count):
        log.append_as_follower(build_batch(
            [b"x" * 100], base_offset=log.log_end_offset, leader_epoch=EPOCH), EPOCH)  # fmt: skip
    log.follow_bounds(EPOCH, high_watermark, log_start)


@pytest.fixture
def followed(rig: Rig) -> Topic:
    """Five batches are here, and the leader has said that three are committed."""
    topic = rig.create("t")
    topic.logs[0].set_leadership(LEADER, False, EPOCH, 2)
    from_leader(topic.logs[0], 5, 3)
    return topic


def ask(rig: Rig, topic: Topic, offset: int, version: int = 17, **options: int) -> Fetched:
    return fetch(rig.client(), version, [Ask(topic, 0, offset)], **options).only


def parked(rig: Rig, topic: Topic, offset: int, leader_epoch: int = -1) -> Client:
    reader = rig.client()
    asks = [Ask(topic, 0, offset, leader_epoch=leader_epoch)]
    reader.send(fetch_frame(17, asks, max_wait_ms=LONG_MS))
    rig.wait_parked(1)
    return reader


def read(reader: Client) -> Fetched:
    return fetched_in(17, reader.receive()).only


@every_version
def test_up_to_its_high_watermark(rig: Rig, followed: Topic, version: int) -> None:
    for committed in (False, True):
        asks = [Ask(followed)]
        found = fetch(rig.client(), version, asks, read_committed=committed).only
        assert (found.error, found.preferred) == (0, -1)
        assert found.records is not None and len(found.records) == 3 * len(BATCH)
        assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (3, 3, 0)


@pytest.mark.parametrize("version", OLDER)
def test_older_versions_read_from_the_leader(rig: Rig, followed: Topic, version: int) -> None:
    found = ask(rig, followed, 0, version, max_wait_ms=LONG_MS)
    assert (found.error, found.records) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")


@every_version
def test_followers_read_from_the_leader(rig: Rig, followed: Topic, version: int) -> None:
    found = ask(rig, followed, 0, version, replica_id=OTHER, max_wait_ms=LONG_MS)
    assert (found.error, found.records) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")


@every_version
@pytest.mark.parametrize(
    ("offset", "error"),
    [
        (1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (2, 0),
        (3, 0),  # nothing is committed there yet
        (5, 0),
        (6, ErrorCode.OFFSET_OUT_OF_RANGE),  # it may be there at the leader, where clients go then
    ],
)
def test_offsets(rig: Rig, followed: Topic, version: int, offset: int, error: int) -> None:
    from_leader(followed.logs[0], 0, 3, log_start=2)
    found = ask(rig, followed, offset, version)
    assert (found.error, bool(found.records)) == (error, offset == 2)
    assert found.high_watermark == (-1 if error else 3)


@every_version
@pytest.mark.parametrize(
    ("epoch", "error"),
    [(EPOCH - 1, ErrorCode.FENCED_LEADER_EPOCH), (EPOCH + 1, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_epochs(rig: Rig, followed: Topic, version: int, epoch: int, error: ErrorCode) -> None:
    asks = [Ask(followed, leader_epoch=epoch)]
    assert fetch(rig.client(), version, asks, max_wait_ms=LONG_MS).only.error == error
    assert fetch(rig.client(), version, [Ask(followed, leader_epoch=EPOCH)]).only.records


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= 12])
def test_another_history_is_answered(rig: Rig, followed: Topic, version: int) -> None:
    """Who comes with records of an epoch before the first one here is to go back to the start."""
    client = rig.client()
    asks = [Ask(followed, 0, 2, fetched_epoch=EPOCH - 1)]
    client.send(fetch_frame(version, asks, max_wait_ms=LONG_MS))
    _, answer = answer_in(ApiKey.FETCH, version, client.receive())
    (found,) = answer.responses[0].partitions
    assert (found.error_code.value, found.records) == (0, b"")
    assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (EPOCH - 1, 0)
    asks = [Ask(followed, 0, 2, fetched_epoch=EPOCH)]
    assert fetch(client, version, asks).only.records


def test_a_log_that_is_broken(rig: Rig, followed: Topic) -> None:
    followed.logs[0].close(clean=False)
    found = ask(rig, followed, 0, max_wait_ms=LONG_MS)
    assert found.error == ErrorCode.KAFKA_STORAGE_ERROR


# --- who waits ---


def test_the_high_watermark_wakes_and_records_alone_do_not(rig: Rig, followed: Topic) -> None:
    log = followed.logs[0]
    reader = parked(rig, followed, 3)
    from_leader(log, 1, 3)
    rig.hot.wake(log)
    assert rig.hot.statistics()["parked_now"] == 1 and not reader.has_bytes()
    from_leader(log, 0, 5)
    rig.hot.wake(log)
    found = read(reader)
    assert found.high_watermark == 5
    assert found.records is not None and len(found.records) == 2 * len(BATCH)


def test_a_fetch_above_the_high_watermark_of_here_waits_for_it(rig: Rig, followed: Topic) -> None:
    """It has read at the leader what this replica does not know to be committed."""
    reader = parked(rig, followed, 5)
    from_leader(followed.logs[0], 0, 5)
    rig.hot.wake(followed.logs[0])
    assert rig.hot.statistics()["parked_now"] == 1
    from_leader(followed.logs[0], 1, 6)
    rig.hot.wake(followed.logs[0])
    assert read(reader).records


def test_the_start_of_the_log_wakes_fetches_below_it(rig: Rig, followed: Topic) -> None:
    reader = parked(rig, followed, 3)
    from_leader(followed.logs[0], 0, 5, log_start=4)
    rig.hot.wake(followed.logs[0])
    assert read(reader).error == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_cut_wakes_readers_beyond_the_end(rig: Rig, followed: Topic) -> None:
    reader = parked(rig, followed, 5)
    followed.logs[0].truncate_to(4)
    rig.hot.wake(followed.logs[0])
    assert read(reader).error == ErrorCode.OFFSET_OUT_OF_RANGE


def test_another_epoch_wakes_fetches_of_the_old_one(rig: Rig, followed: Topic) -> None:
    log = followed.logs[0]
    reader = parked(rig, followed, 3, leader_epoch=EPOCH)
    log.set_leadership(OTHER, False, EPOCH + 1, 2)
    rig.hot.wake(log)
    assert read(reader).error == ErrorCode.FENCED_LEADER_EPOCH
    reader = parked(rig, followed, 3)  # in none
    log.set_leadership(1, True, EPOCH + 2, 1)
    log.set_leadership(OTHER, False, EPOCH + 3, 2)
    assert log.high_watermark == 5  # as leader it had no follower to wait for
    rig.hot.wake(log)
    assert read(reader).records


def test_a_fetch_that_waited_at_the_leader_goes_on_at_the_follower(rig: Rig) -> None:
    topic = rig.create("t")
    log = topic.logs[0]
    reader = parked(rig, topic, 0)
    log.set_leadership(LEADER, False, EPOCH, 2)
    rig.hot.wake(log)
    assert rig.hot.statistics()["parked_now"] == 1
    from_leader(log, 1, 1)
    rig.hot.wake(log)
    assert read(reader).records


def test_a_topic_that_goes_wakes(rig: Rig, followed: Topic) -> None:
    reader = parked(rig, followed, 3)
    rig.delete("t")
    assert read(reader).error == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_replica_that_goes_wakes(rig: Rig, followed: Topic) -> None:
    """As the replica manager does it: out of sight, and its log ends."""
    log = followed.logs[0]
    reader = parked(rig, followed, 3)
    rig.table.publish([("t", followed.topic_id.bytes, False, [None])], [])
    log.close(clean=False)
    rig.hot.wake(log)
    assert read(reader).error == ErrorCode.NOT_LEADER_OR_FOLLOWER


# --- sessions ---


@every_version
def test_a_session(rig: Rig, followed: Topic, version: int) -> None:
    log, client = followed.logs[0], rig.client()
    first = fetch(client, version, [Ask(followed, 0, 3)], session=(0, 0))
    assert first.only.high_watermark == 3

    def again(epoch: int, *asks: Ask, max_wait_ms: int = 0) -> dict[tuple[object, int], Fetched]:
        session = (first.session_id, epoch)
        answer = fetch(client, version, asks, session=session, max_wait_ms=max_wait_ms)
        assert answer.session_id == first.session_id
        return answer.partitions

    assert again(1) == {}
    from_leader(log, 0, 4)
    (found,) = again(2).values()
    assert (found.high_watermark, bool(found.records)) == (4, True)
    assert again(3, Ask(followed, 0, 4)) == {}
    client.send(fetch_frame(version, [], session=(first.session_id, 4), max_wait_ms=LONG_MS))
    rig.wait_parked(1)
    from_leader(log, 0, 5)
    rig.hot.wake(log)
    assert fetched_in(version, client.receive()).only.records
    log.set_leadership(1, True, EPOCH + 1, 1)  # it leads now, and no client need notice
    assert again(5, Ask(followed, 0, 5)) == {}
    log.append(BATCH)
    (found,) = again(6).values()
    assert found.records


def test_no_wake_up_is_lost_between_a_follower_and_its_readers(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig(handlers=4)
    topic = rig.create("t")
    log = topic.logs[0]
    log.set_leadership(LEADER, False, EPOCH, 2)
    for step in range(200):
        reader = rig.client()
        reader.send(fetch_frame(17, [Ask(topic, 0, step)], max_wait_ms=LONG_MS))
        from_leader(log, 1, step + 1)
        if log.has_watchers:  # as a fetcher asks
            rig.hot.wake(log)
        assert read(reader).high_watermark == step + 1
        reader.close()
    assert rig.hot.statistics()["parked_expired"] == 0
