"""Controlled shutdown: before a broker stops, others lead what it leads.

Place in the flow: the first thing that a stop does, while everything still runs. The controller is
asked, which may be this broker (`PartitionChanges.shut_down`); leaders and in-sync sets without
this broker come back as images, and the stop goes on when there is nothing left that others could
lead. Where they could, but are not in sync yet, or there is no controller, it is asked again: after
every image, at least every `controlled.shutdown.retry.backoff.ms`, as long as
`controlled.shutdown.max.retries` of that would take. An answer is waited for no longer than that
pause, so that one that hangs leaves time for the next. Partitions without another living replica
are not waited for.

The stop is known to the controller that was asked, and to no other: one that comes into office
until this broker is gone is notified, too, or would let it join in-sync sets and lead again.

On the main thread; `followed` on the controller's.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.log_lines import first_few
from kbroker.metadata.controller.image_updates import SHUTDOWN_KEY, SHUTDOWN_VERSION
from kbroker.metadata.controller.partition_states import others_may_lead
from kbroker.metadata.image import NO_BROKER_EPOCH
from kbroker.protocol import messages
from kbroker.protocol.wire import ProtocolError
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.config import BrokerConfig
    from kbroker.handlers.forwarding import Peers
    from kbroker.metadata.controller import Controller
    from kbroker.metadata.image import BrokerImage

    Remaining = list[TopicPartition] | KafkaError

logger: Final = logging.getLogger("kbroker.server")

# The controller has answered: its image is on the way here.
IMAGE_WAIT_MS: Final = 1_000
# However short or long the pause between two questions is, an answer is waited for so long.
ANSWER_MS_MIN: Final = 1_000
ANSWER_MS_MAX: Final = 30_000
# The controller does not know this broker as it is registered.
_UNKNOWN: Final = ErrorCode.STALE_BROKER_EPOCH


class ControlledShutdown:
    """See the head of this file."""

    def __init__(
        self, config: BrokerConfig, clock: Clock, peers: Peers, controller: Callable[[], Controller]
    ) -> None:
        self._config = config
        self._node_id = config.node_id
        self._clock = clock
        self._peers = peers
        self._controller = controller
        self._image_came = threading.Event()
        self._asked: BrokerImage | None = None  # the controller that was last

    def followed(self) -> None:
        """There is another image."""
        self._image_came.set()
        image = self._controller().image
        broker = image.brokers.get(image.controller_id)
        if self._asked is not None and broker is not None and broker != self._asked:
            self._send(lambda remaining: None)

    def run(self) -> None:
        """On return others lead, or the time for it is over; a line in the log says which."""
        unregistered = self._controller().broker_epoch == NO_BROKER_EPOCH  # and leads nothing
        if unregistered or not self._config["controlled.shutdown.enable"]:
            return
        backoff_ms = self._config["controlled.shutdown.retry.backoff.ms"]
        began_ms = self._clock.monotonic_ms()
        end_ms = began_ms + self._config["controlled.shutdown.max.retries"] * backoff_ms
        answer_ms = min(max(backoff_ms, ANSWER_MS_MIN), ANSWER_MS_MAX)
        while True:
            self._image_came.clear()
            asked_ms = self._clock.monotonic_ms()
            remaining = self._ask(answer_ms)
            if remaining == []:
                self._await_image()
                took_ms = self._clock.monotonic_ms() - began_ms
                logger.info("controlled shutdown: others lead what could be led, %d ms", took_ms)
                return
            if isinstance(remaining, KafkaError) and remaining.code is _UNKNOWN:
                self._controller().doubt_registration()
            again_ms = asked_ms + backoff_ms
            if again_ms >= end_ms:
                break
            self._image_came.wait(max(0, again_ms - self._clock.monotonic_ms()) / 1000)
        logger.warning(
            "controlled shutdown: this broker stops although %s",
            f"the controller says: {remaining}"
            if isinstance(remaining, KafkaError)
            else f"others are to lead {first_few([str(name) for name in remaining])}",
        )

    def _ask(self, within_ms: int) -> Remaining:
        answered: Future[Remaining] = Future()
        self._send(answered.set_result)
        try:
            return answered.result(within_ms / 1000)
        except TimeoutError:
            what = f"the controller did not answer within {within_ms} ms"
            return KafkaError(ErrorCode.REQUEST_TIMED_OUT, what)

    def _send(self, done: Callable[[Remaining], None]) -> None:
        controller = self._controller()
        image = controller.image
        broker = image.brokers.get(image.controller_id)
        if controller.active:
            self._asked = broker
            controller.shut_down(self._node_id, controller.broker_epoch, done)
        elif broker is None or broker.node_id == self._node_id:
            done(KafkaError(ErrorCode.NOT_CONTROLLER, "there is no controller now"))
        else:
            self._asked = broker
            request = messages.controlled_shutdown.Request(
                broker_id=self._node_id, broker_epoch=controller.broker_epoch
            )
            self._peers.forward(
                broker,
                SHUTDOWN_KEY,
                SHUTDOWN_VERSION,
                request.encode(SHUTDOWN_VERSION),
                lambda answer: done(_remaining(answer)),
            )

    def _await_image(self) -> None:
        """Until this broker has the image in which it does not lead; its clients go by it."""
        end_ms = self._clock.monotonic_ms() + IMAGE_WAIT_MS
        while others_may_lead(self._controller().image, self._node_id):
            left_ms = end_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                return
            self._image_came.wait(left_ms / 1000)
            self._image_came.clear()


def _remaining(answer: bytes | KafkaError) -> Remaining:
    if isinstance(answer, KafkaError):
        return answer
    try:
        response = messages.controlled_shutdown.Response.decode(answer, SHUTDOWN_VERSION)
    except ProtocolError as malformed:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"a malformed answer: {malformed}")
    error = ErrorCode.for_code(response.error_code)
    if error is not ErrorCode.NONE:
        return KafkaError(error)
    return [
        TopicPartition(each.topic_name, each.partition_index)
        for each in response.remaining_partitions
    ]
