"""Produce (0): timestamps that no clock shows; their type, which is not a client's choice."""

from __future__ import annotations

from typing import Final

from tests.parity.book import Book
from tests.parity.data import (
    T0,
    batch,
    changed,
    fetch,
    in_short,
    part,
    produce,
    topic,
)
from tests.parity.talk import Talk
from tests.support.record_batches import Record, build_batch

book = Book()
cases = book.cases

LEAST: Final = -(2**63)
LARGEST: Final = 2**63 - 1
LATER: Final = 4_102_444_800_000  # the year 2100
BIT: Final = 0x08
CODECS: Final = {"none": 0, "gzip": 1, "zstd": 4}

TOPICS: Final[dict[str, dict[str, str]]] = {
    "its own time": {},
    "any time": {"message_timestamp_after_max_ms": str(LARGEST)},
    "times of 1 s": {"message_timestamp_before_max_ms": "1000"},
    "log append time": {"message_timestamp_type": "LogAppendTime"},
}


def at(*times_ms: int, codec: str = "none") -> bytes:
    """Its base is the first time, from which the others differ by an int64."""
    records = [
        Record(b"v", b"k", times_ms[0] + (t - times_ms[0] + 2**63) % 2**64 - 2**63)
        for t in times_ms
    ]
    return build_batch(records, codec=codec, max_timestamp_ms=max(times_ms))


BATCHES: Final = {
    "the least time": at(LEAST),
    "the least but one": at(LEAST + 1),
    "the largest time": at(LARGEST),
    "-2": at(-2),
    "a good one and the least": at(T0, LEAST),
    "one that wraps to the least": at(LARGEST, LEAST),
    "one that wraps to the largest": at(LEAST, LARGEST),
    "one that wraps to a good one": at(LARGEST, T0),
    "a header of the least time": changed(at(T0), max_timestamp=LEAST),
    "a header of the largest time": changed(at(T0), max_timestamp=LARGEST),
    "a header of -1": changed(at(T0), max_timestamp=-1),
    "the bit": changed(at(T0, T0 + 1), attributes=BIT),
    "the bit and a header of -1": changed(at(T0), attributes=BIT, max_timestamp=-1),
    "the bit and a header of 2100": changed(at(T0), attributes=BIT, max_timestamp=LATER),
    "the bit and a record of 2100": changed(at(T0, LATER), attributes=BIT, max_timestamp=T0),
    "the bit and a record of -1": changed(at(-1), attributes=BIT, max_timestamp=T0),
}


@book.case("to a topic with", versions=(3, 13), over={
    f"{where}: {name}": (configs, data)
    for where, configs in TOPICS.items()
    for name, data in BATCHES.items()
})  # fmt: skip
def times(talk: Talk, version: int, each: tuple[dict[str, str], bytes]) -> None:
    configs, data = each
    _put_and_look(talk, version, configs, data)


@book.case("packed, to a topic with", versions=(13,), over={
    f"{where}: {name} in {codec}": (
        configs, changed(at(*times_ms, codec=codec), attributes=BIT | CODECS[codec] if bit else
                         CODECS[codec], max_timestamp=max_ms))
    for where, configs in TOPICS.items()
    for codec in ("gzip", "zstd")
    for name, times_ms, bit, max_ms in (
        ("the least time", [LEAST], False, LEAST),
        ("one that wraps", [LARGEST, LEAST], False, LARGEST),
        ("the bit", [T0, T0 + 1], True, T0 + 1),
        ("the bit and a header of -1", [T0], True, -1),
        ("the bit and a record of 2100", [T0, LATER], True, T0),
    )
})  # fmt: skip
def packed(talk: Talk, version: int, each: tuple[dict[str, str], bytes]) -> None:
    configs, data = each
    _put_and_look(talk, version, configs, data)


def _put_and_look(talk: Talk, version: int, configs: dict[str, str], data: bytes) -> None:
    name = topic(talk, **configs)
    talk.ask(produce(talk, version, (name, {0: data})), view=in_short)
    talk.ask(produce(talk, version, (name, {0: batch(b"next")})), view=in_short)
    talk.ask(fetch(talk, 12, (name, [part(0)])), view=in_short)
