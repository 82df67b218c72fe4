"""Consumer groups: rebalances, many members, many groups, and a start with many commits.

Members are plain sockets of one thread. What is timed:

- `join`: MEMBERS connections ask to join a new group, until each has its part;
- `rebalance`: one member comes with other data, the others learn of it and ask to join again, until
  the last one has its part; the median of REPEATS;
- `large_join`, `large_rebalance`: the same with LARGE_MEMBERS;
- `groups`: GROUPS groups of one member each, one after the other, and the median heartbeat beside
  them;
- `commits`: COMMITS offsets, 100 to a request, then a clean stop; `start`: from exec until every
  group's OffsetFetch is answered with the committed offsets, `ready` until the first ApiVersions.

A subscription is a consumer's, of one topic, an assignment has its partitions as a range assignor
gives them. Versions are the last ones before compact encoding, which all clients still speak.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from perf.brokers.base import Broker
from perf.cells import CellError
from perf.client import ClientError
from perf.process import memory
from perf.wire import Reader, Writer, frame, request_header

JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 11, 12, 14
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
JOIN_VERSION, HEARTBEAT_VERSION, SYNC_VERSION = 3, 2, 2
COMMIT_VERSION, FETCH_VERSION, FIND_VERSION = 6, 5, 0

TOPIC: Final = "perf-groups"
PARTITIONS: Final = 1_000
MEMBERS: Final = 100
LARGE_MEMBERS: Final = 1_000
GROUPS: Final = 10_000
COMMITS: Final = 100_000
COMMITS_PER_GROUP: Final = 100
REPEATS: Final = 5
SESSION_MS: Final = 300_000
ANSWER_WAIT_S: Final = 60.0
RETRY_S: Final = 0.01
NOT_YET: Final = (14, 15, 16)  # the coordinator loads, is not there, or elsewhere
HEARTBEATS: Final = 2_000
PROBES: Final = 500  # names; any of the 50 partitions has some of them
BEAT_S: Final = 0.005
REBALANCING: Final = 27

Progress = Callable[[str], None]


@dataclass(frozen=True)
class GroupsResult:
    """Seconds, unless the name says otherwise."""

    broker: str
    join_s: float
    rebalance_s: float
    large_join_s: float
    large_rebalance_s: float
    groups_s: float
    heartbeat_ms: float
    groups_rss_mb: float
    commits_s: float
    ready_s: float
    start_s: float

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


# --- requests -------------------------------------------------------------------------------------


def _subscription(extra: int) -> bytes:
    name = TOPIC.encode()
    data = struct.pack(">hih", 0, 1, len(name)) + name
    return data + struct.pack(">ii", 4, extra)


def _assignment(first: int, last: int) -> bytes:
    name = TOPIC.encode()
    data = struct.pack(">hih", 0, 1, len(name)) + name + struct.pack(">i", last - first)
    return data + b"".join(struct.pack(">i", i) for i in range(first, last)) + b"\xff\xff\xff\xff"


def _join(group: str, member: str, extra: int = 0) -> bytes:
    w = Writer().string(group).put("ii", SESSION_MS, SESSION_MS).string(member).string("consumer")
    w.count(1).string("range").bytes(_subscription(extra))
    return frame(request_header(JOIN_GROUP, JOIN_VERSION), bytes(w.data))


def _sync(group: str, generation: int, member: str, given: Sequence[tuple[str, bytes]]) -> bytes:
    w = Writer().string(group).put("i", generation).string(member).count(len(given))
    for member_id, assignment in given:
        w.string(member_id).bytes(assignment)
    return frame(request_header(SYNC_GROUP, SYNC_VERSION), bytes(w.data))


def _heartbeat(group: str, generation: int, member: str) -> bytes:
    w = Writer().string(group).put("i", generation).string(member)
    return frame(request_header(HEARTBEAT, HEARTBEAT_VERSION), bytes(w.data))


def _commit(group: str, partitions: int, offset: int) -> bytes:
    w = Writer().string(group).put("i", -1).string("").count(1).string(TOPIC).count(partitions)
    for index in range(partitions):
        w.put("iqi", index, offset, -1).string("")
    return frame(request_header(OFFSET_COMMIT, COMMIT_VERSION), bytes(w.data))


def _fetch(group: str, partitions: int) -> bytes:
    w = Writer().string(group).count(1).string(TOPIC).count(partitions)
    for index in range(partitions):
        w.put("i", index)
    return frame(request_header(OFFSET_FETCH, FETCH_VERSION), bytes(w.data))


class Member:
    """One connection; the id and generation of its last JoinGroup."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, ANSWER_WAIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.id = ""
        self.generation = -1
        self.leads = False
        self.waits = 0  # the API whose answer is due
        self.members: list[str] = []

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read(self) -> Reader:
        """The answer, after its header."""
        (size,) = struct.unpack(">i", self._take(4))
        return Reader(self._take(size)[4:])

    def _take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise CellError("the broker closed a member's connection")
            data += more
        return data

    def joined(self) -> None:
        r = self.read()
        r.get("i")
        if code := r.get("h"):
            raise ClientError("JoinGroup", code)
        self.generation = r.get("i")
        r.string()
        leader = r.string()
        self.id = r.string()
        self.leads = leader == self.id
        self.members = []
        for _ in range(r.count()):
            self.members.append(r.string())
            r.take(r.get("i"))

    def synced(self) -> int:
        r = self.read()
        r.get("i")
        return r.get("h")

    def beaten(self) -> int:
        r = self.read()
        r.get("i")
        return r.get("h")

    def close(self) -> None:
        self._socket.close()


