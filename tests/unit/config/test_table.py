"""The table of keys against Apache Kafka 4.3.0's own, and against itself.

The vector holds names, types, defaults, ranges and update modes as a running 4.3.0 reports them.
Every place where ours differs on purpose is listed here or carries its `kafka` default.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from kbroker.config.absent_features import ABSENT, QUORUM
from kbroker.config.definition import (
    BROKER_KEYS,
    REMOVED_KEYS,
    TOPIC_KEYS,
    find_broker_key,
    nearest_name,
)
from kbroker.config.key import SAME, ConfigKey, InvalidValue, format_value, parse_value
from kbroker.config.keys_topic import SYNONYMS
from tests.support.source_tree import source_files

VECTOR = Path(__file__).parents[2] / "vectors" / "kafka_4_3_0_config.tsv"
UNSET = "\\N"

# Known to Apache Kafka as dynamic values only, without a row in its own table.
DYNAMIC_ONLY = {
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}
# Apache Kafka sets no range; values outside ours make no sense.
TIGHTER = {
    "default.replication.factor",
    "log.roll.jitter.ms",
    "log.roll.ms",
    "replica.selector.class",  # any class on its path; here there are none but its own
    "socket.send.buffer.bytes",
    "socket.receive.buffer.bytes",
}


class Row(NamedTuple):
    """One line of the vector."""

    table: str
    name: str
    type: str
    default: str
    range: str
    internal: str
    dynamic: str


def _rows() -> list[Row]:
    lines = VECTOR.read_text().splitlines()
    return [Row(*line.split("\t")) for line in lines if not line.startswith("#")]


ROWS = [row for row in _rows() if not row.name.startswith("internal.segment")]


def _key(row: Row) -> ConfigKey:
    return (BROKER_KEYS if row.table == "broker" else TOPIC_KEYS)[row.name]


def test_every_key_of_apache_kafka_is_known() -> None:
    ours = {("broker", name) for name, key in BROKER_KEYS.items() if not key.own}
    ours |= {("topic", name) for name, key in TOPIC_KEYS.items() if not key.own}
    theirs = {(row.table, row.name) for row in ROWS}
    assert theirs - ours == set()
    assert ours - theirs == {("broker", name) for name in DYNAMIC_ONLY}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.table}-{row.name}")
def test_row_agrees_with_apache_kafka(row: Row) -> None:
    key = _key(row)
    assert key.type.name == row.type
    assert key.internal == (row.internal == "true")
    if row.table == "broker":
        assert key.dynamic.value == row.dynamic
    _compare_default(key, row)
    if row.name not in TIGHTER:
        _compare_range(key, row)


def _compare_default(key: ConfigKey, row: Row) -> None:
    kafka = format_value(key, key.default) if key.kafka is SAME else key.kafka
    default = UNSET if kafka is None else kafka
    if row.type == "DOUBLE":
        assert float(default) == float(row.default)
    elif row.default == "<none>":  # required there; here it has a default or may be unset
        assert key.kafka is None or key.default is None
    else:
        assert default == row.default


def _compare_range(key: ConfigKey, row: Row) -> None:
    bounds = re.fullmatch(r"\[(-?[\d.]+?),\.\.\.(?:,(-?[\d.]+))?\](?: or (-?\d+))?", row.range)
    if bounds:
        low, high, also = bounds.groups()
        assert key.low == float(low)
        assert key.high == (None if high is None else float(high))
        assert key.also == (() if also is None else (int(also),))
    elif "[" in row.range:
        choices = re.findall(r"[\w-]+", row.range.split("[")[1])
        assert set(key.choices) == set(choices)
        assert key.ignore_case == row.range.startswith("(case insensitive)")
    else:
        assert key.low is None and key.high is None and not key.choices


@pytest.mark.parametrize("key", [*BROKER_KEYS.values(), *TOPIC_KEYS.values()], ids=lambda k: k.name)
def test_default_is_a_value_of_its_own_key(key: ConfigKey) -> None:
    if key.default is None:
        return
    text = format_value(key, key.default)
    assert text is not None
    assert parse_value(key, text) == key.default


@pytest.mark.parametrize("key", [*BROKER_KEYS.values(), *TOPIC_KEYS.values()], ids=lambda k: k.name)
def test_help_is_a_sentence(key: ConfigKey) -> None:
    assert key.help[0].isupper() or key.help.startswith(("min.insync", "SO_"))
    assert key.help.endswith(".")
    assert "  " not in key.help


def test_synonyms_are_broker_keys() -> None:
    for topic_key, synonyms in SYNONYMS.items():
        assert topic_key in TOPIC_KEYS
        for synonym in synonyms:
            assert synonym.broker_key in BROKER_KEYS


def test_support_of_a_topic_key_follows_its_broker_key() -> None:
    for topic_key, synonyms in SYNONYMS.items():
        expected = any(BROKER_KEYS[synonym.broker_key].supported for synonym in synonyms)
        assert TOPIC_KEYS[topic_key].supported == expected, topic_key


# Keys without an effect whose names stand in the code, and what for.
READ_WITHOUT_EFFECT = {
    "remote.storage.enable": "true is refused",
    **{each.key: "what asks for more than there is is refused" for each in ABSENT},
    **dict.fromkeys(QUORUM, "a node of a quorum of several is refused"),
}
# For consoles: DescribeConfigs has it, nothing here reads it.
ONLY_DESCRIBED = {"inter.broker.protocol.version"}


def test_supported_keys_are_read_and_keys_that_are_read_are_supported() -> None:
    """By name, in the code outside of the tables: documents say "no effect yet" of the others."""
    tables = ("keys_", "documents.py", "dynamic.py")
    code = "".join(
        path.read_text(encoding="utf-8")
        for path in source_files("kbroker", suffixes=(".py", ".pyx"))
        if not (path.parent.name == "config" and path.name.startswith(tables))
    )
    read = {name for name in {**BROKER_KEYS, **TOPIC_KEYS} if f'"{name}"' in code}
    by_synonym = {
        synonym.broker_key
        for topic_key, synonyms in SYNONYMS.items()
        if topic_key in read
        for synonym in synonyms
    }
    supported = {key.name for key in (*BROKER_KEYS.values(), *TOPIC_KEYS.values()) if key.supported}
    assert supported - read - by_synonym == ONLY_DESCRIBED
    assert read - supported == READ_WITHOUT_EFFECT.keys()


def test_removed_keys_are_not_in_the_table() -> None:
    assert not set(REMOVED_KEYS) & set(BROKER_KEYS)


def test_a_listener_prefix_leads_to_its_key() -> None:
    def governing(name: str) -> str | None:
        key = find_broker_key(name)
        return None if key is None else key.name

    assert governing("listener.name.internal.ssl.keystore.location") == "ssl.keystore.location"
    assert governing("listener.name.x.plain.sasl.jaas.config") == "sasl.jaas.config"
    assert governing("listener.name.x.no.such.key") is None
    assert governing("no.such.key") is None


def test_nearest_name() -> None:
    assert nearest_name("num.io.thread", BROKER_KEYS) == "num.io.threads"
    assert nearest_name("qqqqqqqq", BROKER_KEYS) is None


def _parse(name: str, text: str) -> object:
    return parse_value(BROKER_KEYS[name], text)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("num.io.threads", " 8 ", 8),
        ("num.io.threads", "+8", 8),
        ("log.flush.interval.messages", "9223372036854775807", 2**63 - 1),
        ("auto.create.topics.enable", "TRUE", True),
        ("auto.create.topics.enable", "false", False),
        ("log.cleaner.min.cleanable.ratio", "1e-1", 0.1),
        ("log.cleanup.policy", "compact, delete", ("compact", "delete")),
        ("log.cleanup.policy", "", ()),
        ("compression.gzip.level", "-1", -1),
        ("socket.send.buffer.bytes", "-1", -1),
        ("group.consumer.migration.policy", "Upgrade", "Upgrade"),
        ("ssl.keystore.password", " blank kept ", " blank kept "),
        ("max.connections.per.ip.overrides", "10.0.0.7:5,::1:9", "10.0.0.7:5,::1:9"),
    ],
)
def test_values(name: str, text: str, value: object) -> None:
    assert _parse(name, text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("num.io.threads", "0"),
        ("num.io.threads", ""),
        ("num.io.threads", "8.0"),
        ("num.io.threads", "1_000"),
        ("num.io.threads", "0x10"),
        ("num.io.threads", "٣"),
        ("num.io.threads", "2147483648"),
        ("num.io.threads", "9" * 5000),
        ("log.flush.interval.messages", "9223372036854775808"),
        ("offsets.topic.replication.factor", "32768"),
        ("auto.create.topics.enable", "yes"),
        ("auto.create.topics.enable", "1"),
        ("log.cleaner.min.cleanable.ratio", "nan"),
        ("log.cleaner.min.cleanable.ratio", "inf"),
        ("log.cleaner.min.cleanable.ratio", "1.5"),
        ("log.cleanup.policy", "compact,,delete"),
        ("log.cleanup.policy", "compact,,delete"),
        ("log.cleanup.policy", "keep"),
        ("log.message.timestamp.type", "createtime"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("socket.send.buffer.bytes", "0"),
        ("max.connections.per.ip.overrides", "10.0.0.7"),
        ("max.connections.per.ip.overrides", "10.0.0.7:-1"),
    ],
)
def test_bad_values(name: str, text: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        _parse(name, text)
    assert caught.value.allowed


def test_doubles_are_written_as_java_writes_them() -> None:
    key = BROKER_KEYS["log.cleaner.io.max.bytes.per.second"]
    assert format_value(key, key.default) == "1.7976931348623157E308"
    assert format_value(key, 0.5) == "0.5"
    assert format_value(key, 1e-7) == "1.0E-7"
