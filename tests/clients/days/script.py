"""The day: create, configure, write in every way, read by offset and by time, trim, delete.

`hold(client, admin)` returns its steps with their outcomes, all of it data that can be compared:
two brokers have the same day when the lists are equal. Topics have fixed names, so a day starts on
a broker that does not have them; nothing in an outcome depends on the clock, but for whether a
timestamp is the broker's.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

from tests.clients.adapters import BEGINNING, CODECS, Client, Received, Record
from tests.clients.adapters.confluent import eventually
from tests.clients.days.admins import DayAdmin

Outcome = Any
Steps = list[tuple[str, Outcome]]

NOON_MS = 1_700_000_000_000  # long ago: the topics keep what they are given for centuries
DESCRIBED = ["retention.ms", "max.message.bytes", "segment.bytes", "cleanup.policy"]
LARGE_BYTES = 150_000
TOO_LARGE_BYTES = 250_000


def hold(client: Client, admin: DayAdmin) -> Steps:
    steps: Steps = []
    for part in (_create, _configure, _write, _large, _read, _seek, _trim, _grow, _stamps, _delete):
        part(client, admin, lambda name, outcome: steps.append((name, outcome)))
    return steps


Note = Callable[[str, Outcome], None]


def _make(admin: DayAdmin, topic: str, partitions: int, configs: dict[str, str]) -> int:
    code = admin.create(topic, partitions, configs)
    # Apache Kafka answers before the topic can be seen.
    eventually(lambda: admin.partitions(topic) == list(range(partitions)))
    return code


def _create(client: Client, admin: DayAdmin, note: Note) -> None:
    own = {"retention.ms": str(10**13), "max.message.bytes": "200000"}
    note("create", _make(admin, "orders", 3, own))
    note("create again", admin.create("orders", 3, {}))
    note("create without partitions", admin.create("none", 0, {}))
    note("create with an unknown setting", admin.create("unknown", 1, {"no.such.key": "1"}))
    note("create with a bad value", admin.create("bad", 1, {"retention.ms": "soon"}))
    note("create with a bad name", admin.create("a b", 1, {}))


def _configure(client: Client, admin: DayAdmin, note: Note) -> None:
    note("describe", admin.configs("orders", DESCRIBED))
    note(
        "alter",
        admin.alter("orders", {"retention.ms": str(2 * 10**13), "max.message.bytes": "200000"}),
    )
    eventually(lambda: admin.configs("orders", DESCRIBED)["retention.ms"][0] == str(2 * 10**13))
    note("describe after alter", admin.configs("orders", DESCRIBED))
    note("alter to a bad value", admin.alter("orders", {"segment.bytes": "-7"}))
    note("alter an unknown setting", admin.alter("orders", {"no.such.key": "1"}))
    note("alter a topic that is not there", admin.alter("nowhere", {"retention.ms": "1"}))
    note("describe after failures", admin.configs("orders", DESCRIBED))


def _records(count: int, stem: str) -> list[Record]:
    return [
        Record(
            f"{stem} {number}".encode(),
            f"key {number}".encode(),
            (("number", str(number).encode()), ("empty", b""), ("number", b"again")),
            NOON_MS + 1000 * number,
        )
        for number in range(count)
    ]


def _write(client: Client, admin: DayAdmin, note: Note) -> None:
    for acks in ("all", "1"):
        note(f"acks={acks}", client.produce("orders", _records(5, f"acks {acks}"), acks=acks))
    note("idempotent", client.produce("orders", _records(10, "once"), 1, idempotent=True))
    with client.producer(idempotent=True, linger_ms=0) as producer:
        rounds = []
        for number in range(3):
            for record in _records(3, f"round {number}"):
                producer.send("orders", record, 1)
            rounds.append(producer.flush())
        note("idempotent, in rounds", rounds)
    for codec in CODECS:
        note(codec, client.produce("orders", _records(5, codec), 2, codec=codec))
    tombstone = Record(None, b"key", timestamp_ms=NOON_MS)
    note("no value", client.produce("orders", [tombstone], 2))


def _large(client: Client, admin: DayAdmin, note: Note) -> None:
    def write(size: int) -> Outcome:
        record = Record(b"x" * size, timestamp_ms=NOON_MS)
        return client.produce("orders", [record], 2, message_bytes_max=1_000_000)

    note("large", write(LARGE_BYTES))
    note("too large", [delivery.error for delivery in write(TOO_LARGE_BYTES)])
    altered = admin.alter(
        "orders", {"retention.ms": str(2 * 10**13), "max.message.bytes": "400000"}
    )
    note("allow larger", altered)
    eventually(lambda: admin.configs("orders", DESCRIBED)["max.message.bytes"][0] == "400000")
    note("larger", write(TOO_LARGE_BYTES))


def _shown(records: list[Received]) -> Outcome:
    return [
        (
            record.offset,
            record.timestamp_ms,
            None if record.key is None else record.key.decode(),
            None if record.value is None else hashlib.sha256(record.value).hexdigest()[:12],
            [(name, None if value is None else value.decode()) for name, value in record.headers],
        )
        for record in records
    ]


def _read(client: Client, admin: DayAdmin, note: Note) -> None:
    for partition, count in ((0, 10), (1, 19), (2, 28)):
        read = client.consume("orders", count, partition)
        note(f"read partition {partition}", _shown(list(read)))


def _seek(client: Client, admin: DayAdmin, note: Note) -> None:
    note("read from an offset", _shown(list(client.consume("orders", 3, 0, offset=7))))
    with client.consumer() as consumer:
        for seconds in (-1, 0, 2, 2.5, 4, 5):
            stamp = int(NOON_MS + 1000 * seconds)
            note(f"time +{seconds} s", consumer.offset_for_time("orders", 0, stamp))
        note("offsets", [consumer.offsets("orders", partition) for partition in range(3)])


def _trim(client: Client, admin: DayAdmin, note: Note) -> None:
    note("trim", admin.delete_records("orders", 0, 4))
    note("trim beyond the end", admin.delete_records("orders", 0, 1000))
    note("trim what is gone", admin.delete_records("orders", 0, 2))
    note("trim a partition that is not there", admin.delete_records("orders", 9, 0)[0])
    with client.consumer() as consumer:
        note("offsets after trim", consumer.offsets("orders", 0))
        note("time before what is left", consumer.offset_for_time("orders", 0, NOON_MS))
    note("read what is left", _shown(list(client.consume("orders", 6, 0, offset=BEGINNING))))
    note("trim all", admin.delete_records("orders", 1, 19))
    with client.consumer() as consumer:
        note("offsets when all is gone", consumer.offsets("orders", 1))
    note("write after that", client.produce("orders", _records(2, "after"), 1))
    note("read after that", _shown(list(client.consume("orders", 2, 1))))


def _grow(client: Client, admin: DayAdmin, note: Note) -> None:
    note("add partitions", admin.add_partitions("orders", 5))
    eventually(lambda: admin.partitions("orders") == list(range(5)))
    note("add none", admin.add_partitions("orders", 5))
    note("take partitions away", admin.add_partitions("orders", 2))
    note("add to a topic that is not there", admin.add_partitions("nowhere", 2))
    note("write to a new one", client.produce("orders", _records(2, "new"), 4))
    note("read a new one", _shown(list(client.consume("orders", 2, 4))))


def _stamps(client: Client, admin: DayAdmin, note: Note) -> None:
    _make(admin, "stamped", 1, {"message.timestamp.type": "LogAppendTime"})
    before_ms = time.time() * 1000 - 1000
    note("write to be stamped", client.produce("stamped", _records(3, "stamped")))
    stamps = [record.timestamp_ms for record in client.consume("stamped", 3)]
    note("stamped by the broker", all(before_ms <= stamp < before_ms + 60_000 for stamp in stamps))
    _make(admin, "compacted", 1, {"cleanup.policy": "compact"})
    without_key = client.produce("compacted", [Record(b"no key")])
    note("no key for a compacted topic", [delivery.error for delivery in without_key])
    note("a key for a compacted topic", client.produce("compacted", _records(1, "keyed")))
    note("trim a compacted topic", admin.delete_records("compacted", 0, 1)[0])


def _delete(client: Client, admin: DayAdmin, note: Note) -> None:
    for topic in ("orders", "stamped", "compacted"):
        note(f"delete {topic}", admin.delete(topic))
    note("delete again", admin.delete("orders"))
    _make(admin, "orders", 1, {})
    note("a new life", client.produce("orders", _records(1, "new life")))
    note("of its own", _shown(list(client.consume("orders", 1))))
    note("and its end", admin.delete("orders"))
