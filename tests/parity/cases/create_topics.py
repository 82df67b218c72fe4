"""CreateTopics (19): topics that are created, that are only validated, and every refusal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._shapes import add_shapes
from tests.parity.cases._topic_configs import VALUES
from tests.parity.requests import Raw, body_of, build
from tests.parity.talk import Talk, View

VERSIONS = range(2, 8)
SOME = (2, 4, 5, 7)  # those between which the message changed

book = Book()
cases = book.cases


def topic(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    assignments: Sequence[tuple[int, list[int]]] = (),
    configs: Sequence[tuple[str, str | None]] = (),
) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": [{"partition_index": i, "broker_ids": nodes} for i, nodes in assignments],
        "configs": [{"name": key, "value": value} for key, value in configs],
    }


def ask(
    version: int,
    *topics: dict[str, Any],
    timeout: int = 30_000,
    validate_only: bool = False,
) -> Any:
    return build(
        ApiKey.CREATE_TOPICS,
        version,
        topics=list(topics),
        timeout=timeout,
        validate_only=validate_only,
    )


def only(*keys: str) -> View:
    """Of the configuration of a new topic, these keys."""

    def view(data: dict[str, Any]) -> dict[str, Any]:
        for each in data["topics"]:
            if each.get("configs"):
                each["configs"] = [c for c in each["configs"] if c["name"] in keys]
        return data

    return view


# --- made ---------------------------------------------------------------------------------------


@book.case("made, and once more", versions=VERSIONS)
def made(talk: Talk, version: int) -> None:
    asked = ask(version, topic(talk.name(), 2))
    talk.ask(asked)
    talk.settled(talk.name())
    talk.ask(asked)
    talk.ask(ask(version, topic(talk.name(), 2), validate_only=True))


@book.case("made with a configuration", versions=SOME)
def configured(talk: Talk, version: int) -> None:
    configs = [("retention.ms", "77"), ("cleanup.policy", "compact"), ("max.message.bytes", "1000")]
    talk.ask(ask(version, topic(talk.name(), configs=configs)))


@book.case("several made", versions=SOME)
def several(talk: Talk, version: int) -> None:
    names = [talk.name(name) for name in ("b", "d", "a", "c")]
    talk.ask(ask(version, *(topic(name, i) for i, name in enumerate(names, 1))), view=only())
    talk.settled(*names)
    for name in names:
        talk.note(name, len(talk._metadata(name).partitions))


@book.case("fine ones among refused ones", versions=SOME)
def among(talk: Talk, version: int) -> None:
    old = talk.topic("old")
    topics = [topic(talk.name("a")), topic(old), topic("a b"), topic(talk.name("b"), 0)]
    talk.ask(ask(version, *topics, topic(talk.name("c"), factor=3)), view=only())
    talk.settled(talk.name("a"))


@book.case("the broker's defaults", versions=SOME, over={"both": (-1, -1), "partitions": (-1, 1)})
def defaults(talk: Talk, version: int, asked: tuple[int, int]) -> None:
    talk.ask(ask(version, topic(talk.name(), *asked)), view=only())


@book.case("the default replication factor", versions=SOME)
def default_factor(talk: Talk, version: int) -> None:
    talk.ask(ask(version, topic(talk.name(), 3, -1)), view=only())


@book.case("100 partitions", versions=SOME)
def hundred(talk: Talk, version: int) -> None:
    talk.ask(ask(version, topic(talk.name(), 100)), view=only())


@book.case("none", versions=VERSIONS, over={"checked": True, "made": False})
def nothing(talk: Talk, version: int, validate_only: bool) -> None:
    talk.ask(ask(version, validate_only=validate_only))


@book.case("assigned by hand", versions=SOME)
def assigned(talk: Talk, version: int) -> None:
    name = talk.name()
    talk.ask(ask(version, topic(name, -1, -1, [(0, [1]), (1, [1])])), view=only())
    talk.settled(name)
    talk.note("partitions", len(talk._metadata(name).partitions))


@book.case("assigned out of order", versions=SOME)
def assigned_out_of_order(talk: Talk, version: int) -> None:
    name = talk.name()
    talk.ask(ask(version, topic(name, -1, -1, [(2, [1]), (0, [1]), (1, [1])])), view=only())
    talk.settled(name)


# --- only checked -------------------------------------------------------------------------------


@book.case("only checked", versions=SOME)
def checked(talk: Talk, version: int) -> None:
    names = [talk.name("a"), talk.name("b")]
    talk.ask(ask(version, *(topic(name, 3) for name in names), validate_only=True), view=only())
    for name in names:
        talk.note(f"{name} is there", talk._metadata(name).error_code.value == 0)


@book.case("only checked, by hand and with a configuration", versions=SOME)
def checked_by_hand(talk: Talk, version: int) -> None:
    asked = topic(talk.name(), -1, -1, [(0, [1]), (1, [1])], [("retention.ms", "5")])
    talk.ask(ask(version, asked, validate_only=True), view=only("retention.ms"))


# --- refused ------------------------------------------------------------------------------------

REFUSED: dict[str, dict[str, Any]] = {
    "no partitions": topic("a", 0),
    "-2 partitions": topic("a", -2),
    "2 billion partitions": topic("a", 2**31 - 1),
    "200,000 partitions": topic("a", 200_000),
    "10,001 partitions": topic("a", 10_001),
    "no replicas": topic("a", 1, 0),
    "-2 replicas": topic("a", 1, -2),
    "2 replicas": topic("a", 1, 2),
    "32,767 replicas": topic("a", 1, 32_767),
    "neither partitions nor replicas": topic("a", 0, 0),
    "assigned and counted": topic("a", 2, -1, [(0, [1])]),
    "assigned and counted right": topic("a", 1, -1, [(0, [1])]),
    "assigned and replicated": topic("a", -1, 1, [(0, [1])]),
    "assigned with a gap": topic("a", -1, -1, [(0, [1]), (2, [1])]),
    "assigned not from 0": topic("a", -1, -1, [(1, [1])]),
    "assigned to an unknown broker": topic("a", -1, -1, [(0, [7])]),
    "assigned to a negative broker": topic("a", -1, -1, [(0, [-1])]),
    "assigned twice to a broker": topic("a", -1, -1, [(0, [1, 1])]),
    "assigned to nobody": topic("a", -1, -1, [(0, [])]),
    "a partition assigned twice": topic("a", -1, -1, [(0, [1]), (0, [1])]),
    "a partition assigned twice, differently": topic("a", -1, -1, [(0, [1]), (0, [7])]),
    "a negative partition": topic("a", -1, -1, [(-1, [1])]),
    "several mistakes of assignment": topic("a", 3, 2, [(0, [7, 7]), (4, [])]),
    "an unknown key": topic("a", configs=[("nope", "1")]),
    "an unknown key without a value": topic("a", configs=[("nope", None)]),
    "an empty key": topic("a", configs=[("", "1")]),
    "a key of the broker": topic("a", configs=[("log.retention.ms", "1")]),
    "no number": topic("a", configs=[("retention.ms", "abc")]),
    "no value": topic("a", configs=[("retention.ms", None)]),
    "an unknown policy": topic("a", configs=[("cleanup.policy", "x")]),
    "a key twice": topic("a", configs=[("retention.ms", "1"), ("retention.ms", "x")]),
    "one bad value of two": topic("a", configs=[("retention.ms", "1"), ("segment.ms", "x")]),
    "a bad value and no partitions": topic("a", 0, configs=[("retention.ms", "x")]),
    "a bad value and bad assignments": topic(
        "a", -1, -1, [(0, [7])], configs=[("retention.ms", "x")]
    ),
    "tiered storage": topic("a", configs=[("remote.storage.enable", "true")]),
}
NAMES = {
    "empty": "",
    "a dot": ".",
    "two dots": "..",
    "a space": "a b",
    "a slash": "a/b",
    "250 chars": "x" * 250,
    "not ASCII": "\u00fc",
    "a line break": "a\nb",
    "a null char": "a\x00b",
    "the metadata log's": "__cluster_metadata",
}


@book.case("refused", versions=SOME, over=REFUSED)
def refused(talk: Talk, version: int, bad: dict[str, Any]) -> None:
    """Both when it is made and when it is checked."""
    named = {**bad, "name": talk.name()}
    talk.ask(ask(version, named))
    talk.ask(ask(version, named, validate_only=True))


@book.case("a name that cannot be", versions=SOME, over=NAMES)
def bad_name(talk: Talk, version: int, name: str) -> None:
    talk.ask(ask(version, topic(name)))
    talk.ask(ask(version, topic(name, 0, 0), validate_only=True))


@book.case("a name of 249 chars", versions=SOME)
def long_name(talk: Talk, version: int) -> None:
    talk.ask(ask(version, topic("x" * 249), validate_only=True), view=only())


@book.case("names like internal ones", versions=SOME, setup="closed")
def internal(talk: Talk, version: int) -> None:
    names = ("__consumer_offsets", "__transaction_state", "__share_group_state", "__other")
    talk.ask(ask(version, *map(topic, names), validate_only=True), view=only())


@book.case("names that collide", versions=SOME)
def collide(talk: Talk, version: int) -> None:
    talk.topic("o_d")
    talk.ask(ask(version, topic(talk.name("o.d"))))
    talk.ask(ask(version, topic(talk.name("o.d")), validate_only=True))


@book.case("names that collide with each other", versions=SOME)
def collide_with_each_other(talk: Talk, version: int) -> None:
    talk.ask(ask(version, topic(talk.name("a.b")), topic(talk.name("a_b"))), view=only())


@book.case("a name twice", versions=SOME)
def twice(talk: Talk, version: int) -> None:
    a, b, c = (topic(talk.name(name)) for name in "abc")
    talk.ask(ask(version, b, a, b, c), view=only())
    talk.ask(ask(version, a, a, topic(talk.name("a"), 5), validate_only=True), view=only())
    talk.ask(ask(version, topic("a b"), topic("a b")), view=only())


@book.case("a time-out", versions=SOME, over={str(ms): ms for ms in (0, -1, -(2**31))})
def timeout(talk: Talk, version: int, timeout_ms: int) -> None:
    asked = [topic(talk.name()), topic("a b")]
    talk.ask(ask(version, *asked, timeout=timeout_ms, validate_only=True), view=only())


@book.case("the longest time-out", versions=SOME)
def longest_timeout(talk: Talk, version: int) -> None:
    talk.ask(ask(version, topic(talk.name()), timeout=2**31 - 1), view=only())


@book.case("too many partitions together", versions=SOME)
def too_many_together(talk: Talk, version: int) -> None:
    names = [talk.name(str(i)) for i in range(3)]
    talk.ask(ask(version, *(topic(name, 4_000) for name in names), validate_only=True), view=only())


# --- configurations -----------------------------------------------------------------------------


@book.case("a value", versions=[7], over={f"{k}={v!r}": (k, v) for k, v in VALUES})
def value(talk: Talk, version: int, asked: tuple[str, str]) -> None:
    """Good ones are returned as they were given, bad ones refused."""
    request = ask(version, topic(talk.name(), configs=[asked]), validate_only=True)
    talk.ask(request, view=only(asked[0]))


# --- bytes --------------------------------------------------------------------------------------


@book.case("null topics", versions=VERSIONS)
def null_topics(talk: Talk, version: int) -> None:
    body = bytearray(body_of(ask(version, timeout=1_000)))
    body[: 1 if version >= 5 else 4] = b"\x00" if version >= 5 else b"\xff\xff\xff\xff"
    talk.ask(Raw(ApiKey.CREATE_TOPICS, version, bytes(body)))


def _topics_bytes(version: int, *, name: bytes, assignments: bytes, configs: bytes) -> bytes:
    flexible = version >= 5
    out = b"\x02" if flexible else b"\x00\x00\x00\x01"
    out += name + b"\x00\x00\x00\x01\x00\x01" + assignments + configs
    out += b"\x00" if flexible else b""
    return out + b"\x00\x00\x10\x00\x01" + (b"\x00" if flexible else b"")


@book.case(
    "null for what may not be null",
    versions=SOME,
    over={name: name for name in ("name", "assignments", "configs")},
)
def null_parts(talk: Talk, version: int, part: str) -> None:
    flexible = version >= 5
    parts = {
        "name": b"\x04a b" if flexible else b"\x00\x03a b",
        "assignments": b"\x01" if flexible else b"\x00\x00\x00\x00",
        "configs": b"\x01" if flexible else b"\x00\x00\x00\x00",
    }
    null = b"\xff\xff" if part == "name" else b"\xff\xff\xff\xff"
    parts[part] = b"\x00" if flexible else null
    talk.ask(Raw(ApiKey.CREATE_TOPICS, version, _topics_bytes(version, **parts)))


add_shapes(
    book,
    ApiKey.CREATE_TOPICS,
    VERSIONS,
    lambda talk, version: ask(
        version, topic("a b", -1, -1, [(0, [1])], [("a", None)]), validate_only=True
    ),
)
