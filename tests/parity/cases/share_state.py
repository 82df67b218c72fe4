"""The state of share groups between brokers: APIs 83 to 87, and the records that they leave.

The fields of a record are noted, without its times, and whether our writer makes the very same
bytes of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.coordinator.share.images import SharePartition
from kbroker.coordinator.share.records import Snapshot, decode_key, decode_value, encode_value
from kbroker.protocol.record_batch import decode_batches
from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._shapes import add_shapes
from tests.parity.data import fetch, part, topic
from tests.parity.requests import build
from tests.parity.talk import Talk

book = Book(setup="share groups")
cases = book.cases

STATE_TOPIC = "__share_group_state"
STATE_PARTITIONS = 50
UNKNOWN = UUID(int=5)
KEYS = {
    "initialize": ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    "read": ApiKey.READ_SHARE_GROUP_STATE,
    "write": ApiKey.WRITE_SHARE_GROUP_STATE,
    "delete": ApiKey.DELETE_SHARE_GROUP_STATE,
    "summarize": ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
}
VERSIONS = {"initialize": (0,), "read": (0,), "write": (0, 1), "delete": (0,), "summarize": (0, 1)}
# By name: the API and its version.
EACH = {f"{name} v{v}": (name, v) for name, versions in VERSIONS.items() for v in versions}

Batch = tuple[int, int, int, int]


def fields_of(name: str, partition: int, **how: Any) -> dict[str, Any]:
    """One partition of a request."""
    batches = [
        {"first_offset": first, "last_offset": last, "delivery_state": state,
         "delivery_count": count}
        for first, last, state, count in how.get("batches", ())
    ]  # fmt: skip
    known = {
        "initialize": {"state_epoch": 1, "start_offset": 0},
        "read": {"leader_epoch": 0},
        "write": {"state_epoch": 1, "leader_epoch": 0, "start_offset": 0,
                  "delivery_complete_count": 0},
        "delete": {},
        "summarize": {"leader_epoch": 0},
    }[name]  # fmt: skip
    found = {"partition": partition, **known, **{k: v for k, v in how.items() if k in known}}
    if name == "write":
        found["state_batches"] = batches
    return found


def request(
    name: str, version: int, group: str, topic_id: UUID | None, *partitions: dict[str, Any]
) -> Any:
    topics = [{"topic_id": topic_id, "partitions": list(partitions)}]
    return build(KEYS[name], version, group_id=group, topics=topics)


class State:
    """That of one share-partition, with the newest versions."""

    def __init__(self, talk: Talk, partitions: int = 1) -> None:
        self.talk = talk
        self.group = talk.name("g")
        self.topic = topic(talk, partitions=partitions)
        self.topic_id = talk.topic_id(self.topic)
        talk.until(self._knows_topic)

    def _knows_topic(self) -> bool:
        """Apache Kafka's share coordinator follows the metadata a little later."""
        asked = request("summarize", 1, self.group, self.topic_id, fields_of("summarize", 0))
        (found,) = self.talk.quietly(asked).results
        return bool(found.partitions[0].error_code.value == 0)

    def ask(self, name: str, partition: int = 0, version: int | None = None, **how: Any) -> None:
        asked = fields_of(name, partition, **how)
        version = VERSIONS[name][-1] if version is None else version
        self.talk.ask(request(name, version, self.group, self.topic_id, asked))

    def records(self, partition: int = 0) -> None:
        """Those of this share-partition."""
        key = SharePartition(self.group, self.topic_id, partition)
        place = partition_for(key.coordinator_key, STATE_PARTITIONS)
        state_id = self.talk.topic_id(STATE_TOPIC)
        asked = fetch(self.talk, 12, (STATE_TOPIC, [part(place)]))
        answer = self.talk.quietly(asked)
        assert state_id
        (of_topic,) = answer.responses
        (found,) = of_topic.partitions
        listed = []
        for batch in decode_batches(bytes(found.records or b"")):
            for record in batch.records:
                kind, of = decode_key(record.key or b"")
                if of != key:
                    continue
                if record.value is None:
                    listed.append([kind, None, True])
                    continue
                value = decode_value(kind, record.value)
                same = encode_value(value) == record.value
                if isinstance(value, Snapshot):
                    value = value._replace(created_ms=0, written_ms=0)
                listed.append([kind, list(value), same])
        self.talk.note("records", listed)


@book.case("the life of a state")
def life(talk: Talk) -> None:
    state = State(talk)
    state.ask("initialize", start_offset=-1, state_epoch=2)
    state.ask("summarize")
    state.ask("read", leader_epoch=0)
    state.ask("write", state_epoch=2, start_offset=5, batches=[(5, 9, 2, 1), (12, 12, 0, 2)],
              delivery_complete_count=5)  # fmt: skip
    state.ask("read", leader_epoch=0)
    state.ask("write", state_epoch=2, start_offset=-1, batches=[(10, 11, 4, 1)],
              delivery_complete_count=7)  # fmt: skip
    state.ask("read", leader_epoch=0)
    state.ask("summarize")
    state.ask("write", state_epoch=2, start_offset=11, delivery_complete_count=1)
    state.ask("read", leader_epoch=0)
    state.ask("delete")
    state.ask("read", leader_epoch=0)
    state.ask("summarize")
    state.ask("delete")
    state.records()


@book.case("older versions", over={"count first": (1, 0), "count later": (0, 1)})
def versions(talk: Talk, order: tuple[int, int]) -> None:
    state = State(talk)
    state.ask("initialize")
    for version in order:
        state.ask("write", version=version, start_offset=3, delivery_complete_count=4,
                  batches=[(3, 6, 2, 1)])  # fmt: skip
        for asked in VERSIONS["summarize"]:
            state.ask("summarize", version=asked)
    state.records()


