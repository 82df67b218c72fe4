"""The broker as a bystander sees it: the group's state and every committed offset, again and again.

One thread with a connection of its own. While the broker is away it tries again; the journal then
has a gap and nothing else. What it writes:

    <ns asked> offsets <partition:offset> ...     those that have changed since the last line
    <ns> state <state> <members>                  when either has changed
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from kbroker.types import ApiKey
from tests.parity import answers, requests

EVERY_S: Final = 0.1
TIMEOUT_S: Final = 10.0
CLASSIC_STATES: Final = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")


class Client:
    """One blocking connection. Any failure is an OSError."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._correlation_id = 0

    def ask(self, request: Any) -> Any:
        key, version = requests.key_and_version(request)
        self._correlation_id += 1
        head = requests.header(key, version, self._correlation_id, "chaos-watch")
        self._socket.sendall(requests.frame(head + requests.body_of(request)))
        (size,) = struct.unpack(">i", self._read(4))
        payload = self._read(size)
        return answers.decode(key, version, payload[4:])[0]

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionError("closed by the broker")
            data += more
        return data

    def close(self) -> None:
        self._socket.close()


class Seen(NamedTuple):
    """The committed offsets as one OffsetFetch showed them; -1 where there is none."""

    asked_ns: int
    offsets: dict[int, int]


class State(NamedTuple):
    ns: int
    state: str
    members: int


class Watch:
    """Runs from `start` to `stop`; `seen` and `states` are complete afterwards."""

    def __init__(
        self, bootstrap: Callable[[], str], group: str, topic: str, partitions: int
    ) -> None:
        self.seen: list[Seen] = []
        self.states: list[State] = []
        self.errors: dict[str, int] = {}
        self._bootstrap = bootstrap
        self._describe = requests.build(ApiKey.DESCRIBE_GROUPS, 5, groups=[group])
        wanted = [{"name": topic, "partition_indexes": list(range(partitions))}]
        self._fetch = requests.build(
            ApiKey.OFFSET_FETCH, 8, groups=[{"group_id": group, "topics": wanted}]
        )
        self._ends = requests.build(
            ApiKey.LIST_OFFSETS,
            7,
            replica_id=-1,
            topics=[
                {
                    "name": topic,
                    "partitions": [
                        {"partition_index": i, "current_leader_epoch": -1, "timestamp": -1}
                        for i in range(partitions)
                    ],
                }
            ],
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-watch")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def ends(self) -> dict[int, int]:
        """Each partition's end; the caller's thread, a connection of its own."""
        client = Client(self._bootstrap())
        try:
            (topic,) = client.ask(self._ends).topics
            return {p.partition_index: p.offset for p in topic.partitions}
        finally:
            client.close()

    def _run(self) -> None:
        client: Client | None = None
        while not self._over.wait(EVERY_S):
            try:
                client = client or Client(self._bootstrap())
                self._look(client)
            except OSError:
                if client is not None:
                    client.close()
                client = None
        if client is not None:
            client.close()

    def _look(self, client: Client) -> None:
        asked_ns = time.monotonic_ns()
        (group,) = client.ask(self._fetch).groups
        if group.error_code.value:
            self._count(f"OffsetFetch: {group.error_code.name}")
        elif group.topics:
            parts = group.topics[0].partitions
            offsets = {p.partition_index: p.committed_offset for p in parts}
            if not self.seen or self.seen[-1].offsets != offsets:
                self.seen.append(Seen(asked_ns, offsets))
        (described,) = client.ask(self._describe).groups
        if described.error_code.value:
            self._count(f"DescribeGroups: {described.error_code.name}")
            return
        now = State(time.monotonic_ns(), described.group_state, len(described.members))
        if not self.states or self.states[-1][1:] != now[1:]:
            self.states.append(now)

    def _count(self, what: str) -> None:
        self.errors[what] = self.errors.get(what, 0) + 1


def write(watch: Watch, path: Path) -> None:
    """The looks, to be read after a failure."""
    with open(path, "w", encoding="utf-8") as file:
        before: dict[int, int] = {}
        for asked_ns, offsets in watch.seen:
            changed = [f"{p}:{o}" for p, o in offsets.items() if before.get(p) != o]
            file.write(f"{asked_ns} offsets {' '.join(changed)}\n")
            before = offsets
        for ns, state, members in watch.states:
            file.write(f"{ns} state {state} {members}\n")
