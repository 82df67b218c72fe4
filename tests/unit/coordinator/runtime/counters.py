"""A small machine on the coordinator's runtime: counters by name, in a topic of their own.

Real are the store, the loader, the writers, the table and the logs. A counter counts at once and
takes it back when the append fails, as a coordinator's machine does.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from kbroker.clock import ManualClock
from kbroker.coordinator.runtime._shard_table import ShardTable, Written, partition_for
from kbroker.coordinator.runtime.loader import Loader
from kbroker.coordinator.runtime.machine import Machine, Record
from kbroker.coordinator.runtime.outbox import Outbox
from kbroker.coordinator.runtime.store import CoordinatorStore
from kbroker.errors import ErrorCode
from kbroker.failures import Failures
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.image import ClusterImage, ImageDelta, TopicImage
from tests.support.led_log import LedLog, LedLogManager
from tests.unit.coordinator.tables import Listener

TOPIC: Final = "__counters"
TOPIC_ID: Final = uuid.UUID(int=0x77)
PREFIX: Final = b"\0\x09"  # the version of the key: no committed offset's
COUNT: Final = 2
NODE, ELSEWHERE = 1, 2

Done = Callable[[ErrorCode], object]


class Counter:
    """One count. Its outbox writes what was decided under its lock, in that order."""

    def __init__(self, name: str, store: CounterStore, incarnation: int, value: int = 0) -> None:
        self.name = name
        self.value = value
        self.incarnation = incarnation
        self._store = store
        self._lock = threading.Lock()
        self._outbox = Outbox(self._lock, Failures("counters"))

    def add(self, done: Done, by: int = 1) -> None:
        with self._lock:
            self.value += by
            value = self.value
            self._outbox.add(lambda: self._store.write(self, value, lambda code: end(code)))

        def end(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE:
                self.value -= by
            done(code)

        self._outbox.run()


class CounterStore(CoordinatorStore[Written]):
    def __init__(self, table: ShardTable, *how: Any) -> None:
        super().__init__(TOPIC, "counters", table, *how)

    def write(self, counter: Counter, value: int, done: Done) -> None:
        record = (PREFIX + counter.name.encode(), str(value).encode())
        table: Any = self._table
        self._write(
            counter.name,
            counter.incarnation,
            lambda partition, written: table.append(partition, [record], written),
            Written(),
            done,
        )

    def remove(self, name: str, in_log: Callable[[], object], done: Done) -> None:
        written = Written()
        table: Any = self._table
        tombstone = [(PREFIX + name.encode(), None)]
        self._delete(
            name,
            lambda: table.append(partition_for(name, COUNT), tombstone, written),
            written,
            in_log,
            done,
        )


class Counters:
    """The machine; `calls` has what the runtime has called it for."""

    topic: Final = TOPIC
    name: Final = "counters"
    log_lines_max: Final = 2

    def __init__(self) -> None:
        self.waits_for_followers = False
        self.by_name: dict[str, Counter] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.incarnations = itertools.count(1)
        self.store: CounterStore

    def make(self, name: str, value: int = 0) -> Counter:
        counter = Counter(name, self.store, next(self.incarnations), value)
        self.by_name[name] = counter
        return counter

    def replay(self, partition: int) -> CounterReplay:
        self.calls.append(("replay", partition))
        return CounterReplay(self, partition)

    def active(self, partition: int) -> None:
        self.calls.append(("active", partition))

    def unloaded(self, partitions: frozenset[int], count: int) -> None:
        self.calls.append(("unloaded", *sorted(partitions)))
        for name in [each for each in self.by_name if partition_for(each, count) in partitions]:
            del self.by_name[name]

    def topic_deleted(self, topic: TopicImage) -> None:
        self.calls.append(("topic deleted", topic.name))

    def contents(self, partition: int) -> Sequence[tuple[str, int]]:
        return [("counters", len(self.by_name))]


class CounterReplay:
    def __init__(self, counters: Counters, partition: int) -> None:
        self._counters = counters
        self._partition = partition
        self._values: dict[str, int] = {}

    def record(self, record: Record) -> None:
        name = record.key.removeprefix(PREFIX).decode()
        if record.value is None:
            del self._values[name]
        else:
            self._values[name] = int(record.value)

    def loaded(self) -> None:
        self._counters.calls.append(("loaded", self._partition))
        for name, value in self._values.items():
            self._counters.make(name, value)


class Node:
    """The parts of one broker, without a thread: `load` walks through the loader's work."""

    def __init__(self, path: Path, listener: Listener | None = None) -> None:
        self.logs = LedLogManager([path])
        self.logs.start()
        self.table = ShardTable(listener)
        self.counters = Counters()
        machine: Machine = self.counters
        self.clock = ManualClock()
        self.loader = Loader(self.table, machine, self.clock, buffer_bytes=1)
        self.open: dict[int, LedLog] = {}
        self.store = self.counters.store = CounterStore(
            self.table, self.loader, partition_for, lambda _, index: self.open.get(index), NODE
        )

    def lead(self, *leaders: int, followers: Sequence[int] = ()) -> None:
        first = not self.open
        topic = new_topic_image(TOPIC, TOPIC_ID, [(leader,) for leader in leaders], {})
        delta = ImageDelta(created=(topic,)) if first else ImageDelta(changed=(topic,))
        self.store.before(delta)
        for partition in topic.partitions:
            index = partition.index
            if index not in self.open:
                self.open[index] = self.logs.open(TOPIC, index, TOPIC_ID, {})
            self.open[index].set_leadership(
                partition.leader, partition.leader == NODE, 0, 1 + len(followers),
                dict.fromkeys(followers, True),
            )  # fmt: skip
        self.store.follow(ClusterImage().with_topics([topic]), delta)

    def load(self) -> None:
        for _ in self.loader.work_off():
            pass

    def add(self, counter: Counter, by: int = 1) -> list[ErrorCode]:
        codes: list[ErrorCode] = []
        counter.add(codes.append, by)
        return codes

    def values(self) -> dict[str, int]:
        return {name: each.value for name, each in self.counters.by_name.items()}

    def stop(self) -> None:
        self.loader.stop()
        self.logs.stop()
