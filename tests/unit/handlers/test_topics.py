"""CreateTopics and DeleteTopics: every version, every refusal, and who answers when."""

from __future__ import annotations

import datetime
import uuid
from typing import Any

import pytest

from kbroker import limits
from kbroker.config import TOPIC_KEYS
from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller.decisions import NewTopic
from kbroker.security.rights import Operation
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker, answer_of, part_of, request_of, written

CREATE_VERSIONS = range(2, 8)
DELETE_VERSIONS = range(1, 7)


def create(
    version: int, *topics: dict[str, Any], timeout_ms: int = 30_000, validate_only: bool = False
) -> Any:
    def part(structure: str, **fields: Any) -> Any:
        return part_of(ApiKey.CREATE_TOPICS, version, structure, **fields)

    return request_of(
        ApiKey.CREATE_TOPICS,
        version,
        timeout=datetime.timedelta(milliseconds=timeout_ms),
        validate_only=validate_only,
        topics=tuple(
            part(
                "CreatableTopic",
                name=topic["name"],
                num_partitions=topic.get("partitions", 1),
                replication_factor=topic.get("factor", 1),
                assignments=tuple(
                    part("CreatableReplicaAssignment", partition_index=i, broker_ids=tuple(nodes))
                    for i, nodes in topic.get("assignments", ())
                ),
                configs=tuple(
                    part("CreatableTopicConfig", name=k, value=v)
                    for k, v in topic.get("configs", {}).items()
                ),
            )
            for topic in topics
        ),
    )


def codes(answer: Any) -> list[tuple[str, int]]:
    return [(topic.name, topic.error_code.value) for topic in answer.topics]


