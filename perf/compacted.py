"""A compacted topic of many gigabytes, in a minute: batches of 1 MB whose keys alone differ.

One batch is encoded once. Before each request the keys in it are others, drawn from half as many as
there are records, and so is its CRC. So a cleaning leaves gaps all over the log: of each two
records, the later one of a key stays. The last segment is not cleaned, as with every topic.
"""

from __future__ import annotations

import random
import struct
import time
from dataclasses import dataclass
from typing import Final

from perf._load import crc32c
from perf.batch import ATTRIBUTES_AT, CRC_AT, HEADER_BYTES, payload, varint
from perf.cells import PLAIN_PRODUCE, CellError
from perf.client import Client
from perf.requests import PRODUCE, Topic
from perf.wire import Writer

RECORD_BYTES: Final = 4_000
BATCH_RECORDS: Final = 250
KEY_BYTES: Final = 8
TIMEOUT_MS: Final = 30_000
SEED: Final = 1
SEGMENTS: Final = 40
SEGMENT_BYTES_MIN: Final = 16 << 20


@dataclass(frozen=True)
class KeyedBatch:
    """`keys`: where each record's key is."""

    data: bytearray
    keys: tuple[int, ...]

    def change(self, keys: list[int]) -> bytes:
        for at, key in zip(self.keys, keys, strict=True):
            struct.pack_into(">Q", self.data, at, key)
        crc = crc32c(bytes(memoryview(self.data)[ATTRIBUTES_AT:]))
        struct.pack_into(">I", self.data, CRC_AT, crc)
        return bytes(self.data)


def keyed_batch(records: int, value_bytes: int, timestamp_ms: int) -> KeyedBatch:
    value = payload(value_bytes)
    section, keys = bytearray(), []
    for number in range(records):
        head = b"\0" + varint(0) + varint(number) + varint(KEY_BYTES)
        tail = varint(len(value)) + value + varint(0)
        section += varint(len(head) + KEY_BYTES + len(tail)) + head
        keys.append(HEADER_BYTES + len(section))
        section += bytes(KEY_BYTES) + tail
    about = struct.pack(
        ">hiqqqhii", 0, records - 1, timestamp_ms, timestamp_ms, -1, -1, -1, records
    )
    head = struct.pack(">qiibI", 0, len(about) + len(section) + 9, -1, 2, 0)
    return KeyedBatch(bytearray(head + about + section), tuple(keys))


def configs(gigabytes: float) -> dict[str, str]:
    """Of a topic for so much. The cleaner waits until it is asked to."""
    segment_bytes = max(SEGMENT_BYTES_MIN, round(gigabytes * 1e9 / SEGMENTS))
    return {
        "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1",
        "segment.bytes": str(segment_bytes),
    }  # fmt: skip


def fill(client: Client, topic: Topic, gigabytes: float) -> int:
    """Into partition 0; how many records. CellError where one request is refused."""
    batch = keyed_batch(BATCH_RECORDS, RECORD_BYTES, time.time_ns() // 1_000_000)
    batches = max(1, round(gigabytes * 1e9 / len(batch.data)))
    chance, pool = random.Random(SEED), max(1, batches * BATCH_RECORDS // 2)
    for _ in range(batches):
        data = batch.change([chance.randrange(pool) for _ in range(BATCH_RECORDS)])
        body = Writer().string(None).put("hi", 1, TIMEOUT_MS).count(1).string(topic.name)
        answer = client.ask(
            PRODUCE, PLAIN_PRODUCE, bytes(body.count(1).put("i", 0).bytes(data).data)
        )
        answer.count()
        answer.string()
        answer.count()
        answer.get("i")
        if code := answer.get("h"):
            raise CellError(f"{topic.name}: error code {code}")
    return batches * BATCH_RECORDS
