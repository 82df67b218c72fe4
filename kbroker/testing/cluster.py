"""Several brokers and what they meet at, for tests of an application: no Java, nothing to install.

    with Cluster(3, topics={"orders": 3}) as c:
        producer = Producer({"bootstrap.servers": c.bootstrap, "acks": "all"})
        c.leader("orders", 0).kill9()         # another one takes over
        c.leader("orders", 1).pause()         # it is stopped, and does not know
        c.cut(c.leader("orders", 2))          # it runs, and reaches none of the others
        c.zookeeper.lose()                    # there are no elections

Each broker is a `Broker` in a process of its own, with its faults, clock and trace. They meet at a
ZooKeeper that the test's own process has in memory (kbroker/testing/zookeeper): it answers and
forgets as ZooKeeper does. Requests between brokers pass the test's process too (lines.py), so that
they can be cut off: this tests an application under faults, not the speed of a cluster.

What differs from brokers that people run, beside what differs for `Broker`: topics have as many
replicas as there are brokers, at most three; a session lasts two seconds, and so long may a
follower lag; a stop does not wait for leaders that have nowhere to go.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from kbroker.errors import ErrorCode, InvariantError, KafkaError, UserError
from kbroker.peer.client import Client
from kbroker.peer.messages import PartitionMetadata
from kbroker.testing.broker import Broker
from kbroker.testing.faults import INSPECTOR_CLIENT_ID
from kbroker.testing.inspection import WAIT_S, Inspected, Inspection, wait_until
from kbroker.testing.lines import HOST, Line, process_of
from kbroker.testing.loop_thread import LoopThread
from kbroker.testing.process import BrokerFailed, Process, log_tail
from kbroker.testing.zookeeper.server import ZooKeeperServer
from kbroker.types import TopicPartition

METADATA_TIMEOUT_MS: Final = 5_000
LOG_LINES_IN_A_NOTE: Final = 60
SESSION_MS: Final = 2_000
LAG_MS: Final = 2_000
REPLICAS_MAX: Final = 3
_NOT_THERE: Final = PartitionMetadata(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, (), (), ())
CLIENTS: Final = "CLIENTS"
BROKERS: Final = "BROKERS"


class ClusterBroker(Broker):
    """One of a cluster. `broker_id` is its id there; what else it can do is a Broker's."""

    def __init__(
        self, broker_id: int, overrides: Mapping[str, object], *, trace: bool = False
    ) -> None:
        super().__init__(overrides, trace=trace)
        self.broker_id = broker_id
        self.paused = False
        self._inner: tuple[Process, tuple[str, int]] | None = None  # of that process

    def command(self) -> list[str]:
        # A broker that comes back has the port that clients know.
        self.overrides["listeners"] = f"{CLIENTS}://{HOST}:{self.port},{BROKERS}://{HOST}:0"
        return super().command()

    def pause(self) -> None:
        """Stop the process where it is; it learns of nothing until `resume`."""
        self.signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        self.signal(signal.SIGCONT)
        self.paused = False

    def stop(self, *arguments: Any, **options: Any) -> int:
        if self.paused:
            self.resume()
        return super().stop(*arguments, **options)

    def _forget(self) -> None:
        super()._forget()
        self.paused = False

    @property
    def process_id(self) -> int | None:
        process = self._process
        return None if process is None else process.pid

    def finish(self) -> None:
        """Stop it in order; BrokerFailed where it does not, or has ended by itself before."""
        if self._process is None:
            return
        ended = not self.alive
        status = self.wait() if ended else self.stop()
        if ended or status not in self.clean_exit_statuses:
            how = "by itself" if ended else "after SIGTERM"
            raise BrokerFailed(
                f"broker {self.broker_id} ended {how} with exit status {status}",
                status,
                self.log_text(),
            )

    def metadata(self) -> Mapping[str, list[PartitionMetadata]]:
        """Every topic with its partitions, as this very broker tells it; KafkaError if it does not.

        By a connection of its own: a client that knows others may ask another.
        """
        with Client(
            self.bootstrap, client_id=INSPECTOR_CLIENT_ID, timeout_ms=METADATA_TIMEOUT_MS
        ) as client:
            found = client.metadata().topics.values()
        return {topic.name: sorted(topic.partitions) for topic in found}

    def partitions(self, topic: str) -> list[PartitionMetadata]:
        """Who leads and who is in sync, as this very broker tells it."""
        return self.metadata()[topic]

    def inner_address(self) -> tuple[str, int] | None:
        """Where the others reach it; None while it listens nowhere, or does not say."""
        process = self._process
        if process is None or self.paused:
            return None
        if self._inner is None or self._inner[0] is not process:
            try:
                bound = self._tell({"op": "bound"}).get(BROKERS)
            except (RuntimeError, InvariantError):
                return None  # it has not begun, or has ended
            if not bound:
                return None
            self._inner = (process, (bound[0][0], bound[0][1]))
        return self._inner[1]


