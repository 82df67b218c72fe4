"""The messages our client speaks: requests to bytes, responses to small value classes.

Each API in the range of versions named in `versions.VERSIONS` (some are in `admin_messages`,
`config_messages`, `group_messages` and `member_messages`). Each codec spells a field once for all
versions; `wire` knows the two encodings. The schema library is not used here, since a command must
answer before that library is imported; the tests hold every message against it.

Responses come from a socket: the Reader compares every length with what is left and raises
`ProtocolError`. Pure functions, any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.isolation import READ_UNCOMMITTED, AbortedTransaction
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey, TopicPartition

# What ApiVersions says we are; a test compares it with the package's version, whose lookup would
# cost a command more than its answer does.
SOFTWARE_NAME: Final = "kbroker"
SOFTWARE_VERSION: Final = "0.1.0"

T = TypeVar("T")

EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1


class BrokerAddress(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


class PartitionMetadata(NamedTuple):
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody misses here
    error: ErrorCode
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


class TopicMetadata(NamedTuple):
    name: str
    error: ErrorCode
    topic_id: UUID | None
    internal: bool
    partitions: tuple[PartitionMetadata, ...]


class ClusterMetadata(NamedTuple):
    cluster_id: str | None
    controller_id: int
    brokers: Mapping[int, BrokerAddress]
    topics: Mapping[str, TopicMetadata]


class NewTopic(NamedTuple):
    """-1 leaves a number to the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}


class TopicResult(NamedTuple):
    name: str
    error: ErrorCode
    message: str | None


class ProducerId(NamedTuple):
    producer_id: int
    epoch: int


class ProduceResult(NamedTuple):
    error: ErrorCode
    message: str | None
    base_offset: int
    log_append_time_ms: int


class FetchResult(NamedTuple):
    error: ErrorCode
    high_watermark: int
    log_start_offset: int
    records: bytes
    aborted: tuple[AbortedTransaction, ...] = ()  # where committed records alone were asked for


class Consumed(NamedTuple):
    """What one poll of a consumer found; `assigned` is set when partitions came anew."""

    fetched: Mapping[TopicPartition, FetchResult]
    assigned: list[TopicPartition] | None


class OffsetResult(NamedTuple):
    error: ErrorCode
    timestamp_ms: int
    offset: int


def error_code(number: int) -> ErrorCode:
    """The member for a number from the wire; a number of a later release is an unknown error."""
    return ErrorCode.for_code(number)


def request_writer(api_key: ApiKey, version: int) -> Writer:
    return Writer(flexible=is_flexible(api_key, version))


def read_int32s(reader: Reader) -> tuple[int, ...]:
    return tuple([reader.int32() for _ in range(reader.array())])


def write_by_topic(
    writer: Writer,
    partitions: Iterable[TopicPartition],
    fields: Callable[[TopicPartition], object] | None = None,
) -> None:
    """Topics, each with its partitions, in the order of first appearance.

    `fields` writes what follows a partition's number; None where an index is all there is.
    """
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    writer.array(len(topics))
    for topic, indexes in topics.items():
        writer.string(topic)
        writer.array(len(indexes))
        for index in indexes:
            writer.int32(index)
            if fields is not None:
                fields(TopicPartition(topic, index))
                writer.tags()
        writer.tags()


def read_by_topic(reader: Reader, fields: Callable[[], T]) -> dict[TopicPartition, T]:
    """The same in answers: `fields` reads what follows a partition's number, but for its tags."""
    results: dict[TopicPartition, T] = {}
    for _ in range(reader.array()):
        topic = reader.string()
        for _ in range(reader.array()):
            where = TopicPartition(topic, reader.int32())
            results[where] = fields()
            reader.tags()
        reader.tags()
    return results


# --- ApiVersions ----------------------------------------------------------------------------------


def encode_api_versions(version: int) -> bytes:
    writer = request_writer(ApiKey.API_VERSIONS, version)
    if version >= 3:
        writer.string(SOFTWARE_NAME)
        writer.string(SOFTWARE_VERSION)
        writer.tags()
    return writer.getvalue()


def decode_api_versions(reader: Reader, version: int) -> dict[int, tuple[int, int]]:
    """Key -> (lowest, highest). The error stands first in every version and form."""
    error = error_code(reader.int16())
    if error is not ErrorCode.NONE:
        raise KafkaError(error, "the broker refused ApiVersions")
    versions: dict[int, tuple[int, int]] = {}
    for _ in range(reader.array()):
        key = reader.int16()
        versions[key] = (reader.int16(), reader.int16())
        reader.tags()
    return versions


# --- Metadata -------------------------------------------------------------------------------------


