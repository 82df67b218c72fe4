"""Transactional producers of a simulated cluster, and readers of committed records.

A producer goes one step after the other, as the clients of Apache Kafka do: an id and an epoch, the
partitions (TV1 adds them first), batches, offsets of a group, the outcome. It sends a request again
until it is answered or GIVE_UP_MS are over; then it aborts, or is another process from then on.
Requests arrive twice at times, the second time late by a whole transaction.

An old producer is TV1. A modern one is TV2 if the brokers' level is 2 when a transaction begins,
and TV1 before; its first transaction of TV2 has an epoch of its own. TV1 cannot fence every late
request, so a request to a coordinator, or of offsets, is not served here if its transaction is over
and the id still has that epoch. After a batch without an answer a TV1 producer asks for another
epoch, so that batch cannot become part of a later transaction.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.coordinator.txn.image import NO_PAIR, RAISES_EPOCHS, Pair
from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.features import TRANSACTION_VERSION
from kbroker.metadata.image import NO_LEADER, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kbroker.peer.group_messages import decode_offset_fetch, encode_offset_fetch
from kbroker.protocol import messages
from kbroker.protocol.wire import Reader
from kbroker.types import ApiKey, TopicPartition
from tests.simulation.clients import PRODUCE_TIMEOUT_MS, Client
from tests.simulation.contents import Record, batch_of, records_in
from tests.simulation.group_clients import FETCH_VERSION
from tests.simulation.network import CLIENTS, Answer, Lost
from tests.simulation.requests import Produced, Transactional, fetch_committed
from tests.simulation.transaction_ledger import GROUP, Transaction

if TYPE_CHECKING:
    from tests.simulation.broker import Running
    from tests.simulation.cluster import Cluster

GIVE_UP_MS = 2_500
TIMEOUTS_MS = (400, 1_500, 4_000)
LATE_MS = (5, 60, 400, 3_000)
SOON_MS = (1, *LATE_MS)
DOUBLED = 0.08
IMPATIENT = 0.05  # how often a batch is not waited for
ASTRAY = 0.05
EARLIER = 0.3  # how often a reader reads again
ABORTS, OFFSETS, DAWDLES = 0.3, 0.4, 0.15
GOES_ON, BETWEEN_MS = 0.7, (1, 5, 40)
DAWDLE_MS = (20, 200, 900, 2_500)
_PRODUCE_VERSIONS = {False: 11, True: 12}
_INIT_VERSION = 5
_ADD_VERSION, _ADD_OFFSETS_VERSION = 3, 4
_END_VERSIONS = {False: 4, True: 5}
_OFFSETS_VERSIONS = {False: 4, True: 5}

T = TypeVar("T")
# A step begins something, and is gone on with when that is over.
Begin = Callable[[Callable[[Any], None]], None]
Steps = Generator[Begin, Any, T]

_AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
# The transaction cannot be committed, and its producer goes on.
_ABORTS = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
# Another producer has its id now, or the coordinator does not know the id any more.
_ENDS = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)
_EXPECTED = _AGAIN | _ABORTS | _ENDS | {ErrorCode.NONE}


class _AbortError(Exception):
    """This transaction is to be aborted. `unresolved`: a batch may still come."""

    def __init__(self, *, unresolved: bool = False) -> None:
        super().__init__()
        self.unresolved = unresolved


class _EndError(Exception):
    """This producer's process ends."""


class _Owner:
    """One process of a producer. `transaction`: not over, or open when the process ended."""

    transaction: Transaction | None = None


