"""DescribeTopicPartitions: the order, the limit, the cursor, and what is not there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.describe_topic_partitions import SORTED_AT_ONCE, _in_order
from kbroker.handlers.metadata_topics import OPERATIONS_NOT_ASKED, TOPIC_OPERATIONS
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.image import BrokerEndpoint, BrokerImage, new_uuid
from kbroker.security.rights import Operation, Resource
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker, changed, part_of, request_of, written

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NONE_AT_ALL: list[object] = []
NEITHER = (None, False, OPERATIONS_NOT_ASKED, NONE_AT_ALL)


def describe(*names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None) -> Any:
    def part(structure: str, **fields: Any) -> Any:
        return part_of(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, structure, **fields)

    return request_of(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=tuple(part("TopicRequest", name=name) for name in names),
        response_partition_limit=limit,
        cursor=None
        if cursor is None
        else part("Cursor", topic_name=cursor[0], partition_index=cursor[1]),
    )


def following(answer: Any) -> tuple[str, int] | None:
    if answer.next_cursor is None:
        return None
    return answer.next_cursor.topic_name, answer.next_cursor.partition_index


def outcome(answer: Any) -> list[tuple[str, int, list[int]]]:
    return [
        (topic.name, topic.error_code.value, [p.partition_index for p in topic.partitions])
        for topic in answer.topics
    ]


@pytest.fixture
def broker() -> FakeBroker:
    """a: 3 partitions, b: 1, c: 5."""
    broker = FakeBroker()
    for name, partitions in (("c", 5), ("a", 3), ("b", 1)):
        broker.create(name, partitions=partitions)
    return broker


A, B, C = ("a", 0, [0, 1, 2]), ("b", 0, [0]), ("c", 0, [0, 1, 2, 3, 4])


def test_everything_about_a_topic(broker: FakeBroker) -> None:
    (topic,) = broker.call(describe("b")).topics
    image = broker.controller.image.topics["b"]
    assert (topic.topic_id, topic.is_internal) == (image.topic_id, False)
    assert topic.topic_authorized_operations == TOPIC_OPERATIONS == 3576
    (partition,) = topic.partitions
    assert (partition.error_code.value, partition.leader_id, partition.leader_epoch) == (0, 1, 0)
    assert partition.replica_nodes == partition.isr_nodes == (1,)
    assert partition.offline_replicas == ()
    assert partition.eligible_leader_replicas == partition.last_known_elr == ()


# A running Apache Kafka 4.3.0 answers so.
ANSWERS: list[tuple[Any, list[tuple[str, int, list[int]]], tuple[str, int] | None]] = [
    (describe(), [A, B, C], None),
    (describe("c", "a", "b"), [A, B, C], None),
    (describe("a", "a", "b"), [A, B], None),
    (describe("none", "a"), [A, ("none", UNKNOWN, [])], None),
    (describe("a/b", "a", "."), [(".", 17, []), A, ("a/b", 17, [])], None),
    (describe("x" * 250), [("x" * 250, 17, [])], None),
    # The limit.
    (describe("a", "b", "c", limit=1), [("a", 0, [0])], ("a", 1)),
    (describe("a", "b", "c", limit=0), [("a", 0, [0])], ("a", 1)),
    (describe("a", "b", "c", limit=-1), [("a", 0, [0])], ("a", 1)),
    (describe("a", "b", "c", limit=3), [A], ("b", 0)),
    (describe("a", "b", "c", limit=4), [A, B], ("c", 0)),
    (describe("a", "b", "c", limit=8), [A, B, ("c", 0, [0, 1, 2, 3])], ("c", 4)),
    (describe("a", "b", "c", limit=9), [A, B, C], None),
    (describe("a", "none", limit=3), [A], ("none", 0)),
    (describe("a", "aa", "b", limit=4), [A, ("aa", UNKNOWN, []), B], None),
    (describe("aa", "b", "c", limit=1), [("aa", UNKNOWN, []), B], ("c", 0)),
    # The cursor.
    (describe("a", "b", "c", cursor=("a", 1)), [("a", 0, [1, 2]), B, C], None),
    (describe("a", "b", "c", cursor=("a", 3)), [("a", 0, []), B, C], None),
    (describe("a", "b", "c", cursor=("a", 9)), [("a", 0, []), B, C], None),
    (describe("a", "b", cursor=("a", 2**31 - 1)), [("a", 0, []), B], None),
    (describe("a", "b", "c", cursor=("b", 0)), [B, C], None),
    (describe("a", "b", "c", cursor=("a", 2), limit=2), [("a", 0, [2]), B], ("c", 0)),
    (describe("none", cursor=("none", 1)), [("none", UNKNOWN, [])], None),
    (describe("a/b", "c", cursor=("c", 0)), [C], None),
    (describe(cursor=("b", 0)), [B, C], None),
    (describe(cursor=("aa", 1), limit=3), [B, ("c", 0, [0, 1])], ("c", 2)),
    (describe(cursor=("zz", 1)), [], None),
    (describe(cursor=("", 0)), [A, B, C], None),
    (describe(cursor=("a/b", 0)), [B, C], None),
    # Trouble with the request as a whole.
    (describe(cursor=("a", -1)), [], None),
    (describe("c", "a", "c", cursor=("q", 1)), [("c", 42, []), ("a", 42, []), ("c", 42, [])], None),
    (describe("a", "c", cursor=("b", 0)), [("a", 42, []), ("c", 42, [])], None),
    (describe("a", cursor=("a", -1)), [("a", 42, [])], None),
    (describe("a", cursor=("", 0)), [("a", 42, [])], None),
    (describe("a/b", "", "a"), [("a/b", -1, []), ("", -1, []), ("a", -1, [])], None),
]


@pytest.mark.parametrize(("asked", "topics", "cursor"), ANSWERS)
def test_answers(
    broker: FakeBroker,
    asked: Any,
    topics: list[tuple[str, int, list[int]]],
    cursor: tuple[str, int] | None,
) -> None:
    answer = broker.call(asked)
    assert (outcome(answer), following(answer)) == (topics, cursor)


def test_an_unknown_topic_is_answered_with_its_name(broker: FakeBroker) -> None:
    for name, internal in (("none", False), ("__consumer_offsets", True), ("a/b", False)):
        (topic,) = broker.call(describe(name)).topics
        assert (topic.topic_id, topic.is_internal) == (None, internal)
        assert topic.topic_authorized_operations == TOPIC_OPERATIONS
    (topic,) = broker.call(describe("__consumer_offsets", cursor=("a", 0))).topics
    found = (topic.topic_id, topic.is_internal, topic.topic_authorized_operations)
    assert (*found, list(topic.partitions)) == NEITHER


def test_a_partition_without_a_leader(broker: FakeBroker) -> None:
    topic = broker.controller.image.topics["b"]
    lost = changed(topic.partitions[0], leader=-1, replicas=(1, 9), isr=(9,))
    broker.controller.image = broker.controller.image.with_topics(
        [changed(topic, partitions=(lost,))]
    )
    ((partition,),) = (topic.partitions for topic in broker.call(describe("b")).topics)
    assert (partition.error_code.value, partition.leader_id) == (0, -1)  # no word why, as Kafka
    assert partition.offline_replicas == (9,)
    assert (partition.replica_nodes, partition.isr_nodes) == ((1, 9), (9,))


def test_a_leader_that_clients_of_the_listener_do_not_reach(broker: FakeBroker) -> None:
    inside = BrokerImage(2, "h", 2, endpoints=(BrokerEndpoint("INSIDE", "h", 2),))
    image = broker.controller.image
    topic = image.topics["b"]
    led = changed(topic.partitions[0], leader=2, replicas=(1, 2), isr=(1, 2))
    broker.controller.image = image.with_brokers([*image.brokers.values(), inside]).with_topics(
        [changed(topic, partitions=(led,))]
    )
    for listener, leader, offline in (("PLAINTEXT", -1, (2,)), ("INSIDE", 2, ())):
        answer = broker.call(describe("b"), listener=listener)
        (partition,) = answer.topics[0].partitions
        assert (partition.error_code.value, partition.leader_id) == (0, leader)
        assert partition.offline_replicas == offline


def test_the_brokers_own_limit() -> None:
    broker = FakeBroker(overrides=["max.request.partition.size.limit=4"])
    broker.create("a", partitions=10)
    answer = broker.call(describe("a", limit=9))
    assert (outcome(answer), following(answer)) == ([("a", 0, [0, 1, 2, 3])], ("a", 4))


@given(
    counts=st.dictionaries(
        st.text(alphabet="abc._-", min_size=1, max_size=4), st.integers(1, 7), max_size=8
    ),
    named=st.booleans(),
    data=st.data(),
)
def test_pages_make_the_whole(counts: dict[str, int], named: bool, data: st.DataObject) -> None:
    broker = FakeBroker()
    broker.controller.image = broker.controller.image.with_topics(
        new_topic_image(name, new_uuid(), [(1,)] * count, {}) for name, count in counts.items()
    )
    names = data.draw(st.permutations(list(counts))) if named else []
    found: list[tuple[str, int]] = []
    cursor: tuple[str, int] | None = None
    for _ in range(100):
        limit = data.draw(st.integers(1, 10))
        answer = broker.call(describe(*names, limit=limit, cursor=cursor))
        page = [
            (topic.name, partition.partition_index)
            for topic in answer.topics
            for partition in topic.partitions
        ]
        assert len(page) <= limit
        found += page
        cursor = following(answer)
        if cursor is None:
            break
    assert found == sorted((name, at) for name, count in counts.items() for at in range(count))


@given(st.lists(st.text(max_size=3)), st.integers(0, 3))
def test_names_in_order(names: list[str], times: int) -> None:
    many = names + [f"{number:x}" for number in range(times * SORTED_AT_ONCE)]
    assert list(_in_order(many)) == sorted(many)


def test_trouble_is_answered_for_every_topic(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    monkeypatch.setattr("kbroker.handlers.describe_topic_partitions._describe", fail)
    answer = broker.call(describe("b", "a"))
    assert outcome(answer) == [("b", 56, []), ("a", 56, [])]


def test_bytes_that_are_no_request_close_the_connection(broker: FakeBroker) -> None:
    whole = written(describe("a", cursor=("a", 1)))
    for size in range(len(whole)):
        request = broker.send(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, whole[:size])
        assert request.closed is not None and request.answer is None


def test_a_hundred_thousand_names_that_are_not_there(broker: FakeBroker) -> None:
    names = [f"none-{number}" for number in range(100_000)]
    answer = broker.ask(describe(*reversed(names), limit=1)).answer
    assert answer is not None and len(answer) > 100_000 * 30


def test_brokers_are_those_of_the_image() -> None:
    broker = FakeBroker()
    broker.create("a")
    broker.controller.image = broker.controller.image.with_brokers([BrokerImage(2)])
    ((partition,),) = (topic.partitions for topic in broker.call(describe("a")).topics)
    assert (partition.leader_id, partition.offline_replicas) == (-1, (1,))


def test_a_page_asks_for_no_more_rights_than_it_has_topics() -> None:
    """Else a client that goes from page to page would have the rights to all topics asked for each
    of them."""
    asked: list[str] = []

    class Even:
        def authorize(
            self, session: object, operation: Operation, resources: Sequence[Resource],
            request: object, *, quiet: bool = False,
        ) -> list[Resource]:  # fmt: skip
            if operation is Operation.DESCRIBE and len(resources) > 1:
                assert quiet
                asked.extend(each.name for each in resources)
            return [each for each in resources if int(each.name) % 2]

        def operations(self, *_: object) -> Callable[[str], int]:
            return lambda name: int(name)

    broker = FakeBroker()
    for number in range(500):
        broker.create(f"{number:03}", partitions=1)
    broker.services.authorizer = Even()  # type: ignore[assignment]
    cursor: tuple[str, int] | None = None
    seen: list[str] = []
    for _ in range(3):
        answer = broker.call(describe(limit=2, cursor=cursor))
        seen += [topic.name for topic in answer.topics]
        cursor = following(answer)
    assert seen == ["000", "002", "004", "006", "008", "010"] and cursor == ("012", 0)
    assert len(asked) <= 3 * 50
