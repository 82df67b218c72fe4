"""A share-partition with a log of whole batches, a clock and a share coordinator, all by hand."""

from __future__ import annotations

from collections.abc import Sequence

from kbroker.errors import ErrorCode
from kbroker.replica.share.acknowledging import Acknowledgement, Outcome, acknowledge
from kbroker.replica.share.acquiring import Acquired, LogBatch, Wanted, acquire
from kbroker.replica.share.partition import Settings, SharePartition
from kbroker.replica.share.ranges import Range
from kbroker.replica.share.states import State
from kbroker.replica.share.writes import Write

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
SETTINGS = Settings(lock_ms=30_000, deliveries=5, window=2_000)
ONE, OTHER = 1, 2


def copy(partition: SharePartition) -> list[Range]:
    """All ranges of the window."""
    return [partition.ranges.at(place) for place in range(len(partition.ranges))]


def at(partition: SharePartition, offset: int) -> Range | None:
    """The range with this offset; None outside of the window."""
    if not partition.start <= offset <= partition.end:
        return None
    return partition.ranges.at(partition.ranges.find(offset))


def batches(*sizes: int, base: int = 0) -> list[LogBatch]:
    """Batches of so many records, one after the other."""
    made = []
    for size in sizes:
        made.append(LogBatch(base, base + size - 1))
        base += size
    return made


class World:
    def __init__(
        self, log: Sequence[LogBatch] = (), *, start: int = 0, settings: Settings = SETTINGS
    ) -> None:
        self.log = list(log)
        self.settings = settings
        self.now_ms = 1_000
        self.partition = SharePartition(start)
        self.tokens = 0

    def fetch(
        self,
        owner: int = ONE,
        records: int = 500,
        *,
        size: int = 500,
        exactly: bool = False,
        to: int | None = None,
        aborted: Sequence[LogBatch] = (),
    ) -> list[Acquired]:
        """What the owner gets by one fetch; `to`: the read finds no batch after it."""
        read_from = self.partition.next_offset(self.settings)
        if read_from is None:
            return []
        found = [
            batch
            for batch in self.log
            if batch.last_offset >= read_from and (to is None or batch.base_offset <= to)
        ]
        return acquire(
            self.partition, owner, read_from, found, Wanted(records, size, exactly),
            self.settings, self.now_ms, aborted,
        )  # fmt: skip

    def say(self, first: int, last: int, *types: int, owner: int = ONE) -> Outcome:
        self.tokens += 1
        batch = Acknowledgement(first, last, types)
        return acknowledge(self.partition, owner, [batch], self.settings, self.now_ms, self.tokens)

    def write(self, code: ErrorCode = ErrorCode.NONE) -> Write | None:
        """The next write, which ends with this code."""
        write = self.partition.take_write()
        if write is not None:
            self.partition.written(code, self.settings, self.now_ms)
        return write

    def done(self, first: int, last: int, kind: int = ACCEPT, *, owner: int = ONE) -> None:
        """An acknowledgement, written."""
        assert self.say(first, last, kind, owner=owner).code is None
        self.write()

    def pass_ms(self, ms: int) -> bool:
        self.now_ms += ms
        return self.partition.end_locks(self.now_ms, self.settings)

    def state(self, offset: int) -> str:
        """In a word, with the delivery count; "done" before the start, "" after the end."""
        if offset < self.partition.start:
            return "done"
        found = at(self.partition, offset)
        if found is None:
            return ""
        name = "prepared" if found.target >= 0 else State(found.state).name.lower()
        return f"{name} {found.deliveries}"
