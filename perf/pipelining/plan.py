"""What `kbroker perf pipelining` measures: systems, round trips, sections, and their points.

A *system* is a cluster of two brokers: Apache Kafka, kbroker whose channel serves one request at a
time (stock), and kbroker as it is (pipelined). A *section* is a table of the page. Whatever is held
against each other is measured in one group, one right after the other (perf/studies/study.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from perf.brokers.clustered import Settings
from perf.cluster.brokers import KafkaCluster, KbrokerCluster, Make
from perf.studies.study import Dim, Point

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
BATCH_RECORDS: Final = (1, 6, 25, 100)
PRODUCERS: Final = (1, 2, 4, 8, 16)
SLOTS: Final = (16, 64, 256, 1024, 4096)
PACED_IN_FLIGHT: Final = 2000  # so that nobody but the broker makes a paced request wait

ROUND_TRIP_US_MAX, IN_FLIGHT_MAX, SLOTS_MAX = 1_000_000, 10_000, 65_536
BLOCK_BESIDE_S: Final = 2.0  # around the seconds of a block: its topic, its checks
SECTION_S: Final = {"java": 8.0, "killed": 30.0}  # of a block
START_S: Final = 90.0

Section = Literal["matrix", "batches", "producers", "paced", "java", "slots", "killed"]
SECTIONS: Final[tuple[Section, ...]] = (
    "matrix", "batches", "producers", "paced", "java", "slots", "killed",
)  # fmt: skip

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
        """Whether every record says when it was sent: the order of one producer's can be told."""
        return self.producers == 1 and self.section != "java"

    @property
    def once(self) -> bool:
        return self.section == "killed"

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
        return plain and self.system == PIPELINED and self.in_flight in (5, 200)

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
    directory: Path | None = None

    @property
    def with_kafka(self) -> bool:
        return KAFKA in self.systems

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

    @property
    def started(self) -> tuple[str, ...]:
        """Every system that is started."""
        apart = tuple(map(with_slots, self.slots)) if "slots" in self.sections else ()
        return (*(self.systems if set(self.sections) - {"slots"} else ()), *apart)


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
            Condition("paced", system, round_trip_us, ALL, PACED_IN_FLIGHT)
            for round_trip_us in plan.round_trips_us
            for system in plan.systems
        ),
        "java": (Condition("java", system, MIDDLE_US, ALL) for system in plan.systems),
        "slots": (
            Condition("slots", with_slots(number), max(plan.round_trips_us), mode, max(IN_FLIGHT))
            for number in plan.slots
            for mode in (ALL, LEADER)
        ),
        "killed": (
            Condition("killed", system, MIDDLE_US, ALL, in_flight)
            for in_flight in (5, 200)
            for system in plan.systems
        ),
    }
    return [one for section in plan.sections for one in found[section]]


def points(plan: Plan) -> list[Point]:
    """The study's points."""
    return [
        Point(one.key, one.group, one.dims, null=one.null, once=one.once)
        for one in conditions(plan)
    ]


def took_about_s(plan: Plan) -> float:
    """What a run takes on two CPUs, as far as it can be said in advance."""
    every = [SECTION_S.get(one.section, plan.seconds + BLOCK_BESIDE_S) for one in conditions(plan)]
    once = sum(seconds for seconds, one in zip(every, conditions(plan), strict=True) if one.once)
    return START_S + once + plan.rounds * (sum(every) - once)
