"""Three brokers as people run them, each a `kbroker start` of its own, and what they meet at.

`isolated` brokers have a network and a small disk each, which only root can make; the others share
loopback. Every broker's wall clock is its own where there is a C compiler. What a broker says of
the cluster is asked over a connection of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from kbroker.errors import ErrorCode, KafkaError, UserError
from kbroker.peer.client import Client
from kbroker.peer.messages import NewTopic, PartitionMetadata
from kbroker.testing import keeper
from kbroker.testing.control import ControlClient
from kbroker.testing.plain import PlainBroker
from kbroker.testing.process import Process
from kbroker.types import TopicPartition
from lab.namespaces import Namespace
from lab.ports import free_port
from tests.cluster import clock
from tests.cluster.clock import WallClock
from tests.cluster.meeting import Meeting
from tests.cluster.namespaces import Disk
from tests.cluster.router import SUBNET, ZOOKEEPER, Network

NODES: Final = (1, 2, 3)
THREE: Final = "three"  # as many replicas, two of which must have a record
TWO: Final = "two"  # as many replicas, one of which must have it
PARTITIONS: Final = {THREE: 3, TWO: 2}
PLACES: Final = tuple(
    TopicPartition(topic, index) for topic, count in PARTITIONS.items() for index in range(count)
)
SESSION_MS: Final = 3_000
LAG_MS: Final = 2_000
ROLL_MS: Final = 5_000  # files are opened and segments synced all the time
FLUSH_MESSAGES: Final = 20  # of TWO, which syncs before it answers
DISK_MIB: Final = 640
TIMEOUT_S: Final = 120.0
POLL_S: Final = 0.02
ASK_TIMEOUT_MS: Final = 2_000
PREFIX: Final = "kbroker-cluster-"

SETTINGS: Final[Mapping[str, object]] = {
    "zookeeper.session.timeout.ms": SESSION_MS,
    "replica.lag.time.max.ms": LAG_MS,
    "default.replication.factor": len(NODES),
    "offsets.topic.replication.factor": len(NODES),
    "offsets.topic.num.partitions": 3,
    "min.insync.replicas": 2,
    "auto.create.topics.enable": False,
    "group.initial.rebalance.delay.ms": 0,
    "log.segment.bytes": 1 << 20,
    "log.roll.ms": ROLL_MS,
    "log.segment.delete.delay.ms": 1_000,
    "controlled.shutdown.retry.backoff.ms": 1_000,
}
# Of topics whose records are to stay, whatever a clock says.
KEEP: Final = {
    "retention.ms": "-1",
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "message.timestamp.before.max.ms": str(2**63 - 1),
}

Partitions = Mapping[TopicPartition, PartitionMetadata]


class ClusterBroker(PlainBroker):
    """One of the cluster; whether it should run is the run's affair, `alive` whether it does."""

    start_timeout_s = TIMEOUT_S

    def __init__(
        self,
        node: int,
        settings: Mapping[str, object],
        host: str,
        data_dir: Path,
        env: Mapping[str, str],
        namespace: Namespace | None,
    ) -> None:
        port = free_port()
        listeners = {"node.id": node, "listeners": f"PLAINTEXT://{host}:{port}"}
        super().__init__({**settings, **listeners}, data_dir, port, env=env)
        self.node = node
        self.address = f"{host}:{port}"
        self.paused = False
        self._namespace = namespace
        self._control: ControlClient | None = None

    @property
    def control_path(self) -> Path:
        return self.scratch_dir / "control"

    def program(self) -> list[str]:
        return ["-m", "kbroker.testing.hanging_files", str(self.control_path), "start"]

    def prepare(self) -> None:
        super().prepare()
        self.control_path.unlink(missing_ok=True)

    def hang(self, path_part: str, operations: Sequence[str]) -> None:
        """These on files of its logs with this in their paths hang, until `let_files_go`."""
        if self._control is None:
            self._control = ControlClient(self.control_path)
        self._control({"op": "hang", "path_part": path_part, "operations": operations})

    def hung(self) -> int:
        """How many operations hang now."""
        return 0 if self._control is None else int(self._control({"op": "hung"}))

    def let_files_go(self) -> int:
        """How many operations hung."""
        return 0 if self._control is None else int(self._control({"op": "let_files_go"}))

    def launch(self) -> Process:
        if self._namespace is None:
            return super().launch()
        with self._namespace.entered():
            return super().launch()

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        if self.paused:
            self.signal(signal.SIGCONT)
            self.paused = False

    def _forget(self) -> None:
        super()._forget()
        self.paused = False
        if self._control is not None:
            self._control.close()
            self._control = None


