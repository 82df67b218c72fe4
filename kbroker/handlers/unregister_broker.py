"""UnregisterBroker (64): the cluster is to know nothing more of a broker that is gone for good.

The controller's to do; what it removes stands in `metadata/controller/unregistration.py`. A broker
that is not known is BROKER_ID_NOT_REGISTERED.

Any handler thread; holds no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.reply import Reply, told
from kbroker.protocol.wire import Reader, Writer

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services


def decode(request: ColdRequest) -> int:
    """The broker's id."""
    reader = Reader(request.body, flexible=True)
    node_id = reader.int32()
    reader.tags()
    return node_id


def handle(services: Services, request: ColdRequest) -> None:
    node_id = decode(request)
    reply = Reply(request, failure)
    with reply:

        def done(error: KafkaError | None) -> None:
            if error is None:
                reply.send(lambda: _encode(ErrorCode.NONE, None))
            else:
                reply.fail(error.code, error.message)

        services.controller.unregister_broker(node_id, done)


def _encode(code: ErrorCode, message: str | None) -> bytes:
    out = Writer(flexible=True)
    out.int32(0)  # throttle time
    out.int16(code)
    out.string(told(message))
    out.tags()
    return out.getvalue()


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    return _encode(code, message or None)
