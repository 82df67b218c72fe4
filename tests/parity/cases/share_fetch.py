"""ShareFetch (78) and ShareAcknowledge (79): sessions, what is acquired, and acknowledgements.

The state of a share-partition begins at offset 0, and it serves before a case begins, so no case
depends on when it was first read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases.read_committed import story
from tests.parity.cases.share_state import State
from tests.parity.data import batch, in_short, stored
from tests.parity.requests import build
from tests.parity.talk import Connection, Talk

book = Book(setup="share groups")
cases = book.cases

VERSIONS = (1, 2)
UNKNOWN = UUID(int=5)
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
RECORD_LIMIT = 1
Batch = tuple[int, int, Sequence[int]]  # first, last, types
WAIT_MS = 20_000


class Member:
    """A member of a group with a share-partition, on a connection of its own."""

    def __init__(self, state: State, name: str = "m", version: int = 2) -> None:
        self._state = state
        self._talk = state.talk
        self.name = name
        self.version = version
        self.connection: Connection = self._talk.connect()

    def _topics(self, batches: Sequence[Batch], topic_id: UUID | None) -> list[dict[str, Any]]:
        named = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}
            for first, last, types in batches
        ]
        part = {"partition_index": 0, "acknowledgement_batches": named}
        return [{"topic_id": topic_id or self._state.topic_id, "partitions": [part]}]

    def fetch(
        self,
        epoch: int,
        *batches: Batch,
        names: bool | None = None,
        topic_id: UUID | None = None,
        forgets: bool = False,
        **how: Any,
    ) -> Any:
        """`names`: the partition is in the request; else where it has something to say."""
        is_named = (epoch == 0 or bool(batches)) if names is None else names
        mine = {"topic_id": self._state.topic_id, "partitions": [0]}
        fields = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20, "max_records": 500,
                  "batch_size": 500, **how}  # fmt: skip
        if self.version > 1:
            fields = {"share_acquire_mode": 0, "is_renew_ack": False, **fields}
        return build(
            ApiKey.SHARE_FETCH, self.version, group_id=self._state.group, member_id=self.name,
            share_session_epoch=epoch, topics=self._topics(batches, topic_id) if is_named else [],
            forgotten_topics_data=[mine] if forgets else [], **fields,
        )  # fmt: skip

    def get(self, epoch: int, *batches: Batch, **how: Any) -> None:
        self.connection.ask(self.fetch(epoch, *batches, **how), view=in_short)

    def wait(self, epoch: int, *batches: Batch, **how: Any) -> None:
        """As long as it takes."""
        self.get(epoch, *batches, max_wait=WAIT_MS, min_bytes=1, **how)

    def say(self, epoch: int, *batches: Batch, renews: bool = False) -> None:
        self.connection.ask(self.acknowledgement(epoch, *batches, renews=renews))

    def acknowledgement(self, epoch: int, *batches: Batch, renews: bool = False) -> Any:
        fields = {"is_renew_ack": renews} if self.version > 1 else {}
        return build(
            ApiKey.SHARE_ACKNOWLEDGE, self.version, group_id=self._state.group,
            member_id=self.name, share_session_epoch=epoch,
            topics=self._topics(batches, None), **fields,
        )  # fmt: skip


def made(talk: Talk, *sizes: int, **configs: str) -> State:
    """A share-partition that begins at 0, and a log with batches of so many records."""
    state = State(talk)
    if configs:
        configure(state, configs)
    state.ask("initialize", start_offset=0)
    serve(state)
    if sizes:
        stored(talk, state.topic, *(batch(*[b"v"] * size) for size in sizes))
    return state


def configure(state: State, configs: dict[str, str]) -> None:
    """Set configs of the group, by names with _ for a dot."""
    values = [
        {"name": name.replace("_", "."), "value": value, "config_operation": 0}
        for name, value in configs.items()
    ]
    resource = {"resource_type": 32, "resource_name": state.group, "configs": values}
    asked = build(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    (found,) = state.talk.quietly(asked).responses
    if found.error_code.value:
        raise AssertionError(f"not set: {found}")
    named = {"resource_type": 32, "resource_name": state.group, "configuration_keys": None}
    wanted = {each["name"]: each["value"] for each in values}

    def are_set() -> bool:
        (found,) = state.talk.quietly(build(ApiKey.DESCRIBE_CONFIGS, 4, resources=[named])).results
        return wanted.items() <= {each.name: each.value for each in found.configs}.items()

    state.talk.until(are_set)


def serve(state: State) -> None:
    """A first answer lists the partition once its state has been read. The session stays: a broker
    need not keep the state of a group without one."""
    member = Member(state, "first")

    def lists_it() -> bool:
        found = member.connection.ask(member.fetch(0), record=False)
        return bool(found.responses)

    state.talk.until(lists_it)


def begun(talk: Talk, *sizes: int, version: int = 2, **configs: str) -> tuple[State, Member]:
    """A member that has all of it."""
    state = made(talk, *sizes, **configs)
    member = Member(state, version=version)
    member.wait(0)
    return state, member


@book.case("the first fetch acquires", versions=VERSIONS)
def first(talk: Talk, version: int) -> None:
    begun(talk, 2, 1, 3, version=version)


EPOCHS: dict[str, tuple[int, ...]] = {
    "no session": (1,),
    "no session, closed": (-1,),
    "skipped": (0, 2),
    "twice": (0, 1, 1),
    "opened again": (0, 1, 0, 1),
    "closed": (0, 1, -1, 2),
    "below": (0, -2),
}


@book.case("epochs of a session", versions=VERSIONS, over=EPOCHS)
def epochs(talk: Talk, version: int, given: tuple[int, ...]) -> None:
    member = Member(made(talk), version=version)
    for epoch in given:
        member.get(epoch)


@book.case("epochs of acknowledgements", versions=VERSIONS)
def acknowledging_epochs(talk: Talk, version: int) -> None:
    member = Member(made(talk, 3), version=version)
    member.say(0)
    member.say(1)
    member.wait(0)
    for epoch in (0, 2, 1, 1, 2, -1, -1):
        member.say(epoch)


@book.case("acknowledgements with the first fetch", versions=VERSIONS)
def first_acknowledges(talk: Talk, version: int) -> None:
    Member(made(talk, 3), version=version).get(0, (0, 0, [ACCEPT]))


LISTS: dict[str, list[Batch]] = {
    "all": [(0, 5, [ACCEPT])],
    "each": [(0, 5, [ACCEPT, ACCEPT, GAP, REJECT, GAP, REJECT])],
    "in parts": [(0, 1, [ACCEPT]), (2, 2, [GAP]), (3, 5, [REJECT])],
    "some": [(1, 2, [ACCEPT]), (4, 4, [ACCEPT])],
    "descending": [(3, 5, [ACCEPT]), (0, 1, [ACCEPT])],
    "overlapping by one": [(0, 2, [ACCEPT]), (2, 3, [ACCEPT])],
    "overlapping": [(0, 2, [ACCEPT]), (1, 3, [ACCEPT])],
    "too few types": [(0, 5, [ACCEPT, ACCEPT])],
    "no types": [(0, 5, [])],
    "a type": [(0, 5, [5])],
    "a negative type": [(0, 5, [-1])],
    "renew": [(0, 5, [RENEW])],
    "beyond the end": [(0, 6, [ACCEPT])],
    "after the end": [(6, 7, [ACCEPT])],
    "backward": [(3, 2, [ACCEPT])],
    "negative": [(-1, 2, [ACCEPT])],
    "none": [],
}
RELEASES: dict[str, list[Batch]] = {
    "all": [(0, 5, [RELEASE])],
    "each": [(0, 5, [ACCEPT, ACCEPT, RELEASE, REJECT, GAP, RELEASE])],
    "in parts": [(0, 1, [ACCEPT]), (2, 2, [RELEASE]), (3, 5, [REJECT])],
}


@book.case("a list of acknowledgements", versions=VERSIONS, over=LISTS)
def lists(talk: Talk, version: int, given: list[Batch]) -> None:
    _, member = begun(talk, 3, 3, version=version)
    member.say(1, *given)
    member.get(2)


@book.case("a list with a fetch", over=LISTS)
def lists_with_a_fetch(talk: Talk, given: list[Batch]) -> None:
    _, member = begun(talk, 3, 3)
    member.get(1, *given)


@book.case("releases", versions=VERSIONS, over=RELEASES)
def releases(talk: Talk, version: int, given: list[Batch]) -> None:
    _, member = begun(talk, 3, 3, version=version)
    member.say(1, *given)
    member.wait(2)


@book.case("releases with a fetch", over=RELEASES)
def releases_with_a_fetch(talk: Talk, given: list[Batch]) -> None:
    """Without records to wait for it is by chance whether the answer has what it releases."""
    _, member = begun(talk, 3, 3)
    member.wait(1, *given)


@book.case("acknowledged twice", versions=VERSIONS)
def twice(talk: Talk, version: int) -> None:
    _, member = begun(talk, 3, 3, version=version)
    member.say(1, (1, 1, [ACCEPT]))
    member.say(2, (1, 1, [ACCEPT]))
    member.say(3, (0, 1, [ACCEPT]))
    member.say(4, (0, 0, [ACCEPT]))
    member.say(5, (0, 1, [ACCEPT]))
    member.say(6, (0, 2, [ACCEPT]))


@book.case("another member's records")
def another(talk: Talk) -> None:
    state, _ = begun(talk, 3)
    other = Member(state, "n")
    other.get(0)
    other.say(1, (0, 0, [ACCEPT]))


@book.case("nothing was acquired")
def nothing(talk: Talk) -> None:
    member = Member(made(talk))
    member.get(0)
    member.say(1, (0, 0, [ACCEPT]))


@book.case("renewing", over={"allowed": True, "not": False})
def renewing(talk: Talk, renews: bool) -> None:
    _, member = begun(talk, 3)
    member.say(1, (0, 1, [RENEW]), renews=renews)
    member.say(2, (0, 1, [ACCEPT]), renews=renews)


@book.case("renewing and more")
def renewing_and_more(talk: Talk) -> None:
    state, member = begun(talk, 4)
    member.say(1, (0, 3, [ACCEPT, RENEW, RELEASE, REJECT]), renews=True)
    other = Member(state, "n")
    other.wait(0)
    other.say(1, (1, 1, [RENEW]), renews=True)
    member.say(2, (1, 1, [ACCEPT]))
    member.say(3, (1, 1, [RENEW]), renews=True)


@book.case("renewing, a group that does not")
def renewing_refused(talk: Talk) -> None:
    _, member = begun(talk, 3, share_renew_acknowledge_enable="false")
    member.say(1, (0, 1, [RENEW]), renews=True)
    member.say(2, (0, 1, [ACCEPT]))


@book.case("renewing with a fetch", over={"sizes": True, "none": False})
def renewing_with_a_fetch(talk: Talk, sizes: bool) -> None:
    _, member = begun(talk, 3)
    none = {} if sizes else {"max_bytes": 0, "max_records": 0}
    member.get(1, (0, 1, [RENEW]), is_renew_ack=True, **none)


AMOUNTS: dict[str, dict[str, int]] = {
    "5 records": {"max_records": 5},
    "no records": {"max_records": 0},
    "fewer than none": {"max_records": -1},
    "batches of 4": {"batch_size": 4},
    "batches of 7": {"batch_size": 7},
    "5 records, batches of 1": {"max_records": 5, "batch_size": 1},
    "8 records, batches of 3": {"max_records": 8, "batch_size": 3},
    "no batch size": {"batch_size": 0},
    "5 records at most": {"max_records": 5, "share_acquire_mode": RECORD_LIMIT},
    "5 records at most, batches of 1": {
        "max_records": 5, "batch_size": 1, "share_acquire_mode": RECORD_LIMIT,
    },
    "all at most, batches of 1": {"batch_size": 1, "share_acquire_mode": RECORD_LIMIT},
    "another mode": {"share_acquire_mode": 2},
    "few bytes": {"max_bytes": 1},
    "bytes of 2 batches": {"max_bytes": 200},
    "no bytes": {"max_bytes": 0},
    "fewer bytes than none": {"max_bytes": -1},
    "many bytes at least": {"min_bytes": 1_000_000},
}  # fmt: skip


@book.case("how much is acquired", over=AMOUNTS)
def amounts(talk: Talk, how: dict[str, int]) -> None:
    member = Member(made(talk, 3, 4, 2, 10))
    member.get(0, **how)
    member.get(1, **how)


# Of those that were released.
AGAIN: dict[str, dict[str, int]] = {
    "all": {},
    "2 records": {"max_records": 2},
    "2 records at most": {"max_records": 2, "share_acquire_mode": RECORD_LIMIT},
    "batches of 1": {"batch_size": 1},
}


@book.case("how much is acquired again", over=AGAIN)
def amounts_again(talk: Talk, how: dict[str, int]) -> None:
    _, member = begun(talk, 4, 3, 5)
    types = [RELEASE, ACCEPT, RELEASE, RELEASE]
    member.say(1, (1, 2, [RELEASE]), (4, 6, [RELEASE]), (8, 11, types))
    for epoch in range(2, 8):
        member.wait(epoch, **how) if epoch == 2 else member.get(epoch, **how)


SETTINGS: dict[str, tuple[int, dict[str, str]]] = {
    "5 of 8": (8, {}),
    "2 of 8": (8, {"share_delivery_count_limit": "2"}),
    "3 of 8": (8, {"share_delivery_count_limit": "3"}),
    "6 of 3": (3, {"share_delivery_count_limit": "6"}),
    "10 of 20": (20, {"share_delivery_count_limit": "10"}),
}


@book.case("the limit of deliveries", over=SETTINGS)
def limit(talk: Talk, given: tuple[int, dict[str, str]]) -> None:
    """Released each time, until there is nothing left."""
    size, configs = given
    member = Member(made(talk, size, 2, **configs))
    epoch = 0
    while epoch < 200:
        asked = member.fetch(epoch, max_wait=300, min_bytes=1)
        found = member.connection.ask(asked, view=in_short)
        got = [
            each for topic in found.responses for part in topic.partitions
            for each in part.acquired_records
        ]  # fmt: skip
        if not got:
            return
        member.say(epoch + 1, *((each.first_offset, each.last_offset, [RELEASE]) for each in got))
        epoch += 2


@book.case("sessions that end, until the limit")
def sessions_end(talk: Talk) -> None:
    state = made(talk, 2, share_delivery_count_limit="2")
    for name in "mn":
        member = Member(state, name)
        member.wait(0)
        member.say(1)
        member.connection.close()
    stored(talk, state.topic, batch(b"v"))
    Member(state, "o").wait(0)


@book.case("a session that is opened again")
def opened_again(talk: Talk) -> None:
    """The records are with the member still, also on another connection."""
    state, member = begun(talk, 2, 3)
    member.get(0)
    member.say(1, (0, 0, [ACCEPT]))
    again = Member(state)
    again.get(0)
    again.say(1, (1, 1, [ACCEPT]))
    member.connection.close()
    other = Member(state, "n")
    other.get(0)
    again.say(2, (2, 2, [ACCEPT]))
    again.connection.close()
    other.wait(1)


@book.case("a session that is opened again without a partition")
def opened_without(talk: Talk) -> None:
    """Its records stay with the member until their locks end, also when its connection has."""
    state, member = begun(talk, 2, 3)
    other = Member(state, "n")
    other.get(0)
    member.get(0, names=False)
    other.get(1, max_wait=200, min_bytes=1)
    member.say(1, (0, 0, [ACCEPT]))
    member.get(0, names=False)
    member.connection.close()
    other.get(2, max_wait=500, min_bytes=1)


@book.case("sends no more", over={"fetch": True, "acknowledge": False})
def sends_no_more(talk: Talk, fetches: bool) -> None:
    """What it has sent before is answered, and applied."""
    _, member = begun(talk, 3)
    make = member.fetch if fetches else member.acknowledgement
    member.connection.hold()
    member.connection.send(make(1, (0, 0, [ACCEPT])))
    member.connection.send(make(-1, (1, 1, [ACCEPT])))
    member.connection.release()
    member.connection.end_of_requests()
    for _ in range(2):
        member.connection.receive(view=in_short if fetches else None)


@book.case("a connection that ends")
def connection_ends(talk: Talk) -> None:
    state, member = begun(talk, 2, 3)
    member.say(1, (1, 1, [ACCEPT]))
    member.connection.close()
    Member(state, "n").wait(0)


@book.case("a session on another connection")
def two_connections(talk: Talk) -> None:
    state, member = begun(talk, 2)
    other = Member(state)
    other.say(1, (0, 0, [ACCEPT]))
    member.say(2, (1, 1, [ACCEPT]))
    other.get(3)
    other.connection.close()
    member.get(4)


@book.case("released and fetched")
def released(talk: Talk) -> None:
    state, member = begun(talk, 3, 3)
    member.say(1, (1, 1, [RELEASE]), (4, 4, [RELEASE]))
    other = Member(state, "n")
    other.wait(0)
    other.say(1, (1, 1, [ACCEPT]), (4, 4, [REJECT]))
    other.get(2)


@book.case("a member that leaves", over={"fetch": True, "acknowledge": False})
def leaves(talk: Talk, fetches: bool) -> None:
    state, member = begun(talk, 3)
    leave = member.get if fetches else member.say
    leave(-1, (0, 0, [ACCEPT]))
    Member(state, "n").wait(0)
    member.say(1, (1, 1, [ACCEPT]))


@book.case("a partition is forgotten")
def forgotten(talk: Talk) -> None:
    _, member = begun(talk, 3)
    member.get(1, (0, 2, [RELEASE]), forgets=True)
    member.get(2)
    member.wait(3, names=True)


@book.case("a member that waits", over={"new records": True, "released ones": False})
def waits(talk: Talk, new: bool) -> None:
    state, member = begun(talk, 3)
    other = Member(state, "n")
    other.get(0)
    other.connection.send(other.fetch(1, max_wait=WAIT_MS, min_bytes=1))
    other.connection.nothing(200)
    if new:
        stored(talk, state.topic, batch(b"v", b"w"))
    else:
        member.say(1, (1, 1, [RELEASE]))
    other.connection.receive(view=in_short)


@book.case("an unknown topic", versions=VERSIONS)
def unknown(talk: Talk, version: int) -> None:
    member = Member(made(talk), version=version)
    member.get(0, topic_id=UNKNOWN)
    member.get(1, (0, 0, [ACCEPT]), topic_id=UNKNOWN)


NAMES: dict[str, dict[str, Any]] = {
    "no group": {"group_id": ""},
    "a null group": {"group_id": None},
    "a blank group": {"group_id": " "},
    "no member": {"member_id": ""},
    "a null member": {"member_id": None},
    "a blank member": {"member_id": " "},
    "a member of 36": {"member_id": "m" * 36},
    "a member of 37": {"member_id": "m" * 37},
}


@book.case("names", versions=VERSIONS, over=NAMES)
def names(talk: Talk, version: int, given: dict[str, Any]) -> None:
    asked = {"group_id": talk.name("g"), "member_id": "m", **given}
    sizes = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1000, "max_records": 5, "batch_size": 5}
    more = {"share_acquire_mode": 0, "is_renew_ack": False} if version > 1 else {}
    talk.ask(
        build(
            ApiKey.SHARE_FETCH, version, **asked, share_session_epoch=0, topics=[],
            forgotten_topics_data=[], **sizes, **more,
        )
    )  # fmt: skip
    renews = {"is_renew_ack": False} if version > 1 else {}
    talk.ask(
        build(
            ApiKey.SHARE_ACKNOWLEDGE, version, **asked, share_session_epoch=1, topics=[], **renews
        )
    )


def without_records(data: Any) -> Any:
    """Whether there are some is left of them: their producers have ids of each side's own."""
    if isinstance(data, dict):
        return {
            key: bool(value) if key == "records" else without_records(value)
            for key, value in data.items()
        }
    return [without_records(each) for each in data] if isinstance(data, list) else data


@book.case("transactions", over={"uncommitted": "read_uncommitted", "committed": "read_committed"})
def transactions(talk: Talk, isolation: str) -> None:
    """With an open one, and when it is over; and all of it once more."""
    state = made(talk, share_isolation_level=isolation)
    last = story(talk, state.topic)
    member = Member(state)

    def wait(epoch: int) -> None:
        asked = member.fetch(epoch, max_wait=WAIT_MS, min_bytes=1)
        member.connection.ask(asked, view=without_records)

    wait(0)
    last.commit()
    wait(1)
    member.connection.close()
    member = Member(state, "n")
    wait(0)
