"""Producer ids for the transaction coordinator of a broker that may not be the controller.

The controller has a block of ids at hand. Another broker asks it for one, by InitProducerId without
a transactional id, as an idempotent producer does: a transactional id needs a new producer id once,
and once for each 32,767 epochs. It asks as itself, not in an envelope: it has the rights of a
broker, and no client is there whose rights would count.

Any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller import ProducerIdManager
from kbroker.protocol import messages
from kbroker.protocol.wire import ProtocolError
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.forwarding import Peers
    from kbroker.metadata.controller import Controller

_VERSION: Final = 0

Done = Callable[[int | KafkaError], None]


class GivenProducerIds:
    """See the head of this file."""

    def __init__(self, controller: Callable[[], Controller], peers: Peers | None) -> None:
        self._controller = controller
        self._peers = peers
        self._own: ProducerIdManager | None = None

    def generate(self, done: Done) -> None:
        controller = self._controller()
        if controller.active or self._peers is None:
            if self._own is None:
                self._own = ProducerIdManager(controller.allocate_producer_ids)
            self._own.generate(done)
        else:
            self._ask(self._peers, controller, done)

    def _ask(self, peers: Peers, controller: Controller, done: Done) -> None:
        image = controller.image
        broker = image.brokers.get(image.controller_id)
        if broker is None:
            done(_later("there is no controller now"))
            return
        body = messages.init_producer_id.Request(
            transactional_id=None, transaction_timeout_ms=0
        ).encode(_VERSION)

        def answered(answer: bytes | KafkaError) -> None:
            done(_later(answer.message) if isinstance(answer, KafkaError) else _producer_id(answer))

        peers.forward(broker, int(ApiKey.INIT_PRODUCER_ID), _VERSION, body, answered)


def _producer_id(answer: bytes) -> int | KafkaError:
    try:
        response = messages.init_producer_id.Response.decode(answer, _VERSION)
    except ProtocolError as error:
        return _later(str(error))
    if response.error_code:
        return _later(ErrorCode.for_code(response.error_code).name)
    return response.producer_id


def _later(why: str) -> KafkaError:
    """The client asks again."""
    return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, why)
