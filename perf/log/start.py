"""A broker alone with ten thousand partitions: how soon it is ready, and what each costs in memory.

After a clean stop, which must have left its mark. Every partition holds a record, and ready is when
all of them have answered with it. Memory is what is resident once it has settled, less that of the
same broker with an empty directory, started right before; of a JVM that shows the largest size of
its heap, so the memory in use is given beside it: anonymous memory, or the live heap after a
collection.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from perf.bars import MIB
from perf.brokers import Broker
from perf.cluster.topics import create_many, write_one_each
from perf.idle import raise_file_limit
from perf.judge import Bar, value_bar
from perf.log.rounds import new_broker, order
from perf.log.starts import stop_cleanly, timed_start, until_answered
from perf.measurement import OURS, THEIRS, Measurement
from perf.process import settled_memory
from perf.requests import Topic
from perf.stats import estimate
from perf.tables import interval

NODE: Final = 1
READY_BAR_S, MEMORY_BAR_KB = 2.0, 10.0
KIB: Final = 1 << 10


@dataclass(frozen=True)
class StartPlan:
    """How much is run."""

    brokers: tuple[str, ...] = (THEIRS, OURS)
    rounds: int = 7
    partitions: int = 10_000


@dataclass(frozen=True)
class Started:
    """One start with the partitions, and one without."""

    broker: str
    round: int
    partitions: int
    ready_s: float
    cpu_s: float  # until then
    empty_s: float  # exec to the first answer, without partitions
    stop_s: float  # of the clean stop after it
    resident_bytes: int
    empty_resident_bytes: int
    held_bytes: int | None  # None: that is not known
    empty_held_bytes: int | None
    quiet: bool

    @property
    def bytes_each(self) -> float:
        """Resident, of a partition."""
        return (self.resident_bytes - self.empty_resident_bytes) / self.partitions

    @property
    def held_bytes_each(self) -> float | None:
        """Held, of a partition."""
        if self.held_bytes is None or self.empty_held_bytes is None:
            return None
        return (self.held_bytes - self.empty_held_bytes) / self.partitions

    def to_json(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "bytes_each": self.bytes_each,
            "held_bytes_each": self.held_bytes_each,
        }


class Stopped(NamedTuple):
    """Two brokers of one kind that do not run: with many partitions, and with none."""

    full: Broker
    empty: Broker
    topics: Sequence[Topic]


def _prepared(
    kind: str, root: Path, partitions: int, stack: ExitStack, say: Callable[[str], None]
) -> Stopped:
    """Both as a clean stop leaves them."""
    full, empty = (new_broker(kind, root / f"{kind}-{name}") for name in ("full", "empty"))
    for broker in (full, empty):
        stack.callback(broker.discard)
        broker.start()
    stop_cleanly(empty)
    began_s = time.monotonic()
    with full.client() as client:
        topics = create_many(client, "start", partitions, [[NODE]])
        until_answered(full, topics, 0)
        write_one_each(client, topics)
    until_answered(full, topics, 1)
    stop_cleanly(full)
    say(f"{kind}: {partitions:,} partitions made in {time.monotonic() - began_s:.1f} s")
    return Stopped(full, empty, topics)


def _started(stopped: Stopped, number: int) -> Started:
    full, empty, topics = stopped
    without = timed_start(empty, (), 0)
    empty_resident, empty_held = settled_memory(empty.pid).resident, empty.held_bytes()
    stop_cleanly(empty)
    ready = timed_start(full, topics, 1)
    resident, held = settled_memory(full.pid).resident, full.held_bytes()
    began_s = time.monotonic()
    stop_cleanly(full)
    return Started(
        full.name, number, sum(topic.partitions for topic in topics), ready.seconds, ready.cpu_s,
        without.seconds, time.monotonic() - began_s, resident, empty_resident, held, empty_held,
        ready.quiet,
    )  # fmt: skip


def measure(plan: StartPlan, root: Path, say: Callable[[str], None]) -> list[Started]:
    """A round is one start by each, without and with the partitions."""
    raise_file_limit()
    found = []
    with ExitStack() as stack:
        made = {kind: _prepared(kind, root, plan.partitions, stack, say) for kind in plan.brokers}
        for number in range(plan.rounds):
            for kind in order(plan.brokers, number):
                found.append(_started(made[kind], number))
                one = found[-1]
                say(
                    f"round {number + 1} {kind:8} ready in {one.ready_s:.2f} s"
                    f" ({one.cpu_s:.2f} s of CPU), {one.bytes_each / KIB:.1f} KB a partition;"
                    f" stopped in {one.stop_s:.1f} s"
                )
    return found


def bars(found: Sequence[Started], partitions: int) -> list[Bar]:
    """kbroker's own. Other processes do not change its memory: every value counts."""
    ours = [one for one in found if one.broker == OURS]
    of = f"{partitions:,} partitions"
    return [
        value_bar(f"start with {of} after a clean stop", READY_BAR_S, "s",
                  [(one.ready_s, one.quiet) for one in ours]),
        value_bar(f"resident memory of each of {of}", MEMORY_BAR_KB, "KB",
                  [(one.bytes_each / KIB, True) for one in ours]),
    ]  # fmt: skip


def report(found: Sequence[Started], plan: Mapping[str, Any]) -> Measurement:
    rows = []
    for kind in dict.fromkeys(one.broker for one in found):
        some = [one for one in found if one.broker == kind]
        held = [one.held_bytes_each for one in some]
        columns = (
            [one.ready_s for one in some],
            [one.cpu_s for one in some],
            [one.empty_s for one in some],
            [one.stop_s for one in some],
            [one.resident_bytes / MIB for one in some],
            [one.bytes_each / KIB for one in some],
            [each / KIB for each in held if each is not None],
        )
        rows.append([kind, *(interval(estimate(each)) for each in columns)])
    head = (
        "broker", "ready s", "CPU s", "empty s", "stop s", "resident MB", "KB each", "held KB each",
    )  # fmt: skip
    start = "start of a broker alone with {} partitions{}"
    return Measurement.of(plan, head, rows, bars(found, plan["partitions"]), found, lambda one: (
        (start.format(one.partitions, ""), one.ready_s, "s"),
        (start.format(one.partitions, ": memory of each"), one.bytes_each, "B"),
    ))  # fmt: skip
