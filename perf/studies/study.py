"""The loop of a study: points measured in rounds, journalled, with the time left on every line.

A *point* is one piece of work under one condition: a cell on a broker, a value of a setting. Points
of one *group* are held against each other, so they are measured one right after the other, in an
order that reverses from round to round; a ratio is then taken inside a round (perf.judge). A point
marked `null` is measured twice in a row: the null test.

A block beside which something else ran is repeated once, and the second is what counts, noisy or
not. No more than a tenth of the blocks is: on a busy machine a study takes as long as on a quiet
one, and says "no result".

Every block goes into the journal before the next begins, so the same command goes on where it was
cut; a group of which only a part was measured is measured again whole, since its blocks belong
together. A block that is void (the broker lost, reordered or refused) is kept as a fault and not
tried again: a study must not hide it. Several void blocks in a row end the study.

`run` gives data; each study asks its own questions of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perf.cells import CellError
from perf.machine import describe_machine
from perf.studies.journal import Journal, JournalError
from perf.studies.measured import Measured, Metric

VOID_IN_A_ROW_MAX = 5
REPEATED_SHARE_MAX, REPEATED_MIN = 0.1, 10  # of all blocks: more does not help a noisy machine
POINTS_MAX = 10_000
BLOCK_S_MAX = 86_400.0  # that a journal may say of a block
MACHINE_KEYS = ("cpus", "model", "kernel", "python", "commit")  # what a journal is bound to

Say = Callable[[str], None]
Measure = Callable[["Point"], Measured]
Describe = Callable[[Measured], str]
Dim = str | int | float | bool


class StudyError(Exception):
    """The study cannot go on; the message says why."""


@dataclass(frozen=True)
class Point:
    """What is measured: `key` names it within the study, `dims` say what it is (results_table)."""

    key: str
    group: str
    dims: Mapping[str, Dim] = field(default_factory=dict)
    null: bool = False
    once: bool = False  # in the first round alone: a proof, not a figure

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "group": self.group,
            "dims": dict(self.dims),
            "null": self.null,
            "once": self.once,
        }


@dataclass(frozen=True)
class Slot:
    """One block to be measured; `again` is the second one of a null test."""

    point: Point
    round: int
    again: bool = False

    @property
    def name(self) -> tuple[str, int, bool]:
        return self.point.key, self.round, self.again


@dataclass
class Outcome:
    """All blocks by point and round, and what went wrong on the way."""

    study: str
    points: tuple[Point, ...]
    rounds: int
    machine: dict[str, Any]
    blocks: dict[str, dict[int, Measured]] = field(default_factory=dict)
    null: dict[str, dict[int, tuple[Measured, Measured]]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    repeated: int = 0
    resumed: int = 0  # blocks that an earlier run of the same command had measured
    took_s: float = 0.0  # of all blocks, those of an earlier run as well
    journal: Path | None = None  # still there: until `finish`, the same command finds all of this

    @property
    def noisy(self) -> int:
        return sum(not one.quiet for rounds in self.blocks.values() for one in rounds.values())

    def of(self, key: str) -> dict[int, Measured]:
        """A point's blocks by round; empty if there are none."""
        return self.blocks.get(key, {})

    def values(self, key: str, metric: Metric) -> list[float]:
        return [metric(one) for _round, one in sorted(self.of(key).items())]

    def null_pairs(self, keys: Iterable[str]) -> list[tuple[Measured, Measured]]:
        """The null test's pairs of these points, over all rounds."""
        return [pair for key in keys for _round, pair in sorted(self.null.get(key, {}).items())]

    def to_json(self) -> dict[str, Any]:
        return {
            "study": self.study,
            "machine": self.machine,
            "rounds": self.rounds,
            "points": [point.to_json() for point in self.points],
            "blocks": {
                key: {str(number): one.to_json() for number, one in sorted(rounds.items())}
                for key, rounds in self.blocks.items()
            },
            "null": {
                key: {str(n): [one.to_json() for one in pair] for n, pair in sorted(pairs.items())}
                for key, pairs in self.null.items()
            },
            "faults": list(self.faults),
            "noisy_blocks": self.noisy,
            "repeated_blocks": self.repeated,
            "resumed_blocks": self.resumed,
            "took_s": self.took_s,
        }


