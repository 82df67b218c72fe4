"""The messages of our client about settings and disks, as DescribeConfigs and DescribeLogDirs.

As `messages`, whose table of versions covers them: each field is spelled once for all versions, and
the tests hold both directions against the schema library. Pure functions, any thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.messages import TopicResult, error_code, read_by_topic, request_writer
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey, TopicPartition

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
LOGGER_RESOURCE: Final = 8
_SET: Final = 0
_DELETE: Final = 1
UNKNOWN_BYTES: Final = -1


class Resource(NamedTuple):
    """What has settings. A broker without a name is all of them: the cluster-wide values."""

    kind: int
    name: str


class ConfigSynonym(NamedTuple):
    """A value that would hold if those before it were gone."""

    name: str
    value: str | None
    source: int


class ConfigValue(NamedTuple):
    """One key. `kind` is Kafka's number of its type, 0 where the broker is too old to say."""

    name: str
    value: str | None
    read_only: bool
    source: int
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()
    kind: int = 0
    documentation: str | None = None


class LogSize(NamedTuple):
    """One partition in a data directory."""

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    future: bool


class LogDirectory(NamedTuple):
    """One data directory of a broker; the volume's bytes are -1 where the broker is too old."""

    error: ErrorCode
    path: str
    logs: list[LogSize]
    total_bytes: int
    usable_bytes: int


def encode_describe_configs(
    version: int, resource: Resource, keys: Sequence[str] | None = None, *, details: bool = False
) -> bytes:
    """Every key where `keys` is None; `details` asks for synonyms and documentation."""
    writer = request_writer(ApiKey.DESCRIBE_CONFIGS, version)
    writer.array(1)
    writer.int8(resource.kind)
    writer.string(resource.name)
    writer.array(None if keys is None else len(keys))
    for key in keys or ():
        writer.string(key)
    writer.tags()
    writer.boolean(details)
    if version >= 3:
        writer.boolean(details)
    writer.tags()
    return writer.getvalue()


def decode_describe_configs(reader: Reader, version: int) -> list[ConfigValue]:
    """The entries of the one resource that was asked for; its error is raised."""
    reader.int32()  # throttle time
    entries: list[ConfigValue] = []
    for _ in range(reader.array()):
        error = error_code(reader.int16())
        message = reader.nullable_string()
        reader.int8()
        name = reader.string()
        if error is not ErrorCode.NONE:
            raise KafkaError(error, message or f"the configuration of {name}")
        entries += [_decode_config(reader, version) for _ in range(reader.array())]
        reader.tags()
    return entries


def _decode_config(reader: Reader, version: int) -> ConfigValue:
    name = reader.string()
    value = reader.nullable_string()
    read_only = reader.boolean()
    source = reader.int8()
    sensitive = reader.boolean()
    synonyms = tuple([_decode_synonym(reader) for _ in range(reader.array())])
    kind = reader.int8() if version >= 3 else 0
    documentation = reader.nullable_string() if version >= 3 else None
    reader.tags()
    return ConfigValue(name, value, read_only, source, sensitive, synonyms, kind, documentation)


def _decode_synonym(reader: Reader) -> ConfigSynonym:
    synonym = ConfigSynonym(reader.string(), reader.nullable_string(), reader.int8())
    reader.tags()
    return synonym


def encode_alter_configs(
    version: int,
    resources: Sequence[Resource],
    values: Mapping[str, str],
    unset: Sequence[str],
    *,
    validate_only: bool,
) -> bytes:
    """The same change for every resource."""
    writer = request_writer(ApiKey.INCREMENTAL_ALTER_CONFIGS, version)
    writer.array(len(resources))
    for resource in resources:
        writer.int8(resource.kind)
        writer.string(resource.name)
        writer.array(len(values) + len(unset))
        for key, value in values.items():
            _write_change(writer, key, _SET, value)
        for key in unset:
            _write_change(writer, key, _DELETE, None)
        writer.tags()
    writer.boolean(validate_only)
    writer.tags()
    return writer.getvalue()


def _write_change(writer: Writer, key: str, operation: int, value: str | None) -> None:
    writer.string(key)
    writer.int8(operation)
    writer.string(value)
    writer.tags()


def decode_alter_configs(reader: Reader, version: int) -> list[TopicResult]:
    reader.int32()  # throttle time
    results: list[TopicResult] = []
    for _ in range(reader.array()):
        error = error_code(reader.int16())
        message = reader.nullable_string()
        reader.int8()
        results.append(TopicResult(reader.string(), error, message))
        reader.tags()
    return results


def encode_describe_log_dirs(version: int) -> bytes:
    """Every partition."""
    writer = request_writer(ApiKey.DESCRIBE_LOG_DIRS, version)
    writer.array(None)
    writer.tags()
    return writer.getvalue()


def decode_describe_log_dirs(reader: Reader, version: int) -> list[LogDirectory]:
    reader.int32()  # throttle time
    if version >= 3:
        error = error_code(reader.int16())
        if error is not ErrorCode.NONE:
            raise KafkaError(error, "the broker refused to tell of its directories")
    directories = [_decode_directory(reader, version) for _ in range(reader.array())]
    reader.tags()
    return directories


def _decode_directory(reader: Reader, version: int) -> LogDirectory:
    error = error_code(reader.int16())
    path = reader.string()
    logs: list[LogSize] = []
    for _ in range(reader.array()):
        topic = reader.string()
        for _ in range(reader.array()):
            where = TopicPartition(topic, reader.int32())
            logs.append(LogSize(where, reader.int64(), reader.int64(), reader.boolean()))
            reader.tags()
        reader.tags()
    total_bytes = usable_bytes = UNKNOWN_BYTES
    if version >= 4:
        total_bytes, usable_bytes = reader.int64(), reader.int64()
    if version >= 5:
        reader.boolean()  # cordoned
    reader.tags()
    return LogDirectory(error, path, logs, total_bytes, usable_bytes)


def encode_alter_log_dirs(version: int, partitions: Sequence[TopicPartition], path: str) -> bytes:
    """All of them into one data directory."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    writer = request_writer(ApiKey.ALTER_REPLICA_LOG_DIRS, version)
    writer.array(1)
    writer.string(path)
    writer.array(len(by_topic))
    for topic, indexes in by_topic.items():
        writer.string(topic)
        writer.array(len(indexes))
        for index in indexes:
            writer.int32(index)
        writer.tags()
    writer.tags()
    writer.tags()
    return writer.getvalue()


def decode_alter_log_dirs(reader: Reader, version: int) -> dict[TopicPartition, ErrorCode]:
    reader.int32()  # throttle time
    return read_by_topic(reader, lambda: error_code(reader.int16()))
