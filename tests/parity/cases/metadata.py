"""Metadata (3): all topics, none, some; by name and by id; unknown ones, and topics it creates."""

from __future__ import annotations

import uuid
from typing import Any

from kbroker.protocol.wire import encode_unsigned_varint
from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._shapes import add_shapes
from tests.parity.requests import Raw, build
from tests.parity.talk import Talk, View

VERSIONS = range(14)
BY_ID = range(12, 14)
SOME = (0, 4, 8, 9, 10, 13)  # those between which the message changed
UNKNOWN_ID = uuid.UUID("11111111-2222-4333-8444-555555555555")
OTHER_ID = uuid.UUID("11111111-2222-4333-8444-666666666666")

book = Book()
cases = book.cases
Topic = str | None | uuid.UUID | tuple[str | None, uuid.UUID | None]


def ask(
    version: int,
    topics: list[Any] | None,
    *,
    create: bool = False,
    cluster_operations: bool = False,
    topic_operations: bool = False,
) -> Any:
    """Topics by name, by id, or by (name, id)."""
    return build(
        ApiKey.METADATA,
        version,
        topics=None if topics is None else [_topic(topic) for topic in topics],
        allow_auto_topic_creation=create,
        include_cluster_authorized_operations=cluster_operations,
        include_topic_authorized_operations=topic_operations,
    )


def _topic(topic: Topic) -> dict[str, Any]:
    if isinstance(topic, uuid.UUID):
        return {"name": None, "topic_id": topic}
    if isinstance(topic, tuple):
        return {"name": topic[0], "topic_id": topic[1]}
    return {"name": topic, "topic_id": None}


def only_mine(talk: Talk) -> View:
    """All topics, without those of other cases, which are there or not."""

    def view(data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "topics": [t for t in data["topics"] if talk.mine(t["name"])]}

    return view


def all_of(version: int) -> list[Any] | None:
    """The `topics` that ask for all topics: in v0 an empty list, later null."""
    return None if version else []


# --- all, none, some ----------------------------------------------------------------------------


@book.case("all", versions=VERSIONS, over={"operations": True, "no operations": False})
def all_topics(talk: Talk, version: int, operations: bool) -> None:
    for name in ("a", "b", "c"):
        talk.topic(name)
    talk.ask(ask(version, all_of(version), topic_operations=operations), view=only_mine(talk))


@book.case("all after a deletion", versions=SOME)
def all_after_deletion(talk: Talk, version: int) -> None:
    talk.topic("kept")
    talk.delete(talk.topic("gone"))
    talk.ask(ask(version, all_of(version)), view=only_mine(talk))


@book.case("null in v0")
def null_in_v0(talk: Talk) -> None:
    talk.topic()
    talk.ask(Raw(ApiKey.METADATA, 0, b"\xff\xff\xff\xff"), view=only_mine(talk))


@book.case("none", versions=range(1, 14))
def none(talk: Talk, version: int) -> None:
    talk.ask(ask(version, []))


@book.case("one", versions=VERSIONS, over={f"{n} partitions": n for n in (1, 3, 100)})
def one(talk: Talk, version: int, partitions: int) -> None:
    name = talk.topic(partitions=partitions)
    talk.topic_id(name)

    def view(data: dict[str, Any]) -> dict[str, Any]:
        for topic in data["topics"] if partitions == 100 else ():
            found = topic["partitions"]
            topic["partitions"] = [len(found), found[0], found[99]]
        return data

    talk.ask(ask(version, [name]), view=view)


@book.case("some of several", versions=SOME)
def some(talk: Talk, version: int) -> None:
    names = [talk.topic(name) for name in ("a", "b", "c", "d")]
    talk.ask(ask(version, [names[3], names[0], names[2]]))


@book.case("one twice", versions=SOME)
def twice(talk: Talk, version: int) -> None:
    name, none = talk.topic(), talk.name("none")
    if version >= 4:
        talk.ask(ask(version, [name, none, name, none, name]))
    else:  # where naming is creating
        talk.ask(ask(version, [name, name, name]))


@book.case(
    "operations",
    versions=range(8, 14),
    over={
        f"{'cluster' if c else 'no cluster'}, {'topic' if t else 'no topic'}": (c, t)
        for c in (False, True)
        for t in (False, True)
    },
)
def operations(talk: Talk, version: int, flags: tuple[bool, bool]) -> None:
    cluster, topic = flags
    names = [talk.topic(), talk.name("none"), "a b"]
    talk.ask(ask(version, names, cluster_operations=cluster, topic_operations=topic))


# --- unknown topics -----------------------------------------------------------------------------

INVALID = {
    "empty": "",
    "a dot": ".",
    "two dots": "..",
    "a space": "a b",
    "a slash": "a/b",
    "250 chars": "x" * 250,
    "not ASCII": "\u00fc",
    "a line break": "a\nb",
    "a null char": "a\x00b",
}


