"""AlterConfigs (33): all settings of a topic at once, and everything that can be wrong."""

from __future__ import annotations

from tests.parity.book import Book
from tests.parity.cases._configs import (
    ONE_VALUE,
    POLICY,
    RESOURCES,
    RETENTION,
    SET,
    TOPIC,
    Change,
    Resource,
    alter,
    first_of_each_key,
    overrides,
)
from tests.parity.requests import raw, tagged
from tests.parity.talk import Talk

VERSIONS = range(3)
FLEXIBLE = [2]
ENCODINGS = (0, 2)  # the answers to values are the same in both

book = Book()
cases = book.cases


# Values are read as IncrementalAlterConfigs reads them, where all are asked: here one of each key.
@book.case("one value", versions=[2], over=first_of_each_key(ONE_VALUE))
def one_value(talk: Talk, version: int, change: Change) -> None:
    name = talk.topic(configs={"segment.ms": "77"})
    talk.ask(alter(version, (TOPIC, name, [change])))
    overrides(talk, name)


SETTINGS: dict[str, list[Change]] = {
    "nothing": [],
    "the same": [(RETENTION, SET, "9")],
    "another": [("segment.ms", SET, "77")],
    "null": [(RETENTION, SET, None)],
    "empty": [(RETENTION, SET, "")],
    "the same key twice": [(RETENTION, SET, "5"), (RETENTION, SET, "6")],
    "a good one and a bad one": [("segment.ms", SET, "77"), (RETENTION, SET, "x")],
    "a good one and null": [("segment.ms", SET, "77"), (RETENTION, SET, None)],
    "an unknown one": [("nope", SET, "1")],
    "several": [("segment.ms", SET, "77"), (POLICY, SET, "compact"), (RETENTION, SET, "8")],
    "lags that do not go together": [
        ("min.compaction.lag.ms", SET, "9"),
        ("max.compaction.lag.ms", SET, "8"),
    ],
}


@book.case("settings", versions=ENCODINGS, over=SETTINGS)
def settings(talk: Talk, version: int, changes: list[Change]) -> None:
    name = talk.topic(configs={RETENTION: "9", "flush.ms": "1000"})
    talk.ask(alter(version, (TOPIC, name, changes)))
    overrides(talk, name)


@book.case("checking only", versions=ENCODINGS, over=SETTINGS)
def checking(talk: Talk, version: int, changes: list[Change]) -> None:
    name = talk.topic(configs={RETENTION: "9", "flush.ms": "1000"})
    talk.ask(alter(version, (TOPIC, name, changes), validate_only=True))
    overrides(talk, name)


@book.case("a resource", versions=ENCODINGS, over=RESOURCES)
def resource(talk: Talk, version: int, what: Resource) -> None:
    talk.ask(alter(version, what, validate_only=True))


@book.case("no resources", versions=VERSIONS)
def nothing(talk: Talk, version: int) -> None:
    talk.ask(alter(version))


GOOD: list[Change] = [(RETENTION, SET, "5")]


@book.case("several resources", versions=VERSIONS)
def several(talk: Talk, version: int) -> None:
    one, two = talk.topic("one"), talk.topic("two")
    talk.ask(
        alter(
            version,
            (TOPIC, talk.name("none"), GOOD),
            (3, "x", GOOD),
            (TOPIC, one, GOOD),
            (TOPIC, "a b", GOOD),
            (TOPIC, two, [("zz", SET, "1")]),
            (TOPIC, "", GOOD),
        )
    )
    overrides(talk, one, two)


@book.case("named twice", versions=VERSIONS)
def twice(talk: Talk, version: int) -> None:
    name = talk.topic()
    talk.send(alter(version, (TOPIC, name, GOOD), (TOPIC, name, GOOD)))
    talk.nothing(within_ms=300)
    overrides(talk, name)


@book.case("unknown tagged fields", versions=FLEXIBLE)
def unknown_tags(talk: Talk, version: int) -> None:
    name = talk.topic()
    request = tagged(alter(version, (TOPIC, name, GOOD)), {100: b"x", 200: b""})
    talk.ask(request, header_tags={77: b"yz"})
    overrides(talk, name)


@book.case("a version that is not served")
def beyond(talk: Talk) -> None:
    talk.ask(raw(alter(2), version=3))


@book.case("cut short", versions=VERSIONS)
def cut(talk: Talk, version: int) -> None:
    request = alter(version, (TOPIC, "t", GOOD))
    talk.ask(raw(request, raw(request).body[:-2]))
