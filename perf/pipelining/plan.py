"""What `kbroker perf pipelining` measures: systems, round trips, sections, and their points.

A *system* is a cluster of two brokers: Apache Kafka, kbroker whose channel serves one request at a
time (stock), and kbroker as it is (pipelined). A *section* is a table of the page. Whatever is held
against each other is measured in one group, one right after the other (perf/studies/study.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from perf.brokers.clustered import Settings
from perf.cluster.brokers import KafkaCluster, KbrokerCluster, Make
from perf.studies.study import Dim, Point, StudyError

STUDY: Final = "pipelining"
KAFKA, STOCK, PIPELINED = "kafka", "stock", "pipelined"
SYSTEMS: Final = (KAFKA, STOCK, PIPELINED)
TITLES: Final[Mapping[str, str]] = MappingProxyType(
    {KAFKA: "Apache Kafka", STOCK: "kbroker, stock", PIPELINED: "kbroker, pipelined"}
)

RECORD_BYTES: Final = 10_240  # the document's
ALL, LEADER, ALONE = "acks=-1", "acks=1", "RF 1"
MODES: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(  # replicas, acks
    {ALL: (2, -1), LEADER: (2, 1), ALONE: (1, 1)}
)
IN_FLIGHT: Final = (1, 5, 200, 2000)
ROUND_TRIPS_US: Final = (100, 500, 1000, 5000)
MIDDLE_US: Final = 500  # the document's, for sections that have one round trip
SHORT_US, LONG_US = min(ROUND_TRIPS_US), max(ROUND_TRIPS_US)
BATCH_RECORDS: Final = (1, 6, 25, 100)
PRODUCERS: Final = (1, 2, 4, 8, 16)
SLOTS: Final = (16, 64, 256, 1024, 4096)
KILLED_IN_FLIGHT: Final = (5, 200)
# One produce alone, leg by leg; and the document's figures 4 to 8.
DIAGNOSED: Final = ((ALL, 1), (ALL, 5), (ALL, 200), (LEADER, 200))
BARS_IN_FLIGHT: Final = (5, 200)
BARS_ROUNDS: Final = 21  # of which an interval leaves out the five at either end
PACED_IN_FLIGHT: Final = 2000  # so that only the broker makes a paced request wait

PACE_BLOCKS: Final = 3  # by whose median the paced section's rate is set
PACE_IN_FLIGHT: Final = 200  # of them
PACED_S_MAX: Final = 60.0
ABOVE_MIN: Final = 20  # requests above a percentile; with fewer it is what some happened to take
P99_REQUESTS_MIN: Final = 100 * ABOVE_MIN

ROUND_TRIP_US_MAX, IN_FLIGHT_MAX, SLOTS_MAX = 1_000_000, 10_000, 65_536
ROUNDS_MAX, LIST_MAX = 1000, 32  # rounds; entries of a list of a plan
SECONDS_MIN, SECONDS_MAX = 0.05, 600.0  # of a block

# How long a run takes, as runs on two processors took.
BLOCK_BESIDE_S: Final = 1.6  # around warming, window and drain of a block: its topic, its checks
SECTION_S: Final[Mapping[str, float]] = MappingProxyType(
    {"java": 20.0, "killed": 90.0, "diagnosis": 60.0}
)
START_S, START_KAFKA_S = 15.0, 90.0  # of a cluster, with the requests that warm it
ALONE_WORK_S, TOGETHER_WORK_S = 0.0013, 0.00015  # of one request: served alone, or beside others
REPEATED_SHARE: Final = 0.1  # of the blocks, because something else ran

Section = Literal["matrix", "diagnosis", "batches", "producers", "paced", "java", "slots", "killed"]
SECTIONS: Final[tuple[Section, ...]] = (
    "matrix", "diagnosis", "batches", "producers", "paced", "java", "slots", "killed",
)  # fmt: skip
APART: Final = ("slots", "killed", "diagnosis")  # sections with clusters of their own

# The kernel tunes every buffer: with the defaults of both (100 KB, 64 KB for a follower) a buffer
# divided by the round trip would be all that is seen at 5 ms.
EVERY: Final[Settings] = MappingProxyType(
    {
        "socket.send.buffer.bytes": -1,
        "socket.receive.buffer.bytes": -1,
        "replica.socket.receive.buffer.bytes": -1,
        "offsets.topic.replication.factor": 1,
    }
)


def makers(slots: tuple[int, ...]) -> dict[str, Make]:
    """How each system is made, by name; `slots`: of kbrokers that differ by them alone."""

    def kbroker(**settings: object) -> Make:
        given = {key.replace("_", "."): value for key, value in settings.items()}
        return partial(_make, KbrokerCluster, given)

    found: dict[str, Make] = {
        KAFKA: partial(_make, KafkaCluster, {}),
        STOCK: kbroker(channel_pipelining_enable="false"),
        PIPELINED: kbroker(),
    }
    for number in slots:
        found[with_slots(number)] = kbroker(channel_pipelining_max_requests=number)
    return found


def _make(
    kind: Make, given: Settings, directory: Path, brokers: int, *, settings: Settings, **how: Any
) -> Any:
    return kind(directory, brokers, settings={**EVERY, **given, **settings}, **how)


class PlanError(StudyError, ValueError):
    """A plan that cannot be measured; one line."""


def with_slots(number: int) -> str:
    return f"{PIPELINED}-{number}"


def title_of(system: str) -> str:
    if system in TITLES:
        return TITLES[system]
    return f"kbroker, {system.rpartition('-')[2]} slots"


@dataclass(frozen=True)
class Condition:
    """One cell of a section's table."""

    section: Section
    system: str
    round_trip_us: int
    mode: str
    in_flight: int = 5
    records: int = 1  # of a batch
    producers: int = 1

    @property
    def replicas(self) -> int:
        return MODES[self.mode][0]

    @property
    def acks(self) -> int:
        return MODES[self.mode][1]

    @property
    def stamped(self) -> bool:
        """Whether every batch has its send time and its producer: its order can be checked."""
        return self.section != "java"

    @property
    def once(self) -> bool:
        """Whether its cluster lives for it alone."""
        return self.section in ("killed", "diagnosis")

    @property
    def key(self) -> str:
        words = [
            f"{self.section}: {self.system}, {self.mode}",
            f"{self.round_trip_us} us",
            f"{self.in_flight} in flight",
        ]
        if self.records > 1:
            words.append(f"{self.records} records")
        if self.producers > 1:
            words.append(f"{self.producers} producers")
        return ", ".join(words)

    @property
    def work(self) -> str:
        """The same for every system."""
        return self.key.replace(f"{self.system}, ", "", 1)

    @property
    def group(self) -> str:
        """All systems and modes of one work together."""
        return (
            f"{self.section}-{self.round_trip_us}-{self.in_flight}-{self.records}-{self.producers}"
        )

    @property
    def null(self) -> bool:
        """Whether a null test is made of it."""
        plain = self.section == "matrix" and self.round_trip_us == MIDDLE_US
        ours = self.system == PIPELINED and self.mode == ALL
        return plain and ours and self.in_flight in BARS_IN_FLIGHT

    @property
    def bears_a_bar(self) -> bool:
        """Whether one of the bars (`bars`) would not be measured without it."""
        if self.section == "killed":
            return self.system == PIPELINED
        if self.section in ("java", "paced"):
            return self.system in (KAFKA, PIPELINED)
        if self.section != "matrix" or self.in_flight not in BARS_IN_FLIGHT:
            return False
        if self.round_trip_us == MIDDLE_US:
            return self.mode == ALL or self.system != KAFKA
        if self.round_trip_us == SHORT_US:
            return self.mode == ALL and self.system != STOCK
        own = self.system == PIPELINED and self.mode in (ALL, LEADER)
        return self.round_trip_us == LONG_US and self.in_flight == max(BARS_IN_FLIGHT) and own

    @property
    def dims(self) -> dict[str, Dim]:
        """As columns of perf.results_table."""
        return {
            "cell": self.work,
            "work": "produce",
            "broker": KAFKA if self.system == KAFKA else "kbroker",
            "knob": "channel.pipelining",
            "knob_value": self.system,
            "acks": self.acks,
            "replicas": self.replicas,
            "round_trip_us": self.round_trip_us,
            "in_flight": self.in_flight,
            "size_bytes": RECORD_BYTES,
            "batch_bytes": RECORD_BYTES * self.records if self.records > 1 else 0,
            "connections": self.producers,
            "partitions": 1,
            "codec": "none",
            "path": "java" if self.section == "java" else "plain",
            "baseline": self.system == KAFKA,
        }


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    systems: tuple[str, ...] = SYSTEMS
    sections: tuple[str, ...] = SECTIONS
    round_trips_us: tuple[int, ...] = ROUND_TRIPS_US
    in_flight: tuple[int, ...] = IN_FLIGHT
    slots: tuple[int, ...] = SLOTS
    rounds: int = 7
    seconds: float = 1.0
    bars_alone: bool = False  # nothing but what a bar needs
    directory: Path | None = None

    def __post_init__(self) -> None:
        """PlanError. A plan may come from a file, which may hold anything."""
        _check_names("systems", self.systems, SYSTEMS)
        _check_names("sections", self.sections, SECTIONS)
        _check_numbers("round_trips_us", self.round_trips_us, ROUND_TRIP_US_MAX)
        _check_numbers("in_flight", self.in_flight, IN_FLIGHT_MAX)
        _check_numbers("slots", self.slots, SLOTS_MAX)
        if type(self.rounds) is not int or not 1 <= self.rounds <= ROUNDS_MAX:
            raise PlanError(f"the plan's rounds: from 1 to {ROUNDS_MAX:,}")
        if not math.isfinite(self.seconds) or not SECONDS_MIN <= self.seconds <= SECONDS_MAX:
            raise PlanError(f"the plan's seconds: from {SECONDS_MIN:g} to {SECONDS_MAX:g}")

    @property
    def with_kafka(self) -> bool:
        return KAFKA in self.systems

    @property
    def paced_by(self) -> str:
        """The system of whose most the paced section has half: Apache Kafka where it is there."""
        return KAFKA if self.with_kafka else self.systems[0]

    @classmethod
    def quick(cls, **changes: Any) -> Plan:
        """A look at one round trip: three rounds, which decide nothing."""
        base = cls(
            sections=("matrix", "paced"),
            round_trips_us=(MIDDLE_US,),
            in_flight=(5, 200),
            rounds=3,
            seconds=0.5,
        )
        return replace(base, **changes)

    @classmethod
    def of_bars(cls, **changes: Any) -> Plan:
        """What the bars need and no more, in so many rounds that most of them are decided."""
        base = cls(
            sections=("matrix", "paced", "java"),
            round_trips_us=(SHORT_US, MIDDLE_US, LONG_US),
            in_flight=BARS_IN_FLIGHT,
            rounds=BARS_ROUNDS,
            bars_alone=True,
        )
        return replace(base, **changes)

    @property
    def started(self) -> tuple[str, ...]:
        """Every system that lives through the study."""
        apart = tuple(map(with_slots, self.slots)) if "slots" in self.sections else ()
        together = set(self.sections) - set(APART)
        return (*(self.systems if together else ()), *apart)


