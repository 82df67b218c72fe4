"""DescribeConfigs, every version: topics, this broker, its loggers, and what is refused."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.config import BROKER_KEYS, TOPIC_KEYS, BrokerConfig, ConfigEntry, describe_broker
from kbroker.errors import ErrorCode
from kbroker.handlers import configs
from kbroker.limits import REPEATED_ANSWER_BYTES_MAX as BYTES_AGAIN_MAX
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker, answer_of, part_of, request_of, written

VERSIONS = range(1, 5)
TOPIC, BROKER, LOGGER = 2, 4, 8
Resource = tuple[int, str, Sequence[str] | None]


def ask(
    version: int, *resources: Resource, synonyms: bool = False, documentation: bool = False
) -> Any:
    fields: dict[str, Any] = {"include_synonyms": synonyms}
    if version >= 3:
        fields["include_documentation"] = documentation
    return request_of(
        ApiKey.DESCRIBE_CONFIGS,
        version,
        resources=tuple(
            part_of(
                ApiKey.DESCRIBE_CONFIGS,
                version,
                "DescribeConfigsResource",
                resource_type=kind,
                resource_name=name,
                configuration_keys=None if keys is None else tuple(keys),
            )
            for kind, name, keys in resources
        ),
        **fields,
    )


def one(broker: FakeBroker, version: int, *resource: Any, **fields: Any) -> Any:
    (result,) = broker.call(ask(version, resource, **fields)).results
    assert (result.resource_type, result.resource_name) == resource[:2]
    return result


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("keys", [None, ()])
def test_a_topic_has_every_key_in_order(version: int, keys: Sequence[str] | None) -> None:
    broker = FakeBroker(overrides=["log.retention.bytes=123"])
    broker.create("t", retention_ms="77")
    result = one(broker, version, TOPIC, "t", keys)
    assert (result.error_code.value, result.error_message) == (0, "")
    assert [c.name for c in result.configs] == sorted(TOPIC_KEYS)
    configs = {c.name: c for c in result.configs}
    values = {n: (c.value, c.config_source) for n, c in configs.items()}
    assert values["retention.ms"] == ("77", 1)
    assert values["retention.bytes"] == ("123", 4)
    assert values["cleanup.policy"] == ("delete", 5)
    assert not any(c.read_only or c.is_sensitive or c.synonyms for c in result.configs)
    if version >= 3:
        assert configs["retention.ms"].config_type == 5
        assert configs["cleanup.policy"].config_type == 7
        assert configs["retention.ms"].documentation is None


@pytest.mark.parametrize("version", VERSIONS)
def test_synonyms_and_documentation_when_asked(version: int) -> None:
    broker = FakeBroker(overrides=["log.retention.ms=99"])
    broker.create("t", retention_ms="77")
    result = one(broker, version, TOPIC, "t", ["retention.ms"], synonyms=True, documentation=True)
    (config,) = result.configs
    synonyms = [(s.name, s.value, s.source) for s in config.synonyms]
    assert synonyms[:2] == [("retention.ms", "77", 1), ("log.retention.ms", "99", 4)]
    if version >= 3:
        assert config.documentation


@pytest.mark.parametrize("version", VERSIONS)
def test_only_the_keys_asked_and_none_that_do_not_exist(version: int) -> None:
    broker = FakeBroker()
    broker.create("t")
    result = one(broker, version, TOPIC, "t", ["retention.ms", "nope", "cleanup.policy"])
    assert [c.name for c in result.configs] == ["cleanup.policy", "retention.ms"]


@pytest.mark.parametrize("version", VERSIONS)
def test_this_broker(version: int) -> None:
    broker = FakeBroker(overrides=["num.io.threads=3"])
    configs = {c.name: c for c in one(broker, version, BROKER, "1", None, synonyms=True).configs}
    assert {n for n, key in BROKER_KEYS.items() if not key.internal} <= set(configs)
    threads = configs["num.io.threads"]
    assert (threads.value, threads.config_source, threads.read_only) == ("3", 4, False)
    assert [(s.value, s.source) for s in threads.synonyms] == [("3", 4), ("8", 5)]
    assert configs["ssl.key.password"].is_sensitive
    assert configs["ssl.key.password"].value is None
    assert configs["node.id"].read_only


@pytest.mark.parametrize("version", VERSIONS)
def test_the_clusters_dynamic_defaults_are_empty(version: int) -> None:
    result = one(FakeBroker(), version, BROKER, "", None)
    assert (result.error_code.value, result.configs) == (0, ())


@pytest.mark.parametrize("version", VERSIONS)
def test_loggers(version: int) -> None:
    logging.getLogger("kbroker.request").setLevel(logging.WARNING)
    try:
        configs = {c.name: c for c in one(FakeBroker(), version, LOGGER, "1", None).configs}
    finally:
        logging.getLogger("kbroker.request").setLevel(logging.NOTSET)
    assert configs["kbroker.request"].value == "WARN"
    assert configs["kbroker.request"].config_source == 6
    assert configs["root"].value in {"FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"}


@pytest.mark.parametrize("version", VERSIONS)
def test_groups_and_client_metrics_of_any_name(version: int) -> None:
    broker = FakeBroker()
    names = [c.name for c in one(broker, version, 32, "no-group", None).configs]
    assert len(names) == 24 and "consumer.session.timeout.ms" in names
    names = [c.name for c in one(broker, version, 16, "nothing", None).configs]
    assert names == ["interval.ms", "match", "metrics"]


@pytest.mark.parametrize("version", VERSIONS)
def test_names_as_long_as_they_can_be(version: int) -> None:
    longest = "x" * 32_767
    answer = FakeBroker().call(ask(version, *((kind, longest, None) for kind in (2, 4, 8))))
    assert [r.error_code.value for r in answer.results] == [17, 42, 42]
    assert all(len(r.error_message) < 2_000 for r in answer.results)


@pytest.mark.parametrize("name", ["1", "+1", "01"])
def test_a_broker_id_as_a_number_is_written(name: str) -> None:
    assert one(FakeBroker(), 4, BROKER, name, None).configs


# A running Apache Kafka 4.3.0 answers so.
REFUSALS = [
    (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
    (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
    (BROKER, "2", ErrorCode.INVALID_REQUEST),
    (BROKER, "x", ErrorCode.INVALID_REQUEST),
    (LOGGER, "2", ErrorCode.INVALID_REQUEST),
    (LOGGER, "", ErrorCode.INVALID_REQUEST),
    (16, "", ErrorCode.INVALID_REQUEST),
    (32, "", ErrorCode.INVALID_REQUEST),
    (BROKER, "-1", ErrorCode.INVALID_REQUEST),
    (BROKER, "99999999999", ErrorCode.INVALID_REQUEST),
]


@pytest.mark.parametrize("version", VERSIONS)
def test_each_resource_has_its_own_error_in_the_order_asked(version: int) -> None:
    broker = FakeBroker()
    broker.create("t")
    asked: list[Resource] = [(kind, name, None) for kind, name, _ in REFUSALS]
    answer = broker.call(ask(version, *asked, (TOPIC, "t", ["retention.ms"])))
    *refused, described = answer.results
    assert [(r.resource_type, r.resource_name, r.error_code.value) for r in refused] == REFUSALS
    assert all(r.error_message and r.configs == () for r in refused)
    assert [c.name for c in described.configs] == ["retention.ms"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", [0, 1, 3, 64, 99, -1])
def test_a_kind_that_does_not_exist_fails_the_whole_request(version: int, kind: int) -> None:
    broker = FakeBroker()
    broker.create("t")
    answer = broker.call(ask(version, (TOPIC, "t", None), (kind, "x", None)))
    assert [(r.resource_name, r.error_code.value, r.configs) for r in answer.results] == [
        ("t", ErrorCode.INVALID_REQUEST, ()),
        ("x", ErrorCode.INVALID_REQUEST, ()),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_with_the_same_overrides_are_described_alike(version: int) -> None:
    broker = FakeBroker()
    broker.create("a", "b", retention_ms="77")
    broker.create("c", retention_ms="78")
    answer = broker.call(ask(version, *((TOPIC, n, None) for n in ("a", "b", "c"))))
    a, b, c = (r.configs for r in answer.results)
    assert a == b != c
    narrow = broker.call(ask(version, (TOPIC, "a", None), (TOPIC, "b", ["retention.ms"])))
    assert [len(r.configs) for r in narrow.results] == [len(TOPIC_KEYS), 1]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unexpected_error_reaches_every_resource(version: int) -> None:
    broker = FakeBroker()
    broker.services.config = None  # type: ignore[assignment]
    answer = broker.call(ask(version, (BROKER, "1", None), (TOPIC, "t", ["a"])))
    assert [(r.resource_name, r.error_code.value, r.configs) for r in answer.results] == [
        ("1", ErrorCode.UNKNOWN_SERVER_ERROR, ()),
        ("t", ErrorCode.UNKNOWN_SERVER_ERROR, ()),
    ]


def test_a_resource_that_is_named_again_is_answered_again_within_bounds() -> None:
    # One name costs five bytes, what it asks for some ten thousand.
    broker = FakeBroker()
    twice = broker.call(ask(4, *[(BROKER, "1", None)] * 2)).results
    assert twice[0] == twice[1] and len(twice[0].configs) > 300
    request = broker.ask(ask(4, *[(BROKER, "1", None)] * 4_000))
    assert request.answer is not None
    assert len(request.answer) < BYTES_AGAIN_MAX + 500 * 4_000
    results = answer_of(request).results
    assert (results[0].error_code.value, results[-1].error_code.value) == (0, 42)
    assert "too often" in results[-1].error_message


@pytest.mark.parametrize("kind", [BROKER, LOGGER, 16, 32])
def test_other_names_of_the_same_are_answered_within_bounds(kind: int) -> None:
    # A group need not exist to be described, and a broker's number has any number of zeros.
    numbers = [f"{number:04}" for number in range(2_000)]
    names = ["0" * zeros + "1" for zeros in range(200)] if kind in (BROKER, LOGGER) else numbers
    asked = ask(4, *((kind, name, None) for name in names), synonyms=True, documentation=True)
    request = FakeBroker().ask(asked)
    assert request.answer is not None
    assert len(request.answer) < 3 * BYTES_AGAIN_MAX
    results = answer_of(request).results
    assert [bool(r.configs) for r in results[:2]] == [True, True]
    assert {r.error_code.value for r in results} <= {0, ErrorCode.INVALID_REQUEST}


def test_a_broker_is_looked_at_once_however_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def describe(config: BrokerConfig) -> list[ConfigEntry]:
        asked.append(config)
        return describe_broker(config)

    monkeypatch.setattr(configs, "describe_broker", describe)
    names = [(BROKER, "0" * zeros + "1", [f"key-{zeros}"]) for zeros in range(40)]
    results = FakeBroker().call(ask(4, *names)).results
    assert not any(r.error_code.value for r in results)
    assert len(asked) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_anywhere_closes_the_connection(version: int) -> None:
    body = written(ask(version, (TOPIC, "t", ["a", "b"]), (BROKER, "1", None)))
    for size in range(len(body)):
        request = FakeBroker().send(ApiKey.DESCRIBE_CONFIGS, version, body[:size])
        assert request.answer is None
        assert request.closed is not None


@settings(deadline=None)
@given(version=st.sampled_from(VERSIONS), body=st.binary(max_size=60))
def test_any_bytes_are_answered_or_closed(version: int, body: bytes) -> None:
    request = FakeBroker().send(ApiKey.DESCRIBE_CONFIGS, version, body)
    assert (request.answer is None) != (request.closed is None)
