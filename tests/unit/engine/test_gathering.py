"""A follower's fetch that waits a moment for more than there is.

For records that producers send after their answers, and for those that no request waits for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from kbroker.engine import _hot
from kbroker.errors import ErrorCode
from kbroker.testing.file_faults import FileFaults
from tests.support.led_log import LedLog
from tests.support.record_batches import build_batch
from tests.unit.engine.test_groups import COMMIT, Beside
from tests.unit.engine.wire import (
    Ask,
    FetchAnswer,
    fetch,
    fetch_frame,
    fetched_in,
    produce_frame,
    produced_in,
)
from tests.unit.handlers.support import written
from tests.unit.net.harness import (
    DEADLINE_S,
    Client,
    FailsOnce,
    Rig,
    Topic,
    cold_frame,
    eventually,
    framed,
    header,
)

LATEST: Final = 17
LEADER, FOLLOWER = 1, 2
LONG_MS: Final = 600_000
FOR_EVER_NS: Final = LONG_MS * 1_000_000
BATCH: Final = build_batch([b"x" * 1000])
MUCH: Final = build_batch([b"x" * 200_000])
WITH_CRC: Final = 17  # in front of it a leader writes the offset and its epoch

MakeRig = Callable[..., Rig]


class Follower:
    """Has been answered with the batches that were there, and asks for those after them."""

    def __init__(self, rig: Rig, topic: Topic) -> None:
        self.topic, self.rig, self.client = topic, rig, rig.client()
        first = fetch(self.client, LATEST, [Ask(topic)], session=(0, 0), replica_id=FOLLOWER)
        assert first.only.records
        self.session, self.epoch = first.session_id, 1
        self.has = topic.logs[0].log_end_offset

    def asks(self) -> None:
        self.client.send(
            fetch_frame(
                LATEST,
                [Ask(self.topic, 0, self.has)],
                session=(self.session, self.epoch),
                max_wait_ms=LONG_MS,
                replica_id=FOLLOWER,
            )
        )
        self.epoch += 1

    def receives(self) -> int:
        """How many batches of one record."""
        answer: FetchAnswer = fetched_in(LATEST, self.client.receive())
        records = answer.only.records
        assert records is not None and len(records) % len(BATCH) == 0
        self.has += len(records) // len(BATCH)
        return len(records) // len(BATCH)


def led(rig: Rig, *batches: bytes) -> Topic:
    topic = rig.create("t")
    topic.logs[0].set_leadership(LEADER, True, 0, 2, {FOLLOWER: True})
    append(rig, topic.logs[0], *batches)
    return topic


def append(rig: Rig, log: LedLog, *batches: bytes) -> None:
    for each in batches:
        log.append(each)
        rig.hot.wake(log)


def waits(rig: Rig) -> bool:
    return rig.hot.statistics()["parked_now"] == 1


def somebody_waits(rig: Rig, topic: Topic) -> Client:
    """A consumer, for records that the followers do not have yet."""
    consumer = rig.client()
    at = topic.logs[0].high_watermark
    consumer.send(fetch_frame(LATEST, [Ask(topic, 0, at)], max_wait_ms=LONG_MS))
    rig.wait_parked(1)
    return consumer


def asks_for_one_more(rig: Rig, topic: Topic, follower: Follower) -> tuple[Client, int]:
    """Which a consumer waits for: it, and how many fetches had been parked before this one."""
    append(rig, topic.logs[0], BATCH)
    consumer = somebody_waits(rig, topic)
    parked = rig.hot.statistics()["parked_fetches"]
    follower.asks()
    return consumer, parked


@pytest.fixture
def patient(make_rig: MakeRig) -> Rig:
    """Whose moments never end by themselves."""
    return make_rig(hot={"gather_ns": FOR_EVER_NS, "linger_ns": FOR_EVER_NS})


# -- where a request waits


def test_it_waits_for_as_much_as_its_last_answer_brought(patient: Rig) -> None:
    topic = led(patient, *[BATCH] * 4)
    follower = Follower(patient, topic)
    consumer = somebody_waits(patient, topic)
    follower.asks()
    assert fetched_in(LATEST, consumer.receive()).only.high_watermark == 4, "answered all the same"
    patient.wait_parked(1)
    for _ in range(3):
        append(patient, topic.logs[0], BATCH)
        assert waits(patient)
    append(patient, topic.logs[0], BATCH)
    assert follower.receives() == 4


def test_records_that_came_meanwhile_leave_with_the_next(patient: Rig) -> None:
    topic = led(patient, *[BATCH] * 4)
    follower = Follower(patient, topic)
    append(patient, topic.logs[0], BATCH)
    consumer = somebody_waits(patient, topic)
    follower.asks()
    consumer.receive()
    patient.wait_parked(1)
    append(patient, topic.logs[0], *[BATCH] * 3)
    assert waits(patient)
    append(patient, topic.logs[0], BATCH)
    assert follower.receives() == 5


@pytest.mark.parametrize("meanwhile", [0, 1])
def test_after_a_moment_it_takes_the_records_that_are_there(
    make_rig: MakeRig, meanwhile: int
) -> None:
    rig = make_rig(hot={"gather_ns": 1_000_000})
    topic = led(rig, *[BATCH] * 4)
    follower = Follower(rig, topic)
    append(rig, topic.logs[0], *[BATCH] * meanwhile)
    consumer = somebody_waits(rig, topic)
    follower.asks()
    consumer.receive()
    if not meanwhile:
        rig.wait_parked(1)
        append(rig, topic.logs[0], BATCH)
    assert follower.receives() == 1


def test_records_of_two_turns_become_one_answer(patient: Rig) -> None:
    """Each turn has what came while the other was under way, so there is always something."""
    topic = led(patient, *[BATCH] * 3)
    follower = Follower(patient, topic)
    append(patient, topic.logs[0], *[BATCH] * 2)
    consumer = somebody_waits(patient, topic)
    follower.asks()
    consumer.receive()
    patient.wait_parked(1)
    append(patient, topic.logs[0], *[BATCH] * 2)
    assert waits(patient), "one of three is missing"
    append(patient, topic.logs[0], BATCH)
    assert follower.receives() == 5


def test_a_wait_that_brings_nothing_is_tried_ever_more_seldom(make_rig: MakeRig) -> None:
    """Records come by themselves, whatever is answered."""
    rig = make_rig(hot={"gather_ns": 1_000_000})
    topic = led(rig, BATCH)
    follower = Follower(rig, topic)
    waited = []
    for _ in range(70):
        consumer, before = asks_for_one_more(rig, topic, follower)
        assert follower.receives() == 1
        waited.append(rig.hot.statistics()["parked_fetches"] - before)
        consumer.socket.close()
        eventually(lambda: rig.hot.statistics()["parked_now"] == 0, "it has left")
    assert [at for at, one in enumerate(waited) if one] == [0, 2, 5, 10, 19, 36, 69]


def test_after_a_large_answer_there_is_no_waiting(patient: Rig) -> None:
    topic = led(patient, MUCH)
    follower = Follower(patient, topic)
    append(patient, topic.logs[0], BATCH)
    somebody_waits(patient, topic)
    follower.asks()
    assert follower.receives() == 1


def test_a_consumer_waits_for_its_minimum_of_bytes(patient: Rig) -> None:
    topic = led(patient, *[BATCH] * 4)
    topic.logs[0].note_fetch(FOLLOWER, 4, 1)
    consumer = patient.client()
    first = fetch(consumer, LATEST, [Ask(topic)], session=(0, 0))
    consumer.send(
        fetch_frame(LATEST, [Ask(topic, 0, 4)], session=(first.session_id, 1), max_wait_ms=LONG_MS)
    )
    patient.wait_parked(1)
    topic.logs[0].append(BATCH)
    topic.logs[0].note_fetch(FOLLOWER, 5, 1)
    patient.hot.wake(topic.logs[0])
    records = fetched_in(LATEST, consumer.receive()).only.records
    assert records is not None and records[WITH_CRC:] == BATCH[WITH_CRC:]


@pytest.mark.parametrize("goes", ["its connection", "the broker"])
def test_nothing_of_it_stays(patient: Rig, goes: str) -> None:
    topic = led(patient, *[BATCH] * 4)
    follower = Follower(patient, topic)
    follower.asks()
    patient.wait_parked(1)
    if goes == "the broker":
        patient.stop()
    else:
        follower.client.socket.close()
        eventually(lambda: not waits(patient), "it is ended")
    assert patient.hot.statistics()["parked_now"] == 0


def test_another_follower_is_answered_at_once_while_one_waits(make_rig: MakeRig) -> None:
    """A handler gathers for one at a time."""
    rig = make_rig(handlers=1, hot={"gather_ns": FOR_EVER_NS, "linger_ns": FOR_EVER_NS})
    topic = led(rig, *[BATCH] * 4)
    other = rig.create("other")
    other.logs[0].set_leadership(LEADER, True, 0, 2, {FOLLOWER: True})
    append(rig, other.logs[0], *[BATCH] * 4)
    first, second = Follower(rig, topic), Follower(rig, other)
    append(rig, other.logs[0], BATCH)
    first.asks()
    rig.wait_parked(1)
    second.asks()
    assert second.receives() == 1


def test_records_that_come_by_themselves_are_not_waited_for_although_a_wait_brings_them(
    patient: Rig,
) -> None:
    """Faster than a moment is long: a trial has its fill, and the fetch after it finds no less."""
    topic = led(patient, BATCH)
    follower = Follower(patient, topic)
    trials = []
    for at in range(40):
        consumer, before = asks_for_one_more(patient, topic, follower)
        consumer.receive()
        if at in (0, 2, 5, 10, 19, 36):
            patient.wait_parked(1)
            append(patient, topic.logs[0], BATCH)
        trials += [at] * (follower.receives() - 1)
        assert patient.hot.statistics()["parked_fetches"] - before == (at in trials)
    assert trials == [0, 2, 5, 10, 19, 36]


# -- where none does


def test_records_that_none_waits_for_leave_when_they_are_many(patient: Rig) -> None:
    topic = led(patient, BATCH)
    follower = Follower(patient, topic)
    append(patient, topic.logs[0], BATCH)
    follower.asks()
    patient.wait_parked(1)
    append(patient, topic.logs[0], *[BATCH] * 20)
    assert waits(patient)
    append(patient, topic.logs[0], MUCH)
    assert follower.client.receive()


def test_a_little_later_it_leaves(make_rig: MakeRig) -> None:
    rig = make_rig()
    topic = led(rig, BATCH)
    follower = Follower(rig, topic)
    append(rig, topic.logs[0], BATCH)
    follower.asks()
    assert follower.receives() == 1


def test_a_consumer_that_waits_for_it_has_it_at_once(patient: Rig) -> None:
    topic = led(patient, BATCH)
    follower = Follower(patient, topic)
    follower.asks()
    patient.wait_parked(1)
    consumer = patient.client()
    consumer.send(fetch_frame(LATEST, [Ask(topic, 0, 1)], max_wait_ms=LONG_MS))
    patient.wait_parked(2)
    append(patient, topic.logs[0], BATCH)
    assert follower.receives() == 1


def test_a_consumer_that_comes_to_wait_for_it_has_it_at_once(patient: Rig) -> None:
    topic = led(patient, BATCH)
    follower = Follower(patient, topic)
    follower.asks()
    patient.wait_parked(1)
    append(patient, topic.logs[0], BATCH)
    assert waits(patient)
    patient.client().send(fetch_frame(LATEST, [Ask(topic, 0, 1)], max_wait_ms=LONG_MS))
    assert follower.receives() == 1


def test_none_waits_any_more_for_records_of_a_former_leader(patient: Rig) -> None:
    topic = led(patient, BATCH)
    follower = Follower(patient, topic)
    producer = patient.client()
    producer.send(produce_frame(9, [(topic, {0: BATCH})], acks=-1, timeout_ms=LONG_MS))
    patient.wait_parked(1)
    log = topic.logs[0]
    log.set_leadership(FOLLOWER, False, 1, 2)
    patient.hot.wake(log)
    assert produced_in(9, producer.receive())
    log.truncate_to(1)
    log.set_leadership(LEADER, True, 2, 2, {FOLLOWER: True})
    follower.asks()
    assert follower.receives() == 0, "it is answered with the high watermark"
    follower.asks()
    patient.wait_parked(1)
    append(patient, log, BATCH)
    assert waits(patient)


def test_a_produce_that_waits_for_it_has_it_at_once(patient: Rig) -> None:
    topic = led(patient, BATCH)
    follower = Follower(patient, topic)
    follower.asks()
    patient.wait_parked(1)
    producer = patient.client()
    # Nothing was appended meanwhile: where that was slow, the produce would be set aside, which
    # ends the wait before it.
    producer.send(produce_frame(9, [(topic, {0: BATCH})], acks=-1, timeout_ms=LONG_MS))
    assert follower.receives() == 1
    follower.asks()
    assert produced_in(9, producer.receive())


def test_a_write_of_a_group_that_waits_for_it_has_it_at_once(patient: Rig) -> None:
    """Of which the coordinator says that it waits once it is written."""
    topic = led(patient, BATCH)
    follower = Follower(patient, topic)
    follower.asks()
    patient.wait_parked(1)
    log = topic.logs[0]
    log.append(BATCH)
    settled: list[ErrorCode] = []
    patient.hot.await_followers(log, 1, 0, LONG_MS, settled.append)
    patient.hot.wake(log)
    assert follower.receives() == 1
    follower.asks()
    eventually(lambda: settled == [ErrorCode.NONE], "it is answered")


def test_waiters_for_writes_are_answered_when_there_is_memory_again(
    patient: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them: a commit that is not answered keeps its client for ever."""
    log = led(patient, BATCH).logs[0]
    log.append(BATCH)
    settled: list[ErrorCode] = []
    for _ in range(3):
        patient.hot.await_followers(log, 1, 0, LONG_MS, settled.append)
    fails = FailsOnce(ErrorCode)
    monkeypatch.setattr(_hot, "ErrorCode", fails)
    patient.hot.close_parked()
    eventually(lambda: len(settled) == 3, "they are answered")
    assert fails.failed


