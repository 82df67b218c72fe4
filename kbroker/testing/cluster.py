"""Several brokers and what they meet at, for tests of an application: no Java, nothing to install.

    with Cluster(3, topics={"orders": 3}) as c:
        producer = Producer({"bootstrap.servers": c.bootstrap, "acks": "all"})
        c.leader("orders", 0).kill9()         # another one takes over
        c.leader("orders", 1).pause()         # it stands still, and does not know
        c.cut(c.leader("orders", 2))          # it runs, and reaches none of the others
        c.zookeeper.lose()                    # nobody elects anything

Each broker is a `Broker` in a process of its own, with its faults, clock and trace. They meet at a
ZooKeeper that the test's own process has in memory (kbroker/testing/zookeeper): it says and forgets
what ZooKeeper does. What brokers say to each other passes the test's process too (lines.py), which
is how they are cut off: this is for what an application must bear, not for how fast a cluster is.

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
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from kbroker.peer.messages import PartitionMetadata
from kbroker.testing.broker import Broker
from kbroker.testing.inspection import WAIT_S, Inspected, Inspection, wait_until
from kbroker.testing.lines import HOST, Line, process_of
from kbroker.testing.loop_thread import LoopThread
from kbroker.testing.zookeeper.server import ZooKeeperServer

SESSION_MS: Final = 2_000
LAG_MS: Final = 2_000
REPLICAS_MAX: Final = 3
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
        self._inner: tuple[str, int] | None = None

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
        self._inner = None

    def knows(self, *topics: str) -> bool:
        """Whether it has heard of these topics."""
        return self.topics().keys() >= {*topics}

    def partitions(self, *topics: str) -> list[PartitionMetadata]:
        """Who leads and who is in sync, as this very broker tells it."""
        with self._inspecting:
            return self._look().partitions(*topics)

    def inner_address(self) -> tuple[str, int] | None:
        """Where the others reach it; None while it listens nowhere."""
        if self._inner is None:
            try:
                bound = self._tell({"op": "bound"}).get(BROKERS)
            except RuntimeError:
                return None  # it has not begun, or has ended
            if bound:
                self._inner = (bound[0][0], bound[0][1])
        return self._inner


class Cluster(Inspected):
    """See the head of this file. `brokers` are by their ids, from 1 on."""

    def __init__(
        self,
        size: int = 3,
        overrides: Mapping[str, object] | None = None,
        *,
        topics: Mapping[str, int] | None = None,
        trace: bool = False,
    ) -> None:
        """`topics` by name and partitions; `overrides` are settings of every broker."""
        if size < 1:
            raise ValueError(f"a cluster of {size} brokers")
        self._topics = dict(topics or {})
        self._thread = LoopThread()
        self.zookeeper: Final = ZooKeeperServer(self._thread)
        self._cuts: set[frozenset[int]] = set()
        self._to_zookeeper: dict[int, Line] = {}
        self._to_brokers: dict[int, Line] = {}
        self._inspecting = threading.RLock()
        self._inspection: Inspection | None = None
        self._settings = {**_defaults(size), **(overrides or {})}
        self._trace = trace
        self._ids = range(1, size + 1)
        self.brokers: dict[int, ClusterBroker] = {}

    # --- its life ---------------------------------------------------------------------------------

    def start(self) -> Self:
        """Returns when every broker takes requests and the topics have all their replicas."""
        self.zookeeper.start()
        self._thread.call(self._lay_lines)
        for each in self._ids:
            settings = {
                **self._settings,
                "node.id": each,
                "zookeeper.connect": f"{HOST}:{self._to_zookeeper[each].port}",
                "advertised.listeners": f"{BROKERS}://{HOST}:{self._to_brokers[each].port}",
            }
            self.brokers[each] = ClusterBroker(each, settings, trace=self._trace)
        _all_at_once(broker.start for broker in self.brokers.values())
        if self._topics:
            self.create_topics(self._topics)
            self.wait_in_sync(*self._topics)
        return self

    def close(self) -> None:
        """End what still runs, however it stands."""
        with self._inspecting:
            if self._inspection is not None:
                self._inspection.close()
                self._inspection = None
        for broker in self.brokers.values():
            broker.close()
        with contextlib.suppress(RuntimeError):  # not begun, or closed before
            self._thread.call(self._take_lines_up)
        self.zookeeper.close()
        self._thread.close()

    def heal(self) -> None:
        """Whatever was done to it ends: no cuts, no rules, every broker runs and follows."""
        self.mend()
        self.zookeeper.come_back()
        for broker in self.brokers.values():
            if broker.paused:
                broker.resume()
        _all_at_once(broker.start for broker in self.brokers.values() if not broker.alive)
        for broker in self.brokers.values():
            broker.clear()
        self.wait_in_sync()

    def stop(self) -> None:
        """Let every broker that runs stop in order; BrokerFailed for one that does not."""
        self.mend()
        self.zookeeper.come_back()
        running = [broker for broker in self.brokers.values() if broker.alive]
        _all_at_once(broker.stop for broker in running)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.stop()
        finally:
            self.close()

    # --- who is who -------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """host:port of every broker, with commas, for a client's bootstrap.servers."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def _create_topics(self, topics: Mapping[str, int], configs: Mapping[str, str]) -> None:
        super()._create_topics(topics, configs)
        for broker in self._heard():
            wait_until(partial(broker.knows, *topics), f"broker {broker.broker_id} knows them")

    def leader(self, topic: str, partition: int) -> ClusterBroker:
        """Who leads a partition, as soon as somebody who lives does."""

        def found() -> ClusterBroker | None:
            with self._inspecting:
                shown = self._look().partitions(topic)
            broker = self.brokers.get(shown[partition].leader)
            return broker if broker is not None and broker.alive else None

        return wait_until(found, f"a leader of {topic}-{partition}")

    def controller(self) -> ClusterBroker:
        """Who is the controller, as soon as somebody is."""

        def found() -> ClusterBroker | None:
            data = self.zookeeper.data_of("/controller")
            return None if data is None else self.brokers.get(int(json.loads(data)["brokerid"]))

        return wait_until(found, "a controller")

    def wait_in_sync(self, *topics: str, timeout_s: float = WAIT_S) -> None:
        """Until every replica of these topics, or of all, is in sync, and every broker knows."""

        def in_sync() -> bool:
            names = topics or tuple(self.topics())
            told = [broker.partitions(*names) for broker in self._heard()]
            return all(
                shown == told[0] and all(len(each.isr) == len(each.replicas) for each in shown)
                for shown in told
            )

        wait_until(in_sync, "every replica is in sync", timeout_s)

    def _heard(self) -> list[ClusterBroker]:
        """Who can answer."""
        return [each for each in self.brokers.values() if each.alive and not each.paused]

    def _look(self) -> Inspection:
        if self._inspection is None:
            self._inspection = Inspection(self.bootstrap)
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
        unless `zookeeper=False`. Nothing new comes through until `mend`; clients reach everybody.
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
        """Everybody reaches everybody."""
        self._thread.call(self._cuts.clear)

    async def _lay_lines(self) -> None:
        for each in self._ids:
            self._to_zookeeper[each] = Line(self._zookeeper_at, self._may_meet(each))
            self._to_brokers[each] = Line(self._broker_at(each), self._may_come_to(each))
        for line in (*self._to_zookeeper.values(), *self._to_brokers.values()):
            await line.listen()

    async def _take_lines_up(self) -> None:
        for line in (*self._to_zookeeper.values(), *self._to_brokers.values()):
            await line.close()

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
            source = self._source_of(port)
            return source is None or frozenset((source, broker_id)) not in self._cuts

        return may

    def _source_of(self, port: int) -> int | None:
        """Which broker a connection comes from."""
        pids = {each.pid: each.broker_id for each in self.brokers.values() if each.alive}
        pid = process_of(port, pids)
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
