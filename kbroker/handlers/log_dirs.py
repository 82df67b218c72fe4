"""DescribeLogDirs (35): how large every partition is, and the volume that holds it.

One result for each data directory, with the partitions that are in it: all of them, or those of the
request that are here (others are left out without an error). The lag is what a log still lacks of
its partition: of one on its way into another directory, its future log there, the offsets that are
to be copied, else 0. No directory is cordoned. One that cannot be asked has an error of its own and
no partitions.

Any handler thread. Sizes are read a few hundred logs at a time without the GIL, and a partition
costs one packed piece of the answer, so ten thousand keep nobody waiting.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey, TopicPartition

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services
    from kbroker.log._results import DirectoryUse

_SINCE_ERROR: Final = 3
_SINCE_VOLUME: Final = 4
_SINCE_CORDONED: Final = 5
NO_LAG: Final = 0
# Index, bytes, lag, whether it is a future log; with and without tagged fields behind it.
_PARTITION: Final = struct.Struct(">iqq?")
_PARTITION_TAGGED: Final = struct.Struct(">iqq?x")


def decode(request: ColdRequest) -> frozenset[TopicPartition] | None:
    """The partitions that are asked for; None: all."""
    version = request.api_version
    reader = Reader(request.body, flexible=is_flexible(ApiKey.DESCRIBE_LOG_DIRS, version))
    topics = reader.nullable_array()
    wanted = []
    for _ in range(topics or 0):
        name = reader.string()
        wanted += [TopicPartition(name, reader.int32()) for _ in range(reader.array())]
        reader.tags()
    reader.tags()
    return None if topics is None else frozenset(wanted)


def handle(services: Services, request: ColdRequest) -> None:
    wanted = decode(request)
    version = request.api_version
    directories = services.replicas.use_of_directories(wanted)
    out = _begin(version, ErrorCode.NONE, len(directories))
    for directory in directories:
        _write_directory(out, version, directory)
    out.tags()
    request.respond(out.getvalue())


def _begin(version: int, code: ErrorCode, directories: int) -> Writer:
    out = Writer(flexible=is_flexible(ApiKey.DESCRIBE_LOG_DIRS, version))
    out.int32(0)  # throttle time
    if version >= _SINCE_ERROR:
        out.int16(code)
    out.array(directories)
    return out


def _write_directory(out: Writer, version: int, directory: DirectoryUse) -> None:
    pack = (
        _PARTITION_TAGGED if is_flexible(ApiKey.DESCRIBE_LOG_DIRS, version) else _PARTITION
    ).pack
    topics: dict[str, list[bytes]] = {}
    for (topic, index), size_bytes in directory.logs:
        topics.setdefault(topic, []).append(pack(index, size_bytes, NO_LAG, False))
    for (topic, index), _, size_bytes, lag in directory.futures:
        topics.setdefault(topic, []).append(pack(index, size_bytes, lag, True))
    out.int16(ErrorCode.KAFKA_STORAGE_ERROR if directory.failed else ErrorCode.NONE)
    out.string(directory.path)
    out.array(len(topics))
    for topic, partitions in topics.items():
        out.string(topic)
        out.array(len(partitions))
        out.raw(b"".join(partitions))
        out.tags()
    if version >= _SINCE_VOLUME:
        out.int64(directory.total_bytes)
        out.int64(directory.usable_bytes)
    if version >= _SINCE_CORDONED:
        out.boolean(False)
    out.tags()


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    out = _begin(request.api_version, code, 0)
    out.tags()
    return out.getvalue()
