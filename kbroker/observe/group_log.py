"""The history of one group, read from its partition of `__consumer_offsets` by a client.

Ordinary fetches, so that any broker will do; the client needs the right to read that topic. What
the log does not have is asked of the coordinator. For `kbroker group why` and the console.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.errors import ErrorCode, KafkaError
from kbroker.observe.group_history import Batch, History, history_of, with_unwritten
from kbroker.peer.groups import Groups
from kbroker.peer.log_reading import headers, offset_at, pieces
from kbroker.peer.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kbroker.protocol.record_batch import CODEC_MASK, CONTROL, decode_batches
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker.peer.client import Client

OFFSETS_TOPIC: Final = "__consumer_offsets"
# Of the group's partition.
SEARCHED_BYTES_MAX: Final = 1 << 30
_FIRST_WINDOW_OFFSETS: Final = 1_000
_WINDOW_OFFSETS_MAX: Final = 1 << 40
_WINDOW_BYTES_MAX: Final = 4 * 1024 * 1024


def read_history(
    client: Client,
    group: str,
    *,
    bytes_max: int = SEARCHED_BYTES_MAX,
    last: bool = False,
    pause: Callable[[], None] = lambda: None,
) -> History | None:
    """None: there is no record of the group in what was read. KafkaError: the partition is not to
    be read, or has more than `bytes_max`; with `last`, the end of a longer one is read. `pause` is
    called between two fetches."""
    place = _partition(client, group)
    if place is None:
        return None
    names = {
        topic.topic_id: name
        for name, topic in client.metadata().topics.items()
        if topic.topic_id is not None
    }
    pause()
    start, end = (offset_at(client, place, when) for when in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP))
    data: Iterable[bytes]
    if last:
        data, first = last_batches(client, place, start, end, bytes_max, pause)
    else:
        data, first = _whole(pieces(client, place, start, end, bytes_max), pause), start
    history = history_of(group, _batches(data, group), names)
    history.is_whole = first <= start
    if not history.kind:
        return None
    with_unwritten(history, Groups(client).unwritten(group))
    return history


def _partition(client: Client, group: str) -> TopicPartition | None:
    topic = client.metadata([OFFSETS_TOPIC]).topics.get(OFFSETS_TOPIC)
    if topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    if topic.error is not ErrorCode.NONE:
        raise KafkaError(topic.error, f"topic '{OFFSETS_TOPIC}'")
    return TopicPartition(OFFSETS_TOPIC, partition_for(group, len(topic.partitions)))


def _whole(some: Iterable[bytes], pause: Callable[[], None]) -> Iterator[bytes]:
    for piece in some:
        pause()
        yield piece


def last_batches(
    client: Client,
    place: TopicPartition,
    start: int,
    end: int,
    bytes_max: int,
    pause: Callable[[], None],
) -> tuple[Sequence[bytes], int]:
    """Batches of the log from one offset to another, in order, from the end back to about
    `bytes_max`; and the offset from which on they are whole.

    The log is read in windows of offsets, each one below the last, which become larger where they
    have few bytes. A batch is of the window in which it begins.
    """
    taken: deque[bytes] = deque()
    read, high, window = 0, end, _FIRST_WINDOW_OFFSETS
    while high > start and read < bytes_max:
        low = max(start, high - window)
        found = _window(client, place, low, high, pause)
        if found is None and window > 1:
            window = max(1, window // 16)
            continue
        # A batch that the log begins in the midst of is of the first window.
        some = [data for offset, data in found or () if offset >= low or low == start]
        size = sum(map(len, some))
        if taken and read + size > bytes_max:
            break
        taken.extendleft(reversed(some))
        read += size
        high = low
        if size < _WINDOW_BYTES_MAX // 4:
            window = min(window * (2 if size else 8), _WINDOW_OFFSETS_MAX)
    return taken, high


def _window(
    client: Client, place: TopicPartition, low: int, high: int, pause: Callable[[], None]
) -> list[tuple[int, bytes]] | None:
    """The batches that have these offsets, each with its own. None: of several offsets there are
    too many bytes."""
    found: list[tuple[int, bytes]] = []
    read = 0
    for piece in pieces(client, place, low, high):
        pause()
        for header in headers(piece):
            if header.offset >= high:
                return found
            found.append((header.offset, piece[header.begin : header.end]))
        read += len(piece)
        if read > _WINDOW_BYTES_MAX and high - low > 1:
            return None
    return found


def _batches(some: Iterable[bytes], group: str) -> Iterator[Batch]:
    """Those that may have a record of the group; the others are not unpacked."""
    named = group.encode()
    for piece in some:
        for header in headers(piece):
            if header.attributes & CONTROL:
                continue
            data = piece[header.begin : header.end]
            if header.attributes & CODEC_MASK or named in data:
                for batch in decode_batches(data):
                    yield Batch(header.time_ms, list(batch.records))
