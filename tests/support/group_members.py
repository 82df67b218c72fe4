"""A thousand members in one thread: connections, a poll, and what a consumer's client would send.

    python -m tests.support.group_members HOST:PORT [--members 1000] [--groups 10000]

prints how long a group of so many members takes to form and to rebalance, what its neighbours wait
meanwhile, and what so many groups cost; against any broker. Every member is one connection that
joins, syncs and sends heartbeats (JoinGroup 9, SyncGroup 5, Heartbeat 4, LeaveGroup 5), each step
when the answer to the last one has come. Loopback only, every wait has a deadline.
"""

from __future__ import annotations

import argparse
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterable
from typing import Final

from kbroker.errors import ErrorCode
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey

DEADLINE_S: Final = 120.0
SUBSCRIPTION: Final = b"\x00\x01\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff"
# A group that was deleted between being found and being joined answers that it is not available.
_JOIN_AGAIN: Final = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
_SIZE: Final = struct.Struct(">i")


class Member:
    """One member: what it knows, and the request whose answer it waits for."""

    def __init__(self, address: tuple[str, int], group: str, session_ms: int, rebalance_ms: int):
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.group = group
        self.session_ms, self.rebalance_ms = session_ms, rebalance_ms
        self.member_id = ""
        self.generation = -1
        self.assignment: bytes | None = None
        self.leads = False
        self.waits: Callable[[Reader], None] | None = None
        self.last_code = ErrorCode.NONE  # by the last answer
        self._received = bytearray()
        self._answer_size = -1

    def __str__(self) -> str:
        """Its state, for a failure of a group that does not come to rest."""
        waits = self.waits.__name__ if self.waits is not None else "nothing"
        return (
            f"{self.member_id!r} in {self.generation} got {self.last_code.name}, waits for {waits}"
        )

    def close(self) -> None:
        self.socket.close()

    def fileno(self) -> int:
        return self.socket.fileno()

    # --- requests ---

    def _send(
        self, key: ApiKey, version: int, body: Writer, then: Callable[[Reader], None]
    ) -> None:
        if self.waits is not None:
            raise AssertionError("a member asks one thing at a time")
        head = struct.pack(">hhih", key, version, 1, 1) + b"m\x00"
        payload = head + body.getvalue()
        self.waits = then
        self.socket.sendall(_SIZE.pack(len(payload)) + payload)

    def join(self) -> None:
        self.assignment, self.generation = None, -1
        out = Writer(flexible=True)
        out.string(self.group)
        out.int32(self.session_ms)
        out.int32(self.rebalance_ms)
        out.string(self.member_id)
        out.string(None)
        out.string("consumer")
        out.array(1)
        out.string("range")
        out.bytes(SUBSCRIPTION)
        out.tags()
        out.string(None)
        out.tags()
        self._send(ApiKey.JOIN_GROUP, 9, out, self._joined)

    def _joined(self, answer: Reader) -> None:
        self.last_code = ErrorCode.for_code(answer.int16())
        generation = answer.int32()
        answer.nullable_string()
        answer.nullable_string()
        leader = answer.string()
        answer.boolean()
        member_id = answer.string()
        if self.last_code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = member_id
            self.join()
        elif not self.last_code:
            self.member_id, self.generation = member_id, generation
            self.leads = leader == member_id
            members = []
            for _ in range(answer.array()):
                members.append(answer.string())
                answer.nullable_string()
                answer.nullable_bytes()
                answer.tags()
            self._sync(members if self.leads else [])

    def _sync(self, members: list[str]) -> None:
        out = Writer(flexible=True)
        out.string(self.group)
        out.int32(self.generation)
        out.string(self.member_id)
        out.string(None)
        out.string("consumer")
        out.string("range")
        out.array(len(members))
        for number, member in enumerate(members):
            out.string(member)
            out.bytes(b"%d" % number)
            out.tags()
        out.tags()
        self._send(ApiKey.SYNC_GROUP, 5, out, self._synced)

    def _synced(self, answer: Reader) -> None:
        self.last_code = ErrorCode.for_code(answer.int16())
        answer.nullable_string()
        answer.nullable_string()
        if self.last_code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
        elif not self.last_code:
            self.assignment = answer.nullable_bytes()

    def heartbeat(self) -> None:
        out = Writer(flexible=True)
        out.string(self.group)
        out.int32(self.generation)
        out.string(self.member_id)
        out.string(None)
        out.tags()
        self._send(ApiKey.HEARTBEAT, 4, out, self._beaten)

    def _beaten(self, answer: Reader) -> None:
        self.last_code = ErrorCode.for_code(answer.int16())

    def leave(self) -> None:
        out = Writer(flexible=True)
        out.string(self.group)
        out.array(1)
        out.string(self.member_id)
        out.string(None)
        out.string(None)
        out.tags()
        out.tags()
        self._send(ApiKey.LEAVE_GROUP, 5, out, self._beaten)

    # --- answers ---

    def readable(self) -> None:
        data = self.socket.recv(1 << 16)
        if not data:
            raise AssertionError("the broker closed a member's connection")
        self._received += data
        if self._answer_size < 0 and len(self._received) >= 4:
            self._answer_size = 4 + _SIZE.unpack_from(self._received)[0]
        if 0 <= self._answer_size <= len(self._received):
            # Size, correlation id, tagged fields of the header, throttle time.
            body = bytes(self._received[13:])
            self._received.clear()
            self._answer_size = -1
            then, self.waits = self.waits, None
            if then is None:
                raise AssertionError("an answer to nothing")
            then(Reader(body, flexible=True))


