"""TopicConfig: a topic's own values, then the broker's, and refused ones."""

from __future__ import annotations

import pytest

from kbroker.config import (
    BrokerConfig,
    ConfigSource,
    TopicConfig,
    edit_topic_list,
    validate_topic_overrides,
)
from kbroker.errors import ErrorCode, KafkaError


def _topic(*broker: str, **own: str) -> TopicConfig:
    overrides = {name.replace("_", "."): text for name, text in own.items()}
    return TopicConfig(BrokerConfig.load(overrides=broker), overrides)


def test_defaults_of_apache_kafka() -> None:
    topic = _topic()
    assert topic["retention.ms"] == 604_800_000
    assert topic["segment.ms"] == 604_800_000
    assert topic["segment.jitter.ms"] == 0
    assert topic["segment.bytes"] == 1_073_741_824
    assert topic["flush.ms"] == 2**63 - 1
    assert topic["cleanup.policy"] == ("delete",)
    assert topic["max.message.bytes"] == 1_048_588
    assert topic["remote.storage.enable"] is False
    assert topic.source("retention.ms") is ConfigSource.DEFAULT_CONFIG


def test_own_value_beats_the_brokers() -> None:
    topic = _topic("message.max.bytes=1000", max_message_bytes="2000")
    assert topic["max.message.bytes"] == 2000
    assert topic.source("max.message.bytes") is ConfigSource.DYNAMIC_TOPIC_CONFIG
    topic = _topic("message.max.bytes=1000")
    assert topic["max.message.bytes"] == 1000
    assert topic.source("max.message.bytes") is ConfigSource.STATIC_BROKER_CONFIG


@pytest.mark.parametrize(
    ("broker", "retention_ms"),
    [
        (["log.retention.hours=2"], 7_200_000),
        (["log.retention.hours=2", "log.retention.minutes=3"], 180_000),
        (["log.retention.hours=2", "log.retention.minutes=3", "log.retention.ms=4"], 4),
        (["log.retention.hours=-1"], -1),
        (["log.retention.ms=-1"], -1),
    ],
)
def test_the_finest_broker_key_that_is_set_wins(broker: list[str], retention_ms: int) -> None:
    assert _topic(*broker)["retention.ms"] == retention_ms


def test_hours_become_milliseconds_for_rolling_too() -> None:
    topic = _topic("log.roll.hours=1", "log.roll.jitter.hours=2")
    assert topic["segment.ms"] == 3_600_000
    assert topic["segment.jitter.ms"] == 7_200_000
    assert _topic("log.flush.scheduler.interval.ms=5")["flush.ms"] == 5


def test_retention_in_hours_does_not_overflow_the_wire() -> None:
    assert _topic("log.roll.hours=2147483647")["segment.ms"] == 2_147_483_647 * 3_600_000


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"retention.msx": "1"}, "did you mean retention.ms"),
        ({"qqq": "1"}, "unknown topic config qqq"),
        ({"num.io.threads": "1"}, "unknown topic config"),
        ({"retention.ms": "-2"}, "at least -1"),
        ({"retention.ms": "soon"}, "retention.ms='soon'"),
        ({"segment.bytes": "1000"}, "at least 1048576"),
        ({"retention.ms": None}, "has no value"),
        ({"cleanup.policy": "keep"}, "compact, delete"),
        ({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, "is more than"),
        ({"remote.storage.enable": "true"}, "no tiered storage"),
        ({"leader.replication.throttled.replicas": "1-2"}, "partition:broker"),
    ],
)
def test_refused(overrides: dict[str, str | None], reason: str) -> None:
    with pytest.raises(KafkaError) as caught:
        validate_topic_overrides(overrides)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert reason in caught.value.message


def test_throttled_replicas() -> None:
    name = "leader.replication.throttled.replicas"
    assert validate_topic_overrides({name: "*"}) == {name: ("*",)}
    assert validate_topic_overrides({name: "0:1,1:2"}) == {name: ("0:1", "1:2")}


@pytest.mark.parametrize("repeated", ["delete,delete", "delete , compact,delete"])
def test_a_part_that_is_repeated_counts_once(repeated: str) -> None:
    values = validate_topic_overrides({"cleanup.policy": repeated})
    assert len(set(values["cleanup.policy"])) == len(values["cleanup.policy"])


def test_no_name_is_looked_for_near_a_very_long_one() -> None:
    with pytest.raises(KafkaError) as caught:
        validate_topic_overrides({"retention.ms" + "x" * 30_000: "1"})
    assert "did you mean" not in caught.value.message


def test_lists_are_edited_from_the_default_on() -> None:
    assert edit_topic_list({}, "cleanup.policy", "compact", True) == "delete,compact"
    assert edit_topic_list({}, "cleanup.policy", "delete", True) == "delete"
    assert edit_topic_list({}, "cleanup.policy", "delete", False) == ""
    assert edit_topic_list({}, "cleanup.policy", "compact", False) == "delete"
    own = {"leader.replication.throttled.replicas": "0:1,1:1,0:1"}
    edited = edit_topic_list(own, "leader.replication.throttled.replicas", "0:1", False)
    assert edited == "1:1,0:1"
    with pytest.raises(KafkaError, match="APPEND is for lists"):
        edit_topic_list({}, "retention.ms", "5", True)
