"""Members of groups in the Python libraries: each reads in a thread of its own.

The libraries' consumers belong to one thread, so what the driver wants of one (commit, seek) is
handed to that thread as a call and waited for. Its content has a lock of its own.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from tests.clients.agents.driver import Partition, encoded

POLL_S = 0.1
# kafka-python 3.0.12 drops an assignment that comes when a poll has just given up, if new metadata
# made it join again, as every member does that has not seen its topics yet: `need_rejoin` is false
# by then, and nothing takes the finished join. A member alone went without its partitions so
# in 2 of 200 joins with Apache Kafka 4.3.0 and in 1 of 150 with kbroker, whose SyncGroup had named
# all of them (2026-11-23). One first poll that outlasts metadata and joins leaves no such moment,
# on a machine that is busy as well; but it should not end with a group's first delay, of 3 s.
FIRST_POLL_S = 2.0
CALL_S = 60.0
HEARTBEAT_MS = 300
SESSION_MS = 6_000  # the least that a broker allows by default


class Holdings:
    """A member's partitions, and the records that were not taken yet."""

    def __init__(self, keeps_positions: bool = False) -> None:
        """keeps_positions: the library goes on after the records that it gave out in a partition
        that comes back to it, so that records not taken yet must not be dropped."""
        self._lock = threading.Lock()
        self._keeps_positions = keeps_positions
        self._assigned: set[Partition] = set()
        self._revoked: list[Partition] = []
        self._untaken: list[dict[str, Any]] = []
        self._next: dict[Partition, int] = {}
        self.failed: BaseException | None = None  # what the member's loop ended with

    def add(self, partitions: Iterable[Partition]) -> None:
        with self._lock:
            self._assigned.update(partitions)

    def remove(self, partitions: Iterable[Partition]) -> None:
        with self._lock:
            for gone in partitions:
                self._assigned.discard(gone)
                self._revoked.append(gone)
                if not self._keeps_positions:
                    self._drop(gone)

    def _drop(self, gone: Partition) -> None:
        self._next.pop(gone, None)
        self._untaken = [r for r in self._untaken if (r["topic"], r["partition"]) != gone]

    def forget(self, at: Partition) -> None:
        with self._lock:
            self._drop(at)

    def receive(self, records: Iterable[dict[str, Any]]) -> None:
        with self._lock:
            self._untaken += [r for r in records if (r["topic"], r["partition"]) in self._assigned]

    def take(self) -> list[dict[str, Any]]:
        self._raise_if_failed()
        with self._lock:
            taken, self._untaken = self._untaken, []
            for record in taken:
                self._next[record["topic"], record["partition"]] = record["offset"] + 1
            return taken

    def positions(self) -> dict[Partition, int]:
        with self._lock:
            return {at: next_ for at, next_ in self._next.items() if at in self._assigned}

    def _raise_if_failed(self) -> None:
        if self.failed is not None:
            raise self.failed

    def show(self) -> Mapping[str, object]:
        self._raise_if_failed()
        with self._lock:
            return {"now": sorted(self._assigned), "revoked": list(self._revoked)}


def described(
    topic: str, partition: int, offset: int, timestamp: int, key: Any, value: Any, headers: Any
) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp,
        "key": encoded(key),
        "value": encoded(value),
        "headers": [{"key": name, "value": encoded(data)} for name, data in headers or ()],
    }