@pytest.mark.parametrize("waited_for", [True, False])
def test_a_replica_that_is_to_join_the_in_sync_set_is_held_up_by_nothing(
    patient: Rig, waited_for: bool
) -> None:
    """It must be seen where the high watermark is, which goes on without it."""
    topic = led(patient, *[BATCH] * 4)
    topic.logs[0].set_leadership(LEADER, True, 0, 1, {FOLLOWER: False})
    follower = Follower(patient, topic)
    append(patient, topic.logs[0], BATCH)
    if waited_for:
        somebody_waits(patient, topic)
    follower.asks()
    assert follower.receives() == 1


def test_a_handler_that_goes_to_python_lets_it_go(make_rig: MakeRig) -> None:
    """It is not known for how long."""
    rig = make_rig(handlers=1, hot={"gather_ns": FOR_EVER_NS, "linger_ns": FOR_EVER_NS})
    topic = led(rig, BATCH)
    follower = Follower(rig, topic)
    follower.asks()
    rig.wait_parked(1)
    append(rig, topic.logs[0], BATCH)
    assert waits(rig)
    rig.client().send(cold_frame(b"x"))
    assert follower.receives() == 1


def test_a_handler_that_waits_for_the_disk_lets_it_go(tmp_path: Path) -> None:
    """Here one that flushes a group's commit; produces have the same step before theirs."""
    beside = Beside(tmp_path, hot={"gather_ns": FOR_EVER_NS, "linger_ns": FOR_EVER_NS})
    try:
        beside.show()
        beside.log.configure(flush_messages=1, compacted=True)
        topic = led(beside.rig, BATCH)
        follower = Follower(beside.rig, topic)
        follower.asks()
        beside.rig.wait_parked(1)
        append(beside.rig, topic.logs[0], BATCH)
        assert waits(beside.rig)
        syncing, disk = threading.Event(), threading.Event()

        def stand(operation: str, path: str) -> None:
            if operation == "sync" and "__consumer_offsets" in path:
                syncing.set()
                assert disk.wait(DEADLINE_S)

        commit = beside.commit(9, {"orders": [(0, 5, "x")]})
        with FileFaults(before=stand):
            beside.client.send(framed(header(COMMIT, 9, 7) + written(commit)))
            try:
                assert syncing.wait(DEADLINE_S)
                assert follower.receives() == 1
                assert not beside.client.has_bytes()
            finally:
                disk.set()
            beside.client.receive()
        assert beside.in_python == []
    finally:
        beside.close()
