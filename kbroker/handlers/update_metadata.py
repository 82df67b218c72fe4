"""UpdateMetadata (6), in versions of kbroker's own: the controller tells a broker what holds.

One that is too large for a request comes in parts, each of which is answered; the last one as if
the whole had come with it.

Between the brokers of a cluster only (`registry.py`). The answer comes from the controller's
thread, when this broker's logs have followed. Any handler thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode
from kbroker.metadata.controller.image_updates import UPDATE_PART_VERSION, UPDATE_VERSION
from kbroker.protocol import messages

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.metadata.controller.image_updates import ImageAnswer
    from kbroker.protocol.messages.update_metadata import Request


def handle(services: Services, call: Call[Request]) -> None:
    from kbroker.metadata.controller.broker_messages import response_of, update_of  # a cluster's

    request = call.message
    if call.version == UPDATE_PART_VERSION:
        whole = _take_part(services, request)
        if isinstance(whole, ErrorCode):
            call.answer(messages.update_metadata.Response(error_code=whole))
            return
        request = messages.update_metadata.Request.decode(whole, UPDATE_VERSION)
    elif services.peers is not None:
        services.peers.parts.forget()

    def done(answer: ImageAnswer) -> None:
        call.answer(response_of(answer))

    services.controller.follow(update_of(request), done)


def _take_part(services: Services, request: Request) -> bytes | ErrorCode:
    """As `PartsReceived.take`."""
    from kbroker.metadata.controller.update_parts import part_of

    part = part_of(request)
    if services.peers is None or part.update.broker_epoch != services.controller.broker_epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    return services.peers.parts.take(part)
