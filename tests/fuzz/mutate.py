"""One hostile frame for every (seed, number): a sound frame with something done to it.

`Maker.block(b)` makes the frames of BLOCK consecutive numbers from one generator keyed by the seed
and the block, so any frame can be made again alone, and ten million cost minutes. Each frame says
how it wants to be sent:

    CALM   most likely answered: many of them in one write
    ROUGH  may well end the connection: few in a write
    LAST   breaks the framing: alone, and the sending side is shut after it
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import numpy as np

from tests.fuzz.batches import EDGES, Pool, Take, blind, heavy, hostile, make_pool
from tests.fuzz.corpus import (
    ABSENT,
    CHURN_WEIGHT,
    DELETE_TOPICS,
    FETCH,
    PRODUCE,
    TARGETS,
    WEIGHTS,
    Ids,
    Template,
    churn,
    templates,
)
from tests.fuzz.excess import excessive
from tests.fuzz.schema import Spot, unsigned_varint

CALM, ROUGH, LAST = 0, 1, 2
BLOCK: Final = 1024
_WORDS: Final = 40
EXCESS_OF_1000: Final = 4  # each is some hundred times as long as the others
_CORRELATION_MASK: Final = 0x3FFFFFFF
_CORRELATION_SHIFT: Final = 3  # one that is off by one is no other frame's
_DELETE_TOPICS: Final = struct.pack(">h", DELETE_TOPICS)
# What a deletion names instead of a target, or of the topic that groups live in: a name of the same
# length that no frame has.
_GROUPS_TOPIC: Final = "__consumer_offsets"
_SPARED: Final = {
    name.encode(): ABSENT.ljust(99, "-")[: len(name)].encode() for name in (*TARGETS, _GROUPS_TOPIC)
}
_INT32: Final = struct.Struct(">i")
_FORMS: Final = {"1": ">b", "2": ">h", "4": ">i", "8": ">q"}

Frame = tuple[int, bytes]

_LENGTHS16: Final = tuple(struct.pack(">h", v) for v in EDGES[2])
_LENGTHS32: Final = tuple(struct.pack(">i", v) for v in (*EDGES[4], 1_000_000, 100_000_000))
_FIXED: Final = {
    kind: tuple(struct.pack(form, value) for value in EDGES[int(kind)])
    for kind, form in _FORMS.items()
}
_COMPACT_EDGES: Final = (
    *(0, 1, 2, 3, 16, 127, 128, 16_383, 100_001, 1_000_001),
    *(2**31 - 1, 2**31, 2**32 - 1),
)
_COMPACT: Final = (
    *map(unsigned_varint, _COMPACT_EDGES),
    *(b"\x80\x00", b"\x81\x80\x80\x80\x00", b"\x80" * 5, b"\xff" * 5, b"\xff" * 10),
)
_TAGS: Final = (
    b"\x01\x63\x01x",  # unknown and sound: to be stepped over
    b"\x03\x40\x00\x41\x02ab\x42\x00",
    unsigned_varint(200) + b"".join(unsigned_varint(1_000 + i) + b"\x01x" for i in range(200)),
    b"\x01\x00\x00", b"\x01\x00\x01\x00", b"\x02\x00\x01\x00\x00\x01\x00", b"\x01\x01\x04\x00\x00",
    b"\x01\x63\x7f", b"\x01\x63\xff\xff\xff\xff\x0f", b"\x7f", b"\xff\xff\xff\xff\x0f",
    unsigned_varint(10_001) + b"\x63\x00" * 20, b"\x01\xff\xff\xff\xff\x1f\x00", b"\x80" * 6,
)  # fmt: skip
_TEXTS: Final = (
    b"", b"\0", b"\xff\xfe", b"\xc0\x80", b"..", b"../../etc", b"a/b", b"n" * 249, b"n" * 250,
    b"n" * 3_000, b"target-plain", b"__consumer_offsets", b"\xf0\x9f\x98\x80" * 9, b"%s%n%x",
    b"\n", b"line\n[2026-01-01 00:00:00,000] ERROR forged (kbroker.log)\n", b"\x1b[2J\x1b]0;t\x07",
    b"\xff" * 10_000, b"\xff" * 32_767, b"t" * 32_767, b"\xed\xa0\x80" * 40, b"a\r\0b\t'\"\\",
    "\u202e\u2066\u200b".encode(),
)  # fmt: skip
_STRANGERS: Final = (
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x5a" * 90,
    b"\0\0\0\0" * 5,
    b"\xff" * 40,
    b"SSH-2.0-OpenSSH_9.2\r\n",
)


def framed(payload: bytes) -> bytes:
    return _INT32.pack(len(payload)) + payload


class Maker:
    """All frames of a seed. `ids` are the topic ids of the broker under test: frames that name a
    topic by id differ between brokers in these sixteen bytes and in nothing else."""

    def __init__(self, seed: int, ids: Ids) -> None:
        self._seed = seed
        self._pool: Pool = make_pool(seed)
        by_key = templates(ids)
        self._all = [each for versions in by_key.values() for each in versions]
        self._produce = by_key.pop(PRODUCE)
        self._fetch = by_key.pop(FETCH)
        self._cold = list(by_key.values())
        self._churn = churn(ids)

    def frame(self, number: int) -> Frame:
        return self.block(number // BLOCK)[number % BLOCK]

    def block(self, number: int) -> list[Frame]:
        first = number * BLOCK
        made = [self._make(first + at, words) for at, words in enumerate(self._words(number))]
        return [(kind, _spared(frame)) for kind, frame in made]

    def sound(self, number: int) -> list[Frame]:
        """As many frames with nothing wrong, in the same mix: the load to compare with."""
        make = self._unchanged
        first = number * BLOCK
        return [make(first + at, words) for at, words in enumerate(self._words(number))]

    def batches(self) -> Iterator[tuple[str, bytes]]:
        """The pool's dearest batches, each to each of the topics, by name."""
        newest = self._produce[-1].version
        targets = [t for t in self._produce if t.version == newest and t.target in TARGETS]
        for case, batch in heavy():
            for template in targets:
                data = _with_records(template, template.data, batch, None)
                yield f"{case} to {template.target}", framed(_numbered(data, 1))

    def _words(self, block: int) -> list[list[int]]:
        source = np.random.Generator(np.random.Philox(key=[self._seed, block]))
        words: list[list[int]] = source.integers(
            0, 2**32, size=(BLOCK, _WORDS), dtype=np.uint32
        ).tolist()
        return words

    def _draw(self, take: Take) -> Template:
        draw = take() % 1000
        if draw < WEIGHTS[PRODUCE]:
            return self._produce[take() % len(self._produce)]
        if draw < WEIGHTS[PRODUCE] + WEIGHTS[FETCH]:
            return self._fetch[take() % len(self._fetch)]
        versions = self._cold[take() % len(self._cold)]
        return versions[take() % len(versions)]

    def _unchanged(self, number: int, words: list[int]) -> Frame:
        take = iter(words).__next__
        template = self._draw(take)
        data = template.data
        if template.key == PRODUCE:
            sound = self._pool.sound
            data = _with_records(template, data, sound[take() % len(sound)].sealed, None)
        return CALM, framed(_numbered(data, number))

    def _make(self, number: int, words: list[int]) -> Frame:
        take = iter(words).__next__
        template = self._draw(take)
        level = take() % 1000
        if take() % 1000 < EXCESS_OF_1000:
            if take() % 2:  # every API alike
                template = self._all[take() % len(self._all)]
            return ROUGH, framed(_numbered(excessive(template, take), number))
        if level < 20:
            return LAST, self._broken_frame(template, number, take)
        if level < 25:
            return ROUGH, framed(_with_key(_numbered(template.data, number), take()))
        if level < 50:
            data = _numbered(self._whole(template, template.data, take), number)
            return ROUGH, framed(_wrong_spots(data, template.header_spots, take)[1])
        if template.key == PRODUCE:
            return self._produce_frame(template, number, level, take)
        if level < 50 + int(1000 * CHURN_WEIGHT):
            template = self._churn[take() % len(self._churn)]
            return CALM, framed(_numbered(template.data, number))
        if level < 350:
            return CALM, framed(_numbered(template.data, number))
        if level < 390:
            begin = template.header_spots[-1].end
            data = template.data[:begin] + blind(template.data[begin:], take)
            return ROUGH, framed(_numbered(data, number))
        kind, data = _wrong_spots(template.data, template.spots or template.header_spots, take)
        return kind, framed(_numbered(data, number))

    def _produce_frame(self, template: Template, number: int, level: int, take: Take) -> Frame:
        if level < 920:
            data = _with_records(template, template.data, hostile(self._pool, take), None)
            return CALM, framed(_numbered(data, number))
        batch = self._pool.sound[take() % len(self._pool.sound)].sealed
        if level < 980:
            kind, data = _wrong_spots(template.data, template.spots or template.header_spots, take)
            data = _with_records(template, data, batch, None)
        else:
            kind, data = ROUGH, _with_records(template, template.data, batch, take())
        return kind, framed(_numbered(data, number))

    def _whole(self, template: Template, data: bytes, take: Take) -> bytes:
        if template.key != PRODUCE:
            return data
        sound = self._pool.sound
        return _with_records(template, data, sound[take() % len(sound)].sealed, None)

    def _broken_frame(self, template: Template, number: int, take: Take) -> bytes:
        payload = _numbered(self._whole(template, template.data, take), number)
        size = len(payload)
        case = take() % 8
        if case < 3:
            sizes = (
                -(2**31), -2, -1, 0, 1, 4, 7, 8, 9, size - 1, size + 1, size - 4, size + 4,
                100 << 20, (100 << 20) + 1, 1 << 30, 2**31 - 1,
            )  # fmt: skip
            return _INT32.pack(sizes[take() % len(sizes)]) + payload
        if case == 3:
            return framed(payload)[: take() % (size + 4)]
        if case == 4:
            return framed(payload + framed(payload))
        if case == 5:
            return framed(payload[: 8 + take() % (size - 8)])
        if case == 6:
            return _STRANGERS[take() % len(_STRANGERS)]
        return framed(blind(payload, take)) + framed(payload)[: take() % size]