@book.case("an unknown one", versions=range(4, 14))
def unknown(talk: Talk, version: int) -> None:
    talk.ask(ask(version, [talk.name("none")]))
    talk.ask(ask(version, [talk.topic(), talk.name("none"), talk.name("nor.this_one")]))


@book.case("an unknown one of 249 chars", versions=range(4, 14))
def long_name(talk: Talk, version: int) -> None:
    talk.ask(ask(version, ["x" * 249]))


@book.case("a name that cannot be", versions=(0, 4, 9, 13), over=INVALID)
def invalid(talk: Talk, version: int, name: str) -> None:
    for create in (False, True):
        talk.ask(ask(version, [name], create=create))


@book.case("names that cannot be among others", versions=SOME)
def invalid_among_others(talk: Talk, version: int) -> None:
    talk.ask(ask(version, [*INVALID.values(), talk.topic()]))


@book.case("a name that is not UTF-8", versions=SOME)
def not_utf8(talk: Talk, version: int) -> None:
    talk.ask(raw(version, 1, [b"a\xffb"]))


@book.case("internal ones that are not there", versions=SOME, setup="closed")
def internal(talk: Talk, version: int) -> None:
    names = ["__consumer_offsets", "__transaction_state", "__share_group_state"]
    talk.ask(ask(version, [*names, "__cluster_metadata"]))


# --- topics that are created --------------------------------------------------------------------


@book.case("an unknown one is created", versions=VERSIONS)
def created(talk: Talk, version: int) -> None:
    name = talk.name()
    talk.ask(ask(version, [name], create=True))
    talk.settled(name)
    talk.ask(ask(version, [name], create=True))


@book.case("several unknown ones are created", versions=SOME)
def several_created(talk: Talk, version: int) -> None:
    names = [talk.name(name) for name in ("a", "b", "c")]
    talk.ask(ask(version, [*names, "a b"], create=True))
    talk.settled(*names)
    talk.ask(ask(version, names, create=True))


@book.case("an unknown one is not created where it may not be", versions=SOME, setup="closed")
def not_created(talk: Talk, version: int) -> None:
    name = talk.name()
    talk.ask(ask(version, [name], create=True))
    talk.ask(ask(version, [name], create=False))
    talk.ask(ask(version, all_of(version)), view=only_mine(talk))


@book.case("a deleted one", versions=range(4, 14))
def deleted(talk: Talk, version: int) -> None:
    name = talk.topic()
    old = talk.topic_id(name)
    talk.delete(name)
    talk.ask(ask(version, [name]))
    if version >= 12:
        talk.ask(ask(version, [old]))


@book.case("one that was made again", versions=SOME)
def made_again(talk: Talk, version: int) -> None:
    name = talk.topic()
    old = talk.topic_id(name)
    talk.delete(name)
    talk.topic(partitions=2)
    talk.ask(ask(version, [name]))
    if version >= 12:
        talk.ask(ask(version, [old, talk.topic_id(name)]))


# --- by id --------------------------------------------------------------------------------------


@book.case("by id", versions=BY_ID, over={"operations": True, "no operations": False})
def by_id(talk: Talk, version: int, operations: bool) -> None:
    known = [talk.topic_id(talk.topic(name)) for name in ("a", "b")]
    talk.ask(ask(version, known, topic_operations=operations))
    talk.ask(ask(version, [known[1], UNKNOWN_ID, known[0]], topic_operations=operations))
    talk.ask(ask(version, [UNKNOWN_ID], topic_operations=operations, create=True))


@book.case("an id twice", versions=BY_ID)
def id_twice(talk: Talk, version: int) -> None:
    known = talk.topic_id(talk.topic())
    talk.ask(ask(version, [known, UNKNOWN_ID, known, UNKNOWN_ID, OTHER_ID]))


@book.case("an id and its name", versions=range(10, 14))
def id_and_name(talk: Talk, version: int) -> None:
    name = talk.topic()
    known = talk.topic_id(name)
    talk.ask(ask(version, [(name, known)]))
    talk.ask(ask(version, [(name, UNKNOWN_ID)]))
    talk.ask(ask(version, [(talk.name("none"), known)]))


@book.case("ids and names", versions=range(10, 14))
def ids_and_names(talk: Talk, version: int) -> None:
    a, b = talk.topic("a"), talk.topic("b")
    talk.ask(ask(version, [(a, talk.topic_id(b)), (b, None)]))
    talk.ask(ask(version, [(b, None), (None, talk.topic_id(a))]))
    talk.ask(ask(version, [(a, None), (None, UNKNOWN_ID)]))
    talk.ask(ask(version, [(a, talk.topic_id(a)), (None, UNKNOWN_ID), (b, None)]))


