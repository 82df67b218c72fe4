"""A broker that coordinates transactional ids and leads their partitions, over the network core.

What C does not serve goes to the real handlers and the real coordinator; with `in_c` False that is
all of it, so that two of these can be compared. The state topic has two partitions.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from kbroker.clock import SystemClock
from kbroker.cluster.transaction_markers import TransactionMarkers
from kbroker.coordinator.runtime._shard_table import ShardTable, partition_for
from kbroker.coordinator.txn._ids import TransactionalIds
from kbroker.coordinator.txn.coordinator import TransactionCoordinator
from kbroker.coordinator.txn.image import EPOCH_MAX, NO_PAIR, Pair, TransactionImage
from kbroker.coordinator.txn.records import decode_key, decode_value
from kbroker.coordinator.txn.seams import MarkerOrder
from kbroker.coordinator.txn.states import PREPARED
from kbroker.coordinator.txn.store import TransactionStore
from kbroker.engine._transactions import HotTransactions
from kbroker.errors import ErrorCode
from kbroker.failures import Failures
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kbroker.protocol import messages
from kbroker.protocol.record_batch import RecordBatch, decode_batches
from kbroker.protocol.versions import is_flexible
from kbroker.replica.metadata_publisher import MetadataPublisher
from kbroker.security.session import ANONYMOUS, session_of
from kbroker.types import ApiKey, TopicPartition
from tests.support.record_batches import build_batch
from tests.unit.engine.following import LONG_MS
from tests.unit.engine.wire import Produced, produce_frame, produced_in
from tests.unit.handlers.support import FakeBroker
from tests.unit.net.harness import Client, Rig, framed, header

ADD, END = ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN
ADD_UNTIL: Final = 3
PARTITIONS: Final = 3
STATE_PARTITIONS: Final = 2
PAY: Final = "pay"
TRANSACTIONAL: Final = 0x10
NONE: Final = ErrorCode.NONE
CLIENT: Final = session_of(ANONYMOUS, "test", "PLAINTEXT", "127.0.0.1")

Topics = Mapping[str, Sequence[int]]
ORDERS: Final[Topics] = {"orders": [0, 1]}


class Coordinated:
    """See the head of this file; close the rig."""

    def __init__(self, rig: Rig, *, in_c: bool = True) -> None:
        self.rig = rig
        self.broker = FakeBroker()
        self.broker.services.transactions = self
        self.topics = {
            name: rig.create(name, count, internal=name.startswith("__"))
            for name, count in (
                ("orders", PARTITIONS),
                ("bills", 1),
                (OFFSETS_TOPIC, 1),
                (TRANSACTIONS_TOPIC, STATE_PARTITIONS),
            )
        }
        controller: Any = self.broker.services.controller
        controller.image = controller.image.with_topics(
            new_topic_image(name, topic.topic_id, [(1,)] * len(topic.logs), {})
            for name, topic in self.topics.items()
        )
        self.publisher = MetadataPublisher(rig.table)
        self.publish()
        self.later: list[Callable[[], object]] = []
        self.table = ShardTable(rig.hot, any_size=True, base_sequence=-1)
        self.table.set_partition_count(STATE_PARTITIONS)
        for index, log in enumerate(self.topics[TRANSACTIONS_TOPIC].logs):
            self.table.open(index, log)
            self.table.activate(index)
        self.ids = TransactionalIds()
        self.coordinator = self._coordinator(controller)
        self.hot: HotTransactions | None = None
        if in_c:
            self.hot = HotTransactions(
                rig.hot, self.table, self.ids, epoch_max=EPOCH_MAX, value_version=1
            )
            rig.server.set_hot(ADD, 0, ADD_UNTIL)
            rig.server.set_hot(END, 0, 5)
        self.in_python: list[tuple[ApiKey, str]] = []
        self.questions: list[str] = []  # of produces
        rig.dispatch = self._dispatch
        rig.verify = self._verify
        self.client: Client = rig.client()

    @property
    def joins(self) -> int:
        """Produces whose partitions C has verified or added. It leaves those to Python whose log of
        the state topic is slow, as any log may be: a write that takes 2 ms is enough."""
        return self.rig.hot.statistics()["transaction_joins"]

    def publish(self) -> None:
        """The image, for C."""
        controller: Any = self.broker.services.controller
        self.publisher.show(controller.image)

    def _coordinator(self, controller: Any) -> TransactionCoordinator:
        loader: Any = None
        logs = self.topics[TRANSACTIONS_TOPIC].logs
        store = TransactionStore(self.table, loader, lambda topic, index: logs[index], 1, lambda: 2)
        markers = TransactionMarkers(
            1, lambda: controller.image, self._write, None, self._call_later, Failures("test")
        )
        ids = itertools.count(1_000)
        config: dict[str, Any] = {"transaction.max.timeout.ms": 900_000}
        return TransactionCoordinator(
            lambda: config, SystemClock(), self._call_later, store, markers,
            lambda done: done(next(ids)), lambda: 2, ids=self.ids,
        )  # fmt: skip

    def _call_later(self, delay_ms: int, call: Callable[[], object]) -> Callable[[], object]:
        self.later.append(call)
        return lambda: None

    def run_later(self) -> None:
        later, self.later = self.later, []
        for call in later:
            call()

    def _write(
        self, order: MarkerOrder, place: TopicPartition, done: Callable[[ErrorCode], None]
    ) -> None:
        appended = self.log(*place).append_marker(
            order.producer_id, order.epoch, order.coordinator_epoch,
            committed=order.committed, transaction_version=order.version,
        )  # fmt: skip
        done(appended.error)

    def log(self, topic: str, index: int) -> Any:
        return self.topics[topic].logs[index]

    def create_topic(self, controller: object, config: object, brokers: int) -> None: ...

    # --- Python's half ----------------------------------------------------------------------------

    def _dispatch(self, request: Any) -> None:
        self.in_python.append((ApiKey(request.api_key), request.reason))
        twin = self.broker.send(request.api_key, request.api_version, request.body)
        if twin.answer is None:
            request.close_connection("as Python says")
        else:
            request.respond(twin.answer)

    def _verify(
        self, transactional_id: str, producer_id: int, epoch: int,
        partitions: Sequence[TopicPartition], *, adds: bool, done: Any,
    ) -> None:  # fmt: skip
        self.questions.append(transactional_id)
        pair = Pair(producer_id, epoch)
        if adds:
            self.coordinator.add_partitions(
                transactional_id, pair, frozenset(partitions), 2,
                lambda code: done(dict.fromkeys(partitions, code)),
            )  # fmt: skip
            return
        verdict = self.coordinator.verify_partitions(transactional_id, pair, partitions)
        if isinstance(verdict, ErrorCode):
            verdict = dict.fromkeys(partitions, verdict)
        done(dict(verdict))

    # --- requests ---------------------------------------------------------------------------------

    def init(self, name: str = PAY) -> Pair:
        """A producer, whose client is known from then on."""
        answers: list[tuple[ErrorCode, Pair]] = []
        self.coordinator.init_producer_id(
            name, 60_000, NO_PAIR, lambda *answer: answers.append(answer)
        )
        ((code, pair),) = answers
        assert code is NONE
        self.remember(name)
        return pair

    def remember(self, name: str) -> None:
        """A client of the id is known."""
        self.coordinator.remember(name, CLIENT)

    def put(self, image: TransactionImage | None, name: str = PAY) -> None:
        """In memory alone."""
        self.ids.drop(name)
        if image is not None:
            term = self.table.term(partition_for(name, STATE_PARTITIONS))
            self.coordinator.load({name: image}, term)
            self.remember(name)

    def load_again(self, index: int) -> None:
        """A partition of the state topic is lost, and gained again."""
        log = self.log(TRANSACTIONS_TOPIC, index)
        while not self.table.close(index):
            pass  # a write is under way
        self.coordinator.unload(lambda name: partition_for(name, STATE_PARTITIONS) == index)
        images = {}
        for batch in batches_of(log):
            for record in batch.records:
                images[decode_key(record.key or b"")] = decode_value(record.value or b"")
        while not self.table.open(index, log):
            pass
        term = self.table.term(index)
        self.coordinator.load(images, term)
        for name in images:
            self.remember(name)
        self.table.activate(index)
        outcomes = [name for name, image in images.items() if image.state in PREPARED]
        self.coordinator.complete_loaded(outcomes, term)

    def ask(self, key: ApiKey, version: int, body: bytes, client: Client | None = None) -> bytes:
        """The body of the answer."""
        client = client or self.client
        client.send(framed(header(key, version, 7) + body))
        return self.answer(key, version, client)

    def answer(self, key: ApiKey, version: int, client: Client) -> bytes:
        answer = client.receive()
        head = struct.pack(">i", 7) + b"\0" * is_flexible(key, version)
        assert answer.startswith(head)
        return answer[len(head) :]

    def add(
        self, version: int, pair: Pair, topics: Topics = ORDERS, *, name: str = PAY,
        client: Client | None = None,
    ) -> bytes:  # fmt: skip
        table = messages.add_partitions_to_txn
        request = table.Request(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=pair.producer_id,
            v3_and_below_producer_epoch=pair.epoch,
            v3_and_below_topics=[
                table.AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))
                for topic, indexes in topics.items()
            ],
        )
        return self.ask(ADD, version, request.encode(version), client)

    def end_body(
        self, version: int, pair: Pair, committed: bool = True, *, name: str = PAY
    ) -> bytes:
        request = messages.end_txn.Request(
            transactional_id=name, producer_id=pair.producer_id, producer_epoch=pair.epoch,
            committed=committed,
        )  # fmt: skip
        return request.encode(version)

    def end(self, version: int, pair: Pair, committed: bool = True, *, name: str = PAY) -> bytes:
        return self.ask(END, version, self.end_body(version, pair, committed, name=name))

    def produce_frame(
        self, version: int, pair: Pair, topics: Topics = ORDERS, *,
        sequences: Mapping[str, int] | None = None, name: str = PAY,
    ) -> bytes:  # fmt: skip
        """Two records to each partition. `sequences`: of the first ones, by topic."""

        def data(topic: str) -> bytes:
            return build_batch(
                [b"v"] * 2, producer_id=pair.producer_id, producer_epoch=pair.epoch,
                base_sequence=(sequences or {}).get(topic, 0), attributes=TRANSACTIONAL,
            )  # fmt: skip

        batches = [
            (self.topics[topic], dict.fromkeys(on, data(topic))) for topic, on in topics.items()
        ]
        return produce_frame(version, batches, acks=-1, timeout_ms=LONG_MS, transactional_id=name)

    def produce(self, version: int, pair: Pair, *what: Any, **how: Any) -> list[Produced]:
        self.client.send(self.produce_frame(version, pair, *what, **how))
        return produced(version, self.client)

    # --- what has become of it --------------------------------------------------------------------

    def image(self, name: str = PAY) -> TransactionImage | None:
        return timeless(self.coordinator.find(name))

    def is_pending(self, name: str = PAY) -> bool:
        transaction = self.ids.get(name)
        return transaction is not None and transaction.pending

    def states(self) -> list[tuple[str, TransactionImage | None]]:
        """The records of the state topic, without their times; each is a batch of its own."""
        found = []
        for log in self.topics[TRANSACTIONS_TOPIC].logs:
            for batch in batches_of(log):
                assert (batch.producer_id, batch.base_sequence) == (-1, -1)
                (record,) = batch.records
                value = record.value
                image = None if value is None else timeless(decode_value(value))
                found.append((decode_key(record.key or b""), image))
        return found

    def replayed(self) -> dict[str, TransactionImage | None]:
        """The last record of each id; the last epoch of an image is in none."""
        return dict(self.states())

    def last_value_version(self, name: str = PAY) -> int:
        """Of its last record."""
        log = self.log(TRANSACTIONS_TOPIC, partition_for(name, STATE_PARTITIONS))
        *_, batch = batches_of(log)
        value = batch.records[0].value
        assert value is not None
        return int.from_bytes(value[:2], "big")

    def contents(self, topic: str, index: int) -> list[tuple[Any, ...]]:
        """The batches of a partition, markers too, without their times."""
        return [
            (
                batch.base_offset, batch.producer_id, batch.producer_epoch, batch.base_sequence,
                batch.transactional, batch.control,
                [(record.key, record.value) for record in batch.records],
            )
            for batch in batches_of(self.log(topic, index))
        ]  # fmt: skip

    def everything(self) -> list[Any]:
        places = [("orders", index) for index in range(PARTITIONS)] + [("bills", 0)]
        return [self.states(), [self.contents(*place) for place in places]]


def batches_of(log: Any) -> Iterator[RecordBatch]:
    """To the high watermark, through all segments."""
    at = log.log_start_offset
    while at < log.high_watermark:
        for batch in decode_batches(log.read(at)):
            yield batch
            at = batch.last_offset + 1


def produced(version: int, client: Client) -> list[Produced]:
    return list(produced_in(version, client.receive())[1].values())


def error_of_end(body: bytes) -> ErrorCode:
    """After the throttle time."""
    return ErrorCode(struct.unpack_from(">h", body, 4)[0])


def timeless(image: TransactionImage | None) -> TransactionImage | None:
    return None if image is None else image._replace(update_ms=0, start_ms=0)
