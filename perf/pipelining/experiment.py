"""The experiment from its first process to its last block: two networks, every system, all rounds.

Every cluster is alive and warm through the whole study and held still when it is not its turn
(perf/cluster/rotation.py); the line between the networks takes the round trip of each block.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from lab import jars
from perf.cells import CellError
from perf.cluster.brokers import Make
from perf.cluster.rotation import Rotation
from perf.pipelining import diagnosis, killed, placement
from perf.pipelining.bench import FOLLOWER, Bench
from perf.pipelining.failures import void_on_failure
from perf.pipelining.pace import Pace
from perf.pipelining.plan import (
    ALL,
    KAFKA,
    STUDY,
    Condition,
    Plan,
    conditions,
    makers,
    paced_s,
    points,
    title_of,
)
from perf.pipelining.two_networks import TwoNetworks
from perf.studies import study
from perf.studies.measured import REQUEST, Measured
from perf.studies.study import Outcome, Point, Say, StudyError

WARM_BLOCKS, WARM_BLOCKS_JVM = 1, 12
FILE_NAME: Final = str.maketrans(" :,=", "____")
WARM_MODES: Final = ((ALL, 200), ("acks=1", 200), (ALL, 5))


class Experiment:
    """Runs the points of a plan on clusters that take turns."""

    def __init__(self, plan: Plan, turns: Rotation, networks: TwoNetworks, root: Path) -> None:
        self._turns, self._networks, self._root = turns, networks, root
        self._makers = placed(plan, networks)
        self._seconds = plan.seconds
        self._conditions = {one.key: one for one in conditions(plan)}
        self._benches: dict[str, Bench] = {}
        self._pace: Pace | None = None

    def measure(self, point: Point) -> Measured:
        """One block of a point, its cluster running alone. CellError if it is void."""
        condition = self._conditions[point.key]
        if condition.once:
            measure = killed.measure if condition.section == "killed" else diagnosis.measure
            home = self._root / condition.key.translate(FILE_NAME)
            return measure(condition, self._makers[condition.system], self._networks, home)
        if condition.section != "paced":
            return self._block(condition)
        if self._pace is None:
            raise CellError(f"{condition.key}: no pace")
        rate = self._pace.rate(condition.round_trip_us)
        return self._block(condition, rate, paced_s(rate, self._seconds))

    def _block(
        self, condition: Condition, rate: float = 0.0, seconds: float | None = None
    ) -> Measured:
        turn = self._turns.alone(condition.system)
        with void_on_failure(condition.key), turn as cluster:
            bench = self._benches.get(condition.system)
            if bench is None:
                bench = Bench(cluster, self._networks, self._seconds)
                self._benches[condition.system] = bench
            found = bench.run(condition, rate=rate, seconds=seconds)
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
                    try:
                        served += self._block(condition).requests
                    except CellError as error:  # its own blocks will say so, and be void
                        say(f"VOID while warming: {error}")
            say(f"{system} warm after {served:,} requests")

    @contextmanager
    def paced(self, plan: Plan, journal: Path, say: Say, *, fresh: bool) -> Iterator[None]:
        """Has the rates of the paced section meanwhile, where the plan has one."""
        if "paced" not in plan.sections:
            yield
            return
        with Pace(plan, journal, self._block, say, fresh=fresh) as self._pace:
            yield


def placed(plan: Plan, networks: TwoNetworks) -> dict[str, Make]:
    """How each system is made, its leader near and its follower far."""
    return {
        name: partial(placement.placed, make, networks.near, networks.far)
        for name, make in makers(plan.slots).items()
    }


def prepare(plan: Plan, say: Say) -> None:
    """What has to be there or be known before the first process. StudyError."""
    if "paced" in plan.sections and not plan.with_kafka:
        say(
            f"paced: Apache Kafka is not in this study; the pace is half of the rate of"
            f" {title_of(plan.paced_by)}"
        )
    if "java" not in plan.sections:
        return
    try:
        jars.KAFKA.fetch()  # from the network, which is out of reach afterwards
    except jars.JarsMissing as error:
        raise StudyError(
            f"the section java needs the producer in Apache Kafka's jars: {error}; the other"
            " sections run without them"
        ) from None


def run(plan: Plan, say: Say, journal: Path, *, fresh: bool = False) -> Outcome:
    """The whole study. Every process is ended and removed, whatever happens."""
    prepare(plan, say)
    with (
        TemporaryDirectory(
            prefix="kbroker-pipelining-", dir=plan.directory, ignore_cleanup_errors=True
        ) as directory,
        TwoNetworks() as networks,
        Rotation(
            plan.started, Path(directory), FOLLOWER, say, make=placed(plan, networks)
        ) as turns,
    ):
        experiment = Experiment(plan, turns, networks, Path(directory))
        experiment.warm(plan.started, say)
        for round_trip_us in plan.round_trips_us:
            networks.set_round_trip(round_trip_us / 1e6)
            say(f"{round_trip_us} us asked for: {networks.round_trip_s() * 1e6:.0f} us on TCP")
        with experiment.paced(plan, journal, say, fresh=fresh):
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
