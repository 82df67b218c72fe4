"""IncrementalAlterConfigs (44): single keys of topics, and everything that can be wrong."""

from __future__ import annotations

from tests.parity.book import Book
from tests.parity.cases._configs import (
    APPEND,
    BROKER,
    DELETE,
    LOGGER,
    ONE_VALUE,
    POLICY,
    RESOURCES,
    RETENTION,
    SET,
    SUBTRACT,
    THROTTLE,
    TOPIC,
    Change,
    Resource,
    incremental,
    overrides,
)
from tests.parity.requests import raw, tagged
from tests.parity.talk import Talk

VERSIONS = range(2)
VALUES = [1]  # the answers to values are the same in both
FLEXIBLE = [1]

book = Book()
cases = book.cases


@book.case("one value", versions=VALUES, over=ONE_VALUE)
def one_value(talk: Talk, version: int, change: Change) -> None:
    name = talk.topic()
    talk.ask(incremental(version, (TOPIC, name, [change])))
    overrides(talk, name)


def _lists() -> dict[str, tuple[str | None, Change]]:
    """Tag -> the configuration that the topic has, the change that is requested."""
    table: list[tuple[str | None, int, str]] = [
        *((None, APPEND, parts) for parts in ("compact", "delete", "", "zz", "compact,delete")),
        *(
            ("compact", APPEND, parts)
            for parts in ("compact", " compact", "compact,", ",", "delete,")
        ),
        *(("compact", APPEND, parts) for parts in (",delete", "delete,delete", "delete , compact")),
        *(("", operation, "compact") for operation in (APPEND, SUBTRACT)),
        *((None, SUBTRACT, parts) for parts in ("delete", "compact", "")),
        *(
            ("compact,delete", SUBTRACT, parts)
            for parts in ("compact", " delete", "compact,delete")
        ),
        *(("compact,delete", SUBTRACT, parts) for parts in ("compact , delete", "zz", ",")),
        ("compact, delete", SUBTRACT, "delete"),
        ("compact,compact", SUBTRACT, "compact"),
    ]
    words = {APPEND: "append", SUBTRACT: "subtract"}
    return {
        f"{words[operation]} {parts!r} {'' if had is None else f'having {had!r}'}".strip(): (
            had,
            (POLICY, operation, parts),
        )
        for had, operation, parts in table
    }


@book.case("a list", versions=VALUES, over=_lists())
def lists(talk: Talk, version: int, what: tuple[str | None, Change]) -> None:
    had, change = what
    name = talk.topic(configs={} if had is None else {POLICY: had})
    talk.ask(incremental(version, (TOPIC, name, [change])))
    overrides(talk, name)


OPERATIONS: dict[str, list[Change]] = {
    "none": [],
    "delete": [(RETENTION, DELETE, None)],
    "delete with a value": [(RETENTION, DELETE, "4")],
    "delete what is not set": [("segment.ms", DELETE, None)],
    "delete an unknown key": [("nope", DELETE, None)],
    "delete an empty key": [("", DELETE, None)],
    "set to null": [(RETENTION, SET, None)],
    "append null": [(POLICY, APPEND, None)],
    "subtract null": [(POLICY, SUBTRACT, None)],
    "append to a number": [(RETENTION, APPEND, "4")],
    "subtract from a number": [(RETENTION, SUBTRACT, "4")],
    "append to an unknown key": [("nope", APPEND, "4")],
    "subtract from an unknown key": [("nope", SUBTRACT, "4")],
    "append to a text": [("compression.type", APPEND, "gzip")],
    "throttles, append": [(THROTTLE, APPEND, "1:1")],
    "throttles, subtract what is not there": [(THROTTLE, SUBTRACT, "0:1")],
    "the same key twice": [(RETENTION, SET, "5"), (RETENTION, SET, "5")],
    "set and delete the same key": [(RETENTION, SET, "5"), (RETENTION, DELETE, None)],
    "append and append": [(POLICY, APPEND, "compact"), (POLICY, APPEND, "delete")],
    "a good one and a bad one": [("segment.ms", SET, "77"), (RETENTION, SET, "x")],
    "a good one and an unknown one": [("segment.ms", SET, "77"), ("nope", SET, "x")],
    "several": [("segment.ms", SET, "77"), (RETENTION, DELETE, None), (POLICY, APPEND, "compact")],
    "lags that do not go together": [
        ("min.compaction.lag.ms", SET, "9"),
        ("max.compaction.lag.ms", SET, "8"),
    ],
    "operation 4": [(RETENTION, 4, "5")],
    "operation -1": [(RETENTION, -1, "5")],
    "operation 4 and a good one": [(RETENTION, 4, "5"), ("segment.ms", SET, "77")],
    "operation 4 and null": [(RETENTION, 4, "5"), ("segment.ms", SET, None)],
    "operation 4 twice": [(RETENTION, 4, "5"), (RETENTION, 4, "5")],
}


@book.case("operations", versions=VERSIONS, over=OPERATIONS)
def operations(talk: Talk, version: int, changes: list[Change]) -> None:
    name = talk.topic(configs={RETENTION: "9"})
    talk.ask(incremental(version, (TOPIC, name, changes)))
    overrides(talk, name)