class Member:
    """The thread; a subclass gives the library's calls, all made in that thread."""

    keeps_positions = False

    def __init__(self) -> None:
        self.holdings = Holdings(self.keeps_positions)
        self._calls: queue.SimpleQueue[tuple[Callable[[], None], Future[None]]]
        self._calls = queue.SimpleQueue()
        self._stopping = False
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        started.result(CALL_S)

    def commit(self) -> None:
        next_offsets = self.holdings.positions()
        if next_offsets:
            self._call(lambda: self.do_commit(next_offsets))

    def seek(self, at: Partition, offset: int) -> None:
        def do() -> None:
            self.do_seek(at, offset)
            self.holdings.forget(at)

        self._call(do)

    def leave(self) -> None:
        self._stopping = True
        self._thread.join(CALL_S)

    def _call(self, call: Callable[[], None]) -> None:
        done: Future[None] = Future()
        self._calls.put((call, done))
        done.result(CALL_S)

    def _run(self, started: Future[None]) -> None:
        try:
            self.do_join()
        except Exception as error:
            started.set_exception(error)
            return
        started.set_result(None)
        while not self._stopping:
            try:
                self.holdings.receive(self.do_poll())
            except Exception as error:
                self.holdings.failed = error  # the next call for records gets it
                return
            while not self._calls.empty():
                call, done = self._calls.get()
                try:
                    call()
                except Exception as error:
                    done.set_exception(error)
                else:
                    done.set_result(None)
        self.do_leave()

    def do_join(self) -> None:
        raise NotImplementedError

    def do_poll(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def do_commit(self, next_offsets: Mapping[Partition, int]) -> None:
        raise NotImplementedError

    def do_seek(self, at: Partition, offset: int) -> None:
        raise NotImplementedError

    def do_leave(self) -> None:
        raise NotImplementedError


class ConfluentMember(Member):
    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: list[str],
        strategy: str,
        instance: str,
        auto_commit_ms: int,
    ) -> None:
        self._topics = topics
        self._cooperative = strategy.startswith("cooperative")
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": strategy,
            "enable.auto.commit": auto_commit_ms > 0,
            "auto.commit.interval.ms": auto_commit_ms or 5000,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "session.timeout.ms": SESSION_MS,
            "fetch.wait.max.ms": 100,
        }
        if instance:
            self._settings["group.instance.id"] = instance
        super().__init__()

    def do_join(self) -> None:
        import confluent_kafka

        self._library = confluent_kafka
        self._consumer = confluent_kafka.Consumer(self._settings)

        def gained(consumer: Any, partitions: list[Any]) -> None:
            self.holdings.add((each.topic, each.partition) for each in partitions)

        def lost(consumer: Any, partitions: list[Any]) -> None:
            self.holdings.remove((each.topic, each.partition) for each in partitions)

        self._consumer.subscribe(self._topics, on_assign=gained, on_revoke=lost, on_lost=lost)

    def do_poll(self) -> list[dict[str, Any]]:
        return [
            described(
                m.topic(), m.partition(), m.offset(), m.timestamp()[1],
                m.key(), m.value(), m.headers(),
            )
            for m in self._consumer.consume(1000, POLL_S)
            if not m.error()
        ]  # fmt: skip

    def do_commit(self, next_offsets: Mapping[Partition, int]) -> None:
        at = [self._library.TopicPartition(*at, next_) for at, next_ in next_offsets.items()]
        for each in self._consumer.commit(offsets=at, asynchronous=False):
            if each.error:
                raise self._library.KafkaException(each.error)

    def do_seek(self, at: Partition, offset: int) -> None:
        self._consumer.seek(self._library.TopicPartition(*at, offset))

    def do_leave(self) -> None:
        self._consumer.close()


