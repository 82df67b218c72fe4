"""The way to share coordinators: requests 83 to 87 on the control loop, or right here.

Place in the flow: `StatePersister` decides what is asked and when; here is which broker is the
coordinator of a share-partition (the leader of its partition of the state topic, by the published
image), and what is sent to it. Where the way fails it is not known what became of the request:
NETWORK_EXCEPTION. A broker that does not list the API, as of an earlier version, coordinates
nothing: COORDINATOR_NOT_AVAILABLE, until it has been updated.

Any thread may call; requests are sent on the control loop, which starts with the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from kbroker.coordinator.share.requests import failed
from kbroker.coordinator.share.wire import OF_KIND, answers_of, encode_request
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.forwarding import CLIENT_ID
from kbroker.metadata.features import SHARE_VERSION
from kbroker.metadata.image import NO_LEADER, SHARE_STATE_TOPIC
from kbroker.peer.own_login import LoginOf, no_login
from kbroker.protocol.wire import ProtocolError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from kbroker.coordinator.share.coordinator import ShareCoordinator
    from kbroker.coordinator.share.images import SharePartition
    from kbroker.coordinator.share.persister import Answers
    from kbroker.coordinator.share.requests import Asked, Done
    from kbroker.failures import Failures
    from kbroker.metadata.image import BrokerImage, ClusterImage
    from kbroker.peer.address import Address
    from kbroker.protocol.wire import Reader
    from kbroker.types import ApiKey

# A coordinator waits for its followers for share.coordinator.write.timeout.ms, 5 s as it comes.
REQUEST_TIMEOUT_MS: Final = 10_000
# A coordinator that was killed is in the image until its session ends: no need to wait for it.
READY_TIMEOUT_MS: Final = 1_000

Submit = Callable[[Coroutine[Any, Any, None]], "Future[None]"]


class Peers(Protocol):
    """A NetworkClient."""

    async def wait_ready(
        self, address: Address, *, timeout_ms: int | None = None, fail_fast: bool = False
    ) -> None: ...

    def version(self, address: Address, api_key: ApiKey, lowest: int, highest: int) -> int: ...

    async def call(
        self, address: Address, api_key: ApiKey, version: int, body: bytes
    ) -> Reader: ...

    def forget(self, address: Address) -> None: ...


class ShareCoordinators:
    """See the head of this file; the `Coordinators` of StatePersister."""

    def __init__(
        self,
        node_id: int,
        image: Callable[[], ClusterImage],
        partition_for: Callable[[str, int], int],
        own: Callable[[], ShareCoordinator | None],
        create_topic: Callable[[], object],
        submit: Submit,
        failures: Failures,
        peers: Callable[[], Peers] | None = None,
        login: LoginOf = no_login,
    ) -> None:
        """`partition_for` places a key among the partitions of the state topic. `create_topic` has
        it created, and returns at once. `peers` makes the client, on the loop."""
        self._node_id: Final = node_id
        self._image: Final = image
        self._partition_for: Final = partition_for
        self._own: Final = own
        self._create_topic: Final = create_topic
        self._submit: Final = submit
        self._failures: Final = failures
        self._make_peers: Final = peers or partial(_network_client, login)
        self._peers: Peers | None = None

    def coordinator_of(self, key: SharePartition) -> int | None:
        image = self._image()
        if not image.features.level(SHARE_VERSION):
            return None  # no broker coordinates, and the topic is not to be created
        topic = image.topics.get(SHARE_STATE_TOPIC)
        if topic is None or not topic.partitions:
            self._create_topic()
            return None
        at = self._partition_for(key.coordinator_key, len(topic.partitions))
        leader = topic.partitions[at].leader
        return None if leader == NO_LEADER else leader

    def is_local(self, node_id: int) -> bool:
        return node_id == self._node_id

    def ask_own(self, asked: Asked, done: Done) -> None:
        coordinator = self._own()
        if coordinator is None:  # it is made when the image is followed
            done(failed(asked, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            coordinator.ask(asked, done)

    def ask(self, node_id: int, asked: Sequence[Asked], done: Callable[[Answers], object]) -> None:
        broker = self._image().brokers.get(node_id)
        if broker is None or broker.port < 0:
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        work = self._ask(broker, asked, done)
        try:
            self._submit(work)
        except BaseException:  # without the loop nothing is asked; the caller notes it
            work.close()
            raise

    async def _ask(
        self, broker: BrokerImage, asked: Sequence[Asked], done: Callable[[Answers], object]
    ) -> None:
        answers: Answers = ErrorCode.NETWORK_EXCEPTION
        try:
            answers = await self._call(broker, asked)
        except ProtocolError as error:
            self._failures.note("reading what a share coordinator answered", error)
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                answers = ErrorCode.COORDINATOR_NOT_AVAILABLE
                self._forget(broker)
        except Exception as error:  # nothing looks at the result of this task
            self._failures.note("asking a share coordinator", error)
        finally:
            done(answers)

    def _forget(self, broker: BrokerImage) -> None:
        """Its APIs are asked for again: it lists these from when it has the feature's level."""
        from kbroker.peer.address import Address

        if self._peers is not None:
            self._peers.forget(Address(broker.host, broker.port))

    async def _call(self, broker: BrokerImage, asked: Sequence[Asked]) -> Answers:
        from kbroker.peer.address import Address

        if self._peers is None:
            self._peers = self._make_peers()
        api, address = OF_KIND[type(asked[0])], Address(broker.host, broker.port)
        await self._peers.wait_ready(address, timeout_ms=READY_TIMEOUT_MS, fail_fast=True)
        version = self._peers.version(address, api.key, *api.versions)
        body = encode_request(api, asked, version)
        reader = await self._peers.call(address, api.key, version, body)
        return answers_of(api, asked, api.table.Response.read(reader, version))


def _network_client(login: LoginOf) -> Peers:
    from kbroker.peer.connection import NetworkClientOptions
    from kbroker.peer.network_client import NetworkClient

    return NetworkClient(
        NetworkClientOptions(
            client_id=CLIENT_ID, request_timeout_ms=REQUEST_TIMEOUT_MS, login=login()
        )
    )
