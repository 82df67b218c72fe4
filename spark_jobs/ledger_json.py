"""Commits and folds as JSON: one object in a file.

Nothing that is read from one is trusted: names that become paths are checked, types are checked,
and what a newer release wrote stops the reader instead of being half understood. Any thread.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from spark_jobs.ledger_state import (
    KINDS,
    Commit,
    Gap,
    LedgerDamaged,
    LiveUnit,
    Part,
    Ranges,
    State,
)

FORMAT: Final = 1

_UNIT: Final = re.compile(r"[a-z][a-z0-9-]{0,95}")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")


def commit_json(commit: Commit) -> bytes:
    """One line; empty fields are left out."""
    found: dict[str, Any] = {
        "format": FORMAT,
        "key": commit.key,
        "kind": commit.kind,
        "committed_at_ms": commit.committed_at_ms,
        "units": _units_out(commit.units),
        "quarantine": _units_out(commit.quarantine),
        "rows": sum(unit.rows for unit in commit.units),
        "quarantined": sum(unit.rows for unit in commit.quarantine),
        "drops": [list(part) for part in commit.drops],
        "topic": commit.topic,
        "topic_id": commit.topic_id,
        "query": commit.query,
        "ranges": _ranges_out(commit.ranges),
        "ends": {str(partition): end for partition, end in sorted(commit.ends.items())},
        "late": commit.late,
        "max_event_time_ms": commit.max_event_time_ms,
        "reason": commit.reason,
        "covers": dict(commit.covers),
    }
    always = ("format", "key", "kind", "committed_at_ms")
    kept = {name: value for name, value in found.items()
            if name in always or value not in ([], {}, "", None)}  # fmt: skip
    return json.dumps(kept, separators=(",", ":")).encode() + b"\n"


def commit_from(data: bytes, where: str) -> Commit:
    """LedgerDamaged names the file and the field."""
    read = _Reader(data, where)
    kind = read.text("kind")
    if kind not in KINDS:
        raise LedgerDamaged(f"{where}: a commit of kind {kind[:40]!r}", "upgrade kbroker")
    return Commit(
        read.text("key"),
        kind,
        read.number("committed_at_ms"),
        read.units("units"),
        read.units("quarantine"),
        tuple(read.part(one) for one in read.items("drops")),
        read.text("topic", ""),
        read.text("topic_id", ""),
        read.text("query", ""),
        read.ranges(read.mapping("ranges")),
        read.offsets(read.mapping("ends")),
        read.number("late", 0),
        read.number_or_none("max_event_time_ms"),
        read.text("reason", ""),
        read.dates("covers"),
    )


def fold_json(state: State) -> bytes:
    return json.dumps({
        "format": FORMAT,
        "number": state.number,
        "units": _units_out(state.units),
        "quarantine": _units_out(state.quarantine),
        "ends": {
            topic: {"topic_id": topic_id, "ends": {str(p): end for p, end in sorted(ends.items())}}
            for topic, (topic_id, ends) in state.ends.items()
        },
        "gaps": [
            {"topic": gap.topic, "topic_id": gap.topic_id, "ranges": _ranges_out(gap.ranges),
             "reason": gap.reason, "committed_at_ms": gap.committed_at_ms}
            for gap in state.gaps
        ],
        "max_event_time_ms": state.max_event_time_ms,
        "batches": dict(state.batches),
        "touched": dict(state.touched),
        "covers": dict(state.covers),
        "expired": sorted(state.expired),
        "dropped": [[*part, at_ms] for part, at_ms in state.dropped.items()],
    }, separators=(",", ":")).encode() + b"\n"  # fmt: skip


def fold_from(data: bytes, where: str) -> State:
    """LedgerDamaged names the file and the field."""
    read = _Reader(data, where)
    ends: dict[str, tuple[str, Mapping[int, int]]] = {}
    for topic, value in read.mapping("ends").items():
        inner = read.inner(value)
        ends[topic] = (inner.text("topic_id"), inner.offsets(inner.mapping("ends")))
    gaps = []
    for value in read.items("gaps"):
        inner = read.inner(value)
        gaps.append(
            Gap(inner.text("topic"), inner.text("topic_id"), inner.ranges(inner.mapping("ranges")),
                inner.text("reason"), inner.number("committed_at_ms"))
        )  # fmt: skip
    return State(
        read.number("number"),
        read.units("units"),
        read.units("quarantine"),
        ends,
        tuple(gaps),
        read.number_or_none("max_event_time_ms"),
        {query: read.a_number(batch) for query, batch in read.mapping("batches").items()},
        read.dates("touched"),
        read.dates("covers"),
        read.expired(),
        dict(read.dropped(one) for one in read.items("dropped")),
    )


def _units_out(units: tuple[LiveUnit, ...]) -> list[list[Any]]:
    return [[unit.unit, unit.date, unit.rows, unit.batches] for unit in units]


def _ranges_out(ranges: Ranges) -> dict[str, list[int]]:
    return {str(partition): list(found) for partition, found in sorted(ranges.items())}


Value = TypeVar("Value")
_MISSING: Final = object()


class _Reader:
    """Typed access to one object of JSON; whatever does not fit is LedgerDamaged."""

    def __init__(self, data: bytes | dict[str, Any], where: str) -> None:
        self._where = where
        found: Any = data
        if isinstance(data, bytes):
            try:
                found = json.loads(data)
            except (ValueError, RecursionError):
                raise self.damaged("it is not JSON") from None
        if not isinstance(found, dict):
            raise self.damaged("it is not an object")
        self._found: dict[str, Any] = found
        if isinstance(data, bytes) and found.get("format") != FORMAT:
            raise LedgerDamaged(f"{where}: its format is not {FORMAT}",
                                "upgrade kbroker")  # fmt: skip

    def damaged(self, why: str) -> LedgerDamaged:
        return LedgerDamaged(f"{self._where}: {why}", "restore the file from a backup")

    def inner(self, value: Any) -> _Reader:
        return _Reader(self._typed(value, dict, "an object"), self._where)

    def text(self, name: str, default: Any = _MISSING) -> str:
        return self._typed(self._get(name, default), str, name)

    def number(self, name: str, default: Any = _MISSING) -> int:
        return self.a_number(self._get(name, default))

    def number_or_none(self, name: str) -> int | None:
        found = self._get(name, None)
        return None if found is None else self.a_number(found)

    def a_number(self, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.damaged(f"{str(value)[:40]!r} is not a whole number")
        return value

    def items(self, name: str) -> list[Any]:
        return self._typed(self._get(name, []), list, name)

    def mapping(self, name: str) -> dict[str, Any]:
        return self._typed(self._get(name, {}), dict, name)

    def units(self, name: str) -> tuple[LiveUnit, ...]:
        return tuple(self._sized(one, 4, self._unit) for one in self.items(name))

    def part(self, value: Any) -> Part:
        return self._sized(value, 2, self._part)

    def dropped(self, value: Any) -> tuple[Part, int]:
        return self._sized(value, 3, lambda one: (self._part(one), self.a_number(one[2])))

    def dates(self, name: str) -> dict[str, int]:
        return {self._date(date): self.a_number(number)
                for date, number in self.mapping(name).items()}  # fmt: skip

    def expired(self) -> frozenset[str]:
        """A fold of before these dates were kept has a bound: all with rows below it are meant."""
        before = self.text("expired_before", "")
        bound = (date for date in self.dates("touched") if date < before)
        return frozenset((*(self._date(one) for one in self.items("expired")), *bound))

    def offsets(self, found: Mapping[str, Any]) -> dict[int, int]:
        return {self._partition(name): self.a_number(end) for name, end in found.items()}

    def ranges(self, found: Mapping[str, Any]) -> dict[int, tuple[int, int]]:
        def pair(value: list[Any]) -> tuple[int, int]:
            return self.a_number(value[0]), self.a_number(value[1])

        return {self._partition(name): self._sized(value, 2, pair)
                for name, value in found.items()}  # fmt: skip

    def _get(self, name: str, default: Any) -> Any:
        found = self._found.get(name, default)
        if found is _MISSING:
            raise self.damaged(f"it has no {name}")
        return found

    def _typed(self, value: Any, kind: type[Value], what: str) -> Value:
        if not isinstance(value, kind):
            raise self.damaged(f"{what} is {type(value).__name__}, not {kind.__name__}")
        return value

    def _sized(self, value: Any, size: int, make: Callable[[list[Any]], Value]) -> Value:
        if not isinstance(value, list) or len(value) != size:
            raise self.damaged(f"{str(value)[:60]} is not a list of {size}")
        return make(value)

    def _unit(self, value: list[Any]) -> LiveUnit:
        return LiveUnit(*self._part(value), self.a_number(value[2]), self.a_number(value[3]))

    def _part(self, value: list[Any]) -> Part:
        unit = value[0]
        if not isinstance(unit, str) or _UNIT.fullmatch(unit) is None:
            raise self.damaged(f"{str(unit)[:60]!r} is not a unit's name")
        return unit, self._date(value[1])

    def _date(self, value: Any) -> str:
        if not isinstance(value, str) or _DATE.fullmatch(value) is None:
            raise self.damaged(f"{str(value)[:60]!r} is not a date")
        return sys.intern(value)  # few dates, many parts

    def _partition(self, name: str) -> int:
        if not name.isascii() or not name.isdigit():
            raise self.damaged(f"{name[:60]!r} is not a partition")
        return int(name)
