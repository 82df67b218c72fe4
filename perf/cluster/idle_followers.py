"""What a broker costs that follows a thousand partitions while nothing is written to them.

Two brokers; the first leads all, the second follows. Once they are in sync and have rested, windows
of some seconds: processor time of each process as a share of one processor, and its memory after
them. A follower's fetch waits at its leader for half a second at most and is then asked again: that
is all there should be to see.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perf.bars import MIB
from perf.cluster.brokers import KINDS, Cluster
from perf.cluster.topics import create_many
from perf.judge import value_bar
from perf.measurement import Measurement
from perf.process import Watch, cpu_ns, memory, proportional_bytes
from perf.stats import estimate
from perf.tables import interval

REPLICAS: Final = (1, 2)
ROLES: Final = ("leader", "follower", "meeting place")
REST_S: Final = 5.0
CPU_BAR, MEMORY_BAR_MB = 0.02, 100.0


@dataclass(frozen=True)
class Idle:
    """One process in one window."""

    broker: str
    round: int
    role: str
    cpu_share: float  # of one processor
    resident_bytes: int
    proportional_bytes: int
    quiet: bool

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


def window(cluster: Cluster, number: int, seconds: float) -> list[Idle]:
    pids = [cluster.nodes[node].pid for node in REPLICAS] + [cluster.meeting.pid]
    watch = Watch([os.getpid(), *pids])
    before, began_ns = [cpu_ns(pid) for pid in pids], time.monotonic_ns()
    time.sleep(seconds)
    used = [cpu_ns(pid) - was for pid, was in zip(pids, before, strict=True)]
    span_ns = time.monotonic_ns() - began_ns
    quiet = watch.guard().quiet
    return [
        Idle(cluster.name, number, role, spent / span_ns, memory(pid).resident,
             proportional_bytes(pid), quiet)
        for role, pid, spent in zip(ROLES, pids, used, strict=True)
    ]  # fmt: skip


def fill(cluster: Cluster, partitions: int) -> list[str]:
    """Partitions that the second broker follows, in sync; the names of their topics."""
    with cluster.client(REPLICAS[0]) as client:
        topics = create_many(client, "idle", partitions, [REPLICAS])
    names = [topic.name for topic in topics]
    for node in REPLICAS:
        cluster.wait_in_sync(node, *names)
    return names


def measure(
    root: Path,
    say: Callable[[str], None],
    *,
    brokers: Sequence[str],
    rounds: int,
    seconds: float,
    partitions: int,
) -> list[Idle]:
    """One kind of broker after the other."""
    found = []
    for kind in brokers:
        with KINDS[kind](root / kind, len(REPLICAS)) as cluster:
            names = fill(cluster, partitions)
            time.sleep(REST_S)
            for number in range(rounds):
                found += window(cluster, number, seconds)
                shares = ", ".join(f"{one.role} {one.cpu_share:.2%}" for one in found[-3:])
                say(f"{kind} window {number + 1}: {shares}")
            if not cluster.in_sync(REPLICAS[0], *names):
                say(f"{kind}: a replica is no longer in sync")
    return found


def report(found: Sequence[Idle], plan: Mapping[str, Any]) -> Measurement:
    rows = []
    for kind in dict.fromkeys(one.broker for one in found):
        for role in ROLES:
            some = [one for one in found if (one.broker, one.role) == (kind, role)]
            columns = (
                [one.cpu_share * 100 for one in some],
                [one.resident_bytes / MIB for one in some],
                [one.proportional_bytes / MIB for one in some],
            )
            rows.append([kind, role, *(interval(estimate(each)) for each in columns)])
    ours = [one for one in found if (one.broker, one.role) == ("kbroker", "follower")]
    of = f"a follower of {plan['partitions']:,} idle partitions"
    bars = [
        value_bar(f"CPU of {of}", CPU_BAR * 100, "% of a CPU",
                  [(one.cpu_share * 100, one.quiet) for one in ours]),
        value_bar(f"resident memory of {of}", MEMORY_BAR_MB, "MB",
                  [(one.resident_bytes / MIB, True) for one in ours]),
    ]  # fmt: skip
    idle = f"idle, {plan['partitions']} followed partitions"
    head = ("broker", "process", "% of a CPU", "resident MB", "proportional MB")
    return Measurement.of(plan, head, rows, bars, found, lambda one: (
        (f"{idle}: CPU, {one.role}", one.cpu_share, "CPUs"),
        (f"{idle}: resident memory, {one.role}", one.resident_bytes, "B"),
    ))  # fmt: skip