class TransactionalProducer(Client):
    """See the head of this file."""

    def __init__(
        self,
        cluster: Cluster,
        number: int,
        transactional_id: str,
        dice: random.Random,
        *,
        modern: bool,
    ) -> None:
        super().__init__(cluster)
        self._number = number
        self._id = transactional_id
        self._dice = dice
        self._modern = modern
        self.timeout_ms = dice.choice(TIMEOUTS_MS)
        # A batch of TV1 that is aborted on its way: its producer's wait, its leader's absence.
        self.hurry: tuple[int, int] | None = None
        self._steps: Steps[None] | None = None
        self._turn = 0
        self._records = 0
        self._begins_anew()
        self.committed = 0  # transactions, as it knows
        self.offsets_committed = 0

    def _begins_anew(self) -> None:
        self._owner = _Owner()
        self._pair = NO_PAIR
        self._sequences: dict[TopicPartition, int] = {}
        self._is_of_before = False  # its last transaction was of TV1

    @property
    def is_busy(self) -> bool:
        return self._steps is not None

    # --- acts -------------------------------------------------------------------------------------

    def transact(self, *, all_of_it: bool = False) -> None:
        """Transactions, one or some; `all_of_it`: one in every partition, with offsets, which is
        committed."""
        if self._steps is None:
            self._steps = self._run(all_of_it=all_of_it)
            self._go_on(self._turn, None)

    def crash(self) -> None:
        """Its process ends where it is, and another takes its place."""
        self._turn += 1
        if self._steps is not None:
            self._steps.close()
            self._steps = None
        self._begins_anew()

    def _go_on(self, turn: int, result: Any) -> None:
        if turn != self._turn or self._steps is None:
            return
        self._turn += 1
        try:
            begin = self._steps.send(result)
        except StopIteration:
            self._steps = None
            return
        begin(partial(self._go_on, self._turn))

    # --- a transaction ----------------------------------------------------------------------------

    def _run(self, *, all_of_it: bool) -> Steps[None]:
        yield from self._one(all_of_it=all_of_it)
        while not all_of_it and not self._cluster.is_healed and self._dice.random() < GOES_ON:
            yield self._pause(self._dice.choice(BETWEEN_MS))
            yield from self._one(all_of_it=False)

    def _one(self, *, all_of_it: bool) -> Steps[None]:
        try:
            if self._pair == NO_PAIR:
                yield from self._init()
            raises = self._raises()
            if raises and self._is_of_before:
                yield from self._init()
            self._is_of_before = not raises
            transaction = self._owner.transaction = self._cluster.ledger.begin(self._owner)
            try:
                commits = yield from self._write(transaction, raises, all_of_it=all_of_it)
            except _AbortError as error:
                yield from self._abort(transaction, raises, bump=error.unresolved)
                return
            if commits:
                yield from self._end(transaction, raises, committed=True)
                self.committed += 1
            else:
                yield from self._abort(transaction, raises, bump=False)
        except (_EndError, _AbortError):
            self._begins_anew()

    def _raises(self) -> bool:
        """By the level that a broker has."""
        known = [each for each in self._cluster.all_running() if not each.process.paused]
        if not self._modern or not known:
            return False
        image = self._dice.choice(known).controller.image
        return image.features.level(TRANSACTION_VERSION) >= RAISES_EPOCHS

    def _write(self, transaction: Transaction, raises: bool, *, all_of_it: bool) -> Steps[bool]:
        dice, names = self._dice, self._cluster.names
        places = list(names) if all_of_it else dice.sample(names, dice.randint(1, len(names)))
        places += [dice.choice(names) for _ in range(dice.randint(0, 2))]
        commits = all_of_it or dice.random() >= ABORTS
        offsets = all_of_it or dice.random() < OFFSETS
        if not raises:
            yield from self._add(transaction, dict.fromkeys(places))
        for name in places:
            if not all_of_it and dice.random() < DAWDLES:
                yield self._pause(dice.choice(DAWDLE_MS))
            yield from self._produce(transaction, name, raises)
        if offsets:
            yield from self._commit_offsets(transaction, raises)
        if not all_of_it and dice.random() < DAWDLES:
            yield self._pause(dice.choice(DAWDLE_MS))
        return commits

    def _abort(self, transaction: Transaction, raises: bool, *, bump: bool) -> Steps[None]:
        yield from self._end(transaction, raises, committed=False)
        if bump and not raises:
            yield from self._init()

    # --- requests ---------------------------------------------------------------------------------

    def _init(self) -> Steps[None]:
        request = messages.init_producer_id.Request(
            transactional_id=self._id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=self._pair.producer_id,
            producer_epoch=self._pair.epoch,
        )
        owner, home = self._owner, self._cluster.ledger.home_of(self._id)

        def look(response: Any, running: Running) -> ErrorCode:
            code = ErrorCode(response.error_code)
            if code is ErrorCode.NONE:
                pair = Pair(response.producer_id, response.producer_epoch)
                self._cluster.ledger.gives(pair, owner, running, home)
            return code

        response = yield from self._of_coordinator(
            ApiKey.INIT_PRODUCER_ID, _INIT_VERSION, request, look
        )
        self._take(Pair(response.producer_id, response.producer_epoch))

    def _take(self, pair: Pair) -> None:
        if pair != self._pair:
            self._pair, self._sequences = pair, {}

    def _add(self, transaction: Transaction, names: Mapping[TopicPartition, Any]) -> Steps[None]:
        table = messages.add_partitions_to_txn
        topics: dict[str, list[int]] = {}
        for topic, index in names:
            topics.setdefault(topic, []).append(index)
        request = table.Request(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._pair.producer_id,
            v3_and_below_producer_epoch=self._pair.epoch,
            v3_and_below_topics=[
                table.AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                for topic, indexes in topics.items()
            ],
        )

        def look(response: Any, running: Running) -> ErrorCode:
            codes = [
                ErrorCode(each.partition_error_code)
                for topic in response.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            ]
            first = (each for each in codes if each is not ErrorCode.OPERATION_NOT_ATTEMPTED)
            return next(filter(None, first), ErrorCode.NONE)

        yield from self._of_coordinator(
            ApiKey.ADD_PARTITIONS_TO_TXN, _ADD_VERSION, request, look, "added", transaction
        )

    def _end(self, transaction: Transaction, raises: bool, *, committed: bool) -> Steps[None]:
        transaction.asked.add(committed)
        request = messages.end_txn.Request(
            transactional_id=self._id,
            producer_id=self._pair.producer_id,
            producer_epoch=self._pair.epoch,
            committed=committed,
        )
        owner, home = self._owner, self._cluster.ledger.home_of(self._id)

        def look(response: Any, running: Running) -> ErrorCode:
            code = ErrorCode(response.error_code)
            if code is ErrorCode.NONE:
                self._cluster.ledger.answers(transaction, committed=committed)
                if raises:
                    pair = Pair(response.producer_id, response.producer_epoch)
                    self._cluster.ledger.gives(pair, owner, running, home)
            return code

        response = yield from self._of_coordinator(
            ApiKey.END_TXN, _END_VERSIONS[raises], request, look, "ended",
            None if raises else transaction,
        )  # fmt: skip
        owner.transaction = None
        if raises:
            self._take(Pair(response.producer_id, response.producer_epoch))

    def _commit_offsets(self, transaction: Transaction, raises: bool) -> Steps[None]:
        if not raises:
            request = messages.add_offsets_to_txn.Request(
                transactional_id=self._id,
                producer_id=self._pair.producer_id,
                producer_epoch=self._pair.epoch,
                group_id=GROUP,
            )
            yield from self._of_coordinator(
                ApiKey.ADD_OFFSETS_TO_TXN, _ADD_OFFSETS_VERSION, request,
                lambda response, running: ErrorCode(response.error_code), "added", transaction,
            )  # fmt: skip
        home, owner, pair = group_home(self._cluster), self._owner, self._pair
        tries = 0

        def serving() -> Callable[[Running, Answer], None]:
            """Each request has another offset: of each record it is known which request it is.
            The second of two is made late, when the process may be another one."""
            nonlocal tries
            tries += 1
            offset = self._cluster.ledger.offset_of(transaction, tries)
            version = _OFFSETS_VERSIONS[raises]
            body = self._offsets_request(pair, offset).encode(version)

            def look(response: Any, running: Running) -> ErrorCode:
                code = ErrorCode(response.topics[0].partitions[0].error_code)
                if code is ErrorCode.NONE:
                    transaction.acknowledged[b"%s/%d" % (GROUP.encode(), offset)] = home
                    self._cluster.fault_points.happens("offsets committed", running.node_id)
                return code

            of = None if raises else transaction
            return self._serving(ApiKey.TXN_OFFSET_COMMIT, version, body, look, owner, pair, of)

        yield from self._until_done(partial(self._send, home, serving), unresolved=True)
        self.offsets_committed += 1

    def _offsets_request(self, pair: Pair, offset: int) -> Any:
        table = messages.txn_offset_commit
        name = self._cluster.names[0]
        partition = table.TxnOffsetCommitRequestPartition(
            partition_index=name.partition, committed_offset=offset, committed_metadata=None
        )
        return table.Request(
            transactional_id=self._id,
            group_id=GROUP,
            producer_id=pair.producer_id,
            producer_epoch=pair.epoch,
            topics=[table.TxnOffsetCommitRequestTopic(name=name.topic, partitions=[partition])],
        )

    def _produce(self, transaction: Transaction, name: TopicPartition, raises: bool) -> Steps[None]:
        self._records += 1
        value = b"x%d-%d-%d" % (self._number, transaction.number, self._records)
        self._cluster.ledger.value_of(transaction, value)
        sequence = self._sequences.get(name, 0)
        pair = self._pair
        batch = batch_of(value, *pair, sequence, transactional=True)
        version = _PRODUCE_VERSIONS[raises]
        pause_ms, away_ms = (None if raises else self.hurry) or (0, 0)
        sent = Transactional(self._id, *pair, sequence, version, batch, away_ms)

        def serve(running: Running, answer: Answer) -> None:
            def done(produced: Produced) -> None:
                if produced.error is ErrorCode.NONE:
                    if not self._cluster.ledger.is_shared(pair):
                        self._cluster.safety.acknowledges(name, value, produced.offset)
                    transaction.acknowledged[value] = name
                    self._cluster.fault_points.happens("produced", running.node_id)
                self._expects(produced.error, running)
                answer((produced.error, produced))

            running.produces.serve_transactional(name, sent, PRODUCE_TIMEOUT_MS, done)

        if pause_ms:
            self.hurry = None
            self._send(name, lambda: serve, lambda result: None)
            yield self._pause(pause_ms)
            raise _AbortError(unresolved=True)
        if not self._cluster.is_healed and self._dice.random() < IMPATIENT:
            late_ms = self._dice.choice(SOON_MS)
            send = partial(self._send, name, lambda: serve, lambda result: None)
            self._cluster.clients.later(late_ms, send)
            raise _AbortError(unresolved=True)
        yield from self._until_done(partial(self._send, name, lambda: serve), unresolved=True)
        self._sequences[name] = sequence + 1

    # --- how --------------------------------------------------------------------------------------

    def _of_coordinator(
        self, api_key: ApiKey, version: int, request: Any,
        look: Callable[[Any, Running], ErrorCode], point: str = "",
        transaction: Transaction | None = None,
    ) -> Steps[Any]:  # fmt: skip
        """`transaction`: of which this is not served once that is over."""
        body = request.encode(version)
        serve = self._serving(
            api_key, version, body, look, self._owner, self._pair, transaction, point
        )
        begin = partial(self._send, self._cluster.ledger.home_of(self._id), lambda: serve)
        return (yield from self._until_done(begin))

    def _serving(
        self, api_key: ApiKey, version: int, body: bytes,
        look: Callable[[Any, Running], ErrorCode], owner: _Owner, pair: Pair,
        transaction: Transaction | None, point: str = "",
    ) -> Callable[[Running, Answer], None]:  # fmt: skip
        table = getattr(messages, _TABLES[api_key])

        def serve(running: Running, answer: Answer) -> None:
            is_over = transaction is not None and transaction is not owner.transaction
            if is_over and self._cluster.ledger.has(self._id, pair):
                return  # it would be taken for one of the next transaction

            def done(answered: bytes) -> None:
                response = table.Response.decode(answered, version)
                code = look(response, running)
                self._expects(code, running)
                if point and code is ErrorCode.NONE:
                    self._cluster.fault_points.happens(point, running.node_id)
                answer((code, response))

            running.serve(api_key, version, body, done)

        return serve

    def _send(
        self, home: TopicPartition, serving: Callable[[], Callable[[Running, Answer], None]],
        done: Callable[[Any], None],
    ) -> None:  # fmt: skip
        """To the leader of that partition, as far as is known; mostly once."""
        cluster = self._cluster
        leader, _ = self._leader_of(home)
        if home.topic == TRANSACTIONS_TOPIC and self._dice.random() < ASTRAY:
            leader = self._dice.choice(list(cluster.brokers))
        if leader == NO_LEADER:
            cluster.clients.later(1, lambda: done(Lost.REFUSED))
            return

        def request(done: Callable[[Any], None]) -> None:
            cluster.network.request(cluster.clients, (CLIENTS, leader), serving(), done)

        if not cluster.is_healed and self._dice.random() < DOUBLED:
            late_ms = self._dice.choice(LATE_MS)
            cluster.clients.later(late_ms, partial(request, lambda result: None))
        request(done)

    def _until_done(self, begin: Begin, *, unresolved: bool = False) -> Steps[Any]:
        """The response without an error; `unresolved`: where there is none, it may still come."""
        give_up_at_ms = self._cluster.loop.now_ms + GIVE_UP_MS
        while True:
            result = yield begin
            code = ErrorCode.NETWORK_EXCEPTION if isinstance(result, Lost) else result[0]
            if code is ErrorCode.NONE:
                return result[1]
            if code in _ENDS:
                raise _EndError
            if code not in _AGAIN:
                raise _AbortError(unresolved=True)
            if self._cluster.loop.now_ms >= give_up_at_ms:
                raise _AbortError(unresolved=True) if unresolved else _EndError
            yield self._pause(self._dice.uniform(20, 120))

    def _pause(self, pause_ms: float) -> Begin:
        def begin(done: Callable[[Any], None]) -> None:
            self._cluster.clients.later(pause_ms, partial(done, None))

        return begin

    def _expects(self, code: ErrorCode, running: Running) -> None:
        if code not in _EXPECTED:
            said = f"broker {running.node_id} answers {code.name}"
            self._cluster.safety.fail("a producer is answered with a known error", said)


