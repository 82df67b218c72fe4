"""Cases of rights: a request with no right, and with each of some sets of rights.

Each asks from its own host (`Talk.host`) of a broker with an authorizer. Its topics and groups are
prepared from 127.0.0.1, which may do everything. Names are "t", "u" and "m" for topics, "g" and "h"
for groups, "x" and "y" for transactional ids; the rights are to the first ones.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kbroker.security.acls import Permission
from kbroker.security.rights import CLUSTER_NAME, Operation, ResourceType
from tests.parity.book import Book
from tests.parity.sides import AUTHORIZER
from tests.parity.talk import Talk, View

LETTERS: Final = {
    "T": ResourceType.TOPIC, "G": ResourceType.GROUP, "C": ResourceType.CLUSTER,
    "X": ResourceType.TRANSACTIONAL_ID, "D": ResourceType.DELEGATION_TOKEN, "U": ResourceType.USER,
}  # fmt: skip
NO_NAMES: Final[Mapping[str, str]] = {}
UNKNOWN_ID: Final = uuid.UUID("11111111-2222-4333-8444-555555555555")
Make = Callable[[Talk, int], Any]


def acls_of(
    talk: Talk, words: str, known: Mapping[str, str] = NO_NAMES
) -> list[tuple[int, str, int, int]]:
    """Of "READ T t, DESCRIBE C, DENY WRITE T t". `known`: names that are not the case's own."""
    acls: list[tuple[int, str, int, int]] = []
    for each in filter(None, words.split(", ")):
        denies = each.startswith("DENY ")
        operation, letter, *name = each.removeprefix("DENY ").split()
        kind = LETTERS[letter]
        full = CLUSTER_NAME if kind is ResourceType.CLUSTER else known.get(name[0], "")
        permission = Permission.DENY if denies else Permission.ALLOW
        acls.append((int(kind), full or talk.name(name[0]), int(Operation[operation]), permission))
    return acls


def add_rights(
    book: Book,
    title: str,
    versions: Iterable[int],
    rights: Iterable[str],
    make: Make,
    *,
    prepare: Callable[[Talk], object] | None = None,
    view: Callable[[Talk], View] | None = None,
    answered: bool = True,
    setup: str = AUTHORIZER,
) -> None:
    """A case for each version without rights, and with each of `rights`."""
    over: Mapping[str, str] = {"nothing": "", **{each: each for each in rights}}

    @book.case(title, versions=versions, over=over, setup=setup)
    def ask(talk: Talk, version: int, words: str) -> None:
        if prepare is not None:
            prepare(talk)
        talk.add_acls(*acls_of(talk, words))
        client = talk.connect(talk.host)
        if not answered:
            client.send(make(talk, version), answered=False)
            client.nothing(200)
            return
        client.ask(make(talk, version), view=None if view is None else view(talk))


def topics(talk: Talk) -> None:
    for name in ("t", "u"):
        talk.topic(name)
        talk.topic_id(talk.name(name))


def names(talk: Talk) -> list[str]:
    return [talk.name(each) for each in ("t", "u", "m")]


def own(*path: str) -> Any:
    """The entries of the lists at this path that name this case."""

    def view(talk: Talk) -> View:
        def of(data: Any) -> Any:
            (field,) = path
            kept = [each for each in data[field] if talk._tag in repr(each)]
            return {**data, field: kept}

        return of

    return view


def denied_sorted(talk: Talk) -> View:
    """Topics that may not be described come last, in the order of a hash table."""

    def of(data: Any) -> Any:
        def key(topic: Any) -> str:
            return topic["name"] if topic["error_code"] == "topic_authorization_failed" else ""

        return {**data, "topics": sorted(data["topics"], key=key)}

    return of
