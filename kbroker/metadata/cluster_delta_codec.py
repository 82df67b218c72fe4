"""A difference between images as bytes between brokers.

Place in the flow: the body of the controller's request to a broker, in the flexible encoding of
Kafka's protocol. Names and ids are written once for each topic, not for each partition. Bytes from
a peer are not trusted: what could be no image is a ProtocolError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from kbroker.metadata.acl_codec import changed_acls, tag_of_acls
from kbroker.metadata.cluster_delta import ClusterDelta
from kbroker.metadata.features import FinalizedFeatures, Supported
from kbroker.metadata.image import (
    INTERNAL_TOPICS,
    NO_ENVELOPE,
    NO_LEADER,
    BrokerEndpoint,
    BrokerImage,
    ConfigKind,
    ConfigResource,
    PartitionImage,
    TopicImage,
)
from kbroker.metadata.quota_codec import changed_quotas, tag_of_quotas
from kbroker.metadata.token_codec import changed_tokens, tag_of_tokens
from kbroker.metadata.topic_names import invalid_topic_name
from kbroker.protocol.wire import ProtocolError, Reader, Writer
from kbroker.quota.entities import QuotaEntity
from kbroker.security.acls import Pattern, ResourceAcls
from kbroker.security.delegation_token import DelegationToken

_KINDS: Final = frozenset(ConfigKind)
_LOSSY_TAG: Final = 0  # of a broker; without content
_ENVELOPE_TAG: Final = 1  # of a broker: the highest version of Envelope that it takes
_SUPPORTED_TAG: Final = 2  # of a broker: the levels of features that it supports
_FEATURES_TAG: Final = 0  # of the difference; an earlier kbroker ignores it
_USERS_TAG: Final = 1  # of the difference; the same
_ACLS_TAG: Final = 2  # of the difference; the same
_QUOTAS_TAG: Final = 3  # of the difference; the same
_TOKENS_TAG: Final = 4  # of the difference; the same
_MIN_IN_SYNC_TAG: Final = 0  # of a partition; a broker that does not know it goes by its own
_LAST_LEADER_TAG: Final = 1  # of a partition; an earlier kbroker ignores it


def encode_delta(delta: ClusterDelta) -> bytes:
    writer = Writer(flexible=True)
    writer.string(delta.cluster_id)
    writer.int32(delta.controller_id)
    writer.array(len(delta.brokers))
    for broker in delta.brokers:
        _write_broker(writer, broker)
    writer.array(len(delta.topics))
    for topic in delta.topics:
        writer.string(topic.name)
        writer.uuid(topic.topic_id)
        _write_partitions(writer, topic.partitions)
        _write_configs(writer, topic.configs)
        writer.tags()
    changed = [(name, list(some)) for name, some in groupby(delta.partitions, lambda p: p.topic)]
    writer.array(len(changed))
    for name, partitions in changed:
        writer.string(name)
        _write_partitions(writer, partitions)
        writer.tags()
    writer.array(len(delta.deleted))
    for topic_id in delta.deleted:
        writer.uuid(topic_id)
    writer.array(len(delta.configs))
    for resource, configs in delta.configs.items():
        writer.int8(resource.kind)
        writer.string(resource.name)
        _write_configs(writer, configs)
        writer.tags()
    tags = {**_tag_of_features(delta.features), **_tag_of_users(delta.users)}
    tags |= tag_of_acls(delta.acls, _ACLS_TAG)
    tags |= tag_of_tokens(delta.tokens, _TOKENS_TAG)
    writer.tags(tags | tag_of_quotas(delta.quotas, _QUOTAS_TAG))
    return writer.getvalue()


def decode_delta(data: bytes) -> ClusterDelta:
    """Raises ProtocolError."""
    reader = Reader(data, flexible=True)
    cluster_id, controller_id = reader.string(), reader.int32()
    brokers = tuple(_read_broker(reader) for _ in range(reader.array()))
    topics = tuple(_read_topic(reader) for _ in range(reader.array()))
    partitions: list[PartitionImage] = []
    for _ in range(reader.array()):
        partitions += _read_partitions(reader, _topic_name(reader))
        reader.tags()
    deleted = tuple(_topic_id(reader) for _ in range(reader.array()))
    configs: dict[ConfigResource, Mapping[str, str]] = {}
    for _ in range(reader.array()):
        resource = _read_resource(reader)
        configs[resource] = _read_configs(reader)
        reader.tags()
    features, users, acls, quotas, tokens = _read_tags(reader)
    return ClusterDelta(
        cluster_id,
        controller_id,
        brokers,
        topics,
        tuple(partitions),
        deleted,
        MappingProxyType(configs),
        features,
        MappingProxyType(users),
        acls,
        MappingProxyType(quotas),
        MappingProxyType(tokens),
    )


def _tag_of_features(features: FinalizedFeatures) -> dict[int, bytes]:
    """None of a cluster whose levels have never changed, as of an earlier kbroker."""
    if features == FinalizedFeatures():
        return {}
    writer = Writer(flexible=True)
    writer.int64(features.epoch)
    writer.array(len(features.levels))
    for name, level in features.levels.items():
        writer.string(name)
        writer.int16(level)
        writer.tags()
    return {_FEATURES_TAG: writer.getvalue()}


def _tag_of_users(users: Mapping[str, Mapping[str, str]]) -> dict[int, bytes]:
    if not users:
        return {}
    writer = Writer(flexible=True)
    writer.array(len(users))
    for name, settings in users.items():
        writer.string(name)
        _write_configs(writer, settings)
        writer.tags()
    return {_USERS_TAG: writer.getvalue()}


def _read_tags(
    reader: Reader,
) -> tuple[
    FinalizedFeatures,
    dict[str, Mapping[str, str]],
    Mapping[Pattern, ResourceAcls],
    dict[QuotaEntity, Mapping[str, str]],
    dict[str, DelegationToken | None],
]:
    """At the end of the difference."""
    features: list[FinalizedFeatures] = []
    users: dict[str, Mapping[str, str]] = {}
    acls: dict[Pattern, ResourceAcls] = {}
    quotas: dict[QuotaEntity, Mapping[str, str]] = {}
    tokens: dict[str, DelegationToken | None] = {}

    def read_features(tag: Reader) -> None:
        epoch, levels = _within(tag.int64(), 0, 2**63 - 1), {}
        for _ in range(tag.array()):
            name = tag.string()
            levels[name] = _within(tag.int16(), 1)
            tag.tags()
        features.append(FinalizedFeatures(epoch, MappingProxyType(levels)))

    def read_users(tag: Reader) -> None:
        for _ in range(tag.array()):
            name = tag.string()
            users[name] = _read_configs(tag)
            tag.tags()

    def read_acls(tag: Reader) -> None:
        acls.update(changed_acls(tag))

    def read_quotas(tag: Reader) -> None:
        quotas.update(changed_quotas(tag))

    reader.tags(
        {
            _FEATURES_TAG: read_features,
            _USERS_TAG: read_users,
            _ACLS_TAG: read_acls,
            _QUOTAS_TAG: read_quotas,
            _TOKENS_TAG: lambda tag: tokens.update(changed_tokens(tag)),
        }
    )
    return features[0] if features else FinalizedFeatures(), users, acls, quotas, tokens


def _write_broker(writer: Writer, broker: BrokerImage) -> None:
    writer.int32(broker.node_id)
    writer.string(broker.host)
    writer.int32(broker.port)
    writer.string(broker.rack)
    writer.int64(broker.epoch)
    writer.array(len(broker.endpoints))
    for endpoint in broker.endpoints:
        writer.string(endpoint.name)
        writer.string(endpoint.host)
        writer.int32(endpoint.port)
        writer.string(endpoint.protocol)
        writer.tags()
    tags = {_LOSSY_TAG: b""} if broker.lossy else {}
    if broker.envelope_version != NO_ENVELOPE:
        tags[_ENVELOPE_TAG] = broker.envelope_version.to_bytes(2, "big")
    if broker.features:
        tags[_SUPPORTED_TAG] = _supported(broker.features)
    writer.tags(tags)


def _supported(features: Sequence[Supported]) -> bytes:
    writer = Writer(flexible=True)
    writer.array(len(features))
    for name, lowest, highest in features:
        writer.string(name)
        writer.int16(lowest)
        writer.int16(highest)
        writer.tags()
    return writer.getvalue()


def _read_supported(reader: Reader) -> tuple[Supported, ...]:
    found = []
    for _ in range(reader.array()):
        found.append(Supported(reader.string(), reader.int16(), reader.int16()))
        reader.tags()
    return tuple(found)


def _read_endpoint(reader: Reader) -> BrokerEndpoint:
    name, host = reader.string(), reader.string()
    endpoint = BrokerEndpoint(name, host, _within(reader.int32(), 0, 65535), reader.string())
    reader.tags()
    return endpoint


def _read_broker(reader: Reader) -> BrokerImage:
    tagged: dict[str, Any] = {}
    broker = BrokerImage(
        _within(reader.int32(), 0),
        reader.string(),
        _within(reader.int32(), -1, 65535),
        reader.nullable_string(),
        reader.int64(),
        endpoints=tuple(_read_endpoint(reader) for _ in range(reader.array())),
    )
    reader.tags(
        {
            _LOSSY_TAG: lambda _: tagged.update(lossy=True),
            _SUPPORTED_TAG: lambda tag: tagged.update(features=_read_supported(tag)),
            _ENVELOPE_TAG: lambda tag: tagged.update(envelope_version=_within(tag.int16(), 0)),
        }
    )
    return replace(broker, **tagged) if tagged else broker


def _read_topic(reader: Reader) -> TopicImage:
    name, topic_id = _topic_name(reader), _topic_id(reader)
    partitions = tuple(_read_partitions(reader, name))
    if [each.index for each in partitions] != list(range(len(partitions))):
        raise ProtocolError(f"topic {name} lacks partitions")
    configs = MappingProxyType(_read_configs(reader))
    reader.tags()
    return TopicImage(name, topic_id, partitions, configs, name in INTERNAL_TOPICS)


def _write_partitions(writer: Writer, partitions: Sequence[PartitionImage]) -> None:
    writer.array(len(partitions))
    for partition in partitions:
        writer.int32(partition.index)
        writer.int32(partition.leader)
        writer.int32(partition.leader_epoch)
        writer.int32(partition.partition_epoch)
        for nodes in (
            partition.replicas,
            partition.isr,
            partition.eligible,
            partition.adding,
            partition.removing,
        ):
            _write_nodes(writer, nodes)
        writer.tags(_tags_of(partition))


def _tags_of(partition: PartitionImage) -> dict[int, bytes]:
    tags: dict[int, bytes] = {}
    if partition.min_in_sync:
        tags[_MIN_IN_SYNC_TAG] = _int32(partition.min_in_sync)
    if partition.last_leader != NO_LEADER:
        tags[_LAST_LEADER_TAG] = _int32(partition.last_leader)
    return tags


def _int32(number: int) -> bytes:
    writer = Writer(flexible=True)
    writer.int32(number)
    return writer.getvalue()


def _read_partitions(reader: Reader, topic: str) -> Iterable[PartitionImage]:
    for _ in range(reader.array()):
        index = _within(reader.int32(), 0)
        leader = _within(reader.int32(), NO_LEADER)
        leader_epoch = _within(reader.int32(), 0)
        partition_epoch = _within(reader.int32(), 0)
        replicas, isr, eligible, adding, removing = (_read_nodes(reader) for _ in range(5))
        min_in_sync, last = _read_partition_tags(reader)
        if not {*isr, *eligible, *adding, *removing, leader, last} <= {*replicas, NO_LEADER}:
            raise ProtocolError(f"{topic}-{index}: leader or in-sync replica is no replica")
        state = isr, leader, leader_epoch, partition_epoch, eligible
        yield PartitionImage(topic, index, replicas, *state, adding, removing, min_in_sync, last)


def _read_partition_tags(reader: Reader) -> tuple[int, int]:
    """min.insync.replicas and the last leader, where they are said."""
    found = {_MIN_IN_SYNC_TAG: 0, _LAST_LEADER_TAG: NO_LEADER}
    reader.tags({tag: partial(_note_int32, found, tag) for tag in found})
    return found[_MIN_IN_SYNC_TAG], found[_LAST_LEADER_TAG]


def _note_int32(found: dict[int, int], tag: int, reader: Reader) -> None:
    found[tag] = _within(reader.int32(), 0)


def _write_nodes(writer: Writer, nodes: Sequence[int]) -> None:
    writer.array(len(nodes))
    for node in nodes:
        writer.int32(node)


def _read_nodes(reader: Reader) -> tuple[int, ...]:
    return tuple(_within(reader.int32(), 0) for _ in range(reader.array()))


def _read_resource(reader: Reader) -> ConfigResource:
    kind = reader.int8()
    if kind not in _KINDS:
        raise ProtocolError(f"settings of a resource of type {kind}")
    return ConfigResource(ConfigKind(kind), reader.string())


def _write_configs(writer: Writer, configs: Mapping[str, str]) -> None:
    writer.array(len(configs))
    for key, value in configs.items():
        writer.string(key)
        writer.string(value)


def _read_configs(reader: Reader) -> dict[str, str]:
    return {reader.string(): reader.string() for _ in range(reader.array())}


def _topic_name(reader: Reader) -> str:
    name = reader.string()
    if invalid_topic_name(name) is not None:
        raise ProtocolError("a topic's name is none")
    return name


def _topic_id(reader: Reader) -> UUID:
    topic_id = reader.uuid()
    if topic_id is None:
        raise ProtocolError("a topic without an id")
    return topic_id


def _within(value: int, low: int, high: int = 2**31 - 1) -> int:
    if not low <= value <= high:
        raise ProtocolError(f"{value} is no number from {low} to {high}")
    return value
