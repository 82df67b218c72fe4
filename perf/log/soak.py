"""A broker for an hour at half of its load: does anything grow, does anything become slower?

A third of the topics keeps so many bytes, a third so many seconds, a third is compacted. Small
requests go to the first two kinds, from as many connections as topics, acks=1, and consumers follow
them; keyed records and tombstones go to the third, and groups read them; members of other groups
commit all the time. How fast that goes without a limit is measured first; then it goes on at half
of that. Segments are so small and retention so short that everything has come and gone
several times within the first sixth.

Each window (a minute) has a histogram of its own. The second sixth is what the last is held
against: the p99 of a produce window by window, and what the broker takes of the disk, of memory,
descriptors and maps by the mean of before. Every record is looked for: by its offset as it is
acknowledged, by the consumer that follows, and at the end by the value of each key.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from perf import batch, members, requests
from perf._load import LoadError
from perf.brokers import Broker
from perf.cells import MEGABYTE, PLAIN_FETCH, PLAIN_PRODUCE, CellError
from perf.client import Client
from perf.histogram import Histogram
from perf.judge import Bar, value_bar
from perf.load_thread import LoadThread
from perf.log.keyed_traffic import KeyedTraffic
from perf.log.rounds import new_broker
from perf.measurement import OURS, Figure, Measurement, noisy
from perf.process import Watch, cpu_ns, memory, threads
from perf.requests import Topic
from perf.spec import Partition, Run, Stream

RECORD_BYTES: Final = 100
IN_FLIGHT: Final = 5
SEGMENT_BYTES: Final = 8 << 20
KEPT_BYTES: Final = 32 << 20
KEPT_MS: Final = 60_000
COMPACTED_SEGMENT_BYTES: Final = 1 << 20
KEYED_RATE: Final = 1_000.0  # of all compacted topics together
GROUPS: Final = 4  # that read them
COMMITTERS: Final = 8
COMMIT_RATE: Final = 200.0
HEARTBEAT_RATE: Final = 4.0
SAMPLE_S: Final = 5.0
P99_BAR: Final = 1.2
FLAT_BAR: Final = 1.05  # "flat", with the saw's teeth that retention has
SETTINGS: Final = (
    "log.retention.check.interval.ms=10000", "log.cleaner.backoff.ms=5000",
    "log.initial.task.delay.ms=0", "offsets.topic.segment.bytes=1048576",
)  # fmt: skip
BLOCK_BYTES: Final = 512  # of st_blocks: stat(2)


@dataclass(frozen=True)
class SoakPlan:
    """How much is run."""

    brokers: tuple[str, ...] = (OURS,)
    minutes: int = 60
    topics: int = 24
    load: float = 0.5
    window_s: float = 60.0  # a "minute"

    @property
    def sixth(self) -> int:
        """Windows in a sixth of it."""
        return self.minutes // 6


@dataclass(frozen=True)
class Taken:
    """What a process takes of its machine at one moment."""

    disk_bytes: float
    memory_bytes: float
    descriptors: float
    maps: float
    threads: float


@dataclass(frozen=True)
class Minute:
    """One window: latency from when a request was meant to be sent, and means of the samples."""

    broker: str
    number: int
    requests_per_s: float
    cpu_s: float
    p50_us: float
    p99_us: float
    p999_us: float
    taken: Taken
    quiet: bool

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "taken": dict(self.taken.__dict__)}


def disk_bytes(directory: Path) -> int:
    """What the files below take, as the file system has it; a file that goes meanwhile is gone."""
    total = 0
    for place, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(place, name)).st_blocks * BLOCK_BYTES
            except FileNotFoundError:
                continue
    return total


def taken(broker: Broker) -> Taken:
    process = Path(f"/proc/{broker.pid}")
    return Taken(
        disk_bytes(broker.directory / "data"),
        memory(broker.pid).anonymous,
        len(os.listdir(process / "fd")),
        (process / "maps").read_bytes().count(b"\n"),
        threads(broker.pid),
    )


def mean(found: Sequence[Taken]) -> Taken:
    return Taken(*(fmean(one.__dict__[name] for one in found) for name in Taken.__annotations__))


class Soak:
    """One broker under the mix."""

    def __init__(self, broker: Broker, plan: SoakPlan, client: Client) -> None:
        self._broker, self._plan, self._client = broker, plan, client
        third = plan.topics // 3
        segments = {"segment.bytes": str(SEGMENT_BYTES)}
        by_bytes = {"retention.bytes": str(KEPT_BYTES), "retention.ms": "-1", **segments}
        by_time = {"retention.ms": str(KEPT_MS), **segments}
        compacted = {
            "cleanup.policy": "compact", "segment.bytes": str(COMPACTED_SEGMENT_BYTES),
            "min.cleanable.dirty.ratio": "0.2", "delete.retention.ms": str(KEPT_MS),
        }  # fmt: skip
        self._retained = [
            *(client.create_topic(f"bytes-{n}", 1, by_bytes) for n in range(third)),
            *(client.create_topic(f"time-{n}", 1, by_time) for n in range(third)),
        ]
        names = [client.create_topic(f"keys-{n}", 1, compacted).name for n in range(third)]
        self.keyed = KeyedTraffic(broker.address, names, KEYED_RATE, GROUPS)
        self._committers = [members.join(client, f"commits-{n}") for n in range(COMMITTERS)]
        self._acknowledged = 0

    def _end(self, topic: Topic) -> int:
        return sum(self._client.offsets(topic))

    def _streams(self, rate: float) -> tuple[Stream, ...]:
        body = batch.of_records(RECORD_BYTES, timestamp_ms=time.time_ns() // 1_000_000)
        ends = [self._end(topic) for topic in self._retained]
        produced = tuple(
            requests.produce(
                PLAIN_PRODUCE, topic, [(Partition(0, expected_offset=end), body)], acks=1
            )
            for topic, end in zip(self._retained, ends, strict=True)
        )
        followed = tuple(
            requests.fetch(PLAIN_FETCH, topic, [Partition(0, fetch_offset=end)])
            for topic, end in zip(self._retained, ends, strict=True)
        )
        alive = tuple(map(members.heartbeat, self._committers))
        commits = tuple(members.commit(one, self._retained[0], 0) for one in self._committers)
        return (
            Stream("produce", PLAIN_PRODUCE, produced, in_flight=IN_FLIGHT, rate=rate),
            Stream("fetch", PLAIN_FETCH, followed, tail=True),
            Stream("repeat", members.HEARTBEAT_VERSION, alive, rate=HEARTBEAT_RATE),
            Stream("repeat", members.COMMIT_VERSION, commits, rate=COMMIT_RATE),
        )

    def minute(self, number: int, rate: float) -> Minute:
        """One window at so many requests a second; 0: as many as go. CellError."""
        broker, plan = self._broker, self._plan
        spec = Run(broker.host, broker.port, self._streams(rate), warm_s=0, window_s=plan.window_s)
        watch, spent_ns = Watch([os.getpid(), broker.pid]), cpu_ns(broker.pid)
        load, samples = LoadThread(spec), []
        load.start()
        over_s = time.monotonic() + plan.window_s
        while (left_s := over_s - time.monotonic()) > 0:
            time.sleep(min(left_s, SAMPLE_S))  # samples are at times, not after events
            samples.append(taken(broker))
        try:
            found = load.join()
        except LoadError as error:
            raise CellError(f"minute {number} on {broker.name}: {error}") from error
        for stream in found["streams"]:
            if stream["errors"]:
                raise CellError(f"minute {number}: error code {stream['first_error']}")
        self.keyed.check_going()
        produced = found["streams"][0]
        self._acknowledged += produced["records_all"]
        if (held := sum(map(self._end, self._retained))) != self._acknowledged:
            raise CellError(f"{self._acknowledged} records were acknowledged, there are {held}")
        latency = Histogram.from_native(produced["latency"])
        p50_us, p99_us, p999_us = (latency.percentile(each) / 1e3 for each in (50, 99, 99.9))
        return Minute(
            broker.name, number, produced["requests"] / found["wall_ns"] * 1e9,
            (cpu_ns(broker.pid) - spent_ns) / 1e9, p50_us, p99_us, p999_us, mean(samples),
            watch.guard().quiet,
        )  # fmt: skip


def _soaked(kind: str, plan: SoakPlan, root: Path, say: Callable[[str], None]) -> list[Minute]:
    found = []
    broker = new_broker(kind, root / kind, SETTINGS)
    with ExitStack() as stack:
        stack.callback(broker.discard)
        broker.start()
        soak = Soak(broker, plan, stack.enter_context(broker.client()))
        stack.callback(soak.keyed.stop)
        soak.keyed.start()
        fastest = soak.minute(0, 0).requests_per_s
        say(f"{kind}: {fastest:,.0f} requests/s at the most; {plan.load:.0%} of it from now on")
        for number in range(plan.minutes):
            one = soak.minute(number + 1, fastest * plan.load)
            found.append(one)
            say(
                f"{number + 1:3} {kind:8} {one.requests_per_s:,.0f}/s, p99 {one.p99_us:,.0f} us,"
                f" {one.taken.disk_bytes / MEGABYTE:,.0f} MB of disk,"
                f" {one.taken.memory_bytes / MEGABYTE:,.1f} of memory,"
                f" {one.taken.descriptors:.0f} descriptors, {one.taken.maps:.0f} maps"
                + ("" if one.quiet else ", noisy")
            )
        say(f"{kind}: {soak.keyed.end():,} keyed records, each key's last value is there")
    return found


def measure(plan: SoakPlan, root: Path, say: Callable[[str], None]) -> list[Minute]:
    """One broker after the other."""
    return [one for kind in plan.brokers for one in _soaked(kind, plan, root, say)]


def _sixth(found: Sequence[Minute], plan: SoakPlan, broker: str, number: int) -> list[Minute]:
    """Of one broker's minutes, counted from 0."""
    own = [one for one in found if one.broker == broker]
    return own[number * plan.sixth : (number + 1) * plan.sixth]


