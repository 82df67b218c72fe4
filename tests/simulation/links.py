"""The links of a simulated broker to other brokers, over the simulated network.

`Link` is a fetcher's, `Links` has the controller's requests and the forwarded ones.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from kbroker.cluster.asked_controller import AskedController
from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller.broker_messages import decode_answer, encode_update
from kbroker.metadata.controller.image_updates import UPDATE_KEY, ImageAnswer, ImageUpdate
from kbroker.metadata.controller.update_parts import (
    PART_BYTES,
    WHOLE_BYTES_MAX,
    PartsReceived,
    UpdateWays,
)
from kbroker.metadata.image import BrokerImage
from kbroker.peer.address import Address
from kbroker.protocol.wire import Reader
from kbroker.types import ApiKey
from tests.simulation.loop import LINKS
from tests.simulation.network import Lost

if TYPE_CHECKING:
    from tests.simulation.broker import Running

# From which size on an update of the image goes in parts, and how large they are.
UPDATE_BYTES = (WHOLE_BYTES_MAX, PART_BYTES)
PORT = 9092
SLOW_FETCH_MS = 900
HANGING_FETCH_STEP_MS = 50


def host_of(node_id: int) -> str:
    return f"broker-{node_id}"


def node_of(host: str) -> int:
    return int(host.rpartition("-")[2])


async def ask(own: Running, target: int, api_key: ApiKey, version: int, body: bytes) -> Reader:
    """Another broker; KafkaError where the request or its answer is lost."""
    future: asyncio.Future[bytes | Lost] = asyncio.get_running_loop().create_future()

    def done(result: bytes | Lost) -> None:
        if not future.done():
            future.set_result(result)

    own.process.run(lambda: own.request(target, api_key, version, body, done))
    result = await future
    if isinstance(result, Lost):
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, result.value)
    return Reader(result, flexible=True)


class Link:
    """To a leader, for the fetchers: one request at a time."""

    def __init__(self, own: Running, address: Address) -> None:
        self._own = own
        self._target = node_of(address.host)

    async def call(self, api_key: ApiKey, version: int, body: bytes) -> Reader:
        own = self._own
        if own.fetchers_hang_until_ms > own.process.now_ms:
            while own.fetchers_hang_until_ms > own.process.now_ms:  # or until all is healed
                await asyncio.sleep(HANGING_FETCH_STEP_MS / 1000)
        elif own.fetches_slowly:
            await asyncio.sleep(SLOW_FETCH_MS / 1000)
        return await ask(own, self._target, api_key, version, body)

    async def close(self) -> None:
        pass


class Links:
    """As `kbroker/cluster/broker_links.py`, over the simulated network."""

    def __init__(self, own: Running) -> None:
        self._own = own
        self._ways = UpdateWays(*UPDATE_BYTES)
        self.parts = PartsReceived()
        self._asked = AskedController(lambda: own.controller.image.controller_id)
        self._unanswered: dict[object, int] = {}

    @property
    def unanswered(self) -> Collection[int]:
        """The brokers that were asked as the controller, one for each open request."""
        return self._unanswered.values()

    def followed(self) -> None:
        self._asked.followed()

    def update(
        self, broker: BrokerImage, update: ImageUpdate, done: Callable[[ImageAnswer | None], None]
    ) -> None:
        body = encode_update(update)
        requests = deque(self._ways.requests(broker.node_id, update, body))

        def answered(result: bytes | Lost) -> None:
            if isinstance(result, Lost):
                self._ways.not_answered(broker.node_id, update, body)
                done(None)
                return
            answer = decode_answer(Reader(result, flexible=True))
            if requests and answer.error is ErrorCode.NONE:
                send()
            else:
                done(answer)

        def send() -> None:
            version, request = requests.popleft()
            self._own.request(node_of(broker.host), UPDATE_KEY, version, request, answered)

        send()

    def forward(
        self, broker: BrokerImage, api_key: int, version: int, body: bytes,
        done: Callable[[bytes | KafkaError], None],
    ) -> None:  # fmt: skip
        def answered(result: bytes | Lost) -> None:
            if isinstance(result, Lost):
                refused = result is Lost.REFUSED
                code = ErrorCode.NOT_CONTROLLER if refused else ErrorCode.REQUEST_TIMED_OUT
                done(KafkaError(code, result.value))
            else:
                done(result)

        request = object()
        self._unanswered[request] = broker.node_id

        def over(answer: bytes | KafkaError) -> None:
            self._unanswered.pop(request)
            asker(answer)

        asker = done
        done = self._asked.ask(broker.node_id, over)  # another thread may end it at once
        self._own.request(node_of(broker.host), ApiKey(api_key), version, body, answered)
        self._asked.followed()

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._own.process.later(delay_ms, call, LINKS)