class Cluster:
    """See the head of this file."""

    def __init__(
        self, folder: Path, meeting: Meeting, *, isolated: bool, settings: Mapping[str, object]
    ) -> None:
        self.meeting = meeting
        self.network: Network | None = None
        self.disks: dict[int, Disk] = {}
        self.clocks: dict[int, WallClock] = {}
        self.brokers: dict[int, ClusterBroker] = {}
        self._folder = folder
        self._ends = ExitStack()
        with ExitStack() as failed:
            failed.callback(self.close)
            if isolated:
                self.network = Network(NODES)
                self._ends.callback(self.network.close)
            for node in NODES:
                self._add(node, settings)
            all_at_once(broker.start for broker in self.brokers.values())
            failed.pop_all()

    def _add(self, node: int, settings: Mapping[str, object]) -> None:
        home = self._folder / str(node)
        home.mkdir()
        data_dir = home / "data"
        host, namespace, zookeeper = "127.0.0.1", None, "127.0.0.1"
        if self.network is not None:
            namespace = self.network.namespaces[node]
            host, zookeeper = f"{SUBNET}.{node}", f"{SUBNET}.{ZOOKEEPER}"
            self.disks[node] = Disk(home / "disk", DISK_MIB)
            data_dir = home / "disk" / "data"
            self._ends.callback(self.disks[node].close)
        if clock.is_possible():
            self.clocks[node] = WallClock(home)
        env = self.clocks[node].environment() if node in self.clocks else {}
        connect = {"zookeeper.connect": self.meeting.address(zookeeper)}
        broker = ClusterBroker(
            node, {**SETTINGS, **settings, **connect}, host, data_dir, env, namespace
        )
        self.brokers[node] = broker
        self._ends.callback(broker.close)

    def close(self) -> None:
        self._ends.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def create_topics(self) -> None:
        """Each of THREE has another preferred leader; TWO is where its partitions' numbers say."""
        wait("they know each other", self._know_each_other)
        wanted = [NewTopic(THREE, PARTITIONS[THREE], replication_factor=3, configs={**KEEP})]
        two = {**KEEP, "min.insync.replicas": "1", "flush.messages": str(FLUSH_MESSAGES)}
        wanted.append(NewTopic(TWO, PARTITIONS[TWO], replication_factor=2, configs=two))
        with self.client() as client:
            for result in client.create_topics(wanted):
                if result.error is not ErrorCode.NONE:
                    raise KafkaError(result.error, result.message or "")
        self.wait_in_sync()

    @contextlib.contextmanager
    def client(self) -> Iterator[Client]:
        """Of those that can answer."""
        reached = [each.address for each in self.brokers.values() if each.alive and not each.paused]
        with Client(",".join(reached), timeout_ms=10_000) as made:
            yield made

    def admin(self, what: str, ask: Callable[[Client], Any]) -> Any:
        """Asked again until a broker has answered it; a broker may be on its way."""

        def answered() -> tuple[Any] | None:
            try:
                with self.client() as client:
                    return (ask(client),)
            except (KafkaError, UserError, OSError):
                return None

        return wait(what, answered)[0]

    # --- what brokers say of it -------------------------------------------------------------------

    def seen_by(self, node: int) -> Partitions | None:
        """Every partition, as this very broker tells it; None: it does not."""
        broker = self.brokers[node]
        if not broker.alive or broker.paused:
            return None
        try:
            with Client(broker.address, timeout_ms=ASK_TIMEOUT_MS) as client:
                topics = client.metadata().topics.values()
        except (KafkaError, UserError, OSError):
            return None
        return {
            TopicPartition(topic.name, each.index): each
            for topic in topics
            for each in topic.partitions
        }

    def _know_each_other(self) -> bool:
        try:
            with self.client() as client:
                return len(client.metadata().brokers) == len(NODES)
        except (KafkaError, UserError, OSError):
            return False

    def leader(self, place: TopicPartition) -> int | None:
        """As those tell it who know the newest epoch."""
        seen_by_each = [
            seen[place] for node in NODES if (seen := self.seen_by(node)) and place in seen
        ]
        newest = max(seen_by_each, key=lambda each: each.leader_epoch, default=None)
        return newest.leader if newest is not None and newest.leader in self.brokers else None

    def controller(self) -> int | None:
        data = self.meeting.data("/controller")
        node = None if data is None else int(json.loads(data)["brokerid"])
        return node if node in self.brokers else None

    def out_of_sync(self) -> str:
        """What is not as it should be, in a few words; nothing: every broker runs, says the same
        as the others and has all partitions led and every replica in sync."""
        views = {node: self.seen_by(node) for node in NODES}
        silent = [node for node, seen in views.items() if seen is None]
        if silent:
            return f"brokers {silent} say nothing"
        seen_views = [seen for seen in views.values() if seen is not None]
        if any(seen != seen_views[0] for seen in seen_views):
            return "brokers say different things" + _difference(seen_views)
        wrong = [
            f"{place} leader {each.leader} in sync {each.isr} of {each.replicas}"
            for place, each in sorted(seen_views[0].items())
            if each.leader < 0 or {*each.isr} != {*each.replicas}
        ]
        return "; ".join(wrong[:3])

    def wait_in_sync(self, timeout_s: float = TIMEOUT_S) -> float:
        """Gives the seconds that it took; TimeoutError says what it waited for."""
        began = time.monotonic()
        while found := self.out_of_sync():
            if time.monotonic() - began > timeout_s:
                raise TimeoutError(f"not in sync in {timeout_s:.0f} s: {found}")
            time.sleep(POLL_S)
        return time.monotonic() - began

    def keep_logs(self, folder: Path) -> None:
        """The brokers' logs, for the study of a violation."""
        folder.mkdir(parents=True, exist_ok=True)
        for node, broker in self.brokers.items():
            if broker.log_path.exists():
                shutil.copy(broker.log_path, folder / f"broker-{node}.log")


