"""The cold half of Produce: batches that C cannot check or store alone.

The hot path sends a whole request here, before anything of it is written, when one of its batches
is compressed with a codec for which this machine has no system library, or when its topic wants
another codec than the producer's (`compression.type`). Each batch is unpacked with the bundled
codecs, bounded in memory; its uncompressed twin goes back with the request for C to walk every
record, and, for another codec, the re-packed batch to be stored. Appends, their order and the
answer stay the hot path's own.

A batch that does not unpack is INVALID_RECORD for its partition, as it is in C. Runs on a
request-handler thread, which has given up the role of taker; the codecs release the GIL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from kbroker import _net
from kbroker.errors import ErrorCode, InvariantError
from kbroker.log._tools import unpacked_bytes_max
from kbroker.protocol.wire import ProtocolError
from kbroker.replica.manager import STORED_CODECS

if TYPE_CHECKING:
    from kbroker.handlers._hot import HotPath
    from kbroker.handlers.services import Request, Services


class ColdProduce:
    """`handle` is the registry's entry for Produce."""

    def __init__(self, hot: HotPath) -> None:
        self._hot = hot

    def handle(self, services: Services, request: Request) -> None:
        # Imported when first needed: most brokers never come here.
        from kbroker.protocol.record_batch import HEADER_BYTES, codec_of, repack

        if not isinstance(request, _net.Request):
            raise InvariantError("a Produce for Python has its frame in the compiled core")
        twins: dict[int, bytes] = {}
        stored: dict[int, bytes] = {}
        errors: dict[int, int] = {}
        for ordinal, topic_id, batch in self._hot.produce_batches(request):
            codec = _wanted_codec(services, topic_id)
            limit_bytes = unpacked_bytes_max(len(batch) - HEADER_BYTES)
            try:
                twins[ordinal] = repack(batch, 0, limit_bytes)
                if codec is not None and codec != codec_of(batch):
                    stored[ordinal] = repack(batch, codec, limit_bytes)
            except ProtocolError:
                errors[ordinal] = ErrorCode.INVALID_RECORD
        self._hot.produce_checked(request, twins, stored, errors)


def _wanted_codec(services: Services, topic_id: bytes) -> int | None:
    """The codec that the topic stores; None: the producer's own."""
    from kbroker.config.topic import TopicConfig

    topic = services.controller.image.topic_by_id(UUID(bytes=topic_id))
    if topic is None:
        return None
    codec = STORED_CODECS[TopicConfig(services.config, topic.configs)["compression.type"]]
    return None if codec < 0 else codec
