"""Settings of consumer groups: a broker's, and a group's own within the broker's bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from kbroker.config import BrokerConfig
from kbroker.config.dynamic import EVERY_BROKER, check_broker, check_group
from kbroker.config.group_settings import ConsumerGroupSettings, consumer_group_settings
from kbroker.coordinator.group.group_settings import GroupSettings
from kbroker.errors import ConfigError, ErrorCode, KafkaError
from kbroker.metadata.image import ClusterImage, ConfigKind, ConfigResource

DEFAULTS: Final = ConsumerGroupSettings(45_000, 5_000, 1_000)


def config(*overrides: str) -> BrokerConfig:
    return BrokerConfig.load(None, {}, [f"group.consumer.{each}" for each in overrides])


def test_a_group_without_settings_has_those_of_the_broker() -> None:
    assert consumer_group_settings(config(), {}) == DEFAULTS
    assert consumer_group_settings(config("heartbeat.interval.ms=7000"), {}) == (
        DEFAULTS._replace(heartbeat_interval_ms=7_000)
    )


def test_its_own_settings_come_first() -> None:
    own = {
        "consumer.session.timeout.ms": "50000",
        "consumer.heartbeat.interval.ms": "6000",
        "consumer.assignment.interval.ms": "0",
        "share.session.timeout.ms": "46000",
    }
    assert consumer_group_settings(config(), own) == ConsumerGroupSettings(50_000, 6_000, 0)


@pytest.mark.parametrize(
    ("text", "used"), [("59000", 50_000), ("46000", 46_500), ("48000", 48_000)]
)
def test_values_outside_of_later_bounds_are_brought_within_them(text: str, used: int) -> None:
    own = {"consumer.session.timeout.ms": text}
    check_group(config(), own)
    narrow = config("max.session.timeout.ms=50000", "min.session.timeout.ms=46500",
                    "session.timeout.ms=47000")  # fmt: skip
    assert consumer_group_settings(narrow, own).session_timeout_ms == used


def test_a_stored_text_that_is_no_value_counts_as_none() -> None:
    for text in ("soon", "", "99999999999"):
        own = {"consumer.session.timeout.ms": text}
        assert consumer_group_settings(config(), own) == DEFAULTS


def test_a_change_holds_at_once() -> None:
    images = [ClusterImage(1, "c", 1)]
    settings = GroupSettings(config, lambda: images[-1])
    assert settings.consumer("g") == DEFAULTS
    resource = ConfigResource(ConfigKind.GROUP, "g")
    own: Mapping[str, str] = {"consumer.heartbeat.interval.ms": "9000"}
    images.append(images[-1].with_configs({resource: own}))
    assert settings.consumer("g").heartbeat_interval_ms == 9_000
    assert settings.consumer("h") == DEFAULTS


@pytest.mark.parametrize(
    ("own", "overrides"),
    [
        ({"consumer.session.timeout.ms": "44999"}, ()),
        ({"consumer.session.timeout.ms": "60001"}, ()),
        ({"consumer.heartbeat.interval.ms": "4999"}, ()),
        ({"consumer.assignment.interval.ms": "15001"}, ()),
        ({"consumer.session.timeout.ms": "x"}, ()),
        ({"consumer.size": "1"}, ()),
        ({"kb.share.session.end.count": "never"}, ()),
        ({"kb.share.session.end.short.ms": "0"}, ()),
        ({"kb.share.session.end.short.ms": "60001"}, ()),
        (
            {"consumer.session.timeout.ms": "7000", "consumer.heartbeat.interval.ms": "7000"},
            ("min.session.timeout.ms=1000",),
        ),
        # The broker's own pause is longer than the group's silence.
        ({"consumer.session.timeout.ms": "4000"}, ("min.session.timeout.ms=1000",)),
    ],
)
def test_settings_that_a_group_may_not_have(
    own: dict[str, str], overrides: tuple[str, ...]
) -> None:
    with pytest.raises(KafkaError) as raised:
        check_group(config(*overrides), own)
    assert raised.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("group.coordinator.rebalance.protocols=consumer", "leaves out classic"),
        ("group.consumer.assignors=uniform,mine", "names mine"),
        ("group.consumer.assignors=", "names none"),
        ("group.consumer.session.timeout.ms=1000", "is not between"),
        ("group.consumer.heartbeat.interval.ms=15001", "is not between"),
        ("group.consumer.assignment.interval.ms=15001", "is not between"),
        ("group.consumer.min.heartbeat.interval.ms=16000", "is more than"),
        ("group.share.assignors=simple,mine", "names mine"),
        ("group.share.session.timeout.ms=1000", "is not between"),
        ("group.share.assignment.interval.ms=15001", "is not between"),
        ("group.share.min.heartbeat.interval.ms=16000", "is more than"),
    ],
)
def test_settings_that_do_not_go_together_end_the_start(override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        BrokerConfig.load(None, {}, [override])


def test_a_silence_no_longer_than_the_pause() -> None:
    with pytest.raises(ConfigError, match="is not longer than"):
        config("session.timeout.ms=5000", "min.session.timeout.ms=1000")


def test_at_run_time_the_same_holds() -> None:
    wanted = {"group.consumer.assignment.interval.ms": "15001"}
    with pytest.raises(KafkaError, match="is not between") as raised:
        check_broker(config(), EVERY_BROKER, wanted)
    assert raised.value.code is ErrorCode.INVALID_REQUEST