def _slower(second: Sequence[Minute], last: Sequence[Minute]) -> list[tuple[float, bool]]:
    """The p99 of each window by that of one before, and whether both were quiet."""
    return [
        (late.p99_us / early.p99_us, early.quiet and late.quiet)
        for early, late in zip(second, last, strict=True)
    ]


def _grown(
    second: Sequence[Minute], last: Sequence[Minute], figure: Callable[[Minute], float]
) -> list[tuple[float, bool]]:
    """Each window by the mean of those before, since the figure goes up and down like a saw. It
    counts whatever else runs."""
    return [(figure(late) / fmean(map(figure, second)), True) for late in last] if second else []


def bars(found: Sequence[Minute], plan: SoakPlan) -> list[Bar]:
    """Of kbroker: what else ran changes how long an answer takes, not what is held."""
    unit = "x the second sixth"
    held: dict[str, Callable[[Minute], float]] = {
        "disk": lambda one: one.taken.disk_bytes,
        "memory": lambda one: one.taken.memory_bytes,
        "descriptors": lambda one: one.taken.descriptors,
        "maps": lambda one: one.taken.maps,
    }
    second, last = (_sixth(found, plan, OURS, number) for number in (1, 5))
    return [
        value_bar("p99 of produce, last sixth", P99_BAR, unit, _slower(second, last)),
        *(
            value_bar(f"{name}, last sixth", FLAT_BAR, unit, _grown(second, last, figure))
            for name, figure in held.items()
        ),
    ]


