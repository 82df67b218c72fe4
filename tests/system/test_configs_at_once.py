"""A topic's settings hold from the answer to the change on, while a client goes on producing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.testing.plain import KEEPS_WHAT_IS_OLD
from kbroker.testing.plain import PlainBroker as Broker
from kbroker.types import ApiKey
from lab.ports import free_port
from tests.parity.cases._configs import DELETE, SET, TOPIC, Change, incremental, own_settings
from tests.parity.requests import build
from tests.parity.talk import Address, Talk
from tests.support.record_batches import Record, build_batch, parse_batches

MESSAGE_TOO_LARGE, INVALID_RECORD = 10, 87
KEYED = build_batch([Record(b"v", key=b"k")])


def produce(talk: Talk, topic: str, batch: bytes) -> Any:
    """The partition's part of the answer."""
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
    asked = build(ApiKey.PRODUCE, 9, acks=-1, timeout=10_000, topic_data=data)
    return talk.quietly(asked).responses[0].partition_responses[0]


def fetch(talk: Talk, topic: str, offset: int) -> bytes:
    partition = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": offset}
    asked = build(
        ApiKey.FETCH,
        12,
        replica_id=-1,
        max_wait=0,
        min_bytes=0,
        max_bytes=1 << 24,
        session_epoch=-1,
        topics=[{"topic": topic, "partitions": [{**partition, "partition_max_bytes": 1 << 24}]}],
    )
    return bytes(talk.quietly(asked).responses[0].partitions[0].records or b"")


def change(talk: Talk, topic: str, *changes: Change) -> None:
    (response,) = talk.quietly(incremental(1, (TOPIC, topic, changes))).responses
    assert response.error_code.value == 0, response


class Traffic:
    """A client that produces to the topic all the while; every record of its has a key."""

    def __init__(self, address: Address, topic: str) -> None:
        self._talk = Talk(address, "traffic")
        self._topic = topic
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.codes: list[int] = []

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._talk.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            self.codes.append(produce(self._talk, self._topic, KEYED).error_code.value)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(KEEPS_WHAT_IS_OLD, port=free_port()) as running:
        yield running


@pytest.fixture
def talk(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Talk]:
    talk = Talk(address(broker), request.node.name)
    yield talk
    talk.close()


def address(broker: Broker) -> Address:
    host, _, port = broker.bootstrap.rpartition(":")
    return host, int(port)


def test_each_setting_holds_from_the_answer_on(broker: Broker, talk: Talk) -> None:
    topic = talk.topic()
    large = build_batch([Record(b"x" * 5000, key=b"k")])
    with Traffic(address(broker), topic) as traffic:
        for _ in range(3):
            change(talk, topic, ("max.message.bytes", SET, "1000"))
            assert produce(talk, topic, large).error_code.value == MESSAGE_TOO_LARGE
            change(talk, topic, ("max.message.bytes", DELETE, None))
            assert produce(talk, topic, large).error_code.value == 0

            change(talk, topic, ("message.timestamp.type", SET, "LogAppendTime"))
            assert produce(talk, topic, KEYED).log_append_time is not None
            change(talk, topic, ("message.timestamp.type", SET, "CreateTime"))
            assert produce(talk, topic, KEYED).log_append_time is None

            change(talk, topic, ("cleanup.policy", SET, "compact"))
            refused = produce(talk, topic, build_batch([b"no key"]))
            assert refused.error_code.value == INVALID_RECORD
            change(talk, topic, ("cleanup.policy", SET, "delete"))
            assert produce(talk, topic, build_batch([b"no key"])).error_code.value == 0

            change(talk, topic, ("compression.type", SET, "gzip"))
            stored = produce(talk, topic, large).base_offset
            (batch, *_) = parse_batches(fetch(talk, topic, stored))
            assert batch.attributes & 7 == 1
            change(talk, topic, ("compression.gzip.level", SET, "1"))
            stored = produce(talk, topic, large).base_offset
            (quick, *_) = parse_batches(fetch(talk, topic, stored))
            assert quick.size_bytes > batch.size_bytes
            change(talk, topic, ("compression.gzip.level", DELETE, None))
            change(talk, topic, ("compression.type", SET, "producer"))
            stored = produce(talk, topic, large).base_offset
            (batch, *_) = parse_batches(fetch(talk, topic, stored))
            assert batch.attributes & 7 == 0
    assert len(traffic.codes) > 10
    assert set(traffic.codes) == {0}


def test_one_replica_is_enough_whatever_is_asked_for(talk: Talk) -> None:
    topic = talk.topic()
    change(talk, topic, ("min.insync.replicas", SET, "5"))
    assert own_settings(talk, topic) == {"min.insync.replicas": "5"}
    assert produce(talk, topic, KEYED).error_code.value == 0


def test_segments_of_another_size(broker: Broker, talk: Talk) -> None:
    topic = talk.topic()
    batch = build_batch([Record(b"x" * 600_000, key=b"k")])
    for _ in range(4):
        assert produce(talk, topic, batch).error_code.value == 0
    directory = broker.data_dir / f"{topic}-0"
    assert len(list(directory.glob("*.log"))) == 1
    with Traffic(address(broker), topic):
        change(talk, topic, ("segment.bytes", SET, "1048576"))
        for _ in range(4):
            assert produce(talk, topic, batch).error_code.value == 0
    assert len(list(directory.glob("*.log"))) == 5  # the first four, and each of the others alone


def test_settings_outlive_the_broker(broker: Broker, talk: Talk) -> None:
    topic = talk.topic(configs={"flush.ms": "1000"})
    change(talk, topic, ("max.message.bytes", SET, "1000"), ("flush.ms", DELETE, None))
    broker.kill9()
    broker.restart()
    again = Talk(address(broker), "again")
    again.settled(topic)  # after a kill its log may still be read
    assert own_settings(again, topic) == {"max.message.bytes": "1000"}
    large = build_batch([Record(b"x" * 5000, key=b"k")])
    assert produce(again, topic, large).error_code.value == MESSAGE_TOO_LARGE
    again.close()
