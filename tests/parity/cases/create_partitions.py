"""CreatePartitions (37): every refusal in every version, and the topic with more partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases.delete_records import fetch, produce
from tests.parity.cases.metadata import ask as metadata
from tests.parity.requests import Raw, body_of, build, raw
from tests.parity.talk import Talk

VERSIONS = range(4)
FLEXIBLE = range(2, 4)
ENCODINGS = (0, 3)
Assignments = Sequence[Sequence[int]] | None

book = Book()
cases = book.cases


def ask(
    version: int,
    *topics: tuple[str, int] | tuple[str, int, Assignments],
    timeout_ms: int = 30_000,
    validate_only: bool = False,
) -> Any:
    return build(
        ApiKey.CREATE_PARTITIONS,
        version,
        timeout=timeout_ms,
        validate_only=validate_only,
        topics=[
            {
                "name": name,
                "count": count,
                "assignments": None
                if not rest or rest[0] is None
                else [{"broker_ids": list(nodes)} for nodes in rest[0]],
            }
            for name, count, *rest in topics
        ],
    )


def count_of(talk: Talk, name: str) -> int:
    found = talk.quietly(metadata(12, [name])).topics[0].partitions
    # All of them with a leader, as of one moment.
    return len(found) if all(p.error_code.value == 0 for p in found) else -1


def grown(talk: Talk, name: str, count: int) -> None:
    """Wait for the partitions, then record the answer of Metadata about them."""
    talk.topic_id(name)
    talk.until(lambda: count_of(talk, name) == count)
    talk.ask(metadata(12, [name]))


@book.case(
    "more of them",
    versions=VERSIONS,
    over={"one": (1, 2, None), "many": (3, 9, None), "assigned": (2, 4, [[1], [1]])},
)
def more(talk: Talk, version: int, how: tuple[int, int, Assignments]) -> None:
    first, count, assignments = how
    name = talk.topic(partitions=first)
    talk.ask(ask(version, (name, count, assignments)))
    grown(talk, name, count)


REFUSED: Mapping[str, tuple[int, Assignments]] = {
    "as many": (3, None),
    "fewer": (2, None),
    "zero": (0, None),
    "minus one": (-1, None),
    "the least number": (-(2**31), None),
    "fewer, assigned": (2, [[1]]),
    "as many, assigned": (3, []),
    "no assignments": (4, []),
    "too many assignments": (4, [[1], [1]]),
    "too few assignments": (5, [[1]]),
    "an unknown broker": (4, [[9]]),
    "a negative broker": (4, [[-1]]),
    "no brokers": (4, [[]]),
    "a broker twice": (4, [[1, 1]]),
    "more replicas than the others": (4, [[1, 2]]),
    "one good and one bad": (5, [[1], [7]]),
}


# Apache Kafka answers an error and yet adds the first 10,000 of them, so these are only validated.
TOO_MANY: Mapping[str, tuple[int, Assignments]] = {
    "the largest number": (2**31 - 1, None),
    "one too many": (10_004, None),
    "as many as can be": (10_003, None),
}


@book.case("refused", versions=ENCODINGS, over=REFUSED)
def refused(talk: Talk, version: int, how: tuple[int, Assignments]) -> None:
    name = talk.topic(partitions=3)
    talk.ask(ask(version, (name, *how)))
    grown(talk, name, 3)


@book.case("only validated", versions=ENCODINGS, over={**REFUSED, **TOO_MANY, "good": (4, None)})
def validated(talk: Talk, version: int, how: tuple[int, Assignments]) -> None:
    name = talk.topic(partitions=3)
    talk.ask(ask(version, (name, *how), validate_only=True))
    grown(talk, name, 3)


@book.case("a topic that is not there", versions=VERSIONS)
def unknown(talk: Talk, version: int) -> None:
    for name in (talk.name("none"), "", "a/b", ".", "x" * 300, "__cluster_metadata"):
        talk.ask(ask(version, (name, 3), validate_only=version % 2 == 0))
    talk.ask(ask(version, (talk.name("none"), 0, [[7]])))


@book.case("several", versions=VERSIONS)
def several(talk: Talk, version: int) -> None:
    good, other = talk.topic("good"), talk.topic("other", partitions=2)
    talk.ask(ask(version, (talk.name("none"), 3), (other, 2), (good, 3), ("a/b", 1)))
    grown(talk, good, 3)
    grown(talk, other, 2)


@book.case("named twice", versions=VERSIONS)
def twice(talk: Talk, version: int) -> None:
    one, two = talk.topic("one"), talk.topic("two")
    none = talk.name("none")
    talk.ask(ask(version, (one, 2), (two, 2), (one, 3), (none, 2), (none, 2)))
    grown(talk, one, 1)
    grown(talk, two, 2)


@book.case("none", versions=VERSIONS)
def none(talk: Talk, version: int) -> None:
    talk.ask(ask(version))
    talk.ask(ask(version, timeout_ms=0))


@book.case("time-outs", versions=VERSIONS, over={"zero": 0, "less": -1, "least": -(2**31)})
def timeouts(talk: Talk, version: int, timeout_ms: int) -> None:
    name = talk.topic()
    talk.ask(ask(version, (name, 2), (talk.name("none"), 1), timeout_ms=timeout_ms))
    grown(talk, name, 1)


@book.case("step by step", versions=VERSIONS)
def step_by_step(talk: Talk, version: int) -> None:
    name = talk.topic()
    for count in (2, 3, 3, 7, 5):
        talk.ask(ask(version, (name, count)))
        talk.until(lambda: count_of(talk, name) in (2, 3, 7))
    grown(talk, name, 7)


@book.case("in one piece", versions=VERSIONS)
def pipelined(talk: Talk, version: int) -> None:
    name = talk.topic()
    talk.main.hold()
    for count in (2, 2, 4):
        talk.send(ask(version, (name, count)))
    talk.main.release()
    for _ in range(3):
        talk.receive()
    grown(talk, name, 4)


@book.case("records in old and new partitions", versions=VERSIONS)
def records(talk: Talk, version: int) -> None:
    name = talk.topic()
    talk.ask(produce(name, 0, 2))
    talk.ask(ask(version, (name, 3)))
    grown(talk, name, 3)
    talk.settled(name)
    for partition in (0, 2):
        talk.ask(produce(name, partition, 3))
        talk.ask(fetch(name, partition, 0))
    talk.ask(produce(name, 3, 3))


@book.case("a new topic of the same name", versions=VERSIONS)
def made_again(talk: Talk, version: int) -> None:
    name = talk.topic()
    talk.ask(ask(version, (name, 4)))
    talk.until(lambda: count_of(talk, name) == 4)
    talk.delete(name)
    talk.ask(ask(version, (name, 8)))
    talk.topic(partitions=2)
    grown(talk, name, 2)
    talk.ask(ask(version, (name, 3)))
    grown(talk, name, 3)


@book.case("unknown tags", versions=FLEXIBLE)
def tags(talk: Talk, version: int) -> None:
    name = talk.topic()
    talk.ask(ask(version, (name, 2)), tags={0: b"", 90: b"xyz"}, header_tags={7: b"h"})
    grown(talk, name, 2)


@book.case("a body that ends too early", versions=VERSIONS, over={str(n): n for n in (0, 3, 9)})
def short(talk: Talk, version: int, size: int) -> None:
    request = ask(version, (talk.name(), 3))
    talk.ask(raw(request, body_of(request)[:size]))


@book.case("a body with something behind it", versions=VERSIONS)
def long(talk: Talk, version: int) -> None:
    request = ask(version, (talk.name("none"), 3))
    talk.ask(raw(request, body_of(request) + b"more"))


@book.case("topics that are null", versions=VERSIONS)
def null(talk: Talk, version: int) -> None:
    size = b"\x00" if version >= FLEXIBLE.start else b"\xff\xff\xff\xff"
    talk.ask(Raw(ApiKey.CREATE_PARTITIONS, version, size + bytes(6)))


@book.case("a version that is not there", over={str(n): n for n in (4, 5, -1, 32767)})
def no_version(talk: Talk, version: int) -> None:
    talk.ask(Raw(ApiKey.CREATE_PARTITIONS, version, body_of(ask(3, (talk.name(), 3)))))
