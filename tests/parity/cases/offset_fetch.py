"""OffsetFetch (9): the committed offsets of one group or several."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._groups import (
    FETCH,
    FETCH_IDS,
    STRANGER,
    UNKNOWN_ID,
    Member,
    commit,
    delete_groups,
    dissolved,
    fetch_groups,
    fetch_offsets,
    stable,
    until,
)
from tests.parity.cases._shapes import add_shapes
from tests.parity.requests import body_of, raw
from tests.parity.talk import Talk

ALL = range(2, 11)
SOME = (1, 5, 7, 8, 10)  # the older, with epochs, the newer, of several groups, by a topic's id
SEVERAL = range(8, 11)
STABLE = range(7, 11)
AS_MEMBER = range(9, 11)

book = Book(setup="coordinators")
cases = book.cases


def committed(talk: Talk, group: str = "g") -> tuple[str, str]:
    """(group, topic of three partitions): 0 is at 5 with an epoch and words, 1 is at 6."""
    name, full = talk.topic(partitions=3), talk.name(group)
    parts: Any = {0: (5, 3, "words"), 1: (6, -1, "")}
    talk.quietly(commit(talk, 9, full, (name, parts)))
    return full, name


@book.case("a group without a name", versions=FETCH)
def no_name(talk: Talk, version: int) -> None:
    """Which other cases commit for, too."""
    talk.ask(fetch_offsets(talk, version, "", [(talk.topic(), [0])]))


@book.case("a group that is not there", versions=SOME)
def no_group(talk: Talk, version: int) -> None:
    talk.ask(fetch_offsets(talk, version, talk.name("g"), [(talk.topic(), [0, 1])]))
    talk.ask(fetch_offsets(talk, version, talk.name("g")))


@book.case("partitions", versions=FETCH)
def partitions(talk: Talk, version: int) -> None:
    group, name = committed(talk)
    talk.ask(fetch_offsets(talk, version, group, [(name, [0, 1, 2])]))
    talk.ask(fetch_offsets(talk, version, group, [(name, [1])]))
    talk.ask(fetch_offsets(talk, version, group, [(name, [7, -1, 0])]))
    talk.ask(fetch_offsets(talk, version, group, [(name, [])]))
    talk.ask(fetch_offsets(talk, version, group, []))


@book.case("all", versions=ALL)
def everything(talk: Talk, version: int) -> None:
    group, _ = committed(talk)
    other = talk.topic("other")
    talk.quietly(commit(talk, 9, group, (other, {0: 9})))
    talk.topic_id(talk.name("t"))
    talk.topic_id(other)
    talk.ask(fetch_offsets(talk, version, group))


@book.case("a partition and a topic twice", versions=SOME)
def twice(talk: Talk, version: int) -> None:
    group, name = committed(talk)
    talk.ask(fetch_offsets(talk, version, group, [(name, [0, 0])]))
    talk.ask(fetch_offsets(talk, version, group, [(name, [0]), (name, [1])]))


@book.case("topics that are not there", versions=range(1, FETCH_IDS))
def unknown_topics(talk: Talk, version: int) -> None:
    group, name = committed(talk)
    asked = [(talk.name("none"), [0]), (name, [0]), ("", [0]), ("a b", [])]
    talk.ask(fetch_offsets(talk, version, group, asked))


@book.case("ids that are not there", versions=range(FETCH_IDS, 11))
def unknown_ids(talk: Talk, version: int) -> None:
    group, name = committed(talk)
    talk.ask(fetch_offsets(talk, version, group, [(UNKNOWN_ID, [0, 1])]))
    talk.ask(fetch_offsets(talk, version, group, [(None, [0]), (name, [0])]))


@book.case("a topic that is gone", versions=SOME)
def gone_topic(talk: Talk, version: int) -> None:
    """Its commits go with it."""
    group, name = committed(talk)
    wanted = [(name, [0])]
    request = fetch_offsets(talk, version, group, wanted)
    talk.delete(name)
    found = fetch_offsets(talk, 7, group, wanted)
    talk.until(lambda: talk.quietly(found).topics[0].partitions[0].committed_offset == -1)
    talk.ask(request)
    talk.ask(fetch_offsets(talk, version, group))


@book.case("a topic that was made again", versions=SOME)
def again(talk: Talk, version: int) -> None:
    group, name = committed(talk)
    talk.delete(name)
    found = fetch_offsets(talk, 7, group, [(name, [0])])
    talk.until(lambda: talk.quietly(found).topics[0].partitions[0].committed_offset == -1)
    talk.topic(partitions=3)
    talk.ask(fetch_offsets(talk, version, group, [(name, [0])]))
    talk.ask(commit(talk, 9, group, (name, {0: 2})))
    talk.ask(fetch_offsets(talk, version, group, [(name, [0])]))


@book.case("a group with members", versions=SOME)
def with_members(talk: Talk, version: int) -> None:
    name = talk.topic(partitions=2)
    member = stable(talk)
    member.commit(9, (name, {0: 8}))
    talk.ask(fetch_offsets(talk, version, member.group, [(name, [0, 1])]))
    other = Member(talk, member.group)
    other.send_join()
    until(talk, member.group, "PreparingRebalance", 2)
    talk.ask(fetch_offsets(talk, version, member.group, [(name, [0, 1])]))


@book.case("an Empty group", versions=SOME)
def empty(talk: Talk, version: int) -> None:
    talk.ask(fetch_offsets(talk, version, dissolved(talk), [(talk.topic(), [0])]))


@book.case("a deleted group", versions=SOME)
def deleted(talk: Talk, version: int) -> None:
    group, name = committed(talk)
    talk.quietly(delete_groups(2, group))
    talk.ask(fetch_offsets(talk, version, group, [(name, [0])]))
    talk.ask(fetch_offsets(talk, version, group))


@book.case("only what is stable", versions=STABLE)
def only_stable(talk: Talk, version: int) -> None:
    group, name = committed(talk)
    talk.ask(fetch_offsets(talk, version, group, [(name, [0, 2])], stable=True))
    talk.ask(fetch_offsets(talk, version, group, stable=True))


IDENTITIES: dict[str, Any] = {
    "nobody": (None, -1),
    "an unknown one": (STRANGER, 1),
    "an epoch": (None, 1),
    "an epoch of 0": (None, 0),
    "an empty one": ("", -1),
    "a negative epoch": (STRANGER, -5),
}


@book.case("as a member", versions=AS_MEMBER, over=IDENTITIES)
def as_member(talk: Talk, version: int, identity: Any) -> None:
    group, name = committed(talk)
    member, epoch = identity
    talk.ask(fetch_offsets(talk, version, group, [(name, [0])], member=member, epoch=epoch))
    talk.ask(
        fetch_offsets(talk, version, talk.name("no"), [(name, [0])], member=member, epoch=epoch)
    )
    held = stable(talk, "h").group
    talk.ask(fetch_offsets(talk, version, held, [(name, [0])], member=member, epoch=epoch))


@book.case("as a member of its group", versions=AS_MEMBER)
def as_its_member(talk: Talk, version: int) -> None:
    name = talk.topic()
    member = stable(talk)
    member.commit(9, (name, {0: 8}))
    for epoch in (1, 2, -1):
        how = {"member": member.id, "epoch": epoch}
        talk.ask(fetch_offsets(talk, version, member.group, [(name, [0])], **how))


@book.case("several groups", versions=SEVERAL)
def several(talk: Talk, version: int) -> None:
    one, name = committed(talk)
    two = stable(talk, "h").group
    talk.quietly(commit(talk, 9, talk.name("i"), (name, {2: 4})))
    talk.ask(
        fetch_groups(
            talk,
            version,
            (one, [(name, [0, 1])]),
            (two, [(name, [0])]),
            (talk.name("i"), None),
            (talk.name("no"), [(name, [0])]),
            ("", [(name, [0])]),
        )
    )


@book.case("no groups", versions=SEVERAL)
def no_groups(talk: Talk, version: int) -> None:
    talk.ask(fetch_groups(talk, version))


@book.case("a group twice", versions=SEVERAL)
def group_twice(talk: Talk, version: int) -> None:
    group, name = committed(talk)
    talk.ask(fetch_groups(talk, version, (group, [(name, [0])]), (group, [(name, [0])])))


@book.case("null groups", versions=SEVERAL)
def null_groups(talk: Talk, version: int) -> None:
    request = fetch_groups(talk, version)
    talk.ask(raw(request, b"\x00" + body_of(request)[1:]))


@book.case("more groups than bytes", versions=SEVERAL)
def too_many(talk: Talk, version: int) -> None:
    request = fetch_groups(talk, version)
    talk.ask(raw(request, b"\xff\xff\xff\xff\x07" + body_of(request)[1:]))


@book.case("null topics in version 1", versions=[1])
def null_topics(talk: Talk, version: int) -> None:
    request = fetch_offsets(talk, version, talk.name("g"), [])
    talk.ask(raw(request, body_of(request)[:-4] + b"\xff\xff\xff\xff"))


@book.case("two hundred partitions", versions=SOME)
def many(talk: Talk, version: int) -> None:
    name, group = talk.topic(partitions=200), talk.name("g")
    talk.quietly(commit(talk, 9, group, (name, {i: i * 3 for i in range(0, 200, 2)})))
    talk.ask(fetch_offsets(talk, version, group, [(name, range(200))]))
    talk.ask(fetch_offsets(talk, version, group))


add_shapes(
    *(book, ApiKey.OFFSET_FETCH, FETCH),
    lambda talk, version: fetch_offsets(
        *(talk, version, "nobody's", [(UNKNOWN_ID if version >= FETCH_IDS else "none", [0])])
    ),
)
