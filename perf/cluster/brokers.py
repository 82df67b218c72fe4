"""Clusters under measurement: brokers numbered from 1 and the process at which they meet.

    with KbrokerCluster(directory, 2) as cluster:      # started, and each knows of all
        cluster.client(1)                              # to the first broker
        cluster.hold(); cluster.resume()               # all of its processes, if it is `holdable`

The meeting place (ZooKeeper; Apache Kafka's quorum controller) is a process of its own and counted
apart. A cluster is held still as a whole, its meeting place last and woken first. Every process is
ended and every directory removed on the way out, whatever happened; what kills this process kills
them, too (lab/child.py). A cluster may lie in two places (perf/pipelining/two_networks.py): its
first broker in the near one, all others and the meeting place in the far one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from perf.brokers.base import HERE, Broker, BrokerError, Place
from perf.brokers.clustered import (
    HELD_STILL,
    HELD_STILL_KBROKER,
    ClusterNode,
    KafkaController,
    KafkaNode,
    Settings,
)
from perf.brokers.kafka import HELD_STILL_MS
from perf.brokers.kbroker import BASELINE
from perf.brokers.zookeeper import ZooKeeper
from perf.client import Client, ClientError
from perf.metadata import ClusterState
from perf.wire import WireError

WAIT_S: Final = 60.0
PAUSE_S: Final = 0.01
NO_SETTINGS: Final[Settings] = MappingProxyType({})


def until(what: str, holds: Callable[[], bool], wait_s: float = WAIT_S) -> float:
    """Ask until it holds; when it did, by time.monotonic(). BrokerError where it does not.

    A broker that is not there yet, or refuses, is asked again.
    """
    give_up_s = time.monotonic() + wait_s
    last = ""
    while True:
        try:
            if holds():
                return time.monotonic()
        except (OSError, WireError, ClientError) as error:
            last = f": {error}"
        if time.monotonic() > give_up_s:
            raise BrokerError(f"{what}: not within {wait_s:.0f} s{last}")
        time.sleep(PAUSE_S)


class Cluster:
    """Some brokers and where they meet. Subclasses say which."""

    name = "cluster"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.meeting: Broker = Broker(directory)
        self.nodes: dict[int, Broker] = {}

    @property
    def running(self) -> list[Broker]:
        """The meeting place first."""
        return [self.meeting, *self.nodes.values()]

    @property
    def pids(self) -> list[int]:
        return [broker.pid for broker in self.running]

    def start(self) -> None:
        """Every process; each broker knows of all when it returns."""
        self.meeting.start()
        for node in self.nodes.values():
            node.directory.mkdir(parents=True, exist_ok=True)
            node.prepare()
            node.launch()
        for node in self.nodes.values():
            node.wait_ready()
        self.wait_for_all()

    def restart(self, node: int) -> None:
        """A broker that was stopped or killed."""
        self.nodes[node].start()
        self.wait_for_all()

    def wait_for_all(self) -> None:
        for node in self.nodes:
            until(f"{self.name}: broker {node} knows of all", partial(self._all, node))

    def _all(self, node: int) -> bool:
        return set(self.state(node).brokers) == set(self.nodes)

    def client(self, node: int) -> Client:
        return self.nodes[node].client()

    def state(self, node: int, *topics: str) -> ClusterState:
        """What this broker says of the cluster and these topics, asked on a new connection."""
        with self.client(node) as client:
            return client.cluster(topics)

    def in_sync(self, node: int, *topics: str) -> bool:
        """Whether every replica of these topics is, as this broker knows it."""
        found = list(self.state(node, *topics).partitions)
        return bool(found) and all(
            each.leader >= 0 and set(each.in_sync) == set(each.replicas) for each in found
        )

    def wait_in_sync(self, node: int, *topics: str) -> float:
        what = f"{self.name}: the replicas of {', '.join(topics)} are in sync"
        return until(what, lambda: self.in_sync(node, *topics))

    def hold(self) -> None:
        for broker in reversed(self.running):
            broker.hold()

    def resume(self) -> None:
        for broker in self.running:
            broker.resume()

    def check_alive(self) -> None:
        for broker in self.running:
            broker.check_alive()

    def discard(self) -> None:
        """All at once, since the last has no broker to hand over to; the meeting place last."""
        with ExitStack() as last_first:
            for broker in self.running:
                last_first.callback(broker.discard)
            for node in self.nodes.values():
                if node.runs:
                    node.resume()
                    node.terminate()
            if self.meeting.runs:
                self.meeting.resume()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.discard()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()


class KbrokerCluster(Cluster):
    """kbrokers at a ZooKeeper; `checkout`: of another one than this."""

    name = "kbroker"

    def __init__(
        self,
        directory: Path,
        brokers: int,
        *,
        holdable: bool = False,
        settings: Settings = NO_SETTINGS,
        near: Place = HERE,
        far: Place = HERE,
        checkout: Path | None = None,
    ) -> None:
        super().__init__(directory)
        if checkout is not None:
            self.name = BASELINE
        held_ms = HELD_STILL_MS if holdable else 0
        meeting = ZooKeeper(directory / "zookeeper", session_ms_max=held_ms, place=far)
        self.meeting = meeting
        every = {**(HELD_STILL_KBROKER if holdable else {}), **settings}
        for number in range(1, brokers + 1):
            home = directory / f"broker-{number}"
            place = near if number == 1 else far
            self.nodes[number] = ClusterNode(
                home, node_id=number, zookeeper=meeting, settings=every, place=place,
                checkout=checkout,
            )  # fmt: skip


class KafkaCluster(Cluster):
    """Apache Kafka's brokers and their quorum controller."""

    name = "kafka"

    def __init__(
        self,
        directory: Path,
        brokers: int,
        *,
        holdable: bool = False,
        settings: Settings = NO_SETTINGS,
        near: Place = HERE,
        far: Place = HERE,
    ) -> None:
        super().__init__(directory)
        every = {**(HELD_STILL if holdable else {}), **settings}
        meeting = KafkaController(
            directory / "controller", holdable=holdable, settings=every, place=far
        )
        self.meeting = meeting
        for number in range(1, brokers + 1):
            home = directory / f"broker-{number}"
            place = near if number == 1 else far
            self.nodes[number] = KafkaNode(
                home, node_id=number, controller=meeting, settings=every, place=place
            )


Make = Callable[..., Cluster]  # of a directory and a number of brokers; as the classes above
KINDS: Final[Mapping[str, Make]] = MappingProxyType(
    {"kbroker": KbrokerCluster, "kafka": KafkaCluster}
)