def _numbered(data: bytes, number: int) -> bytes:
    correlation_id = number << _CORRELATION_SHIFT & _CORRELATION_MASK
    return data[:4] + _INT32.pack(correlation_id) + data[8:]


def _with_key(data: bytes, key: int) -> bytes:
    """Any of the 65,536 keys: the broker may mean something of its own by one (-1000 did)."""
    return (key & 0xFFFF).to_bytes(2, "big") + data[2:]


def _spared(frame: bytes) -> bytes:
    """The same, but no deletion of a topic that the other frames need.

    One would do it sooner or later: its key or its text is made to say so. From then on a run
    would reach a part of its aim, and which part would depend on the order of the frames.
    """
    if frame[4:6] == _DELETE_TOPICS:
        for name, spared in _SPARED.items():
            frame = frame.replace(name, spared)
    return frame


def _with_records(template: Template, head: bytes, batch: bytes, lie: int | None) -> bytes:
    """The batch after its length; a `lie` is a length that is not its own."""
    if template.flexible:
        length = unsigned_varint(len(batch) + 1)
        if lie is not None:
            length = _COMPACT[lie % len(_COMPACT)]
    else:
        length = _INT32.pack(len(batch))
        if lie is not None:
            length = _LENGTHS32[lie % len(_LENGTHS32)]
    return head + length + batch + template.tail


