"""The requests that are walked, each warm: sent WARM times before, then TIMES times recorded.

One broker, and for acks=-1 a leader with a follower at a ZooKeeper (which needs Java). A request is
recorded from before it is sent until its answer is there and nothing more runs because of it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from perf import batch, groups, members, requests
from perf.brokers.base import Broker, BrokerError
from perf.brokers.kbroker import ROOT, KbrokerBroker
from perf.cells import PLAIN_FETCH, PLAIN_PRODUCE
from perf.client import LATEST, Client
from perf.cluster.brokers import KbrokerCluster
from perf.requests import CREATE_TOPICS, FETCH, Topic
from perf.spec import Partition
from perf.transactions.driver import ask, connected
from perf.transactions.producer import TV1, Producer, await_coordinator, values
from perf.walk.trace import Call, Trace
from perf.walk.walk import Walk, walk_of
from perf.wire import Writer, frame, read_exactly, request_header

WARM, TIMES = 50, 15
RECORD_BYTES: Final = 100
WAITS_MS: Final = 60
LEADER, FOLLOWER = 1, 2

Say = Callable[[str], None]
Frames = Iterator[bytes]


class Kind(NamedTuple):
    """A kind of request: `frames` are made for a topic that holds a record."""

    key: str
    title: str
    frames: Callable[[Client, Topic], Frames]


def produces(acks: int) -> Callable[[Client, Topic], Frames]:
    def frames(_client: Client, topic: Topic) -> Frames:
        body = batch.of_records(RECORD_BYTES, timestamp_ms=time.time_ns() // 1_000_000)
        one = requests.produce(PLAIN_PRODUCE, topic, [(Partition(0), body)], acks=acks)
        while True:
            yield one.frame

    return frames


def _fetch(from_end: bool) -> Callable[[Client, Topic], Frames]:
    def frames(client: Client, topic: Topic) -> Frames:
        while True:
            offset = client.offsets(topic, LATEST)[0] if from_end else 0
            w = Writer().put("iiiib", -1, WAITS_MS, 1, 1 << 20, 0).count(1).string(topic.name)
            w.count(1).put("iqi", 0, offset, 16 << 10)
            yield frame(request_header(FETCH, PLAIN_FETCH), bytes(w.data))

    return frames


def _commit(client: Client, topic: Topic) -> Frames:
    member = members.join(client, f"{topic.name}-commits")
    while True:
        yield members.commit(member, topic, 0).frame


def _first_commit(_client: Client, topic: Topic) -> Frames:
    """Each for a group that does not exist yet, and not from a member."""
    for number in count():
        w = Writer().string(f"{topic.name}-first-{number}").put("i", -1).string("").count(1)
        w.string(topic.name).count(1).put("iqi", 0, 1, -1).string("")
        header = request_header(groups.OFFSET_COMMIT, groups.COMMIT_VERSION)
        yield frame(header, bytes(w.data))


def _heartbeat(client: Client, topic: Topic) -> Frames:
    member = members.join(client, f"{topic.name}-beats")
    while True:
        yield members.heartbeat(member).frame


def _create_topics(_client: Client, topic: Topic) -> Frames:
    for number in count():
        w = Writer().count(1).string(f"{topic.name}-{number}").put("ih", 1, 1).count(0).count(0)
        w.put("i?", 30_000, False)
        yield frame(request_header(CREATE_TOPICS, 4), bytes(w.data))


def _producer(client: Client, topic: Topic) -> Producer:
    await_coordinator(client, topic.name)
    return Producer(client, topic.name, TV1, topic, values(topic.partitions, RECORD_BYTES))


def _transactional_produce(client: Client, topic: Topic) -> Frames:
    """Of one transaction that stays open."""
    producer = _producer(client, topic)
    with connected(client.host, client.port) as connection:
        ask(connection, producer.begun())
    while True:
        yield producer.batch()


def _end_transaction(client: Client, topic: Topic) -> Frames:
    """Each commits a record."""
    producer = _producer(client, topic)
    with connected(client.host, client.port) as connection:
        while True:
            ask(connection, producer.begun())
            ask(connection, producer.written())
            yield next(producer.ended())


ALONE: Final = (
    Kind("produce", "Produce, acks=1", produces(1)),
    Kind("fetch", "Fetch of records that are there", _fetch(from_end=False)),
    Kind("fetch-waits", f"Fetch that waits {WAITS_MS} ms for nothing", _fetch(from_end=True)),
    Kind("commit", "OffsetCommit of a member", _commit),
    Kind("first-commit", "OffsetCommit, the first of a group", _first_commit),
    Kind("heartbeat", "Heartbeat", _heartbeat),
    Kind("txn-produce", "Produce in a transaction, acks=-1", _transactional_produce),
    Kind("end-txn", "EndTxn that commits in one partition", _end_transaction),
    Kind("create-topics", "CreateTopics", _create_topics),
)
REPLICATED: Final = Kind("produce-all", "Produce, acks=-1, a follower; at the leader", produces(-1))
AT_FOLLOWER: Final = ("follower", "The same at the follower")
KEYS: Final = (*(kind.key for kind in ALONE), REPLICATED.key, AT_FOLLOWER[0])


class Line:
    """One connection, one request at a time."""

    def __init__(self, broker: Broker) -> None:
        self._socket = socket.create_connection((broker.host, broker.port), 10)
        self._socket.settimeout(10)

    def ask(self, request: bytes) -> None:
        self._socket.sendall(request)
        read_exactly(self._socket, int.from_bytes(read_exactly(self._socket, 4), "big"))

    def close(self) -> None:
        self._socket.close()


class Bench:
    """Traced brokers. `copy`: the sources that they run, `library`: what is preloaded."""

    def __init__(self, root: Path, copy: Path, library: Path, say: Say, times: int = TIMES) -> None:
        self._root, self._copy, self._library, self._say = root, copy, library, say
        self._times = times
        self._exit = ExitStack()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def alone(self, kinds: list[Kind]) -> list[Walk]:
        """On one broker that is by itself."""
        if not kinds:
            return []
        broker = KbrokerBroker(self._root / "alone", checkout=self._copy)
        trace = self._traced(broker)
        self._exit.callback(broker.discard)
        broker.start()
        with broker.client() as client:
            return [
                self._walk(kind, broker, client, lambda act: [trace.record(act, broker.pid)])[0]
                for kind in kinds
            ]

    def replicated(self) -> list[Walk]:
        """At a leader, and at its follower meanwhile."""
        cluster = KbrokerCluster(self._root / "cluster", 2, checkout=self._copy)
        leader, follower = (cluster.nodes[node] for node in (LEADER, FOLLOWER))
        at_leader, at_follower = self._traced(leader), self._traced(follower)
        self._exit.enter_context(cluster)

        def record(act: Callable[[], object]) -> list[list[Call]]:
            found: list[list[Call]] = []
            of_leader = at_leader.record(
                lambda: found.append(at_follower.record(act, follower.pid)), leader.pid
            )
            return [of_leader, *found]

        with cluster.client(LEADER) as client:
            return self._walk(REPLICATED, leader, client, record, (LEADER, FOLLOWER), AT_FOLLOWER)

    def _traced(self, broker: Broker) -> Trace:
        """What it calls from its start on."""
        if not isinstance(broker, KbrokerBroker):
            raise BrokerError(f"{broker.name} is not traced")
        trace = self._exit.enter_context(Trace(broker.directory.with_suffix(".trace")))
        broker.program = ("-m", "perf.walk.traced")
        broker.variables = trace.variables(self._copy, self._library)
        broker.variables["PYTHONPATH"] = f"{self._copy}:{ROOT}"
        return trace

    def _walk(
        self,
        kind: Kind,
        broker: Broker,
        client: Client,
        record: Callable[[Callable[[], object]], list[list[Call]]],
        replicas: tuple[int, ...] = (),
        other: tuple[str, str] | None = None,
    ) -> list[Walk]:
        topic = client.create_topic(f"walk-{kind.key}", 1, replicas=replicas)
        line = Line(broker)
        try:
            line.ask(next(produces(1)(client, topic)))
            frames = kind.frames(client, topic)
            for _ in range(WARM if kind is not ALONE[-1] else 3):
                line.ask(next(frames))
            recorded = []
            for _ in range(self._times):
                recorded.append(record(partial(line.ask, next(frames))))
        finally:
            line.close()
        names = [(kind.key, kind.title), *([other] if other else [])]
        walks = [
            walk_of(key, title, [each[at] for each in recorded])
            for at, (key, title) in enumerate(names)
        ]
        for walk in walks:
            self._say(f"{walk.title}: {len(walk.units)} units, {walk.steps} steps")
        return walks