def _check_names(what: str, given: Sequence[object], known: Sequence[str]) -> None:
    good = all(isinstance(one, str) and one in known for one in given)
    if not given or not good or len(set(given)) != len(given):
        raise PlanError(f"the plan's {what}: of {', '.join(known)}, each once")


def _check_numbers(what: str, given: Sequence[object], most: int) -> None:
    good = all(type(one) is int and 1 <= one <= most for one in given)
    if not 1 <= len(given) <= LIST_MAX or not good or len(set(given)) != len(given):
        raise PlanError(f"the plan's {what}: 1 to {LIST_MAX} numbers from 1 to {most:,}, each once")


def conditions(plan: Plan) -> list[Condition]:
    """All cells in the order of the groups."""
    found: dict[str, Iterator[Condition]] = {
        "matrix": (
            Condition("matrix", system, round_trip_us, mode, in_flight)
            for round_trip_us in plan.round_trips_us
            for in_flight in plan.in_flight
            for mode in MODES
            for system in plan.systems
        ),
        "diagnosis": (
            Condition("diagnosis", system, MIDDLE_US, mode, in_flight)
            for mode, in_flight in DIAGNOSED
            for system in plan.systems
        ),
        "batches": (
            Condition("batches", system, MIDDLE_US, mode, records=records)
            for records in BATCH_RECORDS
            for mode in (ALL, LEADER)
            for system in plan.systems
        ),
        "producers": (
            Condition("producers", system, MIDDLE_US, mode, producers=producers)
            for producers in PRODUCERS
            for mode in (ALL, LEADER)
            for system in plan.systems
        ),
        "paced": (
            Condition("paced", system, MIDDLE_US, ALL, PACED_IN_FLIGHT) for system in plan.systems
        ),
        "java": (Condition("java", system, MIDDLE_US, ALL) for system in plan.systems),
        "slots": (
            Condition("slots", with_slots(number), max(plan.round_trips_us), mode, max(IN_FLIGHT))
            for number in plan.slots
            for mode in (ALL, LEADER)
        ),
        "killed": (
            Condition("killed", system, MIDDLE_US, ALL, in_flight)
            for in_flight in KILLED_IN_FLIGHT
            for system in plan.systems
        ),
    }
    every = (one for section in plan.sections for one in found[section])
    return [one for one in every if one.bears_a_bar or not plan.bars_alone]


