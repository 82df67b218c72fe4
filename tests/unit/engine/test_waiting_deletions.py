"""Deletions of records wait for the log starts of the live followers, in the lists of C."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from kbroker.clock import ManualClock
from kbroker.errors import ErrorCode
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.image import BrokerImage, ClusterImage, PartitionImage
from kbroker.replica.in_sync import InSyncSets
from tests.unit.engine.following import BATCH, FOLLOWER, LONG_MS, OTHER, nothing_waits
from tests.unit.engine.wire import Ask, fetch, fetch_frame, fetched_in
from tests.unit.net.harness import NODE_ID, Rig, Topic, eventually

EPOCHS = {FOLLOWER: 11, OTHER: 12}


class Deletion:
    """Twelve records, two live followers; the waiters' results, in their order."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.topic: Topic = rig.create("t", 1)
        (self.log,) = self.topic.logs
        self.results: list[tuple[int, ErrorCode]] = []
        self.lead()
        for _ in range(6):
            self.log.append(BATCH)
        for broker in EPOCHS:
            self.fetch(broker, 0)

    def lead(self, epoch: int = 0, **epochs: int) -> None:
        live = {int(name[1:]): each for name, each in epochs.items()} or EPOCHS
        self.log.set_leadership(NODE_ID, True, epoch, 3, dict.fromkeys(EPOCHS, True), live)

    def fetch(self, broker: int, start: int) -> None:
        """From the log's end; its own log begins at `start`."""
        self.log.note_fetch(
            broker, self.log.log_end_offset, 1, log_start_offset=start, broker_epoch=EPOCHS[broker]
        )
        self.rig.hot.wake(self.log)

    def delete(self, offset: int, timeout_ms: int = LONG_MS) -> None:
        self.log.delete_records(offset)
        self.rig.hot.await_low_watermark(
            self.log, offset, timeout_ms, lambda code: self.results.append((offset, code))
        )

    def results_are(self, *expected: tuple[int, ErrorCode]) -> None:
        eventually(lambda: len(self.results) >= len(expected), f"{expected}")
        assert sorted(self.results) == sorted(expected)


@pytest.fixture
def deletion(rig: Rig) -> Deletion:
    return Deletion(rig)


def test_it_is_over_when_the_last_live_follower_begins_there(deletion: Deletion) -> None:
    deletion.delete(4)
    assert deletion.log.low_watermark == 0 and deletion.log.deletions_wait
    deletion.fetch(FOLLOWER, 4)
    deletion.fetch(OTHER, 3)
    assert deletion.results == [] and deletion.log.low_watermark == 3
    deletion.fetch(OTHER, 5)
    deletion.results_are((4, ErrorCode.NONE))
    assert deletion.log.low_watermark == 4 and not deletion.log.deletions_wait
    nothing_waits(deletion.rig)


def test_a_condition_that_holds_already_is_answered_at_once(deletion: Deletion) -> None:
    for broker in EPOCHS:
        deletion.fetch(broker, 4)
    deletion.delete(4)
    assert deletion.results == [(4, ErrorCode.NONE)]


