"""The experiment from its first process to its last block: two networks, every system, all rounds.

Every cluster is alive and warm through the whole study and held still when it is not its turn
(perf/cluster/turns.py); the line between the networks takes the round trip of each block.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from perf.cluster.brokers import Make
from perf.cluster.turns import Turns
from perf.pipelining import killed
from perf.pipelining.bench import FOLLOWER, Bench
from perf.pipelining.plan import (
    ALL,
    KAFKA,
    STUDY,
    Condition,
    Plan,
    conditions,
    makers,
    points,
)
from perf.pipelining.two_networks import TwoNetworks
from perf.studies import study
from perf.studies.measured import REQUEST, Measured
from perf.studies.study import Outcome, Point, Say

WARM_BLOCKS, WARM_BLOCKS_JVM = 1, 12
WARM_MODES: Final = ((ALL, 200), ("acks=1", 200), (ALL, 5))
PACE_SHARE: Final = 0.5  # of what Apache Kafka does at most


class Experiment:
    """Runs the points of a plan on clusters that take turns."""

    def __init__(self, plan: Plan, turns: Turns, networks: TwoNetworks, root: Path) -> None:
        self._turns, self._networks, self._root = turns, networks, root
        self._makers = placed(plan, networks)
        self._seconds = plan.seconds
        self._conditions = {one.key: one for one in conditions(plan)}
        self._benches: dict[str, Bench] = {}
        self._rates: dict[int, float] = {}  # of a paced block, by round trip

    def measure(self, point: Point) -> Measured:
        """One block of a point, its cluster running alone. CellError if it is void."""
        condition = self._conditions[point.key]
        if condition.section == "killed":
            home = self._root / f"killed-{condition.system}-{condition.in_flight}"
            return killed.measure(condition, self._makers[condition.system], self._networks, home)
        rate = self._rates[condition.round_trip_us] if condition.section == "paced" else 0.0
        return self._block(condition, rate)

    def _block(self, condition: Condition, rate: float = 0.0) -> Measured:
        with self._turns.alone(condition.system) as cluster:
            bench = self._benches.get(condition.system)
            if bench is None:
                bench = Bench(cluster, self._networks, self._seconds)
                self._benches[condition.system] = bench
            found = bench.run(condition, rate=rate)
            cluster.check_alive()
        return found

    def warm(self, systems: tuple[str, ...], say: Say) -> None:
        """Requests of each kind, many where a runtime compiles."""
        for system in systems:
            blocks = WARM_BLOCKS_JVM if system == KAFKA else WARM_BLOCKS
            served = 0
            for _ in range(blocks):
                for mode, in_flight in WARM_MODES:
                    condition = Condition("matrix", system, 0, mode, in_flight)
                    served += self._block(condition).requests
            say(f"{system} warm after {served:,} requests")

    def find_rates(self, plan: Plan, say: Say) -> None:
        """Half of what the first system does at most, for each round trip."""
        for round_trip_us in plan.round_trips_us:
            most = self._block(Condition("matrix", plan.systems[0], round_trip_us, ALL, 200))
            self._rates[round_trip_us] = most.requests_per_s * PACE_SHARE
            say(
                f"paced at {self._rates[round_trip_us]:,.0f}/s, {PACE_SHARE:.0%} of what"
                f" {plan.systems[0]} does at {round_trip_us} us"
            )


def placed(plan: Plan, networks: TwoNetworks) -> dict[str, Make]:
    """How each system is made, its leader near and its follower far."""
    return {
        name: partial(make, near=networks.near, far=networks.far)
        for name, make in makers(plan.slots).items()
    }


def run(plan: Plan, say: Say, journal: Path, *, fresh: bool = False) -> Outcome:
    """The whole study. What was started is ended and removed, whatever happens."""
    with (
        TemporaryDirectory(
            prefix="kbroker-pipelining-", dir=plan.directory, ignore_cleanup_errors=True
        ) as directory,
        TwoNetworks() as networks,
        Turns(plan.started, Path(directory), FOLLOWER, say, make=placed(plan, networks)) as turns,
    ):
        experiment = Experiment(plan, turns, networks, Path(directory))
        experiment.warm(plan.started, say)
        if "paced" in plan.sections:
            experiment.find_rates(plan, say)
        for round_trip_us in plan.round_trips_us:
            networks.set_round_trip(round_trip_us / 1e6)
            say(f"{round_trip_us} us asked for: {networks.round_trip_s() * 1e6:.0f} us on TCP")
        return study.run(
            STUDY,
            points(plan),
            experiment.measure,
            rounds=plan.rounds,
            directory=journal,
            say=say,
            settings={"seconds": plan.seconds},
            describe=describe,
            fresh=fresh,
        )


def describe(one: Measured) -> str:
    p99 = one.figures.get("p99_us", one.percentile_us(REQUEST, 99))
    return f"{one.megabytes_per_s:>7.1f} MB/s  p99 {p99:>9,.0f} us"
