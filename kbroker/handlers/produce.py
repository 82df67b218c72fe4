"""The cold half of Produce: batches that C cannot check or store alone.

The hot path sends a whole request here, before anything of it is written, when its topic wants
another codec than the producer's (`compression.type`), or when one of its batches is compressed in
a way that C cannot open: a codec for which this machine has no system library, a Snappy block that
copies from far back. For another codec a batch is decompressed and recompressed in pieces, with the
topic's level (`compression.gzip.level` and so on), and C walks the original before the new one is
stored. A batch that C cannot open is decompressed whole, and the uncompressed twin goes back for C
to walk. A batch in the topic's codec stays as it is, whatever its level, as in Apache Kafka.
Appends, their order and the answer stay the hot path's own.

Memory: one decompressed piece, and the recompressed batch, at most `max.message.bytes` each. All
requests here share one budget (`limits.REPACKED_BYTES_MAX`). When it is used up, the next request
waits on its handler. A request that holds a part of the budget waits for no other request, so the
wait ends, and the client gets an answer that Kafka would give. A batch beyond the bounds is
MESSAGE_TOO_LARGE.

A batch that does not unpack is INVALID_RECORD for its partition, as it is in C. Runs on a
request-handler thread, which has given up the role of taker; the codecs release the GIL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kbroker import _net, limits
from kbroker.bytes_budget import BytesBudget
from kbroker.compression import PACKINGS, Codec, CompressionError, Packing, TooLongError
from kbroker.errors import ErrorCode, InvariantError
from kbroker.log.engine.validator import TWIN_BYTES_RATIO, UNPACKED, unpacked_pieces, unpacked_whole
from kbroker.protocol.wire import ProtocolError
from kbroker.replica.manager import stored_packing

if TYPE_CHECKING:
    from kbroker.engine._hot import HotPath
    from kbroker.handlers.services import ColdRequest, Services


Piece = bytes | memoryview


class _Batch(NamedTuple):
    ordinal: int  # in the request
    unpacked_bytes_max: int  # of all batches of its frame
    frame: int
    position: int
    size: int
    packing: Packing | None  # what its topic stores; None: what the producer chose
    message_bytes_max: int


class ColdProduce:
    """`handle` is the registry's entry for Produce."""

    def __init__(
        self,
        hot: HotPath,
        watch_deadline: Callable[[int], None],
        budget: BytesBudget = UNPACKED,
    ) -> None:
        """`watch_deadline` is called with the ticks of requests that wait for followers."""
        self._hot = hot
        self._watch_deadline = watch_deadline
        self._budget = budget

    def handle(self, services: Services, request: ColdRequest) -> None:
        if not isinstance(request, _net.WrappedRequest):
            raise InvariantError("a Produce for Python has its frame in the compiled core")
        try:
            self._handle(services, request)
        finally:
            self._hot.produce_given_up(request)

    def _handle(self, services: Services, request: _net.WrappedRequest) -> None:
        batches = self._batches(services, request)
        opaque: set[int] = set()  # to C
        for _attempt in range(2):
            with self._budget.held(_bytes_wanted(batches, opaque)) as held:
                work = _Repacking(lambda batch: self._copy(request, batch), held)
                for batch in batches:
                    work.look_into(batch, opaque)
                unknown, ticks = self._hot.produce_checked(
                    request, work.twins, work.stored, work.errors
                )
                opaque |= set(unknown)
            self._watch(ticks)
            if request.answered:
                return
        # The topic changed twice meanwhile. Nothing is written; the client sends it again.
        self._hot.produce_given_up(request)
        request.close_connection("the topic's compression changes")

    def _watch(self, ticks: list[int]) -> None:
        for tick in ticks:
            try:
                self._watch_deadline(tick)
            except BaseException:
                self._hot.expire(tick)  # without its timer the request would wait for ever
                raise

    def _batches(self, services: Services, request: _net.WrappedRequest) -> list[_Batch]:
        topics: dict[bytes, tuple[Packing | None, int]] = {}
        batches = []
        for ordinal, frame, bytes_max, topic_id, position, size in self._hot.produce_batches(
            request
        ):
            if topic_id not in topics:
                topics[topic_id] = _settings(services, topic_id)
            batches.append(_Batch(ordinal, bytes_max, frame, position, size, *topics[topic_id]))
        return batches

    def _copy(self, request: _net.WrappedRequest, batch: _Batch) -> bytes:
        return self._hot.produce_batch(request, batch.position, batch.size)


