"""Frames and headers, before the request is known: sizes, keys, versions, cut streams."""

from __future__ import annotations

import struct
from typing import Any

from kbroker.protocol.versions import SERVED, is_flexible
from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.requests import Bytes, Raw, build, header
from tests.parity.talk import Talk

book = Book()
cases = book.cases

CLUSTER = ApiKey.DESCRIBE_CLUSTER
METADATA = ApiKey.METADATA
OLD = b"\x00\x00\x00\x00" + b"\x00"  # Metadata v4: no topics, nothing created


def probe() -> Any:
    """Asked after the tried frame, to see whether the connection lives."""
    return build(CLUSTER, 0)


# --- keys and versions --------------------------------------------------------------------------

UNKNOWN_KEYS = (-1, -32_768, 93, 100, 200, 1_000, 32_767)
# Of ZooKeeper's time, of brokers among themselves and of controllers.
INTERNAL_KEYS = (4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82)


@book.case("a key that is not served", over={str(k): k for k in (*UNKNOWN_KEYS, *INTERNAL_KEYS)})
def unserved(talk: Talk, key: int) -> None:
    for version in (0, 1):
        connection = talk.connect()
        connection.send(Raw(key, version, b"\x00\x00\x00\x00"))
        connection.send(probe())
        connection.receive()


def _wrong_versions() -> dict[str, tuple[int, int]]:
    wrong = {}
    for key, served in SERVED.items():
        if key is ApiKey.API_VERSIONS:
            continue  # answers in its own way: api_versions
        for version in sorted({-32_768, -1, served.min - 1, 32_767}):
            if version not in served and version >= -32_768:
                wrong[f"{key.label} {version}"] = (int(key), version)
    return wrong


@book.case("a version that is not served", over=_wrong_versions())
def wrong_version(talk: Talk, asked: tuple[int, int]) -> None:
    talk.main.hold()
    talk.send(Raw(*asked, b"\x00" * 40))
    talk.send(probe())
    talk.main.release()
    talk.receive()
    talk.receive()


NEWER = (
    (ApiKey.METADATA, 14), (ApiKey.CREATE_TOPICS, 8), (ApiKey.DELETE_TOPICS, 7),
    (ApiKey.FIND_COORDINATOR, 7), (ApiKey.DESCRIBE_CLUSTER, 3), (ApiKey.PRODUCE, 14),
    (ApiKey.FETCH, 19), (ApiKey.LIST_OFFSETS, 12), (ApiKey.DESCRIBE_CONFIGS, 5),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, 5), (ApiKey.CREATE_PARTITIONS, 4),
    (ApiKey.DELETE_RECORDS, 3), (ApiKey.ALTER_CONFIGS, 3), (ApiKey.INCREMENTAL_ALTER_CONFIGS, 2),
    (ApiKey.INIT_PRODUCER_ID, 7),
)  # fmt: skip


@book.case("a newer version", over={f"{k.label} {v}": (k, v) for k, v in NEWER})
def newer(talk: Talk, asked: tuple[ApiKey, int]) -> None:
    talk.send(Raw(*asked, b"\x00" * 40))
    talk.receive()


@book.case("a version that is not served behind answers")
def behind_answers(talk: Talk) -> None:
    talk.ask(probe())
    talk.main.hold()
    talk.send(Raw(METADATA, 99, b""))
    talk.send(probe())
    talk.main.release()
    talk.receive()


# --- sizes --------------------------------------------------------------------------------------

SIZES = {
    "0": 0,
    "1": 1,
    "-1": -1,
    "-2147483648": -(2**31),
    "104857601": 104_857_601,
    "2147483647": 2**31 - 1,
}


@book.case("a frame that announces", over=SIZES)
def announced(talk: Talk, size: int) -> None:
    talk.send(Bytes(b"\x00" * 64, announced=size))
    talk.main.end_of_requests()
    talk.receive()


@book.case("a frame shorter than its header", over={f"{n} bytes": n for n in range(1, 14)})
def short(talk: Talk, size: int) -> None:
    """A request of Metadata v12 with a client id of two bytes, cut within its header."""
    whole = header(METADATA, 12, 1, "ab")
    talk.send(Bytes(whole[:size]))
    talk.main.end_of_requests()
    talk.receive()


@book.case("a stream that ends", over={f"after {n} bytes": n for n in (0, 1, 3, 4, 5, 10, 20)})
def stream_ends(talk: Talk, size: int) -> None:
    whole = header(METADATA, 12, 1, "ab") + b"\x01\x00\x00\x00"
    talk.main.send_bytes((struct.pack(">i", len(whole)) + whole)[:size])
    talk.main.end_of_requests()
    talk.receive()


