"""Shared by the families about configurations: tables of changes, and reading the values back.

Apache Kafka answers a change before its broker follows it. So `overrides` makes one more change, to
a key that no case uses, and waits until that one shows: everything before it shows by then, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kbroker.types import ApiKey
from tests.parity.requests import build
from tests.parity.talk import Talk

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
MARKER: Final = "file.delete.delay.ms"
MARK: Final = "54321"

RETENTION: Final = "retention.ms"
POLICY: Final = "cleanup.policy"
THROTTLE: Final = "leader.replication.throttled.replicas"

Change = tuple[str, int, str | None]
Resource = tuple[int, str, Iterable[Change]]


def incremental(version: int, *resources: Resource, validate_only: bool = False) -> Any:
    return build(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        version,
        resources=[
            {
                "resource_type": kind,
                "resource_name": name,
                "configs": [
                    {"name": key, "config_operation": operation, "value": value}
                    for key, operation, value in changes
                ],
            }
            for kind, name, changes in resources
        ],
        validate_only=validate_only,
    )


def alter(version: int, *resources: Resource, validate_only: bool = False) -> Any:
    """The operations of the changes are left out: all that this API can do is to set."""
    return build(
        ApiKey.ALTER_CONFIGS,
        version,
        resources=[
            {
                "resource_type": kind,
                "resource_name": name,
                "configs": [{"name": key, "value": value} for key, _, value in changes],
            }
            for kind, name, changes in resources
        ],
        validate_only=validate_only,
    )


def describe(version: int, kind: int, name: str, keys: list[str] | None = None) -> Any:
    return build(
        ApiKey.DESCRIBE_CONFIGS,
        version,
        resources=[{"resource_type": kind, "resource_name": name, "configuration_keys": keys}],
        include_synonyms=True,
    )


def overrides(talk: Talk, *names: str) -> None:
    """Record the settings of their own that topics have now."""
    marks = [(TOPIC, name, [(MARKER, SET, MARK)]) for name in names]
    answer = talk.quietly(incremental(1, *marks))
    if any(response.error_code.value for response in answer.responses):
        raise AssertionError(f"no mark was set: {answer}")
    for name in names:
        talk.until(lambda name=name: own_settings(talk, name).get(MARKER) == MARK)
        settings = own_settings(talk, name)
        del settings[MARKER]
        talk.note(f"{name} has", settings)


def own_settings(talk: Talk, name: str) -> dict[str, str | None]:
    (result,) = talk.quietly(describe(4, TOPIC, name)).results
    return {c.name: c.value for c in result.configs if c.config_source == 1}


Table = Mapping[str, tuple[Mapping[str, str], list[Change]]]

# The cases of one key, in both APIs: settings before, and the request.
ONE_VALUE: Final[Mapping[str, Change]] = {
    f"{key} = {'a long text' if len(value) > 50 else repr(value)}": (key, SET, value)
    for key, value in (
        *(
            (RETENTION, text)
            for text in ("5", " 7 ", "+5", "-1", "-2", "", "x", "5L", "0x5", "1_0")
        ),
        *((RETENTION, text) for text in ("5.0", "9223372036854775807", "9223372036854775808")),
        *((POLICY, text) for text in ("", "compact", "delete,compact", "delete , compact")),
        *((POLICY, text) for text in ("delete,delete", ",", "delete,", "delete,,compact")),
        *((POLICY, text) for text in ("DELETE", "none")),
        *((THROTTLE, text) for text in ("", "*", "0:1", "0:1,1:1", "*,0:1", "none", "0: 1", "x")),
        *(("min.insync.replicas", text) for text in ("0", "1", "5")),
        *(("segment.bytes", text) for text in ("14", "1048575", "1048576", "2147483648")),
        *(("preallocate", text) for text in ("TRUE", " True ", "false", "yes", "1", "")),
        *(("compression.type", text) for text in ("gzip", " zstd ", "GZIP", "none", "")),
        ("compression.type", "uncompressed"),
        *(("message.timestamp.type", text) for text in ("LogAppendTime", "logappendtime", "")),
        *(("min.cleanable.dirty.ratio", text) for text in ("0", "1", ".25", "1e-1", "2", "-1", "")),
        *(("max.message.bytes", text) for text in ("-1", "0", "2147483647")),
        *(("compression.gzip.level", text) for text in ("0", "-1", "9", "10")),
        *(("compression.lz4.level", text) for text in ("0", "17", "18")),
        *(("compression.zstd.level", text) for text in ("0", "-131072", "-131073", "22", "23")),
        *(("local.retention.ms", text) for text in ("-2", "-3", "99")),
        *(("local.retention.bytes", text) for text in ("-2", "-3", "99")),
        *(("retention.bytes", text) for text in ("-2", "-1", "0")),
        *(("index.interval.bytes", text) for text in ("-1", "0")),
        *(("segment.index.bytes", text) for text in ("3", "4")),
        *(("segment.ms", text) for text in ("0", "1")),
        *(("segment.jitter.ms", text) for text in ("-1", "0")),
        *(("delete.retention.ms", text) for text in ("-1", "0")),
        *(("max.compaction.lag.ms", text) for text in ("0", "1")),
        *(("min.compaction.lag.ms", text) for text in ("-1", "0")),
        *(("flush.messages", text) for text in ("0", "1")),
        *(("flush.ms", text) for text in ("-1", "0")),
        *(("message.timestamp.before.max.ms", text) for text in ("-1", "0")),
        *(("message.timestamp.after.max.ms", text) for text in ("-1", "0")),
        *(("remote.storage.enable", text) for text in ("true", "false")),
        *(("remote.log.copy.disable", text) for text in ("true", "x")),
        ("remote.log.delete.on.disable", "true"),
        ("unclean.leader.election.enable", "true"),
        ("follower.replication.throttled.replicas", "1:2"),
        *((name, "1") for name in ("nope", "", "log.retention.ms", "message.format.version")),
        *((name, "1") for name in ("message.downconversion.enable", "internal.segment.bytes")),
        (THROTTLE, ",".join(f"{partition}:1" for partition in range(4_000))),
    )
}


def first_of_each_key(values: Mapping[str, Change]) -> dict[str, Change]:
    """Where a key's values were all asked elsewhere: whether this way knows the key."""
    labels = {key: label for label, (key, _, _) in reversed(list(values.items()))}
    return {label: values[label] for label in reversed(labels.values())}


