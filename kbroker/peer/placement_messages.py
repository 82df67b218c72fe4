"""The messages of our client about where partitions are: reassignments and elections.

As `messages`, whose table of versions covers them: each field is spelled once for all versions, and
the tests hold both directions against the schema library. Pure functions, any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.messages import (
    error_code,
    read_by_topic,
    read_int32s,
    request_writer,
    write_by_topic,
)
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey, TopicPartition

PREFERRED_ELECTION: Final = 0
UNCLEAN_ELECTION: Final = 1


class PartitionResult(NamedTuple):
    partition: TopicPartition
    error: ErrorCode
    message: str | None


class ReassignedPartition(NamedTuple):
    """What is under way: `replicas` are all there are for the time being."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def encode_reassign(
    version: int, targets: Mapping[TopicPartition, Sequence[int] | None], *, timeout_ms: int
) -> bytes:
    """The brokers where each partition is to be, the preferred leader first; None: where it was."""
    writer = request_writer(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version)
    writer.int32(timeout_ms)
    if version >= 1:
        writer.boolean(True)  # partitions may get more or fewer replicas
    write_by_topic(writer, targets, lambda where: _write_nodes(writer, targets[where]))
    writer.tags()
    return writer.getvalue()


def decode_reassign(reader: Reader, version: int) -> list[PartitionResult]:
    """KafkaError for a request that was refused as a whole."""
    reader.int32()  # throttle time
    if version >= 1:
        reader.boolean()
    _check(reader)
    return _results(reader)


def encode_list_reassignments(version: int, *, timeout_ms: int) -> bytes:
    """Of all topics."""
    writer = request_writer(ApiKey.LIST_PARTITION_REASSIGNMENTS, version)
    writer.int32(timeout_ms)
    writer.array(None)
    writer.tags()
    return writer.getvalue()


def decode_list_reassignments(
    reader: Reader, version: int
) -> dict[TopicPartition, ReassignedPartition]:
    """KafkaError as `decode_reassign`."""
    reader.int32()  # throttle time
    _check(reader)

    def fields() -> ReassignedPartition:
        return ReassignedPartition(read_int32s(reader), read_int32s(reader), read_int32s(reader))

    return read_by_topic(reader, fields)


def encode_elect_leaders(
    version: int, kind: int, partitions: Iterable[TopicPartition] | None, *, timeout_ms: int
) -> bytes:
    """PREFERRED_ELECTION or UNCLEAN_ELECTION; None: of every partition that needs one."""
    writer = request_writer(ApiKey.ELECT_LEADERS, version)
    writer.int8(kind)
    if partitions is None:
        writer.array(None)
    else:
        write_by_topic(writer, partitions)
    writer.int32(timeout_ms)
    writer.tags()
    return writer.getvalue()


def decode_elect_leaders(reader: Reader, version: int) -> list[PartitionResult]:
    """KafkaError as `decode_reassign`."""
    reader.int32()  # throttle time
    _check(reader, with_message=False)
    return _results(reader)


def _results(reader: Reader) -> list[PartitionResult]:
    found = read_by_topic(reader, lambda: (error_code(reader.int16()), reader.nullable_string()))
    return [PartitionResult(where, *result) for where, result in found.items()]


def _check(reader: Reader, *, with_message: bool = True) -> None:
    error = error_code(reader.int16())
    message = reader.nullable_string() if with_message else None
    if error is not ErrorCode.NONE:
        raise KafkaError(error, message or "")


def _write_nodes(writer: Writer, nodes: Sequence[int] | None) -> None:
    writer.array(None if nodes is None else len(nodes))
    for node in nodes or ():
        writer.int32(node)
