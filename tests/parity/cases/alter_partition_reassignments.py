"""AlterPartitionReassignments (45): in a cluster of one there is one place to be."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.requests import build, raw, tagged
from tests.parity.talk import Talk

VERSIONS = range(2)
HERE = [1]

book = Book()
cases = book.cases

Wanted = tuple[int, list[int] | None]


def ask(
    version: int, *topics: tuple[str, list[Wanted]], timeout: int = 30_000, may_change: bool = True
) -> Any:
    asked = [
        {
            "name": name,
            "partitions": [{"partition_index": index, "replicas": to} for index, to in wanted],
        }
        for name, wanted in topics
    ]
    return build(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        version,
        timeout=timeout,
        allow_replication_factor_change=may_change,
        topics=asked,
    )


@book.case("to where it is", versions=VERSIONS)
def here(talk: Talk, version: int) -> None:
    name = talk.topic(partitions=2)
    talk.ask(ask(version, (name, [(0, HERE), (1, HERE)])))
    talk.ask(ask(version, (name, [(0, HERE)]), may_change=False))


@book.case("nothing", versions=VERSIONS)
def nothing(talk: Talk, version: int) -> None:
    talk.ask(ask(version))
    talk.ask(ask(version, (talk.topic(), [])))


PLACES = {
    "none": [],
    "a broker that is not there": [77],
    "one that is and one that is not": [1, 77],
    "the same twice": [1, 1],
    "a negative number": [-1],
}


@book.case("to", versions=VERSIONS, over=PLACES)
def elsewhere(talk: Talk, version: int, to: list[int]) -> None:
    name = talk.topic()
    talk.ask(ask(version, (name, [(0, to)])))
    talk.ask(ask(version, (name, [(0, to)]), may_change=False))


@book.case("given up", versions=VERSIONS)
def given_up(talk: Talk, version: int) -> None:
    talk.ask(ask(version, (talk.topic(partitions=2), [(0, None), (1, HERE)])))


@book.case("what is not there", versions=VERSIONS)
def absent(talk: Talk, version: int) -> None:
    name = talk.topic()
    talk.ask(ask(version, (name, [(1, HERE), (-1, HERE), (2**31 - 1, None), (0, HERE)])))
    talk.ask(
        ask(version, (talk.name("none"), [(0, HERE), (0, None), (0, [])]), (name, [(0, HERE)]))
    )


@book.case("named twice", versions=VERSIONS)
def twice(talk: Talk, version: int) -> None:
    name = talk.topic(partitions=2)
    talk.ask(ask(version, (name, [(0, HERE), (0, [77])])))
    talk.ask(ask(version, (name, [(0, HERE)]), (name, [(1, HERE)])))


@book.case("names that no topic can have", versions=VERSIONS)
def names(talk: Talk, version: int) -> None:
    wanted: list[Wanted] = [(0, HERE)]
    talk.ask(ask(version, *((name, wanted) for name in ("", "a b", "..", "a" * 250))))


@book.case("a time", versions=VERSIONS, over={f"{ms}": ms for ms in (0, -1, -(2**31))})
def times(talk: Talk, version: int, ms: int) -> None:
    talk.ask(ask(version, (talk.topic(), [(0, HERE)]), timeout=ms))


@book.case("unknown tagged fields")
def unknown_tags(talk: Talk) -> None:
    talk.ask(tagged(ask(1, (talk.topic(), [(0, HERE)])), {9: b"x"}), header_tags={77: b"yz"})


@book.case("bytes behind the message")
def longer(talk: Talk) -> None:
    request = ask(1, (talk.topic(), [(0, HERE)]))
    talk.ask(raw(request, raw(request).body + b"more"))


@book.case("cut short")
def cut(talk: Talk) -> None:
    request = ask(1, ("t", [(0, HERE)]))
    talk.ask(raw(request, raw(request).body[:-2]))


@book.case("a version that is not served")
def beyond(talk: Talk) -> None:
    talk.ask(raw(ask(1), version=2))
