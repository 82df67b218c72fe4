"""Settings of share groups for the leaders of partitions: a broker's, and a group's own."""

from __future__ import annotations

import pytest

from kbroker.config import BrokerConfig
from kbroker.config.dynamic import check_group
from kbroker.config.share_settings import (
    ShareGroupSettings,
    reset_age_ms,
    share_group_settings,
)
from kbroker.errors import ConfigError, ErrorCode, KafkaError

DEFAULTS = ShareGroupSettings(30_000, 5, 2_000, True, False, "latest")


def config(*overrides: str) -> BrokerConfig:
    return BrokerConfig.load(None, {}, [f"group.share.{each}" for each in overrides])


def test_a_group_without_settings_has_those_of_the_broker() -> None:
    assert share_group_settings(config(), {}) == DEFAULTS
    assert share_group_settings(config("delivery.count.limit=3"), {}).deliveries == 3


def test_its_own_settings_come_first() -> None:
    own = {
        "share.record.lock.duration.ms": "15000",
        "share.delivery.count.limit": "10",
        "share.partition.max.record.locks": "100",
        "share.renew.acknowledge.enable": "false",
        "share.isolation.level": "read_committed",
        "share.auto.offset.reset": "earliest",
        "share.session.timeout.ms": "46000",
    }
    expected = ShareGroupSettings(15_000, 10, 100, False, True, "earliest")
    assert share_group_settings(config(), own) == expected


@pytest.mark.parametrize(
    ("count", "ms", "short_ms"),
    [
        ("unless-short", None, 10_000),
        ("unless-short", "5", 5),
        ("unless-short", "60001", 10_000),
        ("always", "5", 0),
        ("never", "5", 0),
        (None, "5", 0),
    ],
)
def test_whether_short_sessions_count(count: str | None, ms: str | None, short_ms: int) -> None:
    own = {"kb.share.session.end.count": count, "kb.share.session.end.short.ms": ms}
    stored = {name: text for name, text in own.items() if text is not None}
    assert share_group_settings(config(), stored).short_ms == short_ms


def test_values_outside_of_later_bounds_are_brought_within_them() -> None:
    own = {"share.delivery.count.limit": "10"}
    assert share_group_settings(config("max.delivery.count.limit=7"), own).deliveries == 7


@pytest.mark.parametrize("text", ["", "soon", "99999999999999"])
def test_a_stored_text_that_is_no_value_counts_as_none(text: str) -> None:
    names = (
        "share.record.lock.duration.ms",
        "share.renew.acknowledge.enable",
        "share.isolation.level",
        "share.auto.offset.reset",
    )
    assert share_group_settings(config(), dict.fromkeys(names, text)) == DEFAULTS


@pytest.mark.parametrize(
    ("reset", "age_ms"),
    [
        ("latest", None),
        ("earliest", None),
        ("by_duration:P1DT2H3M4.5S", 93_784_500),
        ("by_duration:PT1S", 1_000),
        ("by_duration:pt0.0019s", 1),
        ("by_duration:P9999999999999999D", 2**62),
    ],
)
def test_ages(reset: str, age_ms: int | None) -> None:
    assert reset_age_ms(reset) == age_ms


@pytest.mark.parametrize(
    "overrides",
    [
        ("min.record.lock.duration.ms=20000", "record.lock.duration.ms=15000"),
        ("delivery.count.limit=9", "max.delivery.count.limit=8"),
        ("partition.max.record.locks=200", "min.partition.max.record.locks=300"),
    ],
)
def test_values_that_do_not_go_together(overrides: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        config(*overrides)


@pytest.mark.parametrize("text", ["", "dlq.orders", "dlq", "a" * 249])
def test_a_dead_letter_topic_of_a_group(text: str) -> None:
    own = {"errors.deadletterqueue.topic.name": text}
    check_group(config(), own)
    assert share_group_settings(config(), own).dead_letters == text


@pytest.mark.parametrize("text", ["__share_group_state", "..", "a b", "a/b", "a" * 250, "ä"])
def test_a_name_that_is_no_dead_letter_topic(text: str) -> None:
    own = {"errors.deadletterqueue.topic.name": text}
    with pytest.raises(KafkaError) as raised:
        check_group(config(), own)
    assert raised.value.code is ErrorCode.INVALID_CONFIG
    assert share_group_settings(config(), own) == DEFAULTS


def test_a_delay_after_a_release() -> None:
    own = {"kb.share.release.delay.ms": "100", "kb.share.release.delay.max.ms": "900"}
    assert share_group_settings(config(), own) == DEFAULTS._replace(delay_ms=100, delay_ms_max=900)


def test_times_of_records_are_heeded() -> None:
    own = {"kb.share.record.times.enable": "true"}
    assert share_group_settings(config(), own) == DEFAULTS._replace(heeds_times=True)


def test_whole_copies_are_wished_for() -> None:
    own = {"errors.deadletterqueue.copy.record.enable": "true"}
    assert share_group_settings(config(), own) == DEFAULTS._replace(copies_records=True)
