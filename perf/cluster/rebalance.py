"""The effect of `auto.leader.rebalance.enable` after a broker's return, and its worth.

Two kbrokers of which each is the preferred leader of half of the partitions, once with the setting
and once without. In a round the second is stopped in order, so that the first leads all, and comes
back. Where the setting is on, that is followed by the preferred leaders, at the controller's next
look; how long that takes is measured from when all replicas are in sync. Then, as long after that
with the setting as without, the same load at a fixed rate below what either can do: two producers,
to a partition of each half, at its leader. The difference is how the work is shared, and the
latency that follows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from perf.cluster.brokers import Cluster, KbrokerCluster, until
from perf.cluster.failover import balanced, led_by
from perf.cluster.paced import PacedProducer
from perf.cluster.rotation import Rotation
from perf.cluster.topics import create_many
from perf.judge import Bar, side, together, value_bar
from perf.measurement import Figure, Measurement, noisy
from perf.process import Watch, cpu_ns
from perf.requests import Topic
from perf.stats import Estimate, estimate
from perf.tables import interval

KEY: Final = "auto.leader.rebalance.enable"
LOOK_KEY: Final = "leader.imbalance.check.interval.seconds"
ON, OFF = "true", "false"
STAYS, RETURNS = 1, 2
ROTATIONS: Final = ((STAYS, RETURNS), (RETURNS, STAYS))
LOOK_S: Final = 1
LOADED_S: Final = 2.0 * LOOK_S + 1  # from in sync: two looks, had there been any
BACK_BAR_S: Final = LOOK_S + 1.0


@dataclass(frozen=True)
class RebalancePlan:
    """How much is run."""

    rounds: int = 7
    partitions: int = 100
    rate: float = 10_000.0  # of both producers together
    seconds: float = 5.0  # of load


@dataclass(frozen=True)
class Returned:
    """One return, and the load after it."""

    enabled: str
    round: int
    led: int  # partitions that the returned one leads, of all
    back_s: float | None  # from in sync until it leads what it should; None: it does not
    cpu_shares: Mapping[int, float]  # of one processor, by broker
    requests_per_s: float
    p50_us: float  # the worse of both producers
    p99_us: float
    quiet: bool

    @property
    def busiest(self) -> float:
        """The share of the broker that has more to do."""
        return max(self.cpu_shares.values())

    def to_json(self) -> dict[str, Any]:
        shares = {str(node): share for node, share in self.cpu_shares.items()}
        return {**self.__dict__, "cpu_shares": shares}


def settings(enabled: str) -> dict[str, object]:
    return {KEY: enabled, LOOK_KEY: LOOK_S}


def _returns(cluster: Cluster, topics: Sequence[Topic], enabled: str) -> float | None:
    """The second broker goes and comes back; how long until it leads again, where it does."""
    names = [topic.name for topic in topics]

    def led_by_one() -> bool:
        state = cluster.state(STAYS, *names)
        return all(each.leader == STAYS for each in state.partitions)

    cluster.nodes[RETURNS].stop()
    until("the one that stays leads all", led_by_one)
    cluster.restart(RETURNS)
    in_sync_s = cluster.wait_in_sync(STAYS, *names)
    back_s: float | None = None
    if enabled == ON:
        total = sum(topic.partitions for topic in topics)
        knows_s = [
            until(f"broker {node} knows of the preferred leaders",
                  partial(_is_balanced, cluster, node, names, total))
            for node in (STAYS, RETURNS)
        ]  # fmt: skip
        back_s = max(*knows_s, in_sync_s) - in_sync_s  # it may look as the last replica comes
    time.sleep(max(0.0, in_sync_s + LOADED_S - time.monotonic()))  # both loads begin as late
    return back_s


def _is_balanced(cluster: Cluster, node: int, names: Sequence[str], partitions: int) -> bool:
    return balanced(cluster.state(node, *names), partitions)


def loaded(
    cluster: Cluster, topics: Sequence[Topic], plan: RebalancePlan, enabled: str, number: int
) -> Returned:
    back_s = _returns(cluster, topics, enabled)
    state = cluster.state(STAYS, *[topic.name for topic in topics])
    leaders = {topic.name: topic.partitions[0].leader for topic in state.topics}
    producers = [
        PacedProducer(cluster.nodes[leaders[topic.name]], topic, plan.rate / len(topics))
        for topic in topics
    ]
    pids = {node: cluster.nodes[node].pid for node in (STAYS, RETURNS)}
    watch = Watch([os.getpid(), cluster.meeting.pid, *pids.values()])
    before, began_ns = {node: cpu_ns(pid) for node, pid in pids.items()}, time.monotonic_ns()
    for producer in producers:
        producer.start()
    time.sleep(plan.seconds)  # the length of the load is what is asked for
    found = [producer.end() for producer in producers]
    used = {node: cpu_ns(pid) - before[node] for node, pid in pids.items()}
    span_ns = time.monotonic_ns() - began_ns
    return Returned(
        enabled, number, led_by(state, RETURNS), back_s,
        {node: spent / span_ns for node, spent in used.items()},
        sum(each.requests for each in found) / (span_ns / 1e9),
        max(each.p50_us for each in found), max(each.p99_us for each in found),
        watch.guard().quiet,
    )  # fmt: skip


def measure(plan: RebalancePlan, root: Path, say: Callable[[str], None]) -> list[Returned]:
    """A round is one return of each kind."""
    kinds = {ON: KbrokerCluster, OFF: KbrokerCluster}
    of_kind = {kind: settings(kind) for kind in kinds}
    topics: dict[str, Sequence[Topic]] = {}
    found = []
    with Rotation(tuple(kinds), root, 2, say, settings=of_kind, make=kinds) as turns:
        for number in range(plan.rounds):
            for kind in turns.order(number):
                with turns.alone(kind) as cluster:
                    if kind not in topics:
                        topics[kind] = made(cluster, plan.partitions)
                    found.append(loaded(cluster, topics[kind], plan, kind, number))
                say(_line(found[-1]))
    return found


def made(cluster: Cluster, partitions: int) -> Sequence[Topic]:
    with cluster.client(STAYS) as client:
        topics = create_many(client, "rebalance", partitions, ROTATIONS)
    cluster.wait_in_sync(STAYS, *[topic.name for topic in topics])
    return topics


def _line(one: Returned) -> str:
    back = "" if one.back_s is None else f" after {one.back_s:.2f} s"
    shares = ", ".join(f"broker {node} {share:.1%}" for node, share in one.cpu_shares.items())
    return (
        f"round {one.round + 1} {one.enabled:5} the returned one leads {one.led}{back};"
        f" of a CPU: {shares}; p99 {one.p99_us:,.0f} us"
    )


def _against(found: Sequence[Returned], take: Callable[[Returned], float]) -> Estimate:
    """With the setting by without, in each round."""
    kinds = ([one for one in found if one.enabled == kind] for kind in (ON, OFF))
    return together(*(side(each, take) for each in kinds)).ratio


def bars(found: Sequence[Returned]) -> list[Bar]:
    """The wait for it is a bar; its worth is reported."""
    back = [(one.back_s, one.quiet) for one in found if one.back_s is not None]
    return [value_bar("in sync to the preferred leaders", BACK_BAR_S, "s", back)]


def report(found: Sequence[Returned], plan: RebalancePlan) -> Measurement:
    rows = []
    for kind in (ON, OFF):
        some = [one for one in found if one.enabled == kind]
        back = [one.back_s for one in some if one.back_s is not None]
        columns = (
            *([one.cpu_shares[node] * 100 for one in some] for node in (STAYS, RETURNS)),
            [one.p50_us for one in some],
            [one.p99_us for one in some],
        )
        led = f"{min(one.led for one in some)} to {max(one.led for one in some)}"
        wait = interval(estimate(back)) if back else "never"
        rows.append([kind, led, wait, *(interval(estimate(each)) for each in columns)])
    worth = [
        f"{KEY} on beside off, {name}: {interval(_against(found, take))} x"
        for name, take in (
            ("CPU of the broker that has more to do", lambda one: one.busiest),
            ("CPU of both", lambda one: sum(one.cpu_shares.values())),
            ("p99 of produce", lambda one: one.p99_us),
        )
    ]
    figures = [
        Figure(f"{KEY}: {name}", value, unit,
               {"enabled": one.enabled, "round": one.round, "quiet": one.quiet})
        for one in found
        for name, value, unit in (
            ("partitions led by the returned broker", one.led, ""),
            ("CPU of the busier broker", one.busiest, "CPUs"),
            ("p99 of produce", one.p99_us, "us"),
        )
    ]  # fmt: skip
    head = (KEY, "led by the returned", "back in s", f"broker {STAYS} % of a CPU",
            f"broker {RETURNS} % of a CPU", "p50 us", "p99 us")  # fmt: skip
    remarks = [*worth, *noisy([one.quiet for one in found])]
    values = [one.to_json() for one in found]
    return Measurement(dict(plan.__dict__), head, rows, bars(found), values, figures, remarks)
