"""The way to the other brokers: one connection each, on the control loop.

Place in the flow: `BrokerChannels` (metadata/controller/broker_channels.py) decides what a broker
is told and when it is told again, `handlers/forwarding.py` what the controller is asked; this sends
it, to the address that the broker registered, and says what became of it. Whatever goes wrong on
the way is "not known": the request may have arrived.

Any thread may call; the work is done on the control loop, which starts with the first call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.forwarding import BETWEEN_BROKERS
from kbroker.log_lines import LogLines
from kbroker.metadata.controller.broker_messages import (
    UPDATE_KEY,
    UPDATE_VERSION,
    decode_answer,
    encode_update,
)
from kbroker.protocol.wire import ProtocolError, Reader
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.metadata.controller.broker_channels import ImageAnswer, ImageUpdate
    from kbroker.metadata.image import BrokerImage
    from kbroker.peer.network_client import NetworkClient

logger: Final = logging.getLogger("kbroker.controller")
# A broker that is away is told once a second.
lines: Final = LogLines(logger)

# A broker that opens many logs answers late; one that is gone leaves the image with its session.
REQUEST_TIMEOUT_MS: Final = 30_000

Submit = Callable[[Coroutine[Any, Any, None]], Future[None]]


class BrokerLinks:
    """See the head of this file; a `Transport` of BrokerChannels and the handlers' `Peers`."""

    def __init__(self, submit: Submit) -> None:
        self._submit = submit
        self._client: NetworkClient | None = None

    def update(
        self,
        broker: BrokerImage,
        update: ImageUpdate,
        done: Callable[[ImageAnswer | None], None],
    ) -> None:
        self._begin(self._update(broker, update, done))

    def forward(
        self,
        broker: BrokerImage,
        api_key: int,
        version: int,
        body: bytes,
        done: Callable[[bytes | None], None],
    ) -> None:
        self._begin(self._forward(broker, ApiKey(api_key), version, body, done))

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._begin(self._later(delay_ms, call))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            self._submit(work)
        except RuntimeError as error:
            # Without the loop nobody is told anything; health says so, and this once a second.
            lines.write(logging.ERROR, "no loop", "other brokers cannot be told: %s", error)

    async def _update(
        self,
        broker: BrokerImage,
        update: ImageUpdate,
        done: Callable[[ImageAnswer | None], None],
    ) -> None:
        answer: ImageAnswer | None = None
        try:
            reader = await self._call(broker, UPDATE_KEY, UPDATE_VERSION, encode_update(update))
            answer = decode_answer(reader)
        except (KafkaError, ProtocolError) as error:
            lines.write(
                logging.WARNING,
                f"broker {broker.node_id}",
                "broker %d was not told what changed, and is told again: %s",
                broker.node_id,
                error,
            )
        done(answer)

    async def _forward(
        self,
        broker: BrokerImage,
        api_key: ApiKey,
        version: int,
        body: bytes,
        done: Callable[[bytes | None], None],
    ) -> None:
        answer: bytes | None = None
        try:
            reader = await self._call(broker, api_key, version, body)
            answer = reader.raw(reader.left)
        except (KafkaError, ProtocolError) as error:
            lines.write(
                logging.WARNING,
                "forwarding",
                "%s could not be handed on to broker %d, the controller: %s",
                api_key.label,
                broker.node_id,
                error,
            )
        done(answer)

    async def _call(
        self, broker: BrokerImage, api_key: ApiKey, version: int, body: bytes
    ) -> Reader:
        from kbroker.peer.address import Address
        from kbroker.peer.connection import NetworkClientOptions
        from kbroker.peer.network_client import NetworkClient

        if broker.port < 0:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "it does not listen yet")
        if self._client is None:
            options = NetworkClientOptions(
                client_id=BETWEEN_BROKERS, request_timeout_ms=REQUEST_TIMEOUT_MS
            )
            self._client = NetworkClient(options)
        return await self._client.call(Address(broker.host, broker.port), api_key, version, body)

    async def _later(self, delay_ms: int, call: Callable[[], None]) -> None:
        import asyncio  # not before the control loop wants it

        await asyncio.sleep(delay_ms / 1000)
        call()
