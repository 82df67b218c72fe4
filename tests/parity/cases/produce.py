"""Produce (0): batches that are stored, and batches that are refused, in every version."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.data import (
    PRODUCE_IDS,
    PRODUCE_VERSIONS,
    T0,
    batch,
    changed,
    fetch,
    idempotent,
    in_short,
    part,
    produce,
    records,
    topic,
)
from tests.parity.requests import Raw, body_of, build, raw
from tests.parity.talk import Talk
from tests.support.record_batches import Record, build_batch, compress, seal, varint

book = Book()
cases = book.cases

UNKNOWN_ID = UUID(int=0xABCD)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SOME = (3, 5, 8, 9, 13)  # those between which the message changed


def put(talk: Talk, version: int, *topics: Any, **how: Any) -> None:
    talk.ask(produce(talk, version, *topics, **how), view=in_short)


def look(talk: Talk, name: str, *partitions: int) -> None:
    """The log's records afterwards."""
    asked = fetch(talk, 12, (name, [part(index) for index in partitions or (0,)]))
    talk.ask(asked, view=in_short)


# --- accepted -------------------------------------------------------------------------------------


@book.case("one record", versions=PRODUCE_VERSIONS, over={f"acks {a}": a for a in (-1, 1)})
def one(talk: Talk, version: int, acks: int) -> None:
    name = topic(talk)
    put(talk, version, (name, {0: batch(b"hello")}), acks=acks)
    put(talk, version, (name, {0: batch(b"again", b"and again")}), acks=acks)
    look(talk, name)


@book.case("acks 0", versions=PRODUCE_VERSIONS)
def no_acks(talk: Talk, version: int) -> None:
    name = topic(talk)
    talk.send(produce(talk, version, (name, {0: batch(b"quiet")}), acks=0), answered=False)
    put(talk, version, (name, {0: batch(b"loud")}))
    look(talk, name)


@book.case("acks 0 and an error", versions=SOME)
def no_acks_error(talk: Talk, version: int) -> None:
    name = topic(talk)
    talk.send(produce(talk, version, (name, {9: batch(b"lost")}), acks=0), answered=False)
    talk.receive()
    look_again = talk.connect()
    look_again.ask(fetch(talk, 12, (name, [part(0)])), view=in_short)


@book.case("acks", versions=SOME, over={str(a): a for a in (-2, 2, 32767)})
def strange_acks(talk: Talk, version: int, acks: int) -> None:
    name = topic(talk)
    known = (name, {0: batch(b"x"), 7: batch(b"y")})
    if version < PRODUCE_IDS:
        put(talk, version, known, (talk.name("none"), {0: batch()}), acks=acks)
    else:
        put(talk, version, known, acks=acks)
    look(talk, name)


@book.case("a codec", versions=PRODUCE_VERSIONS, over={codec: codec for codec in CODECS})
def codecs(talk: Talk, version: int, codec: str) -> None:
    name = topic(talk)
    put(talk, version, (name, {0: batch(b"a" * 50, b"b" * 50, b"", codec=codec)}))
    look(talk, name)


@book.case("several partitions and topics", versions=SOME)
def several(talk: Talk, version: int) -> None:
    first, second = topic(talk, "a", partitions=3), topic(talk, "b", partitions=2)
    put(
        talk,
        version,
        (first, {2: batch(b"2"), 0: batch(b"0"), 1: batch(b"1")}),
        (second, {1: batch(b"1")}),
    )
    look(talk, first, 0, 1, 2)


@book.case("errors beside what is taken", versions=SOME)
def mixed(talk: Talk, version: int) -> None:
    name = topic(talk, partitions=2)
    bad = changed(batch(b"x"), sealed=False, crc=1)
    put(talk, version, (name, {0: bad, 1: batch(b"good"), 2: batch(b"nowhere"), -1: batch()}))
    look(talk, name, 0, 1)


