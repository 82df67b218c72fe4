"""ListConfigResources, DescribeProducers, DescribeLogDirs: every version, and what is refused."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker import limits
from kbroker.coordinator.share.images import SharePartition
from kbroker.errors import ErrorCode
from kbroker.log.engine._results import DirectoryUse, FutureLog
from kbroker.protocol import messages
from kbroker.replica.share.description import Described
from kbroker.types import ApiKey, TopicPartition
from tests.unit.handlers.support import FakeBroker, part_of, request_of, written

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
LIST, PRODUCERS, DIRS = (
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_LOG_DIRS,
)
PRODUCER = struct.Struct(">qiiqiqx")


# --- ListConfigResources --------------------------------------------------------------------------


def listed(broker: FakeBroker, *kinds: int) -> list[tuple[int, str]]:
    answer = broker.call(request_of(LIST, 1, resource_types=kinds))
    assert answer.error_code.value == 0
    return [(r.resource_type, r.resource_name) for r in answer.config_resources]


def test_resources_by_kind_in_one_order() -> None:
    broker = FakeBroker(brokers=2)
    broker.create("b", "a")
    topics = [(TOPIC, "a"), (TOPIC, "b")]
    brokers = [(BROKER, "1"), (BROKER, "2")]
    assert listed(broker) == [(LOGGER, "1"), (LOGGER, "2"), *brokers, *topics]
    assert listed(broker, TOPIC, BROKER, TOPIC) == [*brokers, *topics]
    assert listed(broker, METRICS, GROUP) == []


def test_the_first_version_lists_client_metrics() -> None:
    broker = FakeBroker()
    broker.create("t")
    answer = broker.call(request_of(LIST, 0))
    assert (answer.error_code.value, answer.config_resources) == (0, ())


@pytest.mark.parametrize("kinds", [(0,), (1,), (3,), (-1,), (TOPIC, 99)])
def test_a_kind_that_does_not_exist(kinds: tuple[int, ...]) -> None:
    answer = FakeBroker().call(request_of(LIST, 1, resource_types=kinds))
    assert answer.error_code.value == ErrorCode.UNSUPPORTED_VERSION
    assert answer.config_resources == ()


# --- DescribeProducers ----------------------------------------------------------------------------


def producers(*topics: tuple[str, tuple[int, ...]]) -> Any:
    return request_of(
        PRODUCERS,
        0,
        topics=tuple(
            part_of(PRODUCERS, 0, "TopicRequest", name=name, partition_indexes=partitions)
            for name, partitions in topics
        ),
    )


def outcome(answer: Any) -> list[tuple[str, int, int, bool, int]]:
    return [
        (
            t.name,
            p.partition_index,
            p.error_code.value,
            bool(p.error_message),
            len(p.active_producers),
        )
        for t in answer.topics
        for p in t.partitions
    ]


def test_producers_of_partitions_in_the_order_asked() -> None:
    broker = FakeBroker()
    broker.create("t", partitions=2)
    broker.replicas.logs["t", 1].producers = [(7, 3, 5, 1000, -1, -1), (8, 0, -1, 5, 2, 44)]
    answer = broker.call(producers(("t", (1, 0, 1)), ("none", (0,)), ("t", (2, -1)), ("a b", (0,))))
    found = answer.topics[0].partitions[0].active_producers
    assert [
        (
            *(p.producer_id, p.producer_epoch, p.last_sequence, p.last_timestamp),
            *(p.coordinator_epoch, p.current_txn_start_offset),
        )
        for p in found
    ] == [(7, 3, 5, 1000, -1, -1), (8, 0, -1, 5, 2, 44)]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert outcome(answer) == [
        ("t", 1, 0, False, 2),
        ("t", 0, 0, False, 0),
        ("t", 1, 0, False, 2),
        ("none", 0, unknown, True, 0),
        ("t", 2, unknown, False, 0),
        ("t", -1, unknown, False, 0),
        ("a b", 0, ErrorCode.INVALID_TOPIC_EXCEPTION, True, 0),
    ]


def test_an_answer_holds_so_many_producers_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DESCRIBED_PRODUCERS_MAX", 3)
    broker = FakeBroker()
    broker.create("t", "u")
    broker.replicas.logs["t", 0].producers = [(7, 3, 5, 1000, -1, -1)] * 2
    answer = broker.call(producers(("t", (0, 0)), ("u", (0,))))
    assert outcome(answer) == [
        ("t", 0, 0, False, 2),
        ("t", 0, ErrorCode.INVALID_REQUEST, True, 0),
        ("u", 0, ErrorCode.INVALID_REQUEST, True, 0),
    ]


class Led:
    """A share-partition without members, and the service that has it."""

    def __init__(self) -> None:
        self.leaders = self
        self.looked: list[int] = []

    def find(self, key: SharePartition) -> Led:
        self.looked.append(key.partition)
        return self

    def describe(self, offset: int) -> tuple[bool, Described]:
        return True, Described(offset, offset + 1, 0, offset, offset)

    def given_up(self, record: Described) -> str:
        return ""

    def settings(self) -> Any:
        return SimpleNamespace(deliveries=5, window=2_000, waits=False)


def test_a_record_of_a_share_group_is_described_once() -> None:
    broker, led, table = FakeBroker(), Led(), messages.describe_producers
    image = broker.controller.image
    broker.controller.publish(image.with_features(image.features.changed({"share.version": 1})))
    service: Any = led
    broker.services.share_service = lambda: service
    broker.create("t", partitions=2)
    topics = [
        table.TopicRequest(name="t", partition_indexes=[0, 1, 0] + [1] * 100),
        table.TopicRequest(name="t", partition_indexes=[0]),
    ]
    for group, count in (("", 104), ("g", 2)):
        body = table.Request(topics=topics, share_group_id=group, share_offset=7).encode(0)
        answer = table.Response.decode(broker.send(PRODUCERS, 0, body).answer or b"", 0)
        found = [each for topic in answer.topics for each in topic.partitions]
        assert len(found) == count
        assert len([each for each in found if each.share_records]) == (2 if group else 0)
    assert led.looked == [0, 1]


# --- DescribeLogDirs ------------------------------------------------------------------------------


def directories(version: int, topics: list[tuple[str, tuple[int, ...]]] | None) -> Any:
    asked = None
    if topics is not None:
        asked = tuple(
            part_of(DIRS, version, "DescribableLogDirTopic", topic=name, partitions=partitions)
            for name, partitions in topics
        )
    return request_of(DIRS, version, topics=asked)


def contents(directory: Any) -> dict[str, list[tuple[int, int, int, bool]]]:
    return {
        topic.name: [
            (p.partition_index, p.partition_size, p.offset_lag, p.is_future_key)
            for p in topic.partitions
        ]
        for topic in directory.topics
    }


@pytest.mark.parametrize("version", range(1, 6))
def test_directories_with_sizes(version: int) -> None:
    broker = FakeBroker()
    t0, t1, u0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
    broker.replicas.directories = [
        DirectoryUse("/a", False, [(t0, 5_000_000_000), (u0, 7), (t1, 0)], 100, 60),
        DirectoryUse("/c", False, [(u0, 9)], 100, 60, [FutureLog(t0, "/c", 70, 8)]),
        DirectoryUse("/b", True, [], -1, -1),
    ]
    answer = broker.call(directories(version, None))
    first, third, second = answer.results
    assert contents(third) == {"u": [(0, 9, 0, False)], "t": [(0, 70, 8, True)]}
    assert (first.error_code.value, first.log_dir) == (0, "/a")
    assert contents(first) == {
        "t": [(0, 5_000_000_000, 0, False), (1, 0, 0, False)],
        "u": [(0, 7, 0, False)],
    }
    assert (second.error_code.value, contents(second)) == (ErrorCode.KAFKA_STORAGE_ERROR, {})
    if version >= 3:
        assert answer.error_code.value == 0
    if version >= 4:
        assert (first.total_bytes, first.usable_bytes) == (100, 60)
    if version >= 5:
        assert not first.is_cordoned
    narrow = broker.call(directories(version, [("t", (1, 9)), ("none", (0,)), ("u", ())]))
    assert contents(narrow.results[0]) == {"t": [(1, 0, 0, False)]}
    assert contents(broker.call(directories(version, [])).results[0]) == {}


@pytest.mark.parametrize("version", range(1, 6))
def test_trouble_is_answered_where_there_is_room_for_it(version: int) -> None:
    broker = FakeBroker()
    broker.services.replicas = None  # type: ignore[assignment]
    answer = broker.call(directories(version, None))
    assert answer.results == ()
    if version >= 3:
        assert answer.error_code.value == ErrorCode.UNKNOWN_SERVER_ERROR


# --- All of them ----------------------------------------------------------------------------------

REQUESTS = [
    request_of(LIST, 1, resource_types=(TOPIC, BROKER)),
    producers(("t", (0, 1)), ("u", ())),
    *(directories(version, [("t", (0, 1)), ("u", ())]) for version in range(1, 6)),
]


@pytest.mark.parametrize("entity", REQUESTS)
def test_a_request_cut_anywhere_closes_the_connection(entity: Any) -> None:
    body = written(entity)
    for size in range(len(body)):
        request = FakeBroker().send(entity.__api_key__, entity.__version__, body[:size])
        assert request.answer is None
        assert request.closed is not None


@settings(deadline=None)
@given(entity=st.sampled_from(REQUESTS), body=st.binary(max_size=60))
def test_any_bytes_are_answered_or_closed(entity: Any, body: bytes) -> None:
    request = FakeBroker().send(entity.__api_key__, entity.__version__, body)
    assert (request.answer is None) != (request.closed is None)
