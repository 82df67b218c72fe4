"""DescribeShareGroupOffsets (90), AlterShareGroupOffsets (91), DeleteShareGroupOffsets (92).

And the records that a group has of it, and the deletion of groups that have offsets. Groups that
have read something have a member that is gone: states of other groups are initialised as their
coordinator does it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from kbroker.coordinator.consumer_group.images import GroupImage
from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.coordinator.share_group.images import Kind, StateTopics
from kbroker.coordinator.share_group.records import change_of, decode_key, record_of
from kbroker.protocol.record_batch import decode_batches
from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._groups import commit, delete_groups
from tests.parity.cases._shapes import add_shapes
from tests.parity.cases.share_groups import beat, look
from tests.parity.cases.share_state import State, fields_of, request
from tests.parity.data import batch, fetch, part, stored, topic
from tests.parity.requests import build
from tests.parity.talk import Talk

book = Book(setup="share groups")
cases = book.cases

OFFSETS_TOPIC = "__consumer_offsets"
OFFSETS_PARTITIONS = 50
DESCRIBED = (0, 1)
ACCEPT, RELEASE = 1, 2
Topics = Sequence[tuple[str, Sequence[int]]] | None


def described(version: int, *groups: tuple[str, Topics]) -> Any:
    return build(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        version,
        groups=[
            {
                "group_id": group,
                "topics": None if topics is None else [
                    {"topic_name": name, "partitions": list(some)} for name, some in topics
                ],
            }
            for group, topics in groups
        ],
    )  # fmt: skip


def altered(group: str, *topics: tuple[str, Sequence[tuple[int, int]]]) -> Any:
    """Partitions with their starts."""
    return build(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        0,
        group_id=group,
        topics=[
            {
                "topic_name": name,
                "partitions": [
                    {"partition_index": index, "start_offset": start} for index, start in starts
                ],
            }
            for name, starts in topics
        ],
    )


def deleted(group: str, *topics: str) -> Any:
    return build(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        0,
        group_id=group,
        topics=[{"topic_name": name} for name in topics],
    )


def coordinated(talk: Talk, group: str, topic_id: UUID, *partitions: int) -> None:
    """Wait until the states of these have a coordinator that knows the topic. Those of Apache Kafka
    load their partitions, and follow the metadata, a little later."""

    def are_known() -> bool:
        asked = [fields_of("summarize", each) for each in partitions]
        (found,) = talk.quietly(request("summarize", 1, group, topic_id, *asked)).results
        codes = {each.partition: each.error_code.value for each in found.partitions}
        return codes[0] == 0 and not any(code in (14, 15, 16) for code in codes.values())

    talk.until(are_known)


class Group:
    """A share group with a topic, whose member comes and goes."""

    def __init__(self, talk: Talk, partitions: int = 1, name: str = "g", of: str = "t") -> None:
        self.talk = talk
        self.group = talk.name(name)
        self.topic = topic(talk, of, partitions=partitions)
        self.topic_id = talk.topic_id(self.topic)
        self.partitions = partitions
        coordinated(talk, self.group, self.topic_id, *range(partitions))

    def ask(self, request: Any) -> None:
        self.talk.ask(request)

    def show(self, topics: Topics = None) -> None:
        """The offsets as the newest version has them."""
        self.ask(described(1, (self.group, topics)))

    def join(self, *topics: str) -> int:
        """A member has all partitions of these, or of the group's topic: its epoch."""
        names = list(topics) or [self.topic]
        wanted = sum(self.partitions if each == self.topic else 1 for each in names)
        seen = [self.talk.quietly(beat(self.group, "m", 0, subscribed_topic_names=names))]

        def has_them() -> bool:
            given = seen[-1].assignment
            if given and sum(len(each.partitions) for each in given.topic_partitions) == wanted:
                return True
            seen.append(self.talk.quietly(beat(self.group, "m", seen[-1].member_epoch)))
            return False

        self.talk.until(has_them)
        return int(seen[-1].member_epoch)

    def leave(self) -> None:
        self.talk.quietly(beat(self.group, "m", -1))

    def visit(self, *topics: str) -> None:
        self.join(*topics)
        self.leave()

    def records(self, *, states_only: bool = False) -> None:
        """The group's records. Topics with a state that have not changed are left out: Apache
        Kafka writes them, too. So are those in which some states of a topic have come and others
        have not: whether there is such a record is a matter of time."""
        place = partition_for(self.group, OFFSETS_PARTITIONS)
        answer = self.talk.quietly(fetch(self.talk, 12, (OFFSETS_TOPIC, [part(place)])))
        (of_topic,) = answer.responses
        (found,) = of_topic.partitions
        listed: list[Any] = []
        states: Any = None
        for each in decode_batches(bytes(found.records or b"")):
            for record in each.records:
                key = decode_key(record.key or b"")
                if key is None or key.group_id != self.group:
                    continue
                change = change_of(key, record.value)
                # Both write the same bytes.
                same = record_of(self.group, change) == (record.key, record.value)
                entry = [key.kind.name, self._in_short(change.value), same]
                if key.kind is not Kind.STATE_TOPICS:
                    if not states_only:
                        listed.append(entry)
                elif entry[1] != states and not self._has_come_in_part(change.value):
                    listed.append(entry)
                    states = entry[1]
        self.talk.note("records", listed)

    def _has_come_in_part(self, value: Any) -> bool:
        return isinstance(value, StateTopics) and any(
            topic_id in value.initialized
            and not set(some.partitions) & set(value.initialized[topic_id].partitions)
            for topic_id, some in value.initializing.items()
        )

    def _in_short(self, value: Any) -> Any:
        if isinstance(value, GroupImage):
            return [value.epoch, value.metadata_hash != 0]
        if isinstance(value, StateTopics):
            by_topic: list[Mapping[UUID, Any]] = [value.initializing, value.initialized]
            parts = [{some.name: sorted(some.partitions) for some in p.values()} for p in by_topic]
            return [*parts, sorted(value.deleting.values())]
        return value is not None


