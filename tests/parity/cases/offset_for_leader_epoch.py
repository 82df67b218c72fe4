"""OffsetForLeaderEpoch (23): epochs known, unknown and too new; partitions that are not there."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.data import batch, stored, topic
from tests.parity.requests import Raw, body_of, build, raw
from tests.parity.talk import Talk

VERSIONS = range(2, 5)
Partition = tuple[int, int, int]  # index, current leader epoch, epoch asked for

book = Book()
cases = book.cases


def ask(version: int, *topics: tuple[str, list[Partition]], replica: int = -1) -> Any:
    return build(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        version,
        replica_id=replica,
        topics=[
            {
                "topic": name,
                "partitions": [
                    {"partition": index, "current_leader_epoch": current, "leader_epoch": epoch}
                    for index, current, epoch in partitions
                ],
            }
            for name, partitions in topics
        ],
    )


@book.case("an epoch", versions=VERSIONS, over={str(e): e for e in (-2, -1, 0, 1, 5, 2**31 - 1)})
def epochs(talk: Talk, version: int, epoch: int) -> None:
    name = topic(talk)
    stored(talk, name, batch(b"a", b"b"), batch(b"c"))
    talk.ask(ask(version, (name, [(0, -1, epoch)])))
    talk.ask(ask(version, (name, [(0, 0, epoch)])))


@book.case("an epoch of an empty partition", versions=VERSIONS)
def empty(talk: Talk, version: int) -> None:
    name = topic(talk)
    for epoch in (-1, 0, 1):
        talk.ask(ask(version, (name, [(0, -1, epoch)])))


@book.case(
    "a current epoch", versions=VERSIONS, over={str(e): e for e in (-2, -1, 0, 1, 2**31 - 1)}
)
def current(talk: Talk, version: int, epoch: int) -> None:
    talk.ask(ask(version, (topic(talk), [(0, epoch, 0)])))


@book.case("unknown ones among others", versions=VERSIONS)
def unknown(talk: Talk, version: int) -> None:
    known = (topic(talk, partitions=2), [(1, -1, 0), (7, -1, 0), (-1, -1, 0), (0, -1, 0)])
    talk.ask(ask(version, known, (talk.name("none"), [(0, -1, 0), (1, 5, 3)])))


@book.case("a partition twice", versions=VERSIONS)
def twice(talk: Talk, version: int) -> None:
    name = topic(talk)
    talk.ask(ask(version, (name, [(0, -1, 0), (0, 5, 0), (0, -1, 9)])))
    talk.ask(ask(version, (name, [(0, -1, 0)]), (name, [(0, -1, 1)])))


@book.case("nothing", versions=VERSIONS)
def nothing(talk: Talk, version: int) -> None:
    talk.ask(ask(version))
    talk.ask(ask(version, (topic(talk), [])))


@book.case("a replica", versions=range(3, 5), over={str(r): r for r in (-2, -1, 0, 1, 9)})
def replicas(talk: Talk, version: int, replica: int) -> None:
    talk.ask(ask(version, (topic(talk), [(0, -1, 0)]), replica=replica))


@book.case("a version that is refused", over={str(v): v for v in (-1, 0, 1, 5)})
def refused(talk: Talk, version: int) -> None:
    body = body_of(ask(2, (topic(talk), [(0, -1, 0)])))
    talk.ask(Raw(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, body))


@book.case("a body that is cut", versions=VERSIONS)
def cut(talk: Talk, version: int) -> None:
    entity = ask(version, (topic(talk), [(0, -1, 0)]))
    talk.ask(raw(entity, body_of(entity)[:-6]))


@book.case("unknown tagged fields", versions=[4])
def tags(talk: Talk, version: int) -> None:
    talk.ask(ask(version, (topic(talk), [(0, -1, 0)])), tags={9: b"abc"}, header_tags={0: b""})
