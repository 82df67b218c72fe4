"""The C snapshot of the metadata: what readers see while topics come and go."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.errors import ErrorCode
from kbroker.replica._topic_table import TopicTable
from tests.support.led_log import open_led_log
from tests.support.record_batches import build_batch
from tests.support.same_hash import names_of_many_hashes, names_of_one_hash, times_dearer
from tests.unit.engine.wire import (
    Ask,
    fetch,
    fetch_frame,
    fetched_in,
    produce_frame,
    produced_in,
)
from tests.unit.net.harness import DEADLINE_S, Rig, Topic, eventually


def test_a_topic_is_found_by_name_and_by_id_until_it_is_removed(rig: Rig) -> None:
    client = rig.client()
    topic = rig.create("t")
    for version in (12, 13):
        assert fetch(client, version, [Ask(topic)]).only.error == 0
    rig.delete("t")
    assert fetch(client, 12, [Ask(topic)]).only.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetch(client, 13, [Ask(topic)]).only.error == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_name_that_comes_back_is_another_topic(rig: Rig, tmp_path: Path) -> None:
    client = rig.client()
    old = rig.create("t")
    old.logs[0].append(build_batch())
    rig.delete("t")
    new = rig.create("t")
    assert new.topic_id != old.topic_id
    assert fetch(client, 13, [Ask(old)]).only.error == ErrorCode.UNKNOWN_TOPIC_ID
    assert fetch(client, 13, [Ask(new)]).only.high_watermark == 0
    assert fetch(client, 12, [Ask(old)]).only.high_watermark == 0


def test_more_partitions_take_the_place_of_the_topic(rig: Rig) -> None:
    client = rig.client()
    topic = rig.create("t", partitions=1)
    topic.logs[0].append(build_batch())
    log = open_led_log(rig.directory / "t-2", "t", 2, topic.topic_id, {})
    log.set_leadership(1, True, 0, 1)
    topic.logs.append(log)
    # Partition 1 is another broker's.
    rows = [topic.logs[0], None, log]
    rig.table.publish([("t", topic.topic_id.bytes, False, rows)], [])
    answer = fetch(client, 12, [Ask(topic, i) for i in range(4)])
    assert [f.error for f in answer.partitions.values()] == [
        0,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert answer.partitions["t", 0].high_watermark == 1


def test_thousands_of_topics_are_all_found(rig: Rig) -> None:
    topic = rig.create("t")
    others = [
        Topic(f"topic-{i}", uuid.UUID(int=i << 64 | i * 7919 + 1), topic.logs) for i in range(3000)
    ]
    rows: list[tuple[str, bytes, bool, list[object]]] = [
        (other.name, other.topic_id.bytes, False, list(other.logs)) for other in others
    ]
    rig.table.publish(rows[:2999], [])
    rig.table.publish(rows[2999:], [])
    client = rig.client()
    for version in (12, 13):
        answer = fetch(client, version, [Ask(other) for other in others])
        assert {f.error for f in answer.partitions.values()} == {0}
        assert len(answer.partitions) == 3000
    rig.table.publish([], [other.topic_id.bytes for other in others[::2]])
    answer = fetch(client, 12, [Ask(other) for other in others])
    errors = [answer.partitions[other.name, 0].error for other in others]
    assert errors == [int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 0] * 1500


@pytest.mark.parametrize("topic_id", [b"", b"x" * 15, b"x" * 17])
def test_a_topic_id_of_another_length_publishes_nothing(rig: Rig, topic_id: bytes) -> None:
    topic = rig.create("t")
    good = ("other", uuid.uuid4().bytes, False, list(topic.logs))
    with pytest.raises(ValueError, match="16 bytes"):
        rig.table.publish([good, ("bad", topic_id, False, [])], [])
    other = Topic("other", uuid.UUID(bytes=good[1]), [])
    assert fetch(rig.client(), 12, [Ask(other)]).only.error != 0


@pytest.mark.parametrize("topic_id", [b"", b"x" * 15, b"x" * 17])
def test_a_removed_id_of_another_length_is_refused(topic_id: bytes) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        TopicTable().publish([], [topic_id])


@pytest.mark.parametrize("handlers", [1, 3])
def test_publishing_under_readers_and_writers(make_rig: Callable[..., Rig], handlers: int) -> None:
    # Topics come and go as fast as they can while clients produce to them and read, some waiting.
    # Each answer is right for a topic that is there or for one that is not; `stays` always is.
    rig = make_rig(handlers=handlers)
    stays = rig.create("stays", partitions=2)
    comes = [Topic(f"comes-{i}", uuid.uuid4(), []) for i in range(3)]
    done = threading.Event()
    failures: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)
                done.set()

        return run

    allowed = {0, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), int(ErrorCode.KAFKA_STORAGE_ERROR)}
    written = [0]

    def write() -> None:
        client = rig.client()
        batch = build_batch()
        while not done.is_set():
            client.send(
                b"".join(
                    produce_frame(9, [(topic, {0: batch}), (stays, {0: batch})]) for topic in comes
                )
            )
            for topic in comes:
                results = produced_in(9, client.receive())[1]
                assert results[topic.name, 0].error in allowed
                assert results["stays", 0].error == 0
                written[0] += 1

    def read() -> None:
        client = rig.client()
        while not done.is_set():
            asks = [*(Ask(topic) for topic in comes), Ask(stays, 1)]
            client.send(fetch_frame(12, asks, max_wait_ms=600_000, max_bytes=1000))
            while not client.has_bytes() and not done.wait(0.005):
                rig.expire_all()
            if client.has_bytes():
                partitions = fetched_in(12, client.receive()).partitions
                assert partitions["stays", 1].error == 0
                assert {f.error for f in partitions.values()} <= allowed | {6}
            else:
                return

    threads = [threading.Thread(target=guarded(work)) for work in (write, read, read)]
    for thread in threads:
        thread.start()
    try:
        for turn in range(150):
            topic = comes[turn % len(comes)]
            if topic.name in rig.topics:
                rig.delete(topic.name)
            else:
                rig.create(topic.name)
            if done.is_set():
                break
        eventually(lambda: written[0] or done.is_set(), "the writer had a turn")
    finally:
        done.set()
        rig.hot.close_parked()
        for thread in threads:
            thread.join(DEADLINE_S)
    assert not failures, failures
    assert stays.logs[0].log_end_offset == written[0]
    assert written[0] > 0


def test_names_that_would_share_a_place_cost_as_much_as_others(rig: Rig) -> None:
    client = rig.client()
    frames = {}
    for names in (names_of_one_hash(), names_of_many_hashes()):
        rows = [(name, uuid.uuid4().bytes, False, [None]) for name in names]
        rig.table.publish(rows, [])
        asks = [Ask(Topic(name, uuid.UUID(int=0), [])) for name in names]
        frames[names[0]] = fetch_frame(12, asks)

    def ask(names: list[str]) -> None:
        client.send(frames[names[0]])
        client.receive()

    assert times_dearer(ask) < 4
