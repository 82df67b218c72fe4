"""The settings of groups: their own where they have some, else the broker's.

Groups are given settings as resources (type 32), before or after they exist; they are checked
against the bounds of that moment (`dynamic.check_group`). Where a broker's bounds have been
narrowed since, the value is brought within them when it is used, and stays as it is stored, as in
Apache Kafka 4.3 (KIP-1240). What is stored may be of another version: a text that is no value
counts as none.

Pure functions; any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.config.key import InvalidValue, parse_value
from kbroker.config.keys_resources import GROUP_KEYS
from kbroker.errors import ConfigError

if TYPE_CHECKING:
    from kbroker.config.broker import BrokerConfig

CLASSIC: Final = "classic"
# Those of Apache Kafka by their names; classes of a user's own cannot be loaded here.
ASSIGNORS: Final = ("uniform", "range")
_SHARE_ASSIGNORS: Final = ("simple",)

_SESSION_TIMEOUT: Final = "group.consumer.session.timeout.ms"
_HEARTBEAT_INTERVAL: Final = "group.consumer.heartbeat.interval.ms"
# Broker keys: the default of groups, and the bounds of their own values.
_BOUNDED: Final = (
    (
        _SESSION_TIMEOUT,
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    ),
    (
        _HEARTBEAT_INTERVAL,
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
    (
        "group.consumer.assignment.interval.ms",
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
    ),
)

_SHARE_SESSION_TIMEOUT: Final = "group.share.session.timeout.ms"
_SHARE_HEARTBEAT_INTERVAL: Final = "group.share.heartbeat.interval.ms"
_OF_SHARE_GROUPS: Final = (
    (
        _SHARE_SESSION_TIMEOUT,
        "group.share.min.session.timeout.ms",
        "group.share.max.session.timeout.ms",
    ),
    (
        _SHARE_HEARTBEAT_INTERVAL,
        "group.share.min.heartbeat.interval.ms",
        "group.share.max.heartbeat.interval.ms",
    ),
    (
        "group.share.assignment.interval.ms",
        "group.share.min.assignment.interval.ms",
        "group.share.max.assignment.interval.ms",
    ),
)


_STREAMS_SESSION_TIMEOUT: Final = "group.streams.session.timeout.ms"
_STREAMS_HEARTBEAT_INTERVAL: Final = "group.streams.heartbeat.interval.ms"
_OF_STREAMS_GROUPS: Final = (
    (
        _STREAMS_SESSION_TIMEOUT,
        "group.streams.min.session.timeout.ms",
        "group.streams.max.session.timeout.ms",
    ),
    (
        _STREAMS_HEARTBEAT_INTERVAL,
        "group.streams.min.heartbeat.interval.ms",
        "group.streams.max.heartbeat.interval.ms",
    ),
    (
        "group.streams.assignment.interval.ms",
        "group.streams.min.assignment.interval.ms",
        "group.streams.max.assignment.interval.ms",
    ),
)
_STANDBYS: Final = "group.streams.num.standby.replicas"
_STANDBYS_MAX: Final = "group.streams.max.standby.replicas"
_FIRST_DELAY: Final = "group.streams.initial.rebalance.delay.ms"


class ConsumerGroupSettings(NamedTuple):
    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


class ShareMemberSettings(NamedTuple):
    """What a share group's coordinator follows; of one group, at this moment."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


def share_member_settings(config: BrokerConfig, own: Mapping[str, str]) -> ShareMemberSettings:
    """`own`: the settings that are stored for the group."""
    return ShareMemberSettings(*(_value(config, own, *keys) for keys in _OF_SHARE_GROUPS))


class StreamsSettings(NamedTuple):
    """What a streams group follows; at this moment."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    standby_replicas: int
    initial_rebalance_delay_ms: int


def streams_settings(config: BrokerConfig, own: Mapping[str, str]) -> StreamsSettings:
    """`own`: the settings that are stored for the group."""
    silence, pause, interval = (_value(config, own, *keys) for keys in _OF_STREAMS_GROUPS)
    return StreamsSettings(
        silence,
        pause,
        interval,
        _value(config, own, _STANDBYS, None, _STANDBYS_MAX),
        _value(config, own, _FIRST_DELAY, None, None),
    )


def consumer_group_settings(config: BrokerConfig, own: Mapping[str, str]) -> ConsumerGroupSettings:
    """`own`: what is stored for the group."""
    return ConsumerGroupSettings(*(_value(config, own, *keys) for keys in _BOUNDED))


def _value(
    config: BrokerConfig,
    own: Mapping[str, str],
    key: str,
    least: str | None,
    most: str | None,
) -> int:
    value: int = config[key]
    name = key.removeprefix("group.")
    text = own.get(name)
    if text is None:
        return value
    try:
        value = parse_value(GROUP_KEYS[name], text)
    except InvalidValue:
        return value
    if least is not None:
        value = max(value, config[least])
    return value if most is None else min(value, config[most])


def check_consumer_groups(config: BrokerConfig) -> None:
    """Whether the broker's settings for groups go together; ConfigError."""
    protocols = config["group.coordinator.rebalance.protocols"]
    if CLASSIC not in protocols:
        raise ConfigError(
            f"group.coordinator.rebalance.protocols={','.join(protocols)} leaves out classic",
            "add it: there is no coordinator without classic groups",
        )
    _check_assignors("group.consumer.assignors", config["group.consumer.assignors"], ASSIGNORS)
    _check_bounds(config, _BOUNDED)
    _check_silence(config, _SESSION_TIMEOUT, _HEARTBEAT_INTERVAL)


def check_share_members(config: BrokerConfig) -> None:
    """Whether the broker's settings for members of share groups go together; ConfigError."""
    _check_assignors("group.share.assignors", config["group.share.assignors"], _SHARE_ASSIGNORS)
    _check_bounds(config, _OF_SHARE_GROUPS)
    _check_silence(config, _SHARE_SESSION_TIMEOUT, _SHARE_HEARTBEAT_INTERVAL)


def check_streams_groups(config: BrokerConfig) -> None:
    """Whether the broker's settings for streams groups go together; ConfigError."""
    _check_bounds(config, _OF_STREAMS_GROUPS)
    _check_silence(config, _STREAMS_SESSION_TIMEOUT, _STREAMS_HEARTBEAT_INTERVAL)
    if config[_STANDBYS] > config[_STANDBYS_MAX]:
        raise ConfigError(
            f"{_STANDBYS}={config[_STANDBYS]} is more than {_STANDBYS_MAX}={config[_STANDBYS_MAX]}",
            "use less",
        )


def _check_assignors(key: str, names: tuple[str, ...], known: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ConfigError(
            f"{key}={','.join(names)} names {unknown[0] if unknown else 'none'}",
            f"use some of {', '.join(known)}",
        )


def _check_bounds(config: BrokerConfig, bounded: tuple[tuple[str, str, str], ...]) -> None:
    for key, least, most in bounded:
        if config[least] > config[most]:
            raise ConfigError(
                f"{least}={config[least]} is more than {most}={config[most]}", "lower the first"
            )
        if not config[least] <= config[key] <= config[most]:
            raise ConfigError(
                f"{key}={config[key]} is not between {least}={config[least]} and"
                f" {most}={config[most]}",
                "use a value between them",
            )


def _check_silence(config: BrokerConfig, timeout_key: str, interval_key: str) -> None:
    """A member that is silent for longer than the timeout is removed; it sends after each pause."""
    silence, pause = config[timeout_key], config[interval_key]
    if silence <= pause:
        raise ConfigError(
            f"{timeout_key}={silence} is not longer than {interval_key}={pause}", "use more"
        )