# --- what is timed --------------------------------------------------------------------------------


class Group:
    """Members of one group, driven as clients are.

    A member that must rebalance joins again; one that waits for nothing sends heartbeats.
    """

    def __init__(self, broker: Broker, name: str, count: int) -> None:
        self._name = name
        self._extra = 0
        self._members = [Member((broker.host, broker.port)) for _ in range(count)]
        self._selector = selectors.DefaultSelector()
        for member in self._members:
            self._selector.register(member, selectors.EVENT_READ)

    def close(self) -> None:
        self._selector.close()
        for member in self._members:
            member.close()

    def join(self) -> float:
        """Seconds until all are in one generation, each with its part."""
        began = time.perf_counter()
        for member in self._members:
            self._ask_to_join(member)
        self._settle(0)
        return time.perf_counter() - began

    def rebalance(self) -> float:
        """A follower comes with other data; seconds until all have their part again."""
        before = self._members[0].generation
        self._extra += 1
        first = next(member for member in self._members if not member.leads)
        began = time.perf_counter()
        self._ask_to_join(first)
        for member in self._members:
            if member is not first:
                self._beat(member)
        self._settle(before)
        return time.perf_counter() - began

    def _settle(self, older_than: int) -> None:
        """Until all are Stable in one generation later than this."""
        give_up = time.monotonic() + ANSWER_WAIT_S
        while not self._settled(older_than):
            if time.monotonic() > give_up:
                raise CellError(f"{self._name} does not settle")
            ready = self._selector.select(BEAT_S)
            for key, _ in ready:
                self._answered(key.fileobj)  # type: ignore[arg-type]
            for member in () if ready else self._members:
                if not member.waits:
                    self._beat(member)

    def _settled(self, older_than: int) -> bool:
        generation = self._members[0].generation
        return generation > older_than and all(
            not m.waits and m.generation == generation for m in self._members
        )

    def _ask_to_join(self, member: Member) -> None:
        member.waits = JOIN_GROUP
        member.send(_join(self._name, member.id, self._extra))

    def _beat(self, member: Member) -> None:
        member.waits = HEARTBEAT
        member.send(_heartbeat(self._name, member.generation, member.id))

    def _answered(self, member: Member) -> None:
        waited, member.waits = member.waits, 0
        if waited == JOIN_GROUP:
            member.joined()
            member.waits = SYNC_GROUP
            given = self._shares(member.members) if member.leads else ()
            member.send(_sync(self._name, member.generation, member.id, given))
            return
        code = member.synced() if waited == SYNC_GROUP else member.beaten()
        if code == REBALANCING:
            self._ask_to_join(member)
        elif code:
            raise ClientError("SyncGroup" if waited == SYNC_GROUP else "Heartbeat", code)

    @staticmethod
    def _shares(members: Sequence[str]) -> list[tuple[str, bytes]]:
        share = PARTITIONS // len(members)
        return [
            (who, _assignment(place * share, (place + 1) * share))
            for place, who in enumerate(members)
        ]


def _joins(broker: Broker, name: str, count: int, repeats: int) -> tuple[float, float]:
    """Seconds of the first round, and the median of the rebalances."""
    group = Group(broker, name, count)
    try:
        return group.join(), median(group.rebalance() for _ in range(repeats))
    finally:
        group.close()


