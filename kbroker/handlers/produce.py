"""The cold half of Produce: batches that C cannot check or store alone.

The hot path sends a whole request here, before anything of it is written, when one of its batches
is compressed with a codec for which this machine has no system library, or when its topic wants
another codec than the producer's (`compression.type`). Each batch is unpacked once, bounded in
memory; its uncompressed twin goes back with the request for C to walk every record, and, for
another codec, the batch to be stored, packed with the topic's level (`compression.gzip.level` and
so on). A batch in the topic's codec stays as it is, whatever its level: so it is in Kafka. Appends,
their order and the answer stay the hot path's own.

A batch that does not unpack is INVALID_RECORD for its partition, as it is in C. Runs on a
request-handler thread, which has given up the role of taker; the codecs release the GIL, packing
and unpacking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from kbroker import _net
from kbroker.compression import Codec, CompressionError, Packing, compress
from kbroker.errors import ErrorCode, InvariantError
from kbroker.log.validator import unpacked
from kbroker.protocol.wire import ProtocolError
from kbroker.replica.manager import stored_packing

if TYPE_CHECKING:
    from kbroker.handlers._hot import HotPath
    from kbroker.handlers.services import Request, Services


class ColdProduce:
    """`handle` is the registry's entry for Produce."""

    def __init__(self, hot: HotPath) -> None:
        self._hot = hot

    def handle(self, services: Services, request: Request) -> None:
        # Imported when first needed: most brokers never come here.
        from kbroker.protocol.record_batch import packed_records, with_records

        if not isinstance(request, _net.Request):
            raise InvariantError("a Produce for Python has its frame in the compiled core")
        twins: dict[int, bytes] = {}
        stored: dict[int, bytes] = {}
        errors: dict[int, int] = {}
        for ordinal, topic_id, batch in self._hot.produce_batches(request):
            try:
                codec, packed = packed_records(batch)
                if codec is Codec.NONE:
                    records, twin = packed, batch
                else:
                    records = memoryview(unpacked(codec, packed))
                    twin = with_records(batch, Codec.NONE, records)
            except (ProtocolError, CompressionError):
                errors[ordinal] = ErrorCode.INVALID_RECORD
                continue
            twins[ordinal] = twin
            wanted = _packing(services, topic_id)
            if wanted is not None and wanted.codec is not codec:
                stored[ordinal] = with_records(batch, wanted.codec, compress(wanted, records))
        self._hot.produce_checked(request, twins, stored, errors)


def _packing(services: Services, topic_id: bytes) -> Packing | None:
    """What the topic is stored with; None: what the producer chose."""
    from kbroker.config.topic import TopicConfig

    topic = services.controller.image.topic_by_id(UUID(bytes=topic_id))
    return None if topic is None else stored_packing(TopicConfig(services.config, topic.configs))
