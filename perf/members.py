"""Groups of one member each, and what their members repeat: Heartbeat and OffsetCommit.

A member joins in the old way (JoinGroup 2, without a detour for its id) and is alone in its group,
so it leads and assigns itself. Its session outlasts any block. `Connection.topic` of a repeated
request is the answer that must come, byte for byte after the correlation id: an error code ends
the run.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from perf.client import READY_RETRY_S, READY_WAIT_S, Client, ClientError
from perf.requests import Topic
from perf.spec import Connection
from perf.wire import Writer, frame, request_header

OFFSET_COMMIT, FIND_COORDINATOR = 8, 10
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 11, 12, 13, 14
COMMIT_VERSION, HEARTBEAT_VERSION = 9, 4
SESSION_MS = 300_000
COMMITTED_OFFSET = 1_000_000
# Codes that pass: the coordinator loads, is not there yet, or is another broker's.
PASSING = (14, 15, 16)


@dataclass(frozen=True)
class Member:
    """The only member of a group."""

    group: str
    member_id: str
    generation: int


def join(client: Client, group: str) -> Member:
    """Into a group of its own, once there is a coordinator."""
    give_up = time.monotonic() + READY_WAIT_S
    while True:
        code = _find_coordinator(client, group)
        if not code:
            code, member = _join(client, group)
            if not code:
                _sync(client, member)
                return member
        if code not in PASSING or time.monotonic() > give_up:
            raise ClientError(f"joining group {group}", code)
        time.sleep(READY_RETRY_S)


def _find_coordinator(client: Client, group: str) -> int:
    return int(client.ask(FIND_COORDINATOR, 0, bytes(Writer().string(group).data)).get("h"))


def _join(client: Client, group: str) -> tuple[int, Member]:
    w = Writer().string(group).put("ii", SESSION_MS, SESSION_MS).string("").string("consumer")
    w.count(1).string("range").bytes(b"\0\0\0\0\0\0\0\0\0\0")
    r = client.ask(JOIN_GROUP, 2, bytes(w.data))
    r.get("i")
    code, generation = r.get("h"), r.get("i")
    r.string()
    r.string()
    return code, Member(group, r.string() or "", generation)


def _sync(client: Client, member: Member) -> None:
    w = Writer().string(member.group).put("i", member.generation).string(member.member_id)
    w.count(1).string(member.member_id).bytes(b"\0\0\0\0\0\0\0\0\0\0")
    r = client.ask(SYNC_GROUP, 1, bytes(w.data))
    r.get("i")
    if code := r.get("h"):
        raise ClientError(f"syncing group {member.group}", code)


def leave(client: Client, member: Member) -> None:
    w = Writer().string(member.group).string(member.member_id)
    r = client.ask(LEAVE_GROUP, 1, bytes(w.data))
    r.get("i")
    if code := r.get("h"):
        raise ClientError(f"leaving group {member.group}", code)


def heartbeat(member: Member) -> Connection:
    """Heartbeat 4, repeated as it is."""
    w = Writer(flexible=True).string(member.group).put("i", member.generation)
    w.string(member.member_id).string(None).tags()
    right = Writer(flexible=True).tags().put("ih", 0, 0).tags()
    header = request_header(HEARTBEAT, HEARTBEAT_VERSION)
    return Connection(frame(header, bytes(w.data)), topic=bytes(right.data))


def commit(member: Member, topic: Topic, partition: int) -> Connection:
    """OffsetCommit 9 of one partition, repeated as it is."""
    w = Writer(flexible=True).string(member.group).put("i", member.generation)
    w.string(member.member_id).string(None)
    w.count(1).string(topic.name).count(1)
    w.put("iqi", partition, COMMITTED_OFFSET, -1).string("").tags().tags().tags()
    right = Writer(flexible=True).tags().put("i", 0).count(1).string(topic.name)
    right.count(1).put("ih", partition, 0).tags().tags().tags()
    header = request_header(OFFSET_COMMIT, COMMIT_VERSION)
    return Connection(frame(header, bytes(w.data)), topic=bytes(right.data))