@book.case("a stream that ends behind requests")
def ends_behind(talk: Talk) -> None:
    for _ in range(3):
        talk.send(probe())
    talk.main.end_of_requests()
    for _ in range(4):
        talk.receive()


@book.case("a frame in pieces of", over={f"{n} bytes": n for n in (1, 2, 3, 7)})
def pieces(talk: Talk, size: int) -> None:
    """With time between them, so that the broker reads some of them apart."""
    head = header(METADATA, 12, talk.main._correlation_id, "ab")
    whole = head + b"\x01\x00\x00\x00"
    data = struct.pack(">i", len(whole)) + whole
    talk.main.expect(METADATA, 12, talk.main._correlation_id)
    for start in range(0, len(data), size):
        talk.main.send_bytes(data[start : start + size])
        talk.quietly(probe())
    talk.receive()


# --- headers ------------------------------------------------------------------------------------


def _with_client_id(key: int, version: int, size: int, text: bytes) -> bytes:
    return struct.pack(">hhih", key, version, 1, size) + text


CLIENT_IDS = {
    "of -2 bytes": (-2, b""),
    "of -32768 bytes": (-32_768, b""),
    "longer than the frame": (1_000, b"ab"),
    "that takes all that is left": (5, b"abcde"),
    "of one byte less": (6, b"abcde"),
}


@book.case("a client id", versions=(4, 12), over=CLIENT_IDS)
def client_id(talk: Talk, version: int, asked: tuple[int, bytes]) -> None:
    size, text = asked
    tags = b"\x00" if is_flexible(METADATA, version) else b""
    body = b"\x01\x00\x00\x00" if tags else OLD
    talk.main.expect(METADATA, version, 1)
    talk.send(Bytes(_with_client_id(METADATA, version, size, text) + tags + body))
    talk.main.end_of_requests()
    talk.receive()


TAGS = {
    "one": b"\x01\x07\x01x",
    "one, empty": b"\x01\x07\x00",
    "two": b"\x02\x07\x01x\x08\x02yz",
    "out of order": b"\x02\x08\x01x\x07\x01x",
    "twice the same": b"\x02\x07\x01x\x07\x01y",
    "the client id's": b"\x01\x00\x02\x61\x62",
    "longer than the frame": b"\x01\x07\x7f",
    "more than there are": b"\x05\x07\x01x",
    "billions": b"\xff\xff\xff\xff\x07",
    "a varint of six bytes": b"\xff\xff\xff\xff\xff\x01",
    "a large number": b"\x01\xff\xff\xff\xff\x07\x01x",
    "a size in five bytes": b"\x01\x07\x81\x80\x80\x80\x00x",
}


@book.case("tags of the header", over=TAGS)
def tags(talk: Talk, section: bytes) -> None:
    head = header(METADATA, 12, 1, "ab")[:-1]
    talk.main.expect(METADATA, 12, 1)
    talk.send(Bytes(head + section + b"\x01\x00\x00\x00"))
    talk.main.end_of_requests()
    talk.receive()


@book.case("a correlation id", over={str(n): n for n in (0, -1, 2**31 - 1, -(2**31))})
def correlation_id(talk: Talk, number: int) -> None:
    talk.main.expect(METADATA, 12, number)
    talk.send(Bytes(header(METADATA, 12, number, "ab") + b"\x01\x00\x00\x00"))
    talk.receive()


@book.case("a correlation id three times")
def same_correlation_id(talk: Talk) -> None:
    for version in (4, 12, 4):
        talk.main.expect(METADATA, version, 7)
        body = b"\x01\x00\x00\x00" if version == 12 else OLD
        talk.send(Bytes(header(METADATA, version, 7, "ab") + body))
        talk.receive()


@book.case("a large client id and a large body", versions=(4, 12))
def large(talk: Talk, version: int) -> None:
    names = [{"name": "x" * 240 + f" {i}", "topic_id": None} for i in range(200)]
    asked = build(METADATA, version, topics=names, allow_auto_topic_creation=False)

    def view(data: dict[str, Any]) -> dict[str, Any]:
        codes = {topic["error_code"] for topic in data["topics"]}
        return {**data, "topics": [len(data["topics"]), *sorted(codes)]}

    talk.ask(asked, client_id="c" * 32_767, view=view)
