"""The way to transaction coordinators: by AddPartitionsToTxn on the control loop, or right here.

Place in the flow: `TransactionAdds` decides what is asked and when; here is who the coordinator of
a transactional id is (the leader of its partition of the state topic, by the published image), and
what is sent to it. Whatever goes wrong on the way is NETWORK_EXCEPTION: the request may have
arrived. A broker of an earlier version, which does not list AddPartitionsToTxn 4, coordinates
nothing: COORDINATOR_NOT_AVAILABLE, until it has been updated. This broker's own coordinator is
called without a socket.

Any thread may call; requests are sent on the control loop, which starts with the first one. What is
asked later is asked by that loop, but for this broker's own coordinator: that appends to a log, for
which the loop may not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from kbroker.cluster.transaction_adds import AddedTransaction, Answer, Verdict
from kbroker.coordinator.txn.seams import RETRY_MS, at_once
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.forwarding import CLIENT_ID
from kbroker.metadata.image import NO_LEADER
from kbroker.peer.own_login import LoginOf, no_login
from kbroker.protocol import messages
from kbroker.protocol.wire import ProtocolError, Reader
from kbroker.types import ApiKey, TopicPartition

if TYPE_CHECKING:
    from concurrent.futures import Future

    from kbroker.coordinator.txn.seams import OnWorker
    from kbroker.failures import Failures
    from kbroker.metadata.image import BrokerImage, ClusterImage, TopicImage
    from kbroker.peer.address import Address

STATE_TOPIC: Final = "__transaction_state"
VERSIONS: Final = (4, 5)
REQUEST_TIMEOUT_MS: Final = 30_000
# A coordinator that was killed is in the image until its session ends: no need to wait for it.
READY_TIMEOUT_MS: Final = 1_000

Submit = Callable[[Coroutine[Any, Any, None]], "Future[None]"]


class OwnCoordinator(Protocol):
    """The coordinator of this broker; any thread that may wait for a log."""

    def __call__(
        self,
        transactions: Sequence[AddedTransaction],
        *,
        done: Callable[[Mapping[str, Verdict]], None],
    ) -> None: ...


class Peers(Protocol):
    """A NetworkClient."""

    async def wait_ready(
        self, address: Address, *, timeout_ms: int | None = None, fail_fast: bool = False
    ) -> None: ...

    def version(self, address: Address, api_key: ApiKey, lowest: int, highest: int) -> int: ...

    async def call(
        self, address: Address, api_key: ApiKey, version: int, body: bytes
    ) -> Reader: ...


class TransactionCoordinators:
    """See the head of this file; the `Coordinators` of TransactionAdds."""

    def __init__(
        self,
        node_id: int,
        image: Callable[[], ClusterImage],
        partition_for: Callable[[str, int], int],
        submit: Submit,
        own: OwnCoordinator,
        failures: Failures,
        peers: Callable[[], Peers] | None = None,
        on_worker: OnWorker = at_once,
        login: LoginOf = no_login,
    ) -> None:
        """`partition_for` places an id among the partitions of the state topic. `peers` makes the
        client, on the loop."""
        self._node_id: Final = node_id
        self._image: Final = image
        self._partition_for: Final = partition_for
        self._submit: Final = submit
        self._own: Final = own
        self._failures: Final = failures
        self._make_peers: Final = peers or partial(_network_client, login)
        self._peers: Peers | None = None
        self._on_worker: Final = on_worker

    def coordinator_of(self, transactional_id: str) -> int | None:
        topic = self._image().topics.get(STATE_TOPIC)
        if topic is None:
            return None
        leader = topic.partitions[self._place_of(transactional_id, topic).partition].leader
        return None if leader == NO_LEADER else leader

    def _place_of(self, transactional_id: str, topic: TopicImage) -> TopicPartition:
        at = self._partition_for(transactional_id, len(topic.partitions))
        return TopicPartition(STATE_TOPIC, at)

    def is_local(self, node_id: int) -> bool:
        return node_id == self._node_id

    def ask(
        self,
        node_id: int,
        transactions: Sequence[AddedTransaction],
        done: Callable[[Answer], None],
    ) -> None:
        if node_id == self._node_id:
            self._own(transactions, done=done)
            return
        broker = self._image().brokers.get(node_id)
        if broker is None or broker.port < 0:
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        self._begin(self._ask(broker, transactions, done))

    def later(self, delay_ms: int, transactional_id: str, call: Callable[[], None]) -> None:
        self._begin(self._later(delay_ms, transactional_id, call))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            self._submit(work)
        except BaseException:  # without the loop nothing is asked; who called says so
            work.close()
            raise

    async def _ask(
        self,
        broker: BrokerImage,
        transactions: Sequence[AddedTransaction],
        done: Callable[[Answer], None],
    ) -> None:
        answer: Answer = ErrorCode.NETWORK_EXCEPTION
        try:
            answer = await self._call(broker, transactions)
        except ProtocolError as error:
            self._failures.note("reading what a transaction coordinator answered", error)
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                answer = ErrorCode.COORDINATOR_NOT_AVAILABLE
        except Exception as error:  # nothing looks at the result of this task
            self._failures.note("asking a transaction coordinator", error)
        finally:
            done(answer)

    async def _call(self, broker: BrokerImage, transactions: Sequence[AddedTransaction]) -> Answer:
        from kbroker.peer.address import Address

        if self._peers is None:
            self._peers = self._make_peers()
        address, key = Address(broker.host, broker.port), ApiKey.ADD_PARTITIONS_TO_TXN
        await self._peers.wait_ready(address, timeout_ms=READY_TIMEOUT_MS, fail_fast=True)
        version = self._peers.version(address, key, *VERSIONS)
        body = encode_request(transactions, version)
        return decode_answer(await self._peers.call(address, key, version, body), version)

    async def _later(self, delay_ms: int, transactional_id: str, call: Callable[[], None]) -> None:
        import asyncio  # not before the control loop wants it

        await asyncio.sleep(delay_ms / 1000)
        topic = self._image().topics.get(STATE_TOPIC)
        if topic is None or self.coordinator_of(transactional_id) != self._node_id:
            call()
            return
        place = self._place_of(transactional_id, topic)
        while True:
            try:
                self._on_worker(place, call)
                return
            except Exception as error:  # its request has no other way to an answer
                self._failures.note("asking this broker's coordinator again", error)
            await asyncio.sleep(RETRY_MS / 1000)


def _network_client(login: LoginOf) -> Peers:
    from kbroker.peer.connection import NetworkClientOptions
    from kbroker.peer.network_client import NetworkClient

    return NetworkClient(
        NetworkClientOptions(
            client_id=CLIENT_ID, request_timeout_ms=REQUEST_TIMEOUT_MS, login=login()
        )
    )


def encode_request(transactions: Sequence[AddedTransaction], version: int) -> bytes:
    table = messages.add_partitions_to_txn
    return table.Request(
        transactions=[
            table.AddPartitionsToTxnTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                verify_only=each.verify_only,
                topics=[
                    table.AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                    for topic, indexes in _by_topic(each.partitions).items()
                ],
            )
            for each in transactions
        ]
    ).encode(version)


def _by_topic(partitions: Sequence[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return topics


def decode_answer(reader: Reader, version: int) -> Answer:
    """Raises ProtocolError. CLUSTER_AUTHORIZATION_FAILED of the whole request means that the
    coordinator does not take this broker for one, for good; any other error may pass, and the
    producer tries again."""
    response = messages.add_partitions_to_txn.Response.read(reader, version)
    if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return ErrorCode.INVALID_TXN_STATE
    if response.error_code:
        return ErrorCode.NETWORK_EXCEPTION
    return {
        each.transactional_id: {
            TopicPartition(topic.name, result.partition_index): ErrorCode.for_code(
                result.partition_error_code
            )
            for topic in each.topic_results
            for result in topic.results_by_partition
        }
        for each in response.results_by_transaction
    }
