"""ListPartitionReassignments (46): nothing moves in a cluster of one."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.requests import build, raw, tagged
from tests.parity.talk import Talk

book = Book()
cases = book.cases


def ask(*topics: tuple[str, list[int]], everything: bool = False, timeout: int = 30_000) -> Any:
    asked = [{"name": name, "partition_indexes": partitions} for name, partitions in topics]
    return build(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        timeout=timeout,
        topics=None if everything else asked,
    )


@book.case("everything")
def everything(talk: Talk) -> None:
    talk.topic(partitions=3)
    talk.ask(ask(everything=True))


@book.case("no topics")
def nothing(talk: Talk) -> None:
    talk.ask(ask())


@book.case("partitions that stay")
def steady(talk: Talk) -> None:
    name = talk.topic(partitions=2)
    talk.ask(ask((name, [0, 1])))
    talk.ask(ask((name, [])))
    talk.ask(ask((name, [1, 1]), (name, [0])))


@book.case("what is not there")
def absent(talk: Talk) -> None:
    name = talk.topic()
    talk.ask(ask((name, [1, -1, 2**31 - 1])))
    talk.ask(ask((talk.name("none"), [0])))
    talk.ask(ask((talk.name("none"), [0]), (name, [0])))


@book.case("names that no topic can have")
def names(talk: Talk) -> None:
    talk.ask(ask(*((name, [0]) for name in ("", "a b", "..", "a" * 250, "__cluster_metadata"))))


@book.case("a time", over={f"{ms}": ms for ms in (0, -1, -(2**31))})
def times(talk: Talk, ms: int) -> None:
    talk.ask(ask(everything=True, timeout=ms))


@book.case("unknown tagged fields")
def unknown_tags(talk: Talk) -> None:
    talk.ask(tagged(ask(everything=True), {9: b"x"}), header_tags={77: b"yz"})


@book.case("bytes behind the message")
def longer(talk: Talk) -> None:
    request = ask(everything=True)
    talk.ask(raw(request, raw(request).body + b"more"))


@book.case("cut short")
def cut(talk: Talk) -> None:
    request = ask(("t", [0]))
    talk.ask(raw(request, raw(request).body[:-2]))


@book.case("a version that is not served")
def beyond(talk: Talk) -> None:
    talk.ask(raw(ask(), version=1))