def report(found: Sequence[Minute], plan: SoakPlan) -> Measurement:
    rows = []
    for kind in dict.fromkeys(one.broker for one in found):
        for sixth in range(6):
            some = _sixth(found, plan, kind, sixth)
            whole = mean([one.taken for one in some])
            rows.append(
                [
                    kind, str(sixth + 1),
                    *(
                        f"{fmean(one.__dict__[name] for one in some):,.0f}"
                        for name in ("requests_per_s", "p50_us", "p99_us", "p999_us")
                    ),
                    f"{sum(one.cpu_s for one in some) / len(some) / plan.window_s:.2f}",
                    f"{whole.disk_bytes / MEGABYTE:,.0f}", f"{whole.memory_bytes / MEGABYTE:,.1f}",
                    f"{whole.descriptors:,.0f}", f"{whole.maps:,.0f}", f"{whole.threads:,.0f}",
                ]
            )  # fmt: skip
    figures = [
        Figure(f"soak, {name}", value, unit,
               {"broker": one.broker, "round": one.number, "quiet": one.quiet})
        for one in found
        for name, value, unit in (
            ("p99", one.p99_us, "us"), ("disk", one.taken.disk_bytes, "bytes"),
            ("memory", one.taken.memory_bytes, "bytes"),
        )
    ]  # fmt: skip
    head = (
        "broker", "sixth", "req/s", "p50 us", "p99 us", "p99.9 us", "CPUs", "disk MB",
        "memory MB", "descriptors", "maps", "threads",
    )  # fmt: skip
    return Measurement(
        dict(plan.__dict__), head, rows, bars(found, plan), [one.to_json() for one in found],
        figures, noisy([one.quiet for one in found]),
    )  # fmt: skip
