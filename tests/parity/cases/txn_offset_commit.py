"""TxnOffsetCommit (28): what is refused before a transaction is looked at."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.requests import build, raw, tagged
from tests.parity.talk import Talk

VERSIONS = range(6)

book = Book()
cases = book.cases


def ask(version: int, name: str, *indexes: int) -> Any:
    partitions = [{"partition_index": each, "committed_offset": 1} for each in indexes]
    return build(
        ApiKey.TXN_OFFSET_COMMIT,
        version,
        transactional_id=name,
        group_id=name,
        producer_id=1,
        producer_epoch=0,
        topics=[{"name": name, "partitions": partitions}],
    )


@book.case("of a topic that is not there", versions=VERSIONS)
def unknown(talk: Talk, version: int) -> None:
    talk.ask(ask(version, talk.name(), 0, 1))


@book.case("of partitions that are not there", versions=VERSIONS)
def beyond(talk: Talk, version: int) -> None:
    talk.ask(ask(version, talk.topic("t", partitions=1), 1, -1))


@book.case("of no topic", versions=VERSIONS)
def none(talk: Talk, version: int) -> None:
    nothing = build(ApiKey.TXN_OFFSET_COMMIT, version, transactional_id="a", group_id="b")
    talk.ask(nothing)


@book.case("unknown tagged fields", versions=range(3, 6))
def unknown_tags(talk: Talk, version: int) -> None:
    talk.ask(tagged(ask(version, talk.name(), 0), {9: b"x"}), header_tags={77: b"yz"})


@book.case("cut short", versions=VERSIONS)
def cut(talk: Talk, version: int) -> None:
    whole = ask(version, "a", 0)
    talk.ask(raw(whole, raw(whole).body[:-2]))


@book.case("a version that is not served")
def later(talk: Talk) -> None:
    talk.ask(raw(ask(5, "a", 0), version=6))