@book.case("an unknown topic", versions=PRODUCE_VERSIONS)
def unknown(talk: Talk, version: int) -> None:
    wanted = talk.name("none") if version < PRODUCE_IDS else UNKNOWN_ID
    put(talk, version, (wanted, {0: batch(), 1: batch()}), (topic(talk), {0: batch(b"x")}))


@book.case("no topic and no partition", versions=PRODUCE_VERSIONS)
def nothing(talk: Talk, version: int) -> None:
    put(talk, version)
    put(talk, version, (topic(talk), {}))
    put(talk, version, acks=5)


@book.case("a partition twice", versions=SOME)
def partition_twice(talk: Talk, version: int) -> None:
    name = topic(talk)
    put(talk, version, (name, [(0, batch(b"one")), (0, batch(b"two"))]))
    look(talk, name)


@book.case("a topic twice", versions=SOME)
def topic_twice(talk: Talk, version: int) -> None:
    name = topic(talk, partitions=2)
    put(talk, version, (name, {0: batch(b"one")}), (name, {1: batch(b"two")}))
    look(talk, name, 0, 1)


@book.case("the same in a topic twice", versions=SOME)
def all_twice(talk: Talk, version: int) -> None:
    name = topic(talk)
    put(talk, version, (name, {0: batch(b"one")}), (name, {0: batch(b"two")}))
    look(talk, name)


# --- refused --------------------------------------------------------------------------------------


def record_bytes(index: int, body: bytes) -> bytes:
    return varint(len(body)) + body


def lying(payload: bytes, count: int = 1, **how: Any) -> bytes:
    return build_batch(records(b"v"), payload=payload, count=count, **how)


GOOD_RECORD = b"\0" + varint(0) + varint(0) + varint(-1) + varint(1) + b"v" + varint(0)


def magic(version: int) -> bytes:
    """A message set of the old formats, with a CRC that is not looked at."""
    message = struct.pack(">Ibb", 0, version, 0)
    message += (struct.pack(">q", T0) if version else b"") + struct.pack(">i", -1)
    message += struct.pack(">i", 1) + b"v"
    return struct.pack(">qi", 0, len(message)) + message


