"""The configuration of one topic: its own values over those of the broker.

A topic key's value is the topic's own, else the first of its broker keys that is set (see
`keys_topic.SYNONYMS`), else the default. `validate_topic_overrides` is what CreateTopics and the
config APIs ask before anything is stored; all trouble is a KafkaError INVALID_CONFIG with a
sentence for the person who typed the value.

Immutable; values are computed when asked for, since a broker may hold thousands of topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kbroker.config.broker import BrokerConfig
from kbroker.config.definition import TOPIC_KEYS, nearest_name
from kbroker.config.key import (
    LIST,
    LONG_MAX,
    ConfigSource,
    InvalidValue,
    format_value,
    parse_value,
)
from kbroker.config.keys_topic import SYNONYMS, Synonym
from kbroker.errors import ErrorCode, KafkaError


class TopicConfig:
    """The settings that hold for one topic."""

    __slots__ = ("_values", "broker", "overrides")

    def __init__(self, broker: BrokerConfig, overrides: Mapping[str, str] | None = None) -> None:
        self.broker: Final = broker
        self.overrides: Final[Mapping[str, str]] = dict(overrides or {})
        self._values: Final = validate_topic_overrides(self.overrides)

    def __getitem__(self, name: str) -> Any:
        if name in self._values:
            return self._values[name]
        chosen = broker_value(self.broker, name)
        if chosen is None:
            return TOPIC_KEYS[name].default
        return _converted(self.broker[chosen.broker_key], chosen.factor)

    def __contains__(self, name: object) -> bool:
        return name in TOPIC_KEYS

    def __repr__(self) -> str:
        return f"<TopicConfig {dict(self.overrides)}>"

    def source(self, name: str) -> ConfigSource:
        """Where the value of `name` comes from."""
        if name in self._values:
            return ConfigSource.DYNAMIC_TOPIC_CONFIG
        chosen = broker_value(self.broker, name)
        return (
            ConfigSource.DEFAULT_CONFIG if chosen is None else self.broker.source(chosen.broker_key)
        )


def broker_value(broker: BrokerConfig, name: str) -> Synonym | None:
    """The broker key that gives topic key `name` its value, or None for the plain default."""
    synonyms = SYNONYMS.get(name, ())
    for synonym in synonyms:
        if broker.source(synonym.broker_key) is not ConfigSource.DEFAULT_CONFIG:
            return synonym
    # The coarsest key carries the default: the finer ones are unset.
    return synonyms[-1] if synonyms else None


def _converted(value: Any, factor: int) -> Any:
    """`value` in the topic key's unit; negative values are markers (-1: no bound) and stay."""
    if factor == 1 or value < 0:
        return value
    return min(value * factor, LONG_MAX)


def validate_topic_overrides(overrides: Mapping[str, str | None]) -> dict[str, Any]:
    """The typed values of a topic's own settings; raises KafkaError INVALID_CONFIG."""
    values: dict[str, Any] = {}
    for name, text in overrides.items():
        key = TOPIC_KEYS.get(name)
        if key is None:
            near = nearest_name(name, TOPIC_KEYS)
            hint = f" (did you mean {near}?)" if near else ""
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"unknown topic config {name}{hint}")
        if text is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"topic config {name} has no value")
        try:
            values[name] = parse_value(key, text)
        except InvalidValue as error:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{name}={text!r} is not allowed: use {error.allowed}"
            ) from None
    _check_together(values)
    return values


def _check_together(values: Mapping[str, Any]) -> None:
    least, most = values.get("min.compaction.lag.ms", 0), values.get("max.compaction.lag.ms")
    if most is not None and least > most:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"min.compaction.lag.ms={least} is more than max.compaction.lag.ms={most}",
        )
    if values.get("remote.storage.enable"):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, "remote.storage.enable=true: there is no tiered storage here"
        )


def edit_topic_list(overrides: Mapping[str, str], name: str, parts: str, add: bool) -> str:
    """The value of a list key with parts added that it does not have, or with parts taken away.

    A topic without a value of its own begins with the key's default, as in Apache Kafka, whatever
    the brokers' files or the settings made at run time say. Parts are compared as they were
    written, blanks and all. The result is a text like any other: whether it is allowed is for
    `validate_topic_overrides` to say.
    """
    key = TOPIC_KEYS.get(name)
    if key is None or key.type is not LIST:
        verb = "APPEND" if add else "SUBTRACT"
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{verb} is for lists, and {name} is none")
    text = overrides.get(name)
    if text is None:
        text = format_value(key, key.default) or ""
    return edit_list(text, parts, add)


def edit_list(text: str, parts: str, add: bool) -> str:
    """A list's text with parts added that it does not have, or with parts taken away."""
    present = _split(text) if text else []
    for part in _split(parts):
        if add and part not in present:
            present.append(part)
        elif not add and part in present:
            present.remove(part)
    return ",".join(present)


def _split(text: str) -> list[str]:
    """The parts of a text between its commas; empty ones at the end do not count."""
    kept = text.rstrip(",")
    return kept.split(",") if kept or not text else []
