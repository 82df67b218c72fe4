"""Records of an internal topic that wait for the marker of their transaction.

    GroupTable     -> add at an append, before and end at a marker, drop with a tombstone
    a load         -> the same, batch by batch

Of each key a transaction keeps its last record, as only that one would hold: a client that repeats
a commit takes no more memory. Transactions of a producer follow each other in a log: a record of
the next one may come while the marker of the one before is not applied yet, so each has its own.

Any thread may read. Who changes what a partition has holds that partition's lock of the machine, or
loads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kbroker.coordinator.runtime.machine import Record

# The owner, the topic and the partition of a key; None: it has none that is looked for.
Named = Callable[[bytes], tuple[str, str, int] | None]


class _Transaction:
    __slots__ = ("first_offset", "records")

    def __init__(self, first_offset: int) -> None:
        self.first_offset: Final = first_offset
        self.records: dict[bytes, Record] = {}


class _Partition:
    __slots__ = ("keys", "producers", "transactions")

    def __init__(self) -> None:
        self.transactions: dict[int, list[_Transaction]] = {}  # by producer id, in their order
        self.producers: dict[bytes, set[int]] = {}  # by key
        self.keys: dict[str, dict[bytes, tuple[str, str, int]]] = {}  # by owner, with their names


class OpenTransactions:
    """See the head of this file."""

    def __init__(self, named: Named = lambda key: None) -> None:
        self._named: Final = named
        self._partitions: dict[int, _Partition] = {}

    def add(
        self, partition: int, producer_id: int, records: Sequence[Record], first_offset: int = -1
    ) -> None:
        """`first_offset`: of the transaction; -1: there is no marker that is not applied."""
        of = self._partitions.setdefault(partition, _Partition())
        transactions = of.transactions.setdefault(producer_id, [])
        if not transactions or transactions[-1].first_offset < first_offset:
            transactions.append(
                _Transaction(records[0].offset if first_offset < 0 else first_offset)
            )
        waiting = transactions[-1].records
        for record in records:
            waiting.pop(record.key, None)  # the last one is the last in order, too
            waiting[record.key] = record
            if producer_id in of.producers.setdefault(record.key, set()):
                continue
            of.producers[record.key].add(producer_id)
            if (named := self._named(record.key)) is not None:
                of.keys.setdefault(named[0], {})[record.key] = named

    def before(self, partition: int, producer_id: int, offset: int) -> list[Record]:
        """Of a marker at that offset: what it ends, in the order of the log."""
        of = self._partitions.get(partition)
        if of is None:
            return []
        return [
            record
            for each in of.transactions.get(producer_id, ())
            if each.first_offset < offset
            for record in each.records.values()
        ]

    def end(self, partition: int, producer_id: int, offset: int) -> None:
        """The marker at that offset has been applied."""
        of = self._partitions.get(partition)
        if of is None:
            return
        transactions = of.transactions.get(producer_id, [])
        left = [each for each in transactions if each.first_offset >= offset]
        keys = {key for each in transactions for key in each.records}
        self._keep(partition, of, producer_id, left, keys)

    def drop(self, partition: int, keys: Iterable[bytes]) -> None:
        """A tombstone ends what is pending of its key, as it ends what holds."""
        of = self._partitions.get(partition)
        if of is None:
            return
        for key in keys:
            for producer_id in list(of.producers.get(key, ())):
                transactions = of.transactions[producer_id]
                for each in transactions:
                    each.records.pop(key, None)
                left = [each for each in transactions if each.records]
                self._keep(partition, of, producer_id, left, {key})

    def forget(self, partition: int) -> None:
        self._partitions.pop(partition, None)

    def _keep(
        self,
        partition: int,
        of: _Partition,
        producer_id: int,
        left: list[_Transaction],
        keys: Iterable[bytes],
    ) -> None:
        """These transactions of a producer are left, of those that had these keys."""
        if left:
            of.transactions[producer_id] = left
        else:
            of.transactions.pop(producer_id, None)
        for key in keys:
            if any(key in each.records for each in left):
                continue
            producers = of.producers[key]
            producers.discard(producer_id)
            if producers:
                continue
            del of.producers[key]
            if (named := self._named(key)) is not None:
                owned = of.keys[named[0]]
                del owned[key]
                if not owned:
                    del of.keys[named[0]]
        if not of.transactions:
            self._partitions.pop(partition, None)

    # --- Any thread -------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return bool(self._partitions)

    def has(self, partition: int) -> bool:
        return partition in self._partitions

    def owners(self, partition: int) -> set[str]:
        of = self._partitions.get(partition)
        return set() if of is None else set(list(of.keys))

    def keys(self, partition: int, owner: str) -> dict[bytes, tuple[str, str, int]]:
        """The keys of an owner, with their names."""
        of = self._partitions.get(partition)
        return {} if of is None else dict(of.keys.get(owner, {}))

    def all_of(
        self, partition: int, producer_id: int | None = None
    ) -> Iterator[tuple[tuple[str, str, int], Record]]:
        """Of one producer or of all, with the names of their keys; those without are left out.
        Under the lock."""
        of = self._partitions.get(partition)
        if of is None:
            return
        everything = of.transactions
        wanted = everything if producer_id is None else (producer_id,)
        for each in wanted:
            for transaction in everything.get(each, ()):
                for key, record in transaction.records.items():
                    if (named := self._named(key)) is not None:
                        yield named, record

    def records(self, partition: int, key: bytes) -> Iterator[Record]:
        """Of one key, of every producer. Under the lock."""
        of = self._partitions.get(partition)
        if of is None:
            return
        for producer_id in of.producers.get(key, ()):
            for each in of.transactions[producer_id]:
                if key in each.records:
                    yield each.records[key]
