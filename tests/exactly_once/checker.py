"""What must hold of input and output, after everything has ended.

    input and output     each input is in the output once, in its order, partition by partition
    aborted              no record of an aborted transaction is read
    open                 no transaction is open: not at its coordinator, not in any partition
    offsets              the group has committed the end of its input

Pure: everything that is compared is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

SHOWN_MAX: Final = 3

Values = Mapping[int, Sequence[bytes]]  # by partition


@dataclass
class Ends:
    """Of partitions, as brokers give them at the end."""

    stable: Mapping[str, int] = field(default_factory=dict)  # last stable offsets
    high: Mapping[str, int] = field(default_factory=dict)


def each_once(wanted: Values, found: Values) -> list[str]:
    """Violations, by partition; records that are wrong in several ways are named in each."""
    violations = []
    for partition in sorted(wanted.keys() | found.keys()):
        written, read = wanted.get(partition, ()), found.get(partition, ())
        counts = Counter(read)
        lost = [value for value in written if not counts[value]]
        doubled = [value for value, count in counts.items() if count > 1]
        known = frozenset(written)
        foreign = [value for value in read if value not in known]
        violations += _named(f"partition {partition}", "lost", lost)
        violations += _named(f"partition {partition}", "read more than once", doubled)
        violations += _named(f"partition {partition}", "never written", foreign)
        if not (lost or doubled or foreign) and list(read) != list(written):
            at = next(
                n for n, pair in enumerate(zip(written, read, strict=True)) if pair[0] != pair[1]
            )
            violations.append(
                f"partition {partition}: order: {read[at]!r} instead of {written[at]!r} at {at}"
            )
    return violations


def none_aborted(aborted: Iterable[bytes], found: Values) -> list[str]:
    names = frozenset(aborted)
    return [
        line
        for partition, read in sorted(found.items())
        for line in _named(
            f"partition {partition}", "aborted, and read", [each for each in read if each in names]
        )
    ]


def nothing_open(transactions: Iterable[str], ends: Ends) -> list[str]:
    """`transactions`: ids with a state in which a transaction is not over."""
    violations = [f"open at its coordinator: {each}" for each in sorted(transactions)]
    for place, high in sorted(ends.high.items()):
        stable = ends.stable.get(place, -1)
        if stable != high:
            violations.append(f"open in {place}: last stable {stable}, high watermark {high}")
    return violations


def all_committed(ends: Mapping[int, int], offsets: Mapping[int, int]) -> list[str]:
    """`offsets` of the group, against the ends of the input, by partition."""
    return [
        f"partition {partition}: the group has committed {offsets.get(partition)} of {end}"
        for partition, end in sorted(ends.items())
        if offsets.get(partition) != end
    ]


def rising_by_one(counts: Mapping[bytes, Sequence[int]], wanted: Mapping[bytes, int]) -> list[str]:
    """Of a word count that gives every change: each word's counts are 1, 2, ... up to its own."""
    violations = []
    for word in sorted(wanted.keys() | counts.keys()):
        found, end = list(counts.get(word, ())), wanted.get(word, 0)
        if found == list(range(1, end + 1)):
            continue
        at = next((n for n, count in enumerate(found) if count != n + 1), len(found))
        if at >= end:
            violations.append(f"word {word!r}: {len(found)} counts, of {end}")
            continue
        got = found[at] if at < len(found) else "nothing"
        violations.append(f"word {word!r}: {got} in place of {at + 1}, of {end}")
    return violations


def _named(where: str, what: str, values: Sequence[bytes]) -> list[str]:
    if not values:
        return []
    first = ", ".join(map(repr, values[:SHOWN_MAX]))
    more = ", ..." if len(values) > SHOWN_MAX else ""
    return [f"{where}: {what}: {len(values)}: {first}{more}"]