WHOLE = batch(b"v", b"w")
SHAPES: dict[str, bytes | None] = {
    "no bytes": b"",
    "a few bytes": b"abc",
    "half a header": WHOLE[:30],
    "a header without records": changed(WHOLE[:61], length=49),
    "a batch cut off": WHOLE[:-1],
    "bytes behind the batch": WHOLE + b"abc",
    "two batches": WHOLE + WHOLE,
    "a batch and most of another": WHOLE + WHOLE[:-1],
    "a batch and the start of another": WHOLE + WHOLE[:14],
    "a batch and one of magic 1": WHOLE + magic(1),
    "a batch and one without size": WHOLE + changed(WHOLE, length=3),
    "magic 0": magic(0),
    "magic 1": magic(1),
    "magic 3": changed(WHOLE, magic=3),
    "magic 2 with a length too short": changed(WHOLE, length=10),
    "a length below zero": changed(WHOLE, length=-1),
    "bad CRC": changed(WHOLE, sealed=False, crc=12345),
    "base offset 5": changed(WHOLE, base_offset=5),
    "base offset -1": changed(WHOLE, base_offset=-1),
    "leader epoch 77": changed(WHOLE, leader_epoch=77),
    "count too large": changed(WHOLE, count=3),
    "count too small": changed(WHOLE, count=1),
    "count 0": changed(WHOLE, count=0),
    "count -1": changed(WHOLE, count=-1),
    "no records at all": changed(WHOLE[:61], length=49, count=0, last_offset_delta=-1),
    "last offset delta too large": changed(WHOLE, last_offset_delta=5),
    "last offset delta too small": changed(WHOLE, last_offset_delta=0),
    "count and delta too large": changed(WHOLE, count=5, last_offset_delta=4),
    "count and delta too small": changed(WHOLE, count=1, last_offset_delta=0),
    "unknown attribute bits": changed(WHOLE, attributes=0x7F00),
    "delete horizon": changed(WHOLE, attributes=0x40),
    "log append time": changed(WHOLE, attributes=0x08),
    "codec 5": changed(WHOLE, attributes=5),
    "codec 7": changed(WHOLE, attributes=7),
    "gzip that is none": changed(WHOLE, attributes=1),
    "snappy that is none": changed(WHOLE, attributes=2),
    "lz4 that is none": changed(WHOLE, attributes=3),
    "zstd that is none": changed(WHOLE, attributes=4),
    "a control batch": changed(WHOLE, attributes=0x20),
    "a control batch of a producer": changed(idempotent(0, b"v", b"w"), attributes=0x20),
    "transactional": changed(WHOLE, attributes=0x10),
    "transactional of a producer": changed(idempotent(0, b"v"), attributes=0x10),
    "max timestamp too large": changed(WHOLE, max_timestamp=T0 + 99),
    "max timestamp -1": changed(WHOLE, max_timestamp=-1),
    "timestamp -1": build_batch([Record(b"v", None, -1)]),
    "timestamp below zero": build_batch([Record(b"v", None, -5)]),
    "timestamp of the year 2100": build_batch([Record(b"v", None, 4_102_444_800_000)]),
    "a negative delta": build_batch([Record(b"v", None, T0), Record(b"v", None, T0 - 9)]),
    "a producer without sequence": changed(WHOLE, producer_id=7_000, producer_epoch=0),
    "a producer without epoch": changed(WHOLE, producer_id=7_000, base_sequence=0),
    "a sequence without producer": changed(WHOLE, base_sequence=0, producer_epoch=0),
    "a producer id of -2": changed(WHOLE, producer_id=-2, producer_epoch=0, base_sequence=0),
    "a sequence of -2": changed(WHOLE, producer_id=7_000, producer_epoch=0, base_sequence=-2),
    "an epoch of -2": changed(WHOLE, producer_id=7_000, producer_epoch=-2, base_sequence=0),
    "a record too long": lying(varint(100) + GOOD_RECORD),
    "a record too short": lying(varint(3) + GOOD_RECORD),
    "a record of no bytes": lying(varint(0)),
    "a record of -1 bytes": lying(varint(-1) + GOOD_RECORD),
    "bytes behind the records": lying(record_bytes(0, GOOD_RECORD) + b"abc"),
    "an offset delta of 5": lying(record_bytes(0, GOOD_RECORD[:2] + varint(5) + GOOD_RECORD[3:])),
    "an offset delta of -1": lying(record_bytes(0, GOOD_RECORD[:2] + varint(-1) + GOOD_RECORD[3:])),
    "an offset delta of 5 in gzip": lying(
        compress("gzip", record_bytes(0, GOOD_RECORD[:2] + varint(5) + GOOD_RECORD[3:])),
        codec="gzip",
    ),
    "record attributes": lying(record_bytes(0, b"\x7f" + GOOD_RECORD[1:])),
    "a key too long": lying(record_bytes(0, b"\0\0\0" + varint(500) + b"k")),
    "a key of -2 bytes": lying(record_bytes(0, b"\0\0\0" + varint(-2) + b"\x02v\0")),
    "a value of -2 bytes": lying(record_bytes(0, b"\0\0\0" + varint(-1) + varint(-2) + b"\0")),
    "headers below zero": lying(record_bytes(0, GOOD_RECORD[:-1] + varint(-1))),
    "too many headers": lying(record_bytes(0, GOOD_RECORD[:-1] + varint(1000))),
    "a header with a null key": lying(
        record_bytes(0, GOOD_RECORD[:-1] + varint(1) + varint(-1) + varint(0))
    ),
    "a header with a null value": lying(
        record_bytes(0, GOOD_RECORD[:-1] + varint(1) + varint(1) + b"h" + varint(-1))
    ),
    "bytes behind the headers": lying(record_bytes(0, GOOD_RECORD + b"zz")),
    "a null value": build_batch([Record(None, b"k", T0)]),
    "two gzip records cut": build_batch(
        records(b"v", b"w"), codec="gzip", payload=compress("gzip", b"xxxxxxxx" * 20)[:-9]
    ),
    "gzip of what is no record": build_batch(
        records(b"v"), codec="gzip", payload=compress("gzip", b"\x05xxxx" * 20)
    ),
    "an empty gzip stream": build_batch(records(b"v"), codec="gzip", payload=compress("gzip", b"")),
    "gzip with bytes behind the records": build_batch(
        records(b"v"),
        codec="gzip",
        payload=compress("gzip", record_bytes(0, GOOD_RECORD) + b"abc"),
    ),
    "gzip with bytes behind the stream": build_batch(
        records(b"v"),
        codec="gzip",
        payload=compress("gzip", record_bytes(0, GOOD_RECORD)) + b"abc",
    ),
    "zstd with bytes behind the stream": build_batch(
        records(b"v"),
        codec="zstd",
        payload=compress("zstd", record_bytes(0, GOOD_RECORD)) + b"abc",
    ),
}
# The judgement is the same in all; from 8 on it has words, from 13 on a topic's id.
SHAPE_VERSIONS = (3, 8, 13)


