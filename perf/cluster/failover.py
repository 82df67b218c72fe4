"""How soon others lead what a killed broker led: three kbrokers, a thousand partitions, kill -9.

A round begins balanced and in sync. One broker is killed, the controller and another by turns. Its
death is *noticed* when its registration in ZooKeeper goes, which is when its session ends, seconds
after the kill; a watch says when. From there until the metadata of every survivor shows each
partition led by a broker that lives: that is measured. Survivors are asked for all partitions in
a loop, with a pause; an answer takes some milliseconds, which is how fine the figure is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from perf.brokers.base import BrokerError
from perf.client import Client
from perf.cluster.brokers import WAIT_S, Cluster, KbrokerCluster, until
from perf.cluster.departures import Departures
from perf.cluster.topics import create_many, write_one_each
from perf.judge import value_bar
from perf.measurement import Figure, Measurement, noisy
from perf.metadata import ClusterState
from perf.process import Watch
from perf.stats import estimate
from perf.tables import interval, number
from perf.wire import Writer

NODES: Final = (1, 2, 3)
ROTATIONS: Final = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
SESSION_MS: Final = 6_000
ELECT_LEADERS, ELECT_VERSION = 43, 1
PREFERRED: Final = 0
PAUSE_S: Final = 0.005
MOVED_BAR_S: Final = 1.0
NOTICE_WAIT_S: Final = 5.0
ELECT_PAUSE_S: Final = 0.5


@dataclass(frozen=True)
class Failover:
    """One kill."""

    round: int
    killed: int
    controller: bool  # whether it was that of the cluster
    led: int  # partitions that it led
    noticed_s: float  # from the kill
    moved_s: float  # from there until every survivor knows a new leader of each
    by_survivor_s: dict[int, float]
    quiet: bool

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


def led_by(state: ClusterState, node: int) -> int:
    """How many partitions."""
    return sum(each.leader == node for each in state.partitions)


def moved(state: ClusterState, dead: int, partitions: int) -> bool:
    """Whether all of them are led by another broker."""
    led = [each.leader for each in state.partitions if not each.code]
    return len(led) == partitions and dead not in led and min(led) >= 0


def balanced(state: ClusterState, partitions: int) -> bool:
    """Whether each of them is led by the first of its replicas, and all are in sync."""
    found = list(state.partitions)
    return len(found) == partitions and all(
        each.leader == each.replicas[0] and set(each.in_sync) == set(each.replicas)
        for each in found
    )


def chosen(turn: int, controller: int) -> int:
    """The broker that a round kills: the controller in every other one, else one that is not."""
    others = [node for node in NODES if node != controller]
    return controller if turn % 2 == 0 and controller in NODES else others[turn // 2 % len(others)]


def elect_preferred(client: Client) -> None:
    """The first replica of every partition is to lead; who leads already is no error."""
    client.ask(ELECT_LEADERS, ELECT_VERSION, bytes(Writer().put("bii", PREFERRED, -1, 30_000).data))


def _all_of(cluster: Cluster, node: int) -> ClusterState:
    with cluster.client(node) as client:
        return client.cluster(None)


def _is_balanced(cluster: Cluster, node: int, partitions: int) -> bool:
    return balanced(_all_of(cluster, node), partitions)


def wait_balanced(cluster: Cluster, partitions: int) -> None:
    def elected() -> bool:
        state = _all_of(cluster, 1)
        if balanced(state, partitions):
            return True
        if all(set(each.in_sync) == set(each.replicas) for each in state.partitions):
            with cluster.client(state.controller) as client:
                elect_preferred(client)
        time.sleep(ELECT_PAUSE_S)
        return False

    until("every partition is in sync and led by its first replica", elected, 2 * WAIT_S)
    for node in NODES[1:]:
        until(f"broker {node} knows that", partial(_is_balanced, cluster, node, partitions))


def kill(cluster: Cluster, departures: Departures, turn: int, partitions: int) -> Failover:
    controller = departures.controller()
    victim = chosen(turn, controller)
    survivors = [node for node in NODES if node != victim]
    before = _all_of(cluster, survivors[0])
    stay = [cluster.nodes[node].pid for node in survivors]
    watch = Watch([os.getpid(), cluster.meeting.pid, *stay])
    departures.of(victim)  # forget an earlier one
    with ExitStack() as opened:
        clients = {node: opened.enter_context(cluster.client(node)) for node in survivors}
        killed_s = time.monotonic()
        cluster.nodes[victim].kill()
        knows_s = _when_moved(clients, victim, partitions)
    noticed_s = min(_noticed(departures, victim), *knows_s.values())
    return Failover(
        turn,
        victim,
        controller == victim,
        led_by(before, victim),
        noticed_s - killed_s,
        max(knows_s.values()) - noticed_s,
        {node: at_s - noticed_s for node, at_s in knows_s.items()},
        watch.guard().quiet,
    )


def _when_moved(clients: Mapping[int, Client], dead: int, partitions: int) -> dict[int, float]:
    """By survivor, when its answer no longer named the dead one, by time.monotonic()."""
    give_up_s = time.monotonic() + WAIT_S
    knows_s: dict[int, float] = {}
    while len(knows_s) < len(clients):
        for node in clients.keys() - knows_s.keys():
            if moved(clients[node].cluster(None), dead, partitions):
                knows_s[node] = time.monotonic()
        if time.monotonic() > give_up_s:
            raise BrokerError(f"what broker {dead} led has no other leader after {WAIT_S:.0f} s")
        time.sleep(PAUSE_S)
    return knows_s


def _noticed(departures: Departures, node: int) -> float:
    """When its registration went; the watch may come a little after its consequences."""
    found: list[float] = []

    def fired() -> bool:
        at_s = departures.of(node)
        found.extend([] if at_s is None else [at_s])
        return bool(found)

    until(f"ZooKeeper says that broker {node} is gone", fired, NOTICE_WAIT_S)
    return found[0]


def measure(
    root: Path, say: Callable[[str], None], *, rounds: int, partitions: int
) -> list[Failover]:
    """So many kills on one cluster."""
    found = []
    settings = {"zookeeper.session.timeout.ms": SESSION_MS}
    with ExitStack() as last_first:
        cluster = last_first.enter_context(KbrokerCluster(root, len(NODES), settings=settings))
        fill(cluster, partitions)
        departures = Departures(cluster.meeting.address)
        last_first.callback(departures.close)
        for turn in range(rounds):
            wait_balanced(cluster, partitions)
            found.append(kill(cluster, departures, turn, partitions))
            say(_line(found[-1]))
            if turn + 1 < rounds:
                cluster.restart(found[-1].killed)
    return found


def fill(cluster: Cluster, partitions: int) -> None:
    """A record in every partition, each on all three brokers."""
    with cluster.client(NODES[0]) as client:
        topics = create_many(client, "failover", partitions, ROTATIONS)
    wait_balanced(cluster, partitions)
    for node in NODES:
        with cluster.client(node) as client:
            write_one_each(client, topics[node - 1 :: len(NODES)])


def _line(one: Failover) -> str:
    who = ", the controller" if one.controller else ""
    return (
        f"kill {one.round + 1}: broker {one.killed}{who}, led {one.led}; noticed after "
        f"{one.noticed_s:.2f} s, all led by others {one.moved_s:.3f} s later"
    )


def report(found: Sequence[Failover], plan: Mapping[str, Any]) -> Measurement:
    rows = []
    for title, some in (
        ("every kill", found),
        ("of the controller", [one for one in found if one.controller]),
        ("of another", [one for one in found if not one.controller]),
    ):
        if some:
            taken = [one.moved_s for one in some]
            led = f"{min(one.led for one in some)} to {max(one.led for one in some)}"
            noticed = interval(estimate([one.noticed_s for one in some]))
            each = [str(len(some)), led, noticed, interval(estimate(taken)), number(max(taken))]
            rows.append([title, *each])
    what = f"from noticed to all led by others, {plan['partitions']:,} partitions, the longest"
    longest = max((one.moved_s for one in found), default=0.0)
    bars = [
        value_bar("all leaders moved, from when it is noticed", MOVED_BAR_S, "s",
                  [(one.moved_s, one.quiet) for one in found]),
    ]  # fmt: skip
    remarks = [f"{what}: {longest:.3f} s", *noisy([one.quiet for one in found])]
    figures = [
        Figure("failover, leaders moved", one.moved_s, "s",
               {"broker": "kbroker", "round": one.round, "quiet": one.quiet})
        for one in found
    ]  # fmt: skip
    head = ("kbroker", "kills", "partitions led", "kill to noticed, s", "moved, s", "longest, s")
    return Measurement(plan, head, rows, bars, [one.to_json() for one in found], figures, remarks)
