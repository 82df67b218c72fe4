"""UpdateMetadata (6), in a version of kbroker's own: the controller tells a broker what holds.

Between the brokers of a cluster only (`registry.py`). The answer comes from the controller's
thread, when this broker's logs have followed. Any handler thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.handlers.reply import Reply
from kbroker.metadata.controller.image_updates import ImageAnswer

if TYPE_CHECKING:
    from kbroker.errors import ErrorCode
    from kbroker.handlers.services import ColdRequest, Services


def handle(services: Services, request: ColdRequest) -> None:
    from kbroker.metadata.controller.broker_messages import decode_update  # a cluster's

    update = decode_update(request.body)
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