@book.case("a batch of", versions=SHAPE_VERSIONS, over=SHAPES)
def shapes(talk: Talk, version: int, data: bytes | None) -> None:
    name = topic(talk)
    put(talk, version, (name, {0: data}))
    look(talk, name)


TOPICS: dict[str, tuple[dict[str, str], bytes]] = {
    "a compacted topic, keys": (
        {"cleanup_policy": "compact"},
        build_batch(records(b"a", b"b", keyed=True)),
    ),
    "a compacted topic, no key": ({"cleanup_policy": "compact"}, batch(b"a", b"b")),
    "a compacted topic, a key missing": (
        {"cleanup_policy": "compact"},
        build_batch([Record(b"a", b"k", T0), Record(b"b", None, T0), Record(b"c", None, T0)]),
    ),
    "a compacted topic, no key in gzip": (
        {"cleanup_policy": "compact"},
        batch(b"a", b"b", codec="gzip"),
    ),
    "compact and delete, no key": ({"cleanup_policy": "compact,delete"}, batch(b"a")),
    "compacted and out of time": (
        {"cleanup_policy": "compact", "message_timestamp_before_max_ms": "1000"},
        build_batch([Record(b"a", None, T0), Record(b"b", b"k", T0)]),
    ),
    "too old": ({"message_timestamp_before_max_ms": "1000"}, batch(b"a", b"b")),
    "too old in gzip": (
        {"message_timestamp_before_max_ms": "1000"},
        batch(b"a", b"b", codec="gzip"),
    ),
    "without a time and too old": (
        {"message_timestamp_before_max_ms": "1000"},
        build_batch([Record(b"v", None, -1), Record(b"v", None, -1)]),
    ),
    "in the future": (
        {"message_timestamp_after_max_ms": "1000"},
        build_batch([Record(b"v", None, 4_102_444_800_000)]),
    ),
    "in a future that is allowed": (
        {"message_timestamp_after_max_ms": "9223372036854775807"},
        build_batch([Record(b"v", None, 4_102_444_800_000)]),
    ),
    "log append time": ({"message_timestamp_type": "LogAppendTime"}, batch(b"a", b"b")),
    "log append time, gzip": (
        {"message_timestamp_type": "LogAppendTime"},
        batch(b"a", b"b", codec="gzip"),
    ),
    "log append time, too old": (
        {"message_timestamp_type": "LogAppendTime", "message_timestamp_before_max_ms": "1"},
        batch(b"a", b"b"),
    ),
    "too large": ({"max_message_bytes": "200"}, batch(b"x" * 300)),
    "just small enough": ({"max_message_bytes": "200"}, batch(b"x" * (200 - 61 - 9))),
    "one byte too large": ({"max_message_bytes": "200"}, batch(b"x" * (201 - 61 - 9))),
    "too large and damaged": (
        {"max_message_bytes": "200"},
        changed(batch(b"x" * 300), sealed=False, crc=3),
    ),
    "too large in gzip, larger unpacked": (
        {"max_message_bytes": "200"},
        batch(b"x" * 3000, codec="gzip"),
    ),
    "larger than a segment": (
        {"max_message_bytes": "3000000", "segment_bytes": "1048576"},
        batch(b"x" * 1_100_000),
    ),
    "min.insync.replicas 2": ({"min_insync_replicas": "2"}, batch(b"x")),
    "stored as lz4, unpacked larger than it takes": (
        {"compression_type": "lz4", "max_message_bytes": "200"},
        batch(b"x" * 3000, codec="gzip"),
    ),
    "stored as zstd, sent larger than it takes": (
        {"compression_type": "zstd", "max_message_bytes": "200"},
        batch(b"x" * 3000),
    ),
    "stored uncompressed, larger than it takes": (
        {"compression_type": "uncompressed", "max_message_bytes": "200"},
        batch(b"x" * 3000, codec="gzip"),
    ),
    "stored uncompressed": (
        {"compression_type": "uncompressed"},
        batch(b"a" * 40, b"b", codec="gzip"),
    ),
    "stored uncompressed, sent so": ({"compression_type": "uncompressed"}, batch(b"a" * 40)),
    "stored as gzip, sent so": ({"compression_type": "gzip"}, batch(b"a" * 40, codec="gzip")),
    "stored uncompressed, damaged": (
        {"compression_type": "uncompressed"},
        changed(batch(b"a" * 40, codec="gzip"), sealed=False, crc=2),
    ),
    "stored uncompressed, not what it says": (
        {"compression_type": "uncompressed"},
        changed(batch(b"a" * 40), attributes=1),
    ),
}


