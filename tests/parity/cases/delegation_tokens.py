"""Create, renew, expire and describe delegation tokens (38-41), over a PLAINTEXT listener.

The answers of the first three have times that are -1, which kio does not read: they are compared
byte by byte.
"""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._shapes import add_shapes
from tests.parity.requests import Raw, build
from tests.parity.talk import Talk

VERSIONS = range(1, 4)
RENEWED = range(1, 3)
OWNED = (3,)
RENEW, EXPIRE = ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN

book = Book()
cases = book.cases

Principal = tuple[str, str]


def principals(given: tuple[Principal, ...]) -> list[dict[str, str]]:
    return [{"principal_type": kind, "principal_name": name} for kind, name in given]


def create(
    version: int,
    *renewers: Principal,
    owner: tuple[str | None, str | None] = (None, None),
    lifetime: int = -1,
) -> Any:
    return build(
        ApiKey.CREATE_DELEGATION_TOKEN,
        version,
        owner_principal_type=owner[0],
        owner_principal_name=owner[1],
        renewers=principals(renewers),
        max_lifetime=lifetime,
    )


def renew(version: int, code: bytes = b"code", period: int = -1) -> Any:
    return build(RENEW, version, hmac=code, renew_period=period)


def expire(version: int, code: bytes = b"code", period: int = -1) -> Any:
    return build(EXPIRE, version, hmac=code, expiry_time_period=period)


def describe(version: int, owners: tuple[Principal, ...] | None) -> Any:
    asked = None if owners is None else principals(owners)
    return build(ApiKey.DESCRIBE_DELEGATION_TOKEN, version, owners=asked)


RENEWERS: dict[str, tuple[Principal, ...]] = {
    "nobody": (),
    "a user": (("User", "ann"),),
    "two": (("User", "ann"), ("User", "bob")),
    "a group": (("Group", "g"),),
    "no name": (("", ""),),
}


@book.case("create, renewed by", versions=VERSIONS, over=RENEWERS)
def created(talk: Talk, version: int, renewers: tuple[Principal, ...]) -> None:
    talk.ask(create(version, *renewers))


@book.case("create, to live", versions=VERSIONS, over={str(ms): ms for ms in (0, 1, -2, 2**31)})
def lifetime(talk: Talk, version: int, lifetime_ms: int) -> None:
    talk.ask(create(version, lifetime=lifetime_ms))


@book.case(
    "create for an owner",
    versions=OWNED,
    over={
        f"{kind} {name}": (kind, name)
        for kind in (None, "", "User", "Group")
        for name in (None, "", "ann")
    },
)
def owned(talk: Talk, version: int, owner: tuple[str | None, str | None]) -> None:
    talk.ask(create(version, ("User", "bob"), owner=owner))


@book.case("renew", versions=RENEWED, over={str(ms): ms for ms in (-1, 0, 1_000)})
def renewed(talk: Talk, version: int, period_ms: int) -> None:
    talk.ask(renew(version, b"code", period_ms))
    talk.ask(renew(version, b"", period_ms))


@book.case("expire", versions=RENEWED, over={str(ms): ms for ms in (-1, 0, 1_000)})
def expired(talk: Talk, version: int, period_ms: int) -> None:
    talk.ask(expire(version, b"code", period_ms))
    talk.ask(expire(version, b"", period_ms))


@book.case("a null code", versions=RENEWED, over={"renew": RENEW, "expire": EXPIRE})
def null_code(talk: Talk, version: int, key: ApiKey) -> None:
    time = b"\xff" * 8
    talk.ask(Raw(key, version, b"\x00" + time + b"\x00" if version > 1 else b"\xff" * 4 + time))


@book.case("describe", versions=VERSIONS, over={**RENEWERS, "all": None})
def described(talk: Talk, version: int, owners: tuple[Principal, ...] | None) -> None:
    talk.ask(describe(version, owners))


add_shapes(
    book,
    ApiKey.CREATE_DELEGATION_TOKEN,
    VERSIONS,
    lambda talk, version: create(version, ("User", "ann")),
    title="create",
)
add_shapes(book, RENEW, RENEWED, lambda talk, version: renew(version), title="renew")
add_shapes(book, EXPIRE, RENEWED, lambda talk, version: expire(version), title="expire")
add_shapes(
    book,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    VERSIONS,
    lambda talk, version: describe(version, (("User", "ann"),)),
    title="describe",
)
