"""DescribeTopicPartitions (75): order, limit and cursor; unknown topics; malformed requests.

The names of one case's topics begin alike, so that these topics are next to each other in a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.requests import Raw, body_of, build, raw
from tests.parity.talk import Talk, View

book = Book()
cases = book.cases
Cursor = tuple[str, int] | None

PARTITIONS = {"a": 3, "b": 1, "c": 5}


def ask(*names: str, limit: int = 2_000, cursor: Cursor = None) -> Any:
    return build(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=[{"name": name} for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]},
    )


def three(talk: Talk) -> str:
    """Topics a, b and c after the beginning that is returned."""
    front = talk.name("d")
    for name, partitions in PARTITIONS.items():
        create(talk, front + name, partitions)
    return front


def create(talk: Talk, name: str, partitions: int) -> None:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    talk.quietly(build(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout=30_000))
    talk.settled(name)
    talk.topic_id(name)


def mine(talk: Talk) -> View:
    """Without topics of other cases, which are there or not."""

    def view(data: dict[str, Any]) -> dict[str, Any]:
        cursor = data["next_cursor"]
        if cursor is not None and not talk.mine(cursor["topic_name"]):
            cursor = "another case's, or none"
        topics = [topic for topic in data["topics"] if talk.mine(topic["name"])]
        return {**data, "topics": topics, "next_cursor": cursor or "another case's, or none"}

    return view


# Letters stand for topics of the case: a, b, c are there.
NAMED: Mapping[str, tuple[str, int, Cursor]] = {
    "one": ("b", 2_000, None),
    "in another order": ("cab", 2_000, None),
    "twice": ("aab", 2_000, None),
    "unknown among them": ("dba", 2_000, None),
    "only unknown ones": ("zyx", 2_000, None),
    "limit 1": ("abc", 1, None),
    "limit 2": ("abc", 2, None),
    "limit 3": ("abc", 3, None),
    "limit 4": ("abc", 4, None),
    "limit 5": ("abc", 5, None),
    "limit 8": ("abc", 8, None),
    "limit 9": ("abc", 9, None),
    "limit 10": ("abc", 10, None),
    "limit 0": ("abc", 0, None),
    "limit -1": ("abc", -1, None),
    "the least limit": ("abc", -(2**31), None),
    "the largest limit": ("abc", 2**31 - 1, None),
    "unknown behind the limit": ("az", 3, None),
    "unknown in front of the limit": ("Abc", 1, None),
    "cursor at the front": ("abc", 2_000, ("a", 0)),
    "cursor inside": ("abc", 2_000, ("a", 1)),
    "cursor at the last": ("abc", 2_000, ("a", 2)),
    "cursor behind the last": ("abc", 2_000, ("a", 3)),
    "cursor far behind": ("abc", 2_000, ("a", 99)),
    "cursor in the middle": ("abc", 2_000, ("b", 0)),
    "cursor in the last": ("abc", 2_000, ("c", 4)),
    "cursor and limit": ("abc", 2, ("a", 2)),
    "cursor and limit 1": ("abc", 1, ("c", 3)),
    "cursor of an unknown one": ("abz", 2_000, ("z", 1)),
    "cursor of one not named": ("ac", 2_000, ("b", 0)),
    "cursor of one not there": ("ac", 2_000, ("bb", 0)),
    "cursor behind all": ("ac", 2_000, ("z", 0)),
    "cursor below zero": ("abc", 2_000, ("a", -1)),
    "cursor at the least": ("abca", 2_000, ("b", -(2**31))),
}


@book.case("named", over=NAMED)
def named(talk: Talk, how: tuple[str, int, Cursor]) -> None:
    names, limit, cursor = how
    front = three(talk)
    place = None if cursor is None else (front + cursor[0], cursor[1])
    talk.ask(ask(*(front + name for name in names), limit=limit, cursor=place))


ALL: Mapping[str, tuple[int, tuple[str, int]]] = {
    "from the first": (9, ("a", 0)),
    "inside": (8, ("a", 1)),
    "a limit inside": (2, ("a", 0)),
    "a limit at the end of one": (3, ("a", 0)),
    "behind the last of one": (6, ("a", 7)),
    "one that is not there": (6, ("aa", 1)),
    "the last": (2, ("c", 3)),
    "at an unknown one in front": (4, ("", 2)),
}


@book.case("all from a cursor on", over=ALL)
def all_from(talk: Talk, how: tuple[int, tuple[str, int]]) -> None:
    limit, (name, index) = how
    talk.ask(ask(limit=limit, cursor=(three(talk) + name, index)), view=mine(talk))


@book.case("all with a cursor below zero")
def all_below_zero(talk: Talk) -> None:
    talk.ask(ask(cursor=(talk.topic(), -1)))


@book.case("page by page", over={str(n): n for n in (1, 2, 3, 4)})
def pages(talk: Talk, limit: int) -> None:
    front = three(talk)
    cursor: Cursor = None
    for _ in range(9):
        answer = talk.ask(ask(*(front + name for name in PARTITIONS), limit=limit, cursor=cursor))
        if answer.next_cursor is None:
            break
        cursor = (answer.next_cursor.topic_name, answer.next_cursor.partition_index)


@book.case("names that cannot be", over={n[:9]: n for n in ("a/b", ".", "..", "x" * 250, "ä", " ")})
def invalid(talk: Talk, name: str) -> None:
    talk.ask(ask(name))
    talk.ask(ask(name, three(talk) + "a"))


@book.case("an empty name")
def no_name(talk: Talk) -> None:
    talk.ask(ask(""))
    talk.ask(ask(three(talk) + "a", "", "a/b"))


@book.case("internal topics that are not there")
def internal(talk: Talk) -> None:
    talk.ask(ask("__share_group_state", "__cluster_metadata"))


@book.case("the broker's own limit of 4", over={str(n): n for n in (3, 4, 5, 99)}, setup="closed")
def own_limit(talk: Talk, limit: int) -> None:
    front = talk.name("d")
    create(talk, front, 9)
    for cursor in (None, (front, 1), (front, 5), (front, 7)):
        talk.ask(ask(front, limit=limit, cursor=cursor))


@book.case("a topic that was deleted")
def deleted(talk: Talk) -> None:
    front = three(talk)
    talk.delete(front + "b")
    talk.ask(ask(*(front + name for name in PARTITIONS)))
    talk.ask(ask(*(front + name for name in PARTITIONS), cursor=(front + "b", 0)))
    talk.ask(ask(limit=5, cursor=(front + "b", 3)), view=mine(talk))


@book.case("unknown tags")
def tags(talk: Talk) -> None:
    front = three(talk)
    talk.ask(ask(front + "b"), tags={0: b"", 90: b"xyz"}, header_tags={7: b"h"})


@book.case("in one piece")
def pipelined(talk: Talk) -> None:
    front = three(talk)
    talk.main.hold()
    for name in ("a", "none", "c"):
        talk.send(ask(front + name, limit=2))
    talk.main.release()
    for _ in range(3):
        talk.receive()


@book.case("a body that ends too early", over={str(n): n for n in (0, 1, 4, 9)})
def short(talk: Talk, size: int) -> None:
    request = ask(talk.name(), cursor=(talk.name(), 1))
    talk.ask(raw(request, body_of(request)[:size]))


@book.case("a body with something behind it")
def long(talk: Talk) -> None:
    request = ask(talk.name("none"))
    talk.ask(raw(request, body_of(request) + b"more"))


@book.case("topics that are null")
def null(talk: Talk) -> None:
    body = b"\x00" + (2000).to_bytes(4, "big") + b"\xff\x00"
    talk.ask(Raw(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, body))


@book.case("a version that is not there", over={str(n): n for n in (1, 2, -1, 32767)})
def no_version(talk: Talk, version: int) -> None:
    talk.ask(Raw(ApiKey.DESCRIBE_TOPIC_PARTITIONS, version, body_of(ask(talk.name()))))
