"""The answers of a simulated broker to Fetch and Produce: a request layer in Python, but for waits.

A broker serves both in compiled code that needs sockets (`kbroker/engine`). Here the same steps are
taken in Python in the same order, on the real replica, whose compiled code decides everything: a
follower's fetch is checked, noted and read as `_fetch._read_target` does, in sessions as
`_fetch_session` keeps them. A write waits for its followers in the compiled parking itself
(`waits.py`); a fetch that waits is tried again when its partition is woken.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kbroker.engine.verifications import ADDS_FROM, produce_error
from kbroker.errors import ErrorCode, KafkaError
from kbroker.protocol.wire import Reader, Writer
from kbroker.replica._committed_read import aborted_transactions
from kbroker.types import TopicPartition
from tests.simulation.loop import APPENDS, HANDLER, WAITS
from tests.simulation.network import Answer
from tests.simulation.waits import Settled, Waits, Watched
from tests.support.played_fetch_sessions import (
    Answered,
    PlayedSessions,
    Read,
    refused_fetch,
    write_partition,
)

if TYPE_CHECKING:
    from kbroker.replica._replica import Replica
    from tests.simulation.broker import Running

_REPLICA_STATE_TAG = 1
NEWS_WAIT_MS = 8
# Between a handler's write and the wait for its followers, and between a coordinator's verification
# and the append.
AWAY_MS = (1, 10, 100, 400)
# The errors after which a producer sends a batch again.
SENT_AGAIN = ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS


class Position(NamedTuple):
    topic_id: UUID
    partition: int
    leader_epoch: int
    offset: int
    last_epoch: int
    log_start: int
    bytes_max: int


class _Fetch:
    """One request of a follower."""

    def __init__(self, sessions: PlayedSessions[Position], body: bytes, answer: Answer) -> None:
        reader = Reader(body, flexible=True)
        self.max_wait_ms, _, self.bytes_max = reader.int32(), reader.int32(), reader.int32()
        reader.raw(1)
        session_id, epoch = reader.int32(), reader.int32()
        asked = {
            (position.topic_id, position.partition): position
            for _ in range(reader.array())
            for position in _positions(reader)
        }
        forgotten = [key for _ in range(reader.array()) for key in _forgotten(reader)]
        reader.string()
        state: list[int] = []
        reader.tags({_REPLICA_STATE_TAG: lambda tag: state.extend((tag.int32(), tag.int64()))})
        self.follower, self.broker_epoch = state
        self.answer = answer
        self.names: list[TopicPartition | None] = []
        self.over = False
        self.has_news = False
        self.starts: dict[TopicPartition, int] = {}  # of the logs, when it came
        self.session, self.is_full = sessions.serve(session_id, epoch, asked, forgotten)
        # A copy: the positions of a waiting fetch do not change.
        self.positions = list(self.session.positions.values())


def _forgotten(reader: Reader) -> Iterator[tuple[UUID | None, int]]:
    topic_id = reader.uuid()
    for _ in range(reader.array()):
        yield topic_id, reader.int32()
    reader.tags()


def _positions(reader: Reader) -> list[Position]:
    topic_id = reader.uuid()
    assert topic_id is not None
    found = []
    for _ in range(reader.array()):
        partition, leader_epoch, offset = reader.int32(), reader.int32(), reader.int64()
        last_epoch, log_start = reader.int32(), reader.int64()
        found.append(
            Position(
                topic_id, partition, leader_epoch, offset, last_epoch, log_start, reader.int32()
            )
        )
        reader.tags()
    reader.tags()
    return found


class Fetches:
    """Followers' fetches at one leader, and those that wait."""

    def __init__(self, broker: Running) -> None:
        self._broker = broker
        # Ids of an earlier start mean nothing to this one.
        dice = random.Random(f"{broker.node_id} {broker.clock.monotonic_ns()}")
        self._sessions: PlayedSessions[Position] = PlayedSessions(lambda: dice.randrange(1, 2**31))
        self._waiting: dict[TopicPartition, dict[_Fetch, None]] = {}
        # The high watermarks that were sent to each follower; a restart forgets them.
        self._sent: dict[tuple[TopicPartition, int, int], int] = {}

    @property
    def waiting(self) -> int:
        return sum(len(each) for each in self._waiting.values())

    def serve(self, body: bytes, answer: Answer) -> None:
        try:
            fetch = _Fetch(self._sessions, body, answer)
        except KafkaError as error:
            answer(refused_fetch(error.code))
            return
        follower = self._broker.cluster.brokers[fetch.follower].running
        if follower is not None and follower.fetches_slowly:
            fetch.bytes_max = 1  # a batch comes all the same
        fetch.names = self._names_of(fetch.positions)
        if self._try(fetch, first=True, last=fetch.max_wait_ms <= 0):
            return
        wait_ms = min(fetch.max_wait_ms, NEWS_WAIT_MS) if fetch.has_news else fetch.max_wait_ms
        for name in fetch.names:
            if name is not None:
                self._waiting.setdefault(name, {})[fetch] = None
        self._broker.process.later(wait_ms, lambda: self._expire(fetch), HANDLER)

    def wake(self, name: TopicPartition) -> None:
        for fetch in list(self._waiting.get(name, ())):
            self._broker.process.work(partial(self._look_again, fetch), HANDLER)

    def _look_again(self, fetch: _Fetch) -> None:
        if not fetch.over:
            self._try(fetch)

    def _expire(self, fetch: _Fetch) -> None:
        if not fetch.over:
            self._try(fetch, last=True)

    def _try(self, fetch: _Fetch, *, first: bool = False, last: bool = False) -> bool:
        """Answer if there is news, or no time is left."""
        left = fetch.bytes_max
        reads: list[Read] = []
        news = last
        moved: list[TopicPartition] = []
        for each, name in zip(fetch.positions, fetch.names, strict=True):
            read, has_news = self._read(fetch, name, each, left, first, moved)
            left = max(0, left - len(read.records))
            news |= has_news
            reads.append(read)
        if news:
            fetch.over = True
            self._note_sent(fetch, reads)
            for name in fetch.names:
                if name in self._waiting:
                    self._waiting[name].pop(fetch, None)
            fetch.answer(_encoded(fetch, reads))
        for name in moved:
            self._broker.wake_name(name)
        return news

    def _note_sent(self, fetch: _Fetch, reads: list[Read]) -> None:
        for each, name, read in zip(fetch.positions, fetch.names, reads, strict=True):
            if name is not None and read.answered.error is ErrorCode.NONE:
                self._sent[name, fetch.follower, each.leader_epoch] = read.answered.high_watermark

    def _names_of(self, positions: list[Position]) -> list[TopicPartition | None]:
        image = self._broker.controller.image
        topics = [image.topic_by_id(each.topic_id) for each in positions]
        return [
            None if topic is None else TopicPartition(topic.name, at.partition)
            for topic, at in zip(topics, positions, strict=True)
        ]

    def _read(
        self, fetch: _Fetch, name: TopicPartition | None, at: Position, left: int, first: bool,
        moved: list[TopicPartition],
    ) -> tuple[Read, bool]:  # fmt: skip
        if name is None:
            return Read.refused(ErrorCode.UNKNOWN_TOPIC_ID), True
        replica = self._broker.replicas.partition(*name)
        if replica is None:
            return Read.refused(ErrorCode.NOT_LEADER_OR_FOLLOWER), True
        try:
            return self._read_replica(fetch, name, replica, at, left, first, moved)
        except KafkaError as error:
            return Read.refused(error.code), True

    def _read_replica(
        self, fetch: _Fetch, name: TopicPartition, replica: Replica, at: Position, left: int,
        first: bool, moved: list[TopicPartition],
    ) -> tuple[Read, bool]:  # fmt: skip
        if at.leader_epoch != replica.leader_epoch:
            fenced = at.leader_epoch < replica.leader_epoch
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH if fenced else ErrorCode.UNKNOWN_LEADER_EPOCH
            )
        if not self._broker.leads(name):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if at.last_epoch >= 0:
            epoch, end = replica.epochs.end_offset_for(at.last_epoch, replica.log_end_offset)
            if epoch < 0:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
            if epoch < at.last_epoch or end < at.offset:
                marks = replica.high_watermark, replica.log_start_offset
                return Read(Answered(ErrorCode.NONE, *marks), (epoch, end)), True
        before = replica.high_watermark
        if first:
            replica.note_fetch(
                fetch.follower,
                at.offset,
                self._broker.clock.monotonic_ns(),
                broker_epoch=fetch.broker_epoch,
                leader_epoch=at.leader_epoch,
                log_start_offset=at.log_start,
            )
            fetch.starts[name] = replica.log_start_offset
        if replica.high_watermark > before or (first and replica.deletions_wait):
            moved.append(name)
        records = b""
        if left > 0:
            records = replica.read(at.offset, min(at.bytes_max, left), to_log_end=True)
        sent = self._sent.get((name, fetch.follower, at.leader_epoch), -1)
        moved_on = sent < replica.high_watermark
        # A fetch that moves the high watermark waits a little for records, to return both.
        fetch.has_news |= first and moved_on
        news = bool(records) or sent < 0 or (moved_on and not fetch.has_news)
        # A fetch that had an error first has no entry in `starts`.
        news |= replica.log_start_offset > fetch.starts.get(name, -1)
        marks = replica.high_watermark, replica.log_start_offset
        return Read(Answered(ErrorCode.NONE, *marks), None, records), news


