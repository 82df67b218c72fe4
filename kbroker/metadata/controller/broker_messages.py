"""What brokers of a cluster say to each other about metadata, as bytes.

The request has UpdateMetadata's API key (`image_updates.py`); headers as of its flexible versions.
The body is a head of fixed fields and a difference between images. A peer's bytes are not trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kbroker.errors import ErrorCode
from kbroker.metadata.cluster_delta_codec import decode_delta, encode_delta
from kbroker.metadata.controller.image_updates import ImageAnswer, ImageUpdate
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import TopicPartition

# Of an answer; a controller that does not know it has no other broker lead them.
_REFUSING_TAG: Final = 0


def encode_update(update: ImageUpdate) -> bytes:
    writer = Writer(flexible=True)
    writer.int32(update.controller_id)
    writer.int32(update.controller_epoch)
    writer.int64(update.broker_epoch)
    writer.int64(update.base)
    writer.int64(update.version)
    writer.raw(encode_delta(update.delta))
    return writer.getvalue()


def decode_update(body: bytes) -> ImageUpdate:
    """Raises ProtocolError."""
    reader = Reader(body, flexible=True)
    return ImageUpdate(
        reader.int32(),
        reader.int32(),
        reader.int64(),
        reader.int64(),
        reader.int64(),
        decode_delta(reader.raw(reader.left)),
    )


def encode_answer(answer: ImageAnswer) -> bytes:
    writer = Writer(flexible=True)
    writer.int16(answer.error)
    _encode_names(writer, answer.offline)
    refusing = Writer(flexible=True)
    _encode_names(refusing, answer.refusing)
    writer.tags({_REFUSING_TAG: refusing.getvalue()} if answer.refusing else {})
    return writer.getvalue()


def decode_answer(reader: Reader) -> ImageAnswer:
    """Raises ProtocolError."""
    error, offline = ErrorCode.for_code(reader.int16()), _decode_names(reader)
    refusing: list[TopicPartition] = []
    reader.tags({_REFUSING_TAG: lambda tag: refusing.extend(_decode_names(tag))})
    return ImageAnswer(error, offline, tuple(refusing))


def _encode_names(writer: Writer, names: Sequence[TopicPartition]) -> None:
    writer.array(len(names))
    for topic, partition in names:
        writer.string(topic)
        writer.int32(partition)


def _decode_names(reader: Reader) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(reader.string(), reader.int32()) for _ in range(reader.array()))