def slots(points: Sequence[Point], rounds: int) -> list[Slot]:
    """Every block of the study in the order in which it is measured."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(point.group, []).append(point)
    found = []
    for number in range(rounds):
        for members in groups.values():
            for point in members if number % 2 == 0 else reversed(members):
                if point.once and number:
                    continue
                found.append(Slot(point, number))
                if point.null:
                    found.append(Slot(point, number, again=True))
    return found


def run(
    study: str,
    points: Sequence[Point],
    measure: Measure,
    *,
    rounds: int,
    directory: Path,
    say: Say,
    settings: Mapping[str, Any] | None = None,
    describe: Describe | None = None,
    fresh: bool = False,
) -> Outcome:
    """Measure all points in `rounds` rounds. `settings`: what else the blocks depend on (seconds).

    `measure` runs one block; its CellError or OSError makes the block void. `directory` keeps the
    journal; `fresh` forgets one of an earlier, cut run. `describe` says what a block's line of
    progress shows. Raises StudyError, JournalError, and what `measure` raises otherwise.
    """
    if len({point.key for point in points}) != len(points) or len(points) > POINTS_MAX:
        raise StudyError(f"{len(points)} points: their keys must differ, {POINTS_MAX} at most")
    machine = describe_machine()
    plan = {
        "points": [point.to_json() for point in points],
        "rounds": rounds,
        "settings": dict(settings or {}),
        "machine": {key: machine[key] for key in MACHINE_KEYS},
    }
    outcome = Outcome(study, tuple(points), rounds, machine)
    with Journal(directory, study, plan) as journal:
        if fresh:
            journal.clear()
        _Run(outcome, journal, measure, say, describe or _describe).go()
        outcome.journal = journal.path
    return outcome


def finish(outcome: Outcome) -> None:
    """What was found is written where it belongs: the same command now begins a new study."""
    if outcome.journal is not None:
        outcome.journal.unlink(missing_ok=True)


def _describe(one: Measured) -> str:
    return f"{one.records_per_s:>12,.0f} records/s {one.cpu_us_per_record:>8.2f} us CPU each"


class _Run:
    """One walk through the slots of a study."""

    def __init__(
        self, outcome: Outcome, journal: Journal, measure: Measure, say: Say, describe: Describe
    ) -> None:
        self._outcome = outcome
        self._journal = journal
        self._measure = measure
        self._say = say
        self._describe = describe
        self._slots = slots(outcome.points, outcome.rounds)
        self._repeated_max = max(REPEATED_MIN, int(REPEATED_SHARE_MAX * len(self._slots)))
        self._found: dict[tuple[str, int, bool], Measured | str] = {}
        self._spent_s: dict[str, float] = {}  # of a point's last block, an earlier run's too
        self._void_in_a_row = 0

    def go(self) -> None:
        self._take_up()
        for number, slot in enumerate(self._slots, start=1):
            if slot.name in self._found:
                continue
            try:
                self._block(number, slot)
            except KeyboardInterrupt:
                self._say(f"cut at block {number}; the same command goes on from here")
                raise
        self._sort()

    def _take_up(self) -> None:
        """What an earlier run has left, but for groups of which it left only a part."""
        left: dict[tuple[str, int, bool], Measured | str] = {}
        for line, entry in enumerate(self._journal.entries, start=2):
            name = entry.get("key"), entry.get("round"), entry.get("again")
            try:
                left[name] = _read(entry)  # type: ignore[index]  # an odd name is not looked up
                self._spent(str(entry.get("key")), _seconds(entry))
            except (TypeError, ValueError) as error:
                raise JournalError(
                    f"the journal {self._journal.path} is damaged in line {line} ({error}): "
                    "remove it to begin anew"
                ) from None
        together: dict[tuple[str, int], list[Slot]] = {}
        for slot in self._slots:
            together.setdefault((slot.point.group, slot.round), []).append(slot)
        for members in together.values():
            if all(slot.name in left for slot in members):
                self._found.update({slot.name: left[slot.name] for slot in members})
        self._outcome.resumed = len(self._found)
        if self._found:
            self._say(
                f"going on with {len(self._found)} of {len(self._slots)} blocks from "
                f"{self._journal.path} (--fresh begins anew)"
            )

    def _block(self, number: int, slot: Slot) -> None:
        began = time.monotonic()
        found: Measured | str
        try:
            found = self._measure(slot.point)
            if not found.quiet and self._outcome.repeated < self._repeated_max:
                self._outcome.repeated += 1
                found = self._measure(slot.point)
        except (CellError, OSError) as error:
            found = " ".join(str(error).split()) or type(error).__name__
        self._spent(slot.point.key, time.monotonic() - began)
        self._found[slot.name] = found
        self._journal.append({**_written(slot, found), "seconds": self._spent_s[slot.point.key]})
        self._say(self._line(number, slot, found))
        self._void_in_a_row = self._void_in_a_row + 1 if isinstance(found, str) else 0
        if self._void_in_a_row >= VOID_IN_A_ROW_MAX:
            raise StudyError(f"{VOID_IN_A_ROW_MAX} void blocks in a row, the last one: {found}")

    def _spent(self, key: str, seconds: float) -> None:
        self._spent_s[key] = seconds
        self._outcome.took_s += seconds

    def _left_s(self) -> float:
        """By each point's last duration; the mean of all where it was not measured yet."""
        mean = sum(self._spent_s.values()) / len(self._spent_s)
        left = (slot.point.key for slot in self._slots if slot.name not in self._found)
        return sum(self._spent_s.get(key, mean) for key in left)

    def _line(self, number: int, slot: Slot, found: Measured | str) -> str:
        left_s = self._left_s()
        label = f"{slot.point.key}{' (null test)' if slot.again else ''}"
        if isinstance(found, str):
            text = f"VOID {found}"
        else:
            noise = "" if found.quiet else f"  NOISY: others {found.guard.others:.0%}"
            text = f"{self._describe(found)}{noise}"
        return f"[{number}/{len(self._slots)}] {label:44} {text}  {_left(left_s)} left"

    def _sort(self) -> None:
        """The blocks found into the outcome, by point and round."""
        for slot in self._slots:
            found = self._found[slot.name]
            if isinstance(found, str):
                self._outcome.faults.append(f"{slot.point.key}, round {slot.round + 1}: {found}")
            elif not slot.again:
                self._outcome.blocks.setdefault(slot.point.key, {})[slot.round] = found
            else:
                first = self._found[slot.point.key, slot.round, False]
                if isinstance(first, Measured):
                    pairs = self._outcome.null.setdefault(slot.point.key, {})
                    pairs[slot.round] = (first, found)


def _written(slot: Slot, found: Measured | str) -> dict[str, Any]:
    name = {"key": slot.point.key, "round": slot.round, "again": slot.again}
    return {**name, "void": found} if isinstance(found, str) else {**name, "block": found.to_json()}


def _read(entry: Mapping[str, Any]) -> Measured | str:
    void = entry.get("void")
    return void if isinstance(void, str) else Measured.from_json(entry.get("block"))


def _seconds(entry: Mapping[str, Any]) -> float:
    seconds = entry.get("seconds")
    if not isinstance(seconds, int | float) or not 0 <= seconds <= BLOCK_S_MAX:
        raise ValueError("seconds")
    return float(seconds)


def _left(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