def _encoded(fetch: _Fetch, reads: list[Read]) -> bytes:
    """The partitions that are new to the follower; all partitions of a full request."""
    session = fetch.session
    returned = [
        (at, read)
        for at, read in zip(fetch.positions, reads, strict=True)
        if fetch.is_full
        or not session.repeats(
            (at.topic_id, at.partition), read.answered, more=bool(read.records or read.diverging)
        )
    ]
    writer = Writer(flexible=True)
    writer.raw(bytes(4 + 2))
    writer.int32(session.session_id)
    writer.array(len(returned))
    for at, read in returned:
        write_partition(writer, at.topic_id, at.partition, read)
        moves = bool(read.records) and not fetch.is_full
        session.remember((at.topic_id, at.partition), read.answered, records=moves)
    writer.tags()
    return writer.getvalue()


# The errors of a produce for those of a coordinator's write, except the storage error.
_OF_PRODUCES = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}


class Produced(NamedTuple):
    error: ErrorCode
    offset: int = -1


ProducedDone = Callable[[Produced], None]
_PLAIN: Mapping[str, int] = {}  # a batch that is in no transaction


class Transactional(NamedTuple):
    """A batch of a transaction, in a Produce of that version."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    sequence: int
    version: int
    batch: bytes
    away_ms: int = 0  # between the coordinator's answer and the append


class Produces:
    """Produces at one broker, and those that wait for their followers."""

    def __init__(self, broker: Running) -> None:
        self._broker = broker
        self._waits = Waits(broker.process)
        now_ns = broker.clock.monotonic_ns()
        self._dice = random.Random(f"waits {broker.node_id} {now_ns}")
        self._between = random.Random(f"verified {broker.node_id} {now_ns}")

    @property
    def waiting(self) -> int:
        return len(self._waits)

    def serve(
        self, name: TopicPartition, batch: bytes, acks: int, timeout_ms: int, done: ProducedDone
    ) -> None:
        replica = self._broker.replicas.partition(*name)
        if replica is None:
            done(Produced(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            return
        append = partial(self._append, name, replica, batch, acks, timeout_ms, done)
        # Batches of one producer come one after the other; those of two kinds may come at once.
        self._broker.process.work(append, f"{APPENDS} {name} with acks {acks}")

    def serve_transactional(
        self, name: TopicPartition, sent: Transactional, timeout_ms: int, done: ProducedDone
    ) -> None:
        """As `_produce_verify` and `Verifications` do: where the transaction is not open here, its
        coordinator is asked, and the batch is appended under a guard."""
        replica = self._broker.replicas.partition(*name)
        if replica is None:
            done(Produced(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            return
        if not self._broker.leads(name):
            done(Produced(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        adds = sent.version >= ADDS_FROM
        code, guard = replica.begin_verification(
            sent.producer_id,
            sent.producer_epoch,
            sent.sequence,
            bumps_epoch=adds,
        )

        def append(guard: int) -> None:
            how = {"guard": guard, "api_version": sent.version}
            self._append(name, replica, sent.batch, -1, timeout_ms, done, how)

        def verified(errors: Mapping[TopicPartition, ErrorCode]) -> None:
            self._broker.cluster.fault_points.happens("verified", self._broker.node_id)
            go_on = partial(answered, produce_error(errors[name], sent.version))
            if sent.away_ms or not self._between.randrange(8):
                away_ms = sent.away_ms or self._between.choice(AWAY_MS)
                self._broker.process.later(away_ms, go_on, HANDLER)
            else:
                go_on()

        def answered(code: ErrorCode) -> None:
            if code:
                done(Produced(code))
            else:
                append(guard)
            refused = bool(code) and code not in SENT_AGAIN
            replica.end_verification(sent.producer_id, guard, refused=refused)

        if code:
            done(Produced(code))
        elif not guard:
            append(0)
        else:
            self._broker.transactions.verify(
                sent.transactional_id, sent.producer_id, sent.producer_epoch, [name],
                adds=adds, done=verified,
            )  # fmt: skip

    def _append(
        self, name: TopicPartition, replica: Replica, batch: bytes, acks: int, timeout_ms: int,
        done: ProducedDone, how: Mapping[str, int] = _PLAIN,
    ) -> None:  # fmt: skip
        before, led_since = replica.log_end_offset, self._broker.led_since(name)
        try:
            result = replica.append(batch, acks=acks, now_ms=self._broker.clock.wall_ms(), **how)
        except KafkaError as error:
            done(Produced(error.code))
            return
        except OSError:  # of the flush after it
            done(Produced(ErrorCode.KAFKA_STORAGE_ERROR))
            return
        offset = result.last_offset
        appended = replica.log_end_offset > before
        led_on = led_since == self._broker.led_since(name)
        if acks == -1 and (must_wait(replica, offset, appended=appended) or not led_on):

            def ended(code: ErrorCode) -> None:
                done(Produced(_OF_PRODUCES.get(code, code), offset))

            self._wait(replica, offset, led_since, timeout_ms, ended)
        else:
            done(Produced(ErrorCode.NONE, offset))
        if appended:
            self._broker.wake(replica)

    def await_followers(
        self, replica: Replica, last_offset: int, led_since: int, timeout_ms: int, done: Settled
    ) -> None:
        """As that of `HotPath`, for writes of the coordinator."""
        self._wait(replica, last_offset, led_since, timeout_ms, done)

    def _wait(
        self, replica: Replica, last_offset: int, led_since: int, timeout_ms: int, done: Settled
    ) -> None:
        """Wait for the followers. At times the thread pauses for some time before it waits."""
        wait = partial(self._park, replica, last_offset, led_since, timeout_ms, done)
        if self._broker.scheduler is not None or self._dice.randrange(8):
            wait()
        else:
            self._broker.process.later(self._dice.choice(AWAY_MS), wait, WAITS)

    def _park(
        self, replica: Replica, last_offset: int, led_since: int, timeout_ms: int, done: Settled
    ) -> None:
        self._waits.begin(replica, last_offset, led_since, timeout_ms, done)

    def await_low_watermark(
        self, replica: Replica, offset: int, timeout_ms: int, done: Settled
    ) -> None:
        """As that of `HotPath`, for records that were deleted."""
        self._waits.begin_deletion(replica, offset, timeout_ms, done)

    def await_records(
        self, replica: Replica, offset: int, is_committed: bool, count_bytes: int, timeout_ms: int,
        done: Settled,
    ) -> Watched:  # fmt: skip
        """As that of `HotShares`, for share-partitions."""
        return self._waits.begin_records(replica, offset, is_committed, count_bytes, done)

    def wake(self, replica: Replica) -> None:
        self._waits.wake(replica)

    def close(self) -> None:
        self._waits.close()


def must_wait(replica: Replica, last_offset: int, *, appended: bool) -> bool:
    """Whether some replica lacks a batch, which was appended now or is a duplicate."""
    return last_offset >= replica.high_watermark


def fetch_committed(replica: Replica, offset: int) -> tuple[bytes, list[tuple[int, int]]]:
    """As a fetch with read_committed: batches, and the aborted transactions in them."""
    return replica.read(offset, read_committed=True), aborted_transactions(replica, offset)
