"""The way to the other brokers: one connection each, on the control loop.

Place in the flow: `BrokerChannels` (metadata/controller/broker_channels.py) decides what is sent to
a broker and when it is sent again, `handlers/forwarding.py` what the controller is asked; this
sends it, to the address that the broker registered, and says what became of it. Whatever goes wrong
on the way is "not known": the request may have arrived.

Any thread may call; the work is done on the control loop, which starts with the first call. Pauses
are the timer's: a loop that cannot start, for want of a thread or of descriptors, ends none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from kbroker.cluster.asked_controller import AskedController
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.forwarding import CLIENT_ID
from kbroker.log_lines import LogLines
from kbroker.metadata.controller.broker_messages import decode_answer, encode_update
from kbroker.metadata.controller.image_updates import UPDATE_KEY
from kbroker.metadata.controller.update_parts import PartsReceived, UpdateWays
from kbroker.peer.own_login import LoginOf, no_login
from kbroker.protocol.wire import ProtocolError
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from concurrent.futures import Future

    from kbroker.failures import Failures
    from kbroker.metadata.controller.image_updates import ImageAnswer, ImageUpdate
    from kbroker.metadata.image import BrokerImage
    from kbroker.peer.address import Address
    from kbroker.peer.network_client import NetworkClient
    from kbroker.purgatory.timer import CallLater

logger: Final = logging.getLogger("kbroker.controller")
# A broker that is away is logged once a second.
lines: Final = LogLines(logger)

# A broker that opens many logs answers late; one that is gone leaves the image with its session.
REQUEST_TIMEOUT_MS: Final = 30_000
# A controller that was killed is in the image until its session is over; no start waits for that.
READY_TIMEOUT_MS: Final = 1_000

Submit = Callable[[Coroutine[Any, Any, None]], "Future[None]"]


class BrokerLinks:
    """See the head of this file; a `Transport` of BrokerChannels and the handlers' `Peers`."""

    def __init__(
        self,
        submit: Submit,
        call_later: CallLater,
        controller_id: Callable[[], int],
        failures: Failures | None = None,
        login: LoginOf = no_login,
    ) -> None:
        """See `AskedController`."""
        self._submit = submit
        self._call_later = call_later
        self._login = login
        self._asked = AskedController(controller_id, failures)
        self._client: NetworkClient | None = None
        self._ways = UpdateWays()
        self.parts = PartsReceived()

    def update(
        self,
        broker: BrokerImage,
        update: ImageUpdate,
        done: Callable[[ImageAnswer | None], None],
    ) -> None:
        self._begin(self._update(broker, update, done), lambda: done(None))

    def forward(
        self,
        broker: BrokerImage,
        api_key: int,
        version: int,
        body: bytes,
        done: Callable[[bytes | KafkaError], None],
    ) -> None:
        answered = self._asked.ask(broker.node_id, done)
        work = self._forward(broker, ApiKey(api_key), version, body, answered)
        self._begin(work, lambda: answered(_not_sent("this broker cannot ask others")))
        self._asked.followed()  # there may be another one by now

    def followed(self) -> None:
        """There is another image: what was asked of another controller is given up."""
        self._asked.followed()

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._call_later(delay_ms, call)

    def _begin(self, work: Coroutine[Any, Any, None], failed: Callable[[], None]) -> None:
        try:
            self._submit(work)
        except Exception as error:
            # Without the loop nothing is sent; health says so, and this once a second.
            work.close()
            lines.write(logging.ERROR, "no loop", "nothing can be sent to other brokers: %s", error)
            failed()

    async def _update(
        self,
        broker: BrokerImage,
        update: ImageUpdate,
        done: Callable[[ImageAnswer | None], None],
    ) -> None:
        answer: ImageAnswer | None = None
        body = b""
        try:
            address = self._address(broker)
            body = encode_update(update)
            last: ImageAnswer | None = None
            for version, request in self._ways.requests(broker.node_id, update, body):
                reader = await self._peers().call(address, UPDATE_KEY, version, request)
                last = decode_answer(reader)
                if last.error is not ErrorCode.NONE:
                    break
            answer = last
        except (KafkaError, ProtocolError) as error:
            lines.write(
                logging.WARNING,
                f"broker {broker.node_id}",
                "broker %d did not get a change, which is sent again: %s",
                broker.node_id,
                error,
            )
        finally:
            if answer is None:
                self._ways.not_answered(broker.node_id, update, body)
            done(answer)

    async def _forward(
        self,
        broker: BrokerImage,
        api_key: ApiKey,
        version: int,
        body: bytes,
        done: Callable[[bytes | KafkaError], None],
    ) -> None:
        answer: bytes | KafkaError = _not_sent("the controller cannot be reached")
        try:
            address, peers = self._address(broker), self._peers()
            await peers.wait_ready(address, timeout_ms=READY_TIMEOUT_MS, fail_fast=True)
            answer = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the controller did not answer")
            reader = await peers.call(address, api_key, version, body)
            answer = reader.raw(reader.left)
        except (KafkaError, ProtocolError) as error:
            lines.write(
                logging.WARNING,
                "forwarding",
                "%s was not done by broker %d, the controller: %s",
                api_key.label,
                broker.node_id,
                error,
            )
        finally:
            done(answer)

    def _address(self, broker: BrokerImage) -> Address:
        from kbroker.peer.address import Address

        if broker.port < 0:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "it does not listen yet")
        return Address(broker.host, broker.port)

    def _peers(self) -> NetworkClient:
        from kbroker.peer.connection import NetworkClientOptions
        from kbroker.peer.network_client import NetworkClient

        if self._client is None:
            options = NetworkClientOptions(
                client_id=CLIENT_ID, request_timeout_ms=REQUEST_TIMEOUT_MS, login=self._login()
            )
            self._client = NetworkClient(options)
        return self._client


def _not_sent(why: str) -> KafkaError:
    """Nothing was done: the client looks for the controller and asks again."""
    return KafkaError(ErrorCode.NOT_CONTROLLER, why)
