"""Asks all transaction coordinators whether a producer id has a transaction that is not over.

For each partition of `__transaction_state` its leader has to say that it coordinates it and has
loaded it, before and after it lists the ids of the producers: a coordinator that has just begun, or
that another broker has replaced meanwhile, knows nothing, and that must not pass for an answer. So
the result is known of all partitions or of none.

A coordinator is asked by an id that its partition holds or would hold (DescribeTransactions: an
unknown id is an answer of one that has loaded), and by producer ids (ListTransactions). This
broker's own is called without a socket. A record of an id that is being written needs no look of
its own: an id whose transaction it ends is listed as open until then, and a transaction that it
begins has no batch anywhere before the producer is answered.

Any thread may call; requests are sent on the control loop. `done` is called once, on any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kbroker.coordinator.txn.states import State
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.forwarding import CLIENT_ID
from kbroker.metadata.image import NO_LEADER, TRANSACTIONS_TOPIC
from kbroker.peer import transaction_messages
from kbroker.peer.transaction_messages import Filter
from kbroker.protocol.wire import ProtocolError
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from concurrent.futures import Future

    from kbroker.cluster.transaction_coordinators import Peers
    from kbroker.coordinator.txn.coordinator import TransactionCoordinator
    from kbroker.metadata.image import BrokerImage, ClusterImage

REQUEST_TIMEOUT_MS: Final = 30_000
READY_TIMEOUT_MS: Final = 1_000
_DESCRIBE: Final = (ApiKey.DESCRIBE_TRANSACTIONS, 0, 0)
_LIST: Final = (ApiKey.LIST_TRANSACTIONS, 0, 2)
_NOT_OVER: Final = (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
_LABELS: Final = frozenset(state.label for state in _NOT_OVER)
# The answers of a coordinator that has loaded, about an id.
_LOADED: Final = (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)

# The producer ids with a transaction that is not over; None: not every coordinator has answered.
Known = frozenset[int] | None
Submit = Callable[[Coroutine[Any, Any, None]], "Future[None]"]


class TransactionInquiry:
    """See the head of this file."""

    def __init__(
        self,
        node_id: int,
        image: Callable[[], ClusterImage],
        partition_for: Callable[[str, int], int],
        own: Callable[[], TransactionCoordinator | None],
        submit: Submit,
        peers: Callable[[], Peers] | None = None,
    ) -> None:
        """`partition_for` places an id among the partitions of the state topic. `peers` makes the
        client, on the loop."""
        self._node_id: Final = node_id
        self._image: Final = image
        self._partition_for: Final = partition_for
        self._own: Final = own
        self._submit: Final = submit
        self._make_peers: Final = peers or _network_client
        self._peers: Peers | None = None
        self._ids: Sequence[str] = ()

    def ask(self, producer_ids: frozenset[int], done: Callable[[Known], None]) -> None:
        leaders = self._leaders()
        if leaders is None:
            done(None)
            return
        asking = _Asking(len(leaders), done)
        for node_id, probes in leaders.items():
            broker = self._image().brokers.get(node_id)
            if node_id == self._node_id:
                asking.answered(self._ask_own(probes, producer_ids))
            elif broker is None or broker.port < 0:
                asking.answered(None)
            else:
                self._begin(self._ask(broker, probes, producer_ids, asking.answered), asking)

    def _begin(self, work: Coroutine[Any, Any, None], asking: _Asking) -> None:
        try:
            self._submit(work)
        except BaseException:  # without the loop nothing is asked
            work.close()
            asking.answered(None)
            raise

    def _leaders(self) -> Mapping[int, list[str]] | None:
        """By leader an id for each of its partitions; None: there is no topic, or one has no
        leader."""
        topic = self._image().topics.get(TRANSACTIONS_TOPIC)
        if topic is None or not topic.partitions:
            return None
        if len(self._ids) != len(topic.partitions):
            self._ids = an_id_of_each(len(topic.partitions), self._partition_for)
        leaders: dict[int, list[str]] = {}
        for partition, probe in zip(topic.partitions, self._ids, strict=True):
            if partition.leader == NO_LEADER:
                return None
            leaders.setdefault(partition.leader, []).append(probe)
        return leaders

    # --- one broker -------------------------------------------------------------------------------

    def _ask_own(self, probes: Sequence[str], producer_ids: frozenset[int]) -> Known:
        coordinator = self._own()
        if coordinator is None or not _has_loaded(coordinator, probes):
            return None
        found = frozenset(
            image.producer_id
            for _, image in coordinator.listings()
            if image.producer_id in producer_ids and image.state in _NOT_OVER
        )
        return found if _has_loaded(coordinator, probes) else None

    async def _ask(
        self,
        broker: BrokerImage,
        probes: Sequence[str],
        producer_ids: frozenset[int],
        done: Callable[[Known], None],
    ) -> None:
        found: Known = None
        try:
            found = await self._known(broker, probes, producer_ids)
        except (KafkaError, ProtocolError):
            pass  # it is asked again with the next look
        finally:
            done(found)

    async def _known(
        self, broker: BrokerImage, probes: Sequence[str], producer_ids: frozenset[int]
    ) -> Known:
        from kbroker.peer.address import Address

        if self._peers is None:
            self._peers = self._make_peers()
        peers, address = self._peers, Address(broker.host, broker.port)
        await peers.wait_ready(address, timeout_ms=READY_TIMEOUT_MS, fail_fast=True)

        async def has_loaded() -> bool:
            version = peers.version(address, *_DESCRIBE)
            body = transaction_messages.encode_describe_transactions(version, probes)
            reader = await peers.call(address, _DESCRIBE[0], version, body)
            described = transaction_messages.decode_describe_transactions(reader, version)
            loaded = {each.transactional_id for each in described if each.error in _LOADED}
            return loaded.issuperset(probes)

        if not await has_loaded():
            return None
        version = peers.version(address, *_LIST)
        wanted = Filter(producer_ids=sorted(producer_ids))
        body = transaction_messages.encode_list_transactions(version, wanted)
        reader = await peers.call(address, _LIST[0], version, body)
        listed = transaction_messages.decode_list_transactions(reader, version)
        if not await has_loaded():
            return None
        return frozenset(each.producer_id for each in listed if each.state in _LABELS)


class _Asking:
    """One question to several brokers."""

    def __init__(self, left: int, done: Callable[[Known], None]) -> None:
        self._lock: Final = threading.Lock()
        self._left = left
        self._known: Known = frozenset()
        self._done: Final = done

    def answered(self, known: Known) -> None:
        with self._lock:
            self._left -= 1
            if known is None or self._known is None:
                self._known = None
            else:
                self._known |= known
            if self._left:
                return
        self._done(self._known)


def _has_loaded(coordinator: TransactionCoordinator, probes: Sequence[str]) -> bool:
    answers = (coordinator.describe(each) for each in probes)
    return all(not isinstance(each, ErrorCode) or each in _LOADED for each in answers)


def an_id_of_each(count: int, partition_for: Callable[[str, int], int]) -> list[str]:
    """A transactional id for each partition of the state topic; no client has to have it."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < count:
        probe = f"kbroker-{number}"
        found.setdefault(partition_for(probe, count), probe)
        number += 1
    return [found[partition] for partition in range(count)]


def _network_client() -> Peers:
    from kbroker.peer.connection import NetworkClientOptions
    from kbroker.peer.network_client import NetworkClient

    return NetworkClient(
        NetworkClientOptions(client_id=CLIENT_ID, request_timeout_ms=REQUEST_TIMEOUT_MS)
    )