class _Repacking:
    """Results for C of one request's batches: twins to walk, bytes to store, errors."""

    def __init__(self, copy: Callable[[_Batch], bytes], bytes_left: int) -> None:
        self._copy = copy
        self._bytes_left = bytes_left
        self._unpacked_left: dict[int, int] = {}  # by frame
        self.twins: dict[int, bytearray] = {}
        self.stored: dict[int, bytearray] = {}
        self.errors: dict[int, int] = {}

    def look_into(self, batch: _Batch, opaque: Set[int]) -> None:
        from kbroker.protocol.record_batch import packed_records

        if batch.packing is None and batch.ordinal not in opaque:
            return
        content = self._copy(batch)
        try:
            codec, packed = packed_records(content)
            if batch.ordinal in opaque and codec is not Codec.NONE:
                self._unpack_whole(batch, content, codec, packed)
            else:
                pieces = self._counted(batch, unpacked_pieces(codec, packed))
                self._repack(batch, content, codec, pieces)
        except TooLongError:
            self.errors[batch.ordinal] = ErrorCode.MESSAGE_TOO_LARGE
        except (ProtocolError, CompressionError):
            # C finds the same and has the better words for it, but where it cannot look itself.
            if batch.ordinal in opaque:
                self.errors[batch.ordinal] = ErrorCode.INVALID_RECORD

    def _unpack_whole(
        self, batch: _Batch, content: bytes, codec: Codec, packed: memoryview
    ) -> None:
        left = self._unpacked_left.setdefault(batch.frame, batch.unpacked_bytes_max)
        room = min(left, self._bytes_left // TWIN_BYTES_RATIO)
        records = unpacked_whole(codec, packed, room)
        self._unpacked_left[batch.frame] = left - len(records)
        self._repack(batch, content, codec, _cut(records))
        twin = self._made(content, PACKINGS[Codec.NONE], [records], self._bytes_left)
        self.twins[batch.ordinal] = twin

    def _repack(self, batch: _Batch, content: bytes, codec: Codec, pieces: Iterable[Piece]) -> None:
        if batch.packing is None or batch.packing.codec is codec:
            return
        made = self._made(content, batch.packing, pieces, batch.message_bytes_max)
        self.stored[batch.ordinal] = made

    def _made(
        self, content: bytes, packing: Packing, pieces: Iterable[Piece], bytes_max: int
    ) -> bytearray:
        from kbroker.protocol.record_batch import repacked

        made = repacked(content, packing, pieces, min(bytes_max, self._bytes_left))
        self._bytes_left -= len(made)
        return made

    def _counted(self, batch: _Batch, pieces: Iterable[bytes]) -> Iterable[bytes]:
        """The pieces, as long as the frame may unpack to more."""
        for piece in pieces:
            left = self._unpacked_left.setdefault(batch.frame, batch.unpacked_bytes_max)
            self._unpacked_left[batch.frame] = left - len(piece)
            if left < len(piece):
                raise TooLongError(f"the request unpacks to more than {batch.unpacked_bytes_max}")
            yield piece


def _cut(records: bytes) -> Iterable[memoryview]:
    whole = memoryview(records)
    for start in range(0, len(whole), limits.UNPACKED_PIECE_BYTES):
        yield whole[start : start + limits.UNPACKED_PIECE_BYTES]


def _bytes_wanted(batches: list[_Batch], opaque: Set[int]) -> int:
    """What looking into the batches may hold at most."""
    if not opaque:
        wanted = sum(batch.message_bytes_max for batch in batches if batch.packing is not None)
        sent = sum(batch.size for batch in batches)
        wanted = min(wanted, max(limits.REPACKED_BYTES_MIN, limits.REPACKED_RATIO_MAX * sent))
        return wanted + max((batch.size for batch in batches), default=0)
    return limits.REPACKED_BYTES_MAX  # records that are there whole: one request at a time


def _settings(services: Services, topic_id: bytes) -> tuple[Packing | None, int]:
    """What the topic is stored with, and its largest batch."""
    from kbroker.config.topic import TopicConfig

    topic = services.controller.image.topic_by_id(UUID(bytes=topic_id))
    if topic is None:
        return None, 0
    config = TopicConfig(services.config, topic.configs)
    return stored_packing(config), config["max.message.bytes"]
