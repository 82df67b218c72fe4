"""AlterReplicaLogDirs (34): the answers of a broker of one data directory to moves of logs."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.requests import build, raw, tagged
from tests.parity.talk import Talk

VERSIONS = (1, 2)
NO_DIRECTORY = "/no/such/directory"

book = Book()
cases = book.cases

Dirs = list[tuple[str, list[tuple[str, list[int]]]]]


def ask(version: int, dirs: Dirs) -> Any:
    return build(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        version,
        dirs=[
            {
                "path": path,
                "topics": [{"name": name, "partitions": indexes} for name, indexes in topics],
            }
            for path, topics in dirs
        ],
    )


def own_directory(talk: Talk) -> str:
    """Each side has its own."""
    (result,) = talk.quietly(build(ApiKey.DESCRIBE_LOG_DIRS, 5, topics=[])).results
    return str(result.log_dir)


@book.case("where it is", versions=VERSIONS)
def where_it_is(talk: Talk, version: int) -> None:
    name = talk.topic(partitions=3)
    talk.ask(ask(version, [(own_directory(talk), [(name, [0, 1, 2])])]))


WAYS: dict[str, Dirs] = {
    "no directories": [],
    "no topics": [("own", [])],
    "no partitions": [("own", [("t", [])])],
    "no such directory": [(NO_DIRECTORY, [("t", [0])])],
    "no such directory, no such topic": [(NO_DIRECTORY, [("none", [0])])],
    "an empty path": [("", [("t", [0])])],
    "a path that goes on": [("own/", [("t", [0])])],
    "no such partition": [("own", [("t", [0, 9])])],
    "below zero": [("own", [("t", [-1])])],
    "no such topic": [("own", [("none", [0])])],
    "a bad name": [("own", [("a b", [0])])],
    "an empty name": [("own", [("", [0])])],
    "a partition twice": [("own", [("t", [0, 0])])],
    "a topic twice": [("own", [("t", [0]), ("t", [1])])],
    "a partition in two directories": [(NO_DIRECTORY, [("t", [0])]), ("own", [("t", [0])])],
    "a partition in two directories, the wrong one last": [
        ("own", [("t", [0])]), (NO_DIRECTORY, [("t", [0])])
    ],
    "a name that is too long": [("own", [("n" * 230, [0])])],
    "a name that is nearly too long": [("own", [("n" * 200, [0])])],
    "a name that is too long, no such directory": [(NO_DIRECTORY, [("n" * 230, [0])])],
}  # fmt: skip


@book.case("asked for", versions=VERSIONS, over=WAYS)
def ways(talk: Talk, version: int, dirs: Dirs) -> None:
    talk.topic(partitions=3)
    own, names = own_directory(talk), {name: talk.name(name) for name in ("t", "none")}
    asked = [
        (path.replace("own", own, 1), [(names.get(name, name), each) for name, each in topics])
        for path, topics in dirs
    ]
    talk.ask(ask(version, asked))


@book.case("a topic that is gone", versions=VERSIONS)
def gone(talk: Talk, version: int) -> None:
    name = talk.topic()
    talk.delete(name)
    talk.until(lambda: not described(talk, name))
    talk.ask(ask(version, [(own_directory(talk), [(name, [0])])]))


def described(talk: Talk, name: str) -> bool:
    topics = [{"topic": name, "partitions": [0]}]
    (result,) = talk.quietly(build(ApiKey.DESCRIBE_LOG_DIRS, 5, topics=topics)).results
    return bool(result.topics)


@book.case("unknown tagged fields")
def unknown_tags(talk: Talk) -> None:
    talk.ask(tagged(ask(2, []), {9: b"x"}), header_tags={77: b"yz"})


@book.case("cut short", versions=VERSIONS)
def cut(talk: Talk, version: int) -> None:
    request = ask(version, [(NO_DIRECTORY, [("t", [0])])])
    talk.ask(raw(request, raw(request).body[:-2]))


@book.case("bytes behind the message", versions=VERSIONS)
def longer(talk: Talk, version: int) -> None:
    request = ask(version, [])
    talk.ask(raw(request, raw(request).body + b"more"))


@book.case("versions that are not served", over={"0": 0, "3": 3})
def beyond(talk: Talk, version: int) -> None:
    talk.ask(raw(ask(1 if version == 0 else 2, []), version=version))
