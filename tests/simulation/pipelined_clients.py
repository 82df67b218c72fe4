"""Producers that do not wait for an answer before they send on, over channels that keep the order.

`Channel` has the guarantees of a pipelined connection: requests are carried out in the order in
which they were sent, answers come in that order, however long each request waited, and a connection
that is lost loses all answers that have not come. The idempotent producer has five batches of a
partition under way, as Apache Kafka's clients have; when one fails it waits for the others, and
sends again from that batch on. The plain one has up to 200 and sends none again: with acks=-1 the
offsets in its answers rise.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kbroker.errors import ErrorCode
from kbroker.metadata.image import NO_LEADER
from kbroker.types import TopicPartition
from tests.simulation.clients import GIVE_UP_MS, PRODUCE_TIMEOUT_MS, Numbering
from tests.simulation.contents import batch_of
from tests.simulation.network import CLIENTS, Answer, Done, Exchange, Lost, Network, Serve
from tests.simulation.requests import Produced

if TYPE_CHECKING:
    from tests.simulation.broker import Running
    from tests.simulation.cluster import Cluster
    from tests.simulation.loop import Process

# As many as a leader keeps of a producer: a batch that is sent again is known as a duplicate.
IN_FLIGHT_MAX: Final = 5
QUEUED_MAX: Final = 10
PLAIN_IN_FLIGHT_MAX: Final = 200
_BURSTS: Final = (1, 2, 3, 5, 8)
_PLAIN_BURSTS: Final = (1, 1, 3, 10)
_FULL_BURST: Final = 0.02  # how many of a plain producer's bursts are all that it may have
_NOTHING: Final = object()


class _Slot(Exchange):
    """A request of a channel, and its answer once there is one."""

    def __init__(self, channel: Channel, done: Done) -> None:
        super().__init__(channel.network, channel.source, channel.ways, done)
        self._channel = channel
        self.body: Any = _NOTHING

    def answer(self, body: Any) -> None:
        if not self.over:
            self.body = body
            self._channel.send_answers()

    def end(self, result: Any) -> None:
        if isinstance(result, Lost):
            self._channel.lose(result)
        else:
            super().end(result)


class Channel:
    """A connection to the broker that listens at the second place now."""

    def __init__(self, network: Network, source: Process, ways: tuple[int, int]) -> None:
        self.network = network
        self.source = source
        self.ways = ways
        self.is_lost = False
        self.last_offset = -1  # in the answers to a plain producer
        self._target = network.brokers.get(ways[1])
        self._asked: deque[tuple[_Slot, Serve]] = deque()  # on their way there
        self._waiting: deque[_Slot] = deque()
        self._answered: deque[_Slot] = deque()  # on their way back
        self._open: dict[_Slot, None] = {}
        self._comes_at_ms = 0  # the last request's arrival: a later one does not come before it
        self._is_cut = False  # a message was lost, so no later one comes

    def send(self, serve: Serve, done: Done) -> None:
        slot = _Slot(self, done)
        slot.target = self._target
        self._open[slot] = None
        self.network.add(slot)
        if self._target is None:
            self.network.later(slot.end, Lost.REFUSED)
            return
        self._waiting.append(slot)
        self._is_cut = self._is_cut or self.network.is_cut(*self.ways)
        if not self._is_cut:
            self._asked.append((slot, serve))
            now_ms = round(self.source.now_ms)
            self._comes_at_ms = max(self._comes_at_ms, now_ms + self.network.delay_of(self.ways))
            self.network.later(self._arrive, delay_ms=self._comes_at_ms - now_ms)

    def _arrive(self) -> None:
        """The next one, so none overtakes another."""
        slot, serve = self._asked.popleft()
        slot.arrive(serve)

    def send_answers(self) -> None:
        """Those whose earlier requests have all been answered."""
        source, target = self.ways
        while self._waiting and self._waiting[0].body is not _NOTHING:
            slot = self._waiting.popleft()
            self._is_cut = self._is_cut or self.network.is_cut(target, source)
            if not self._is_cut:
                self._answered.append(slot)
                self.network.later(self._come_back)

    def _come_back(self) -> None:
        slot = self._answered.popleft()
        self._open.pop(slot, None)
        slot.end(slot.body)

    def lose(self, how: Lost) -> None:
        """All that has not come, in its order."""
        self.is_lost = True
        slots, self._open = self._open, {}
        for slot in slots:
            Exchange.end(slot, how)


@dataclass
class _Batch:
    value: bytes
    give_up_at_ms: int
    sequence: int
    is_under_way: bool = False
    is_acknowledged: bool = False
    is_passed: bool = False  # the leader had a later one of this producer when it refused this one


@dataclass
class _Line:
    """Of a producer, in one partition."""

    producer_id: int | None = None  # None: no broker has given one yet
    asks: bool = False  # for one
    sequence: int = 0  # of the next batch
    queue: deque[_Batch] = field(default_factory=deque)
    under_way: int = 0
    channel: Channel | None = None
    has_failed: bool = False  # nothing is sent until all batches under way are answered
    is_over: bool = False  # and nothing after that


class PipelinedProducer(Numbering):
    """As `Producer`, with more than one batch under way."""

    def __init__(self, cluster: Cluster, number: int, dice: random.Random, **how: Any) -> None:
        super().__init__(cluster, number, dice, **how)
        self._lines: dict[TopicPartition, _Line] = {}

    @property
    def sending(self) -> set[TopicPartition]:
        return {name for name, line in self._lines.items() if line.queue or line.under_way}

    def produce(self, name: TopicPartition) -> None:
        """A few at once."""
        if name not in self._lines:
            self._lines[name] = _Line()
        line = self._lines[name]
        if self._idempotent:
            for _ in range(self._dice.choice(_BURSTS)):
                if len(line.queue) < QUEUED_MAX:
                    line.queue.append(self._batch(line))
            self._send_on(name, line)
        else:
            self._send_plain(name, line)

    def _batch(self, line: _Line) -> _Batch:
        value = self._next_value()
        sequence, line.sequence = line.sequence, line.sequence + 1
        return _Batch(value, self._cluster.loop.now_ms + GIVE_UP_MS, sequence)

    def _has_channel(self, name: TopicPartition, line: _Line) -> bool:
        """A channel to the leader that is known. It replaces another one only when nothing is under
        way on that, or the order would be left to chance."""
        leader, _ = self._leader_of(name)
        channel = line.channel
        if channel is not None and not channel.is_lost and channel.ways[1] == leader:
            return True
        if leader == NO_LEADER or (self._idempotent and line.under_way):
            return False
        line.channel = Channel(self._cluster.network, self._cluster.clients, (CLIENTS, leader))
        return True

    def _serve(
        self, name: TopicPartition, line: _Line, batch: _Batch, running: Running, answer: Answer
    ) -> None:
        def done(produced: Produced) -> None:
            if produced.error is ErrorCode.NONE and self._acks == -1:
                self._cluster.safety.acknowledges(name, batch.value, produced.offset)
            if produced.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                replica = running.replicas.partition(*name)
                known = replica.log.producer_entries()[1] if replica is not None else ()
                batch.is_passed = not self._cluster.safety.leads(running, name) or any(
                    each.producer_id == line.producer_id and each.last_sequence >= batch.sequence
                    for each in known
                )
            answer(produced)

        numbered = () if line.producer_id is None else (line.producer_id, 0, batch.sequence)
        data = batch_of(batch.value, *numbered)
        running.produces.serve(name, data, self._acks, PRODUCE_TIMEOUT_MS, done)

    # --- idempotent -------------------------------------------------------------------------------

    def _send_on(self, name: TopicPartition, line: _Line) -> None:
        """Send the batches that may be under way: five from the first unacknowledged one on."""
        if line.producer_id is None:
            if not line.has_failed:
                self._ask_for_id(name, line)
            return
        for batch in list(line.queue)[:IN_FLIGHT_MAX]:
            if line.has_failed:
                return
            if batch.is_under_way or batch.is_acknowledged:
                continue
            if not self._has_channel(name, line):
                if not line.under_way:
                    self._failed(name, line)
                return
            assert line.channel is not None
            batch.is_under_way = True
            line.under_way += 1
            line.channel.send(
                partial(self._serve, name, line, batch), partial(self._answered, name, line, batch)
            )

    def _ask_for_id(self, name: TopicPartition, line: _Line) -> None:
        def numbered(producer_id: int | None) -> None:
            line.asks, line.producer_id = False, producer_id
            if producer_id is None:
                self._failed(name, line)
            else:
                self._send_on(name, line)

        if not line.asks:
            line.asks = True
            self._cluster.producer_ids.ask(numbered)

    def _answered(
        self, name: TopicPartition, line: _Line, batch: _Batch, result: Produced | Lost
    ) -> None:
        line.under_way -= 1
        batch.is_under_way = False
        if isinstance(result, Produced) and result.error is ErrorCode.NONE:
            batch.is_acknowledged = True
            self.acknowledged[name] += 1
            while line.queue and line.queue[0].is_acknowledged:
                line.queue.popleft()
            if line.has_failed and not line.under_way:
                self._failed(name, line)
            else:
                self._send_on(name, line)
            return
        if (
            isinstance(result, Produced)
            and result.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            and batch is line.queue[0]
            and not line.has_failed
        ):
            self._out_of_order(name, line, batch)
        line.has_failed = True
        if not line.under_way:
            self._failed(name, line)

    def _out_of_order(self, name: TopicPartition, line: _Line, batch: _Batch) -> None:
        """As in Apache Kafka, a leader without state of a producer accepts any batch of it first:
        the second, if it could not accept the first yet. And a leader that has restarted knows only
        the last of five batches, if they are below its snapshot. A batch that was passed so is
        refused for good, whether the log has it or not, and its producer gets the error. So does
        the producer of a batch at a leader that does not know yet that another leads."""
        if batch.is_passed:
            line.is_over = True
            return
        partition = self._cluster.safety.partition(name)
        detail = f"{batch.value!r}"
        self._cluster.safety.fail("the leader knows a producer's sequence", detail, partition)

    def _failed(self, name: TopicPartition, line: _Line) -> None:
        """Nothing is under way: send again, from the first unacknowledged batch on."""
        line.has_failed = True
        is_late = line.queue and self._cluster.loop.now_ms >= line.queue[0].give_up_at_ms
        if is_late or line.is_over:
            # They may be in the log, and a next batch must not be taken for them; or come later.
            self._cluster.safety.given_up.update(each.value for each in line.queue)
            del self._lines[name]
            return
        self._cluster.clients.later(
            self._dice.uniform(20, 120), lambda: self._send_again(name, line)
        )

    def _send_again(self, name: TopicPartition, line: _Line) -> None:
        line.has_failed = False
        self._send_on(name, line)

    # --- plain ------------------------------------------------------------------------------------

    def _send_plain(self, name: TopicPartition, line: _Line) -> None:
        full = self._dice.random() < _FULL_BURST
        count = PLAIN_IN_FLIGHT_MAX if full else self._dice.choice(_PLAIN_BURSTS)
        for _ in range(min(count, PLAIN_IN_FLIGHT_MAX - line.under_way)):
            if not self._has_channel(name, line):
                return
            assert line.channel is not None
            batch = self._batch(line)
            line.under_way += 1
            line.channel.send(
                partial(self._serve, name, line, batch),
                partial(self._plain_answered, name, line, line.channel, batch),
            )

    def _plain_answered(
        self,
        name: TopicPartition,
        line: _Line,
        channel: Channel,
        batch: _Batch,
        result: Produced | Lost,
    ) -> None:
        line.under_way -= 1
        if not isinstance(result, Produced) or result.error is not ErrorCode.NONE:
            return
        self.acknowledged[name] += 1
        if self._acks == -1 and result.offset <= channel.last_offset:
            self._cluster.safety.fail(
                "acknowledged offsets rise",
                f"{batch.value!r} is at {result.offset}, after {channel.last_offset}",
                self._cluster.safety.partition(name),
            )
        channel.last_offset = result.offset
