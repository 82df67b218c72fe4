"""What consumers of the classic protocol say to each other in bytes that a group passes on.

A member's metadata in JoinGroup is a subscription, the leader's bytes for each member in SyncGroup
are an assignment; both begin with a version of their own. To a classic group they are opaque. A
consumer group reads subscriptions, since it assigns itself, and writes assignments.

| subscription | since | assignment | since |
|---|---|---|---|
| topics: names | 0 | partitions by topic's name | 0 |
| bytes of the assignor, null or any | 0 | bytes of the assignor, null or any | 0 |
| partitions that it owns, by topic's name | 1 | | |
| the generation in which it got them | 2 | | |
| rack, or null | 3 | | |

A later version is read as the last one that is known: it has the same beginning. The bytes come
from clients and are hostile: counts and lengths are compared with the bytes left (`wire.Reader`).
Pure functions; any thread. Source: the consumer's embedded protocol (KIP-429, KIP-792, KIP-881).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kbroker.protocol.wire import ProtocolError, Reader, Writer

LAST_VERSION: Final = 3
_SINCE_OWNED: Final = 1
_SINCE_RACK: Final = 3
_NO_BYTES: Final = -1

# Topic's name -> partitions.
Named = Mapping[str, frozenset[int]]


class Malformed(ValueError):
    """The bytes are not what a consumer sends."""


class Subscription(NamedTuple):
    """`owned`: what the member has, by its own words; {} before version 1."""

    topics: tuple[str, ...]  # sorted, each once
    owned: Named
    rack_id: str | None


class Assignment(NamedTuple):
    """`has_more`: the leader's assignor had something to say besides."""

    partitions: Named
    has_more: bool


NOTHING: Final = Assignment({}, has_more=False)


def version_of(data: bytes) -> int:
    """The version in which its sender reads an assignment; Malformed."""
    try:
        version = Reader(data, flexible=False).int16()
    except ProtocolError as error:
        raise Malformed(str(error)) from error
    if version < 0:
        raise Malformed(f"version {version}")
    return min(version, LAST_VERSION)


def subscription_of(data: bytes) -> Subscription:
    """What a member subscribes to; Malformed."""
    version = version_of(data)
    reader = Reader(data, flexible=False)
    owned: Named = {}
    rack_id = None
    try:
        reader.int16()
        topics = {reader.string() for _ in range(reader.array())}
        reader.nullable_bytes()
        if version >= _SINCE_OWNED:
            owned = _partitions(reader)
        if version >= _SINCE_RACK:
            reader.int32()  # the generation
            rack_id = reader.nullable_string()
    except ProtocolError as error:
        raise Malformed(str(error)) from error
    return Subscription(tuple(sorted(topics)), owned, rack_id or None)


def assignment_of(data: bytes) -> Assignment:
    """What a leader gave a member; no bytes are of a member that was given nothing yet.
    Malformed."""
    if not data:
        return NOTHING
    version_of(data)
    reader = Reader(data, flexible=False)
    try:
        reader.int16()
        return Assignment(_partitions(reader), bool(reader.nullable_bytes()))
    except ProtocolError as error:
        raise Malformed(str(error)) from error


def _partitions(reader: Reader) -> Named:
    found: dict[str, set[int]] = {}
    for _ in range(reader.array()):
        some = found.setdefault(reader.string(), set())
        some.update(reader.int32() for _ in range(reader.array()))
    return {name: frozenset(some) for name, some in found.items() if some}


def assignment_bytes(version: int, partitions: Iterable[tuple[str, Iterable[int]]]) -> bytes:
    """An assignment, of topics by name, for a member that reads this version."""
    topics = sorted((name, sorted(some)) for name, some in partitions)
    out = Writer(flexible=False)
    out.int16(min(version, LAST_VERSION))
    out.array(len(topics))
    for name, some in topics:
        out.string(name)
        out.array(len(some))
        for index in some:
            out.int32(index)
    out.int32(_NO_BYTES)
    return out.getvalue()