class Cluster(Inspected):
    """See the head of this file. `brokers` are by their ids, from 1 on."""

    def __init__(
        self,
        size: int = 3,
        overrides: Mapping[str, object] | None = None,
        *,
        topics: Mapping[str, int] | None = None,
        racks: Sequence[str] | None = None,
        trace: bool = False,
    ) -> None:
        """`topics` by name and partitions; `overrides` are settings of every broker; `racks`: the
        `broker.rack` of each, from the first on."""
        if size < 1:
            raise ValueError(f"a cluster of {size} brokers")
        if racks is not None and len(racks) != size:
            raise ValueError(f"{len(racks)} racks for {size} brokers")
        self._racks = racks
        self._topics = dict(topics or {})
        self._thread = LoopThread()
        self.zookeeper: Final = ZooKeeperServer(self._thread)
        self._cuts: set[frozenset[int]] = set()
        self._to_zookeeper: dict[int, Line] = {}
        self._to_brokers: dict[int, Line] = {}
        self._inspecting = threading.RLock()
        self._inspection: Inspection | None = None
        self._inspected = ""  # the brokers that it knows
        self._settings = {**_defaults(size), **(overrides or {})}
        self._trace = trace
        self._ids = range(1, size + 1)
        self.brokers: dict[int, ClusterBroker] = {}

    # --- its life ---------------------------------------------------------------------------------

    def start(self) -> Self:
        """Returns when every broker takes requests and the topics have all their replicas."""
        if self.brokers:
            raise RuntimeError("this cluster was started before; make another")
        try:
            return self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> Self:
        self.zookeeper.start()
        self._thread.call(self._lay_lines)
        for each in self._ids:
            settings = {
                **self._settings,
                "node.id": each,
                "zookeeper.connect": f"{HOST}:{self._to_zookeeper[each].port}",
                "advertised.listeners": f"{BROKERS}://{HOST}:{self._to_brokers[each].port}",
            }
            if self._racks is not None:
                settings["broker.rack"] = self._racks[each - 1]
            self.brokers[each] = ClusterBroker(each, settings, trace=self._trace)
        _all_at_once(broker.start for broker in self.brokers.values())
        if self._topics:
            self.create_topics(self._topics)
            self.wait_in_sync(*self._topics)
        return self

    def close(self) -> None:
        """End every process, whatever its state. May be called again."""
        with contextlib.ExitStack() as last_first:
            last_first.callback(self._thread.close)
            last_first.callback(self.zookeeper.close)
            last_first.callback(self._close_lines)
            for broker in self.brokers.values():
                last_first.callback(broker.close)
            last_first.callback(self._close_inspection)

    def _close_lines(self) -> None:
        lines = [*self._to_zookeeper.values(), *self._to_brokers.values()]
        self._to_zookeeper.clear()
        self._to_brokers.clear()

        async def close() -> None:
            for line in lines:
                await line.close()

        if lines:
            self._thread.call(close)

    def _close_inspection(self) -> None:
        with self._inspecting:
            if self._inspection is not None:
                self._inspection.close()
            self._inspection, self._inspected = None, ""

    def heal(self) -> None:
        """Whatever was done to it ends: no cuts, no rules, every broker runs, registered with the
        others, and every replica is in sync."""
        self.mend()
        self.zookeeper.come_back()
        for broker in self.brokers.values():
            if broker.paused:
                broker.resume()
        _all_at_once(broker.start for broker in self.brokers.values() if not broker.alive)
        for broker in self.brokers.values():
            broker.clear()
        wait_until(self._all_registered, "every broker is registered")
        self.wait_in_sync()

    def _all_registered(self) -> bool:
        held = self.zookeeper.is_held
        return held("/controller") and all(held(f"/brokers/ids/{each}") for each in self.brokers)

    def stop(self) -> None:
        """Let every broker stop in order that was not killed; BrokerFailed where one does not, or
        has ended by itself."""
        self.mend()
        self.zookeeper.come_back()
        _all_at_once(broker.finish for broker in self.brokers.values())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.stop()
            else:
                for broker in self.brokers.values():
                    tail = log_tail(broker.log_text(), LOG_LINES_IN_A_NOTE)
                    error.add_note(f"--- end of the log of broker {broker.broker_id} ---\n{tail}")
        finally:
            self.close()

    # --- who is who -------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """host:port of every broker, with commas, for a client's bootstrap.servers."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def _create_topics(self, topics: Mapping[str, int], configs: Mapping[str, str]) -> None:
        super()._create_topics(topics, configs)
        for broker in self._reached():
            wait_until(
                partial(self._knows, broker, topics.keys()), f"broker {broker.broker_id} knows them"
            )

    def _knows(self, broker: ClusterBroker, topics: Set[str]) -> bool:
        seen = self._seen_by(broker)
        return seen is not None and topics <= seen.keys()

    def leader(self, topic: str, partition: int) -> ClusterBroker:
        """The leader of a partition, once it has one that lives, as brokers with the newest epoch
        have it."""

        def found() -> ClusterBroker | None:
            views = [self._seen_by(broker) for broker in self._notified()]
            seen = [view[topic][partition] for view in views if view is not None and topic in view]
            newest = max(seen, key=lambda each: each.leader_epoch, default=None)
            broker = None if newest is None else self.brokers.get(newest.leader)
            return broker if broker is not None and broker.alive else None

        return wait_until(found, f"a leader of {topic}-{partition}")

    def move_leader(self, topic: str, partition: int, to: ClusterBroker) -> None:
        """Have this broker, which is in sync, lead the partition; it is the preferred one then.

        Returns when all brokers that are notified say so, the former leader among them.
        """
        name = TopicPartition(topic, partition)
        self._look().have_lead(name, to.broker_id)

        def says_so(broker: ClusterBroker) -> bool:
            view = self._seen_by(broker)
            found = None if view is None else view.get(topic)
            return found is not None and found[partition].leader == to.broker_id

        def leads() -> bool:
            return self.leader(topic, partition) is to and all(map(says_so, self._reached()))

        wait_until(leads, f"{to.broker_id} leads {name}")

    def controller(self) -> ClusterBroker:
        """The controller, once there is one."""

        def found() -> ClusterBroker | None:
            data = self.zookeeper.data_of("/controller")
            return None if data is None else self.brokers.get(int(json.loads(data)["brokerid"]))

        return wait_until(found, "a controller")

    def wait_in_sync(self, *topics: str, timeout_s: float = WAIT_S) -> None:
        """Until every partition of these topics, or of all, has a leader and every replica in sync,
        and every broker that is not paused says so."""

        def in_sync() -> bool:
            views = [self._seen_by(broker) for broker in self._notified()]
            if not views or views[0] is None or any(view != views[0] for view in views):
                return False
            first = views[0]
            return all(
                each.leader >= 0 and len(each.isr) == len(each.replicas)
                for name in topics or first
                for each in first.get(name, (_NOT_THERE,))
            )

        wait_until(in_sync, "every replica is in sync", timeout_s)

    def _notified(self) -> list[ClusterBroker]:
        """Who can answer."""
        return [each for each in self.brokers.values() if each.alive and not each.paused]

    def _reached(self) -> list[ClusterBroker]:
        """The brokers that can answer and are notified of decisions."""
        cut = {broker_id for pair in self._cuts for broker_id in pair}
        return [each for each in self._notified() if each.broker_id not in cut]

    def _seen_by(self, broker: ClusterBroker) -> Mapping[str, list[PartitionMetadata]] | None:
        try:
            return broker.metadata()
        except (KafkaError, UserError):
            return None  # it ends, or begins

    def _look(self) -> Inspection:
        """A client of those that are not cut off."""
        reached = ",".join(each.bootstrap for each in self._reached() or self._notified())
        if self._inspection is None or reached != self._inspected:
            self._close_inspection()
            self._inspection, self._inspected = Inspection(reached or self.bootstrap), reached
        return self._inspection

    # --- what may happen to it --------------------------------------------------------------------

    def kill(self, broker_id: int) -> None:
        """End a broker's process with no chance to clean up."""
        self.brokers[broker_id].kill9()

    def restart(self, broker_id: int) -> None:
        """Stop a broker in order, if it runs, and start it on the same port and data."""
        self.brokers[broker_id].restart()

    # --- lines ------------------------------------------------------------------------------------

    def cut(self, broker: ClusterBroker, *others: ClusterBroker, zookeeper: bool = True) -> None:
        """End what is between a broker and others, without others all of them, and ZooKeeper
        unless `zookeeper=False`. Nothing new passes until `mend`; clients reach every broker.
        """
        if not others:
            others = tuple(each for each in self.brokers.values() if each is not broker)
        pairs = {frozenset((broker.broker_id, each.broker_id)) for each in others}
        lines = [*self._to_brokers.values()]

        def cut() -> None:
            self._cuts |= pairs
            if zookeeper:
                self._cuts.add(frozenset((broker.broker_id,)))
                lines.append(self._to_zookeeper[broker.broker_id])
            for line in lines:
                line.cut()

        self._thread.call(cut)

    def cut_from_zookeeper(self, broker: ClusterBroker) -> None:
        """The broker reaches the others, and ZooKeeper no more."""

        def cut() -> None:
            self._cuts.add(frozenset((broker.broker_id,)))
            self._to_zookeeper[broker.broker_id].cut()

        self._thread.call(cut)

    def mend(self) -> None:
        """Every broker reaches every other."""
        self._thread.call(self._cuts.clear)

    async def _lay_lines(self) -> None:
        for each in self._ids:
            self._to_zookeeper[each] = Line(self._zookeeper_at, self._may_meet(each))
            self._to_brokers[each] = Line(self._broker_at(each), self._may_come_to(each))
        for line in (*self._to_zookeeper.values(), *self._to_brokers.values()):
            await line.listen()

    async def _zookeeper_at(self) -> tuple[str, int]:
        return HOST, self.zookeeper.port

    def _broker_at(self, broker_id: int) -> Callable[[], Any]:
        async def found() -> tuple[str, int] | None:
            broker = self.brokers[broker_id]
            return await asyncio.to_thread(broker.inner_address)

        return found

    def _may_meet(self, broker_id: int) -> Callable[[int], bool]:
        return lambda port: frozenset((broker_id,)) not in self._cuts

    def _may_come_to(self, broker_id: int) -> Callable[[int], bool]:
        def may(port: int) -> bool:
            if not self._cuts:
                return True
            source = self._source_of(port, self._to_brokers[broker_id].port)
            return source is None or frozenset((source, broker_id)) not in self._cuts

        return may

    def _source_of(self, port: int, line_port: int) -> int | None:
        """Which broker a connection comes from; None: the test, or one that has gone again."""
        running = [(each.process_id, each.broker_id) for each in self.brokers.values()]
        pids = {pid: broker_id for pid, broker_id in running if pid is not None}
        pid = process_of(port, line_port, pids)
        return None if pid is None else pids[pid]


def _defaults(size: int) -> dict[str, object]:
    replicas = min(size, REPLICAS_MAX)
    return {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "zookeeper.session.timeout.ms": SESSION_MS,
        "replica.lag.time.max.ms": LAG_MS,
        "listener.security.protocol.map": f"{CLIENTS}:PLAINTEXT,{BROKERS}:PLAINTEXT",
        "inter.broker.listener.name": BROKERS,
        "admin.listeners": f"http://{HOST}:0",
        "controlled.shutdown.max.retries": 1,
    }


def _all_at_once(calls: Iterable[Callable[[], Any]]) -> None:
    """Raises the first that failed, when all have come to an end."""
    wanted = list(calls)
    if not wanted:
        return
    with ThreadPoolExecutor(len(wanted)) as pool:
        for started in [pool.submit(call) for call in wanted]:
            started.result()
