"""The messages our client speaks: requests to bytes, responses to small value classes.

Each API in the range of versions named in `versions.VERSIONS` (some are in `admin_messages`,
`config_messages`, `group_messages` and `member_messages`). The bytes are those of the tables in
`protocol/messages`, which handlers read and write as well; a command imports those it needs.

Responses come from a socket: what is no response of the version raises `ProtocolError`. Pure
functions, any thread.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.isolation import READ_UNCOMMITTED, AbortedTransaction
from kbroker.protocol import messages as tables
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.protocol.messages.metadata import (
        MetadataResponsePartition,
        MetadataResponseTopic,
    )
    from kbroker.protocol.messages.produce import PartitionResponse

# What ApiVersions says we are; a test compares it with the package's version, whose lookup would
# cost a command more than its answer does.
SOFTWARE_NAME: Final = "kbroker"
SOFTWARE_VERSION: Final = "0.1.0"

EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1
MAX_TIMESTAMP: Final = -3  # the record with the greatest one
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP: Final = -6
# The version of ListOffsets that has each of these words.
_LIST_OFFSETS_SINCE: Final = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}


class BrokerAddress(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


class PartitionMetadata(NamedTuple):
    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used here
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
    """-1 leaves a number to the broker's default. `assignment`: the brokers of each partition, in
    place of both numbers; empty: the broker's choice."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}
    assignment: Sequence[Sequence[int]] = ()


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
    last_stable_offset: int = -1


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


def by_topic(partitions: Iterable[TopicPartition]) -> ItemsView[str, list[TopicPartition]]:
    """Topics, each with its partitions, in the order of first appearance."""
    topics: dict[str, list[TopicPartition]] = {}
    for where in partitions:
        topics.setdefault(where[0], []).append(TopicPartition(*where))
    return topics.items()


def write_by_topic(
    writer: Writer,
    partitions: Iterable[TopicPartition],
    fields: Callable[[TopicPartition], object] | None = None,
) -> None:
    """The same for a body that is written by hand.

    `fields` writes what follows a partition's number; None where an index is all there is.
    """
    topics = by_topic(partitions)
    writer.array(len(topics))
    for topic, some in topics:
        writer.string(topic)
        writer.array(len(some))
        for where in some:
            writer.int32(where.partition)
            if fields is not None:
                fields(where)
                writer.tags()
        writer.tags()


# --- ApiVersions ----------------------------------------------------------------------------------


def encode_api_versions(version: int) -> bytes:
    request = tables.api_versions.Request(
        client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
    )
    return request.encode(version)


def decode_api_versions(reader: Reader, version: int) -> dict[int, tuple[int, int]]:
    """Key -> (lowest, highest). By hand: an error comes in the form of version 0, whatever was
    asked, so it is read before anything else."""
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
    table = tables.metadata
    names = None if topics is None else [table.MetadataRequestTopic(name=name) for name in topics]
    return table.Request(topics=names, allow_auto_topic_creation=auto_create).encode(version)


def decode_metadata(reader: Reader, version: int) -> ClusterMetadata:
    response = tables.metadata.Response.read(reader, version)
    return ClusterMetadata(
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
        brokers={
            each.node_id: BrokerAddress(each.node_id, each.host, each.port, each.rack)
            for each in response.brokers
        },
        topics={each.name or "": _topic_metadata(each) for each in response.topics},
    )


def _topic_metadata(topic: MetadataResponseTopic) -> TopicMetadata:
    return TopicMetadata(
        name=topic.name or "",
        error=error_code(topic.error_code),
        topic_id=topic.topic_id,
        internal=topic.is_internal,
        partitions=tuple([_partition_metadata(each) for each in topic.partitions]),
    )


def _partition_metadata(partition: MetadataResponsePartition) -> PartitionMetadata:
    return PartitionMetadata(
        index=partition.partition_index,
        error=error_code(partition.error_code),
        leader=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        replicas=tuple(partition.replica_nodes),
        isr=tuple(partition.isr_nodes),
        offline=tuple(partition.offline_replicas),
    )


# --- topics ---------------------------------------------------------------------------------------


def encode_create_topics(
    version: int, topics: Sequence[NewTopic], *, timeout_ms: int, validate_only: bool
) -> bytes:
    table = tables.create_topics
    created = [
        table.Topic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            assignments=[
                table.Assignment(partition_index=number, broker_ids=list(brokers))
                for number, brokers in enumerate(topic.assignment)
            ],
            configs=[table.Config(name=name, value=value) for name, value in topic.configs.items()],
        )
        for topic in topics
    ]
    request = table.Request(topics=created, timeout_ms=timeout_ms, validate_only=validate_only)
    return request.encode(version)


def decode_create_topics(reader: Reader, version: int) -> list[TopicResult]:
    return [
        TopicResult(each.name, error_code(each.error_code), each.error_message)
        for each in tables.create_topics.Response.read(reader, version).topics
    ]


