"""How soon another broker coordinates transactional ids: kbroker's beside Apache Kafka's, kill -9.

Four brokers: three have `__transaction_state`, which has one partition here, the fourth leads the
partitions that are written to. A round prepares transactions while the fourth is held still, so
that their outcomes are stored and their markers are not; then the coordinator is killed and the
fourth goes on. Sessions of both kinds of cluster have the same timeout.

    killed -> elected     a survivor's metadata names another leader of the state topic
           -> served      that one describes ids
           -> complete    none of its ids is prepared any more

Survivors are asked in a loop with a pause of a millisecond. Neither kind of cluster is ever held
still, since sessions would end; what the one that is idle costs is no noise. The broker that was
killed is started again and in sync before the next round.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perf.brokers.base import BrokerError
from perf.brokers.clustered import Settings
from perf.cells import CellError
from perf.client import Client
from perf.cluster.brokers import KINDS, Cluster
from perf.cluster.rotation import Say
from perf.judge import Bar, value_bar
from perf.log.rounds import order
from perf.measurement import OURS, THEIRS, Measurement, kafka_bar
from perf.process import Watch
from perf.requests import PRODUCE
from perf.stats import estimate
from perf.tables import interval
from perf.transactions.ids import REPLICATED, STATE_TOPIC, Pair, listed, made, served
from perf.transactions.lanes import Address, Route, drive
from perf.transactions.producer import TV1, Producer, Steps, await_coordinator, values

NODES: Final = (1, 2, 3, 4)
SESSION_MS: Final = 6_000
SERVED_BAR, COMPLETE_BAR_S, WHOLE_BAR = 0.3, 2.0, 1.0
WAIT_S: Final = 60.0
PAUSE_S, LIST_PAUSE_S = 0.001, 0.02
TOPICS: Final = 10  # of one partition
RECORD_BYTES: Final = 100
OPEN: Final = ("PrepareCommit", "PrepareAbort")
EVERY: Final[Settings] = {
    **REPLICATED,
    "transaction.state.log.num.partitions": 1,
    "auto.leader.rebalance.enable": "false",
}
SETTINGS: Final[Mapping[str, Settings]] = {
    OURS: {**EVERY, "zookeeper.session.timeout.ms": SESSION_MS},
    THEIRS: {**EVERY, "broker.session.timeout.ms": SESSION_MS},
}


@dataclass(frozen=True)
class FailoverPlan:
    """How much is run."""

    brokers: tuple[str, ...] = (THEIRS, OURS)
    rounds: int = 6
    ids: int = 10_000
    prepared: int = 1_000

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class TakenOver:
    """One kill; seconds."""

    broker: str
    round: int
    killed: int
    elected_s: float  # from the kill
    served_s: float  # from the election
    complete_s: float  # from the election
    quiet: bool

    @property
    def whole_s(self) -> float:
        return self.elected_s + self.served_s

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "whole_s": self.whole_s}


class Work:
    """The ids of one cluster."""

    def __init__(self, cluster: Cluster, plan: FailoverPlan, say: Say) -> None:
        self._cluster = cluster
        stem = f"failover-{os.getpid()}"
        with cluster.client(NODES[0]) as client:
            await_coordinator(client, stem)
        cluster.wait_in_sync(NODES[0], STATE_TOPIC)
        (state,) = cluster.state(NODES[0], STATE_TOPIC).partitions
        self._replicas = state.replicas
        (self._data_node,) = set(NODES) - set(state.replicas)
        with cluster.client(self._data_node) as client:
            topics = [
                client.create_topic(f"{stem}-{number}", 1, replicas=[self._data_node])
                for number in range(TOPICS)
            ]
        began_s = time.monotonic()
        idle = [f"{stem}-idle-{number}" for number in range(plan.ids - plan.prepared)]
        pairs: dict[str, Pair] = {}
        drive((made(name, pairs) for name in idle), self._route())
        self._probe = idle[:1]
        with cluster.client(self._coordinator()) as client:
            data = values(1, RECORD_BYTES)
            self._producers = [
                Producer(client, f"{stem}-{number}", TV1, topics[number % TOPICS], data)
                for number in range(plan.prepared)
            ]
        say(f"{cluster.name}: {plan.ids:,} ids made in {time.monotonic() - began_s:.1f} s")

    def _coordinator(self) -> int:
        (state,) = self._cluster.state(self._replicas[0], STATE_TOPIC).partitions
        return state.leader

    def _route(self) -> Route:
        """A Produce goes to the broker that leads the partitions, all else to the coordinator."""
        leader, coordinator = (
            Address(broker.host, broker.port)
            for broker in map(self._cluster.nodes.get, (self._data_node, self._coordinator()))
            if broker is not None
        )

        def route(frame: bytes) -> Address:
            (api_key,) = struct.unpack_from(">h", frame, 4)
            return leader if api_key == PRODUCE else coordinator

        return route

    def prepare(self) -> None:
        """Transactions whose outcome is stored; the broker of their partitions is held still."""
        route = self._route()
        drive((_open(each) for each in self._producers), route)
        self._cluster.nodes[self._data_node].hold()
        drive((each.ended() for each in self._producers), route)
        with self._cluster.client(self._coordinator()) as client:
            if (count := listed(client, OPEN)) != len(self._producers):
                raise CellError(f"{self._cluster.name}: {count} transactions are prepared")

    def take_over(self, number: int, alive: Collection[int]) -> TakenOver:
        """One kill. `prepare` first. `alive`: processes that are no noise."""
        victim = self._coordinator()
        killed = self._cluster.nodes[victim]
        watch = Watch([os.getpid(), *set(alive) - {killed.pid}])
        with ExitStack() as stack:
            clients = {
                node: stack.enter_context(self._cluster.client(node))
                for node in self._replicas
                if node != victim
            }
            killed_s = time.monotonic()
            killed.kill()
            self._cluster.nodes[self._data_node].resume()
            elected_s, leader = _elected(clients)
            served_s = _when("its ids are served", PAUSE_S, lambda: served(leader, self._probe))
            complete_s = _when("they are complete", LIST_PAUSE_S, lambda: not listed(leader, OPEN))
        return TakenOver(
            self._cluster.name, number, victim, elected_s - killed_s, served_s - elected_s,
            complete_s - elected_s, watch.guard().quiet,
        )  # fmt: skip

    def restore(self, node: int) -> None:
        """The broker that was killed."""
        self._cluster.restart(node)
        self._cluster.wait_in_sync(self._data_node, STATE_TOPIC)


def _open(producer: Producer) -> Steps:
    yield from producer.begun()
    yield from producer.written()


def _elected(clients: Mapping[int, Client]) -> tuple[float, Client]:
    """When the first of these named one of them as the leader, and that one."""
    found: list[Client] = []

    def elected() -> bool:
        for client in clients.values():
            (state,) = client.cluster([STATE_TOPIC]).partitions
            if state.leader in clients:
                found.append(clients[state.leader])
                return True
        return False

    return _when("the state topic has another leader", PAUSE_S, elected), found[0]


def _when(what: str, pause_s: float, holds: Callable[[], bool]) -> float:
    """By time.monotonic(). BrokerError where it does not come."""
    give_up_s = time.monotonic() + WAIT_S
    while not holds():
        if time.monotonic() > give_up_s:
            raise BrokerError(f"{what}: not within {WAIT_S:.0f} s")
        time.sleep(pause_s)
    return time.monotonic()


def measure(plan: FailoverPlan, root: Path, say: Say) -> list[TakenOver]:
    """A round is one kill in each cluster."""
    found = []
    with ExitStack() as stack:
        clusters: dict[str, Cluster] = {}
        works: dict[str, Work] = {}
        for name in plan.brokers:
            made_of = KINDS[name](root / name, len(NODES), settings=SETTINGS[name])
            clusters[name] = stack.enter_context(made_of)
            works[name] = Work(clusters[name], plan, say)
        for number in range(plan.rounds):
            for name in order(plan.brokers, number):
                works[name].prepare()
                running = (each for cluster in clusters.values() for each in cluster.running)
                alive = [each.pid for each in running if each.runs]
                one = works[name].take_over(number, alive)
                found.append(one)
                say(
                    f"round {number + 1} {name:8} broker {one.killed} killed; elected after"
                    f" {one.elected_s:.2f} s, ids served {one.served_s * 1e3:,.0f} ms later,"
                    f" complete {one.complete_s:.2f} s later"
                )
                if number + 1 < plan.rounds:
                    works[name].restore(one.killed)
    return found


def bars(found: Sequence[TakenOver]) -> list[Bar]:
    ours = [one for one in found if one.broker == OURS]
    return [
        kafka_bar("elected to served", SERVED_BAR, found, lambda one: one.served_s),
        value_bar("elected to complete", COMPLETE_BAR_S, "s",
                  [(one.complete_s, one.quiet) for one in ours]),
        kafka_bar("killed to served", WHOLE_BAR, found, lambda one: one.whole_s),
    ]  # fmt: skip


def report(found: Sequence[TakenOver], plan: Mapping[str, Any]) -> Measurement:
    rows = []
    for name in dict.fromkeys(one.broker for one in found):
        some = [one for one in found if one.broker == name]
        columns = (
            [one.elected_s for one in some],
            [one.served_s * 1e3 for one in some],
            [one.complete_s for one in some],
            [one.whole_s for one in some],
        )
        rows.append([name, str(len(some)), *(interval(estimate(each)) for each in columns)])
    head = ("brokers", "kills", "elected s", "then served ms", "then complete s", "whole s")
    return Measurement.of(plan, head, rows, bars(found), found, lambda one: (
        ("transaction coordinator, elected to served", one.served_s, "s"),
        ("transaction coordinator, elected to complete", one.complete_s, "s"),
        ("transaction coordinator, killed to served", one.whole_s, "s"),
    ))  # fmt: skip
