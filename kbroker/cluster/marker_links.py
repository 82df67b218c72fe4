"""The way of markers to other brokers: WriteTxnMarkers on the control loop.

Place in the flow: `TransactionMarkers` decides what is sent to which broker; this sends it, to the
address that the broker registered. Whatever goes wrong on the way is "not known": the request may
have arrived, and a marker that is written twice does no harm.

Slow partitions have connections of their own: a broker answers the requests of one in their order.

Any thread may call; the work is done on the control loop, which starts with the first call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.forwarding import CLIENT_ID
from kbroker.log_lines import LogLines
from kbroker.peer.own_login import LoginOf, no_login
from kbroker.protocol import messages
from kbroker.protocol.wire import ProtocolError
from kbroker.types import ApiKey, TopicPartition

if TYPE_CHECKING:
    from concurrent.futures import Future

    from kbroker.cluster.transaction_coordinators import Peers
    from kbroker.cluster.transaction_markers import Marker, Outcome
    from kbroker.failures import Failures
    from kbroker.metadata.image import BrokerImage, ClusterImage
    from kbroker.protocol.messages import write_txn_markers
    from kbroker.protocol.wire import Reader

logger: Final = logging.getLogger("kbroker.transactions")
lines: Final = LogLines(logger)

VERSIONS: Final = (1, 2)
# A broker answers for its followers within five seconds. One that does not answer keeps all markers
# for it waiting so long.
REQUEST_TIMEOUT_MS: Final = 10_000
# A broker that was killed is in the image until its session ends: no need to wait for it.
READY_TIMEOUT_MS: Final = 1_000

Submit = Callable[[Coroutine[Any, Any, None]], "Future[None]"]


class MarkerLinks:
    """See the head of this file; the `Transport` of TransactionMarkers."""

    def __init__(
        self,
        image: Callable[[], ClusterImage],
        submit: Submit,
        failures: Failures,
        peers: Callable[[], Peers] | None = None,
        login: LoginOf = no_login,
    ) -> None:
        """`peers` makes a client, on the loop."""
        self._image = image
        self._submit = submit
        self._failures = failures
        self._make_peers = peers or partial(_network_client, login)
        self._clients: dict[bool, Peers] = {}  # by whether they are for slow partitions

    def send(
        self,
        node_id: int,
        markers: Sequence[Marker],
        done: Callable[[Outcome], None],
        *,
        slow: bool,
    ) -> None:
        broker = self._image().brokers.get(node_id)
        if broker is None or broker.port < 0:
            done(None)
            return
        work = self._send(broker, markers, done, slow)
        try:
            self._submit(work)
        except BaseException:
            work.close()
            raise

    async def _send(
        self,
        broker: BrokerImage,
        markers: Sequence[Marker],
        done: Callable[[Outcome], None],
        slow: bool,
    ) -> None:
        from kbroker.peer.address import Address

        outcome: Outcome = None
        try:
            address, key, peers = (
                Address(broker.host, broker.port),
                ApiKey.WRITE_TXN_MARKERS,
                self._peers(slow),
            )
            await peers.wait_ready(address, timeout_ms=READY_TIMEOUT_MS, fail_fast=True)
            version = peers.version(address, key, *VERSIONS)
            body = encode_request(markers, version)
            outcome = decode_outcome(await peers.call(address, key, version, body), version)
        except (KafkaError, ProtocolError) as error:
            lines.write(
                logging.WARNING,
                f"broker {broker.node_id}",
                "markers of %d transactions were not written by broker %d, and are sent again: %s",
                len(markers),
                broker.node_id,
                error,
            )
        except Exception as error:  # nothing looks at the result of this task
            self._failures.note("sending markers of transactions", error)
        finally:
            done(outcome)

    def _peers(self, slow: bool) -> Peers:
        if slow not in self._clients:
            self._clients[slow] = self._make_peers()
        return self._clients[slow]


def _network_client(login: LoginOf) -> Peers:
    from kbroker.peer.connection import NetworkClientOptions
    from kbroker.peer.network_client import NetworkClient

    return NetworkClient(
        NetworkClientOptions(
            client_id=CLIENT_ID, request_timeout_ms=REQUEST_TIMEOUT_MS, login=login()
        )
    )


def encode_request(markers: Sequence[Marker], version: int) -> bytes:
    table = messages.write_txn_markers
    return table.Request(markers=[as_message(each) for each in markers]).encode(version)


def as_message(marker: Marker) -> write_txn_markers.Marker:
    table = messages.write_txn_markers
    topics: dict[str, list[int]] = {}
    for topic, index in marker.partitions:
        topics.setdefault(topic, []).append(index)
    return table.Marker(
        producer_id=marker.order.producer_id,
        producer_epoch=marker.order.epoch,
        transaction_result=marker.order.committed,
        topics=[
            table.TopicRequest(name=topic, partition_indexes=indexes)
            for topic, indexes in topics.items()
        ],
        coordinator_epoch=marker.order.coordinator_epoch,
        transaction_version=marker.order.version,
        coordinator_run=marker.order.run,
        outcome_number=marker.order.number,
    )


def decode_outcome(reader: Reader, version: int) -> Outcome:
    """Raises ProtocolError."""
    response = messages.write_txn_markers.Response.read(reader, version)
    return {
        (each.producer_id, TopicPartition(topic.name, result.partition_index)): ErrorCode.for_code(
            result.error_code
        )
        for each in response.markers
        for topic in each.topics
        for result in topic.partitions
    }
