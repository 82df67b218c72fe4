"""Record batches, Produce and Fetch requests, and the recorded views of their answers.

Batches are made by tests/support/record_batches.py and changed here a field at a time, with the CRC
put right afterwards unless it is the CRC that is to be wrong. Timestamps are fixed ones in the
past; producer ids are numbers that no broker hands out, so that both sides store equal bytes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kbroker.types import ApiKey
from tests.parity.requests import build
from tests.parity.talk import Talk
from tests.support.record_batches import HEADER, Record, build_batch, seal

T0: Final = 1_700_000_000_000
PRODUCER: Final = 7_000_000_000
PRODUCE_VERSIONS: Final = range(3, 14)
FETCH_VERSIONS: Final = range(4, 19)
PRODUCE_IDS: Final = 13
FETCH_IDS: Final = 13
FOREVER: Final = {"retention.ms": "-1"}

_FIELDS: Final = (
    *("base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta"),
    *("base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "count"),
)
_HEX_BYTES_MAX: Final = 400
# An older time may not be a broker's clock.
_CLOCK_MS_MIN: Final = 1_760_000_000_000


# --- batches --------------------------------------------------------------------------------------


def records(
    *values: bytes | None, at: int = T0, step: int = 1, keyed: bool = False
) -> list[Record]:
    return [
        Record(value, b"k%d" % place if keyed else None, at + place * step)
        for place, value in enumerate(values)
    ]


def batch(*values: bytes, **how: Any) -> bytes:
    """A batch of these values, one ms apart from T0 on."""
    return build_batch(records(*(values or (b"v",))), **how)


def changed(data: bytes, *, sealed: bool = True, **fields: int) -> bytes:
    """The batch with other numbers in its header."""
    values = dict(zip(_FIELDS, HEADER.unpack_from(data), strict=True)) | fields
    out = HEADER.pack(*(values[name] for name in _FIELDS)) + data[HEADER.size :]
    return seal(out) if sealed else out


def idempotent(
    sequence: int, *values: bytes, epoch: int = 0, producer: int = PRODUCER, **how: Any
) -> bytes:
    return batch(*values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **how)


# --- requests -------------------------------------------------------------------------------------

Parts = Mapping[int, bytes | None] | Sequence[tuple[int, bytes | None]]


def pairs(parts: Parts) -> Iterable[tuple[int, bytes | None]]:
    return parts.items() if isinstance(parts, Mapping) else parts


def named(talk: Talk, version: int, ids_from: int, name: Any, field: str) -> dict[str, Any]:
    """How a request of this version names a topic: a text, or an id made from it."""
    if version < ids_from:
        return {field: name}
    return {"topic_id": talk.topic_id(name) if isinstance(name, str) else name}


def produce(
    talk: Talk,
    version: int,
    *topics: tuple[Any, Parts],
    acks: int = -1,
    transactional_id: str | None = None,
) -> Any:
    return build(
        ApiKey.PRODUCE,
        version,
        acks=acks,
        timeout=15_000,
        transactional_id=transactional_id,
        topic_data=[
            named(talk, version, PRODUCE_IDS, name, "name")
            | {"partition_data": [{"index": i, "records": data} for i, data in pairs(parts)]}
            for name, parts in topics
        ],
    )


def part(
    partition: int = 0,
    offset: int = 0,
    most: int = 1 << 20,
    *,
    epoch: int = -1,
    fetched_epoch: int = -1,
) -> dict[str, int]:
    return {
        "partition": partition,
        "fetch_offset": offset,
        "partition_max_bytes": most,
        "current_leader_epoch": epoch,
        "last_fetched_epoch": fetched_epoch,
    }


def fetch(
    talk: Talk,
    version: int,
    *topics: tuple[Any, Sequence[Mapping[str, int]]],
    session: tuple[int, int] = (0, -1),
    forgotten: Sequence[tuple[Any, Sequence[int]]] = (),
    max_wait: int = 0,
    min_bytes: int = 0,
    max_bytes: int = 50 << 20,
    isolation: int = 0,
    **other: Any,
) -> Any:
    return build(
        ApiKey.FETCH,
        version,
        **(({"replica_id": -1} if version < 15 else {}) | other),
        max_wait=max_wait,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            named(talk, version, FETCH_IDS, name, "topic") | {"partitions": list(partitions)}
            for name, partitions in topics
        ],
        forgotten_topics_data=[
            named(talk, version, FETCH_IDS, name, "topic") | {"partitions": list(partitions)}
            for name, partitions in forgotten
        ],
    )


def list_offsets(version: int, name: str, *times: int, partition: int = 0, **fields: Any) -> Any:
    """One question; several times ask about partitions from `partition` on."""
    return build(
        ApiKey.LIST_OFFSETS,
        version,
        **({"replica_id": -1, "timeout": 1_000} | fields),
        topics=[
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": partition + i,
                        "timestamp": time,
                        "current_leader_epoch": -1,
                    }
                    for i, time in enumerate(times)
                ],
            }
        ],
    )


def stored(talk: Talk, name: str, *data: bytes, partition: int = 0) -> None:
    """Batches written before the case begins; each has to be taken."""
    for each in data:
        answer = talk.quietly(produce(talk, 9, (name, {partition: each})))
        (topic,) = answer.responses
        (result,) = topic.partition_responses
        if result.error_code.value:
            raise AssertionError(f"not stored: {result}")


def topic(talk: Talk, name: str = "t", *, partitions: int = 1, **configs: str) -> str:
    """A topic that keeps old records; `cleanup_policy="compact"` is how a key is written."""
    given = {key.replace("_", "."): value for key, value in configs.items()}
    return talk.topic(name, partitions=partitions, configs=FOREVER | given)


# --- views ----------------------------------------------------------------------------------------


def in_short(data: Any) -> Any:
    """The answer with long records as a hash, and a broker's clock as a word."""
    if isinstance(data, dict):
        return {key: _field(key, value) for key, value in data.items()}
    if isinstance(data, list):
        return [in_short(item) for item in data]
    return data


def _field(key: str, value: Any) -> Any:
    if key == "records" and value:
        return _records(bytes.fromhex(value))
    if key == "log_append_time" and value is not None and value > _CLOCK_MS_MIN:
        return "now"
    return in_short(value)


def _records(data: bytes) -> Any:
    headers = list(_headers(data))
    if any(h["max_timestamp"] == "now" for h in headers):
        return headers
    if len(data) <= _HEX_BYTES_MAX:
        return data.hex()
    digest = hashlib.sha256(data).hexdigest()[:16]
    return {"bytes": len(data), "sha256": digest, "first": headers[0]["base_offset"]}


def _headers(data: bytes) -> Iterable[dict[str, Any]]:
    at = 0
    while at + HEADER.size <= len(data):
        fields: dict[str, Any] = dict(zip(_FIELDS, HEADER.unpack_from(data, at), strict=True))
        size = fields["length"] + 12
        if fields["max_timestamp"] > _CLOCK_MS_MIN:
            fields["max_timestamp"] = "now"
            whole = seal(data[at : at + size])
            (crc,) = struct.unpack_from(">I", whole, 17)
            fields["crc"] = "good" if crc == fields["crc"] else "bad"
        fields["records"] = data[at + HEADER.size : at + size].hex()
        yield fields
        at += size
