"""What groups have read and what was written, as visitors' pages saw it: for rates.

Each visit of a group's page leaves a sample of its committed offsets and of the logs' ends. Two
samples give the rates at which the group reads and its topics are written to, and so when it will
have caught up. Memory is bounded: GROUPS_MAX groups, the one that was not visited for longest is
dropped; SAMPLES_MAX samples of each; groups with more than PARTITIONS_MAX partitions have none. A
rate is of partitions that are in both samples, so a visitor who may see fewer of them gets the
rates of those. Any thread: calls are short and under a lock.
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kbroker.types import TopicPartition

GROUPS_MAX: Final = 20
SAMPLES_MAX: Final = 12
PARTITIONS_MAX: Final = 1_000
# Between two samples that are kept; a page that is refreshed faster compares with an older one.
SPACING_MS: Final = 5_000
# An older sample says little about now.
AGE_MS_MAX: Final = 120_000
RATE_PERIOD_MS_MIN: Final = 1_000


class Place(NamedTuple):
    committed: int
    end: int


class Rates(NamedTuple):
    """Records a second over `period_ms`."""

    read_per_s: float
    written_per_s: float
    period_ms: int


class _Sample(NamedTuple):
    time_ms: int
    partitions: tuple[TopicPartition, ...]
    committed: array[int]
    ends: array[int]


class GroupSamples:
    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._groups: Final[OrderedDict[str, deque[_Sample]]] = OrderedDict()

    def add(
        self, group: str, places: Mapping[TopicPartition, Place], now_ms: int
    ) -> Mapping[TopicPartition, Rates]:
        """Keep a sample of now, and compare it with the oldest one that is not too old. `now_ms`:
        of a clock that does not go back. Nothing where there is no sample to compare with."""
        if not 0 < len(places) <= PARTITIONS_MAX:
            return {}
        with self._lock:
            samples = self._groups.setdefault(group, deque(maxlen=SAMPLES_MAX))
            self._groups.move_to_end(group)
            while len(self._groups) > GROUPS_MAX:
                self._groups.popitem(last=False)
            while samples and now_ms - samples[0].time_ms > AGE_MS_MAX:
                samples.popleft()
            before = samples[0] if samples else None
            if not samples or now_ms - samples[-1].time_ms >= SPACING_MS:
                last = samples[-1].partitions if samples else ()
                samples.append(_sample(places, now_ms, last))
        if before is None or now_ms - before.time_ms < RATE_PERIOD_MS_MIN:
            return {}
        return _rates(before, places, now_ms)


def _sample(
    places: Mapping[TopicPartition, Place], now_ms: int, last: tuple[TopicPartition, ...]
) -> _Sample:
    partitions = tuple(places)
    return _Sample(
        now_ms,
        last if last == partitions else partitions,  # one tuple for all samples that agree
        array("q", [place.committed for place in places.values()]),
        array("q", [place.end for place in places.values()]),
    )


def _rates(
    before: _Sample, places: Mapping[TopicPartition, Place], now_ms: int
) -> Mapping[TopicPartition, Rates]:
    """A group that was reset, or a topic that was made again, has read nothing."""
    period_ms = now_ms - before.time_ms
    rates: dict[TopicPartition, Rates] = {}
    for where, committed, end in zip(before.partitions, before.committed, before.ends, strict=True):
        now = places.get(where)
        if now is not None:
            read = max(now.committed - committed, 0) * 1_000 / period_ms
            written = max(now.end - end, 0) * 1_000 / period_ms
            rates[where] = Rates(read, written, period_ms)
    return rates


def ms_to_catch_up(lag: int, read_per_s: float, written_per_s: float) -> int | None:
    """None: at these rates it never does."""
    if lag <= 0:
        return 0
    gain = read_per_s - written_per_s
    return round(lag / gain * 1_000) if gain > 0 else None


# Of this process: earlier pages leave samples for later ones.
SAMPLES: Final = GroupSamples()