@book.case("checking only", versions=VALUES, over=OPERATIONS)
def checking(talk: Talk, version: int, changes: list[Change]) -> None:
    name = talk.topic(configs={RETENTION: "9"})
    talk.ask(incremental(version, (TOPIC, name, changes), validate_only=True))
    overrides(talk, name)


@book.case("a resource", versions=VALUES, over=RESOURCES)
def resource(talk: Talk, version: int, what: Resource) -> None:
    talk.ask(incremental(version, what, validate_only=True))


@book.case("a change on top of an earlier one", versions=VERSIONS)
def on_top(talk: Talk, version: int) -> None:
    name = talk.topic(configs={"min.compaction.lag.ms": "9"})
    talk.ask(incremental(version, (TOPIC, name, [("max.compaction.lag.ms", SET, "8")])))
    both: list[Change] = [
        ("max.compaction.lag.ms", SET, "8"),
        ("min.compaction.lag.ms", DELETE, None),
    ]
    talk.ask(incremental(version, (TOPIC, name, both)))
    overrides(talk, name)


@book.case("a list that grows too long", versions=VERSIONS)
def too_long(talk: Talk, version: int) -> None:
    pairs = ",".join(f"{partition}:1" for partition in range(4_500))
    name = talk.topic(configs={THROTTLE: pairs})
    more = ",".join(f"{partition}:1" for partition in range(4_500, 5_000))
    talk.ask(incremental(version, (TOPIC, name, [(THROTTLE, APPEND, more)])))


@book.case("a text beyond 32,767 bytes", versions=FLEXIBLE)
def long_text(talk: Talk, version: int) -> None:
    name = talk.topic()
    talk.ask(incremental(version, (TOPIC, name, [(RETENTION, SET, "5" * 32_768)])))


@book.case("no resources", versions=VERSIONS)
def nothing(talk: Talk, version: int) -> None:
    talk.ask(incremental(version))


GOOD: list[Change] = [(RETENTION, SET, "5")]


@book.case("several resources", versions=VERSIONS)
def several(talk: Talk, version: int) -> None:
    one, two = talk.topic("one"), talk.topic("two")
    talk.ask(
        incremental(
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
    one, two = talk.topic("one"), talk.topic("two")
    talk.ask(incremental(version, (TOPIC, one, GOOD), (TOPIC, two, GOOD), (TOPIC, one, [])))
    overrides(talk, one, two)


@book.case("named twice, and no kind of resource", versions=VERSIONS)
def twice_unknown(talk: Talk, version: int) -> None:
    talk.ask(incremental(version, (3, "x", GOOD), (3, "x", GOOD)))


BAD: list[Change] = [(RETENTION, 7, "5")]


@book.case("an operation that does not exist", versions=VERSIONS)
def bad_operation(talk: Talk, version: int) -> None:
    one, two = talk.topic("one"), talk.topic("two")
    talk.ask(incremental(version, (TOPIC, one, BAD), (TOPIC, two, GOOD)))
    talk.ask(incremental(version, (TOPIC, one, GOOD), (TOPIC, two, BAD)))
    talk.ask(incremental(version, (TOPIC, one, BAD), (TOPIC, one, GOOD)))
    talk.ask(incremental(version, (3, "x", BAD)))
    talk.ask(incremental(version, (TOPIC, talk.name("none"), BAD)))
    talk.ask(incremental(version, (BROKER, "1", BAD)))
    talk.ask(incremental(version, (LOGGER, "1", BAD)))
    overrides(talk, one, two)


@book.case("loggers in ways that are refused", versions=VERSIONS)
def loggers(talk: Talk, version: int) -> None:
    for change in (
        ("root", DELETE, None),
        ("root", APPEND, "INFO"),
        ("root", SUBTRACT, "INFO"),
        ("root", DELETE, "INFO"),
    ):
        talk.ask(incremental(version, (LOGGER, "1", [change]), validate_only=True))


@book.case("a topic that is deleted and created again has nothing of its own", versions=VERSIONS)
def created_again(talk: Talk, version: int) -> None:
    name = talk.topic()
    talk.ask(incremental(version, (TOPIC, name, GOOD)))
    talk.delete(name)
    talk.ask(incremental(version, (TOPIC, name, GOOD)))
    overrides(talk, talk.topic())


@book.case("unknown tagged fields", versions=FLEXIBLE)
def unknown_tags(talk: Talk, version: int) -> None:
    name = talk.topic()
    request = tagged(incremental(version, (TOPIC, name, GOOD)), {100: b"x", 200: b""})
    talk.ask(request, header_tags={77: b"yz"})
    overrides(talk, name)


@book.case("a version that is not served")
def beyond(talk: Talk) -> None:
    talk.ask(raw(incremental(1), version=2))


@book.case("cut short", versions=VERSIONS)
def cut(talk: Talk, version: int) -> None:
    request = incremental(version, (TOPIC, "t", GOOD))
    talk.ask(raw(request, raw(request).body[:-2]))