@book.case("into zstd from", versions=(3, 6, 7, 13), over={codec: codec for codec in CODECS})
def into_zstd(talk: Talk, version: int, codec: str) -> None:
    """The stored bytes are not compared: the libraries differ in how they pack."""
    name = topic(talk, compression_type="zstd")
    put(talk, version, (name, {0: batch(b"a" * 40, b"b", codec=codec)}))


@book.case("a topic with", versions=(3, 8, 13), over=TOPICS)
def configured(talk: Talk, version: int, each: tuple[dict[str, str], bytes]) -> None:
    configs, data = each
    name = topic(talk, **configs)
    put(talk, version, (name, {0: data}))
    look(talk, name)


@book.case("a topic with min.insync.replicas 2, acks 1", versions=(3, 13))
def enough_for_one(talk: Talk, version: int) -> None:
    put(talk, version, (topic(talk, min_insync_replicas="2"), {0: batch(b"x")}), acks=1)


@book.case("packed anew", versions=(7, 13), over={codec: codec for codec in CODECS[1:]})
def recompressed(talk: Talk, version: int, codec: str) -> None:
    """Two packers do not make the same bytes: the headers are compared."""
    name = topic(talk, compression_type=codec)
    put(talk, version, (name, {0: batch(b"a" * 40, b"b" * 40)}))
    put(talk, version, (name, {0: batch(b"a" * 40, codec="gzip" if codec != "gzip" else "lz4")}))
    entity = talk.quietly(fetch(talk, 12, (name, [part(0)])))
    data = entity.responses[0].partitions[0].records
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at + 8)
        header = struct.unpack_from(">hiqqqhii", data, at + 21)
        talk.note(
            "a stored batch",
            [
                list(header),
                seal(data[at : at + 12 + size])[17:21].hex() == data[at + 17 : at + 21].hex(),
            ],
        )
        at += 12 + size


@book.case("null records", versions=SOME)
def null_records(talk: Talk, version: int) -> None:
    talk.send(produce(talk, version, (topic(talk), {0: None})))
    talk.receive(view=in_short, within_ms=700)


