"""Rights to newer groups, to share state, quotas and users: none, each, and one that is denied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases import alter_client_quotas as quotas
from tests.parity.cases import consumer_groups, share_groups, share_state, streams_groups
from tests.parity.cases._rights import acls_of, add_rights, topics
from tests.parity.cases.share_fetch import Member, made
from tests.parity.requests import build
from tests.parity.sides import SHARE_AUTHORIZER
from tests.parity.talk import Talk, View

book = Book(setup=SHARE_AUTHORIZER)
cases = book.cases

UNORDERED: Final = ("topic_partitions", "subscribed_topic_names", "results")


def in_order(talk: Talk) -> View:
    """Lists that are sets in Apache Kafka, sorted."""

    def of(data: Any) -> Any:
        if isinstance(data, list):
            return [of(each) for each in data]
        if not isinstance(data, dict):
            return data
        found = {key: of(value) for key, value in data.items()}
        for key in UNORDERED:
            if isinstance(found.get(key), list):
                found[key].sort(key=repr)
        return found

    return of


# --- groups ---------------------------------------------------------------------------------------

JOINS: Final = "READ G g, DESCRIBE T t, DESCRIBE T u"
JOINERS: Final = [
    "READ G g",
    "READ G g, DESCRIBE T t",
    "DESCRIBE G g, DESCRIBE T t, DESCRIBE T u",
    JOINS,
    f"{JOINS}, DENY READ G g",
    f"{JOINS}, DENY DESCRIBE G g",
    f"{JOINS}, DENY DESCRIBE T u",
    f"{JOINS}, DENY READ T u",
]
SEES: Final = "DESCRIBE G g, DESCRIBE T t, DESCRIBE T u"
SEERS: Final = [
    "DESCRIBE G g",
    "DESCRIBE G g, DESCRIBE T t",
    "READ G g, READ T t, READ T u",
    SEES,
    f"{SEES}, DENY DESCRIBE G g",
    f"{SEES}, DENY READ G g",
    f"{SEES}, DENY DESCRIBE T u",
]


def ready(talk: Talk) -> None:
    """Topics, and a coordinator of the group."""
    topics(talk)
    streams_groups.named(talk)


def both(talk: Talk) -> tuple[str, str]:
    return talk.name("t"), talk.name("u")


def assigned(talk: Talk, beat: Callable[[str, int], Any], *topics: str) -> None:
    """A member "m" of the group that has partitions of these topics."""
    group = talk.name("g")
    epochs = [0]

    def has_all() -> bool:
        answer = talk.quietly(beat(group, epochs[-1]))
        epochs.append(answer.member_epoch)
        parts = [] if answer.assignment is None else answer.assignment.topic_partitions
        return len(parts) == len(topics)

    talk.until(has_all)


def consuming(talk: Talk) -> None:
    ready(talk)

    def beat(group: str, epoch: int) -> Any:
        if epoch == 0:
            return consumer_groups.join(0, group, "m", *both(talk))
        return consumer_groups.beat(0, group, "m", epoch)

    assigned(talk, beat, *both(talk))


def sharing(talk: Talk) -> None:
    ready(talk)

    def beat(group: str, epoch: int) -> Any:
        how = {} if epoch else {"subscribed_topic_names": [*both(talk)]}
        return share_groups.beat(group, "m", epoch, **how)

    assigned(talk, beat, *both(talk))


add_rights(
    book,
    "ConsumerGroupHeartbeat",
    range(2),
    JOINERS,
    lambda talk, version: consumer_groups.join(version, talk.name("g"), "m", *both(talk)),
    prepare=ready,
    view=in_order,
    setup=SHARE_AUTHORIZER,
)
add_rights(
    book,
    "ConsumerGroupDescribe",
    range(2),
    SEERS,
    lambda talk, version: build(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        version,
        group_ids=[talk.name("g"), talk.name("none")],
        include_authorized_operations=True,
    ),
    prepare=consuming,
    view=in_order,
    setup=SHARE_AUTHORIZER,
)
add_rights(
    book,
    "ShareGroupHeartbeat",
    [1],
    JOINERS,
    lambda talk, version: share_groups.beat(
        talk.name("g"), "m", 0, subscribed_topic_names=[*both(talk)]
    ),
    prepare=ready,
    view=in_order,
    setup=SHARE_AUTHORIZER,
)
add_rights(
    book,
    "ShareGroupDescribe",
    [1],
    SEERS,
    lambda talk, version: build(
        ApiKey.SHARE_GROUP_DESCRIBE,
        version,
        group_ids=[talk.name("g"), talk.name("none")],
        include_authorized_operations=True,
    ),
    prepare=sharing,
    view=in_order,
    setup=SHARE_AUTHORIZER,
)

# --- streams groups -------------------------------------------------------------------------------

STREAMS: Final = "READ G g, DESCRIBE T t0"
INTERNAL: Final = f"{STREAMS}, DESCRIBE T store"


def streaming(talk: Talk) -> None:
    streams_groups.with_topics(talk, 1)


def in_work(talk: Talk) -> None:
    group, name = streams_groups.with_topics(talk, 1)
    plain = streams_groups.topology(streams_groups.part("0", [name]))
    talk.quietly(streams_groups.join(group, "m", plain))


def joining(talk: Talk, *, keeps: bool) -> Any:
    """`keeps`: it has a changelog."""
    more = {"state_changelog_topics": [streams_groups.info(talk.name("store"))]} if keeps else {}
    what = streams_groups.topology(streams_groups.part("0", [talk.name("t0")], **more))
    return streams_groups.join(talk.name("g"), "m", what)


add_rights(
    book,
    "StreamsGroupHeartbeat",
    [0],
    [
        "READ G g",
        "DESCRIBE G g, DESCRIBE T t0",
        STREAMS,
        f"{STREAMS}, DENY READ G g",
        f"{STREAMS}, DENY DESCRIBE T t0",
    ],
    lambda talk, version: joining(talk, keeps=False),
    prepare=streaming,
    setup=SHARE_AUTHORIZER,
)
add_rights(
    book,
    "StreamsGroupHeartbeat, with a changelog",
    [0],
    [
        STREAMS,
        INTERNAL,
        f"{INTERNAL}, CREATE T store",
        f"{INTERNAL}, CREATE C",
        f"{STREAMS}, CREATE C",
        f"{INTERNAL}, CREATE C, DENY CREATE T store",
        f"{INTERNAL}, CREATE T store, DENY CREATE C",
        f"{INTERNAL}, CREATE T store, DENY CREATE T store",
        f"{INTERNAL}, CREATE C, DENY DESCRIBE T store",
    ],
    lambda talk, version: joining(talk, keeps=True),
    prepare=streaming,
    setup=SHARE_AUTHORIZER,
)
add_rights(
    book,
    "StreamsGroupDescribe",
    [0],
    [
        "DESCRIBE G g",
        "READ G g, READ T t0",
        "DESCRIBE G g, DESCRIBE T t0",
        "DESCRIBE G g, DESCRIBE T t0, DENY DESCRIBE G g",
        "DESCRIBE G g, DESCRIBE T t0, DENY DESCRIBE T t0",
    ],
    lambda talk, version: streams_groups.look(talk.name("g"), talk.name("none"), operations=True),
    prepare=in_work,
    setup=SHARE_AUTHORIZER,
)

# --- records of share groups, and their state -----------------------------------------------------

SHARES: Final = "READ G g, READ T t"
SHARERS: Final = {
    each or "nothing": each
    for each in (
        "",
        "READ G g",
        "READ T t",
        "DESCRIBE G g, DESCRIBE T t",
        SHARES,
        f"{SHARES}, DENY READ G g",
        f"{SHARES}, DENY READ T t",
        f"{SHARES}, DENY DESCRIBE T t",
    )
}


@book.case("ShareFetch and ShareAcknowledge", versions=(1, 2), over=SHARERS)
def shares(talk: Talk, version: int, words: str) -> None:
    """Also of a session that began when the rights were there."""
    member = Member(made(talk, 2), version=version)
    talk.add_acls(*acls_of(talk, words))
    member.connection = talk.connect(talk.host)
    member.get(0, max_wait=2_000, min_bytes=1)
    member.say(1, (0, 0, [1]))


DENIED: Final = ["READ G g", "READ T t"]


@book.case("a session whose right is denied", versions=(1, 2), over={each: each for each in DENIED})
def denied_later(talk: Talk, version: int, word: str) -> None:
    member = Member(made(talk, 2), version=version)
    talk.add_acls(*acls_of(talk, SHARES))
    member.connection = talk.connect(talk.host)
    member.get(0, max_wait=2_000, min_bytes=1)
    talk.add_acls(*acls_of(talk, f"DENY {word}"))
    member.say(1, (0, 0, [1]))
    member.get(1, max_wait=0)


for name, versions in share_state.VERSIONS.items():
    add_rights(
        book,
        f"share state, {name}",
        versions,
        ["CLUSTER_ACTION C", "ALTER C, READ G g, READ T t", "CLUSTER_ACTION C, DENY ALL C"],
        lambda talk, version, name=name: share_state.request(
            name,
            version,
            talk.name("g"),
            talk.topic_id(talk.name("t")),
            share_state.fields_of(name, 0),
        ),
        prepare=share_state.State,
        setup=SHARE_AUTHORIZER,
    )

# --- quotas and users -----------------------------------------------------------------------------

add_rights(
    book,
    "AlterClientQuotas",
    range(2),
    [
        "ALTER_CONFIGS C",
        "ALTER C, DESCRIBE_CONFIGS C",
        "ALTER_CONFIGS C, DENY ALTER_CONFIGS C",
        "ALTER_CONFIGS C, DENY ALL C",
    ],
    lambda talk, version: quotas.alter(
        version,
        *(
            quotas.change([("user", talk.name(each))], [(quotas.PRODUCER, 1.0)])
            for each in ("a", "b")
        ),
        validate_only=True,
    ),
    setup=SHARE_AUTHORIZER,
)
add_rights(
    book,
    "AlterUserScramCredentials",
    [0],
    ["ALTER C", "ALTER_CONFIGS C, DESCRIBE C", "ALTER C, DENY ALTER C", "ALTER C, DENY DESCRIBE C"],
    lambda talk, version: build(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        version,
        deletions=[{"name": talk.name(each), "mechanism": 1} for each in ("a", "b")],
        upsertions=[],
    ),
    view=in_order,
    setup=SHARE_AUTHORIZER,
)
