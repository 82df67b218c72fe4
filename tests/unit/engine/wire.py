"""Produce and Fetch as a client writes and reads them, in every version, by kio.

Requests are written by kio's writers and answers read by kio's readers, all bytes used up, so that
neither direction is checked by code of kbroker's. The differences between versions are here and
nowhere else: names or topic ids, the place of the replica id, names of fields.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from kio.serial import entity_reader

from kbroker.protocol.versions import FLEXIBLE_SINCE, SERVED
from kbroker.types import ApiKey
from tests.support import schemas
from tests.unit.handlers.support import part_of, request_of, written
from tests.unit.net.harness import Client, Topic, framed, header

PRODUCE_VERSIONS: Final = range(SERVED[ApiKey.PRODUCE].min, SERVED[ApiKey.PRODUCE].max + 1)
FETCH_VERSIONS: Final = range(SERVED[ApiKey.FETCH].min, SERVED[ApiKey.FETCH].max + 1)
SESSION_VERSIONS: Final = range(7, SERVED[ApiKey.FETCH].max + 1)
PRODUCE_BY_ID: Final = 13
FETCH_BY_ID: Final = 13


def frame_of(entity: Any, correlation_id: int = 1) -> bytes:
    head = header(entity.__api_key__, entity.__version__, correlation_id)
    return framed(head + written(entity))


def answer_in(key: ApiKey, version: int, payload: bytes) -> tuple[int, Any]:
    """Correlation id and answer; every byte of the payload belongs to them."""
    flexible = version >= FLEXIBLE_SINCE[key]
    at = 5 if flexible else 4
    assert not flexible or payload[4] == 0
    entity_class = getattr(schemas.response_module(key, version), f"{key.label}Response")
    entity, size = entity_reader(entity_class)(payload, at)
    assert at + size == len(payload)
    return struct.unpack(">i", payload[:4])[0], entity


# --- Produce -------------------------------------------------------------------------------------

Partitions = Mapping[int, bytes | None] | Sequence[tuple[int, bytes | None]]  # pairs may repeat
Batches = Sequence[tuple[Topic, Partitions]]


def produce_frame(
    version: int,
    batches: Batches,
    *,
    acks: int = 1,
    timeout_ms: int = 1000,
    correlation_id: int = 1,
    transactional_id: str | None = None,
) -> bytes:
    topics = []
    for topic, partitions in batches:
        pairs = partitions.items() if isinstance(partitions, Mapping) else partitions
        name = {"topic_id": topic.topic_id} if version >= PRODUCE_BY_ID else {"name": topic.name}
        data = tuple(
            part_of(ApiKey.PRODUCE, version, "PartitionProduceData", index=index, records=records)
            for index, records in pairs
        )
        topics.append(
            part_of(ApiKey.PRODUCE, version, "TopicProduceData", partition_data=data, **name)
        )
    request = request_of(
        ApiKey.PRODUCE,
        version,
        acks=acks,
        timeout=timedelta(milliseconds=timeout_ms),
        topic_data=tuple(topics),
        transactional_id=transactional_id,
    )
    return frame_of(request, correlation_id)


@dataclass(frozen=True)
class Produced:
    error: int
    base_offset: int
    append_time_ms: int
    log_start_offset: int
    record_errors: tuple[int, ...]
    message: str | None


def produced_in(version: int, payload: bytes) -> tuple[int, dict[tuple[object, int], Produced]]:
    """Correlation id, and what became of each partition by (name or id, index), in their order."""
    correlation_id, answer = answer_in(ApiKey.PRODUCE, version, payload)
    out: dict[tuple[object, int], Produced] = {}
    for topic in answer.responses:
        for p in topic.partition_responses:
            append_time = p.log_append_time
            out[_name_of(topic), p.index] = Produced(
                int(p.error_code),
                p.base_offset,
                -1 if append_time is None else round(append_time.timestamp() * 1000),
                getattr(p, "log_start_offset", -1),
                tuple(e.batch_index for e in getattr(p, "record_errors", ())),
                getattr(p, "error_message", None),
            )
    return correlation_id, out


def produce(
    client: Client, version: int, batches: Batches, **options: Any
) -> dict[tuple[object, int], Produced]:
    client.send(produce_frame(version, batches, **options))
    return produced_in(version, client.receive())[1]


def produce_one(client: Client, topic: Topic, batch: bytes | None, **options: Any) -> Produced:
    """To partition 0, with the version that most tests do not care about."""
    version = options.pop("version", 9)
    (result,) = produce(client, version, [(topic, {0: batch})], **options).values()
    return result


# --- Fetch ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ask:
    """One partition of a fetch."""

    topic: Topic
    index: int = 0
    offset: int = 0
    max_bytes: int = 1 << 20
    leader_epoch: int = -1
    fetched_epoch: int = -1
    log_start: int = -1


def fetch_frame(
    version: int,
    asks: Sequence[Ask],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    session: tuple[int, int] = (0, -1),
    forgotten: Sequence[tuple[Topic, int]] = (),
    read_committed: bool = False,
    replica_id: int = -1,
    rack: str = "",
    correlation_id: int = 1,
) -> bytes:
    topics = []
    for topic, group in _grouped(asks):
        partitions = tuple(_fetch_partition(version, ask) for ask in group)
        name = _fetch_name(version, topic)
        topics.append(part_of(ApiKey.FETCH, version, "FetchTopic", partitions=partitions, **name))
    fields: dict[str, Any] = {
        "max_wait": timedelta(milliseconds=max_wait_ms),
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": int(read_committed),
        "topics": tuple(topics),
    }
    if version >= 7:
        fields["session_id"], fields["session_epoch"] = session
        fields["forgotten_topics_data"] = tuple(
            part_of(
                ApiKey.FETCH,
                version,
                "ForgottenTopic",
                partitions=(index,),
                **_fetch_name(version, topic),
            )
            for topic, index in forgotten
        )
    if version >= 11:
        fields["rack_id"] = rack
    if version < 15:
        fields["replica_id"] = replica_id
    elif replica_id >= 0:
        fields["replica_state"] = part_of(
            ApiKey.FETCH, version, "ReplicaState", replica_id=replica_id, replica_epoch=1
        )
    return frame_of(request_of(ApiKey.FETCH, version, **fields), correlation_id)


def _fetch_partition(version: int, ask: Ask) -> Any:
    fields: dict[str, Any] = {
        "partition": ask.index,
        "fetch_offset": ask.offset,
        "partition_max_bytes": ask.max_bytes,
    }
    if version >= 5:
        fields["log_start_offset"] = ask.log_start
    if version >= 9:
        fields["current_leader_epoch"] = ask.leader_epoch
    if version >= 12:
        fields["last_fetched_epoch"] = ask.fetched_epoch
    return part_of(ApiKey.FETCH, version, "FetchPartition", **fields)


def _fetch_name(version: int, topic: Topic) -> dict[str, Any]:
    return {"topic_id": topic.topic_id} if version >= FETCH_BY_ID else {"topic": topic.name}


def _grouped(asks: Sequence[Ask]) -> list[tuple[Topic, list[Ask]]]:
    # Partitions of one topic that follow each other share an entry, as a client writes them.
    groups: list[tuple[Topic, list[Ask]]] = []
    for ask in asks:
        if groups and groups[-1][0] is ask.topic:
            groups[-1][1].append(ask)
        else:
            groups.append((ask.topic, [ask]))
    return groups


@dataclass(frozen=True)
class Fetched:
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: object
    records: bytes | None
    preferred: int


@dataclass(frozen=True)
class FetchAnswer:
    correlation_id: int
    error: int
    session_id: int
    partitions: dict[tuple[object, int], Fetched]

    @property
    def only(self) -> Fetched:
        (fetched,) = self.partitions.values()
        return fetched


def fetched_in(version: int, payload: bytes) -> FetchAnswer:
    correlation_id, answer = answer_in(ApiKey.FETCH, version, payload)
    partitions: dict[tuple[object, int], Fetched] = {}
    for topic in answer.responses:
        for p in topic.partitions:
            partitions[_name_of(topic), p.partition_index] = Fetched(
                int(p.error_code),
                p.high_watermark,
                p.last_stable_offset,
                getattr(p, "log_start_offset", -1),
                p.aborted_transactions,
                p.records,
                getattr(p, "preferred_read_replica", -1),
            )
    return FetchAnswer(
        correlation_id,
        int(getattr(answer, "error_code", 0)),
        getattr(answer, "session_id", 0),
        partitions,
    )


def fetch(client: Client, version: int, asks: Sequence[Ask], **options: Any) -> FetchAnswer:
    client.send(fetch_frame(version, asks, **options))
    return fetched_in(version, client.receive())


def _name_of(topic: Any) -> object:
    for field in ("topic_id", "name", "topic"):
        if hasattr(topic, field):
            return getattr(topic, field)
    raise LookupError(topic)


def key_of(topic: Topic, index: int, *, by_id: bool) -> tuple[object, int]:
    """How an answer names a partition."""
    return (topic.topic_id if by_id else topic.name, index)
