"""Rights to write and to read records: the answers to Produce and Fetch with and without them."""

from __future__ import annotations

from typing import Any, Final

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._rights import UNKNOWN_ID, acls_of, add_rights, topics
from tests.parity.cases._transactions import TRANSACTIONAL
from tests.parity.data import (
    FETCH_IDS,
    FETCH_VERSIONS,
    PRODUCE_IDS,
    PRODUCE_VERSIONS,
    batch,
    changed,
    fetch,
    idempotent,
    in_short,
    part,
    produce,
    stored,
)
from tests.parity.requests import build
from tests.parity.sides import AUTHORIZER
from tests.parity.talk import Talk

book = Book()

SOME: Final = (3, 8, 9, 12, 13)


def _short(talk: Talk) -> Any:
    return in_short


def _named(talk: Talk, version: int, ids_from: int, *names: str) -> list[Any]:
    """The third one is not there: its name, or an id that is not known."""
    unknown: Any = UNKNOWN_ID if version >= ids_from else talk.name("m")
    return [unknown if name == "m" else talk.name(name) for name in names]


# --- Produce --------------------------------------------------------------------------------------

WRITERS: Final = [
    "WRITE T t, WRITE T m",
    "READ T t",
    "IDEMPOTENT_WRITE C",
    "ALL T t, DESCRIBE T u",
    "CLUSTER_ACTION C",
]


def _written(talk: Talk, version: int, **how: Any) -> Any:
    t, u, m = _named(talk, version, PRODUCE_IDS, "t", "u", "m")
    broken = changed(batch(b"v"), sealed=False, crc=1)
    parts: list[tuple[Any, dict[int, bytes]]] = [
        (t, {0: batch(b"v"), 7: batch(b"w")}), (u, {0: broken}), (m, {0: batch(b"x")}),
    ]  # fmt: skip
    return produce(talk, version, *parts, **how)


add_rights(
    book, "Produce", PRODUCE_VERSIONS, WRITERS, _written, prepare=topics, view=_short
)  # fmt: skip
add_rights(
    book,
    "Produce with an acknowledgement that there is not",
    SOME,
    ["WRITE T t"],
    lambda talk, version: _written(talk, version, acks=7),
    prepare=topics,
    view=_short,
)
add_rights(
    book,
    "Produce of an idempotent producer",
    SOME,
    ["WRITE T t", "IDEMPOTENT_WRITE C"],
    lambda talk, version: produce(talk, version, (talk.name("t"), {0: idempotent(0)})),
    prepare=topics,
    view=_short,
)
add_rights(
    book,
    "Produce without an acknowledgement",
    (3, 9, 13),
    ["READ T t"],
    lambda talk, version: produce(talk, version, (talk.name("t"), {0: batch(b"v")}), acks=0),
    prepare=topics,
    answered=False,
)
add_rights(
    book,
    "Produce with a transactional id",
    SOME,
    ["WRITE T t", "WRITE T t, WRITE X x", "WRITE X x"],
    lambda talk, version: produce(
        talk, version, (talk.name("t"), {0: batch(b"v")}), transactional_id=talk.name("x")
    ),
    prepare=topics,
    view=_short,
)


def _transactional(talk: Talk, version: int) -> Any:
    data = changed(idempotent(0, producer=9_999), attributes=TRANSACTIONAL)
    t, u, m = _named(talk, version, PRODUCE_IDS, "t", "u", "m")
    parts = [(t, {7: data}), (u, {7: data}), (m, {0: data})]
    return produce(talk, version, *parts, transactional_id=talk.name("x"))


add_rights(
    book,
    "Produce of a transaction",
    SOME,
    ["WRITE T t", "WRITE X x", "WRITE T t, DESCRIBE X x", "WRITE X x, WRITE T t, WRITE T m"],
    _transactional,
    prepare=topics,
    view=_short,
)


# --- Fetch ----------------------------------------------------------------------------------------

READERS: Final = ["READ T t, READ T m", "WRITE T t", "CLUSTER_ACTION C", "ALL T t"]


def _filled(talk: Talk) -> None:
    topics(talk)
    for name in ("t", "u"):
        stored(talk, talk.name(name), batch(b"v"))


def _read(talk: Talk, version: int, **how: Any) -> Any:
    t, u, m = _named(talk, version, FETCH_IDS, "t", "u", "m")
    return fetch(talk, version, (t, [part(0), part(7)]), (u, [part(0)]), (m, [part(0)]), **how)


add_rights(book, "Fetch", FETCH_VERSIONS, READERS, _read, prepare=_filled, view=_short)
add_rights(
    book,
    "Fetch of committed records",
    (4, 12, 18),
    ["READ T t"],
    lambda talk, version: _read(talk, version, isolation=1),
    prepare=_filled,
    view=_short,
)


def _followed(talk: Talk, version: int) -> Any:
    replica: dict[str, Any] = {"replica_id": 7}
    if version >= 15:
        replica = {"replica_state": {"replica_id": 7, "replica_epoch": -1}}
    return _read(talk, version, **replica)


add_rights(
    book,
    "Fetch of a follower",
    (4, 11, 12, 13, 15, 18),
    ["READ T t, READ T u", "ALTER C"],
    _followed,
    prepare=_filled,
    view=_short,
)


def _forbid(talk: Talk, words: str) -> None:
    filters = [
        {
            "resource_type_filter": type_,
            "resource_name_filter": name,
            "pattern_type_filter": 3,
            "principal_filter": None,
            "host_filter": talk.host,
            "operation": operation,
            "permission_type": 3,
        }
        for type_, name, operation, _ in acls_of(talk, words)
    ]
    gone = talk.quietly(build(ApiKey.DELETE_ACLS, 3, filters=filters))
    if any(len(each.matching_acls) != 1 for each in gone.filter_results):
        raise AssertionError(f"ACLs were not deleted: {gone}")
    described = build(
        ApiKey.DESCRIBE_ACLS, 3, resource_type_filter=1, resource_name_filter=None,
        pattern_type_filter=1, principal_filter=None, host_filter=talk.host, operation=1,
        permission_type=1,
    )  # fmt: skip
    talk.until(lambda: not talk.quietly(described).resources)


@book.case("Fetch in a session whose right goes", versions=(7, 12, 13, 18), setup=AUTHORIZER)
def in_a_session(talk: Talk, version: int) -> None:
    _filled(talk)
    talk.add_acls(*acls_of(talk, "READ T t"))
    client = talk.connect(talk.host)
    first = client.ask(_read(talk, version, session=(0, 0)), view=in_short)
    for epoch in (1, 2):
        client.ask(fetch(talk, version, session=(first.session_id, epoch)), view=in_short)
    _forbid(talk, "READ T t")
    for epoch in (3, 4):
        client.ask(fetch(talk, version, session=(first.session_id, epoch)), view=in_short)
    talk.add_acls(*acls_of(talk, "READ T t, READ T u"))
    for epoch in (5, 6):
        client.ask(fetch(talk, version, session=(first.session_id, epoch)), view=in_short)


@book.case("Produce whose right goes", versions=(3, 9, 13), setup=AUTHORIZER)
def producing(talk: Talk, version: int) -> None:
    topics(talk)
    client = talk.connect(talk.host)
    asked = produce(talk, version, (talk.name("t"), {0: batch(b"v")}))
    client.ask(asked, view=in_short)
    talk.add_acls(*acls_of(talk, "WRITE T t"))
    client.ask(asked, view=in_short)
    _forbid(talk, "WRITE T t")
    client.ask(asked, view=in_short)
