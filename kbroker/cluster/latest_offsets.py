"""The ends of partitions as consumers see them, asked of their leaders: here or at other brokers.

Place in the flow: the lag of a share group is computed by its coordinator, which need not lead the
group's partitions. What this broker leads is looked up at once; the other leaders are asked with
ListOffsets on the control loop, each once for all its partitions. A leader that cannot be asked, or
does not know the end yet, gives an error for its partitions.

Any thread may call. Bound: a request to each broker for each call.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from kbroker.coordinator.share.gathering import Gathering
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.forwarding import CLIENT_ID
from kbroker.handlers.list_offsets import latest_offset
from kbroker.metadata.image import NO_LEADER
from kbroker.peer.own_login import LoginOf, no_login
from kbroker.protocol.wire import ProtocolError
from kbroker.types import ApiKey, TopicPartition

if TYPE_CHECKING:
    from concurrent.futures import Future

    from kbroker.failures import Failures
    from kbroker.handlers.services import Services
    from kbroker.metadata.image import BrokerImage
    from kbroker.peer.address import Address
    from kbroker.protocol.wire import Reader

REQUEST_TIMEOUT_MS: Final = 10_000
# A broker that was killed is in the image until its session ends: no need to wait for it.
READY_TIMEOUT_MS: Final = 1_000
_VERSIONS: Final = (1, 7)

Submit = Callable[[Coroutine[Any, Any, None]], "Future[None]"]
Ends = dict[TopicPartition, "int | ErrorCode"]


class Peers(Protocol):
    """A NetworkClient."""

    async def wait_ready(
        self, address: Address, *, timeout_ms: int | None = None, fail_fast: bool = False
    ) -> None: ...

    def version(self, address: Address, api_key: ApiKey, lowest: int, highest: int) -> int: ...

    async def call(
        self, address: Address, api_key: ApiKey, version: int, body: bytes
    ) -> Reader: ...


class LatestOffsets:
    """See the head of this file."""

    def __init__(
        self,
        services: Callable[[], Services | None],
        submit: Submit,
        failures: Failures,
        peers: Callable[[], Peers] | None = None,
        login: LoginOf = no_login,
    ) -> None:
        """`peers` makes the client, on the loop."""
        self._services: Final = services
        self._submit: Final = submit
        self._failures: Final = failures
        self._make_peers: Final = peers or partial(_network_client, login)
        self._peers: Peers | None = None

    def ask(
        self, places: Iterable[TopicPartition], done: Callable[[Mapping[TopicPartition, Any]], None]
    ) -> None:
        """`done` is called once, perhaps before this returns, with the end of each place or the
        error in its place."""
        services = self._services()
        found: Ends = {}
        elsewhere: dict[int, list[TopicPartition]] = {}
        for place in places:
            image = None
            if services is not None:
                image = services.controller.image.partition(place.topic, place.partition)
            if services is None or image is None:
                found[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif image.leader == services.node_id:
                found[place] = latest_offset(services, place)
            elif image.leader == NO_LEADER:
                found[place] = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                elsewhere.setdefault(image.leader, []).append(place)

        def ask(node_id: int, came: Callable[[Ends], None]) -> None:
            self._begin(node_id, elsewhere[node_id], came)

        def all_came(answers: Mapping[int, Ends]) -> None:
            for ends in answers.values():
                found.update(ends)
            done(found)

        def failed(node_id: int) -> Ends:
            return dict.fromkeys(elsewhere[node_id], ErrorCode.UNKNOWN_SERVER_ERROR)

        Gathering(elsewhere, ask, all_came, failed, self._failures).begin()

    def _begin(
        self, node_id: int, places: Sequence[TopicPartition], came: Callable[[Ends], None]
    ) -> None:
        services = self._services()
        broker = None if services is None else services.controller.image.brokers.get(node_id)
        if broker is None or broker.port < 0:
            came(dict.fromkeys(places, ErrorCode.LEADER_NOT_AVAILABLE))
            return
        work = self._ask(broker, places, came)
        try:
            self._submit(work)
        except Exception as error:
            work.close()
            self._failures.note("asking for the ends of partitions", error)
            came(dict.fromkeys(places, ErrorCode.UNKNOWN_SERVER_ERROR))

    async def _ask(
        self,
        broker: BrokerImage,
        places: Sequence[TopicPartition],
        came: Callable[[Ends], None],
    ) -> None:
        ends: Ends = dict.fromkeys(places, ErrorCode.NETWORK_EXCEPTION)
        try:
            ends.update(await self._call(broker, places))
        except ProtocolError as error:
            self._failures.note("reading the ends of partitions", error)
        except KafkaError as error:
            ends = dict.fromkeys(places, error.code)
        except Exception as error:  # nothing looks at the result of this task
            self._failures.note("asking for the ends of partitions", error)
        finally:
            came(ends)

    async def _call(self, broker: BrokerImage, places: Sequence[TopicPartition]) -> Ends:
        from kbroker.peer import messages
        from kbroker.peer.address import Address

        if self._peers is None:
            self._peers = self._make_peers()
        address = Address(broker.host, broker.port)
        await self._peers.wait_ready(address, timeout_ms=READY_TIMEOUT_MS, fail_fast=True)
        version = self._peers.version(address, ApiKey.LIST_OFFSETS, *_VERSIONS)
        wanted = dict.fromkeys(places, messages.LATEST_TIMESTAMP)
        body = messages.encode_list_offsets(version, wanted)
        reader = await self._peers.call(address, ApiKey.LIST_OFFSETS, version, body)
        answered = messages.decode_list_offsets(reader, version)
        return {
            place: answered[place].error or answered[place].offset
            for place in places
            if place in answered
        }


def _network_client(login: LoginOf) -> Peers:
    from kbroker.peer.connection import NetworkClientOptions
    from kbroker.peer.network_client import NetworkClient

    return NetworkClient(
        NetworkClientOptions(
            client_id=CLIENT_ID, request_timeout_ms=REQUEST_TIMEOUT_MS, login=login()
        )
    )
