"""OffsetCommit (8): the members that may commit, and the offsets that OffsetFetch returns then."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._groups import (
    COMMIT,
    COMMIT_IDS,
    STRANGER,
    UNKNOWN_ID,
    Member,
    commit,
    describe,
    dissolved,
    fetch_offsets,
    in_one,
    join,
    leave,
    stable,
    state_of,
    synced,
    together,
    until,
)
from tests.parity.cases._shapes import add_shapes
from tests.parity.requests import Raw, body_of, raw
from tests.parity.talk import Talk

STATIC = range(7, 11)
ENCODINGS = (2, 8, 10)  # the older, the newer, by a topic's id
SOME = (2, 7, 8, 10)  # and the older one with epochs and instances

book = Book(setup="coordinators")
cases = book.cases


def seen(talk: Talk, group: str, name: str, partitions: int = 1) -> None:
    talk.ask(fetch_offsets(talk, 9, group, [(name, range(partitions))]))


@book.case("a group without a name", versions=COMMIT)
def no_name(talk: Talk, version: int) -> None:
    name = talk.topic()
    talk.ask(commit(talk, version, "", (name, {0: 5})))
    seen(talk, "", name)


@book.case("a group that is not there", versions=SOME)
def simple(talk: Talk, version: int) -> None:
    """Which makes it: a group without members."""
    name, group = talk.topic(partitions=3), talk.name("g")
    talk.ask(commit(talk, version, group, (name, {0: 5, 2: 7})))
    seen(talk, group, name, 3)
    talk.ask(describe(6, group))
    talk.ask(commit(talk, version, group, (name, {0: 3})))
    seen(talk, group, name, 3)


IDENTITIES: dict[str, Any] = {
    "a generation": (0, "", None),
    "a large generation": (9, "", None),
    "a member": (-1, STRANGER, None),
    "both": (1, STRANGER, None),
    "another negative generation": (-2, "", None),
}


@book.case("not there, in the name of", versions=SOME, over=IDENTITIES)
def not_there(talk: Talk, version: int, identity: Any) -> None:
    name, group = talk.topic(), talk.name("g")
    generation, member, instance = identity
    how = {"generation": generation, "member": member, "instance": instance}
    talk.ask(commit(talk, version, group, (name, {0: 5}), **how))
    seen(talk, group, name)
    talk.quietly(commit(talk, 9, group, (name, {0: 1})))
    talk.ask(commit(talk, version, group, (name, {0: 5}), **how))
    seen(talk, group, name)
    empty = dissolved(talk, "h")
    talk.ask(commit(talk, version, empty, (name, {0: 5}), **how))
    seen(talk, empty, name)


@book.case("a stable group's member", versions=COMMIT)
def member(talk: Talk, version: int) -> None:
    name = talk.topic()
    leader, follower = synced(together(talk, 2))
    leader.commit(version, (name, {0: 1}))
    follower.commit(version, (name, {0: 2}))
    seen(talk, leader.group, name)


@book.case("a stable group, in the name of", versions=SOME, over=IDENTITIES)
def stable_group(talk: Talk, version: int, identity: Any) -> None:
    name = talk.topic()
    group = stable(talk).group
    generation, member, instance = identity
    how = {"generation": generation, "member": member, "instance": instance}
    talk.ask(commit(talk, version, group, (name, {0: 5}), **how))
    seen(talk, group, name)


@book.case("a member's generation", versions=SOME, over={str(g): g for g in (-1, 0, 2, 2**31 - 1)})
def generations(talk: Talk, version: int, generation: int) -> None:
    name = talk.topic()
    member = stable(talk)
    member.commit(version, (name, {0: 5}), generation=generation)
    seen(talk, member.group, name)


@book.case("while the group completes", versions=SOME)
def completing(talk: Talk, version: int) -> None:
    name = talk.topic()
    leader, follower = together(talk, 2)
    leader.commit(version, (name, {0: 5}))
    follower.commit(version, (name, {0: 5}), generation=follower.generation - 1)
    follower.commit(version, (name, {0: 5}), generation=-1, member="")
    seen(talk, leader.group, name)


@book.case("while the group prepares", versions=SOME)
def preparing(talk: Talk, version: int) -> None:
    """The old generation still may."""
    name = talk.topic()
    leader = stable(talk)
    other = Member(talk, leader.group)
    other.send_join()
    until(talk, leader.group, "PreparingRebalance", 2)
    leader.commit(version, (name, {0: 5}))
    seen(talk, leader.group, name)
    leader.line.ask(
        commit(talk, version, leader.group, (name, {0: 6}), generation=1, member=other.id)
    )
    leader.commit(version, (name, {0: 7}), generation=2)
    seen(talk, leader.group, name)


@book.case("one that left", versions=SOME)
def gone(talk: Talk, version: int) -> None:
    name = talk.topic()
    leader, follower = synced(together(talk, 2))
    talk.quietly(leave(5, leader.group, follower.key))
    follower.commit(version, (name, {0: 5}))
    talk.quietly(leave(5, leader.group, leader.key))
    leader.commit(version, (name, {0: 5}))
    seen(talk, leader.group, name)


@book.case("an id that has not joined", versions=SOME)
def pending(talk: Talk, version: int) -> None:
    name, group = talk.topic(), talk.name("g")
    given = talk.quietly(join(9, group)).member_id
    for generation in (-1, 0, 1):
        talk.ask(commit(talk, version, group, (name, {0: 5}), generation=generation, member=given))
    seen(talk, group, name)


INSTANCES: dict[str, Any] = {
    "its own": {"instance": "one"},
    "unknown": {"instance": "three"},
    "another's": {"instance": "two"},
    "empty": {"instance": ""},
    "none": {"instance": None},
}


@book.case("an instance", versions=STATIC, over=INSTANCES)
def instances(talk: Talk, version: int, given: dict[str, str | None]) -> None:
    name = talk.topic()
    leader, _ = synced(in_one(talk, [{"instance": "one"}, {"instance": "two"}]))
    leader.commit(version, (name, {0: 5}), **given)
    leader.commit(version, (name, {0: 5}), generation=7, **given)
    leader.commit(version, (name, {0: 5}), member=STRANGER, **given)
    leader.commit(version, (name, {0: 5}), member="", generation=-1, **given)
    seen(talk, leader.group, name)


@book.case("topics that are not there", versions=range(2, COMMIT_IDS))
def unknown_topics(talk: Talk, version: int) -> None:
    name = talk.topic(partitions=2)
    group = stable(talk).group
    talk.ask(commit(talk, version, talk.name("h"), (talk.name("none"), {0: 1})))
    asked = [(talk.name("none"), {0: 1}), (name, {0: 1, 2: 1, -1: 1}), ("", {0: 1}), ("a b", {})]
    talk.ask(commit(talk, version, talk.name("h"), *asked))
    talk.ask(commit(talk, version, group, *asked))
    seen(talk, talk.name("h"), name, 2)


@book.case("ids that are not there", versions=range(COMMIT_IDS, 11))
def unknown_ids(talk: Talk, version: int) -> None:
    name = talk.topic(partitions=2)
    group = talk.name("h")
    talk.ask(commit(talk, version, group, (UNKNOWN_ID, {0: 1, 5: 1})))
    talk.ask(commit(talk, version, group, (None, {0: 1}), (name, {1: 1, 7: 1})))
    seen(talk, group, name, 2)


@book.case("a topic that is gone", versions=SOME)
def gone_topic(talk: Talk, version: int) -> None:
    name, group = talk.topic(), talk.name("g")
    request = commit(talk, version, group, (name, {0: 1}))
    talk.ask(request)
    talk.delete(name)
    talk.ask(request)


NUMBERS = {str(n): n for n in (0, -1, -2, -(2**63), 2**63 - 1)}


@book.case("an offset of", versions=ENCODINGS, over=NUMBERS)
def offsets(talk: Talk, version: int, offset: int) -> None:
    name, group = talk.topic(), talk.name("g")
    talk.ask(commit(talk, version, group, (name, {0: offset})))
    seen(talk, group, name)


@book.case(
    "a leader epoch of", versions=range(6, 11), over={str(n): n for n in (0, 5, -2, 2**31 - 1)}
)
def epochs(talk: Talk, version: int, epoch: int) -> None:
    name, group = talk.topic(), talk.name("g")
    talk.ask(commit(talk, version, group, (name, {0: (7, epoch, "")})))
    seen(talk, group, name)


METADATA = {
    "null": None,
    "some": "some words",
    "4,096 characters": "m" * 4_096,
    "4,097 characters": "m" * 4_097,
    "4,096 letters beyond ASCII": "\u00fc" * 4_096,
    "4,097 letters beyond ASCII": "\u00fc" * 4_097,
    "2,048 letters beyond the 16 bits": "\U0001f600" * 2_048,
    "2,049 letters beyond the 16 bits": "\U0001f600" * 2_049,
}


@book.case("metadata", versions=ENCODINGS, over=METADATA)
def metadata(talk: Talk, version: int, text: str | None) -> None:
    """Too long for one partition says nothing of the others."""
    name, group = talk.topic(partitions=2), talk.name("g")
    talk.ask(commit(talk, version, group, (name, {0: (7, -1, text), 1: (8, -1, "short")})))
    seen(talk, group, name, 2)


@book.case("metadata too long alone", versions=SOME)
def only_too_long(talk: Talk, version: int) -> None:
    name, group = talk.topic(), talk.name("g")
    talk.ask(commit(talk, version, group, (name, {0: (7, -1, "m" * 4_097)})))
    talk.ask(describe(6, group))


@book.case("nothing", versions=COMMIT)
def nothing(talk: Talk, version: int) -> None:
    name, group = talk.topic(), talk.name("g")
    talk.ask(commit(talk, version, group))
    talk.ask(commit(talk, version, group, (name, {})))
    talk.ask(describe(6, group))
    member = stable(talk, "h")
    member.commit(version)
    member.commit(version, (name, {}))
    member.commit(version, generation=9)


@book.case("a partition twice", versions=SOME)
def partition_twice(talk: Talk, version: int) -> None:
    name, group = talk.topic(), talk.name("g")
    talk.ask(commit(talk, version, group, (name, [(0, 1), (0, 2)])))
    seen(talk, group, name)


@book.case("a topic twice", versions=SOME)
def topic_twice(talk: Talk, version: int) -> None:
    name, group = talk.topic(partitions=2), talk.name("g")
    talk.ask(commit(talk, version, group, (name, {0: 1}), (name, {1: 2})))
    seen(talk, group, name, 2)


@book.case("three topics", versions=COMMIT)
def three_topics(talk: Talk, version: int) -> None:
    names = [talk.topic(n, partitions=2) for n in "abc"]
    member = stable(talk)
    member.commit(version, *((n, {0: (i, i, n), 1: i + 1}) for i, n in enumerate(names)))
    for name in names:
        seen(talk, member.group, name, 2)


@book.case("a hundred partitions", versions=SOME)
def hundred(talk: Talk, version: int) -> None:
    name = talk.topic(partitions=100)
    member = stable(talk)
    member.commit(version, (name, {i: i for i in range(100)}))
    seen(talk, member.group, name, 100)


@book.case("twenty in one piece", versions=SOME)
def pipelined(talk: Talk, version: int) -> None:
    """Of two groups, with mistakes between them: answered in order, the last one counts."""
    name = talk.topic(partitions=2)
    one, two = stable(talk), stable(talk, "h")
    talk.main.hold()
    for place in range(20):
        member = (one, two)[place % 2]
        generation = 1 + (place % 7 == 0)
        part = {place % 3: place}
        how = {"generation": generation, "member": member.id}
        talk.send(commit(talk, version, member.group, (name, part), **how))
    talk.main.release()
    answers = [talk.receive(record=False) for _ in range(20)]
    codes = [[p.error_code.value for t in a.topics for p in t.partitions] for a in answers]
    talk.note("codes", codes)
    seen(talk, one.group, name, 2)
    seen(talk, two.group, name, 2)


@book.case("a commit and what it shows in one piece", versions=SOME)
def read_your_write(talk: Talk, version: int) -> None:
    name, group = talk.topic(), talk.name("g")
    talk.main.hold()
    for offset in range(5):
        talk.send(commit(talk, version, group, (name, {0: offset})))
        talk.send(fetch_offsets(talk, 9, group, [(name, [0])]))
    talk.main.release()
    for _ in range(10):
        talk.receive()


@book.case("a topic that begins with two underscores", versions=range(2, COMMIT_IDS))
def internal(talk: Talk, version: int) -> None:
    group = talk.name("g")
    talk.ask(commit(talk, version, group, ("__consumer_offsets", {0: 1})))
    seen(talk, group, "__consumer_offsets")
    talk.note("state", state_of(talk, group))


@book.case("null topics", versions=COMMIT)
def null_topics(talk: Talk, version: int) -> None:
    request = commit(talk, version, talk.name("g"))
    body = body_of(request)
    null = body[:-2] + b"\x00\x00" if version >= 8 else body[:-4] + b"\xff\xff\xff\xff"
    talk.ask(raw(request, null))


@book.case("more topics than bytes", versions=SOME)
def too_many(talk: Talk, version: int) -> None:
    body = body_of(commit(talk, version, talk.name("g")))
    count, size = (b"\xff\xff\xff\xff\x07", 2) if version >= 8 else (b"\x7f\xff\xff\xff", 4)
    talk.ask(Raw(ApiKey.OFFSET_COMMIT, version, body[:-size] + count))


add_shapes(book, ApiKey.OFFSET_COMMIT, COMMIT, lambda talk, v: commit(talk, v, ""))


def _of_nobody(talk: Talk, version: int) -> Any:
    """Refused as a whole, with a topic in it."""
    topic: Any = UNKNOWN_ID if version >= COMMIT_IDS else "none"
    return commit(talk, version, talk.name("g"), (topic, {0: 1, 1: (2, 3, "m")}), generation=5)


add_shapes(book, ApiKey.OFFSET_COMMIT, COMMIT, _of_nobody, title="with a topic")