def configure(talk: Talk, group: str, **configs: str) -> None:
    values = [
        {"name": name.replace("_", "."), "value": value, "config_operation": 0}
        for name, value in configs.items()
    ]
    resource = {"resource_type": 32, "resource_name": group, "configs": values}
    talk.quietly(
        build(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    )


# --- groups and topics that are not there ---------------------------------------------------------


@book.case("a group that there is none of", versions=DESCRIBED)
def no_group(talk: Talk, version: int) -> None:
    state = State(talk)
    group, name = state.group, state.topic
    coordinated(talk, group, state.topic_id, 0)
    for topics in (None, [], [(name, [0])], [(talk.name("no"), [0])]):
        talk.ask(described(version, (group, topics)))
    talk.ask(deleted(group, name))
    talk.ask(deleted(group))
    talk.ask(altered(group))
    talk.ask(altered(group, (talk.name("no"), [(0, 1)])))
    talk.ask(look(group))


@book.case("an alteration of partitions that there are none of")
def no_partition(talk: Talk) -> None:
    group = Group(talk)
    group.ask(altered(group.group, (group.topic, [(7, 1)])))
    group.ask(look(group.group))


@book.case("no group's id", versions=DESCRIBED)
def no_id(talk: Talk, version: int) -> None:
    name = topic(talk)
    talk.topic_id(name)
    talk.ask(described(version, ("", None)))
    talk.ask(described(version, ("", [])))
    talk.ask(altered("", (name, [(0, 1)])))
    talk.ask(deleted("", name))
    talk.ask(described(version))


@book.case("a group of another kind", versions=DESCRIBED)
def other_kind(talk: Talk, version: int) -> None:
    group, name = talk.name("g"), topic(talk)
    talk.topic_id(name)
    talk.quietly(commit(talk, 8, group, (name, {0: 1})))
    talk.ask(described(version, (group, None), (group, [(name, [0])])))
    talk.ask(altered(group, (name, [(0, 1)])))
    talk.ask(altered(group))
    talk.ask(deleted(group, name))


# --- description ----------------------------------------------------------------------------------

# Of a state: start, and offsets that are done.
STATES: dict[str, dict[str, int]] = {
    "a start": {"start_offset": 2},
    "no start": {"start_offset": -1},
    "some done": {"start_offset": 2, "delivery_complete_count": 3},
    "a count that is not known": {"start_offset": 2, "delivery_complete_count": -1},
    "a start after the end": {"start_offset": 99, "delivery_complete_count": 0},
    "a leader": {"start_offset": 4, "leader_epoch": 3},
}


@book.case("the lag", versions=DESCRIBED, over=STATES)
def lag(talk: Talk, version: int, fields: Mapping[str, int]) -> None:
    state = State(talk)
    stored(talk, state.topic, batch(*[b"v"] * 10))
    state.ask("initialize", start_offset=fields["start_offset"])
    if "leader_epoch" in fields:
        state.ask("read", leader_epoch=fields["leader_epoch"])
    if "delivery_complete_count" in fields:
        state.ask("write", leader_epoch=-1, **fields)
    talk.ask(described(version, (state.group, [(state.topic, [0])])))
    # The group itself has nothing to do with it.
    talk.ask(described(version, (state.group, None)))


@book.case("topics that are not there, and partitions twice", versions=DESCRIBED)
def odd_partitions(talk: Talk, version: int) -> None:
    state = State(talk, partitions=2)
    coordinated(talk, state.group, state.topic_id, 0, 1)
    state.ask("initialize", start_offset=1)
    name, missing = state.topic, talk.name("no")
    talk.ask(described(version, (state.group, [(name, [0, 1])])))
    talk.ask(described(version, (state.group, [(missing, [0, 3]), (name, [0])])))
    talk.ask(described(version, (state.group, [(name, [0, 0])])))


@book.case("a partition below 0, and none", versions=DESCRIBED)
def no_partitions(talk: Talk, version: int) -> None:
    state = State(talk)
    state.ask("initialize", start_offset=1)
    talk.ask(described(version, (state.group, [(state.topic, [0, -1])])))
    talk.ask(described(version, (state.group, [(state.topic, [])])))


@book.case("several groups", versions=DESCRIBED)
def several_groups(talk: Talk, version: int) -> None:
    group = Group(talk, partitions=3)
    group.visit()
    other = talk.name("h")
    coordinated(talk, other, group.topic_id, 0, 1)
    talk.ask(described(version, (group.group, None), (other, None)))
    talk.ask(described(version, (other, [(group.topic, [1])]), (group.group, [])))


# --- the life of offsets --------------------------------------------------------------------------


@book.case("offsets are altered and deleted")
def life(talk: Talk) -> None:
    group = Group(talk, partitions=2)
    name = group.topic
    stored(talk, name, batch(*[b"v"] * 10))
    group.join()
    group.show()
    group.ask(altered(group.group, (name, [(0, 3)])))
    group.ask(altered(group.group))
    group.ask(deleted(group.group, name))
    group.ask(deleted(group.group))
    group.leave()
    group.ask(altered(group.group, (name, [(0, 3)])))
    group.show()
    group.show([(name, [0, 1])])
    group.ask(altered(group.group, (name, [(0, 5), (1, 0)])))
    group.show()
    group.ask(altered(group.group))
    group.ask(deleted(group.group))
    group.ask(deleted(group.group, name))
    group.show()
    group.show([(name, [0])])
    group.ask(deleted(group.group, name))
    group.records()
    # When the next assignment is computed depends on how long ago the last one was.
    group.visit()
    group.show()
    group.ask(delete_groups(2, group.group))
    group.show()
    group.show([(name, [0, 1])])
    group.records(states_only=True)


@book.case("a group that an alteration makes")
def made(talk: Talk) -> None:
    group = Group(talk, partitions=2)
    name = group.topic
    stored(talk, name, batch(*[b"v"] * 10))
    group.ask(altered(group.group, (name, [(1, 4)])))
    group.ask(look(group.group))
    group.show()
    talk.ask(
        build(ApiKey.LIST_GROUPS, 5, states_filter=[], types_filter=["share"]),
        view=lambda answer: [e for e in answer["groups"] if e["group_id"] == group.group],
    )
    group.records()
    talk.note("epoch of a member", group.join())
    group.leave()
    group.show()
    group.records()
    group.ask(delete_groups(2, group.group))
    group.ask(look(group.group))


@book.case("a group that an alteration makes is deleted")
def made_and_deleted(talk: Talk) -> None:
    group = Group(talk)
    group.ask(altered(group.group, (group.topic, [(0, 4)])))
    group.ask(deleted(group.group, group.topic))
    group.show([(group.topic, [0])])
    group.ask(delete_groups(2, group.group))
    group.ask(look(group.group))
    group.records()


STARTS = {"-1": -1, "-2": -2, "after the end": 1_000, "the largest": 2**63 - 1}


@book.case("a start", over=STARTS)
def odd_starts(talk: Talk, start: int) -> None:
    group = Group(talk)
    group.visit()
    group.ask(altered(group.group, (group.topic, [(0, start)])))
    group.show([(group.topic, [0])])
    group.show()


@book.case("alterations that are wrong in part")
def partly_wrong(talk: Talk) -> None:
    group = Group(talk, partitions=2)
    name, missing = group.topic, talk.name("no")
    group.visit()
    group.ask(altered(group.group, (missing, [(0, 1)]), (name, [(0, 2), (2, 1)])))
    group.ask(altered(group.group, (missing, [(0, 1)])))
    group.ask(altered(group.group, (name, [])))
    group.show()
    group.records()


@book.case("an alteration of a partition below 0")
def below_0(talk: Talk) -> None:
    group = Group(talk)
    group.visit()
    group.ask(altered(group.group, (group.topic, [(-1, 1)])))


@book.case("a partition of an alteration twice")
def twice(talk: Talk) -> None:
    group = Group(talk)
    group.visit()
    group.ask(altered(group.group, (group.topic, [(0, 2), (0, 5)])))
    group.show()


@book.case("topics of a deletion that have no offsets")
def nothing_to_delete(talk: Talk) -> None:
    group = Group(talk)
    other = topic(talk, "u")
    talk.topic_id(other)
    group.visit()
    group.ask(deleted(group.group, other, talk.name("no")))
    group.ask(deleted(group.group, other, group.topic))
    group.ask(deleted(group.group, other))
    group.records()


@book.case("a group that has no topics with a state")
def bare(talk: Talk) -> None:
    group = Group(talk)
    missing = talk.name("no")
    talk.quietly(beat(group.group, "m", 0, subscribed_topic_names=[missing]))
    group.leave()
    group.ask(deleted(group.group, group.topic, missing))
    group.show()
    group.ask(altered(group.group, (group.topic, [(0, 1)])))
    group.show()
    group.ask(delete_groups(2, group.group))


@book.case("a topic that is deleted")
def topic_deleted(talk: Talk) -> None:
    group = Group(talk)
    group.visit()
    talk.delete(group.topic)
    talk.until(lambda: not talk.quietly(described(1, (group.group, None))).groups[0].topics)
    group.show()
    group.show([(group.topic, [0])])
    group.ask(altered(group.group, (group.topic, [(0, 1)])))
    group.ask(deleted(group.group, group.topic))
    group.ask(delete_groups(2, group.group))
    group.ask(look(group.group))


# --- records after an alteration ------------------------------------------------------------------


def fetched(group: Group, epoch: int, *batches: tuple[int, int, int], **how: Any) -> Any:
    """A ShareFetch of partition 0."""
    named = [
        {"first_offset": first, "last_offset": last, "acknowledge_types": [kind]}
        for first, last, kind in batches
    ]
    partitions = [{"partition_index": 0, "acknowledgement_batches": named}]
    is_named = epoch == 0 or bool(batches)
    topics = [{"topic_id": group.topic_id, "partitions": partitions}] if is_named else []
    fields = {"max_wait": 10_000, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500,
              "batch_size": 500, "share_acquire_mode": 0, "is_renew_ack": False, **how}  # fmt: skip
    return build(
        ApiKey.SHARE_FETCH, 2, group_id=group.group, member_id="m", share_session_epoch=epoch,
        topics=topics, forgotten_topics_data=[], **fields,
    )  # fmt: skip


def acquired(answer: Any) -> Any:
    """Which records a member got, and what became of those that it acknowledged."""
    return [
        [each["error_code"], each["acknowledge_error_code"], each["acquired_records"]]
        for topic in answer["responses"]
        for each in topic["partitions"]
    ]


@book.case("members read from where they are altered to")
def read_elsewhere(talk: Talk) -> None:
    group = Group(talk)
    configure(talk, group.group, share_auto_offset_reset="earliest")
    stored(talk, group.topic, *(batch(*[b"v"] * 10) for _ in range(3)))
    group.join()
    # Apache Kafka reads the state beside the first fetches.
    first = talk.connect()
    first.ask(fetched(group, 0, max_bytes=100), view=acquired)
    first.ask(fetched(group, 1, (0, 9, ACCEPT), max_bytes=100), view=acquired)
    first.ask(fetched(group, -1, (10, 19, RELEASE), max_wait=0, min_bytes=0), view=acquired)
    first.close()
    group.leave()
    group.show()
    for start in (25, 5):
        group.ask(altered(group.group, (group.topic, [(0, start)])))
        group.show()
        group.join()
        again = talk.connect()
        again.ask(fetched(group, 0, max_bytes=100), view=acquired)
        again.ask(fetched(group, -1, max_wait=0, min_bytes=0), view=acquired)
        again.close()
        group.leave()
    group.ask(deleted(group.group, group.topic))
    group.join()
    again = talk.connect()
    again.ask(fetched(group, 0, max_bytes=100), view=acquired)
    again.ask(fetched(group, -1, max_wait=0, min_bytes=0), view=acquired)
    group.leave()
    group.show()


# --- bytes ----------------------------------------------------------------------------------------

add_shapes(
    book,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    DESCRIBED,
    lambda talk, version: described(version, (talk.name("g"), [(talk.name("no"), [0, 1])])),
    title="description",
)
add_shapes(
    book,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    [0],
    lambda talk, version: altered(talk.name("g"), (talk.name("no"), [(0, 1)])),
    title="alteration",
)
add_shapes(
    book,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    [0],
    lambda talk, version: deleted(talk.name("g"), talk.name("no")),
    title="deletion",
)
