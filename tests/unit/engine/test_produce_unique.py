"""What a Produce names more than once, and topics without partitions, as Apache Kafka has them."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from kbroker.errors import ErrorCode
from kbroker.types import ApiKey
from tests.support.record_batches import build_batch
from tests.unit.engine.test_produce import every_version, values
from tests.unit.engine.wire import (
    PRODUCE_BY_ID,
    Batches,
    answer_in,
    produce_frame,
    produce_one,
    produced_in,
)
from tests.unit.net.harness import Client, Rig, Topic

# A partition again and again: what is quadratic takes minutes, what is not some ten milliseconds.
REPEATED = 99_000
REPEATED_CPU_S_MAX = 10.0


def batch(value: bytes) -> bytes:
    return build_batch([value])


def answered(client: Client, version: int, batches: Batches, **options: Any) -> list[Any]:
    """(topic, [(partition, error, base offset), ...]) as the answer has them, repeats and all."""
    client.send(produce_frame(version, batches, **options))
    _, answer = answer_in(ApiKey.PRODUCE, version, client.receive())
    return [
        (
            topic.topic_id if version >= PRODUCE_BY_ID else topic.name,
            [(p.index, int(p.error_code), p.base_offset) for p in topic.partition_responses],
        )
        for topic in answer.responses
    ]


def key(topic: Topic, version: int) -> object:
    return topic.topic_id if version >= PRODUCE_BY_ID else topic.name


@every_version
def test_of_a_partition_twice_the_last_is_stored(rig: Rig, version: int) -> None:
    topic = rig.create("t", partitions=3)
    pairs = [(2, batch(b"a")), (0, batch(b"b")), (2, batch(b"c")), (1, batch(b"d"))]
    answer = answered(rig.client(), version, [(topic, pairs)])
    assert answer == [(key(topic, version), [(2, 0, 0), (0, 0, 0), (1, 0, 0)])]
    assert [values(topic, index) for index in range(3)] == [[b"b"], [b"d"], [b"c"]]


@every_version
def test_a_topic_twice_is_one(rig: Rig, version: int) -> None:
    topic, other = rig.create("t", partitions=3), rig.create("u", partitions=1)
    answer = answered(
        rig.client(),
        version,
        [
            (topic, {0: batch(b"a"), 1: batch(b"b")}),
            (other, {0: batch(b"c")}),
            (topic, {2: batch(b"d"), 1: batch(b"e")}),
            (topic, {}),
            (topic, {0: batch(b"f")}),
        ],
    )
    assert answer == [
        (key(topic, version), [(0, 0, 0), (1, 0, 0), (2, 0, 0)]),
        (key(other, version), [(0, 0, 0)]),
    ]
    assert [values(topic, index) for index in range(3)] == [[b"f"], [b"e"], [b"d"]]
    assert values(other) == [b"c"]


@every_version
def test_a_topic_without_partitions_is_not_answered(rig: Rig, version: int) -> None:
    topic, other = rig.create("t"), rig.create("u")
    assert answered(rig.client(), version, [(topic, {})]) == []
    answer = answered(rig.client(), version, [(topic, {}), (other, {0: batch(b"a")}), (topic, {})])
    assert answer == [(key(other, version), [(0, 0, 0)])]


@every_version
def test_a_missing_partition_is_answered_once(rig: Rig, version: int) -> None:
    topic, nowhere = rig.create("t"), Topic("nowhere", uuid.UUID(int=5), [])
    pairs = [(0, batch(b"a")), (7, batch(b"b")), (7, batch(b"c")), (0, batch(b"d"))]
    missing = (
        ErrorCode.UNKNOWN_TOPIC_ID
        if version >= PRODUCE_BY_ID
        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    answer = answered(rig.client(), version, [(nowhere, pairs), (topic, pairs), (nowhere, pairs)])
    assert answer == [
        (key(nowhere, version), [(0, missing, -1), (7, missing, -1)]),
        (
            key(topic, version),
            [(0, 0, 0), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)],
        ),
    ]
    assert values(topic) == [b"d"]


def test_acks_0_closes_for_the_kept_partition_alone(rig: Rig) -> None:
    topic = rig.create("t")
    client = rig.client()
    bad = bytearray(batch(b"bad"))
    bad[-1] ^= 1
    client.send(produce_frame(9, [(topic, [(0, bytes(bad)), (0, batch(b"good"))])], acks=0))
    assert produce_one(client, topic, batch(b"next")).base_offset == 1
    assert values(topic) == [b"good", b"next"]
    client.send(produce_frame(9, [(topic, [(0, batch(b"good")), (0, bytes(bad))])], acks=0))
    assert client.ended()


def test_frames_of_a_train_stay_apart(rig: Rig) -> None:
    topic = rig.create("t")
    client = rig.client()
    client.send(
        b"".join(
            produce_frame(
                9,
                [(topic, [(0, batch(b"no")), (0, batch(b"%d" % number))])],
                correlation_id=number,
            )
            for number in range(3)
        )
    )
    answers = [produced_in(9, client.receive()) for _ in range(3)]
    assert [[r.base_offset for r in answer.values()] for _, answer in answers] == [[0], [1], [2]]
    assert values(topic) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("topics", ["one topic", "a topic for each"])
def test_very_often_is_not_dear(rig: Rig, topics: str) -> None:
    topic = rig.create("t")
    client = rig.client()
    pairs = [(0, None)] * REPEATED + [(0, batch(b"a"))]
    batches = [(topic, pairs)] if topics == "one topic" else [(topic, [pair]) for pair in pairs]
    frame = produce_frame(3, batches)
    begun_s = time.process_time()  # of all that is done here; what others do is not
    client.send(frame)
    _, answer = produced_in(3, client.receive())
    assert time.process_time() - begun_s < REPEATED_CPU_S_MAX
    assert [(result.error, result.base_offset) for result in answer.values()] == [(0, 0)]
