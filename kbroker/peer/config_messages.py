"""The messages of our client about settings and disks, as DescribeConfigs and DescribeLogDirs.

As `messages`: records of the tables to values and back. Pure functions, any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.messages import TopicResult, by_topic, error_code
from kbroker.protocol import messages as tables
from kbroker.protocol.wire import Reader
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.protocol.messages.describe_configs import DescribeConfigsResourceResult
    from kbroker.protocol.messages.describe_log_dirs import DescribeLogDirsResult

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
LOGGER_RESOURCE: Final = 8
METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32
# Kafka's ConfigSource, in words.
_SOURCES: Final = {
    1: "topic",
    2: "broker, at run time",
    3: "all brokers, at run time",
    4: "broker",
    5: "default",
    6: "logger",
    7: "client metrics",
    8: "group",
}
TOPIC_SOURCE: Final = 1
_SET: Final = 0
_DELETE: Final = 1


def source_name(source: int) -> str:
    """Where a value comes from, for people."""
    return _SOURCES.get(source, str(source))


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
    table = tables.describe_configs
    asked = table.DescribeConfigsResource(
        resource_type=resource.kind,
        resource_name=resource.name,
        configuration_keys=None if keys is None else list(keys),
    )
    request = table.Request(
        resources=[asked], include_synonyms=details, include_documentation=details
    )
    return request.encode(version)


def decode_describe_configs(reader: Reader, version: int) -> list[ConfigValue]:
    """The entries of the one resource that was asked for; its error is raised."""
    entries: list[ConfigValue] = []
    for result in tables.describe_configs.Response.read(reader, version).results:
        error = error_code(result.error_code)
        if error is not ErrorCode.NONE:
            name = result.resource_name
            raise KafkaError(error, result.error_message or f"the configuration of {name}")
        entries += [_config_value(each) for each in result.configs]
    return entries


def _config_value(each: DescribeConfigsResourceResult) -> ConfigValue:
    return ConfigValue(
        each.name,
        each.value,
        each.read_only,
        each.config_source,
        each.is_sensitive,
        tuple([ConfigSynonym(of.name, of.value, of.source) for of in each.synonyms]),
        each.config_type,
        each.documentation,
    )


def encode_alter_configs(
    version: int,
    resources: Sequence[Resource],
    values: Mapping[str, str],
    unset: Sequence[str],
    *,
    validate_only: bool,
) -> bytes:
    """The same change for every resource."""
    table = tables.incremental_alter_configs
    changes = [
        table.AlterableConfig(name=key, config_operation=_SET, value=value)
        for key, value in values.items()
    ]
    changes += [
        table.AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in unset
    ]
    changed = [
        table.AlterConfigsResource(
            resource_type=resource.kind, resource_name=resource.name, configs=changes
        )
        for resource in resources
    ]
    return table.Request(resources=changed, validate_only=validate_only).encode(version)


def decode_alter_configs(reader: Reader, version: int) -> list[TopicResult]:
    response = tables.incremental_alter_configs.Response.read(reader, version)
    return [
        TopicResult(each.resource_name, error_code(each.error_code), each.error_message)
        for each in response.responses
    ]


def encode_list_config_resources(version: int, kind: int) -> bytes:
    """KafkaError: the broker is too old to list others than of client metrics."""
    if version == 0 and kind != METRICS_RESOURCE:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"ListConfigResources 0: kind {kind}")
    request = tables.list_config_resources.Request(resource_types=[kind] if version else [])
    return request.encode(version)


def decode_list_config_resources(reader: Reader, version: int) -> list[str]:
    response = tables.list_config_resources.Response.read(reader, version)
    error = error_code(response.error_code)
    if error is not ErrorCode.NONE:
        raise KafkaError(error)
    return [each.resource_name for each in response.config_resources]


def encode_describe_log_dirs(
    version: int, partitions: Iterable[TopicPartition] | None = None
) -> bytes:
    """Every partition, or those that are named."""
    table = tables.describe_log_dirs
    topics = None
    if partitions is not None:
        topics = [
            table.DescribableLogDirTopic(topic=name, partitions=[each.partition for each in some])
            for name, some in by_topic(partitions)
        ]
    return table.Request(topics=topics).encode(version)


def decode_describe_log_dirs(reader: Reader, version: int) -> list[LogDirectory]:
    response = tables.describe_log_dirs.Response.read(reader, version)
    error = error_code(response.error_code)
    if error is not ErrorCode.NONE:
        raise KafkaError(error, "the broker refused to tell of its directories")
    return [_log_directory(each) for each in response.results]


def _log_directory(found: DescribeLogDirsResult) -> LogDirectory:
    logs = [
        LogSize(
            TopicPartition(topic.name, each.partition_index),
            each.partition_size,
            each.offset_lag,
            each.is_future_key,
        )
        for topic in found.topics
        for each in topic.partitions
    ]
    error = error_code(found.error_code)
    return LogDirectory(error, found.log_dir, logs, found.total_bytes, found.usable_bytes)


def encode_alter_log_dirs(version: int, partitions: Sequence[TopicPartition], path: str) -> bytes:
    """All of them into one data directory."""
    table = tables.alter_replica_log_dirs
    topics = [
        table.AlterReplicaLogDirTopic(name=name, partitions=[each.partition for each in some])
        for name, some in by_topic(partitions)
    ]
    return table.Request(dirs=[table.AlterReplicaLogDir(path=path, topics=topics)]).encode(version)


def decode_alter_log_dirs(reader: Reader, version: int) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.topic_name, each.partition_index): error_code(each.error_code)
        for topic in tables.alter_replica_log_dirs.Response.read(reader, version).results
        for each in topic.partitions
    }
