"""Members of consumer groups (KIP-848) and their heartbeats, byte by byte.

A member that has its part says nothing new, so its heartbeat and the answer are the same bytes each
time: what is repeated in a block, and what every answer must be.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from perf.client import READY_RETRY_S, READY_WAIT_S, Client, ClientError
from perf.members import FIND_COORDINATOR, PASSING
from perf.wire import Reader, Writer, frame, request_header

CONSUMER_GROUP_HEARTBEAT: Final = 68
VERSION: Final = 1
REBALANCE_MS: Final = 300_000
ID_BYTES: Final = 16
CORRELATION_BYTES: Final = 4

Owned = dict[bytes, list[int]]  # partitions by topic id


class Member:
    """One member, which keeps to the protocol."""

    def __init__(self, group: str, member_id: str, topic: str) -> None:
        self.group, self.member_id = group, member_id
        self._topic = topic
        self.epoch = 0
        self.owned: Owned = {}

    def step(self, client: Client) -> bool:
        """One heartbeat with all that it owns; whether it changed something for the member."""
        body = self._body(self._topic if self.epoch == 0 else None, self.owned)
        before = self.epoch, self.owned
        self._take(client.ask(CONSUMER_GROUP_HEARTBEAT, VERSION, body))
        return before != (self.epoch, self.owned)

    def _body(self, topic: str | None, owned: Owned | None) -> bytes:
        w = Writer(flexible=True).string(self.group).string(self.member_id).put("i", self.epoch)
        w.string(None).string(None).put("i", -1 if topic is None else REBALANCE_MS)
        if topic is None:
            w.uvarint(0)
        else:
            w.count(1).string(topic)
        w.string(None).string(None)  # an expression, an assignor
        if owned is None:
            w.uvarint(0)
        else:
            w.count(len(owned))
            for topic_id, indexes in owned.items():
                w.raw(topic_id).count(len(indexes)).put(f"{len(indexes)}i", *indexes).tags()
        return bytes(w.tags().data)

    def _take(self, r: Reader) -> None:
        r.get("i")
        code = r.get("h")
        r.string()
        if code:
            raise ClientError(f"a heartbeat of {self.member_id} in {self.group}", code)
        r.string()
        self.epoch = r.get("i")
        r.get("i")
        if r.get("b") < 0:
            return
        owned: Owned = {}
        for _ in range(r.count()):
            topic_id = r.take(ID_BYTES)
            owned[topic_id] = sorted(r.get("i") for _ in range(r.count()))
            r.tags()
        self.owned = owned

    def heartbeat(self) -> bytes:
        """The frame of one that says nothing new."""
        header = request_header(CONSUMER_GROUP_HEARTBEAT, VERSION)
        return frame(header, self._body(None, None))

    def check(self, answer: bytes) -> None:
        """ClientError unless it is the answer of "as before". `answer`: without its size."""
        r = Reader(answer[CORRELATION_BYTES:], flexible=True)
        r.tags()
        before = self.epoch, self.owned
        self._take(r)
        if before != (self.epoch, self.owned):
            raise ClientError(f"{self.member_id} of {self.group} has changed", 0)


def await_coordinator(client: Client, groups: Sequence[str]) -> None:
    """Until each group has one that is there."""
    give_up = time.monotonic() + READY_WAIT_S
    for group in groups:
        while True:
            body = bytes(Writer().string(group).data)
            code = int(client.ask(FIND_COORDINATOR, 0, body).get("h"))
            if not code:
                break
            if code not in PASSING or time.monotonic() > give_up:
                raise ClientError(f"the coordinator of {group}", code)
            time.sleep(READY_RETRY_S)


def settle(client: Client, members: Sequence[Member], give_up_s: float) -> None:
    """Members of one group join, and send heartbeats until nothing changes for a whole round that
    begins after each has a part, all in one epoch."""
    give_up = time.monotonic() + give_up_s
    while True:
        try:
            changed = [member.step(client) for member in members]
        except ClientError as error:
            if error.code not in PASSING or time.monotonic() > give_up:
                raise
            time.sleep(READY_RETRY_S)  # its coordinator is known, and not there yet
            continue
        alike = len({member.epoch for member in members}) == 1
        if not any(changed) and alike and all(member.owned for member in members):
            return
        if time.monotonic() > give_up:
            raise ClientError(f"group {members[0].group} does not settle", 0)
