"""DescribeLogDirs (35): how large every partition is, and the volume that holds it.

One result for each data directory, with the partitions that are in it: all of them, or those of the
request that are here (others are left out without an error). The lag is what a log still lacks of
its partition: of one on its way into another directory, its future log there, the offsets that are
to be copied, else 0. No directory is cordoned. One that cannot be asked has an error of its own and
no partitions.

Any handler thread. Sizes are read a few hundred logs at a time without the GIL, and a partition
costs one packed piece of the answer, so ten thousand partitions do not delay other requests.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from kbroker.errors import ErrorCode
from kbroker.handlers.authorization import may_on_cluster
from kbroker.protocol import messages
from kbroker.protocol._messages import Encoded
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import encode_array_length
from kbroker.security.rights import Operation
from kbroker.types import ApiKey, TopicPartition

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.log.engine._results import DirectoryUse
    from kbroker.protocol.messages.describe_log_dirs import DescribeLogDirsResult, Request

NO_LAG: Final = 0
# Index, bytes, lag, whether it is a future log; with and without tagged fields after it.
_PARTITION: Final = struct.Struct(">iqq?")
_PARTITION_TAGGED: Final = struct.Struct(">iqq?x")


def handle(services: Services, call: Call[Request]) -> None:
    if not may_on_cluster(services, call, Operation.DESCRIBE):
        call.answer(
            messages.describe_log_dirs.Response(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        )
        return
    wanted = None
    if call.message.topics is not None:
        wanted = frozenset(
            TopicPartition(topic.topic, index)
            for topic in call.message.topics
            for index in topic.partitions
        )
    flexible = is_flexible(ApiKey.DESCRIBE_LOG_DIRS, call.version)
    directories = services.replicas.use_of_directories(wanted)
    results = [_described(directory, flexible=flexible) for directory in directories]
    call.answer(messages.describe_log_dirs.Response(results=results))


def _described(directory: DirectoryUse, *, flexible: bool) -> DescribeLogDirsResult:
    table = messages.describe_log_dirs
    pack = (_PARTITION_TAGGED if flexible else _PARTITION).pack
    by_topic: dict[str, list[bytes]] = {}
    for (topic, index), size_bytes in directory.logs:
        by_topic.setdefault(topic, []).append(pack(index, size_bytes, NO_LAG, False))
    for (topic, index), _, size_bytes, lag in directory.futures:
        by_topic.setdefault(topic, []).append(pack(index, size_bytes, lag, True))
    topics: list[Any] = []
    for topic, partitions in by_topic.items():
        count = encode_array_length(len(partitions), flexible=flexible)
        encoded: Any = Encoded(b"".join((count, *partitions)))
        topics.append(table.DescribeLogDirsTopic(name=topic, partitions=encoded))
    return table.DescribeLogDirsResult(
        error_code=ErrorCode.KAFKA_STORAGE_ERROR if directory.failed else ErrorCode.NONE,
        log_dir=directory.path,
        topics=topics,
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
    )
