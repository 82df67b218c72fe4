"""The settings of a share group that the leaders of its partitions follow: its own where it has
some, else the broker's (KIP-932, KIP-1240).

A group's own value is brought within the broker's bounds of this moment when it is used, as in
Apache Kafka 4.3, and stays as it is stored. A stored text that is no value counts as none.

Pure functions; any thread.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.config.key import InvalidValue, parse_value
from kbroker.config.keys_resources import (
    ALWAYS,
    DEAD_LETTER_RECORDS,
    DEAD_LETTER_TOPIC,
    GROUP_KEYS,
)
from kbroker.errors import ConfigError

if TYPE_CHECKING:
    from kbroker.config.broker import BrokerConfig

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_BY_DURATION: Final = "by_duration:"
READ_COMMITTED: Final = "read_committed"

# Broker keys: the default of groups, and the bounds of their own values.
BOUNDED: Final = (
    (
        "group.share.record.lock.duration.ms",
        "group.share.min.record.lock.duration.ms",
        "group.share.max.record.lock.duration.ms",
    ),
    (
        "group.share.delivery.count.limit",
        "group.share.min.delivery.count.limit",
        "group.share.max.delivery.count.limit",
    ),
    (
        "group.share.partition.max.record.locks",
        "group.share.min.partition.max.record.locks",
        "group.share.max.partition.max.record.locks",
    ),
)

_AGE: Final = re.compile(
    r"P(?:(?P<days>\d{1,15})D)?"
    r"(?:T(?:(?P<hours>\d{1,15})H)?(?:(?P<minutes>\d{1,15})M)?"
    r"(?:(?P<seconds>\d{1,15})(?:[.,](?P<part>\d+))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_LONG_MS: Final = 2**62
_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


class ShareGroupSettings(NamedTuple):
    """Of one share group, at this moment."""

    lock_ms: int
    deliveries: int
    window: int  # offsets of a share-partition that are in flight at once
    renews: bool
    is_committed: bool  # it does not read records of open and aborted transactions
    reset: str  # EARLIEST, LATEST or by_duration:
    # The end of a session so soon after a record was acquired does not count; 0: each one counts.
    short_ms: int = 0
    dead_letters: str = ""  # the topic for copies of records that were given up; empty: none
    copies_records: bool = False  # a copy has the record's key, value and headers
    # Before a record is delivered again; the second is for many deliveries.
    delay_ms: int = 0
    delay_ms_max: int = 300_000
    heeds_times: bool = False  # kb-deliver-at and kb-expires-at in headers of records


def share_group_settings(config: BrokerConfig, own: Mapping[str, str]) -> ShareGroupSettings:
    """`own`: what is stored for the group."""
    lock_ms, deliveries, window = (_bounded(config, own, *keys) for keys in BOUNDED)
    counts_all = _own(own, "kb.share.session.end.count") == ALWAYS
    return ShareGroupSettings(
        lock_ms,
        deliveries,
        window,
        _own(own, "share.renew.acknowledge.enable"),
        _own(own, "share.isolation.level") == READ_COMMITTED,
        _own(own, "share.auto.offset.reset"),
        0 if counts_all else _own(own, "kb.share.session.end.short.ms"),
        _own(own, DEAD_LETTER_TOPIC),
        _own(own, DEAD_LETTER_RECORDS),
        _own(own, "kb.share.release.delay.ms"),
        _own(own, "kb.share.release.delay.max.ms"),
        _own(own, "kb.share.record.times.enable"),
    )


def reset_age_ms(reset: str) -> int | None:
    """How far back a group begins that resets `by_duration`; None for the other resets."""
    if not reset.startswith(_BY_DURATION):
        return None
    found = _AGE.fullmatch(reset.removeprefix(_BY_DURATION))
    if found is None:  # longer than any log is old
        return _LONG_MS
    age_ms = sum(int(found[name] or 0) * each for name, each in _MS.items())
    return age_ms + int((found["part"] or "0").ljust(3, "0")[:3])


def _own(own: Mapping[str, str], name: str) -> Any:
    key, text = GROUP_KEYS[name], own.get(name)
    if text is not None:
        try:
            return parse_value(key, text)
        except InvalidValue:
            pass
    return key.default


def _bounded(config: BrokerConfig, own: Mapping[str, str], key: str, least: str, most: str) -> int:
    value: int = config[key]
    text = own.get(key.removeprefix("group."))
    if text is None:
        return value
    try:
        value = parse_value(GROUP_KEYS[key.removeprefix("group.")], text)
    except InvalidValue:
        return value
    low: int = config[least]
    high: int = config[most]
    return min(max(value, low), high)


def check_share_groups(config: BrokerConfig) -> None:
    """Whether the broker's settings for share-partitions go together; ConfigError."""
    for key, least, most in BOUNDED:
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