class KafkaPythonMember(Member):
    keeps_positions = True

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: list[str],
        strategy: str,
        instance: str,
        auto_commit_ms: int,
    ) -> None:
        self._topics, self._strategy = topics, strategy
        self._poll_s = FIRST_POLL_S
        self._settings: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "group_id": group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": auto_commit_ms > 0,
            "auto_commit_interval_ms": auto_commit_ms or 5000,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "session_timeout_ms": SESSION_MS,
        }
        if instance:
            self._settings["group_instance_id"] = instance
        super().__init__()

    def do_join(self) -> None:
        import kafka
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

        assignors = {
            "range": RangePartitionAssignor,
            "roundrobin": RoundRobinPartitionAssignor,
            "sticky": StickyPartitionAssignor,
            "cooperative-sticky": CooperativeStickyAssignor,
        }
        self._library, holdings = kafka, self.holdings
        self._consumer = kafka.KafkaConsumer(
            partition_assignment_strategy=[assignors[self._strategy]], **self._settings
        )

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Any) -> None:
                holdings.add((each.topic, each.partition) for each in assigned)

            def on_partitions_revoked(self, revoked: Any) -> None:
                holdings.remove((each.topic, each.partition) for each in revoked)

        self._consumer.subscribe(self._topics, listener=Listener())

    def do_poll(self) -> list[dict[str, Any]]:
        polled = self._consumer.poll(timeout_ms=int(self._poll_s * 1000), max_records=1000)
        self._poll_s = POLL_S
        return [
            described(r.topic, r.partition, r.offset, r.timestamp, r.key, r.value, r.headers)
            for records in polled.values()
            for r in records
        ]

    def do_commit(self, next_offsets: Mapping[Partition, int]) -> None:
        at = self._library.TopicPartition
        self._consumer.commit(
            {
                at(*where): self._library.structs.OffsetAndMetadata(next_, "", -1)
                for where, next_ in next_offsets.items()
            }
        )

    def do_seek(self, at: Partition, offset: int) -> None:
        self._consumer.seek(self._library.TopicPartition(*at), offset)

    def do_leave(self) -> None:
        self._consumer.close(autocommit=False)


class AioKafkaMember(Member):
    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: list[str],
        strategy: str,
        instance: str,
        auto_commit_ms: int,
    ) -> None:
        self._topics, self._strategy = topics, strategy
        self._settings: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "group_id": group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": auto_commit_ms > 0,
            "auto_commit_interval_ms": auto_commit_ms or 5000,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "session_timeout_ms": SESSION_MS,
            "fetch_max_wait_ms": 100,
        }
        if instance:
            self._settings["group_instance_id"] = instance
        super().__init__()

    def do_join(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._join())

    async def _join(self) -> None:
        import aiokafka
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor
        from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

        assignors = {
            "range": RangePartitionAssignor,
            "roundrobin": RoundRobinPartitionAssignor,
            "sticky": StickyPartitionAssignor,
        }
        self._library, holdings = aiokafka, self.holdings
        self._consumer = aiokafka.AIOKafkaConsumer(
            partition_assignment_strategy=(assignors[self._strategy],), **self._settings
        )

        class Listener(aiokafka.abc.ConsumerRebalanceListener):  # type: ignore[misc]
            async def on_partitions_assigned(self, assigned: Any) -> None:
                holdings.add((each.topic, each.partition) for each in assigned)

            async def on_partitions_revoked(self, revoked: Any) -> None:
                holdings.remove((each.topic, each.partition) for each in revoked)

        self._consumer.subscribe(self._topics, listener=Listener())
        # start() waits until the group has met, and that may take another member's going on.
        self._started = asyncio.ensure_future(self._consumer.start())

    def do_poll(self) -> list[dict[str, Any]]:
        polled = self._loop.run_until_complete(self._poll())
        return [
            described(r.topic, r.partition, r.offset, r.timestamp, r.key, r.value, r.headers)
            for records in polled.values()
            for r in records
        ]

    async def _poll(self) -> Any:
        done, _ = await asyncio.wait([self._started], timeout=POLL_S)
        if not done:
            return {}
        self._started.result()
        return await self._consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=1000)

    def do_commit(self, next_offsets: Mapping[Partition, int]) -> None:
        at = self._library.TopicPartition
        self._loop.run_until_complete(
            self._consumer.commit({at(*where): next_ for where, next_ in next_offsets.items()})
        )

    def do_seek(self, at: Partition, offset: int) -> None:
        self._consumer.seek(self._library.TopicPartition(*at), offset)

    def do_leave(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())
        self._loop.close()


JOIN: Mapping[str, Callable[..., Member]] = {
    "confluent-kafka": ConfluentMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AioKafkaMember,
}
