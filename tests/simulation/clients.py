"""Clients of a simulated cluster: producers that send again and such that do not, a consumer.

A producer has one batch under way for a partition. The idempotent one sends the batch again until
it is acknowledged or GIVE_UP_MS are over; after that it takes a new producer id, as a client would.
The plain one sends once; without an answer it does not know whether the batch was written. A client
learns the leader from any running broker. That broker may know an old leader, so a client ignores
a leader epoch below the newest that it knows. The consumer reads on from its position, and asks for
the end of the log.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.image import NO_LEADER
from kbroker.peer.messages import LATEST_TIMESTAMP, decode_list_offsets
from kbroker.peer.replica_fetch import LIST_OFFSETS_VERSION, encode_list_offsets
from kbroker.protocol.wire import Reader
from kbroker.types import ApiKey, TopicPartition
from tests.simulation.contents import Record, batch_of, producer_of, records_in
from tests.simulation.network import CLIENTS, Answer, Lost
from tests.simulation.requests import Produced

if TYPE_CHECKING:
    from tests.simulation.broker import Running
    from tests.simulation.cluster import Cluster

GIVE_UP_MS = 6_000
PRODUCE_TIMEOUT_MS = 800
BATCHES_KEPT = 5  # of a producer, by a leader
_NO_BROKER = -1  # the replica id of a consumer


@dataclass
class _Line:
    """Of an idempotent producer, in one partition."""

    producer_id: int
    sequence: int = 0

    def batch_of(self, value: bytes) -> bytes:
        return batch_of(value, self.producer_id, 0, self.sequence)


@dataclass
class _Sending:
    """A batch under way."""

    name: TopicPartition
    value: bytes
    batch: bytes
    give_up_at_ms: int


class Client:
    """The leader epochs that a client knows."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._epochs: dict[TopicPartition, int] = {}

    def _leader_of(self, name: TopicPartition) -> tuple[int, int]:
        """The leader and its epoch; NO_LEADER where the answer is older than the known one."""
        leader, epoch = self._cluster.leader_of(name)
        if epoch < self._epochs.get(name, -1):
            return NO_LEADER, -1
        self._epochs[name] = epoch
        return leader, epoch


class Numbering(Client):
    """A producer that numbers its records, under its name."""

    def __init__(
        self, cluster: Cluster, number: int, dice: random.Random, *, idempotent: bool, acks: int
    ) -> None:
        super().__init__(cluster)
        self._dice = dice
        self._idempotent = idempotent
        self._acks = acks
        self._name = b"%d" % number
        self._numbers = 0
        self.acknowledged: Counter[TopicPartition] = Counter()
        if idempotent:
            cluster.safety.in_order.add(self._name)

    def _next_value(self) -> bytes:
        self._numbers += 1
        value = b"%s-%d" % (self._name, self._numbers)
        self._cluster.safety.sent.add(value)
        return value


