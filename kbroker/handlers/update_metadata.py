"""UpdateMetadata (6), in versions of kbroker's own: the controller tells a broker what holds.

One that is too large for a request comes in parts, each of which is answered; the last one as if
the whole had come with it.

Between the brokers of a cluster only (`registry.py`). The answer comes from the controller's
thread, when this broker's logs have followed. Any handler thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode
from kbroker.handlers.reply import Reply
from kbroker.metadata.controller.image_updates import ImageAnswer

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services


def handle(services: Services, request: ColdRequest) -> None:
    if services.peers is not None:
        services.peers.parts.forget()
    _follow(services, request, request.body)


def handle_part(services: Services, request: ColdRequest) -> None:
    from kbroker.metadata.controller.update_parts import decode_part  # a cluster's

    part = decode_part(request.body)
    whole: bytes | ErrorCode = ErrorCode.STALE_BROKER_EPOCH
    if services.peers is not None and part.update.broker_epoch == services.controller.broker_epoch:
        whole = services.peers.parts.take(part)
    if isinstance(whole, bytes):
        _follow(services, request, whole)
    else:
        request.respond(failure(request, whole, ""))


def _follow(services: Services, request: ColdRequest, body: bytes) -> None:
    from kbroker.metadata.controller.broker_messages import decode_update  # a cluster's

    update = decode_update(body)
    reply = Reply(request, failure)
    with reply:
        services.controller.follow(update, lambda answer: _respond(reply, answer))


def _respond(reply: Reply, answer: ImageAnswer) -> None:
    reply.send(lambda: _encoded(answer))


def _encoded(answer: ImageAnswer) -> bytes:
    from kbroker.metadata.controller.broker_messages import encode_answer

    return encode_answer(answer)


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    return _encoded(ImageAnswer(code))
