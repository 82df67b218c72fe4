"""The hierarchical time wheel: many entries wait for their tick, inserted and cancelled in O(1).

A wheel is a ring of 20 buckets. In the first a bucket is one tick, in the second 20 ticks (one
whole turn of the first), in the third 400, and so on; a wheel is made when an entry first needs it.
An entry lies in the finest wheel that reaches its tick; when the hand comes to a bucket of a
coarser wheel, its entries move down, so that each fires in exactly its own tick, never early.

    hand at 0, an entry for tick 1234:        0..19 | 20..399 | 400..7999
      wheel 3 (400 a bucket): bucket 3, due at tick 1200
      tick 1200, moves to wheel 2 (20 a bucket): bucket 61, due at tick 1220
      tick 1220, moves to wheel 1 (1 a bucket): bucket 1234, due at tick 1234: expired

Every bucket in use is once in a small heap by the tick it is due (at most 19 per wheel), so the
next due tick is known without turning the hand through empty ones, and a jump of the clock costs
the buckets that hold something, not the ticks that passed.

Pure data: no thread, no clock, no lock. Its owner guards it (`timer.py`).
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from kbroker.errors import InvariantError
from kbroker.limits import TIMER_WHEEL_SIZE


class WheelEntry:
    """What a wheel holds; a subclass adds what happens when its tick has come."""

    __slots__ = ("bucket", "due_tick")

    def __init__(self) -> None:
        self.bucket: _Bucket | None = None  # where it lies now; None: in no wheel
        self.due_tick = 0


class _Bucket:
    """The entries of one bucket while it is in use; a dict, for order and for removal in O(1)."""

    __slots__ = ("due_tick", "entries", "ring", "slot")

    def __init__(self, ring: list[_Bucket | None], slot: int, due_tick: int) -> None:
        self.ring = ring
        self.slot = slot
        self.due_tick = due_tick
        self.entries: dict[WheelEntry, None] = {}


class _Wheel:
    """One ring of the hierarchy."""

    __slots__ = ("horizon", "level", "ring", "span")

    def __init__(self, level: int, size: int) -> None:
        self.level = level
        self.span: Final[int] = size**level  # ticks per bucket
        self.ring: list[_Bucket | None] = [None] * size
        self.horizon = 0  # the first tick this ring does not reach, moves with the hand

    def turn_to(self, tick: int) -> None:
        self.horizon = (tick // self.span + len(self.ring)) * self.span


class TimeWheel:
    """All wheels and the hand. `hand` is the last tick whose entries have been handed out."""

    __slots__ = ("_due", "_size", "_wheels", "hand")

    def __init__(self, start_tick: int = 0, size: int = TIMER_WHEEL_SIZE) -> None:
        self._size = size
        self._wheels: list[_Wheel] = []
        self._due: list[tuple[int, int, _Bucket]] = []  # heap: due tick, level, bucket
        self.hand = start_tick
        self._add_wheel()

    def add(self, entry: WheelEntry, tick: int) -> int:
        """Insert for `tick`, or for the next one if that has passed.

        Returns the tick at which the wheel must be advanced next for this entry's sake: the entry's
        own, or an earlier one at which it moves to a finer wheel.
        """
        if entry.bucket is not None:
            raise InvariantError(f"entry is in the wheel already, due at tick {entry.due_tick}")
        if tick <= self.hand:
            tick = self.hand + 1
        entry.due_tick = tick
        return self._place(entry, tick)

    def remove(self, entry: WheelEntry) -> bool:
        """Take an entry out before its tick; False when it is in no wheel (any more)."""
        bucket = entry.bucket
        if bucket is None:
            return False
        del bucket.entries[entry]
        entry.bucket = None
        return True

    def next_due(self) -> int | None:
        """The tick at which `advance` has something to do, None while the wheel is empty.

        Buckets that cancellation has emptied are dropped here, so they wake no thread.
        """
        due = self._due
        while due and not due[0][2].entries:
            bucket = heappop(due)[2]
            bucket.ring[bucket.slot] = None
        return due[0][0] if due else None

    def advance(self, tick: int) -> list[WheelEntry]:
        """Turn the hand to `tick` (never back); the entries that came due, earliest first."""
        expired: list[WheelEntry] = []
        while self._due and self._due[0][0] <= tick:
            due_tick, _, bucket = heappop(self._due)
            bucket.ring[bucket.slot] = None
            self._turn_to(due_tick)
            for entry in bucket.entries:
                if entry.due_tick > due_tick:
                    self._place(entry, entry.due_tick)
                else:
                    entry.bucket = None
                    expired.append(entry)
        if tick > self.hand:
            self._turn_to(tick)
        return expired

    def __len__(self) -> int:
        return sum(len(bucket.entries) for _, _, bucket in self._due)

    @property
    def depth(self) -> int:
        """How many wheels there are by now."""
        return len(self._wheels)

    @property
    def buckets_in_use(self) -> int:
        return len(self._due)

    def _place(self, entry: WheelEntry, tick: int) -> int:
        for wheel in self._wheels:
            if tick < wheel.horizon:
                break
        else:
            wheel = self._add_wheel()
            while tick >= wheel.horizon:
                wheel = self._add_wheel()
        span = wheel.span
        number = tick // span
        slot = number % self._size
        bucket = wheel.ring[slot]
        if bucket is None:
            bucket = wheel.ring[slot] = _Bucket(wheel.ring, slot, number * span)
            heappush(self._due, (bucket.due_tick, wheel.level, bucket))
        bucket.entries[entry] = None
        entry.bucket = bucket
        return bucket.due_tick

    def _add_wheel(self) -> _Wheel:
        wheel = _Wheel(len(self._wheels), self._size)
        wheel.turn_to(self.hand)
        self._wheels.append(wheel)
        return wheel

    def _turn_to(self, tick: int) -> None:
        self.hand = tick
        for wheel in self._wheels:
            wheel.turn_to(tick)