@book.case("not initialised", over=EACH)
def nothing(talk: Talk, of: tuple[str, int]) -> None:
    name, version = of
    State(talk).ask(name, version=version)


@book.case("a partition that there is none of", over=EACH)
def no_partition(talk: Talk, of: tuple[str, int]) -> None:
    name, version = of
    state = State(talk)
    for partition in (1, -1):
        state.ask(name, partition, version=version)
    state.ask("initialize")
    state.ask(name, 1, version=version)


@book.case("a topic that there is none of", over=EACH)
def no_topic(talk: Talk, of: tuple[str, int]) -> None:
    name, version = of
    for topic_id in (UNKNOWN, None):
        asked = request(name, version, talk.name("g"), topic_id, fields_of(name, 0))
        talk.ask(asked)


@book.case("no group, no topics, no partitions", over=EACH)
def empty(talk: Talk, of: tuple[str, int]) -> None:
    name, version = of
    topic_id = talk.topic_id(topic(talk))
    talk.ask(request(name, version, "", topic_id, fields_of(name, 0)))
    talk.ask(request(name, version, talk.name("g"), topic_id))
    talk.ask(build(KEYS[name], version, group_id=talk.name("g"), topics=[]))


@book.case("epochs", over=EACH)
def epochs(talk: Talk, of: tuple[str, int]) -> None:
    name, version = of
    state = State(talk)
    state.ask("initialize", state_epoch=5)
    state.ask("write", state_epoch=5, leader_epoch=5)
    for state_epoch in (4, 5, 6, -1):
        for leader_epoch in (4, 5, 6, -1):
            state.ask(name, version=version, state_epoch=state_epoch, leader_epoch=leader_epoch)
    state.ask("read", leader_epoch=-1)
    state.ask("summarize", leader_epoch=-1)
    state.records()


@book.case("a state that is initialised again", over={"lower": 4, "equal": 5, "higher": 6})
def again(talk: Talk, state_epoch: int) -> None:
    state = State(talk)
    state.ask("initialize", state_epoch=5, start_offset=3)
    state.ask("write", state_epoch=5, leader_epoch=2, start_offset=7, batches=[(9, 9, 2, 1)],
              delivery_complete_count=1)  # fmt: skip
    state.ask("initialize", state_epoch=state_epoch, start_offset=1)
    state.ask("read", leader_epoch=2)
    state.ask("summarize")
    state.ask("write", state_epoch=5, leader_epoch=2, start_offset=8)
    state.ask("write", state_epoch=6, leader_epoch=1, start_offset=8)
    state.records()


MERGES: dict[str, Sequence[Sequence[Batch]]] = {
    "a higher count": [[(0, 9, 0, 1)], [(3, 5, 0, 2)]],
    "a lower count": [[(0, 9, 0, 2)], [(3, 5, 4, 1)]],
    "a higher state": [[(0, 9, 0, 1)], [(3, 5, 2, 1)], [(4, 4, 4, 1)]],
    "a lower state": [[(0, 9, 4, 1)], [(3, 5, 2, 1)], [(4, 4, 0, 1)]],
    "neighbours": [[(0, 4, 2, 1)], [(5, 9, 2, 1)], [(10, 12, 2, 2)], [(13, 14, 2, 1)]],
    "over both ends": [[(3, 5, 0, 1), (8, 9, 2, 1)], [(0, 12, 2, 1)]],
    "in one request": [[(0, 9, 0, 1), (3, 5, 2, 2), (4, 4, 4, 2), (20, 21, 0, 1)]],
    "not in order": [[(20, 21, 2, 1), (0, 3, 2, 1), (10, 12, 0, 1)]],
}


@book.case("batches over batches", over=MERGES)
def merges(talk: Talk, requests: Sequence[Sequence[Batch]]) -> None:
    state = State(talk)
    state.ask("initialize")
    for batches in requests:
        state.ask("write", batches=batches)
        state.ask("read", leader_epoch=0)
    state.records()


@book.case("a start within batches", over={"before": 2, "inside": 5, "at the end": 9, "after": 30})
def starts(talk: Talk, start: int) -> None:
    state = State(talk)
    state.ask("initialize")
    state.ask("write", batches=[(3, 9, 2, 1), (12, 20, 0, 1)])
    state.ask("write", start_offset=start, batches=[(4, 6, 4, 1)])
    state.ask("read", leader_epoch=0)
    state.ask("write", start_offset=1, batches=[(1, 2, 2, 1)])
    state.ask("read", leader_epoch=0)
    state.records()


@book.case("many updates")
def updates(talk: Talk) -> None:
    """The 500th is followed by a snapshot."""
    state = State(talk)
    state.ask("initialize")
    for number in range(503):
        asked = fields_of("write", 0, start_offset=number, batches=[(number, number + 3, 2, 1)],
                          delivery_complete_count=4)  # fmt: skip
        talk.quietly(request("write", 1, state.group, state.topic_id, asked))
    state.ask("read", leader_epoch=0)
    state.records()


@book.case("several partitions", over=EACH)
def several(talk: Talk, of: tuple[str, int]) -> None:
    name, version = of
    state = State(talk, partitions=3)
    for partition in (0, 2):
        state.ask("initialize", partition)
    all_of_it = [fields_of(name, partition) for partition in (2, 0, 1, 9)]
    talk.ask(request(name, version, state.group, state.topic_id, *all_of_it))


for each, (name_, version_) in EACH.items():
    if name_ in ("read", "summarize"):
        add_shapes(
            book,
            KEYS[name_],
            [version_],
            lambda talk, version, name=name_: request(
                name, version, talk.name("g"), UNKNOWN, fields_of(name, 0)
            ),
            title=each.split()[0] if version_ == 0 else each,
        )
