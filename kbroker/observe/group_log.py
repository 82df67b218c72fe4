"""The history of one group, read from its partition of `__consumer_offsets` by a client.

Ordinary fetches, so that any broker will do; the client needs the right to read that topic. What
the log does not have is asked of the coordinator. For `kbroker group why` and the console.
"""

from __future__ import annotations

from collections.abc import Iterator
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


def read_history(
    client: Client,
    group: str,
    *,
    bytes_max: int = SEARCHED_BYTES_MAX,
    pause: Callable[[], None] = lambda: None,
) -> History | None:
    """None: there is no record of the group. KafkaError: the partition has more than `bytes_max`,
    or is not to be read. `pause` is called between two fetches."""
    place = _partition(client, group)
    if place is None:
        return None
    names = {
        topic.topic_id: name
        for name, topic in client.metadata().topics.items()
        if topic.topic_id is not None
    }
    pause()
    history = history_of(group, _batches(client, place, group, bytes_max, pause), names)
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


def _batches(
    client: Client, place: TopicPartition, group: str, bytes_max: int, pause: Callable[[], None]
) -> Iterator[Batch]:
    """Those that may have a record of the group; the others are not unpacked."""
    named = group.encode()
    start, end = (offset_at(client, place, when) for when in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP))
    for piece in pieces(client, place, start, end, bytes_max):
        pause()
        for header in headers(piece):
            if header.attributes & CONTROL:
                continue
            data = piece[header.begin : header.end]
            if header.attributes & CODEC_MASK or named in data:
                for batch in decode_batches(data):
                    yield Batch(header.time_ms, list(batch.records))
