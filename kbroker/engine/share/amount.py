"""How much a ShareFetch waits for: so many bytes in all of its partitions together.

The log of each partition is watched for a part of the bytes that are missing. The parts are half of
these together, so a wake needs a look at the partitions that have changed, and no other: before the
missing bytes can all be there without a wake, half of them have been seen, and then there is a look
at all partitions again. So a wait costs few looks at all of them, and one look for each wake.

By one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final, Protocol, TypeVar


class Readable(Protocol):
    def readable(self, max_bytes: int) -> tuple[int | None, int]: ...

    def watch(self, offset: int, count_bytes: int) -> None: ...


Place = TypeVar("Place", bound=Hashable)


class Amount:
    """See the module. `wanted`: bytes, more than one."""

    __slots__ = ("_counts", "_missing", "_part", "_wanted")

    def __init__(self, wanted: int) -> None:
        self._wanted: Final = wanted
        self._counts: dict[Hashable, int] = {}  # of each partition, at the last look
        self._missing = 0  # bytes, until there is a look at all of them
        self._part = 0

    def is_there(
        self,
        look: Callable[[Place], Readable],
        changed: Iterable[Place],
        places: Iterable[Place],
    ) -> bool:
        """Whether it is there now; `changed` since the last call. KafkaError."""
        if self._missing > 0:
            for place in changed:
                self._look(look(place), place)
            if self._missing > 0:
                return False
        return self._is_in(look, places)

    def _look(self, partition: Readable, place: Hashable) -> None:
        offset, count_bytes = partition.readable(self._wanted)
        self._missing -= count_bytes - self._counts.get(place, 0)
        self._counts[place] = count_bytes
        if offset is not None and self._missing > 0:
            partition.watch(offset, count_bytes + self._part)

    def _is_in(self, look: Callable[[Place], Readable], places: Iterable[Place]) -> bool:
        missing, watched = self._wanted, list[tuple[Readable, int, int]]()
        self._counts, self._missing = {}, 0
        for place in places:
            partition = look(place)
            offset, count_bytes = partition.readable(self._wanted)
            self._counts[place] = count_bytes
            missing -= count_bytes
            if missing <= 0:
                return True
            if offset is not None:
                watched.append((partition, offset, count_bytes))
        count = max(1, len(self._counts))  # those that are not watched yet, too
        self._part = missing if count == 1 else max(1, missing // (2 * count))
        # Less than a part of each may be there without a wake.
        self._missing = missing - (self._part - 1) * count
        for partition, offset, count_bytes in watched:
            partition.watch(offset, count_bytes + self._part)
        return False
