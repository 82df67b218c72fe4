"""CreatePartitions: every version, every refusal, and who answers when."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker, answer_of, part_of, request_of, written

VERSIONS = range(4)


def grow(
    version: int,
    *topics: tuple[str, int] | tuple[str, int, Sequence[Sequence[int]]],
    timeout_ms: int = 30_000,
    validate_only: bool = False,
) -> Any:
    def part(structure: str, **fields: Any) -> Any:
        return part_of(ApiKey.CREATE_PARTITIONS, version, structure, **fields)

    return request_of(
        ApiKey.CREATE_PARTITIONS,
        version,
        timeout=datetime.timedelta(milliseconds=timeout_ms),
        validate_only=validate_only,
        topics=tuple(
            part(
                "CreatePartitionsTopic",
                name=name,
                count=count,
                assignments=None
                if not rest
                else tuple(
                    part("CreatePartitionsAssignment", broker_ids=tuple(nodes)) for nodes in rest[0]
                ),
            )
            for name, count, *rest in topics
        ),
    )


def outcome(answer: Any) -> list[tuple[str, int, bool]]:
    return [(r.name, r.error_code.value, r.error_message is not None) for r in answer.results]


def counts(broker: FakeBroker) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in broker.controller.image.topics.items()}


@pytest.mark.parametrize("version", VERSIONS)
def test_more_partitions(version: int) -> None:
    broker = FakeBroker()
    broker.create("a", "b", partitions=2)
    answer = broker.call(grow(version, ("a", 5), ("none", 3), ("b", 2), ("b2", 1, [[1]])))
    assert outcome(answer) == [
        ("a", 0, False),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        ("b", ErrorCode.INVALID_PARTITIONS, True),
        ("b2", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
    ]
    assert counts(broker) == {"a": 5, "b": 2}
    assert len(broker.timer) == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_assignments_and_validate_only(version: int) -> None:
    broker = FakeBroker()
    broker.create("a")
    for nodes, code in (([[1], [1]], 0), ([], 39), ([[1]], 39), ([[1], [5]], 39)):
        answer = broker.call(grow(version, ("a", 3, nodes), validate_only=True))
        assert outcome(answer) == [("a", code, code != 0)]
    assert counts(broker) == {"a": 1}
    broker.call(grow(version, ("a", 3, [[1], [1]])))
    assert counts(broker) == {"a": 3}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_name_given_twice_is_refused_once(version: int) -> None:
    broker = FakeBroker()
    broker.create("a", "b")
    answer = broker.call(grow(version, ("a", 3), ("b", 2), ("a", 4)))
    assert outcome(answer) == [("a", ErrorCode.INVALID_REQUEST, True), ("b", 0, False)]
    assert counts(broker) == {"a": 1, "b": 2}


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_to_grow(version: int) -> None:
    assert FakeBroker().call(grow(version)).results == ()


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_timeout_that_is_over_grows_nothing(timeout_ms: int) -> None:
    broker = FakeBroker()
    broker.create("a")
    answer = broker.call(grow(3, ("a", 2), timeout_ms=timeout_ms))
    assert outcome(answer) == [("a", ErrorCode.REQUEST_TIMED_OUT, False)]
    assert counts(broker) == {"a": 1}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_controller_that_is_too_slow(version: int) -> None:
    broker = FakeBroker()
    broker.create("a")
    broker.controller.hold = True
    request = broker.ask(grow(version, ("a", 2), timeout_ms=500))
    broker.elapse(499)
    assert request.answer is None
    broker.elapse(1)
    assert outcome(answer_of(request)) == [("a", ErrorCode.REQUEST_TIMED_OUT, False)]
    broker.controller.release()  # the work goes on; there is no second answer
    assert counts(broker) == {"a": 2}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError("bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (KafkaError(ErrorCode.NOT_CONTROLLER, "elsewhere"), ErrorCode.NOT_CONTROLLER),
    ],
)
def test_trouble_is_answered_for_every_topic(error: Exception, code: ErrorCode) -> None:
    broker = FakeBroker()
    broker.controller.broken = error
    answer = broker.call(grow(3, ("a", 2), ("b", 2)))
    assert [(name, found) for name, found, _ in outcome(answer)] == [("a", code), ("b", code)]


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_that_are_no_request_close_the_connection(version: int) -> None:
    whole = written(grow(version, ("a", 2, [[1]])))
    broker = FakeBroker()
    for size in range(len(whole)):
        request = broker.send(ApiKey.CREATE_PARTITIONS, version, whole[:size])
        assert request.closed is not None and request.answer is None
