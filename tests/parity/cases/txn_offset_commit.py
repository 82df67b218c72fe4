"""TxnOffsetCommit (28): refusals before a transaction is looked at, and offsets in transactions.

Up to version 4 a client adds the group with AddOffsetsToTxn, from version 5 on this request does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._groups import (
    Member,
    commit,
    delete_groups,
    delete_offsets,
    fetch_offsets,
    stable,
)
from tests.parity.cases._transactions import (
    END_AND_RAISE,
    Pair,
    Producer,
    add_offsets,
    commit_offsets,
    state_of,
)
from tests.parity.cases.add_partitions_to_txn import PAIRS
from tests.parity.requests import build, raw, tagged
from tests.parity.talk import Talk

VERSIONS = range(6)
OUTCOMES = {"commit": True, "abort": False}

book = Book()
cases = book.cases
IN_TRANSACTIONS = "coordinators"


def ask(version: int, name: str, *indexes: int) -> Any:
    partitions = [{"partition_index": each, "committed_offset": 1} for each in indexes]
    return build(
        ApiKey.TXN_OFFSET_COMMIT,
        version,
        transactional_id=name,
        group_id=name,
        producer_id=1,
        producer_epoch=0,
        topics=[{"name": name, "partitions": partitions}],
    )


@book.case("of a topic that is not there", versions=VERSIONS)
def unknown(talk: Talk, version: int) -> None:
    talk.ask(ask(version, talk.name(), 0, 1))


@book.case("of partitions that are not there", versions=VERSIONS)
def beyond(talk: Talk, version: int) -> None:
    talk.ask(ask(version, talk.topic("t", partitions=1), 1, -1))


@book.case("of no topic", versions=VERSIONS)
def none(talk: Talk, version: int) -> None:
    nothing = build(ApiKey.TXN_OFFSET_COMMIT, version, transactional_id="a", group_id="b")
    talk.ask(nothing)


@book.case("unknown tagged fields", versions=range(3, 6))
def unknown_tags(talk: Talk, version: int) -> None:
    talk.ask(tagged(ask(version, talk.name(), 0), {9: b"x"}), header_tags={77: b"yz"})


@book.case("cut short", versions=VERSIONS)
def cut(talk: Talk, version: int) -> None:
    whole = ask(version, "a", 0)
    talk.ask(raw(whole, raw(whole).body[:-2]))


@book.case("a version that is not served")
def later(talk: Talk) -> None:
    talk.ask(raw(ask(5, "a", 0), version=6))


# --- in transactions ------------------------------------------------------------------------------


def fetched(talk: Talk, group: str, name: str) -> None:
    """Record the offset that counts, and whether one is pending."""
    talk.ask(fetch_offsets(talk, 7, group, [(name, [0, 1])]))
    talk.ask(fetch_offsets(talk, 7, group, [(name, [0, 1])], stable=True))


def begun(talk: Talk, one: Producer, group: str) -> None:
    answer = talk.quietly(add_offsets(3, one.name, one.pair, group))
    assert not answer.error_code.value


@book.case("in a transaction", versions=VERSIONS, over=OUTCOMES, setup=IN_TRANSACTIONS)
def outcome(talk: Talk, version: int, committed: bool) -> None:
    """Twice in one transaction, of which the later counts."""
    name, group, one = talk.topic(partitions=2), talk.name("g"), Producer(talk)
    begun(talk, one, group)
    for offset in (5, 6):
        talk.ask(commit_offsets(version, one.name, one.pair, group, name, {0: offset}))
        fetched(talk, group, name)
    one.end(committed=committed)
    fetched(talk, group, name)


@book.case("a group that was not added", versions=VERSIONS, setup=IN_TRANSACTIONS)
def not_added(talk: Talk, version: int) -> None:
    """Before a transaction, in one, and after its outcome."""
    name, group, one = talk.topic(partitions=2), talk.name("g"), Producer(talk)
    talk.ask(commit_offsets(version, one.name, one.pair, group, name, {0: 5}))
    state_of(talk, one.name)
    one.begin(name)
    talk.ask(commit_offsets(version, one.name, one.pair, group, name, {1: 6}))
    state_of(talk, one.name)
    one.commit()
    talk.ask(commit_offsets(version, one.name, one.pair, group, name, {1: 7}))
    fetched(talk, group, name)


@book.case("not its pair", versions=VERSIONS, over=PAIRS, setup=IN_TRANSACTIONS)
def pairs(talk: Talk, version: int, of: Callable[[Pair], Pair]) -> None:
    name, group, one = talk.topic(partitions=2), talk.name("g"), Producer(talk)
    one.renew()
    begun(talk, one, group)
    talk.ask(commit_offsets(version, one.name, of(one.pair), group, name, {0: 5}))
    talk.ask(commit_offsets(version, one.name, one.pair, group, name, {0: 6}))
    talk.ask(commit_offsets(version, one.name, of(one.pair), group, name, {0: 7}))
    one.commit()
    fetched(talk, group, name)
    state_of(talk, one.name)


@book.case("after an outcome that raised the epoch", versions=VERSIONS, setup=IN_TRANSACTIONS)
def raised(talk: Talk, version: int) -> None:
    name, group, one = talk.topic(partitions=2), talk.name("g"), Producer(talk)
    begun(talk, one, group)
    talk.ask(commit_offsets(version, one.name, one.pair, group, name, {0: 5}))
    before = one.pair
    one.commit(END_AND_RAISE)
    talk.ask(commit_offsets(version, one.name, before, group, name, {0: 6}))
    talk.ask(commit_offsets(version, one.name, one.pair, group, name, {0: 7}))
    state_of(talk, one.name)
    fetched(talk, group, name)


@book.case("an id or a group that is empty", versions=VERSIONS, setup=IN_TRANSACTIONS)
def empty(talk: Talk, version: int) -> None:
    name, one = talk.topic(partitions=2), Producer(talk)
    talk.ask(commit_offsets(version, "", one.pair, talk.name("g"), name, {0: 5}))
    talk.ask(commit_offsets(version, one.name, one.pair, "", name, {0: 5}))
    talk.ask(commit_offsets(version, talk.name("none"), one.pair, talk.name("g"), name, {0: 5}))


# A member's identity in the request, from its own generation and id.
MEMBERS: dict[str, Callable[[Member], tuple[int, str]]] = {
    "as it is": lambda member: (member.generation, member.id),
    "an older generation": lambda member: (member.generation - 1, member.id),
    "a newer generation": lambda member: (member.generation + 1, member.id),
    "another member": lambda member: (member.generation, "another"),
    "no member": lambda member: (member.generation, ""),
    "no generation": lambda member: (-1, member.id),
    "as a simple consumer": lambda member: (-1, ""),
}


@book.case("by a member", versions=VERSIONS[3:], over=MEMBERS, setup=IN_TRANSACTIONS)
def by_member(talk: Talk, version: int, of: Callable[[Member], tuple[int, str]]) -> None:
    name, one, member = talk.topic(partitions=2), Producer(talk), stable(talk)
    begun(talk, one, member.group)
    generation, member_id = of(member)
    asked = commit_offsets(
        *(version, one.name, one.pair, member.group, name, {0: 5}),
        generation=generation,
        member=member_id,
    )
    talk.ask(asked)
    fetched(talk, member.group, name)
    one.commit()
    fetched(talk, member.group, name)


@book.case(
    "to a group that is not there",
    versions=VERSIONS[3:],
    over={"generation 1": (1, ""), "a member": (-1, "m"), "both": (1, "m"), "neither": (-1, "")},
    setup=IN_TRANSACTIONS,
)
def no_group(talk: Talk, version: int, of: tuple[int, str]) -> None:
    name, group, one = talk.topic(partitions=2), talk.name("g"), Producer(talk)
    begun(talk, one, group)
    asked = commit_offsets(
        *(version, one.name, one.pair, group, name, {0: 5}), generation=of[0], member=of[1]
    )
    talk.ask(asked)
    fetched(talk, group, name)


@book.case("beside a plain commit", versions=(0, 3, 5), over=OUTCOMES, setup=IN_TRANSACTIONS)
def beside(talk: Talk, version: int, committed: bool) -> None:
    """Which is later in the log, so it counts, although the outcome comes after it."""
    name, group, one = talk.topic(partitions=2), talk.name("g"), Producer(talk)
    talk.quietly(commit(talk, 7, group, (name, {0: 1, 1: 1})))
    begun(talk, one, group)
    talk.ask(commit_offsets(version, one.name, one.pair, group, name, {0: 5, 1: 5}))
    talk.ask(commit(talk, 7, group, (name, {1: 9})))
    fetched(talk, group, name)
    one.end(committed=committed)
    fetched(talk, group, name)


@book.case("of two producers", versions=(0, 3, 5), setup=IN_TRANSACTIONS)
def two_producers(talk: Talk, version: int) -> None:
    """The later record counts, whichever outcome is later."""
    name, group = talk.topic(partitions=2), talk.name("g")
    one, two = Producer(talk, "a"), Producer(talk, "b")
    for each in (one, two):
        begun(talk, each, group)
    talk.ask(commit_offsets(version, one.name, one.pair, group, name, {0: 5, 1: 5}))
    talk.ask(commit_offsets(version, two.name, two.pair, group, name, {0: 8}))
    two.commit()
    fetched(talk, group, name)
    one.commit()
    fetched(talk, group, name)


@book.case("a group that is deleted meanwhile", versions=(0, 3, 5), setup=IN_TRANSACTIONS)
def deleted(talk: Talk, version: int) -> None:
    name, group, one = talk.topic(partitions=2), talk.name("g"), Producer(talk)
    begun(talk, one, group)
    talk.ask(commit_offsets(version, one.name, one.pair, group, name, {0: 5}))
    talk.ask(delete_groups(2, group))
    fetched(talk, group, name)
    one.commit()
    fetched(talk, group, name)
    talk.ask(delete_groups(2, group))
    fetched(talk, group, name)


@book.case(
    "a group with offsets that is deleted meanwhile",
    versions=(3,),
    over=OUTCOMES,
    setup=IN_TRANSACTIONS,
)
def deleted_with_offsets(talk: Talk, version: int, committed: bool) -> None:
    """An offset that the transaction commits after that is of a new group."""
    name, group, one = talk.topic(partitions=2), talk.name("g"), Producer(talk)
    talk.quietly(commit(talk, 7, group, (name, {0: 1, 1: 1})))
    begun(talk, one, group)
    talk.ask(commit_offsets(version, one.name, one.pair, group, name, {0: 5}))
    talk.ask(delete_groups(2, group))
    fetched(talk, group, name)
    talk.ask(commit_offsets(version, one.name, one.pair, group, name, {1: 6}))
    fetched(talk, group, name)
    one.end(committed=committed)
    fetched(talk, group, name)
    talk.ask(delete_groups(2, group))


@book.case("a group of two producers that is deleted meanwhile", setup=IN_TRANSACTIONS)
def deleted_of_two(talk: Talk) -> None:
    name, group, other = talk.topic(partitions=2), talk.name("g"), talk.name("h")
    one, two = Producer(talk, "a"), Producer(talk, "b")
    for each in (one, two):
        begun(talk, each, group)
        begun(talk, each, other)
        talk.ask(commit_offsets(3, each.name, each.pair, group, name, {0: 5}))
        talk.ask(commit_offsets(3, each.name, each.pair, other, name, {0: 7}))
    talk.ask(delete_groups(2, group))
    one.abort()
    two.commit()
    fetched(talk, group, name)
    fetched(talk, other, name)


@book.case("offsets that are deleted meanwhile", over=OUTCOMES, setup=IN_TRANSACTIONS)
def deleted_offsets(talk: Talk, committed: bool) -> None:
    """One that was committed before, and one that is only pending."""
    name, group, one = talk.topic(partitions=2), talk.name("g"), Producer(talk)
    talk.quietly(commit(talk, 7, group, (name, {0: 1})))
    begun(talk, one, group)
    talk.ask(commit_offsets(3, one.name, one.pair, group, name, {0: 5, 1: 6}))
    talk.ask(delete_offsets(group, (name, [0, 1])))
    fetched(talk, group, name)
    one.end(committed=committed)
    fetched(talk, group, name)
    talk.ask(delete_groups(2, group))


@book.case("an offset that is only pending is deleted", setup=IN_TRANSACTIONS)
def deleted_pending(talk: Talk) -> None:
    name, group, one = talk.topic(partitions=2), talk.name("g"), Producer(talk)
    begun(talk, one, group)
    talk.ask(commit_offsets(3, one.name, one.pair, group, name, {0: 5}))
    talk.ask(delete_offsets(group, (name, [0, 1])))
    fetched(talk, group, name)
    one.commit()
    fetched(talk, group, name)


@book.case(
    "of a topic that is deleted meanwhile",
    over={
        f"{outcome}, {made}": (committed, again)
        for outcome, committed in OUTCOMES.items()
        for made, again in (("gone", False), ("made again", True))
    },
    setup=IN_TRANSACTIONS,
)
def deleted_topic(talk: Talk, how: tuple[bool, bool]) -> None:
    """It had one offset that holds and one that is only pending; both go with it."""
    committed, again = how
    name, group, one = talk.topic(partitions=2), talk.name("g"), Producer(talk)
    talk.quietly(commit(talk, 7, group, (name, {0: 1})))
    begun(talk, one, group)
    talk.ask(commit_offsets(3, one.name, one.pair, group, name, {0: 5, 1: 6}))
    talk.delete(name)

    def nothing_is_left() -> bool:
        answer = talk.quietly(fetch_offsets(talk, 7, group, [(name, [0, 1])], stable=True))
        (topic,) = answer.topics
        return all(
            (each.committed_offset, each.error_code.value) == (-1, 0) for each in topic.partitions
        )

    talk.until(nothing_is_left)
    if again:
        talk.topic(partitions=2)
    one.end(committed=committed)
    fetched(talk, group, name)
    talk.ask(fetch_offsets(talk, 7, group))
