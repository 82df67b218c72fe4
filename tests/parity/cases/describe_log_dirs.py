"""DescribeLogDirs (35): partitions with their sizes, asked for in many ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.requests import build, raw, tagged
from tests.parity.talk import Talk
from tests.support.record_batches import Record, build_batch

VERSIONS = range(1, 6)
FLEXIBLE = range(2, 6)

book = Book()
cases = book.cases


def ask(version: int, topics: Sequence[tuple[str, Sequence[int]]] | None) -> Any:
    asked = None
    if topics is not None:
        asked = [{"topic": name, "partitions": list(partitions)} for name, partitions in topics]
    return build(ApiKey.DESCRIBE_LOG_DIRS, version, topics=asked)


def mine(talk: Talk) -> Any:
    """Other cases' topics are in the same directory."""

    def view(data: Any) -> Any:
        for result in data["results"]:
            result["topics"] = [topic for topic in result["topics"] if talk.mine(topic["name"])]
        return data

    return view


def described(talk: Talk, name: str) -> int:
    """How many of its first three partitions have a log."""
    (result,) = talk.quietly(ask(5, [(name, [0, 1, 2])])).results
    return sum(len(topic.partitions) for topic in result.topics)


def produce(talk: Talk, name: str, index: int, *batches: bytes) -> None:
    for batch in batches:
        talk.quietly(
            build(
                ApiKey.PRODUCE,
                9,
                acks=-1,
                timeout=10_000,
                topic_data=[{"name": name, "partition_data": [{"index": index, "records": batch}]}],
            )
        )


@book.case("empty partitions", versions=VERSIONS)
def empty(talk: Talk, version: int) -> None:
    name = talk.topic(partitions=3)
    talk.ask(ask(version, [(name, [0, 1, 2])]))


@book.case("all topics", versions=VERSIONS)
def every(talk: Talk, version: int) -> None:
    talk.topic("a", partitions=2)
    talk.topic("b")
    talk.ask(ask(version, None), view=mine(talk))


@book.case("sizes", versions=VERSIONS)
def sizes(talk: Talk, version: int) -> None:
    name = talk.topic(partitions=2)
    one, two = build_batch([Record(b"x" * 1000)]), build_batch([b"a", b"b", b"c"])
    produce(talk, name, 1, one, two, one)
    talk.ask(ask(version, [(name, [1, 0])]))
    produce(talk, name, 0, two)
    talk.ask(ask(version, [(name, [0, 1])]))


WAYS: dict[str, list[tuple[str, list[int]]]] = {
    "no topics": [],
    "no partitions": [("t", [])],
    "some": [("t", [2, 0])],
    "one that is not there": [("t", [9, 0])],
    "one below zero": [("t", [-1])],
    "a partition twice": [("t", [0, 0])],
    "a topic twice": [("t", [0]), ("t", [1])],
    "a topic twice, the same partition": [("t", [0]), ("t", [0])],
    "no such topic": [("none", [0])],
    "no such topic beside one": [("none", [0]), ("t", [1])],
    "a bad name": [("a b", [0]), ("t", [1])],
    "an empty name": [("", [0]), ("t", [1])],
    "the metadata log": [("__cluster_metadata", [0])],
}


@book.case("asked for", versions=(1, 5), over=WAYS)
def ways(talk: Talk, version: int, topics: list[tuple[str, list[int]]]) -> None:
    talk.topic(partitions=3)
    own = {name: talk.name(name) for name in ("t", "none")}
    talk.ask(ask(version, [(own.get(name, name), indexes) for name, indexes in topics]))


@book.case("a topic that is gone", versions=VERSIONS)
def gone(talk: Talk, version: int) -> None:
    name = talk.topic()
    talk.delete(name)
    talk.until(lambda: described(talk, name) == 0)  # Apache Kafka deletes its log a moment later
    talk.ask(ask(version, [(name, [0])]))


@book.case("more partitions", versions=[5])
def more(talk: Talk, version: int) -> None:
    name = talk.topic()
    topics = [{"name": name, "count": 3}]
    talk.quietly(build(ApiKey.CREATE_PARTITIONS, 3, topics=topics, timeout=30_000))
    talk.until(lambda: described(talk, name) == 3)
    talk.ask(ask(version, [(name, [0, 1, 2, 3])]))


@book.case("unknown tagged fields", versions=FLEXIBLE)
def unknown_tags(talk: Talk, version: int) -> None:
    talk.ask(tagged(ask(version, []), {9: b"x"}), header_tags={77: b"yz"})


@book.case("cut short", versions=VERSIONS)
def cut(talk: Talk, version: int) -> None:
    request = ask(version, [("t", [0])])
    talk.ask(raw(request, raw(request).body[:-2]))


@book.case("versions that are not served", over={"0": 0, "6": 6})
def beyond(talk: Talk, version: int) -> None:
    talk.ask(raw(ask(1 if version == 0 else 5, []), version=version))