@book.case(
    "one damaged batch of two",
    versions=(3, 8, 13),
    over={
        "magic 3": changed(WHOLE, magic=3),
        "no size": changed(WHOLE, length=3),
        "transactional": changed(WHOLE, attributes=0x10),
    },
)
def whole_request(talk: Talk, version: int, bad: bytes) -> None:
    name = topic(talk, partitions=3)
    put(talk, version, (name, {0: batch(b"good"), 1: bad, 9: batch()}))
    look(talk, name, 0, 1)


@book.case("acks 5 and something worse", versions=(3, 13))
def acks_and_more(talk: Talk, version: int) -> None:
    name = topic(talk, partitions=2)
    put(talk, version, (name, {0: WHOLE + WHOLE, 1: changed(WHOLE, sealed=False, crc=1)}), acks=5)


# --- frames ---------------------------------------------------------------------------------------


@book.case("a version that is refused", over={str(v): v for v in (-1, 0, 1, 2, 14, 99)})
def refused(talk: Talk, version: int) -> None:
    talk.ask(Raw(ApiKey.PRODUCE, version, body_of(produce(talk, 3, (topic(talk), {0: batch()})))))


@book.case("a body that is cut", versions=PRODUCE_VERSIONS)
def cut(talk: Talk, version: int) -> None:
    entity = produce(talk, version, (topic(talk), {0: batch()}))
    talk.ask(raw(entity, body_of(entity)[:-20]))


@book.case("bytes behind the body", versions=SOME)
def after(talk: Talk, version: int) -> None:
    entity = produce(talk, version, (topic(talk), {0: batch()}))
    talk.ask(raw(entity, body_of(entity) + b"more"))


@book.case("unknown tagged fields", versions=range(9, 14))
def tags(talk: Talk, version: int) -> None:
    name = topic(talk)
    talk.ask(
        produce(talk, version, (name, {0: batch()})),
        tags={100: b"x", 5000: b""},
        header_tags={7: b"abc"},
    )


@book.case("a transactional id", versions=SOME)
def transactional_id(talk: Talk, version: int) -> None:
    """No transaction is under way, and the batch is none of one."""
    name = topic(talk)
    put(talk, version, (name, {0: batch(b"x")}), transactional_id=talk.name("tx"))
    look(talk, name)


@book.case(
    "a client id", versions=(3, 9, 13), over={"null": None, "empty": "", "admin": "__admin_client"}
)
def client_ids(talk: Talk, version: int, client_id: str | None) -> None:
    talk.ask(produce(talk, version, (topic(talk), {0: batch()})), client_id=client_id)


@book.case("an array of", versions=(3, 8, 9, 13), over={"-1": -1, "-2": -2, "2^31-1": 2**31 - 1})
def arrays(talk: Talk, version: int, count: int) -> None:
    """The topics' count is not true."""
    flexible = version >= 9
    head = b"\0" if flexible else b"\xff\xff"
    if flexible:
        counted = {-1: b"\0", -2: b"\xff\xff\xff\xff\x0f"}.get(count, b"\xff\xff\xff\xff\x07")
    else:
        counted = struct.pack(">i", count)
    talk.ask(Raw(ApiKey.PRODUCE, version, head + struct.pack(">hi", 1, 1000) + counted))


@book.case("pipelined", versions=SOME)
def pipelined(talk: Talk, version: int) -> None:
    name = topic(talk, partitions=2)
    talk.main.hold()
    for number in range(5):
        talk.send(produce(talk, version, (name, {number % 2: batch(b"%d" % number)})))
    talk.send(produce(talk, version, (name, {7: batch()})))
    talk.send(build(ApiKey.API_VERSIONS, 0))
    talk.main.release()
    for _ in range(6):
        talk.receive()
    talk.receive(view=lambda _: "versions")
    look(talk, name, 0, 1)