def encode_delete_topics(version: int, names: Sequence[str], *, timeout_ms: int) -> bytes:
    request = tables.delete_topics.Request(topic_names=list(names), timeout_ms=timeout_ms)
    return request.encode(version)


def decode_delete_topics(reader: Reader, version: int) -> list[TopicResult]:
    return [
        TopicResult(each.name or "", error_code(each.error_code), each.error_message)
        for each in tables.delete_topics.Response.read(reader, version).responses
    ]


# --- producing ------------------------------------------------------------------------------------


def encode_init_producer_id(version: int) -> bytes:
    """An idempotent producer without transactions."""
    # The transaction's time-out is unused without a transactional id.
    request = tables.init_producer_id.Request(
        transactional_id=None, transaction_timeout_ms=2**31 - 1
    )
    return request.encode(version)


def decode_init_producer_id(reader: Reader, version: int) -> ProducerId:
    response = tables.init_producer_id.Response.read(reader, version)
    error = error_code(response.error_code)
    if error is not ErrorCode.NONE:
        raise KafkaError(error, "no producer id")
    return ProducerId(response.producer_id, response.producer_epoch)


def encode_produce(
    version: int, batches: Mapping[TopicPartition, bytes], *, acks: int, timeout_ms: int
) -> bytes:
    table = tables.produce
    topics = [
        table.TopicData(
            name=name,
            partition_data=[
                table.PartitionData(index=where.partition, records=batches[where]) for where in some
            ],
        )
        for name, some in by_topic(batches)
    ]
    return table.Request(acks=acks, timeout_ms=timeout_ms, topic_data=topics).encode(version)


def decode_produce(reader: Reader, version: int) -> dict[TopicPartition, ProduceResult]:
    return {
        TopicPartition(topic.name, each.index): ProduceResult(
            error_code(each.error_code),
            _produce_message(each),
            each.base_offset,
            each.log_append_time_ms,
        )
        for topic in tables.produce.Response.read(reader, version).responses
        for each in topic.partition_responses
    }


def _produce_message(partition: PartitionResponse) -> str | None:
    """The partition's, else that of the last batch which has one."""
    of_batches = [each.batch_index_error_message for each in reversed(partition.record_errors)]
    return next(filter(None, [partition.error_message, *of_batches]), None)


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
    table = tables.fetch
    topics = [
        table.FetchTopic(
            topic=name,
            partitions=[
                table.FetchPartition(
                    partition=where.partition,
                    fetch_offset=positions[where],
                    partition_max_bytes=partition_max_bytes,
                )
                for where in some
            ],
        )
        for name, some in by_topic(positions)
    ]
    request = table.Request(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=topics,
    )
    return request.encode(version)


def decode_fetch(reader: Reader, version: int) -> dict[TopicPartition, FetchResult]:
    response = tables.fetch.Response.read(reader, version)
    error = error_code(response.error_code)
    if error is not ErrorCode.NONE:
        raise KafkaError(error, "the broker refused the fetch")
    return {
        TopicPartition(topic.topic, each.partition_index): FetchResult(
            error_code(each.error_code),
            each.high_watermark,
            each.log_start_offset,
            each.records or b"",
            tuple(
                [
                    AbortedTransaction(aborted.producer_id, aborted.first_offset)
                    for aborted in each.aborted_transactions or ()
                ]
            ),
            each.last_stable_offset,
        )
        for topic in response.responses
        for each in topic.partitions
    }


def encode_list_offsets(
    version: int,
    timestamps: Mapping[TopicPartition, int],
    isolation: int = READ_UNCOMMITTED,
    *,
    timeout_ms: int = 0,
) -> bytes:
    """KafkaError: the broker is too old for one of the words. `timeout_ms`: how long a broker may
    look for a timestamp in remote storage."""
    table = tables.list_offsets
    for timestamp in timestamps.values():
        if version < _LIST_OFFSETS_SINCE.get(timestamp, 0):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"ListOffsets {version}: {timestamp}")
    topics = [
        table.ListOffsetsTopic(
            name=name,
            partitions=[
                table.ListOffsetsPartition(
                    partition_index=where.partition, timestamp=timestamps[where]
                )
                for where in some
            ],
        )
        for name, some in by_topic(timestamps)
    ]
    request = table.Request(
        replica_id=-1, isolation_level=isolation, topics=topics, timeout_ms=timeout_ms
    )
    return request.encode(version)


def decode_list_offsets(reader: Reader, version: int) -> dict[TopicPartition, OffsetResult]:
    return {
        TopicPartition(topic.name, each.partition_index): OffsetResult(
            error_code(each.error_code), each.timestamp, each.offset
        )
        for topic in tables.list_offsets.Response.read(reader, version).topics
        for each in topic.partitions
    }
