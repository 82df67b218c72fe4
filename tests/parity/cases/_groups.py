"""Groups: their requests, and members that hold a group in a certain state.

A `Member`'s requests are recorded only where a case asks for it: the cases of OffsetCommit, say,
need a stable group and are not about how it came to be. Each member has a connection of its own,
because an answer to JoinGroup or SyncGroup may be due only when another member has spoken.

Session and rebalance time-outs are long (MS) unless a case is about them: none goes by chance.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kbroker.types import ApiKey
from tests.parity.data import named
from tests.parity.requests import build
from tests.parity.talk import Talk

JOIN: Final = range(10)
SYNC: Final = range(6)
HEARTBEAT: Final = range(5)
LEAVE: Final = range(6)
COMMIT: Final = range(2, 11)
FETCH: Final = range(1, 11)
DESCRIBE: Final = range(7)
LIST: Final = range(6)
DELETE: Final = range(3)

MS: Final = 300_000
RANGE: Final = (("range", b"\x00\x01"),)
STRANGER: Final = "nobody-00000000-0000-4000-8000-000000000000"
UNKNOWN_ID: Final = uuid.UUID(int=77)
COMMIT_IDS: Final = 10
FETCH_IDS: Final = 10

Protocols = Iterable[tuple[str, bytes]]
MemberKey = tuple[str, str | None]  # member id, instance id


# --- requests -------------------------------------------------------------------------------------


def join(
    version: int,
    group: str,
    member: str = "",
    *,
    instance: str | None = None,
    session: int = MS,
    rebalance: int = MS,
    kind: str = "consumer",
    protocols: Protocols = RANGE,
    reason: str | None = None,
) -> Any:
    return build(
        ApiKey.JOIN_GROUP,
        version,
        group_id=group,
        session_timeout=session,
        rebalance_timeout=rebalance,
        member_id=member,
        group_instance_id=instance,
        protocol_type=kind,
        protocols=[{"name": name, "metadata": data} for name, data in protocols],
        reason=reason,
    )


def sync(
    version: int,
    group: str,
    generation: int,
    member: str,
    assignments: Mapping[str, bytes] | Sequence[tuple[str, bytes]] = (),
    *,
    instance: str | None = None,
    kind: str | None = "consumer",
    protocol: str | None = "range",
) -> Any:
    pairs = assignments.items() if isinstance(assignments, Mapping) else assignments
    return build(
        ApiKey.SYNC_GROUP,
        version,
        group_id=group,
        generation_id=generation,
        member_id=member,
        group_instance_id=instance,
        protocol_type=kind,
        protocol_name=protocol,
        assignments=[{"member_id": member_id, "assignment": data} for member_id, data in pairs],
    )


def heartbeat(
    version: int, group: str, generation: int, member: str, *, instance: str | None = None
) -> Any:
    return build(
        ApiKey.HEARTBEAT,
        version,
        group_id=group,
        generation_id=generation,
        member_id=member,
        group_instance_id=instance,
    )


def leave(version: int, group: str, *members: MemberKey, reason: str | None = None) -> Any:
    """Up to version 2 there is room for one member."""
    return build(
        ApiKey.LEAVE_GROUP,
        version,
        group_id=group,
        member_id=members[0][0] if members else "",
        members=[
            {"member_id": member_id, "group_instance_id": instance, "reason": reason}
            for member_id, instance in members
        ],
    )


Commits = Mapping[int, Any] | Sequence[tuple[int, Any]]


def commit(
    talk: Talk,
    version: int,
    group: str,
    *topics: tuple[Any, Commits],
    generation: int = -1,
    member: str = "",
    instance: str | None = None,
) -> Any:
    """`topics` are a name (or an id) and partition -> offset, or (offset, epoch, metadata)."""
    return build(
        ApiKey.OFFSET_COMMIT,
        version,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=instance,
        retention_time=-1,
        topics=[
            named(talk, version, COMMIT_IDS, name, "name")
            | {"partitions": [_commit_part(*each) for each in _pairs(parts)]}
            for name, parts in topics
        ],
    )


def _pairs(parts: Commits) -> Iterable[tuple[int, Any]]:
    return parts.items() if isinstance(parts, Mapping) else parts


def _commit_part(partition: int, what: Any) -> dict[str, Any]:
    offset, epoch, metadata = what if isinstance(what, tuple) else (what, -1, "")
    return {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": epoch,
        "committed_metadata": metadata,
    }


Wanted = Sequence[tuple[Any, Sequence[int]]] | None


def fetch_offsets(
    talk: Talk,
    version: int,
    group: str,
    topics: Wanted = None,
    *,
    stable: bool = False,
    member: str | None = None,
    epoch: int = -1,
) -> Any:
    """`topics=None` asks for all; version 1 cannot, and asks for none."""
    return fetch_groups(talk, version, (group, topics), stable=stable, member=member, epoch=epoch)


def fetch_groups(
    talk: Talk,
    version: int,
    *groups: tuple[str, Wanted],
    stable: bool = False,
    member: str | None = None,
    epoch: int = -1,
) -> Any:
    """Up to version 7 there is room for one group."""
    entries = [
        {
            "group_id": group,
            "member_id": member,
            "member_epoch": epoch,
            "topics": _wanted(talk, version, topics),
        }
        for group, topics in groups
    ]
    first = entries[0] if entries else {"group_id": "", "topics": None}
    topics = first["topics"]
    if version < 2 and topics is None:
        topics = []
    return build(
        ApiKey.OFFSET_FETCH,
        version,
        **({"group_id": first["group_id"], "topics": topics} if version < 8 else {}),
        groups=entries,
        require_stable=stable,
    )


def _wanted(talk: Talk, version: int, topics: Wanted) -> Any:
    if topics is None:
        return None
    return [
        named(talk, version, FETCH_IDS, name, "name") | {"partition_indexes": list(partitions)}
        for name, partitions in topics
    ]


def describe(version: int, *groups: str, operations: bool = False) -> Any:
    return build(
        ApiKey.DESCRIBE_GROUPS, version, groups=groups, include_authorized_operations=operations
    )


def delete_groups(version: int, *groups: str) -> Any:
    return build(ApiKey.DELETE_GROUPS, version, groups_names=groups)


def delete_offsets(group: str, *topics: tuple[str, Sequence[int]]) -> Any:
    return build(
        ApiKey.OFFSET_DELETE,
        0,
        group_id=group,
        topics=[
            {"name": name, "partitions": [{"partition_index": i} for i in partitions]}
            for name, partitions in topics
        ],
    )


def subscription(*topics: str, version: int = 0) -> bytes:
    """A consumer's metadata in JoinGroup: its topics, no user data (KIP-429 for version 1)."""
    names = b"".join(len(t).to_bytes(2, "big") + t.encode() for t in topics)
    head = version.to_bytes(2, "big") + len(topics).to_bytes(4, "big")
    owned = b"\x00\x00\x00\x00" if version else b""
    return head + names + b"\xff\xff\xff\xff" + owned


