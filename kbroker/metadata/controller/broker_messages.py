"""Updates of the image and their answers as records of UpdateMetadata's table, and back.

The request has a head of fixed fields and a difference between images. A peer's bytes are not
trusted.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbroker.errors import ErrorCode
from kbroker.metadata.cluster_delta_codec import decode_delta, encode_delta
from kbroker.metadata.controller.image_updates import UPDATE_VERSION, ImageAnswer, ImageUpdate
from kbroker.protocol import messages
from kbroker.protocol.wire import Reader
from kbroker.types import TopicPartition


def encode_update(update: ImageUpdate) -> bytes:
    request = messages.update_metadata.Request(
        controller_id=update.controller_id,
        controller_epoch=update.controller_epoch,
        broker_epoch=update.broker_epoch,
        base=update.base,
        version=update.version,
        data=encode_delta(update.delta),
    )
    return request.encode(UPDATE_VERSION)


def update_of(request: messages.update_metadata.Request) -> ImageUpdate:
    """Raises ProtocolError."""
    return ImageUpdate(
        request.controller_id,
        request.controller_epoch,
        request.broker_epoch,
        request.base,
        request.version,
        decode_delta(request.data),
    )


def response_of(answer: ImageAnswer) -> messages.update_metadata.Response:
    return messages.update_metadata.Response(
        error_code=answer.error, offline=_names(answer.offline), refusing=_names(answer.refusing)
    )


def decode_answer(reader: Reader) -> ImageAnswer:
    """Raises ProtocolError."""
    response = messages.update_metadata.Response.read(reader, UPDATE_VERSION)
    return ImageAnswer(
        ErrorCode.for_code(response.error_code),
        _partitions(response.offline),
        _partitions(response.refusing),
    )


def _names(partitions: Sequence[TopicPartition]) -> list[messages.update_metadata.Name]:
    name = messages.update_metadata.Name
    return [name(topic=topic, partition=partition) for topic, partition in partitions]


def _partitions(names: Sequence[messages.update_metadata.Name]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(each.topic, each.partition) for each in names)