def encode_metadata(version: int, topics: Sequence[str] | None, *, auto_create: bool) -> bytes:
    """`None` asks for every topic."""
    writer = request_writer(ApiKey.METADATA, version)
    writer.array(None if topics is None else len(topics))
    for name in topics or ():
        if version >= 10:
            writer.uuid(None)
        writer.string(name)
        writer.tags()
    writer.boolean(auto_create)
    if 8 <= version <= 10:
        writer.boolean(False)
    if version >= 8:
        writer.boolean(False)
    writer.tags()
    return writer.getvalue()


def decode_metadata(reader: Reader, version: int) -> ClusterMetadata:
    reader.int32()  # throttle time: the broker mutes the connection itself
    brokers: dict[int, BrokerAddress] = {}
    for _ in range(reader.array()):
        node_id = reader.int32()
        host, port = reader.string(), reader.int32()
        brokers[node_id] = BrokerAddress(node_id, host, port, reader.nullable_string())
        reader.tags()
    cluster_id = reader.nullable_string()
    controller_id = reader.int32()
    topics = [_decode_topic(reader, version) for _ in range(reader.array())]
    return ClusterMetadata(
        cluster_id=cluster_id,
        controller_id=controller_id,
        brokers=brokers,
        topics={topic.name: topic for topic in topics},
    )


def _decode_topic(reader: Reader, version: int) -> TopicMetadata:
    error = error_code(reader.int16())
    name = reader.nullable_string() or ""
    topic_id = reader.uuid() if version >= 10 else None
    internal = reader.boolean()
    partitions = tuple([_decode_partition(reader, version) for _ in range(reader.array())])
    if version >= 8:
        reader.int32()  # authorized operations
    reader.tags()
    return TopicMetadata(
        name=name, error=error, topic_id=topic_id, internal=internal, partitions=partitions
    )


def _decode_partition(reader: Reader, version: int) -> PartitionMetadata:
    error = error_code(reader.int16())
    index = reader.int32()
    leader = reader.int32()
    leader_epoch = reader.int32() if version >= 7 else -1
    replicas = read_int32s(reader)
    isr = read_int32s(reader)
    offline = read_int32s(reader) if version >= 5 else ()
    reader.tags()
    return PartitionMetadata(
        index=index,
        error=error,
        leader=leader,
        leader_epoch=leader_epoch,
        replicas=replicas,
        isr=isr,
        offline=offline,
    )


# --- topics ---------------------------------------------------------------------------------------


def encode_create_topics(
    version: int, topics: Sequence[NewTopic], *, timeout_ms: int, validate_only: bool
) -> bytes:
    writer = request_writer(ApiKey.CREATE_TOPICS, version)
    writer.array(len(topics))
    for topic in topics:
        writer.string(topic.name)
        writer.int32(topic.partitions)
        writer.int16(topic.replication_factor)
        writer.array(0)  # assignments: the broker's choice
        writer.array(len(topic.configs))
        for name, value in topic.configs.items():
            writer.string(name)
            writer.string(value)
            writer.tags()
        writer.tags()
    writer.int32(timeout_ms)
    writer.boolean(validate_only)
    writer.tags()
    return writer.getvalue()


def decode_create_topics(reader: Reader, version: int) -> list[TopicResult]:
    reader.int32()  # throttle time
    results: list[TopicResult] = []
    for _ in range(reader.array()):
        name = reader.string()
        if version >= 7:
            reader.uuid()
        error = error_code(reader.int16())
        results.append(TopicResult(name, error, reader.nullable_string()))
        if version >= 5:
            reader.int32()  # partitions
            reader.int16()  # replication factor
            for _ in range(reader.nullable_array() or 0):
                _skip_created_config(reader)
        reader.tags()
    return results


def _skip_created_config(reader: Reader) -> None:
    reader.string()
    reader.nullable_string()
    reader.boolean()
    reader.int8()
    reader.boolean()
    reader.tags()


def encode_delete_topics(version: int, names: Sequence[str], *, timeout_ms: int) -> bytes:
    writer = request_writer(ApiKey.DELETE_TOPICS, version)
    writer.array(len(names))
    for name in names:
        writer.string(name)
    writer.int32(timeout_ms)
    writer.tags()
    return writer.getvalue()


def decode_delete_topics(reader: Reader, version: int) -> list[TopicResult]:
    reader.int32()  # throttle time
    results: list[TopicResult] = []
    for _ in range(reader.array()):
        name = reader.string()
        error = error_code(reader.int16())
        message = reader.nullable_string() if version >= 5 else None
        results.append(TopicResult(name, error, message))
        reader.tags()
    return results


# --- producing ------------------------------------------------------------------------------------