def run(members: Iterable[Member], until: Callable[[], bool], what: str) -> float:
    """Move them until something holds; the seconds it took."""
    began = time.monotonic()
    poll = select.epoll()
    by_fd = {member.fileno(): member for member in members}
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    try:
        while not until():
            if time.monotonic() - began > DEADLINE_S:
                waiting = ", ".join(map(str, by_fd.values()))
                raise AssertionError(f"not in {DEADLINE_S} s: {what}: {waiting}")
            for fd, _ in poll.poll(0.2):
                by_fd[fd].readable()
    finally:
        poll.close()
    return time.monotonic() - began


def all_settled(members: list[Member]) -> Callable[[], bool]:
    """Whether all have an assignment of one generation; cheap to ask while they have not."""

    def settled() -> bool:
        if members[-1].assignment is None or members[0].assignment is None:
            return False
        first = members[0].generation
        return all(m.assignment is not None and m.generation == first for m in members)

    return settled


def form(
    address: tuple[str, int], group: str, size: int, *, rebalance_ms: int = 60_000
) -> tuple[list[Member], float]:
    """A group of so many members, all coming at once; with the seconds until all are settled."""
    members = [Member(address, group, 60_000, rebalance_ms) for _ in range(size)]
    began = time.monotonic()
    for member in members:
        member.join()
    settle(members, 0)
    return members, time.monotonic() - began


def rebalance(members: list[Member]) -> float:
    """The leader joins again, the others when they learn of it; seconds until all are settled."""
    before = members[0].generation
    began = time.monotonic()
    next(member for member in members if member.leads).join()
    settle(members, before)
    return time.monotonic() - began


def settle(members: list[Member], before: int) -> None:
    """Until all have an assignment of one generation after `before`."""
    settled = all_settled(members)

    def moved() -> bool:
        if settled() and members[0].generation > before:
            return all(member.waits is None for member in members)
        for member in members:
            if member.waits is not None:
                continue
            if (
                member.last_code is ErrorCode.UNKNOWN_MEMBER_ID
            ):  # its session ended: it was too slow
                member.member_id = ""
                member.join()
            elif member.last_code in _JOIN_AGAIN:
                member.join()
            elif member.assignment is not None:
                # A heartbeat is how a settled member learns that it is to join again.
                member.heartbeat()
        return False

    run(members, moved, f"{len(members)} members of {members[0].group}")


def wait_for_coordinator(address: tuple[str, int], group: str) -> None:
    """Ask for the group's coordinator until there is one, and until it has loaded the group."""
    deadline = time.monotonic() + DEADLINE_S
    asked = Writer(flexible=True)
    asked.int8(0)
    asked.array(1)
    asked.string(group)
    asked.tags()
    payload = struct.pack(">hhih", ApiKey.FIND_COORDINATOR, 4, 1, 1) + b"m\x00" + asked.getvalue()
    with socket.create_connection(address) as sock, sock.makefile("rb") as stream:
        while time.monotonic() < deadline:
            sock.sendall(_SIZE.pack(len(payload)) + payload)
            answer = Reader(stream.read(_SIZE.unpack(stream.read(4))[0])[9:], flexible=True)
            answer.array()
            answer.string()
            answer.int32()
            answer.string()
            answer.int32()
            if answer.int16() == ErrorCode.NONE:
                break
            time.sleep(0.05)
    member = Member(address, group, 60_000, 60_000)
    member.member_id = "stranger"
    while time.monotonic() < deadline:
        member.heartbeat()
        run([member], lambda: member.waits is None, "a heartbeat")
        if member.last_code is ErrorCode.UNKNOWN_MEMBER_ID:
            member.close()
            return
        time.sleep(0.05)
    raise AssertionError(f"no coordinator of {group}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Large groups, and many of them.")
    parser.add_argument("bootstrap")
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=10_000)
    arguments = parser.parse_args()
    host, port = arguments.bootstrap.rsplit(":", 1)
    address = (host, int(port))
    large = f"large-{os.getpid()}"  # members of an earlier run may still have their sessions
    wait_for_coordinator(address, large)
    members, seconds = form(address, large, arguments.members)
    print(f"{arguments.members} members come at once: settled after {seconds:.2f} s,"
          f" generation {members[0].generation}")  # fmt: skip
    times = sorted(rebalance(members) for _ in range(5))
    print(f"a rebalance of all: {times[0]:.3f} to {times[-1]:.3f} s")
    beats = []
    for _ in range(5):
        began = time.monotonic()
        for member in members:
            member.heartbeat()
        run(members, lambda: all(m.waits is None for m in members), "heartbeats")
        beats.append(time.monotonic() - began)
    print(f"a heartbeat of each: {min(beats) * 1e6 / len(members):.0f} us per heartbeat")
    for member in members:
        member.close()
    one = Member(address, "", 60_000, 60_000)
    began = time.monotonic()
    for number in range(arguments.groups):
        one.group, one.member_id = f"many-{os.getpid()}-{number}", ""
        one.join()
        run_one(one)
    seconds = time.monotonic() - began
    print(f"{arguments.groups} groups of one, one after the other: {seconds:.1f} s,"
          f" {seconds * 1e6 / arguments.groups:.0f} us each")  # fmt: skip


def run_one(member: Member) -> None:
    """Until the one member has its assignment."""
    while member.waits is not None:
        member.readable()
    if member.assignment is None:
        raise AssertionError(f"{member.group}: {member.last_code.name}")


if __name__ == "__main__":
    main()
