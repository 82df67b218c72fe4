"""Rights to groups, and to the topics whose offsets they commit."""

from __future__ import annotations

from typing import Any, Final

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._rights import UNKNOWN_ID, add_rights, names, own, topics
from tests.parity.requests import build
from tests.parity.talk import Talk

book = Book()


def groups(talk: Talk) -> None:
    """Empty ones that have committed an offset of both topics."""
    topics(talk)
    for group in ("g", "h"):
        commit = build(
            ApiKey.OFFSET_COMMIT,
            8,
            group_id=talk.name(group),
            generation_id_or_member_epoch=-1,
            topics=[
                {
                    "name": talk.name(name),
                    "partitions": [{"partition_index": 0, "committed_offset": 1}],
                }
                for name in ("t", "u")
            ],
        )
        talk.until(
            lambda commit=commit: (
                not any(
                    p.error_code.value for t in talk.quietly(commit).topics for p in t.partitions
                )
            )
        )


SHARE: Final = "g:AAAAAAAAAAAAAAAAAAAABA:0"
IN_GROUP: Final = ["READ G g", "DESCRIBE G g"]
add_rights(
    book,
    "FindCoordinator of a group",
    range(7),
    ["DESCRIBE G g", "READ G g"],
    lambda talk, version: build(
        ApiKey.FIND_COORDINATOR,
        version,
        key=talk.name("g"),
        key_type=0,
        coordinator_keys=[talk.name("h"), talk.name("g")],
    ),
)
add_rights(
    book,
    "FindCoordinator of a transactional id",
    range(1, 7),
    ["DESCRIBE X x", "WRITE X x", "DESCRIBE G x"],
    lambda talk, version: build(
        ApiKey.FIND_COORDINATOR,
        version,
        key=talk.name("x"),
        key_type=1,
        coordinator_keys=[talk.name("y"), talk.name("x")],
    ),
)
add_rights(
    book,
    "FindCoordinator of a share",
    range(1, 7),
    ["CLUSTER_ACTION C", "DESCRIBE G g"],
    lambda talk, version: build(
        ApiKey.FIND_COORDINATOR,
        version,
        key=SHARE,
        key_type=2,
        coordinator_keys=[SHARE, "no share"],
    ),
)
add_rights(
    book,
    "JoinGroup",
    range(10),
    IN_GROUP,
    lambda talk, version: build(
        ApiKey.JOIN_GROUP,
        version,
        group_id=talk.name("g"),
        session_timeout=10_000,
        rebalance_timeout=10_000,
        member_id="none",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
    ),
)
add_rights(
    book,
    "SyncGroup",
    range(6),
    IN_GROUP,
    lambda talk, version: build(
        ApiKey.SYNC_GROUP,
        version,
        group_id=talk.name("g"),
        generation_id=1,
        member_id="none",
        protocol_type="consumer",
        protocol_name="range",
        assignments=[],
    ),
)
add_rights(
    book,
    "LeaveGroup",
    range(6),
    IN_GROUP,
    lambda talk, version: build(
        ApiKey.LEAVE_GROUP,
        version,
        group_id=talk.name("g"),
        member_id="none",
        members=[{"member_id": "none", "group_instance_id": None}],
    ),
)
add_rights(
    book,
    "DescribeGroups",
    range(7),
    ["DESCRIBE G g", "READ G g, DELETE G g"],
    lambda talk, version: build(
        ApiKey.DESCRIBE_GROUPS,
        version,
        groups=[talk.name(each) for each in ("h", "g", "none")],
        include_authorized_operations=True,
    ),
    prepare=groups,
)
add_rights(
    book,
    "ListGroups",
    range(6),
    ["DESCRIBE G g", "READ G g", "DESCRIBE C", "ALTER C"],
    lambda talk, version: build(ApiKey.LIST_GROUPS, version),
    prepare=groups,
    view=own("groups"),
)
add_rights(
    book,
    "DeleteGroups",
    range(3),
    ["DELETE G g", "READ G g"],
    lambda talk, version: build(
        ApiKey.DELETE_GROUPS, version, groups_names=[talk.name(each) for each in ("h", "g", "no")]
    ),
    prepare=groups,
)
add_rights(
    book,
    "OffsetDelete",
    [0],
    ["DELETE G g", "DELETE G g, READ T t, READ T m", "READ T t", "READ G g, READ T t"],
    lambda talk, version: build(
        ApiKey.OFFSET_DELETE,
        version,
        group_id=talk.name("g"),
        topics=[{"name": name, "partitions": [{"partition_index": 0}]} for name in names(talk)],
    ),
    prepare=groups,
)


def fetched(talk: Talk, group: str, *, all_topics: bool, version: int) -> dict[str, Any]:
    named: list[dict[str, Any]] = [
        {"name": talk.name(each), "partition_indexes": [0]} for each in ("t", "u")
    ]
    if version >= 10:
        named = [{**each, "topic_id": talk.topic_id(each["name"])} for each in named]
    return {"group_id": talk.name(group), "topics": None if all_topics else named}


FETCHERS: Final = [
    "DESCRIBE G g",
    "DESCRIBE G g, DESCRIBE T t",
    "READ G g, READ T t",
    "DESCRIBE T t, DESCRIBE T u",
]
for all_topics in (False, True):
    add_rights(
        book,
        "OffsetFetch of all topics" if all_topics else "OffsetFetch",
        range(2 if all_topics else 1, 11),
        FETCHERS,
        lambda talk, version, all_topics=all_topics: build(
            ApiKey.OFFSET_FETCH,
            version,
            **(
                fetched(talk, "g", all_topics=all_topics, version=version)
                if version < 8
                else {
                    "groups": [
                        fetched(talk, each, all_topics=all_topics, version=version)
                        for each in ("h", "g")
                    ]
                }
            ),
        ),
        prepare=groups,
    )
COMMITTERS: Final = [
    "READ G g",
    "READ G g, READ T t, READ T m",
    "READ T t",
    "READ G g, DESCRIBE T t",
]


def committed(talk: Talk, version: int) -> list[dict[str, Any]]:
    ids = {
        each: talk.topic_id(talk.name(each)) if each != "m" else UNKNOWN_ID
        for each in ("t", "u", "m")
    }
    return [
        {
            "name": talk.name(each),
            **({"topic_id": ids[each]} if version >= 10 else {}),
            "partitions": [{"partition_index": i, "committed_offset": 1} for i in (0, 7)],
        }
        for each in ("t", "u", "m")
    ]


add_rights(
    book,
    "OffsetCommit",
    range(2, 11),
    COMMITTERS,
    lambda talk, version: build(
        ApiKey.OFFSET_COMMIT,
        version,
        group_id=talk.name("g"),
        generation_id_or_member_epoch=-1,
        topics=committed(talk, version),
    ),
    prepare=groups,
)
add_rights(
    book,
    "Heartbeat",
    range(5),
    IN_GROUP,
    lambda talk, version: build(
        ApiKey.HEARTBEAT,
        version,
        group_id=talk.name("g"),
        generation_id=1,
        member_id="none",
    ),
)
