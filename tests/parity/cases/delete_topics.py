"""DeleteTopics (20): by name and by id, unknown topics, and topics that are named twice."""

from __future__ import annotations

import uuid
from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._shapes import add_shapes
from tests.parity.requests import Raw, body_of, build
from tests.parity.talk import Talk

VERSIONS = range(1, 7)
UNKNOWN_ID = uuid.UUID("11111111-2222-4333-8444-555555555555")

book = Book()
cases = book.cases
Topic = str | None | uuid.UUID | tuple[str | None, uuid.UUID | None]


def ask(version: int, *topics: Topic, timeout: int = 30_000) -> Any:
    return build(
        ApiKey.DELETE_TOPICS,
        version,
        topic_names=[topic for topic in topics if isinstance(topic, str)],
        topics=[_topic(topic) for topic in topics],
        timeout=timeout,
    )


def _topic(topic: Topic) -> dict[str, Any]:
    if isinstance(topic, uuid.UUID):
        return {"name": None, "topic_id": topic}
    if isinstance(topic, tuple):
        return {"name": topic[0], "topic_id": topic[1]}
    return {"name": topic, "topic_id": None}


# --- by name ------------------------------------------------------------------------------------


@book.case("one, and once more", versions=VERSIONS)
def one(talk: Talk, version: int) -> None:
    name = talk.topic()
    talk.topic_id(name)
    talk.ask(ask(version, name))
    talk.gone(name)
    talk.ask(ask(version, name))


@book.case("several", versions=VERSIONS)
def several(talk: Talk, version: int) -> None:
    names = [talk.topic(name) for name in ("b", "a", "c")]
    for name in names:
        talk.topic_id(name)
    talk.ask(ask(version, *names, talk.name("none")))
    talk.gone(*names)


@book.case("none", versions=VERSIONS)
def nothing(talk: Talk, version: int) -> None:
    talk.ask(ask(version))


@book.case("names that are not there", versions=VERSIONS)
def unknown(talk: Talk, version: int) -> None:
    bad = ("", ".", "..", "a b", "a/b", "x" * 250, "\u00fc", "a\nb")
    talk.ask(ask(version, talk.name("none"), *bad))


@book.case("a name twice", versions=VERSIONS)
def twice(talk: Talk, version: int) -> None:
    name = talk.topic()
    talk.topic_id(name)
    talk.ask(ask(version, name, talk.name("none"), name, talk.name("none")))
    talk.note("is there", talk._metadata(name).error_code.value == 0)
    talk.ask(ask(version, "a b", "a b", name))


@book.case("internal ones that are not there", versions=VERSIONS)
def internal(talk: Talk, version: int) -> None:
    names = ("__consumer_offsets", "__transaction_state", "__share_group_state")
    talk.ask(ask(version, *names, "__cluster_metadata"))


@book.case("a time-out", versions=VERSIONS, over={str(ms): ms for ms in (0, -1, -(2**31))})
def timeout(talk: Talk, version: int, timeout_ms: int) -> None:
    talk.ask(ask(version, talk.name("none"), "a b", timeout=timeout_ms))


@book.case("the longest time-out", versions=VERSIONS)
def longest_timeout(talk: Talk, version: int) -> None:
    name = talk.topic()
    talk.topic_id(name)
    talk.ask(ask(version, name, timeout=2**31 - 1))


@book.case("where it is switched off", versions=VERSIONS, setup="closed")
def switched_off(talk: Talk, version: int) -> None:
    name = talk.topic()
    talk.topic_id(name)
    talk.ask(ask(version, name, talk.name("none"), "a b", name))
    talk.ask(ask(version))
    talk.ask(ask(version, name, timeout=0))
    if version >= 6:
        talk.ask(ask(version, UNKNOWN_ID, talk.topic_id(name), (None, None)))
    talk.note("is there", talk._metadata(name).error_code.value == 0)


# --- by id --------------------------------------------------------------------------------------


@book.case("by id, and once more v6")
def by_id(talk: Talk) -> None:
    name = talk.topic()
    known = talk.topic_id(name)
    talk.ask(ask(6, known))
    talk.gone(name)
    talk.ask(ask(6, known))


@book.case("ids and names v6")
def ids_and_names(talk: Talk) -> None:
    a, b = talk.topic("a"), talk.topic("b")
    ids = [talk.topic_id(a), talk.topic_id(b)]
    talk.ask(ask(6, ids[0], b, UNKNOWN_ID, talk.name("none")))
    talk.gone(a, b)


@book.case("an id twice v6")
def id_twice(talk: Talk) -> None:
    name = talk.topic()
    known = talk.topic_id(name)
    talk.ask(ask(6, known, UNKNOWN_ID, known, UNKNOWN_ID))
    talk.note("is there", talk._metadata(name).error_code.value == 0)


@book.case("an id and its name apart v6")
def apart(talk: Talk) -> None:
    name = talk.topic()
    known = talk.topic_id(name)
    talk.ask(ask(6, known, name))
    talk.ask(ask(6, name, known))
    talk.note("is there", talk._metadata(name).error_code.value == 0)


@book.case("an id and a name together v6")
def together(talk: Talk) -> None:
    name = talk.topic()
    known = talk.topic_id(name)
    talk.ask(ask(6, (name, known)))
    talk.ask(ask(6, (name, UNKNOWN_ID)))
    talk.ask(ask(6, (talk.name("none"), known), (talk.name("none"), UNKNOWN_ID)))
    talk.ask(ask(6, ("", known)))
    talk.note("is there", talk._metadata(name).error_code.value == 0)


@book.case("neither an id nor a name v6")
def neither(talk: Talk) -> None:
    name = talk.topic()
    known = talk.topic_id(name)
    talk.ask(ask(6, (None, None)))
    talk.ask(ask(6, (None, None), (None, None)))
    talk.ask(ask(6, (None, None), UNKNOWN_ID, (name, known), talk.name("none")))
    talk.note("is there", talk._metadata(name).error_code.value == 0)


@book.case("an old id v6")
def old_id(talk: Talk) -> None:
    name = talk.topic()
    old = talk.topic_id(name)
    talk.delete(name)
    talk.topic()
    talk.topic_id(name)
    talk.ask(ask(6, old))
    talk.ask(ask(6, name))


# --- bytes --------------------------------------------------------------------------------------


@book.case("null topics", versions=VERSIONS)
def null_topics(talk: Talk, version: int) -> None:
    body = body_of(ask(version, timeout=1_000))
    null = b"\x00" if version >= 4 else b"\xff\xff\xff\xff"
    talk.ask(Raw(ApiKey.DELETE_TOPICS, version, null + body[len(null) :]))


@book.case("a null name", versions=range(1, 6))
def null_name(talk: Talk, version: int) -> None:
    names = b"\x02\x00" if version >= 4 else b"\x00\x00\x00\x01\xff\xff"
    tags = b"\x00" if version >= 4 else b""
    talk.ask(Raw(ApiKey.DELETE_TOPICS, version, names + b"\x00\x00\x10\x00" + tags))


add_shapes(book, ApiKey.DELETE_TOPICS, VERSIONS, lambda talk, version: ask(version, "a b"))
