"""AlterConfigs and IncrementalAlterConfigs, every version: what becomes of a topic.

The codes are those of a running Apache Kafka 4.3.0; tests/parity holds them against its answers.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.errors import ErrorCode, KafkaError
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker, part_of, request_of, written

ALTER, INCREMENTAL = ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS
BOTH = [(ALTER, version) for version in range(3)] + [(INCREMENTAL, 0), (INCREMENTAL, 1)]
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
Operation = tuple[str, int, str | None]
Resource = tuple[int, str, Sequence[Operation]]

RETENTION: Operation = ("retention.ms", SET, "5")


def ask(key: ApiKey, version: int, *resources: Resource, validate_only: bool = False) -> Any:
    """The same change in either API; AlterConfigs knows no operation but to set."""

    def config(name: str, kind: int, value: str | None) -> Any:
        operation = {"config_operation": kind} if key is INCREMENTAL else {}
        return part_of(key, version, "AlterableConfig", name=name, value=value, **operation)

    return request_of(
        key,
        version,
        resources=tuple(
            part_of(
                key,
                version,
                "AlterConfigsResource",
                resource_type=kind,
                resource_name=name,
                configs=tuple(config(*operation) for operation in operations),
            )
            for kind, name, operations in resources
        ),
        validate_only=validate_only,
    )


def codes(broker: FakeBroker, entity: Any) -> list[int]:
    responses = broker.call(entity).responses
    asked = [(r.resource_type, r.resource_name) for r in entity.resources]
    assert [(r.resource_type, r.resource_name) for r in responses] == asked
    assert all((r.error_message is None) == (r.error_code.value in (0, -1)) for r in responses)
    return [r.error_code.value for r in responses]


def overrides(broker: FakeBroker, name: str = "t") -> dict[str, str]:
    topic = broker.controller.image.topic(name)
    assert topic is not None
    return dict(topic.configs)


def incremental(before: dict[str, str], *operations: Operation) -> tuple[int, dict[str, str]]:
    broker = FakeBroker()
    broker.create("t", **before)
    (code,) = codes(broker, ask(INCREMENTAL, 1, (TOPIC, "t", operations)))
    return code, overrides(broker)


@pytest.mark.parametrize("version", range(3))
def test_alter_replaces_everything(version: int) -> None:
    broker = FakeBroker()
    broker.create("t", retention_ms="9", segment_bytes="2000000")
    assert codes(broker, ask(ALTER, version, (TOPIC, "t", [("segment.ms", SET, "7")]))) == [0]
    assert overrides(broker) == {"segment.ms": "7"}
    assert codes(broker, ask(ALTER, version, (TOPIC, "t", []))) == [0]
    assert overrides(broker) == {}


@pytest.mark.parametrize("version", range(2))
def test_incremental_sets_and_deletes_single_keys(version: int) -> None:
    broker = FakeBroker()
    broker.create("t", retention_ms="9", segment_bytes="2000000")
    change: list[Operation] = [
        ("segment.ms", SET, "7"),
        ("retention.ms", DELETE, None),
        ("flush.ms", DELETE, "whatever"),
    ]
    assert codes(broker, ask(INCREMENTAL, version, (TOPIC, "t", change))) == [0]
    assert overrides(broker) == {"segment.bytes": "2000000", "segment.ms": "7"}


@pytest.mark.parametrize(
    ("before", "kind", "parts", "after"),
    [
        (None, APPEND, "compact", "delete,compact"),
        ("compact", APPEND, "delete,delete", "compact,delete"),
        ("compact", APPEND, "compact,", "compact"),
        ("compact", APPEND, ",", "compact"),
        ("", APPEND, "compact", "compact"),
        (None, SUBTRACT, "delete", ""),
        ("compact,delete", SUBTRACT, "compact", "delete"),
        ("compact,delete", SUBTRACT, " compact", "compact,delete"),
        ("compact,delete", SUBTRACT, "none", "compact,delete"),
        ("delete", SUBTRACT, "", "delete"),
    ],
)
def test_lists(before: str | None, kind: int, parts: str, after: str) -> None:
    had = {} if before is None else {"cleanup_policy": before}
    assert incremental(had, ("cleanup.policy", kind, parts)) == (0, {"cleanup.policy": after})


REFUSED_OPERATIONS: list[tuple[list[Operation], ErrorCode]] = [
    ([("retention.ms", APPEND, "5")], ErrorCode.INVALID_CONFIG),
    ([("retention.ms", SUBTRACT, "5")], ErrorCode.INVALID_CONFIG),
    ([("none", APPEND, "5")], ErrorCode.INVALID_CONFIG),
    ([("cleanup.policy", APPEND, "")], ErrorCode.INVALID_CONFIG),
    ([("cleanup.policy", APPEND, "zz")], ErrorCode.INVALID_CONFIG),
    ([("cleanup.policy", APPEND, None)], ErrorCode.INVALID_REQUEST),
    ([("cleanup.policy", SUBTRACT, None)], ErrorCode.INVALID_REQUEST),
    ([RETENTION, ("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST),
    ([("segment.ms", SET, "7"), ("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
]


@pytest.mark.parametrize(("operations", "code"), REFUSED_OPERATIONS)
def test_a_refused_change_changes_nothing(operations: list[Operation], code: ErrorCode) -> None:
    assert incremental({"flush_ms": "3"}, *operations) == (code, {"flush.ms": "3"})


def test_deleting_an_unknown_key_is_no_error() -> None:
    assert incremental({}, ("none", DELETE, None)) == (0, {})


TROUBLE: list[tuple[Resource, ErrorCode]] = [
    ((TOPIC, "t", [("retention.ms", SET, None)]), ErrorCode.INVALID_REQUEST),
    ((TOPIC, "t", [RETENTION, RETENTION]), ErrorCode.INVALID_REQUEST),
    ((TOPIC, "t", [("none", SET, "1")]), ErrorCode.INVALID_CONFIG),
    ((TOPIC, "t", [("", SET, "1")]), ErrorCode.INVALID_CONFIG),
    ((TOPIC, "t", [("retention.ms", SET, "")]), ErrorCode.INVALID_CONFIG),
    ((TOPIC, "t", [("retention.ms", SET, "-2")]), ErrorCode.INVALID_CONFIG),
    ((TOPIC, "none", [RETENTION]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ((TOPIC, "none", [("retention.ms", SET, "x")]), ErrorCode.INVALID_CONFIG),
    ((TOPIC, "none", [("retention.ms", SET, None)]), ErrorCode.INVALID_REQUEST),
    ((TOPIC, "a b", [("retention.ms", SET, "x")]), ErrorCode.INVALID_TOPIC_EXCEPTION),
    ((TOPIC, "a" * 250, [RETENTION]), ErrorCode.INVALID_TOPIC_EXCEPTION),
    ((TOPIC, "", [RETENTION]), ErrorCode.INVALID_REQUEST),
    ((BROKER, "1", [("node.id", SET, "9")]), ErrorCode.INVALID_REQUEST),
    ((BROKER, "1", [("num.io.threads", SET, "17")]), ErrorCode.INVALID_REQUEST),
    ((BROKER, "", [("ssl.key.password", SET, "9")]), ErrorCode.INVALID_REQUEST),
    ((BROKER, "2", []), ErrorCode.INVALID_REQUEST),
    ((BROKER, "x", []), ErrorCode.INVALID_REQUEST),
    ((LOGGER, "2", [("root", SET, "INFO")]), ErrorCode.INVALID_REQUEST),
    ((METRICS, "", [("interval.ms", SET, "1000")]), ErrorCode.INVALID_REQUEST),
    ((METRICS, "m", [("interval.ms", SET, "99")]), ErrorCode.INVALID_REQUEST),
    ((GROUP, "", [("consumer.session.timeout.ms", SET, "50000")]), ErrorCode.INVALID_REQUEST),
    ((GROUP, "g", [("consumer.session.timeout.ms", SET, "5")]), ErrorCode.INVALID_CONFIG),
    (
        (GROUP, "g" * 901, [("consumer.session.timeout.ms", SET, "50000")]),
        ErrorCode.INVALID_REQUEST,
    ),
    ((0, "x", [RETENTION]), ErrorCode.INVALID_REQUEST),
    ((3, "x", [RETENTION]), ErrorCode.INVALID_REQUEST),
    ((-1, "x", []), ErrorCode.INVALID_REQUEST),
]


@pytest.mark.parametrize(("key", "version"), BOTH)
@pytest.mark.parametrize("validate_only", [False, True])
def test_each_resource_has_its_own_error(key: ApiKey, version: int, validate_only: bool) -> None:
    for resource, code in TROUBLE:
        broker = FakeBroker()
        broker.create("t", "good")
        entity = ask(
            key, version, resource, (TOPIC, "good", [RETENTION]), validate_only=validate_only
        )
        assert codes(broker, entity) == [code, 0], resource
        assert overrides(broker) == {}
        assert overrides(broker, "good") == ({} if validate_only else {"retention.ms": "5"})


@pytest.mark.parametrize(("key", "version"), BOTH)
def test_a_resource_named_twice_is_refused_each_time(key: ApiKey, version: int) -> None:
    broker = FakeBroker()
    broker.create("t", "good")
    twice: Resource = (TOPIC, "t", [RETENTION])
    entity = ask(key, version, twice, (TOPIC, "good", [RETENTION]), twice, (BROKER, "t", []))
    refused = ErrorCode.INVALID_REQUEST
    assert codes(broker, entity) == [refused, 0, refused, refused]
    assert (overrides(broker), overrides(broker, "good")) == ({}, {"retention.ms": "5"})


@pytest.mark.parametrize("key", [ALTER, INCREMENTAL])
def test_a_broker_is_the_same_however_its_number_is_written(key: ApiKey) -> None:
    # Each look at a broker's settings takes a thousand times what it takes to add a zero.
    entity = ask(key, 1, (BROKER, "1", []), (BROKER, "+001", []), (BROKER, "", []))
    refused = ErrorCode.INVALID_REQUEST
    assert codes(FakeBroker(), entity) == [refused, refused, 0]


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize("kind", [-1, 4, 100])
def test_an_operation_that_does_not_exist_fails_the_whole_request(version: int, kind: int) -> None:
    broker = FakeBroker()
    broker.create("t", "good")
    bad: Resource = (TOPIC, "t", [("retention.ms", kind, "5")])
    entity = ask(INCREMENTAL, version, bad, (TOPIC, "good", [RETENTION]))
    assert codes(broker, entity) == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert (overrides(broker), overrides(broker, "good")) == ({}, {})
    # Unless the resource is refused for something else.
    assert codes(broker, ask(INCREMENTAL, version, bad, bad)) == [ErrorCode.INVALID_REQUEST] * 2


@pytest.mark.parametrize(("key", "version"), BOTH)
def test_no_resources_and_no_changes(key: ApiKey, version: int) -> None:
    broker = FakeBroker()
    assert codes(broker, ask(key, version)) == []
    nothing = [(BROKER, "1", ()), (BROKER, "", ()), (METRICS, "m", ()), (GROUP, "g", ())]
    assert codes(broker, ask(key, version, *nothing)) == [0, 0, 0, 0]
    # Loggers are younger than AlterConfigs.
    expected = ErrorCode.INVALID_REQUEST if key is ALTER else ErrorCode.NONE
    assert codes(broker, ask(key, version, (LOGGER, "1", ()))) == [expected]


@pytest.mark.parametrize(("key", "version"), BOTH)
def test_names_as_long_as_they_can_be(key: ApiKey, version: int) -> None:
    broker = FakeBroker()
    broker.create("t")
    longest = "x" * 32_767
    resources: list[Resource] = [
        (TOPIC, longest, [RETENTION]),
        (BROKER, longest, [RETENTION]),
        (TOPIC, "t", [(longest, SET, longest)]),
    ]
    assert codes(broker, ask(key, version, *resources)) == [
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_CONFIG,
    ]


@pytest.mark.parametrize(("key", "version"), BOTH)
def test_trouble_in_the_controller_reaches_every_resource(key: ApiKey, version: int) -> None:
    broker = FakeBroker()
    broker.create("t")
    broker.controller.broken = KafkaError(ErrorCode.NOT_CONTROLLER, "another broker is")
    entity = ask(key, version, (TOPIC, "t", [RETENTION]), (TOPIC, "a b", [RETENTION]))
    assert codes(broker, entity) == [ErrorCode.NOT_CONTROLLER] * 2


@pytest.mark.parametrize(("key", "version"), BOTH)
def test_a_request_cut_anywhere_closes_the_connection(key: ApiKey, version: int) -> None:
    body = written(ask(key, version, (TOPIC, "t", [RETENTION]), (BROKER, "1", [])))
    for size in range(len(body)):
        request = FakeBroker().send(key, version, body[:size])
        assert request.answer is None
        assert request.closed is not None


@settings(deadline=None)
@given(api=st.sampled_from(BOTH), body=st.binary(max_size=60))
def test_any_bytes_are_answered_or_closed(api: tuple[ApiKey, int], body: bytes) -> None:
    request = FakeBroker().send(*api, body)
    assert (request.answer is None) != (request.closed is None)


def test_settings_of_brokers_groups_and_subscriptions_are_stored_by_resource() -> None:
    broker = FakeBroker()
    broker.create("t")
    entity = ask(
        INCREMENTAL,
        1,
        (BROKER, "01", [("num.io.threads", SET, "9")]),
        (BROKER, "", [("log.cleanup.policy", APPEND, "compact"), ("nope", SET, "1")]),
        (TOPIC, "t", [RETENTION]),
        (GROUP, "a/b", [("consumer.session.timeout.ms", SET, "50000")]),
        (METRICS, "m", [("interval.ms", SET, "1000")]),
    )
    assert codes(broker, entity) == [0] * 5
    stored = {
        (int(kind), name): dict(own)
        for (kind, name), own in broker.controller.image.configs.items()
    }
    assert stored == {
        (BROKER, "1"): {"num.io.threads": "9"},
        (BROKER, ""): {"log.cleanup.policy": "delete,compact", "nope": "1"},
        (GROUP, "a/b"): {"consumer.session.timeout.ms": "50000"},
        (METRICS, "m"): {"interval.ms": "1000"},
    }
    assert overrides(broker) == {"retention.ms": "5"}


def test_levels_of_loggers_change_at_once_or_not_at_all() -> None:
    logger = logging.getLogger("kbroker.tests.levels")
    try:
        change = (LOGGER, "1", [(logger.name, SET, "DEBUG")])
        assert codes(FakeBroker(), ask(INCREMENTAL, 1, change, validate_only=True)) == [0]
        assert logger.level == logging.NOTSET
        assert codes(FakeBroker(), ask(INCREMENTAL, 1, change)) == [0]
        assert logger.isEnabledFor(logging.DEBUG)
        bad = (LOGGER, "1", [(logger.name, SET, "ERROR"), ("kbroker.no.such.logger", SET, "ERROR")])
        assert codes(FakeBroker(), ask(INCREMENTAL, 1, bad)) == [ErrorCode.INVALID_CONFIG]
        assert logger.level == logging.DEBUG
        gone = (LOGGER, "1", [(logger.name, DELETE, None)])
        assert codes(FakeBroker(), ask(INCREMENTAL, 1, gone)) == [0]
        assert logger.level == logging.NOTSET
    finally:
        logger.setLevel(logging.NOTSET)