def test_a_leader_that_was_replaced_has_no_low_watermark(deletion: Deletion) -> None:
    """It has forgotten its followers, so its own log would be the only one that counts."""
    deletion.log.delete_records(4)
    deletion.log.set_leadership(OTHER, False, 1, 3)
    assert deletion.log.low_watermark == -1
    deletion.rig.hot.await_low_watermark(
        deletion.log, 4, LONG_MS, lambda code: deletion.results.append((4, code))
    )
    assert deletion.results == [(4, ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_each_waits_for_its_own_offset(deletion: Deletion) -> None:
    for offset in (6, 2, 9, 4):
        deletion.delete(offset)
    deletion.fetch(FOLLOWER, 12)
    deletion.fetch(OTHER, 5)
    deletion.results_are((2, ErrorCode.NONE), (4, ErrorCode.NONE))
    deletion.fetch(OTHER, 9)
    deletion.results_are(*((offset, ErrorCode.NONE) for offset in (2, 4, 6, 9)))
    nothing_waits(deletion.rig)


def test_an_unregistered_replica_is_not_waited_for(deletion: Deletion) -> None:
    deletion.delete(4)
    deletion.fetch(FOLLOWER, 4)
    deletion.lead(b2=11)
    deletion.rig.hot.wake(deletion.log)
    deletion.results_are((4, ErrorCode.NONE))


def test_a_broker_that_goes_is_not_waited_for_any_more(deletion: Deletion) -> None:
    """It was not in sync, so nothing else changes for the partition."""
    brokers = {each: BrokerImage(each, "h", 9092, None, 10 + each) for each in (NODE_ID, 2, 3)}
    state = PartitionImage("t", 0, (NODE_ID, 2, 3), (NODE_ID, 2), NODE_ID, 0, 7)
    topic = new_topic_image("t", deletion.log.topic_id, [state.replicas], {})
    image = ClusterImage().with_topics([replace(topic, partitions=(state,))])
    sets = InSyncSets(NODE_ID, lambda *_: None, deletion.rig.hot.wake, ManualClock(), 30_000)
    sets.know(image.with_brokers(brokers.values()))
    sets.lead(deletion.log, state)
    deletion.delete(4)
    deletion.log.note_fetch(2, 12, 1, log_start_offset=4)
    deletion.rig.hot.wake(deletion.log)
    assert deletion.results == [] and deletion.log.low_watermark == 0
    del brokers[3]
    sets.know(image.with_brokers(brokers.values()))
    deletion.results_are((4, ErrorCode.NONE))


def test_in_another_epoch_each_follower_has_to_fetch_again(deletion: Deletion) -> None:
    deletion.delete(4)
    deletion.fetch(FOLLOWER, 4)
    deletion.lead(epoch=1)
    deletion.fetch(OTHER, 4)
    assert deletion.results == [] and deletion.log.low_watermark == -1
    deletion.fetch(FOLLOWER, 4)
    deletion.results_are((4, ErrorCode.NONE))


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("led elsewhere", ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("offline", ErrorCode.KAFKA_STORAGE_ERROR),
        ("too late", ErrorCode.REQUEST_TIMED_OUT),
        ("the end", ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_other_ends_of_the_wait(deletion: Deletion, what: str, code: ErrorCode) -> None:
    deletion.delete(4)
    deletion.delete(6)
    if what == "led elsewhere":
        deletion.log.set_leadership(FOLLOWER, False, 1, 1)
        deletion.rig.hot.wake(deletion.log)
    elif what == "offline":
        deletion.log.log.go_offline()
        deletion.rig.hot.wake(deletion.log)
    elif what == "too late":
        deletion.rig.expire_all()
    else:
        deletion.rig.hot.close_parked()
    deletion.results_are((4, code), (6, code))
    nothing_waits(deletion.rig)
    with contextlib.suppress(Exception):
        deletion.fetch(FOLLOWER, 12)
        deletion.fetch(OTHER, 12)
    assert len(deletion.results) == 2


def test_produces_and_deletions_do_not_hold_each_other_up(deletion: Deletion) -> None:
    """They wait in lists of their own: offsets of records and of starts have no order."""
    settled: list[ErrorCode] = []
    deletion.log.append(BATCH)
    deletion.rig.hot.await_followers(deletion.log, 13, 0, LONG_MS, settled.append)
    deletion.delete(4)
    for broker in EPOCHS:
        deletion.log.note_fetch(broker, 12, 1, log_start_offset=4, broker_epoch=EPOCHS[broker])
    deletion.rig.hot.wake(deletion.log)
    deletion.results_are((4, ErrorCode.NONE))
    assert settled == []
    for broker in EPOCHS:
        deletion.fetch(broker, 4)
    eventually(lambda: settled == [ErrorCode.NONE], "the write is settled")


# --- through followers' fetches -------------------------------------------------------------------


def ask(deletion: Deletion, start: int) -> Ask:
    return Ask(deletion.topic, 0, deletion.log.log_end_offset, log_start=start)


def test_a_follower_that_waits_gets_the_new_log_start(deletion: Deletion) -> None:
    """Not at the end of its wait: the deletion waits for the fetch after this one."""
    follower, version = deletion.rig.client(), 13
    deletion.fetch(OTHER, 4)
    found = fetch(follower, version, [ask(deletion, 0)], replica_id=FOLLOWER, session=(0, 0))
    later = (found.session_id, 1)
    follower.send(fetch_frame(version, [], max_wait_ms=LONG_MS, replica_id=FOLLOWER, session=later))
    deletion.rig.wait_parked(1)
    deletion.delete(4)
    deletion.rig.hot.wake(deletion.log)
    results = fetched_in(version, follower.receive()).only
    assert (results.error, results.log_start_offset, deletion.results) == (0, 4, [])
    later = (found.session_id, 2)
    follower.send(
        fetch_frame(
            version, [ask(deletion, 4)], max_wait_ms=LONG_MS, replica_id=FOLLOWER, session=later
        )
    )
    deletion.results_are((4, ErrorCode.NONE))
    deletion.rig.wait_parked(1)  # the follower's fetch, which has nothing new to get
