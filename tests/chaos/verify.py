"""The rules that hold after a chaos run, from the journals and the watcher's looks.

Pure functions; each returns sentences, one per violation; an empty list is what is wanted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from tests.chaos.journal import (
    ASSIGNED,
    COMMITTED,
    DONE,
    LOST,
    PRODUCED,
    REVOKED,
    STARTED,
    Line,
)
from tests.chaos.watch import Seen, State

SHOWN_MAX: Final = 5
SECOND_NS: Final = 1_000_000_000
# A rebalance this long, with a partition that was not read meanwhile, is one that stopped it.
LONG_NS: Final = 3 * SECOND_NS


@dataclass
class Processed:
    """How often each offset was processed, by partition."""

    counts: dict[int, bytearray] = field(default_factory=dict)

    def add(self, lines: Iterable[Line], ends: Mapping[int, int]) -> None:
        for line in lines:
            if line.kind != DONE:
                continue
            partition, first, last = map(int, line.words)
            counts = self.counts.setdefault(partition, bytearray(ends[partition]))
            for offset in range(first, min(last, len(counts) - 1) + 1):
                counts[offset] = min(counts[offset] + 1, 255)

    @property
    def records(self) -> int:
        return sum(len(counts) - counts.count(0) for counts in self.counts.values())

    @property
    def again(self) -> int:
        """Times that a record was processed after the first time."""
        return sum(sum(counts) - len(counts) + counts.count(0) for counts in self.counts.values())


def not_processed(processed: Processed, ends: Mapping[int, int]) -> list[str]:
    wrong = []
    for partition, end in sorted(ends.items()):
        counts = processed.counts.get(partition, bytearray(end))
        missing = [offset for offset in range(end) if counts[offset] == 0]
        if missing:
            first = missing[:SHOWN_MAX]
            wrong.append(f"partition {partition}: {len(missing)} of {end} never processed: {first}")
    return wrong


def not_stored(produced: Iterable[Line], ends: Mapping[int, int]) -> list[str]:
    """Records that were acknowledged and that the log does not have."""
    wrong = []
    for line in produced:
        if line.kind == PRODUCED:
            partition, offset = map(int, line.words)
            if offset >= ends[partition]:
                wrong.append(
                    f"partition {partition}: {offset} was answered, the end is {ends[partition]}"
                )
    return wrong[:SHOWN_MAX]


def went_back(seen: Sequence[Seen], ends: Mapping[int, int]) -> list[str]:
    wrong = []
    last: dict[int, int] = {}
    for asked_ns, offsets in seen:
        for partition, offset in offsets.items():
            before = last.get(partition, -1)
            if offset < before:
                wrong.append(
                    f"partition {partition}: committed {before}, then {offset} ({asked_ns})"
                )
            last[partition] = offset
    wrong += [
        f"partition {p}: {offset} is committed, the end is {ends[p]}"
        for p, offset in last.items()
        if offset > ends[p]
    ]
    return wrong


def commits_lost(journals: Mapping[str, Sequence[Line]], seen: Sequence[Seen]) -> list[str]:
    """Commits that were answered before an OffsetFetch was sent, and that it does not show."""
    answered: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for name, lines in journals.items():
        for line in lines:
            if line.kind == COMMITTED:
                for word in line.words:
                    partition, offset = map(int, word.split(":"))
                    answered[partition].append((line.ns, offset, name))
    wrong = []
    for partition, commits in answered.items():
        commits.sort()
        times = [ns for ns, _, _ in commits]
        highest: list[tuple[int, int, str]] = []
        for commit in commits:
            highest.append(max(highest[-1], commit, key=lambda c: c[1]) if highest else commit)
        for asked_ns, offsets in seen:
            place = bisect_right(times, asked_ns)
            if place and offsets.get(partition, -1) < highest[place - 1][1]:
                ns, offset, name = highest[place - 1]
                fetched = offsets.get(partition, -1)
                wrong.append(
                    f"partition {partition}: {name} was answered {offset} at {ns},"
                    f" OffsetFetch at {asked_ns} has {fetched}"
                )
                break
    return wrong


# --- cooperative ----------------------------------------------------------------------------------


@dataclass
class Stays:
    """What came of partitions that stayed with their owner over long rebalances."""

    held: int = 0
    read: int = 0
    longest_pause_ns: int = 0


def ownership(lines: Sequence[Line]) -> list[tuple[int, frozenset[int]]]:
    """(from when on, partitions) of a worker with incremental assignments."""
    owned: frozenset[int] = frozenset()
    history = []
    for line in lines:
        partitions = (
            frozenset(map(int, line.words)) if line.kind in (ASSIGNED, REVOKED, LOST) else ()
        )
        if line.kind == ASSIGNED:
            owned = owned.union(partitions)
        elif line.kind in (REVOKED, LOST):
            owned = owned.difference(partitions)
        elif line.kind != STARTED:
            continue
        history.append((line.ns, owned))
    return history


def bounced(
    journals: Mapping[str, Sequence[Line]],
    states: Sequence[State],
    quiet: Mapping[str, Sequence[tuple[int, int]]],
) -> list[str]:
    """Partitions that an owner gave back and had again within one rebalance, with no other in
    between. `quiet` as for `stays`: a worker that was away may have lost them."""
    events = []
    for name, lines in journals.items():
        for line in lines:
            if line.kind in (ASSIGNED, REVOKED):
                events += [(line.ns, line.kind, int(p), name) for p in line.words]
            elif line.kind in (LOST, STARTED):
                events += [(line.ns, LOST, int(p), name) for p in line.words if p.isdigit()]
    events.sort()
    stable_at = [state.ns for state in states if state.state == "Stable"]
    given_back: dict[int, tuple[int, str]] = {}
    wrong = []
    for ns, kind, partition, name in events:
        if kind == REVOKED:
            given_back[partition] = (ns, name)
        elif kind == LOST:
            given_back.pop(partition, None)
        else:
            before = given_back.pop(partition, None)
            if before is None or before[1] != name:
                continue
            rounds = bisect_right(stable_at, ns) - bisect_right(stable_at, before[0])
            away = any(a < ns and b > before[0] for a, b in quiet.get(name, ()))
            if rounds <= 1 and not away:
                wrong.append(f"partition {partition}: {name} gave it back and had it again ({ns})")
    return wrong


def long_rebalances(states: Sequence[State]) -> list[tuple[int, int]]:
    """(begin, end) of the times that the group was not Stable, of LONG_NS at least."""
    found = []
    began: int | None = None
    for state in states:
        if state.state in ("PreparingRebalance", "CompletingRebalance"):
            began = state.ns if began is None else began
        elif began is not None:
            if state.ns - began >= LONG_NS:
                found.append((began, state.ns))
            began = None
    return found


def stays(
    journals: Mapping[str, Sequence[Line]],
    states: Sequence[State],
    quiet: Mapping[str, Sequence[tuple[int, int]]],
    produced: Mapping[int, Sequence[int]],
) -> tuple[Stays, list[str]]:
    """Over each long rebalance: partitions with the same owner before, after and all the time.

    `quiet` are times in which a worker was stopped or the broker was away: such a worker is left
    out. `produced` are the times at which records of a partition were there to be read.
    """
    result, wrong = Stays(), []
    for name, lines in journals.items():
        history = ownership(lines)
        times = [ns for ns, _ in history]
        done = _done_times(lines)
        for begin, end in long_rebalances(states):
            if any(a < end and b > begin for a, b in quiet.get(name, ())):
                continue
            held = _held_all_the_time(history, times, begin, end)
            for partition in held:
                fed = produced.get(partition, ())
                if bisect_right(fed, end - SECOND_NS) <= bisect_right(fed, begin):
                    continue
                result.held += 1
                moments = [begin, *(t for t in done.get(partition, ()) if begin < t < end), end]
                pause = max(b - a for a, b in pairwise(moments))
                result.longest_pause_ns = max(result.longest_pause_ns, pause)
                if len(moments) > 2:
                    result.read += 1
                else:
                    seconds = (end - begin) / SECOND_NS
                    wrong.append(
                        f"partition {partition} of {name} was not read"
                        f" in {seconds:.1f} s of rebalancing ({begin})"
                    )
    return result, wrong


def _held_all_the_time(
    history: Sequence[tuple[int, frozenset[int]]], times: Sequence[int], begin: int, end: int
) -> frozenset[int]:
    first = bisect_right(times, begin) - 1
    if first < 0:
        return frozenset()
    last = bisect_right(times, end)
    held = history[first][1]
    for _, owned in history[first + 1 : last]:
        held &= owned
    return held


def _done_times(lines: Iterable[Line]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for line in lines:
        if line.kind == DONE:
            found[int(line.words[0])].append(line.ns)
    return found
