"""Templates: whole requests with the places that the generator changes as it goes.

`produce` returns a perf.spec.Connection, whose frame is complete but for the correlation id and,
where idempotent or stamped, the base sequence, the send time and the CRC that follows from them.
`fetch` returns one whose frame is the request header alone; C writes the body, as the partitions in
it depend on the last response.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perf.batch import RecordBatch
from perf.spec import Batch, Connection, Partition
from perf.wire import FLEXIBLE_SINCE, Writer, frame, request_header

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18
CREATE_TOPICS, DELETE_TOPICS, INIT_PRODUCER_ID = 19, 20, 22
TIMEOUT_MS = 30_000
TOPIC_ID_SINCE = 13


@dataclass(frozen=True)
class Topic:
    """A topic as a client knows it."""

    name: str
    topic_id: bytes
    partitions: int


def _put_topic(w: Writer, version: int, topic: Topic) -> None:
    if version >= TOPIC_ID_SINCE:
        w.raw(topic.topic_id)
    else:
        w.string(topic.name)


def produce(
    version: int,
    topic: Topic,
    batches: Sequence[tuple[Partition, RecordBatch]],
    *,
    acks: int,
    idempotent: bool = False,
) -> Connection:
    """A produce request of one batch to each of these partitions."""
    header = request_header(PRODUCE, version)
    w = Writer(version >= FLEXIBLE_SINCE[PRODUCE])
    w.string(None).put("hi", acks, TIMEOUT_MS)
    w.count(1)
    _put_topic(w, version, topic)
    w.count(len(batches))
    places = []
    for slot, (partition, batch) in enumerate(batches):
        w.put("i", partition.index).bytes(batch.data)
        at = len(header) + len(w.data) - len(batch.data)
        places.append(Batch(at, len(batch.data), batch.records, slot, batch.crc, batch.stamp_at))
        w.tags()
    w.tags().tags()
    return Connection(
        frame(header, bytes(w.data)),
        tuple(partition for partition, _ in batches),
        tuple(places),
        idempotent,
    )


def fetch(version: int, topic: Topic, partitions: Sequence[Partition]) -> Connection:
    """A fetching connection over these partitions."""
    name = topic.topic_id if version >= TOPIC_ID_SINCE else topic.name.encode()
    return Connection(request_header(FETCH, version), tuple(partitions), topic=name)


def metadata_of_all_topics(version: int = 12) -> Connection:
    """Metadata with a null list, repeated as it is."""
    w = Writer(version >= FLEXIBLE_SINCE[METADATA])
    w.count(-1)
    w.put("b", 0)  # no automatic creation
    if 8 <= version <= 10:
        w.put("b", 0)
    if version >= 8:
        w.put("b", 0)
    w.tags()
    return Connection(frame(request_header(METADATA, version), bytes(w.data)))


def api_versions() -> Connection:
    """ApiVersions 0, repeated as it is."""
    return Connection(frame(request_header(API_VERSIONS, 0), b""))