# --- members --------------------------------------------------------------------------------------


class Member:
    """One member. Its join is of version 9 and not recorded, unless the case says otherwise.

    `id` and `generation` are those of the last answer to JoinGroup; `how` are arguments of `join`.
    """

    def __init__(
        self,
        talk: Talk,
        group: str,
        *,
        version: int = 9,
        record: bool = False,
        client_id: str | None = "parity",
        **how: Any,
    ) -> None:
        self.talk = talk
        self.group = group
        self.line = talk.connect()
        self.id = ""
        self.generation = -1
        self.answer: Any = None
        self.how = how
        self._version = version
        self._record = record
        self._client_id = client_id

    @property
    def key(self) -> MemberKey:
        return self.id, self.how.get("instance")

    def send_join(self, version: int | None = None, **how: Any) -> None:
        """Ask to join; from version 4 on a member without an id gets one first (KIP-394)."""
        version = self._version if version is None else version
        asked = self.how | how
        if version >= 4 and not self.id and asked.get("instance") is None:
            request = join(version, self.group, **asked)
            self.line.send(request, client_id=self._client_id)
            answer = self.line.receive(record=self._record)
            self._named(answer.member_id)
        self.line.send(join(version, self.group, self.id, **asked), client_id=self._client_id)

    def joined(self, record: bool | None = None) -> Any:
        """The answer to `send_join`."""
        self.answer = self.line.receive(record=self._record if record is None else record)
        if self.answer is not None and self.answer.member_id:
            self._named(self.answer.member_id)
            self.generation = self.answer.generation_id
        return self.answer

    def join(self, **how: Any) -> Any:
        self.send_join(**how)
        return self.joined()

    def _named(self, member_id: str) -> None:
        """Known to the record in the order of the case, not of a list in some answer."""
        self.id = member_id
        self.talk.aliases.member(member_id)

    def sync(
        self,
        assignments: Mapping[str, bytes] | Sequence[tuple[str, bytes]] = (),
        *,
        version: int = 5,
        record: bool = False,
        **how: Any,
    ) -> Any:
        self.send_sync(assignments, version=version, **how)
        return self.line.receive(record=record)

    def send_sync(
        self,
        assignments: Mapping[str, bytes] | Sequence[tuple[str, bytes]] = (),
        *,
        version: int = 5,
        **how: Any,
    ) -> None:
        how = {
            "instance": self.how.get("instance"),
            "kind": self.how.get("kind", "consumer"),
            "protocol": None if self.answer is None else self.answer.protocol_name,
        } | how
        self.line.send(sync(version, self.group, self.generation, self.id, assignments, **how))

    def heartbeat(self, version: int = 4, *, record: bool = True, **how: Any) -> Any:
        how = {"instance": self.how.get("instance")} | how
        generation = how.pop("generation", self.generation)
        return self.line.ask(
            heartbeat(version, self.group, generation, self.id, **how), record=record
        )

    def commit(self, version: int, *topics: tuple[Any, Commits], **how: Any) -> Any:
        how = {
            "instance": self.how.get("instance"),
            "generation": self.generation,
            "member": self.id,
        } | how
        return self.line.ask(commit(self.talk, version, self.group, *topics, **how))