_TABLES = {
    ApiKey.INIT_PRODUCER_ID: "init_producer_id",
    ApiKey.ADD_PARTITIONS_TO_TXN: "add_partitions_to_txn",
    ApiKey.ADD_OFFSETS_TO_TXN: "add_offsets_to_txn",
    ApiKey.END_TXN: "end_txn",
    ApiKey.TXN_OFFSET_COMMIT: "txn_offset_commit",
}


def group_home(cluster: Cluster) -> TopicPartition:
    return TopicPartition(OFFSETS_TOPIC, partition_for(GROUP, len(cluster.homes)))


class CommittedReader(Client):
    """A read_committed reader of all partitions, which also fetches the group's offsets."""

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        super().__init__(cluster)
        self._dice = dice
        self._positions: dict[TopicPartition, int] = {}
        self.records = self.left_out = 0
        self.offsets_answered = 0

    def read(self, name: TopicPartition) -> None:
        """From where it is, or at times from an earlier place."""
        leader, epoch = self._leader_of(name)
        if leader != NO_LEADER:
            ways = CLIENTS, leader
            serve = partial(self._serve, name, epoch)
            self._cluster.network.request(
                self._cluster.clients, ways, serve, partial(self._fetched, name)
            )

    def _serve(self, name: TopicPartition, epoch: int, running: Running, answer: Answer) -> None:
        replica = running.replicas.partition(*name)
        position = self._positions.get(name, 0)
        if self._dice.random() < EARLIER:
            position = self._dice.randint(0, position)
        if replica is not None and replica.leader_epoch == epoch and running.leads(name):
            position = self.look(running, name, position)
        answer(position)

    def look(self, running: Running, name: TopicPartition, position: int) -> int:
        """At the committed records of this broker from there; where they end."""
        replica = running.replicas.partition(*name)
        assert replica is not None
        position = max(position, replica.log_start_offset)
        try:
            data, aborted = fetch_committed(replica, position)
        except KafkaError:
            return position
        records = [each for each in records_in(data) if each[0] >= position]
        left_out = aborted_among(records, aborted)
        self._cluster.ledger.read(running.node_id, name, records, left_out)
        self.records += len(records)
        self.left_out += len(left_out)
        return records[-1][0] + 1 if records else position

    def _fetched(self, name: TopicPartition, result: int | Lost) -> None:
        if not isinstance(result, Lost):
            self._positions[name] = max(result, self._positions.get(name, 0))

    def ask_offsets(self, *, last: bool = False) -> None:
        home = group_home(self._cluster)
        leader, _ = self._leader_of(home)
        if leader == NO_LEADER:
            return
        name = self._cluster.names[0]
        body = encode_offset_fetch(FETCH_VERSION, GROUP, [name], require_stable=True)

        def serve(running: Running, answer: Answer) -> None:
            def done(answered: bytes) -> None:
                try:
                    found = decode_offset_fetch(Reader(answered, flexible=True), FETCH_VERSION)
                except KafkaError:
                    answer(None)
                    return
                if found[name].error is ErrorCode.NONE:
                    self.offsets_answered += 1
                    self._cluster.ledger.offsets_read(home, found[name].offset, last=last)
                answer(None)

            running.serve(ApiKey.OFFSET_FETCH, FETCH_VERSION, body, done)

        ways = CLIENTS, leader
        self._cluster.network.request(self._cluster.clients, ways, serve, lambda result: None)


def aborted_among(records: list[tuple[int, Record]], aborted: list[tuple[int, int]]) -> set[int]:
    """As consumers find them: a transaction that was aborted begins at its first offset, and its
    marker ends it."""
    left = sorted(aborted, key=lambda each: each[1])
    producers: set[int] = set()
    found: set[int] = set()
    for offset, record in records:
        while left and left[0][1] <= offset:
            producers.add(left.pop(0)[0])
        if record.is_marker:
            producers.discard(record.producer_id)
        elif record.is_transactional and record.producer_id in producers:
            found.add(offset)
    return found
