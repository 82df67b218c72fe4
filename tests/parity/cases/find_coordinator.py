"""FindCoordinator (10): groups, transactional ids, shares, and types that there are not."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._shapes import add_shapes
from tests.parity.requests import Raw, build
from tests.parity.talk import Talk

VERSIONS = range(7)
TYPED = range(1, 7)
SOME_TYPED = (1, 3, 4, 6)  # the older, the newer, of several; a share has its meaning in the last
SEVERAL = range(4, 7)
GROUP, TRANSACTION, SHARE = 0, 1, 2

book = Book(setup="coordinators")
cases = book.cases


def ask(version: int, *keys: str, kind: int = GROUP) -> Any:
    """Up to version 3 there is room for one key."""
    return build(
        ApiKey.FIND_COORDINATOR,
        version,
        key=keys[0] if keys else "",
        coordinator_keys=keys,
        key_type=kind,
    )


@book.case("a group", versions=VERSIONS)
def group(talk: Talk, version: int) -> None:
    talk.ask(ask(version, talk.name("g")))


@book.case("a group without a name", versions=VERSIONS)
def empty(talk: Talk, version: int) -> None:
    talk.ask(ask(version, ""))


@book.case("a transactional id", versions=SOME_TYPED, over={"named": "tx", "empty": ""})
def transaction(talk: Talk, version: int, name: str) -> None:
    talk.ask(ask(version, name, kind=TRANSACTION))


@book.case("several groups", versions=SEVERAL)
def several(talk: Talk, version: int) -> None:
    talk.ask(ask(version, talk.name("a"), talk.name("b"), "", talk.name("a")))


@book.case("several transactional ids", versions=SEVERAL)
def several_transactions(talk: Talk, version: int) -> None:
    talk.ask(ask(version, "a", "b", "", "a", kind=TRANSACTION))


@book.case("nobody", versions=SEVERAL, over={str(kind): kind for kind in range(-1, 4)})
def no_key(talk: Talk, version: int, kind: int) -> None:
    talk.ask(ask(version, kind=kind))


SHARES = {
    "no id": "k",
    "empty": "",
    "a share's key": "g:AAAAAAAAAAAAAAAAAAAAAQ:0",
    "a bad id": "g:xx:0",
    "a bad partition": "g:AAAAAAAAAAAAAAAAAAAAAQ:x",
    "too many parts": "g:AAAAAAAAAAAAAAAAAAAAAQ:0:1",
    "no group": ":AAAAAAAAAAAAAAAAAAAAAQ:0",
}


@book.case("a share", versions=SOME_TYPED, over=SHARES)
def share(talk: Talk, version: int, key: str) -> None:
    talk.ask(ask(version, key, kind=SHARE))


@book.case("a type", versions=SOME_TYPED, over={str(kind): kind for kind in (-128, -1, 3, 9, 127)})
def unknown_type(talk: Talk, version: int, kind: int) -> None:
    talk.ask(ask(version, "k", kind=kind))


@book.case("null keys", versions=SEVERAL)
def null_keys(talk: Talk, version: int) -> None:
    talk.ask(Raw(ApiKey.FIND_COORDINATOR, version, b"\x00\x00\x00"))
    talk.ask(Raw(ApiKey.FIND_COORDINATOR, version, b"\x00\x02\x00\x00"))


@book.case("a null key", versions=range(4))
def null_key(talk: Talk, version: int) -> None:
    body = b"\x00" if version == 3 else b"\xff\xff"
    body += b"\x00" if version >= 1 else b""
    talk.ask(Raw(ApiKey.FIND_COORDINATOR, version, body + (b"\x00" if version == 3 else b"")))


add_shapes(book, ApiKey.FIND_COORDINATOR, TYPED, lambda talk, version: ask(version, "k", kind=9))
add_shapes(book, ApiKey.FIND_COORDINATOR, [0], lambda talk, version: ask(version, talk.name("g")))
