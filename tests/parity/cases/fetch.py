"""Fetch (1) without a session: the records that are read, their bounds, and refusals."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.data import (
    FETCH_IDS,
    FETCH_VERSIONS,
    batch,
    fetch,
    idempotent,
    in_short,
    part,
    stored,
    topic,
)
from tests.parity.requests import Raw, body_of, raw
from tests.parity.talk import Talk

book = Book()
cases = book.cases

UNKNOWN_ID = UUID(int=0xABCD)
SOME_VERSIONS = (4, 7, 11, 12, 13, 18)


def get(talk: Talk, version: int, *topics: Any, **how: Any) -> None:
    talk.ask(fetch(talk, version, *topics, **how), view=in_short)


def three_batches(talk: Talk, name: str, partition: int = 0) -> None:
    """Offsets 0-1, 2, 3-5."""
    data = (batch(b"a", b"b"), batch(b"c"), batch(b"d", b"e", b"f"))
    stored(talk, name, *data, partition=partition)


@book.case("from an offset", versions=SOME_VERSIONS, over={str(o): o for o in range(-2, 9)})
def offsets(talk: Talk, version: int, offset: int) -> None:
    name = topic(talk)
    three_batches(talk, name)
    get(talk, version, (name, [part(0, offset)]))


@book.case("an empty partition", versions=FETCH_VERSIONS)
def empty(talk: Talk, version: int) -> None:
    name = topic(talk)
    get(talk, version, (name, [part(0)]))
    get(talk, version, (name, [part(0, 1)]))
    get(talk, version, (name, [part(0, 0)]), isolation=1)


@book.case("read committed", versions=FETCH_VERSIONS)
def committed(talk: Talk, version: int) -> None:
    name = topic(talk)
    three_batches(talk, name)
    get(talk, version, (name, [part(0, 2)]), isolation=1)
    get(talk, version, (name, [part(0, 99)]), isolation=1)


@book.case("an isolation level", versions=(4, 12, 18), over={str(i): i for i in (-1, 2, 100)})
def isolation(talk: Talk, version: int, level: int) -> None:
    name = topic(talk)
    three_batches(talk, name)
    get(talk, version, (name, [part(0)]), isolation=level)


@book.case("several partitions and topics", versions=FETCH_VERSIONS)
def several(talk: Talk, version: int) -> None:
    first, second = topic(talk, "a", partitions=3), topic(talk, "b")
    three_batches(talk, first, 1)
    three_batches(talk, second)
    get(talk, version, (first, [part(2), part(1), part(0)]), (second, [part(0, 3)]))


@book.case("errors beside what is read", versions=FETCH_VERSIONS)
def mixed(talk: Talk, version: int) -> None:
    name = topic(talk, partitions=3)
    three_batches(talk, name)
    get(talk, version, (name, [part(5), part(0), part(-1), part(1, 9), part(2)]))


@book.case("an unknown topic", versions=FETCH_VERSIONS)
def unknown(talk: Talk, version: int) -> None:
    wanted = talk.name("none") if version < FETCH_IDS else UNKNOWN_ID
    name = topic(talk)
    three_batches(talk, name)
    get(talk, version, (wanted, [part(0), part(1)]), (name, [part(0)]))


@book.case("no topic and no partition", versions=FETCH_VERSIONS)
def nothing(talk: Talk, version: int) -> None:
    get(talk, version)
    get(talk, version, (topic(talk), []))
    get(talk, version, max_wait=5000, min_bytes=1)


@book.case("a partition twice", versions=SOME_VERSIONS)
def twice(talk: Talk, version: int) -> None:
    name = topic(talk)
    three_batches(talk, name)
    get(talk, version, (name, [part(0, 0), part(0, 3)]))
    get(talk, version, (name, [part(0, 3)]), (name, [part(0, 2)]))


@book.case("a deleted topic", versions=SOME_VERSIONS)
def deleted(talk: Talk, version: int) -> None:
    name = topic(talk)
    three_batches(talk, name)
    talk.topic_id(name)
    asked = fetch(talk, version, (name, [part(0)]))
    talk.ask(asked, view=in_short)
    talk.delete(name)
    talk.ask(asked, view=in_short)


# --- bounds ---------------------------------------------------------------------------------------


@book.case(
    "bytes of a partition",
    versions=(4, 11, 12, 13, 18),
    over={str(n): n for n in (-1, 0, 1, 60, 70, 71, 72, 73, 130, 145, 200, 214, 215, 2**31 - 1)},
)
def partition_bytes(talk: Talk, version: int, most: int) -> None:
    name = topic(talk)
    three_batches(talk, name)
    get(talk, version, (name, [part(0, 0, most)]))
    get(talk, version, (name, [part(0, 2, most)]))


@book.case(
    "bytes in all",
    versions=(4, 11, 12, 18),
    over={str(n): n for n in (-1, 0, 1, 60, 80, 150, 215, 230, 300, 429, 2**31 - 1)},
)
def all_bytes(talk: Talk, version: int, most: int) -> None:
    name = topic(talk, partitions=3)
    for partition in range(3):
        three_batches(talk, name, partition)
    get(talk, version, (name, [part(2), part(0, 2), part(1)]), max_bytes=most)


@book.case("bytes in all, an empty one first", versions=(4, 12, 18))
def after_empty(talk: Talk, version: int) -> None:
    name = topic(talk, partitions=3)
    three_batches(talk, name, 1)
    three_batches(talk, name, 2)
    get(talk, version, (name, [part(0), part(1, 0, 1), part(2, 0, 1)]), max_bytes=1)
    get(talk, version, (name, [part(0, 9), part(1, 2, 1), part(2, 0)]), max_bytes=1)


@book.case("a large batch", versions=(4, 11, 12, 18), over={str(n): n for n in (1, 5000, 100_000)})
def large(talk: Talk, version: int, most: int) -> None:
    """Longer than an answer in one piece."""
    name = topic(talk)
    stored(talk, name, batch(b"x" * 9000), batch(b"y" * 20_000), batch(b"z" * 30_000))
    get(talk, version, (name, [part(0, 0, most)]))
    get(talk, version, (name, [part(0, 1, most)]))


@book.case("several segments", versions=(4, 12, 18))
def segments(talk: Talk, version: int) -> None:
    """A read ends with its segment."""
    name = topic(talk, segment_bytes="1048576", max_message_bytes="1000000")
    stored(talk, name, *(batch(b"%d" % n * 300_000) for n in range(5)))
    for offset in range(6):
        get(talk, version, (name, [part(0, offset, 10 << 20)]))


@book.case("codecs", versions=(4, 9, 10, 12, 18), over={c: c for c in ("gzip", "lz4", "zstd")})
def codecs(talk: Talk, version: int, codec: str) -> None:
    name = topic(talk)
    stored(talk, name, batch(b"a" * 100, b"b" * 100, codec=codec))
    get(talk, version, (name, [part(0, 1)]))


@book.case(
    "compression type zstd", versions=FETCH_VERSIONS, over={"empty": False, "with records": True}
)
def zstd_topic(talk: Talk, version: int, filled: bool) -> None:
    name = topic(talk, compression_type="zstd")
    if filled:
        stored(talk, name, batch(b"a" * 100, b"b" * 100, codec="zstd"))
    get(talk, version, (name, [part(0)]))


@book.case("log append time", versions=(4, 12, 18))
def append_time(talk: Talk, version: int) -> None:
    name = topic(talk, message_timestamp_type="LogAppendTime")
    three_batches(talk, name)
    get(talk, version, (name, [part(0, 2)]))


@book.case("batches of a producer", versions=(4, 12, 18))
def producers(talk: Talk, version: int) -> None:
    name = topic(talk)
    stored(talk, name, idempotent(0, b"a"), idempotent(1, b"b", b"c"), idempotent(3, b"d"))
    get(talk, version, (name, [part(0, 2)]))


# --- epochs and replicas --------------------------------------------------------------------------


@book.case(
    "a leader epoch",
    versions=(9, 12, 13, 16, 18),
    over={str(e): e for e in (-2, -1, 0, 1, 2**31 - 1)},
)
def leader_epoch(talk: Talk, version: int, epoch: int) -> None:
    name = topic(talk, partitions=2)
    three_batches(talk, name)
    get(talk, version, (name, [part(0, 0, epoch=epoch), part(1)]))


@book.case(
    "an epoch fetched last", versions=(12, 13, 18), over={str(e): e for e in (-2, -1, 0, 1, 7)}
)
def fetched_epoch(talk: Talk, version: int, epoch: int) -> None:
    name = topic(talk)
    three_batches(talk, name)
    get(talk, version, (name, [part(0, 3, fetched_epoch=epoch)]))
    get(talk, version, (name, [part(0, 6, fetched_epoch=epoch)]))
    get(talk, version, (name, [part(0, 7, fetched_epoch=epoch)]))


@book.case("a rack", versions=range(11, 19))
def rack(talk: Talk, version: int) -> None:
    name = topic(talk)
    three_batches(talk, name)
    get(talk, version, (name, [part(0)]), rack_id="here")


@book.case("a debugging replica", versions=(4, 11, 12, 14, 15, 18))
def debugging(talk: Talk, version: int) -> None:
    name = topic(talk)
    three_batches(talk, name)
    replica: dict[str, Any] = {"replica_id": -2}
    if version >= 15:
        replica = {"replica_state": {"replica_id": -2, "replica_epoch": -1}}
    get(talk, version, (name, [part(0)]), **replica)


# --- frames ---------------------------------------------------------------------------------------


@book.case("a version that is refused", over={str(v): v for v in (-1, 0, 1, 2, 3, 19)})
def refused(talk: Talk, version: int) -> None:
    talk.ask(Raw(ApiKey.FETCH, version, body_of(fetch(talk, 4, (topic(talk), [part(0)])))))


@book.case("a body that is cut", versions=FETCH_VERSIONS)
def cut(talk: Talk, version: int) -> None:
    entity = fetch(talk, version, (topic(talk), [part(0)]))
    talk.ask(raw(entity, body_of(entity)[:-12]))


@book.case("bytes behind the body", versions=SOME_VERSIONS)
def after(talk: Talk, version: int) -> None:
    entity = fetch(talk, version, (topic(talk), [part(0)]))
    talk.ask(raw(entity, body_of(entity) + b"more"))


@book.case("unknown tagged fields", versions=range(12, 19))
def tags(talk: Talk, version: int) -> None:
    asked = fetch(talk, version, (topic(talk), [part(0)]))
    talk.ask(asked, tags={100: b"x"}, header_tags={7: b"abc"})


@book.case("a null array", versions=(4, 7, 12, 18))
def null_array(talk: Talk, version: int) -> None:
    head = b"" if version >= 15 else struct.pack(">i", -1)
    head += struct.pack(">iiib", 0, 0, 1000, 0)
    if version >= 7:
        head += struct.pack(">ii", 0, -1)
    talk.ask(Raw(ApiKey.FETCH, version, head + (b"\0" if version >= 12 else b"\xff" * 4)))
