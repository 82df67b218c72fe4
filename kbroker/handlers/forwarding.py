"""What only the controller can do, asked of another broker: handed on, and its answer handed back.

Place in the flow: clients may take any broker for the controller (KIP-590), so `registry.dispatch`
hands the requests of such APIs to `forward` where another broker is the controller. The body goes
to it as it came, and the body of the answer back as it came. Brokers call themselves
CLIENT_ID, and what comes from one is not handed on again: two that take each other for the
controller say so, and the client asks once more. A client id is no proof, so the name counts only
on the listener that brokers have for each other (`inter.broker.listener.name`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.image import NO_CONTROLLER

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import ColdRequest, Services
    from kbroker.metadata.controller.update_parts import PartsReceived
    from kbroker.metadata.image import BrokerImage

# The client id of connections between brokers.
CLIENT_ID: Final = "kbroker-between-brokers"


class Peers(Protocol):
    """The way to other brokers, and what came from them that is not complete yet."""

    @property
    def parts(self) -> PartsReceived: ...

    def forward(
        self,
        broker: BrokerImage,
        api_key: int,
        version: int,
        body: bytes,
        done: Callable[[bytes | KafkaError], None],
    ) -> None:
        """`done` gets the body of the answer, from any thread, or what the client is told."""


def always(services: Services, message: Any) -> bool:
    """For an API that only the controller serves."""
    return True


def is_on_brokers_listener(services: Services, request: ColdRequest) -> bool:
    """Whether it came on the listener that brokers of a cluster have for each other."""
    inside = services.config.listeners.inter_broker_name
    return services.peers is not None and request.listener == inside


def is_from_a_broker(request: ColdRequest, inside: str) -> bool:
    """Whether it says so, and came on `inside`, the brokers' listener."""
    return request.client_id == CLIENT_ID and request.listener == inside


def is_for_another(services: Services, request: ColdRequest) -> bool:
    """Whether this broker is one of several, not the controller, and was asked by a client."""
    return (
        services.peers is not None
        and not services.controller.active
        and not is_from_a_broker(request, services.config.listeners.inter_broker_name)
    )


def forward(services: Services, call: Call[Any]) -> None:
    """The request has been read, so it is one of this version: the connection between brokers is
    used for other requests, too, and would be closed for a malformed one."""
    _ask(services, call)


def _ask(services: Services, call: Call[Any], *, again: bool = True) -> None:
    """`again`: the next controller is asked if there is one before this one has answered, as by
    Apache Kafka. Then it may have been done already, and the answer says so. The next one may be
    this broker, which is asked over its own listener, as there."""
    image = services.controller.image
    broker = image.brokers.get(image.controller_id)
    # At first the image may name this broker although it has just left office.
    is_gone = again and image.controller_id == services.node_id
    if services.peers is None or broker is None or is_gone:
        call.fail(ErrorCode.NOT_CONTROLLER, "there is no controller now")
        return

    def done(answer: bytes | KafkaError) -> None:
        now = services.controller.image.controller_id
        if not isinstance(answer, KafkaError):
            call.send(lambda: answer)
        elif again and now not in (broker.node_id, NO_CONTROLLER):
            _ask(services, call, again=False)
        else:
            call.fail(answer.code, answer.message)

    request = call.request
    services.peers.forward(broker, request.api_key, request.api_version, request.body, done)