def _many_groups(broker: Broker, count: int) -> tuple[float, float]:
    """(seconds until all are Stable, median ms of a heartbeat beside them)."""
    line = Member((broker.host, broker.port))
    ids: list[tuple[str, str, int]] = []
    try:
        began = time.perf_counter()
        for number in range(count):
            group = f"perf-of-many-{number}"
            line.send(_join(group, ""))
            line.joined()
            line.send(_sync(group, line.generation, line.id, [(line.id, _assignment(0, 10))]))
            if code := line.synced():
                raise ClientError("SyncGroup", code)
            ids.append((group, line.id, line.generation))
        took = time.perf_counter() - began
        beats = []
        for group, member, generation in ids[:: max(1, count // HEARTBEATS)]:
            sent = time.perf_counter()
            line.send(_heartbeat(group, generation, member))
            if code := line.beaten():
                raise ClientError("Heartbeat", code)
            beats.append(time.perf_counter() - sent)
        return took, median(beats) * 1_000
    finally:
        line.close()


def _awake(broker: Broker) -> None:
    """Wait for the groups' coordinator in all partitions of its topic, which it makes first."""
    give_up = time.monotonic() + ANSWER_WAIT_S
    with broker.client() as client:
        client.ask(FIND_COORDINATOR, FIND_VERSION, bytes(Writer().string("g").data))
    line = Member((broker.host, broker.port))
    for number in range(PROBES):
        while True:
            line.send(_heartbeat(f"perf-probe-{number}", 1, "no-member"))
            if line.beaten() not in NOT_YET:
                break
            if time.monotonic() > give_up:
                raise CellError(f"{broker.name} has no coordinator of groups")
            time.sleep(RETRY_S)
    line.close()


def _commit_all(broker: Broker, groups: int) -> float:
    line = Member((broker.host, broker.port))
    began = time.perf_counter()
    for number in range(groups):
        line.send(_commit(f"perf-commits-{number}", COMMITS_PER_GROUP, number + 1))
        r = line.read()
        r.get("i")
        for _ in range(r.count()):
            r.string()
            for _ in range(r.count()):
                r.get("i")
                if code := r.get("h"):
                    raise ClientError("OffsetCommit", code)
    line.close()
    return time.perf_counter() - began


def _fetched(line: Member, number: int) -> bool:
    """Whether the group's offsets are there; False while they load."""
    line.send(_fetch(f"perf-commits-{number}", COMMITS_PER_GROUP))
    r = line.read()
    r.get("i")
    wrong = 0
    for _ in range(r.count()):
        r.string()
        for _ in range(r.count()):
            r.get("i")
            offset = r.get("q")
            r.get("i")
            r.string()
            wrong += offset != number + 1
            if (code := r.get("h")) and code not in NOT_YET:
                raise ClientError("OffsetFetch", code)
    code = r.get("h")
    if code in NOT_YET:
        return False
    if code or wrong:
        raise CellError(f"after the start {wrong} commits of a group are not there (error {code})")
    return True


def _start_again(broker: Broker, groups: int) -> tuple[float, float]:
    """(seconds to the first answer, to the last group's commits)."""
    broker.stop()
    broker.prepare()
    broker.launch()
    broker.wait_ready()
    ready_s = (time.monotonic_ns() - broker.started_ns) / 1e9
    line = Member((broker.host, broker.port))
    give_up = time.monotonic() + ANSWER_WAIT_S
    for number in range(groups):
        while not _fetched(line, number):
            if time.monotonic() > give_up:
                raise CellError(f"{broker.name} still loads after {ANSWER_WAIT_S:.0f} s")
            time.sleep(RETRY_S)
    line.close()
    return ready_s, (time.monotonic_ns() - broker.started_ns) / 1e9


def measure_groups(
    broker: Broker, progress: Progress = lambda _: None, scale: float = 1.0
) -> GroupsResult:
    """Everything on one broker, from an empty directory on; it is discarded at the end.

    `scale` makes the numbers of members, groups and commits smaller.
    """

    def some(number: int) -> int:
        return max(2, round(number * scale))

    with broker:
        with broker.client() as client:
            client.create_topics([TOPIC], PARTITIONS)
            client.topic(TOPIC, ANSWER_WAIT_S)
        _awake(broker)
        _joins(broker, "perf-warm", 20, REPEATS)  # a JVM's first calls
        join_s, rebalance_s = _joins(broker, "perf-group", some(MEMBERS), REPEATS)
        progress(f"groups {broker.name}: {join_s:.3f} s to join, {rebalance_s:.3f} s a rebalance")
        large = _joins(broker, "perf-large", some(LARGE_MEMBERS), 3)
        progress(f"groups {broker.name}: {large[0]:.3f} s and {large[1]:.3f} s with many members")
        before = memory(broker.pid)
        groups_s, heartbeat_ms = _many_groups(broker, some(GROUPS))
        grown = (memory(broker.pid).resident - before.resident) / 1e6
        progress(f"groups {broker.name}: {groups_s:.3f} s for many groups, {grown:.0f} MB more")
        groups = some(COMMITS // COMMITS_PER_GROUP)
        commits_s = _commit_all(broker, groups)
        ready_s, start_s = _start_again(broker, groups)
        progress(f"groups {broker.name}: {ready_s:.3f} s to start, {start_s:.3f} s with commits")
        return GroupsResult(
            broker.name,
            join_s,
            rebalance_s,
            *large,
            groups_s,
            heartbeat_ms,
            grown,
            commits_s,
            ready_s,
            start_s,
        )