def points(plan: Plan) -> list[Point]:
    """The study's points."""
    return [
        Point(one.key, one.group, one.dims, null=one.null, once=one.once)
        for one in conditions(plan)
    ]


def paced_s(rate: float, seconds: float) -> float:
    """How long a paced block lasts: at least so long, and until its p99 says something."""
    needed_s = 1.02 * P99_REQUESTS_MIN / rate  # a little more: the window's edges cut some off
    return max(seconds, min(PACED_S_MAX, needed_s))


def took_about_s(plan: Plan) -> float:
    """What a run takes on two CPUs, as far as it can be said in advance."""
    found = sum(START_KAFKA_S if name == KAFKA else START_S for name in plan.started)
    if "paced" in plan.sections:
        found += PACE_BLOCKS * _block_s(paced_after(plan.paced_by, MIDDLE_US), plan.seconds)
    for one in conditions(plan):
        blocks = 1.0 if one.once else plan.rounds * (1 + REPEATED_SHARE) * (2 if one.null else 1)
        found += blocks * _block_s(one, plan.seconds)
    return found


def paced_after(system: str, round_trip_us: int) -> Condition:
    """What half is taken of: the most that a system does."""
    return Condition("matrix", system, round_trip_us, ALL, PACE_IN_FLIGHT)


def _block_s(one: Condition, seconds: float) -> float:
    if one.section in SECTION_S:
        return SECTION_S[one.section]
    waits_s = one.round_trip_us / 1e6 + ALONE_WORK_S
    if one.section == "paced":
        return BLOCK_BESIDE_S + paced_s(0.5 / waits_s, seconds)
    if one.acks == -1 and one.system in (KAFKA, STOCK):
        turn_s = one.in_flight * waits_s
    else:
        turn_s = one.in_flight * one.producers * TOGETHER_WORK_S
    return BLOCK_BESIDE_S + seconds + 2 * turn_s  # one to warm, one to drain
