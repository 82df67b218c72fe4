"""The cost of transactions for a broker that has none: an old build beside this one.

`kbroker perf before-after` says whether starts and requests are slower. Here the same starts are
compared by the resident memory that is added, once it has settled, and by the modules that are
added. Each module that the old build does not import is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perf.before_after.driver import BUILDS, NEW
from perf.before_after.starts import MIB, Started, Starts
from perf.judge import Bar, value_bar
from perf.log.rounds import order
from perf.measurement import Measurement
from perf.stats import estimate
from perf.tables import interval

MEMORY_BAR_MB, MODULES_BAR = 0.3, 0.0


@dataclass(frozen=True)
class UnusedPlan:
    """How much is run. `baseline`: a checkout that was built."""

    baseline: Path
    rounds: int = 6
    brokers: tuple[str, ...] = ()  # no other kind of broker, and no jars

    def to_json(self) -> dict[str, Any]:
        return {"baseline": str(self.baseline), "rounds": self.rounds}


@dataclass(frozen=True)
class Idle:
    """One start of one build."""

    broker: str
    round: int
    started: Started

    @property
    def quiet(self) -> bool:
        return self.started.quiet

    @property
    def resident_mb(self) -> float:
        return self.started.resident_bytes / MIB

    def to_json(self) -> dict[str, Any]:
        names = sorted(self.started.modules)
        return {"broker": self.broker, "round": self.round, **self.started._asdict(),
                "modules": names}  # fmt: skip


def measure(plan: UnusedPlan, root: Path, say: Callable[[str], None]) -> list[Idle]:
    """A round is one start of each build."""
    starts = Starts(root, plan.baseline)
    found = []
    for number in range(plan.rounds):
        for build in order(BUILDS, number):
            one = Idle(build, number, starts.start(build))
            found.append(one)
            say(
                f"round {number + 1} {build:8} {one.started.start_s:.3f} s,"
                f" {one.resident_mb:.2f} MB, {len(one.started.modules)} modules"
            )
    return found


def _pairs(found: Sequence[Idle]) -> list[tuple[Started, Started]]:
    """New and old, by round."""
    new, old = (
        {one.round: one.started for one in found if one.broker == build} for build in BUILDS
    )
    return [(new[number], old[number]) for number in new if number in old]


def _added(found: Sequence[Idle]) -> list[str]:
    """Modules that the old build never imports."""
    pairs = _pairs(found)
    return sorted({name for new, old in pairs for name in new.modules - old.modules})


def bars(found: Sequence[Idle]) -> list[Bar]:
    """Other processes change neither memory nor imports: every value counts."""
    pairs = _pairs(found)
    more = [(new.resident_bytes - old.resident_bytes) / MIB for new, old in pairs]
    modules = [float(len(new.modules) - len(old.modules)) for new, old in pairs]
    return [
        value_bar("resident memory more than before", MEMORY_BAR_MB, "MB",
                  [(each, True) for each in more]),
        value_bar("modules more than before", MODULES_BAR, "", [(each, True) for each in modules]),
    ]  # fmt: skip


def report(found: Sequence[Idle], plan: Mapping[str, Any]) -> Measurement:
    rows = []
    for build in dict.fromkeys(one.broker for one in found):
        some = [one for one in found if one.broker == build]
        columns = (
            [one.started.start_s for one in some],
            [one.resident_mb for one in some],
            [float(len(one.started.modules)) for one in some],
        )
        rows.append([build, *(interval(estimate(each)) for each in columns)])
    head = ("build", "start s", "resident MB", "modules")
    remarks = [f"the old build: {plan['baseline']}"]
    if added := _added(found):
        remarks.append(f"imported by {NEW} alone: {', '.join(added)}")
    return Measurement.of(plan, head, rows, bars(found), found, lambda one: (
        ("start without transactions", one.started.start_s, "s"),
        ("resident memory without transactions", one.resident_mb, "MB"),
        ("modules without transactions", float(len(one.started.modules)), ""),
    ), remarks)  # fmt: skip