# One resource that cannot be altered, or that is altered in one way only.
RESOURCES: Final[Mapping[str, Resource]] = {
    "no such topic": (TOPIC, "nope", [(RETENTION, SET, "5")]),
    "no such topic, no change": (TOPIC, "nope", []),
    "no such topic, bad value": (TOPIC, "nope", [(RETENTION, SET, "x")]),
    "no such topic, no such key": (TOPIC, "nope", [("zz", SET, "1")]),
    "no such topic, no value": (TOPIC, "nope", [(RETENTION, SET, None)]),
    "a topic's bad name": (TOPIC, "a b", [(RETENTION, SET, "5")]),
    "a topic's bad name, bad value": (TOPIC, "a b", [(RETENTION, SET, "x")]),
    "a topic's long name": (TOPIC, "a" * 250, [(RETENTION, SET, "5")]),
    "a topic's empty name": (TOPIC, "", [(RETENTION, SET, "5")]),
    "a topic's empty name, no change": (TOPIC, "", []),
    "an internal topic that is not there": (TOPIC, "__share_group_state", [(RETENTION, SET, "5")]),
    "the metadata log": (TOPIC, "__cluster_metadata", [(RETENTION, SET, "5")]),
    "another broker": (BROKER, "2", [("num.io.threads", SET, "9")]),
    "a broker that is no number": (BROKER, "x", [("num.io.threads", SET, "9")]),
    "a broker below zero": (BROKER, "-1", [("num.io.threads", SET, "9")]),
    "a broker beyond 32 bits": (BROKER, "99999999999", [("num.io.threads", SET, "9")]),
    "a broker's key that is read-only": (BROKER, "1", [("node.id", SET, "9")]),
    "a broker's bad value": (BROKER, "1", [("num.io.threads", SET, "x")]),
    "a broker's missing value": (BROKER, "1", [("num.io.threads", SET, None)]),
    "a broker's password": (BROKER, "1", [("ssl.key.password", SET, "x")]),
    "a key of one broker for all": (BROKER, "", [("listeners", SET, "x")]),
    "a broker's key twice": (BROKER, "1", [("num.io.threads", SET, "9")] * 2),
    "another node's loggers": (LOGGER, "2", [("root", SET, "INFO")]),
    "loggers of nobody": (LOGGER, "", [("root", SET, "INFO")]),
    "loggers of no number": (LOGGER, "x", [("root", SET, "INFO")]),
    "a logger's missing level": (LOGGER, "1", [("root", SET, None)]),
    "no change of loggers": (LOGGER, "1", []),
    "client metrics without a name": (METRICS, "", [("interval.ms", SET, "1000")]),
    "client metrics' unknown key": (METRICS, "m", [("nope", SET, "1")]),
    "client metrics' small interval": (METRICS, "m", [("interval.ms", SET, "1")]),
    "no change of client metrics": (METRICS, "m", []),
    "a group without a name": (GROUP, "", [("consumer.session.timeout.ms", SET, "50000")]),
    "no change of a group": (GROUP, "g", []),
    **{
        f"a resource of kind {kind}": (kind, "x", [(RETENTION, SET, "5")])
        for kind in (0, 1, 3, 5, 7, 9, 33, 64, 127, -1, -128)
    },
    # Apache Kafka can do these.
    "a broker's key": (BROKER, "1", [("num.io.threads", SET, "9")]),
    "a logger": (LOGGER, "1", [("root", SET, "INFO")]),
    "client metrics": (METRICS, "m", [("interval.ms", SET, "1000")]),
    "client metrics' bad interval": (METRICS, "m", [("interval.ms", SET, "x")]),
    "a group": (GROUP, "g", [("consumer.session.timeout.ms", SET, "50000")]),
    "a group's unknown key": (GROUP, "g", [("nope", SET, "1")]),
}