def _difference(seen_views: list[Partitions]) -> str:
    for place in sorted({place for seen in seen_views for place in seen}):
        seen_by_each = [seen.get(place) for seen in seen_views]
        if any(each != seen_by_each[0] for each in seen_by_each):
            states = [
                "nothing" if each is None else f"epoch {each.leader_epoch} isr {each.isr}"
                for each in seen_by_each
            ]
            return f" of {place}: {' | '.join(states)}"
    return ""


def wait(what: str, holds: Callable[[], Any], timeout_s: float = TIMEOUT_S) -> Any:
    """What it gave when it was true."""
    until = time.monotonic() + timeout_s
    while not (found := holds()):
        if time.monotonic() > until:
            raise TimeoutError(f"not in {timeout_s:.0f} s: {what}")
        time.sleep(POLL_S)
    return found


def all_at_once(calls: Iterable[Callable[[], Any]]) -> None:
    """Raises the first that failed, when all have come to an end."""
    wanted = list(calls)
    with ThreadPoolExecutor(max(len(wanted), 1)) as pool:
        for started in [pool.submit(call) for call in wanted]:
            started.result()


@contextlib.contextmanager
def cluster(
    meeting: Meeting, *, isolated: bool, settings: Mapping[str, object] | None = None
) -> Iterator[Cluster]:
    """Runs while the block does; nothing of it stays."""
    keeper.sweep(PREFIX)  # what a run that was killed has left
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    owner = keeper.own(folder)
    try:
        made = Cluster(folder, meeting, isolated=isolated, settings=settings or {})
        try:
            yield made
        finally:
            made.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(owner)
