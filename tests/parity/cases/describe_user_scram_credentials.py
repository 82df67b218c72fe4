"""DescribeUserScramCredentials (50), where no user has any."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._shapes import add_shapes
from tests.parity.requests import build
from tests.parity.talk import Talk

book = Book()
cases = book.cases

USERS: dict[str, tuple[str, ...] | None] = {
    "all": None,
    "nobody": (),
    "one": ("ann",),
    "several": ("zoe", "ann", "mary", "bob", "an-older-one", "x"),
    "one twice": ("ann", "ann"),
    "some twice": ("zoe", "ann", "bob", "ann", "zoe", "zoe"),
    "no name": ("",),
    "no name twice": ("", "x", ""),
}


def ask(users: tuple[str, ...] | None) -> Any:
    named = None if users is None else [{"name": name} for name in users]
    return build(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=named)


@book.case("users", over=USERS)
def named(talk: Talk, users: tuple[str, ...] | None) -> None:
    talk.ask(ask(users))


add_shapes(
    book, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, [0], lambda talk, version: ask(("ann", "bob"))
)