def _wrong_spots(data: bytes, spots: tuple[Spot, ...], take: Take) -> Frame:
    """One field with another value, sometimes two; ROUGH where the shape may be lost."""
    at = take() % len(spots)
    if spots[at].kind not in _FIXED and take() % 2:
        at = take() % len(spots)  # shapes end connections: numbers are drawn more often
    first = spots[at]
    length = spots[at - 1] if at else first
    if first.kind == "text" and length.end == first.begin and take() % 4:
        begin, kind, data = length.begin, ROUGH, _other_text(data, length, first, take)
    else:
        begin = first.begin
        kind, data = _wrong_spot(data, first, take)
    if take() % 4 == 0:
        second = spots[take() % len(spots)]
        if second.end <= begin:  # the places before what was changed are still right
            other, data = _wrong_spot(data, second, take)
            kind = max(kind, other)
    return kind, data


def _other_text(data: bytes, length: Spot, text: Spot, take: Take) -> bytes:
    """Another text with the length that it has: what is wrong is what it says."""
    choice = take()
    new = _TEXTS[choice % len(_TEXTS)]
    if choice & 1 << 20:
        new = data[text.begin : text.end] + new[: choice >> 8 & 0xFF]
    if length.kind == "varint":
        size = unsigned_varint(len(new) + 1)
    else:
        size = struct.pack(">h" if length.kind == "length16" else ">i", len(new))
    return data[: length.begin] + size + new + data[text.end :]


def _wrong_spot(data: bytes, spot: Spot, take: Take) -> Frame:
    begin, end, kind = spot
    choice = take()
    if kind in _FIXED:
        values = _FIXED[kind]
        if choice % 5 == 0:
            value = bytearray(data[begin:end])
            value[-1] = (value[-1] + (1, -1)[choice >> 8 & 1]) & 0xFF
        else:
            value = bytearray(values[(choice >> 3) % len(values)])
        # A wait that may now be weeks long: the connection is given up, so few go with it.
        waits = data[:2] == b"\0\1" and kind == "4"
        return ROUGH if waits and take() % 4 == 0 else CALM, data[:begin] + value + data[end:]
    if kind == "uuid":
        value = bytearray(data[begin:end])
        value[choice % 16] ^= 1 << (choice >> 8) % 8
        return CALM, data[:begin] + (bytes(16) if choice & 1 << 20 else value) + data[end:]
    if kind == "tags":
        new = _TAGS[choice % len(_TAGS)]
    elif kind == "text":
        new = _TEXTS[choice % len(_TEXTS)] if choice & 1 << 20 else blind(data[begin:end], take)
    elif kind == "length16":
        new = _LENGTHS16[choice % len(_LENGTHS16)]
    elif kind == "varint":
        new = _COMPACT[choice % len(_COMPACT)]
        if choice & 1 << 20:
            new = bytes([(data[begin] + (1, -1)[choice >> 8 & 1]) & 0xFF])
    else:
        new = _LENGTHS32[choice % len(_LENGTHS32)]
    return ROUGH, data[:begin] + new + data[end:]
