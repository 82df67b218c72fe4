"""DescribeTransactions (65), where there has been no transaction."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._shapes import add_shapes
from tests.parity.requests import build
from tests.parity.talk import Talk

# Where Apache Kafka has a coordinator of transactions; elsewhere it names another broker.
book = Book(setup="coordinators")
cases = book.cases

IDS: dict[str, tuple[str, ...]] = {
    "none": (),
    "one": ("never-used",),
    "several": ("zz-never", "never-used", "a"),
    "one twice": ("never-used", "never-used"),
    "an empty one": ("",),
    "an empty one among others": ("zz-never", "", "never-used"),
}


def ask(ids: tuple[str, ...]) -> Any:
    return build(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=ids)


@book.case("ids", over=IDS)
def described(talk: Talk, ids: tuple[str, ...]) -> None:
    talk.ask(ask(ids))


add_shapes(book, ApiKey.DESCRIBE_TRANSACTIONS, [0], lambda talk, version: ask(("never-used",)))