@book.case("neither id nor name", versions=range(10, 14))
def neither(talk: Talk, version: int) -> None:
    name = talk.topic()
    talk.ask(ask(version, [(None, None)]))
    talk.ask(ask(version, [(name, None), (None, None)]))
    talk.ask(ask(version, [(None, talk.topic_id(name)), (None, None)]))


@book.case("an id and no name", versions=range(10, 12))
def id_before_its_time(talk: Talk, version: int) -> None:
    talk.ask(ask(version, [(None, talk.topic_id(talk.topic()))]))


# --- bytes --------------------------------------------------------------------------------------


def raw(
    version: int, count: int, names: list[bytes | None], *, tags: bytes = b"\x00", last: int = 0
) -> Raw:
    """A request that claims `count` topics and has these; `last` is its last truth value."""
    flexible = version >= 9
    out = bytes([count + 1]) if flexible and count < 100 else b""
    if flexible and count >= 100:
        out = encode_unsigned_varint(count + 1)
    if not flexible:
        out = count.to_bytes(4, "big", signed=True)
    for name in names:
        if version >= 10:
            out += bytes(16)
        if flexible:
            out += (b"\x00" if name is None else bytes([len(name) + 1]) + name) + tags
        else:
            out += b"\xff\xff" if name is None else len(name).to_bytes(2, "big") + name
    flags = (version >= 4) + (version in range(8, 11)) + (version >= 8)
    if flags:
        out += bytes(flags - 1) + bytes([last])
    return Raw(ApiKey.METADATA, version, out + (b"\x00" if flexible else b""))


@book.case("a null name", versions=SOME)
def null_name(talk: Talk, version: int) -> None:
    talk.ask(raw(version, 1, [None]))


@book.case(
    "topics that are not there",
    versions=SOME,
    over={"2 of 3": (3, 2), "1 of 60": (60, 1), "none of billions": (2**31 - 2, 0)},
)
def too_few(talk: Talk, version: int, counts: tuple[int, int]) -> None:
    claimed, there = counts
    talk.ask(raw(version, claimed, [b"a b"] * there))


@book.case("a negative count", versions=range(9), over={str(n): n for n in (-2, -(2**31))})
def negative(talk: Talk, version: int, count: int) -> None:
    talk.ask(raw(version, count, []), view=only_mine(talk))


@book.case("a count beyond 31 bits", versions=range(9, 14))
def beyond_31_bits(talk: Talk, version: int) -> None:
    talk.topic()
    talk.ask(raw(version, 2**32 - 2, []), view=only_mine(talk))


@book.case("a name of negative size", versions=range(9))
def negative_name(talk: Talk, version: int) -> None:
    talk.ask(Raw(ApiKey.METADATA, version, b"\x00\x00\x00\x01\xff\xfe" + bytes(3)))


@book.case("a truth value of 2", versions=range(8, 14))
def truth(talk: Talk, version: int) -> None:
    talk.ask(raw(version, 1, [talk.topic().encode()], last=2))


@book.case("unknown tags in a topic", versions=range(9, 14))
def tags_in_a_topic(talk: Talk, version: int) -> None:
    talk.ask(raw(version, 1, [talk.topic().encode()], tags=b"\x02\x05\x01x\x09\x00"))


@book.case(
    "tags that cannot be",
    versions=range(9, 14),
    over={
        "out of order": b"\x02\x09\x00\x05\x01x",
        "twice the same": b"\x02\x09\x00\x09\x01x",
        "too long": b"\x01\x09\x70x",
        "too many": b"\x7f\x09\x00",
    },
)
def impossible_tags(talk: Talk, version: int, tags: bytes) -> None:
    talk.ask(raw(version, 1, [talk.topic().encode()], tags=tags))


# --- several ------------------------------------------------------------------------------------


@book.case("ten in one piece", versions=SOME)
def pipelined(talk: Talk, version: int) -> None:
    names = [talk.topic(name) for name in ("a", "b")]
    talk.main.hold()
    for i in range(10):
        talk.send(ask(version, [names[i % 2]]))
    talk.main.release()
    for _ in range(10):
        talk.receive()


@book.case("every version in one piece")
def all_versions_pipelined(talk: Talk) -> None:
    name = talk.topic()
    talk.main.hold()
    for version in VERSIONS:
        talk.send(ask(version, [name]))
    talk.main.release()
    for _ in VERSIONS:
        talk.receive()


@book.case("closed behind answers", versions=SOME)
def closed_behind_answers(talk: Talk, version: int) -> None:
    """Requests before the bytes that close a connection are answered."""
    name = talk.topic()
    talk.ask(ask(version, [name]))
    talk.main.hold()
    talk.send(Raw(ApiKey.METADATA, version, b"\x00"))
    talk.send(ask(version, [name]))
    talk.main.release()
    for _ in range(3):
        talk.receive()


add_shapes(book, ApiKey.METADATA, VERSIONS, lambda talk, version: ask(version, ["a b"]))
