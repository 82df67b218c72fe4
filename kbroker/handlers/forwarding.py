"""Forwards to the controller what only the controller can do, and returns its response.

Place in the flow: clients may take any broker for the controller (KIP-590). If another broker is
the controller, `registry.dispatch` gives the requests of such APIs to `forward`. The request goes
to the controller in an envelope (`envelope.py`) with the client's principal and address, and is not
forwarded again: if two brokers take each other for the controller, both say so in their responses,
and the client tries again.

Envelopes are accepted on the listener between brokers (`inter.broker.listener.name`) only. Without
authentication nothing else proves that a broker has sent one: a client that reaches this listener
can send an envelope with the name of another client.

A broker of an earlier version neither accepts nor sends envelopes; its registration has no version
of them. It gets the body alone. Its own forwarded requests are recognised by the client id of its
connection (CLIENT_ID) on the listener between brokers, but only while a broker of an earlier
version is registered; afterwards the client id has no meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers import envelope
from kbroker.handlers.envelope import Forwarded
from kbroker.metadata.image import NO_CONTROLLER, NO_ENVELOPE
from kbroker.protocol.versions import THROTTLE_FIRST_SINCE
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import ColdRequest, Services
    from kbroker.metadata.controller.update_parts import PartsReceived
    from kbroker.metadata.image import BrokerImage

# The client id of connections between brokers; it proves nothing.
CLIENT_ID: Final = "kbroker-between-brokers"


# Of a request on such a connection.
_HEADER_BYTES_MAX: Final = 64
_THROTTLE_BYTES: Final = 4


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
        """`done` gets the answer's body or the client's error, on any thread."""


def always(services: Services, message: Any) -> bool:
    """For an API that only the controller serves."""
    return True


def is_on_brokers_listener(services: Services, request: ColdRequest) -> bool:
    """Whether it came on the listener that brokers of a cluster have for each other."""
    inside = services.config.listeners.inter_broker_name
    return services.peers is not None and request.listener == inside


def is_from_a_broker(services: Services, request: ColdRequest) -> bool:
    """Whether another broker has forwarded it."""
    if isinstance(request, Forwarded):
        return True
    inside = services.config.listeners.inter_broker_name
    return calls_itself_a_broker(request, inside) and any(
        broker.envelope_version == NO_ENVELOPE
        for broker in services.controller.image.brokers.values()
    )


def calls_itself_a_broker(request: ColdRequest, inside: str) -> bool:
    """This proves nothing: a client of `inside`, the listener between brokers, can say so, too."""
    return request.client_id == CLIENT_ID and request.listener == inside


def is_for_another(services: Services, request: ColdRequest) -> bool:
    """Whether this broker is one of several, not the controller, and was asked by a client."""
    return (
        services.peers is not None
        and not services.controller.active
        and not is_from_a_broker(services, request)
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

    request = call.request
    api_key, version, body = request.api_key, request.api_version, request.body
    in_envelope = broker.envelope_version >= envelope.VERSION
    if in_envelope:
        api_key, version = int(ApiKey.ENVELOPE), envelope.VERSION
        body = envelope.sealed(request, call.session)
    if len(body) + _HEADER_BYTES_MAX > services.config["socket.request.max.bytes"]:
        # The controller would close the connection, with the requests of other clients on it.
        call.fail(ErrorCode.INVALID_REQUEST, "the request is too large to be forwarded")
        return

    def done(answer: bytes | KafkaError) -> None:
        now = services.controller.image.controller_id
        if isinstance(answer, bytes):
            answer = envelope.opened(answer, request) if in_envelope else answer
        elif again and now not in (broker.node_id, NO_CONTROLLER):
            with call:
                _ask(services, call, again=False)
            return
        if isinstance(answer, KafkaError):
            call.fail(answer.code, answer.message)
        else:
            call.send(partial(_throttled, call.request, answer))

    services.peers.forward(broker, api_key, version, body, done)


def _throttled(request: ColdRequest, answer: bytes) -> bytes:
    """The controller's answer; its client is not read for as long as that says."""
    since = THROTTLE_FIRST_SINCE.get(ApiKey(request.api_key))
    if since is not None and request.api_version >= since:
        request.throttle(max(0, int.from_bytes(answer[:_THROTTLE_BYTES], "big", signed=True)))
    return answer
