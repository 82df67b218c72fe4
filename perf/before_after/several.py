"""Stages of a cluster of each build: what `perf cluster` measures, old build beside new build.

Both clusters live through the rounds, one of them held still (perf/cluster/rotation.py). `KINDS`
says of each kind of measurement how its clusters are prepared and what one block of it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

from perf.before_after.driver import NEW, OLD, Say
from perf.before_after.lines import (
    CPU_HALF_BAND_MAX,
    P99_HALF_BAND_MAX,
    Line,
    Taken,
    of_requests,
    of_value,
)
from perf.brokers.clustered import Settings
from perf.cluster import catch_up, failover, idle_followers, rebalance, shared_load, start_many
from perf.cluster.brokers import NO_SETTINGS, Cluster, KbrokerCluster, Make
from perf.cluster.departures import Departures
from perf.cluster.rotation import SETTLE_S, Rotation
from perf.cluster.shared_load import SharedBench
from perf.idle import raise_file_limit

REST_S: Final = 2.0  # of followers that were held still, before they are looked at
SESSION_SETTLE_S: Final = failover.SESSION_MS / 1000 + 1


class Sizes(NamedTuple):
    """How large each kind is; tests take less."""

    seconds: float = 2.0  # of a block of requests, of load
    gigabytes: float = 1.0  # to catch up
    failover_partitions: int = 1000
    start_partitions: int = 10_000
    idle_partitions: int = 1000
    idle_s: float = 10.0


class Kind(NamedTuple):
    """Cells that share clusters. `prepare` is called once for each cluster; what it returns comes
    back to `block`, with the cell, the number of the round and a number that no other block has."""

    lines: tuple[Line, ...]
    brokers: int
    prepare: Callable[[Cluster], Any]
    block: Callable[[Cluster, Any, str, int, int], Taken]
    settings: Settings = NO_SETTINGS
    settle_s: float = SETTLE_S


class Clusters:
    """A stage of one kind."""

    def __init__(self, kind: Kind, root: Path, old: Path, say: Say) -> None:
        self.lines: Sequence[Line] = kind.lines
        self._kind = kind
        make: dict[str, Make] = {NEW: KbrokerCluster, OLD: partial(KbrokerCluster, checkout=old)}
        self._turns = Rotation(
            tuple(make), root / kind.lines[0].cell, kind.brokers, say, make=make,
            settings=dict.fromkeys(make, kind.settings), settle_s=kind.settle_s,
        )  # fmt: skip
        self._prepared: dict[str, Any] = {}
        self._serial = 0

    def measure(self, cell: str, build: str, number: int) -> Taken:
        self._serial += 1
        with self._turns.alone(build) as cluster:
            if build not in self._prepared:
                self._prepared[build] = self._kind.prepare(cluster)
            return self._kind.block(cluster, self._prepared[build], cell, number, self._serial)

    def __enter__(self) -> Self:
        self._turns.__enter__()
        return self

    def __exit__(self, *ended: object) -> None:
        self._turns.__exit__(*ended)


def _shared(sizes: Sizes, cells: Sequence[str]) -> Kind:
    def block(_cluster: Cluster, bench: SharedBench, cell: str, number: int, _serial: int) -> Taken:
        one = bench.run(shared_load.BY_KEY[cell]).block
        return Taken(
            number,
            one.quiet,
            {
                "cpu_us": one.cpu_us_per_request,
                "requests_per_s": one.requests_per_s,
                "p99_us": one.percentile_us(99),
            },
        )

    lines = tuple(
        of_requests(f"leader and follower, {shared_load.BY_KEY[cell].title}", cell)
        for cell in cells
    )
    return Kind(lines, 2, partial(_warmed, seconds=sizes.seconds), block)


def _warmed(cluster: Cluster, seconds: float) -> SharedBench:
    SharedBench(cluster, shared_load.WARM_BLOCK_S).run(shared_load.CELLS[0])
    return SharedBench(cluster, seconds)


def _catch_up(sizes: Sizes, _cells: Sequence[str]) -> Kind:
    plan = catch_up.CatchUpPlan(rounds=1, gigabytes=sizes.gigabytes)

    def block(cluster: Cluster, _nothing: None, _cell: str, number: int, serial: int) -> Taken:
        one = catch_up.caught_up(cluster, plan, serial)
        return Taken(number, one.quiet, {"seconds": one.seconds, "p99_us": one.beside.p99_us})

    return Kind(
        (
            of_value("catching up, seconds", "catch-up", "seconds", P99_HALF_BAND_MAX),
            of_value("catching up, p99 beside it", "catch-up", "p99_us", P99_HALF_BAND_MAX),
        ),
        2, lambda _cluster: None, block,
    )  # fmt: skip


def _failover(sizes: Sizes, _cells: Sequence[str]) -> Kind:
    partitions = sizes.failover_partitions

    def block(cluster: Cluster, _nothing: None, _cell: str, number: int, _serial: int) -> Taken:
        failover.wait_balanced(cluster, partitions)
        with closing(Departures(cluster.meeting.address)) as departures:
            # The controller or another one: the same in all blocks of a round.
            one = failover.kill(cluster, departures, number, partitions)
        cluster.restart(one.killed)
        return Taken(number, one.quiet, {"moved_s": one.moved_s})

    return Kind(
        (of_value("failover, noticed to all moved", "failover", "moved_s", P99_HALF_BAND_MAX),),
        len(failover.NODES), partial(failover.fill, partitions=partitions), block,
        {"zookeeper.session.timeout.ms": failover.SESSION_MS}, SESSION_SETTLE_S,
    )  # fmt: skip


def _start_many(sizes: Sizes, _cells: Sequence[str]) -> Kind:
    partitions = sizes.start_partitions

    def prepare(cluster: Cluster) -> None:
        raise_file_limit()
        start_many.fill(cluster, partitions, lambda _text: None)

    def block(cluster: Cluster, _nothing: None, _cell: str, number: int, _serial: int) -> Taken:
        cluster.nodes[start_many.NODE].stop()
        one = start_many.started(cluster, number, start_many.STOPPED, partitions)
        resident_mb = one.resident_bytes / (1 << 20)
        values = {"led_s": one.led_s, "cpu_s": one.cpu_s, "resident_mb": resident_mb}
        return Taken(number, one.quiet, values)

    of = f"start with {partitions:,} partitions"
    return Kind(
        (
            of_value(f"{of}, s", "start-many", "led_s", P99_HALF_BAND_MAX),
            of_value(f"{of}, CPU s", "start-many", "cpu_s", CPU_HALF_BAND_MAX),
            of_value(f"{of}, resident MB", "start-many", "resident_mb", CPU_HALF_BAND_MAX),
        ),
        1, prepare, block,
    )  # fmt: skip


def _idle(sizes: Sizes, _cells: Sequence[str]) -> Kind:
    def block(cluster: Cluster, _topics: None, _cell: str, number: int, _serial: int) -> Taken:
        time.sleep(REST_S)
        found = idle_followers.window(cluster, number, sizes.idle_s)
        (one,) = [one for one in found if one.role == "follower"]
        values = {"cpu": one.cpu_share, "resident_mb": one.resident_bytes / (1 << 20)}
        return Taken(number, one.quiet, values)

    of = f"follower of {sizes.idle_partitions:,} idle partitions"
    return Kind(
        (
            of_value(f"{of}, CPU", "idle-followers", "cpu", CPU_HALF_BAND_MAX),
            of_value(f"{of}, resident MB", "idle-followers", "resident_mb", CPU_HALF_BAND_MAX),
        ),
        2, partial(idle_followers.fill, partitions=sizes.idle_partitions), block,
    )  # fmt: skip


def _rebalance(sizes: Sizes, _cells: Sequence[str]) -> Kind:
    plan = rebalance.RebalancePlan(rounds=1, seconds=sizes.seconds)

    def block(cluster: Cluster, topics: Any, _cell: str, number: int, _serial: int) -> Taken:
        one = rebalance.loaded(cluster, topics, plan, rebalance.ON, number)
        values = {"back_s": one.back_s or 0.0, "p99_us": one.p99_us}
        return Taken(number, one.quiet, {**values, "cpu": sum(one.cpu_shares.values())})

    return Kind(
        (
            of_value("preferred leaders back, s", "rebalance", "back_s", None),
            of_value("CPU of both after a return", "rebalance", "cpu", CPU_HALF_BAND_MAX),
            of_value("p99 after a return", "rebalance", "p99_us", P99_HALF_BAND_MAX),
        ),
        2, partial(rebalance.made, partitions=plan.partitions), block,
        rebalance.settings(rebalance.ON),
    )  # fmt: skip


# By the cells of each: which of them are asked for comes with it.
KINDS: Final[Mapping[tuple[str, ...], Callable[[Sizes, Sequence[str]], Kind]]] = MappingProxyType(
    {
        tuple(shared_load.BY_KEY): _shared,
        ("catch-up",): _catch_up,
        ("failover",): _failover,
        ("start-many",): _start_many,
        ("idle-followers",): _idle,
        ("rebalance",): _rebalance,
    }
)
CELLS: Final = tuple(cell for cells in KINDS for cell in cells)


def stages(cells: Sequence[str], sizes: Sizes, root: Path, old: Path, say: Say) -> list[Clusters]:
    """Of these cells, one for each kind that has any."""
    found = []
    for of_kind, made in KINDS.items():
        if wanted := [cell for cell in of_kind if cell in cells]:
            found.append(Clusters(made(sizes, wanted), root, old, say))
    return found