def encode_init_producer_id(version: int) -> bytes:
    """An idempotent producer without transactions."""
    writer = request_writer(ApiKey.INIT_PRODUCER_ID, version)
    writer.string(None)
    writer.int32(2**31 - 1)  # transaction timeout, unused without a transactional id
    if version >= 3:
        writer.int64(-1)
        writer.int16(-1)
    writer.tags()
    return writer.getvalue()


def decode_init_producer_id(reader: Reader, version: int) -> ProducerId:
    reader.int32()  # throttle time
    error = error_code(reader.int16())
    if error is not ErrorCode.NONE:
        raise KafkaError(error, "no producer id")
    return ProducerId(reader.int64(), reader.int16())


def encode_produce(
    version: int, batches: Mapping[TopicPartition, bytes], *, acks: int, timeout_ms: int
) -> bytes:
    writer = request_writer(ApiKey.PRODUCE, version)
    writer.string(None)  # transactional id
    writer.int16(acks)
    writer.int32(timeout_ms)
    write_by_topic(writer, batches, lambda where: writer.bytes(batches[where]))
    writer.tags()
    return writer.getvalue()


def decode_produce(reader: Reader, version: int) -> dict[TopicPartition, ProduceResult]:
    def result() -> ProduceResult:
        error = error_code(reader.int16())
        base_offset = reader.int64()
        append_time_ms = reader.int64()
        if version >= 5:
            reader.int64()  # log start offset
        message = None
        if version >= 8:
            for _ in range(reader.array()):
                reader.int32()
                message = reader.nullable_string() or message
                reader.tags()
            message = reader.nullable_string() or message
        return ProduceResult(error, message, base_offset, append_time_ms)

    return read_by_topic(reader, result)


# --- fetching -------------------------------------------------------------------------------------


def encode_fetch(
    version: int,
    positions: Mapping[TopicPartition, int],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    partition_max_bytes: int,
    isolation: int = READ_UNCOMMITTED,
) -> bytes:
    """A full fetch outside of any session, as a consumer."""
    writer = request_writer(ApiKey.FETCH, version)
    writer.int32(-1)  # replica id
    writer.int32(max_wait_ms)
    writer.int32(min_bytes)
    writer.int32(max_bytes)
    writer.int8(isolation)
    if version >= 7:
        writer.int32(0)  # session id
        writer.int32(-1)  # session epoch: no session

    def position(where: TopicPartition) -> None:
        if version >= 9:
            writer.int32(-1)  # current leader epoch: unchecked
        writer.int64(positions[where])
        if version >= 12:
            writer.int32(-1)  # last fetched epoch: followers only
        if version >= 5:
            writer.int64(-1)  # log start offset: followers only
        writer.int32(partition_max_bytes)

    write_by_topic(writer, positions, position)
    if version >= 7:
        writer.array(0)  # forgotten topics
    if version >= 11:
        writer.string("")  # rack
    writer.tags()
    return writer.getvalue()


def decode_fetch(reader: Reader, version: int) -> dict[TopicPartition, FetchResult]:
    reader.int32()  # throttle time
    if version >= 7:
        error = error_code(reader.int16())
        reader.int32()  # session id
        if error is not ErrorCode.NONE:
            raise KafkaError(error, "the broker refused the fetch")
    return read_by_topic(reader, lambda: _decode_fetched(reader, version))


def _decode_fetched(reader: Reader, version: int) -> FetchResult:
    error = error_code(reader.int16())
    high_watermark = reader.int64()
    reader.int64()  # last stable offset
    log_start_offset = reader.int64() if version >= 5 else -1
    aborted = []
    for _ in range(reader.nullable_array() or 0):
        aborted.append(AbortedTransaction(reader.int64(), reader.int64()))
        reader.tags()
    if version >= 11:
        reader.int32()  # preferred read replica
    records = reader.nullable_bytes() or b""
    return FetchResult(error, high_watermark, log_start_offset, records, tuple(aborted))


def encode_list_offsets(
    version: int, timestamps: Mapping[TopicPartition, int], isolation: int = READ_UNCOMMITTED
) -> bytes:
    writer = request_writer(ApiKey.LIST_OFFSETS, version)
    writer.int32(-1)  # replica id
    if version >= 2:
        writer.int8(isolation)

    def timestamp(where: TopicPartition) -> None:
        if version >= 4:
            writer.int32(-1)  # current leader epoch: unchecked
        writer.int64(timestamps[where])

    write_by_topic(writer, timestamps, timestamp)
    writer.tags()
    return writer.getvalue()


def decode_list_offsets(reader: Reader, version: int) -> dict[TopicPartition, OffsetResult]:
    if version >= 2:
        reader.int32()  # throttle time

    def result() -> OffsetResult:
        found = OffsetResult(error_code(reader.int16()), reader.int64(), reader.int64())
        if version >= 4:
            reader.int32()  # leader epoch
        return found

    return read_by_topic(reader, result)
