"""Causes from drawn facts: each one that is there is named, what blocks first is named first, and
one that has ended is not named."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, NamedTuple

import pytest

from kbroker.observe.why.answer import NOTHING, document, lines
from kbroker.observe.why.causes import causes_in
from kbroker.observe.why.facts import (
    NO_BROKER,
    About,
    Api,
    Denial,
    Directory,
    Facts,
    Group,
    Holder,
    Load,
    Log,
    Member,
    Partition,
    Question,
    Throttle,
    TooLarge,
    Write,
)
from kbroker.types import TopicPartition

DRAWN: Final = 200
US: Final = 1
NOW_MS: Final = 1_700_000_000_000
GROUP: Final = Group("shop", TopicPartition("__consumer_offsets", 3), US, state="Stable", members=2)
FULL: Final = Directory("/d", "", 1, 100)
FINE: Final = Directory("/d", "", 50, 100)


def healthy(about: About, draw: random.Random) -> Facts:
    """A subject that nothing is wrong with: some partitions are led elsewhere, and each is read."""
    partitions = tuple(
        Partition(
            TopicPartition("orders", index), leader, (1, 2, 3), (1, 2, 3), 2, (), None,
            Log(10, 50, 50, draw.choice((48, 50))) if leader == US else None,
            draw.randint(10, 50),
        )
        for index in range(draw.randint(5, 9))
        for leader in (US if index < 5 else draw.choice((1, 2)),)
    )  # fmt: skip
    return Facts(
        about, US, NOW_MS, partitions if about is not About.SLOW else (),
        group=GROUP if about is About.CONSUMER else None, directories=(FINE,),
    )  # fmt: skip


Change = Callable[[Facts], Facts]


def partition(place: int, change: Callable[[Partition], Partition]) -> Change:
    def changed(facts: Facts) -> Facts:
        some = list(facts.partitions)
        some[place] = change(some[place])
        return facts._replace(partitions=tuple(some))

    return changed


def held(each: Partition) -> Partition:
    holder = Holder(7, 1, 40, "tx", "Ongoing", NOW_MS - 60_000)
    return each._replace(log=Log(10, 50, 50, 40, holder))


def group(**fields: object) -> Change:
    return lambda facts: facts._replace(group=GROUP._replace(**fields))


def load(**fields: object) -> Change:
    return lambda facts: facts._replace(load=facts.load._replace(**fields))


class Break(NamedTuple):
    """`slot`: of two breaks of one slot only one can be there."""

    kind: str
    slot: str
    subjects: str  # first letters: consumer, produce, partition as "t", slow
    change: Change


# In the order in which a request meets them.
BREAKS: Final = (
    Break("denied", "rights", "cpt", lambda facts: facts._replace(
        denials=(Denial("User:anna", "10.0.0.7", "Write", "topic:orders", "DefaultDeny"),))),
    Break("no-coordinator", "group", "c", group(coordinator=NO_BROKER, state="")),
    Break("coordinator-not-ready", "group", "c",
          group(trouble="COORDINATOR_LOAD_IN_PROGRESS", state="")),
    Break("no-group", "group", "c", group(state="", members=0)),
    Break("no-members", "group", "c", group(state="Empty", members=0)),
    Break("rebalance", "group", "c",
          group(state="PreparingRebalance", awaited=(Member("m-1", "c", "10.0.0.7"),))),
    Break("no-topic", "topic", "c", lambda facts: facts._replace(missing=("gone",))),
    Break("no-leader", "0", "cpt",
          partition(0, lambda each: each._replace(leader=NO_BROKER, log=None, in_sync=()))),
    Break("too-large", "batch", "pt", lambda facts: facts._replace(
        too_large=TooLarge(2_000, 1_000, "max.message.bytes", "topic orders"))),
    Break("below-min-in-sync", "1", "pt",
          partition(1, lambda each: each._replace(in_sync=(1,), away=(2,)))),
    Break("broken", "threads", "cpts",
          lambda facts: facts._replace(troubles=(("thread timer", "is dead"),))),
    Break("disk-failed", "disk", "s",
          lambda facts: facts._replace(directories=(Directory("/d", "offline: it has failed"),))),
    Break("log-unusable", "2", "cpt", partition(2, lambda each: each._replace(log=None))),
    Break("disk-hangs", "write", "cpts", lambda facts: facts._replace(
        writes=(Write(TopicPartition("orders", 2), "/d", 7_000),))),
    Break("disk-full", "disk", "pts", lambda facts: facts._replace(directories=(FULL,))),
    Break("offset-out-of-range", "3", "c", partition(3, lambda each: each._replace(committed=9))),
    Break("transaction-open", "4", "ct", partition(4, held)),
    Break("throttled", "quota", "cpts", lambda facts: facts._replace(
        throttles=(Throttle("request", None, "c", 10.0, 20.0, 4, 400),))),
    Break("network-busy", "network", "cpts", load(network_idle=0.1)),
    Break("handlers-busy", "handlers", "cpts",
          load(handlers_idle=0.1, busiest=(Api("Produce", 1_000.0, 0.8),))),
    Break("disk-slow", "flushes", "cpts", load(flush_ms=900.0)),
    Break("followers-slow", "followers", "pts", load(followers_ms=900.0)),
)  # fmt: skip
LETTERS: Final = dict(zip(About, "cpts", strict=True))


def of(about: About) -> list[Break]:
    return [each for each in BREAKS if LETTERS[about] in each.subjects]


def broken(facts: Facts, breaks: list[Break], draw: random.Random) -> Facts:
    for each in draw.sample(breaks, len(breaks)):  # the order of the facts says nothing
        facts = each.change(facts)
    return facts


def kinds(facts: Facts) -> list[str]:
    return [each.kind for each in causes_in(facts)]


@pytest.mark.parametrize("seed", range(DRAWN))
def test_drawn_causes(seed: int) -> None:
    draw = random.Random(seed)
    about = list(About)[seed % len(About)]
    facts = healthy(about, draw)
    assert kinds(facts) == []
    chosen: dict[str, Break] = {}
    for each in draw.sample(of(about), draw.randint(2, 4)):
        chosen.setdefault(each.slot, each)
    there = [each for each in of(about) if each in chosen.values()]
    assert kinds(broken(facts, there, draw)) == [each.kind for each in there]
    ended = draw.choice(there)
    left = [each for each in there if each is not ended]
    assert kinds(broken(facts, left, draw)) == [each.kind for each in left]


def test_each_cause_is_drawn() -> None:
    for about in About:
        assert len(of(about)) >= 7
    assert len({each.kind for each in BREAKS}) == len(BREAKS)


@pytest.mark.parametrize("each", BREAKS, ids=lambda each: each.kind)
def test_a_cause_alone_has_words_and_a_next_step(each: Break) -> None:
    about = next(about for about in About if LETTERS[about] in each.subjects)
    facts = each.change(healthy(about, random.Random(0)))
    (cause,) = causes_in(facts)
    assert cause.kind == each.kind and cause.what and cause.next_step
    text = "\n".join(lines(document(Question(about, "orders"), facts)))
    assert cause.what in text and f"-> {cause.next_step}" in text
    assert NOTHING not in text


@pytest.mark.parametrize("each", BREAKS, ids=lambda each: each.kind)
def test_a_cause_lists_the_names_in_its_words(each: Break) -> None:
    """So a reader with fewer rights can leave it out; the subject's own name is the reader's."""
    about = next(about for about in About if LETTERS[about] in each.subjects)
    (cause,) = causes_in(each.change(healthy(about, random.Random(0))))
    words = " ".join((cause.what, cause.next_step, *cause.evidence))
    named = [topic for topic in ("orders", "gone") if topic in words]
    if cause.kind != "too-large":
        assert list(cause.topics) == named
    assert list(cause.transactional_ids) == [name for name in ("tx",) if f"'{name}'" in words]


@pytest.mark.parametrize("about", About)
def test_nothing_is_wrong(about: About) -> None:
    first, *_ = lines(document(Question(about, "orders"), healthy(about, random.Random(0))))
    assert first == NOTHING


def test_a_failed_disk_is_a_cause_for_a_topic_that_needs_it() -> None:
    failed = (Directory("/d", "offline: it has failed"),)
    facts = healthy(About.PRODUCE, random.Random(0))._replace(directories=failed)
    assert kinds(facts) == []
    without = partition(0, lambda each: each._replace(leader=NO_BROKER, log=None))(facts)
    assert kinds(without) == ["no-leader", "disk-failed"]


def test_a_topic_without_the_partition() -> None:
    assert kinds(Facts(About.PARTITION, US, NOW_MS)) == ["no-partition"]
    assert kinds(Facts(About.PARTITION, US, NOW_MS, missing=("orders",))) == ["no-topic"]


def test_a_transaction_of_a_moment_is_none() -> None:
    facts = partition(4, held)(healthy(About.CONSUMER, random.Random(0)))
    assert kinds(facts) == ["transaction-open"]
    assert kinds(facts._replace(now_ms=NOW_MS - 59_000)) == []


def test_partitions_with_one_cause_are_named_together() -> None:
    facts = healthy(About.PRODUCE, random.Random(0))
    for place, since_ms in enumerate((NOW_MS - 5_000, NOW_MS - 9_000, None)):
        facts = partition(
            place,
            lambda each, since_ms=since_ms: each._replace(  # type: ignore[misc]
                leader=NO_BROKER, log=None, away=(2,), since_ms=since_ms
            ),
        )(facts)
    (cause,) = causes_in(facts)
    assert cause.what.startswith("orders-0, orders-1, orders-2 have no leader (3 of ")
    assert cause.since_ms is None  # of one it is not known
    assert cause.next_step == "start broker 2"
    known = partition(2, lambda each: each._replace(since_ms=NOW_MS))(facts)
    assert causes_in(known)[0].since_ms == NOW_MS - 9_000


def test_names_of_others_move_no_cursor() -> None:
    name = "a\x1b[2Jb\n" + "c" * 5_000
    facts = Facts(
        About.CONSUMER, US, NOW_MS, missing=(name,),
        group=GROUP._replace(name=name, state="Empty", members=0, departed=name),
        denials=(Denial(name, "10.0.0.7", "Read", f"topic:{name}", name),),
        throttles=(Throttle("fetch", name, name, 1.0, 2.0),),
    )  # fmt: skip
    text = list(lines(document(Question(About.CONSUMER, name), facts)))
    assert len(causes_in(facts)) == 4
    assert all(line.isprintable() and len(line) < 5_000 for line in text)


def test_answers_name_parts_that_are_not_seen() -> None:
    facts = healthy(About.CONSUMER, random.Random(0))
    facts = facts._replace(
        group=GROUP._replace(coordinator=2, state=""), left_out=1,
        partitions=(facts.partitions[0]._replace(leader=3, log=None),),
    )  # fmt: skip
    answer = document(Question(About.CONSUMER, "shop"), facts)
    assert answer["causes"] == []
    assert [line.partition(":")[0] for line in answer["not_seen"]] == [
        "members of the group, which broker 2 coordinates",
        "logs of the partitions that broker 3 leads",
        "1 more partition",
    ]


def test_the_load_of_a_moment_without_figures_is_fine() -> None:
    assert causes_in(Facts(About.SLOW, US, NOW_MS, load=Load())) == ()
