"""Asks all transaction coordinators in which partitions producers have unfinished transactions.

For each partition of `__transaction_state` its leader has to say that it coordinates it and has
loaded it, before and after it says what its producers have: a coordinator that has just begun, or
that another broker has replaced meanwhile, knows nothing, and that must not pass for an answer. So
the result is known of all partitions or of none.

A coordinator is asked by an id that its partition holds or would hold (DescribeTransactions: an
unknown id is an answer of one that has loaded), for the ids of the producers (ListTransactions),
and for the partitions of those ids (DescribeTransactions). This broker's own is called without a
socket, in pieces.

What the answer means: at some moment after the question, no coordinator had an unfinished
transaction of the producer in the partition. A partition is in the log of the coordinator before a
batch comes to it, and leaves the transaction after its marker has come. So what was open in the
partition before the question is open without a coordinator, or is over by now. An id may do
anything between the list and its description: it may commit and begin again, with a batch. That
batch is newer than the question, as is one of a partition that is being added. Such an addition
counts here as if it were written, where it is known: at this broker.

Any thread may call; requests are sent on the control loop. `done` is called once, on any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.coordinator.txn.states import UNFINISHED, State
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.forwarding import CLIENT_ID
from kbroker.metadata.image import NO_LEADER, TRANSACTIONS_TOPIC
from kbroker.peer import transaction_messages
from kbroker.peer.own_login import LoginOf, no_login
from kbroker.peer.transaction_messages import Filter
from kbroker.protocol.wire import ProtocolError
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from concurrent.futures import Future

    from kbroker.cluster.transaction_coordinators import Peers
    from kbroker.coordinator.txn.coordinator import TransactionCoordinator
    from kbroker.metadata.image import BrokerImage, ClusterImage
    from kbroker.peer.transaction_messages import DescribedTransaction
    from kbroker.types import TopicPartition

REQUEST_TIMEOUT_MS: Final = 30_000
READY_TIMEOUT_MS: Final = 1_000
_DESCRIBE: Final = (ApiKey.DESCRIBE_TRANSACTIONS, 0, 0)
_LIST: Final = (ApiKey.LIST_TRANSACTIONS, 0, 2)
# States of an id without an unfinished transaction; one of another name may have one.
_OVER: Final = frozenset(each.label for each in State if each >= 0 and each not in UNFINISHED)
# The answers of a coordinator that has loaded, about an id.
_LOADED: Final = (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)


class OpenIn(NamedTuple):
    """A transaction of this producer is open in this partition."""

    producer_id: int
    partition: TopicPartition


Asked = frozenset[OpenIn]
# Those of them that a coordinator has; None: not every coordinator has answered.
Known = frozenset[OpenIn] | None
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
        login: LoginOf = no_login,
    ) -> None:
        """`partition_for` places an id among the partitions of the state topic. `peers` makes the
        client, on the loop."""
        self._node_id: Final = node_id
        self._image: Final = image
        self._partition_for: Final = partition_for
        self._own: Final = own
        self._submit: Final = submit
        self._make_peers: Final = peers or partial(_network_client, login)
        self._peers: Peers | None = None
        self._ids: Sequence[str] = ()

    def ask(self, asked: Asked, done: Callable[[Known], None]) -> Iterator[None]:
        """In steps, since this broker may have very many ids. Where a step raises, `done` may never
        be called."""
        leaders = self._leaders()
        if leaders is None:
            done(None)
            return
        asking = _Asking(len(leaders), done)
        for node_id, probes in leaders.items():
            broker = self._image().brokers.get(node_id)
            if node_id == self._node_id:
                asking.answered((yield from self._ask_own(probes, asked)))
            elif broker is None or broker.port < 0:
                asking.answered(None)
            else:
                self._begin(self._ask(broker, probes, asked, asking.answered))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            self._submit(work)
        except BaseException:  # without the loop nothing is asked; who called says so
            work.close()
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

    def _ask_own(self, probes: Sequence[str], asked: Asked) -> Generator[None, None, Known]:
        coordinator = self._own()
        if coordinator is None or not _has_loaded(coordinator, probes):
            return None
        wanted: dict[int, set[OpenIn]] = {}
        for each in asked:
            wanted.setdefault(each.producer_id, set()).add(each)
        found: set[OpenIn] = set()
        for piece in coordinator.unfinished(frozenset(wanted)):
            for producer_id, partitions in piece:
                its = wanted[producer_id]
                if partitions is not None:
                    its = {each for each in its if each.partition in partitions}
                found |= its
            yield
        return frozenset(found) if _has_loaded(coordinator, probes) else None

    async def _ask(
        self,
        broker: BrokerImage,
        probes: Sequence[str],
        asked: Asked,
        done: Callable[[Known], None],
    ) -> None:
        found: Known = None
        try:
            found = await self._known(broker, probes, asked)
        except (KafkaError, ProtocolError):
            pass  # it is asked again with the next look
        finally:
            done(found)

    async def _known(self, broker: BrokerImage, probes: Sequence[str], asked: Asked) -> Known:
        from kbroker.peer.address import Address

        if self._peers is None:
            self._peers = self._make_peers()
        peers, address = self._peers, Address(broker.host, broker.port)
        await peers.wait_ready(address, timeout_ms=READY_TIMEOUT_MS, fail_fast=True)

        async def describe(names: Sequence[str]) -> list[DescribedTransaction] | None:
            """All of them, by a coordinator that has loaded them."""
            version = peers.version(address, *_DESCRIBE)
            body = transaction_messages.encode_describe_transactions(version, names)
            reader = await peers.call(address, _DESCRIBE[0], version, body)
            described = transaction_messages.decode_describe_transactions(reader, version)
            loaded = {each.transactional_id for each in described if each.error in _LOADED}
            return described if loaded.issuperset(names) else None

        if await describe(probes) is None:
            return None
        version = peers.version(address, *_LIST)
        producer_ids = sorted({each.producer_id for each in asked})
        wanted = Filter(producer_ids=producer_ids)
        body = transaction_messages.encode_list_transactions(version, wanted)
        reader = await peers.call(address, _LIST[0], version, body)
        listed = transaction_messages.decode_list_transactions(reader, version)
        names = [each.transactional_id for each in listed if each.state not in _OVER]
        # The probes come again with them.
        described = await describe([*names, *probes])
        if described is None:
            return None
        return asked & {
            OpenIn(each.producer_id, partition)
            for each in described
            if each.state not in _OVER
            for partition in each.partitions
        }


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


def _network_client(login: LoginOf) -> Peers:
    from kbroker.peer.connection import NetworkClientOptions
    from kbroker.peer.network_client import NetworkClient

    return NetworkClient(
        NetworkClientOptions(
            client_id=CLIENT_ID, request_timeout_ms=REQUEST_TIMEOUT_MS, login=login()
        )
    )