class Producer(Numbering):
    def __init__(self, cluster: Cluster, number: int, dice: random.Random, **how: Any) -> None:
        super().__init__(cluster, number, dice, **how)
        self._lines: dict[TopicPartition, _Line] = {}
        self.sending: dict[TopicPartition, _Sending] = {}

    def produce(self, name: TopicPartition) -> None:
        if name in self.sending:
            return
        value = self._next_value()
        line = self._lines.get(name)
        batch = batch_of(value) if line is None else line.batch_of(value)
        sending = _Sending(name, value, batch, self._cluster.loop.now_ms + GIVE_UP_MS)
        self.sending[name] = sending
        self._send(sending)

    def _numbered(self, sending: _Sending, producer_id: int | None) -> None:
        """A broker has given an id, or none."""
        if producer_id is None:
            self._failed(sending)
            return
        line = self._lines[sending.name] = _Line(producer_id)
        sending.batch = line.batch_of(sending.value)
        self._send(sending)

    def _send(self, sending: _Sending) -> None:
        if self._idempotent and sending.name not in self._lines:
            self._cluster.producer_ids.ask(partial(self._numbered, sending))
            return
        leader, _ = self._leader_of(sending.name)
        if leader == NO_LEADER:
            self._failed(sending)
        else:
            self._cluster.network.request(
                self._cluster.clients,
                (CLIENTS, leader),
                partial(self._serve, sending),
                partial(self._answered, sending),
            )

    def _serve(self, sending: _Sending, running: Running, answer: Answer) -> None:
        def done(produced: Produced) -> None:
            if produced.error is ErrorCode.NONE and self._acks == -1:
                self._cluster.safety.acknowledges(sending.name, sending.value, produced.offset)
            if produced.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                self._is_out_of_order(sending, running)
            answer(produced)

        running.produces.serve(sending.name, sending.batch, self._acks, PRODUCE_TIMEOUT_MS, done)

    def _answered(self, sending: _Sending, result: Produced | Lost) -> None:
        if isinstance(result, Produced) and result.error is ErrorCode.NONE:
            del self.sending[sending.name]
            if self._idempotent:
                self._lines[sending.name].sequence += 1
            self.acknowledged[sending.name] += 1
            return
        self._failed(sending)

    def _is_out_of_order(self, sending: _Sending, running: Running) -> None:
        safety = self._cluster.safety
        if safety.leads(running, sending.name) and not self._is_long_ago(sending):
            partition = safety.partition(sending.name)
            safety.fail("the leader knows a producer's sequence", f"{sending.value!r}", partition)

    def _is_long_ago(self, sending: _Sending) -> bool:
        """A request that comes late, when another one with its batch was acknowledged, and so many
        after it that its leader need not know it: then the answer is for no client."""
        line = self._lines.get(sending.name)
        if line is None or self.sending.get(sending.name) is sending:
            return False
        pair, sequence = producer_of(sending.batch)
        newest = line.sequence if sending.name in self.sending else line.sequence - 1
        return pair.producer_id == line.producer_id and sequence + BATCHES_KEPT <= newest

    def _failed(self, sending: _Sending) -> None:
        if self._idempotent and self._cluster.loop.now_ms < sending.give_up_at_ms:
            self._cluster.clients.later(self._dice.uniform(20, 120), lambda: self._send(sending))
            return
        del self.sending[sending.name]
        if self._idempotent:
            # It may be in the log, and the next batch must not be taken for it; or come later.
            self._cluster.safety.given_up.add(sending.value)
            self._lines.pop(sending.name, None)


class Consumer(Client):
    """Of all partitions."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._positions: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._asking: set[TopicPartition] = set()
        self.records = 0

    def _ask(self, name: TopicPartition, serve: Any, done: Any) -> bool:
        leader, epoch = self._leader_of(name)
        if leader == NO_LEADER:
            return False
        self._cluster.network.request(
            self._cluster.clients, (CLIENTS, leader), partial(serve, name, epoch), done
        )
        return True

    def consume(self, name: TopicPartition) -> None:
        self._ask(name, self._serve_fetch, partial(self._fetched, name))

    def _serve_fetch(
        self, name: TopicPartition, epoch: int, running: Running, answer: Answer
    ) -> None:
        position = self._positions.get(name, 0)
        replica = running.replicas.partition(*name)
        if replica is None or replica.leader_epoch != epoch:
            answer((position, []))
            return
        position = max(position, replica.log_start_offset)  # as where it is out of range
        try:
            answer((position, records_in(replica.read(position))))
        except KafkaError:
            answer((position, []))

    def _fetched(
        self, name: TopicPartition, result: tuple[int, list[tuple[int, Record]]] | Lost
    ) -> None:
        if isinstance(result, Lost):
            return
        begins_at, records = result
        if records:
            self._positions[name] = max(begins_at, self._positions.get(name, 0))
        for offset, record in records:
            if offset == self._positions.get(name, 0):
                self._cluster.safety.consumed(name, offset, record)
                self._positions[name] = offset + 1
                self.records += 1

    def ask_end(self, name: TopicPartition) -> None:
        if name not in self._asking and self._ask(
            name, self._serve_end, partial(self._end_answered, name)
        ):
            self._asking.add(name)  # one after the other, or answers overtake each other

    def _serve_end(
        self, name: TopicPartition, epoch: int, running: Running, answer: Answer
    ) -> None:
        body = encode_list_offsets(_NO_BROKER, {name: epoch}, LATEST_TIMESTAMP)
        running.serve(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, body, answer)

    def _end_answered(self, name: TopicPartition, result: bytes | Lost) -> None:
        self._asking.discard(name)
        if isinstance(result, Lost):
            return
        found = decode_list_offsets(Reader(result, flexible=True), LIST_OFFSETS_VERSION)[name]
        if found.error is not ErrorCode.NONE:
            return
        before = self._ends.get(name, 0)
        if found.offset < before:
            self._cluster.safety.fail(
                "the end offsets returned to consumers do not go back",
                f"the end was {before}, and is {found.offset}",
                self._cluster.safety.partition(name),
            )
        self._ends[name] = found.offset
