"""The applications while everything fails: producers with ids, a group, a reader of everything.

All are librdkafka's, in threads of this process, and note their actions in the history. A producer
that broke beyond repair is replaced by another one with another number; its errors count as
refusals. Two producers write to all partitions, and each partition has one of its own beside them:
requests that a connection has in flight are answered in order, so a producer that writes to all
waits for the slowest. With more than five in flight the two are kafka-python's, which sends nothing
again by itself: without ids, each record in a request of its own. A record that fails is not
refused then, its outcome is unknown.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

import confluent_kafka
import kafka

from kbroker.types import TopicPartition
from tests.cluster.brokers import PLACES, TIMEOUT_S, wait
from tests.cluster.checker import MEMBER, READER
from tests.cluster.history import NO_OFFSET, PADDING, History, Record, record_of, value_of
from tests.cluster.offsets import OffsetsWatch
from tests.support.read_topic import EOF_AT_ONCE

PRODUCERS: Final = 2
MEMBERS: Final = 2
TURN_S: Final = 0.05
RECORDS_A_TURN: Final = 20  # of each producer
IDEMPOTENT_MAX: Final = 5  # in flight
ONCE_A_TURN: Final = 60  # records of one that sends each once
COMMIT_S: Final = 0.4
POLL_S: Final = 0.1
UNSUBSCRIBED_S: Final = 5.0
GROUP: Final = "applications"
# A broker that is stopped is given up sooner than by default.
CONNECTION: Final = {
    "socket.timeout.ms": 10_000, "reconnect.backoff.max.ms": 500, "log_level": 0,
}  # fmt: skip


class Producer:
    """Writes to these partitions by turns until it is ended."""

    def __init__(
        self,
        bootstrap: str,
        history: History,
        numbers: itertools.count[int],
        places: Sequence[TopicPartition] = PLACES,
        a_turn: int = RECORDS_A_TURN,
    ) -> None:
        self._bootstrap = bootstrap
        self._history = history
        self._numbers = numbers
        self._places = places
        self._a_turn = a_turn
        self._ends = threading.Event()
        self._broken = False
        self._producer = self._begin()
        self._thread = threading.Thread(target=self._run, name="producer")
        self._thread.start()

    def _begin(self) -> Any:
        self._number = next(self._numbers)
        self._broken = False
        return confluent_kafka.Producer(
            {
                **CONNECTION,
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "delivery.timeout.ms": 900_000,
                "linger.ms": 5,
            }
        )

    def _run(self) -> None:
        dice = random.Random(self._number)
        turns = itertools.cycle(self._places)
        while not self._ends.is_set():
            for _ in range(self._a_turn):
                self._write(next(turns), dice.randrange(len(PADDING)))
            until_s = time.monotonic() + TURN_S
            while (left_s := until_s - time.monotonic()) > 0:
                self._poll(left_s)
            if self._broken:
                self._producer.purge()
                self._producer = self._begin()

    def _poll(self, seconds: float) -> None:
        try:
            self._producer.poll(seconds)
        except confluent_kafka.KafkaException as error:  # fatal: it takes no record any more
            self._fail(f"producer {self._number}: {error.args[0]}")

    def _write(self, place: TopicPartition, padding: int) -> None:
        record = self._history.send(place, self._number)
        value = value_of(record, padding)

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                offset = message.offset()
                at = NO_OFFSET if offset is None or offset < 0 else offset
                self._history.acknowledge(place, record, at)
            elif record.producer == self._number:  # not of one that was given up
                self._fail(f"{place}: {record.number} of producer {self._number}: {error}")

        while not self._broken:
            try:
                self._producer.produce(
                    place.topic, value, partition=place.partition, on_delivery=delivered
                )
                return
            except BufferError:  # a leader is away; what is there goes first
                self._poll(POLL_S)
            except confluent_kafka.KafkaException as error:
                self._fail(f"{place}: {record.number} of producer {self._number}: {error.args[0]}")

    def _fail(self, why: str) -> None:
        # The first word says why; what else was under way goes with it.
        if not self._broken:
            self._history.refuse(why)
        self._broken = True

    def stop(self) -> int:
        """What was never answered."""
        self._end()
        return int(self._producer.flush(TIMEOUT_S))

    def give_up(self) -> None:
        """Whatever is not answered by now."""
        self._end()
        self._producer.purge()

    def _end(self) -> None:
        self._ends.set()
        self._thread.join()


class OnceProducer:
    """Sends each record once, without an id, as many requests at a time as it may."""

    def __init__(self, bootstrap: str, history: History, number: int, in_flight: int) -> None:
        self._history = history
        self._number = number
        self._ends = threading.Event()
        history.sends_once(number)
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            enable_idempotence=False,
            retries=0,
            max_in_flight_requests_per_connection=in_flight,
            batch_size=0,
            linger_ms=0,
            request_timeout_ms=10_000,
            delivery_timeout_ms=60_000,
            max_block_ms=1_000,
            reconnect_backoff_max_ms=500,
        )
        self._thread = threading.Thread(target=self._run, name="producer")
        self._thread.start()

    def _run(self) -> None:
        dice = random.Random(self._number)
        turns = itertools.cycle(PLACES)
        while not self._ends.wait(TURN_S):
            for _ in range(ONCE_A_TURN):
                self._write(next(turns), dice.randrange(len(PADDING)))

    def _write(self, place: TopicPartition, padding: int) -> None:
        record = self._history.send(place, self._number)

        def delivered(written: Any) -> None:
            self._history.acknowledge(place, record, written.offset)

        try:
            future = self._producer.send(
                place.topic, value_of(record, padding), partition=place.partition
            )
        except kafka.errors.KafkaError:  # its buffer is full, or it knows no leader
            return
        future.add_callback(delivered)

    def stop(self) -> int:
        """Whatever is not answered fails by itself; what never was is 0."""
        self._end()
        self._producer.flush(TIMEOUT_S)
        self._producer.close(TIMEOUT_S)
        return 0

    def give_up(self) -> None:
        self._end()
        self._producer.close(0)

    def _end(self) -> None:
        self._ends.set()
        self._thread.join()


class Reader:
    """Reads every partition from its beginning, without a group, once."""

    def __init__(self, name: str, bootstrap: str, history: History) -> None:
        self.name = name
        self.errors: list[str] = []
        self._history = history
        self._ends = threading.Event()
        self._consumer = confluent_kafka.Consumer(self._settings(bootstrap))
        self._join()
        # One that hangs in its library is left.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _settings(self, bootstrap: str) -> dict[str, Any]:
        return {
            **CONNECTION, "bootstrap.servers": bootstrap, "group.id": "no-group",
            "enable.auto.commit": False, "auto.offset.reset": "error", "fetch.wait.max.ms": 100,
        }  # fmt: skip

    def _join(self) -> None:
        self._consumer.assign([confluent_kafka.TopicPartition(*place, 0) for place in PLACES])

    def _run(self) -> None:
        while not self._ends.is_set():
            message = self._consumer.poll(POLL_S)
            if message is None:
                continue
            error = message.error()
            if error is None:
                place = TopicPartition(message.topic(), message.partition())
                self._history.see(self.name, place, message.offset(), message.value())
                self._read(place, message.offset())
            elif error.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET:
                self.errors.append(f"{self.name}: {error}")
        self._leave()

    def _read(self, place: TopicPartition, offset: int) -> None:
        """It has been noted."""

    def _leave(self) -> None:
        self._consumer.close()

    def stop(self, wait_s: float = TIMEOUT_S) -> bool:
        """Whether it has ended: librdkafka 2.16 may wait for a lock of its own for ever."""
        self._ends.set()
        self._thread.join(wait_s)
        return not self._thread.is_alive()


class Member(Reader):
    """One of the group: commits what it has read, a few times a second and when it gives it up."""

    def _settings(self, bootstrap: str) -> dict[str, Any]:
        own = {
            "group.id": GROUP, "auto.offset.reset": "earliest", "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
        }  # fmt: skip
        return {**super()._settings(bootstrap), **own}

    def _join(self) -> None:
        self._positions: dict[TopicPartition, int] = {}
        self._due_s = 0.0
        self._consumer.subscribe(
            sorted({place.topic for place in PLACES}),
            on_assign=self._given, on_revoke=self._revoked, on_lost=self._lost,
        )  # fmt: skip

    def _given(self, consumer: Any, partitions: list[Any]) -> None:
        for each in partitions:
            self._history.begin(self.name, TopicPartition(each.topic, each.partition))

    def _revoked(self, consumer: Any, partitions: list[Any]) -> None:
        self._commit()
        self._positions.clear()

    def _lost(self, consumer: Any, partitions: list[Any]) -> None:
        self._positions.clear()

    def _read(self, place: TopicPartition, offset: int) -> None:
        self._positions[place] = offset + 1
        if time.monotonic() > self._due_s:
            self._commit()
            self._due_s = time.monotonic() + COMMIT_S

    def _commit(self) -> None:
        wanted = [confluent_kafka.TopicPartition(*at, offset=to) for at, to in
                  self._positions.items()]  # fmt: skip
        if not wanted:
            return
        try:
            answered = self._consumer.commit(offsets=wanted, asynchronous=False)
        except confluent_kafka.KafkaException:
            return  # the next one has it
        for each in answered or ():
            if each.error is None:
                self._history.commit(TopicPartition(each.topic, each.partition), each.offset)

    def _leave(self) -> None:
        self._commit()
        # Where a rebalance comes within `close`, librdkafka waits for itself and confluent-kafka
        # holds the interpreter's lock, so that the whole run would stop.
        self._consumer.unsubscribe()
        until = time.monotonic() + UNSUBSCRIBED_S
        while self._consumer.assignment() and time.monotonic() < until:
            self._consumer.poll(POLL_S)
        self._consumer.close()


class Load:
    """All of them, until `finish`."""

    def __init__(self, bootstrap: str, history: History, in_flight: int = IDEMPOTENT_MAX) -> None:
        self.history = history
        self.hung: list[str] = []
        self._bootstrap = bootstrap
        self._names = itertools.count(1)
        numbers = itertools.count()
        self._producers: list[Producer | OnceProducer] = [
            OnceProducer(bootstrap, history, next(numbers), in_flight)
            if in_flight > IDEMPOTENT_MAX
            else Producer(bootstrap, history, numbers)
            for _ in range(PRODUCERS)
        ]
        self._producers += [
            Producer(bootstrap, history, numbers, [place], a_turn=1) for place in PLACES
        ]
        self._reader = Reader(f"{READER} 0", bootstrap, history)
        self._members = [self._member() for _ in range(MEMBERS)]
        group = {**CONNECTION, "bootstrap.servers": bootstrap, "group.id": GROUP}
        self._offsets = OffsetsWatch(group, history)

    def _member(self) -> Member:
        return Member(f"{MEMBER} {next(self._names)}", self._bootstrap, self.history)

    def change_member(self) -> None:
        """One comes, and then the one that was longest there goes."""
        self._members.append(self._member())
        self._end(self._members.pop(0))

    def _end(self, consumer: Reader) -> None:
        if consumer.name not in self.hung and not consumer.stop():
            self.hung.append(consumer.name)

    def finish(self) -> list[str]:
        """Producers end, readers read to the end; what went wrong with that, in words."""
        unanswered = sum(each.stop() for each in self._producers)
        wrong = [f"{unanswered} records have no answer"] if unanswered else []
        try:
            ends = self._ends()
            wait("everything has been read", lambda: self._have_read(ends))
        except (TimeoutError, confluent_kafka.KafkaException) as error:
            wrong.append(str(error))
        self._offsets.stop()
        if not self._offsets.look():
            wrong.append("the group's coordinator does not say its offsets")
        self.give_up()
        return [*wrong, *self._reader.errors]

    def give_up(self) -> None:
        """End it as it is; may be called again."""
        self._offsets.stop()
        for each in self._producers:
            each.give_up()
        for consumer in (self._reader, *self._members):
            self._end(consumer)

    def _ends(self) -> dict[TopicPartition, int]:
        consumer = confluent_kafka.Consumer(
            {**CONNECTION, "bootstrap.servers": self._bootstrap, "group.id": "no-group"}
        )
        try:
            return {
                place: consumer.get_watermark_offsets(
                    confluent_kafka.TopicPartition(*place), timeout=TIMEOUT_S
                )[1]
                for place in PLACES
            }
        finally:
            consumer.close()

    def _have_read(self, ends: dict[TopicPartition, int]) -> bool:
        by_reader = self.history.read[self._reader.name]
        return all(
            len(by_reader[place]) >= end and self.history.furthest(MEMBER, place) >= end - 1
            for place, end in ends.items()
        )


def contents(bootstrap: str) -> dict[TopicPartition, list[Record]]:
    """All that there is of each partition, from offset 0 on; a hole is a record of no producer."""
    found: dict[TopicPartition, list[Record]] = {place: [] for place in PLACES}
    consumer = confluent_kafka.Consumer(
        {
            **CONNECTION, "bootstrap.servers": bootstrap, "group.id": "no-group",
            "enable.auto.commit": False, **EOF_AT_ONCE, "auto.offset.reset": "error",
        }
    )  # fmt: skip
    consumer.assign([confluent_kafka.TopicPartition(*place, 0) for place in PLACES])
    left = {*PLACES}
    until = time.monotonic() + TIMEOUT_S
    try:
        while left:
            message = consumer.poll(POLL_S)
            if time.monotonic() > until:
                raise TimeoutError(f"not read to the end in {TIMEOUT_S:.0f} s: {sorted(left)}")
            if message is None:
                continue
            error = message.error()
            place = TopicPartition(message.topic() or "", message.partition() or 0)
            if error is None:
                records = found[place]
                records += [record_of(None)] * ((message.offset() or 0) - len(records))
                records.append(record_of(message.value()))
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                left.discard(place)
    finally:
        consumer.close()
    return found