@pytest.mark.parametrize("version", (5, 7))
def test_settings_of_so_many_new_topics_are_answered_and_no_more(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic is named by twelve bytes, and has a KB of settings."""
    monkeypatch.setattr(limits, "CREATED_SETTINGS_BYTES_MAX", 2_000)
    names = [{"name": f"t{number}"} for number in range(20)]
    topics = FakeBroker().call(create(version, *names, validate_only=True)).topics
    assert all(topic.error_code.value == 0 for topic in topics)
    described = [topic for topic in topics if topic.configs]
    left_out = topics[len(described) :]
    assert 1 <= len(described) <= 3 and {topic.configs for topic in left_out} == {None}
    assert {int(topic.topic_config_error_code) for topic in left_out} == {42}
    assert {topic.num_partitions for topic in topics} == {1}


@pytest.mark.parametrize("version", CREATE_VERSIONS)
def test_create(version: int) -> None:
    broker = FakeBroker()
    answer = broker.call(
        create(version, {"name": "a", "partitions": 3, "configs": {"retention.ms": "77"}})
    )
    (topic,) = answer.topics
    assert (topic.name, topic.error_code.value, topic.error_message) == ("a", 0, None)
    image = broker.controller.image.topics["a"]
    assert len(image.partitions) == 3
    assert dict(image.configs) == {"retention.ms": "77"}
    if version >= 5:
        assert (topic.num_partitions, topic.replication_factor) == (3, 1)
        configs = {c.name: (c.value, c.config_source, c.read_only) for c in topic.configs}
        assert set(configs) == set(TOPIC_KEYS)
        assert configs["retention.ms"] == ("77", 1, False)
        assert configs["retention.bytes"] == ("-1", 5, False)
    if version >= 7:
        assert topic.topic_id == image.topic_id
    assert len(broker.timer) == 0


@pytest.mark.parametrize("version", CREATE_VERSIONS)
def test_create_with_the_brokers_defaults(version: int) -> None:
    broker = FakeBroker(overrides=["num.partitions=4"])
    broker.call(create(version, {"name": "a", "partitions": -1, "factor": -1}))
    assert len(broker.controller.image.topics["a"].partitions) == 4


@pytest.mark.parametrize("version", CREATE_VERSIONS)
def test_validate_only_creates_nothing(version: int) -> None:
    broker = FakeBroker()
    broker.create("old")
    answer = broker.call(
        create(version, {"name": "a", "partitions": 3}, {"name": "old"}, validate_only=True)
    )
    assert codes(answer) == [("a", 0), ("old", ErrorCode.TOPIC_ALREADY_EXISTS)]
    assert set(broker.controller.image.topics) == {"old"}
    if version >= 5:
        assert answer.topics[0].num_partitions == 3


def assigned(*assignments: tuple[int, list[int]], partitions: int = -1, factor: int = -1) -> Any:
    return {
        "name": "a",
        "partitions": partitions,
        "factor": factor,
        "assignments": assignments,
    }


# A running Apache Kafka 4.3.0 with one broker answers so.
REFUSALS: list[tuple[ErrorCode, dict[str, Any]]] = [
    (ErrorCode.TOPIC_ALREADY_EXISTS, {"name": "old"}),
    (ErrorCode.INVALID_PARTITIONS, {"name": "a", "partitions": 0}),
    (ErrorCode.INVALID_PARTITIONS, {"name": "a", "partitions": -2}),
    (ErrorCode.INVALID_REPLICATION_FACTOR, {"name": "a", "factor": 0}),
    (ErrorCode.INVALID_REPLICATION_FACTOR, {"name": "a", "factor": -2}),
    (ErrorCode.INVALID_REPLICATION_FACTOR, {"name": "a", "factor": 2}),
    (ErrorCode.INVALID_REPLICATION_FACTOR, {"name": "a", "partitions": 0, "factor": 0}),
    (ErrorCode.INVALID_REQUEST, assigned((0, [1]), partitions=2)),
    (ErrorCode.INVALID_REQUEST, assigned((0, [1]), factor=1)),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, assigned((0, [1]), (2, [1]))),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, assigned((0, [7]))),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, assigned((0, [1, 1]))),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, assigned((0, []))),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, assigned((0, [1]), (0, [1]))),
    *(
        (ErrorCode.INVALID_TOPIC_EXCEPTION, {"name": name})
        for name in (".", "..", "", "x" * 250, "a b", "o.d")
    ),
    (ErrorCode.INVALID_CONFIG, {"name": "a", "configs": {"nope": "1"}}),
    (ErrorCode.INVALID_CONFIG, {"name": "a", "configs": {"retention.ms": "abc"}}),
    (ErrorCode.INVALID_CONFIG, {"name": "a", "configs": {"cleanup.policy": "x"}}),
    (ErrorCode.INVALID_CONFIG, {"name": "a", "configs": {"retention.ms": None}}),
    (ErrorCode.INVALID_REQUEST, {"name": "__cluster_metadata"}),
    (ErrorCode.POLICY_VIOLATION, {"name": "a", "partitions": 200_000}),
]


@pytest.mark.parametrize("version", [2, 4, 5, 7])
@pytest.mark.parametrize(("code", "topic"), REFUSALS)
def test_refusals(version: int, code: ErrorCode, topic: dict[str, Any]) -> None:
    broker = FakeBroker()
    broker.create("old", "o_d")
    (refused,) = broker.call(create(version, topic)).topics
    assert (refused.name, refused.error_code.value) == (topic["name"], code)
    assert refused.error_message
    if version >= 5:
        assert (refused.num_partitions, refused.replication_factor, refused.configs) == (-1, -1, ())
    if version >= 7:
        assert refused.topic_id is None
    assert set(broker.controller.image.topics) == {"old", "o_d"}


@pytest.mark.parametrize("version", [2, 5])
def test_a_refusal_that_would_quote_more_than_a_string_holds(version: int) -> None:
    """And the topic beside it, which was made, has its answer."""
    broker = FakeBroker()
    long = {"name": "a", "configs": {"x" * 32_767: "1"}}
    answer = broker.call(create(version, long, {"name": "b"}))
    assert codes(answer) == [("a", ErrorCode.INVALID_CONFIG), ("b", 0)]


@pytest.mark.parametrize("version", CREATE_VERSIONS)
def test_a_name_given_twice_is_refused_once_and_the_others_are_made(version: int) -> None:
    broker = FakeBroker()
    answer = broker.call(create(version, *({"name": n} for n in ("b", "d", "a", "d", "d", "c"))))
    assert codes(answer) == [("b", 0), ("d", ErrorCode.INVALID_REQUEST), ("a", 0), ("c", 0)]
    assert set(broker.controller.image.topics) == {"a", "b", "c"}


@pytest.mark.parametrize("version", CREATE_VERSIONS)
def test_nothing_to_create(version: int) -> None:
    assert FakeBroker().call(create(version)).topics == ()


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_timeout_that_is_over_creates_nothing(timeout_ms: int) -> None:
    broker = FakeBroker()
    answer = broker.call(create(7, {"name": "a"}, {"name": "b"}, timeout_ms=timeout_ms))
    assert codes(answer) == [("a", ErrorCode.REQUEST_TIMED_OUT), ("b", ErrorCode.REQUEST_TIMED_OUT)]
    assert not broker.controller.image.topics


@pytest.mark.parametrize("version", CREATE_VERSIONS)
def test_the_answer_waits_for_the_controller(version: int) -> None:
    broker = FakeBroker()
    broker.controller.hold = True
    request = broker.ask(create(version, {"name": "a"}, timeout_ms=500))
    broker.elapse(499)
    assert request.answer is None and broker.purgatories.topic.delayed == 1
    broker.controller.release()
    assert codes(answer_of(request)) == [("a", 0)]
    broker.elapse()  # cancelled: no second answer


@pytest.mark.parametrize("version", CREATE_VERSIONS)
def test_a_controller_that_is_too_slow(version: int) -> None:
    broker = FakeBroker()
    broker.controller.hold = True
    request = broker.ask(create(version, {"name": "a"}))
    broker.elapse()
    assert codes(answer_of(request)) == [("a", ErrorCode.REQUEST_TIMED_OUT)]
    broker.controller.release()  # the work goes on; there is no second answer
    assert set(broker.controller.image.topics) == {"a"}


@pytest.mark.parametrize("version", CREATE_VERSIONS)
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError("bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (KafkaError(ErrorCode.NOT_CONTROLLER, "elsewhere"), ErrorCode.NOT_CONTROLLER),
    ],
)
def test_a_controller_that_breaks(version: int, error: Exception, code: ErrorCode) -> None:
    broker = FakeBroker()
    broker.controller.broken = error
    request = broker.ask(create(version, {"name": "a"}, {"name": "b"}))
    assert codes(answer_of(request)) == [("a", code), ("b", code)]
    broker.elapse()  # the timer was set already: still one answer


# --- DeleteTopics -----------------------------------------------------------------------------


def delete(version: int, *topics: Any, timeout_ms: int = 30_000) -> Any:
    timeout = datetime.timedelta(milliseconds=timeout_ms)
    if version < 6:
        return request_of(ApiKey.DELETE_TOPICS, version, topic_names=topics, timeout=timeout)
    states = []
    for topic in topics:
        name, topic_id = topic if isinstance(topic, tuple) else (topic, None)
        if isinstance(topic, uuid.UUID):
            name, topic_id = None, topic
        states.append(
            part_of(ApiKey.DELETE_TOPICS, version, "DeleteTopicState", name=name, topic_id=topic_id)
        )
    return request_of(ApiKey.DELETE_TOPICS, version, topics=tuple(states), timeout=timeout)


def outcome(answer: Any) -> list[tuple[str | None, int]]:
    return [(topic.name, topic.error_code.value) for topic in answer.responses]


@pytest.mark.parametrize("version", DELETE_VERSIONS)
def test_delete_by_name(version: int) -> None:
    broker = FakeBroker()
    broker.create("a", "b", "c")
    topic_id = broker.controller.image.topics["b"].topic_id
    answer = broker.call(delete(version, "none", "b", "c", "c", "a b"))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert outcome(answer) == [
        ("none", unknown),
        ("b", 0),
        ("c", ErrorCode.INVALID_REQUEST),
        ("a b", unknown),
    ]
    assert set(broker.controller.image.topics) == {"a", "c"}
    if version >= 5:
        assert [bool(t.error_message) for t in answer.responses] == [True, False, True, True]
    if version >= 6:
        assert answer.responses[1].topic_id == topic_id
    assert len(broker.timer) == 0


def test_delete_by_id() -> None:
    broker = FakeBroker()
    broker.create("a", "b")
    known, unknown = broker.controller.image.topics["a"].topic_id, uuid.uuid4()
    answer = broker.call(delete(6, unknown, known))
    assert [(t.name, t.topic_id, t.error_code.value) for t in answer.responses] == [
        (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
        ("a", known, 0),
    ]
    assert set(broker.controller.image.topics) == {"b"}


def test_a_topic_named_in_no_way_in_two_ways_or_twice() -> None:
    broker = FakeBroker()
    broker.create("a", "b", "c")
    topics = broker.controller.image.topics
    a, b, unknown = topics["a"].topic_id, topics["b"].topic_id, uuid.uuid4()
    asked = [("a", a), (None, None), b, "b", unknown, unknown, "c"]
    answer = broker.call(delete(6, *asked))
    invalid = ErrorCode.INVALID_REQUEST
    assert [(t.name, t.topic_id, t.error_code.value) for t in answer.responses] == [
        ("a", a, invalid),
        (None, None, invalid),
        ("b", b, invalid),
        (None, unknown, invalid),
        ("c", topics["c"].topic_id, 0),
    ]
    assert set(broker.controller.image.topics) == {"a", "b"}


@pytest.mark.parametrize("version", DELETE_VERSIONS)
def test_a_topic_that_is_being_created_is_not_deleted_without_the_right(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client may describe it and not delete it; its request waits after the creation."""

    def deny(*asked: Any, **_: Any) -> frozenset[str]:
        return frozenset(asked[4]) if asked[2] is Operation.DELETE else frozenset()

    monkeypatch.setattr("kbroker.handlers.topics.denied", deny)
    monkeypatch.setattr("kbroker.handlers.topics.may_on_cluster", lambda *_, **__: False)
    broker = FakeBroker()
    broker.controller.hold = True
    broker.controller.create_topics([NewTopic("new", 1, 1, None, {})], False, lambda results: None)
    request = broker.ask(delete(version, "new"))
    broker.controller.release()
    answer = answer_of(request)
    assert outcome(answer) == [("new", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert set(broker.controller.image.topics) == {"new"}
    assert outcome(broker.call(delete(version, "new"))) == [
        ("new", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    ]


@pytest.mark.parametrize("version", DELETE_VERSIONS)
def test_deletion_may_be_switched_off(version: int) -> None:
    broker = FakeBroker(overrides=["delete.topic.enable=false"])
    broker.create("a")
    code = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
    assert outcome(broker.call(delete(version, "a", "b"))) == [("a", code), ("b", code)]
    assert set(broker.controller.image.topics) == {"a"}


@pytest.mark.parametrize("version", DELETE_VERSIONS)
def test_nothing_to_delete(version: int) -> None:
    assert FakeBroker().call(delete(version)).responses == ()


@pytest.mark.parametrize("version", DELETE_VERSIONS)
def test_deletion_waits_for_the_controller_but_not_for_ever(version: int) -> None:
    broker = FakeBroker()
    broker.create("a", "b")
    broker.controller.hold = True
    first = broker.ask(delete(version, "a"))
    broker.controller.release()
    assert outcome(answer_of(first)) == [("a", 0)]
    second = broker.ask(delete(version, "b"))
    broker.elapse()
    assert outcome(answer_of(second)) == [("b", ErrorCode.REQUEST_TIMED_OUT)]
    broker.controller.release()
    late = broker.ask(delete(version, "a", timeout_ms=0))
    assert outcome(answer_of(late)) == [("a", ErrorCode.REQUEST_TIMED_OUT)]


@pytest.mark.parametrize("version", DELETE_VERSIONS)
def test_a_deletion_that_breaks(version: int) -> None:
    broker = FakeBroker()
    broker.create("a")
    broker.controller.broken = RuntimeError("bug")
    answer = broker.call(delete(version, "a"))
    assert outcome(answer) == [("a", ErrorCode.UNKNOWN_SERVER_ERROR)]


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        *(
            (ApiKey.CREATE_TOPICS, v, written(create(v, {"name": "a", "configs": {"b": "c"}})))
            for v in CREATE_VERSIONS
        ),
        *((ApiKey.DELETE_TOPICS, v, written(delete(v, "a", "b"))) for v in DELETE_VERSIONS),
    ],
)
def test_a_request_cut_anywhere_closes_the_connection(
    key: ApiKey, version: int, body: bytes
) -> None:
    for size in range(len(body)):
        request = FakeBroker().send(key, version, body[:size])
        assert request.answer is None
        assert request.closed is not None