def state_of(talk: Talk, group: str) -> tuple[str, int]:
    """(state, members)."""
    (found,) = talk.quietly(describe(5, group)).groups
    return found.group_state, len(found.members)


def until(talk: Talk, group: str, state: str, members: int | None = None) -> None:
    """Wait until the group is in the state, with so many members."""

    def there() -> bool:
        found = state_of(talk, group)
        return found[0] == state and members in (None, found[1])

    talk.until(there)


def stable(talk: Talk, name: str = "g", **how: Any) -> Member:
    """A group with one member, Stable; its assignment is b"a"."""
    member = Member(talk, talk.name(name), **how)
    member.join()
    member.sync({member.id: b"a"})
    return member


def together(talk: Talk, count: int, name: str = "g", **how: Any) -> list[Member]:
    """A group of several members, all joined and the first one its leader: CompletingRebalance."""
    return in_one(talk, [dict(how) for _ in range(count)], name)


def in_one(talk: Talk, hows: Sequence[Mapping[str, Any]], name: str = "g") -> list[Member]:
    """The same, with an own `how` for each member."""
    members = [Member(talk, talk.name(name), **how) for how in hows]
    first, *others = members
    first.join()
    if not others:
        return members
    first.sync()
    for place, other in enumerate(others):
        other.send_join()
        until(talk, first.group, "PreparingRebalance", place + 2)
    first.send_join()
    for other in others:
        other.joined()
    first.joined()
    return members


def synced(members: Sequence[Member]) -> list[Member]:
    """The members' group becomes Stable; the assignments are b"a0", b"a1" and so on."""
    first, *others = members
    first.sync({m.id: b"a%d" % place for place, m in enumerate(members)})
    for other in others:
        other.sync()
    return list(members)


def dissolved(talk: Talk, name: str = "g") -> str:
    """A group that had a member; Empty."""
    member = stable(talk, name)
    talk.quietly(leave(5, member.group, member.key))
    return member.group
