"""ControlledShutdown (7): another broker is about to stop, and others are to lead what it leads.

Between the brokers of a cluster only (`registry.py`). The controller's thread decides and answers.
Any handler thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.reply import Reply

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services
    from kbroker.types import TopicPartition


def handle(services: Services, request: ColdRequest) -> None:
    from kbroker.metadata.controller.shutdown_messages import decode_shutdown  # a cluster's

    asked = decode_shutdown(request.body)
    reply = Reply(request, failure)

    def done(outcome: list[TopicPartition] | KafkaError) -> None:
        reply.send(lambda: _encoded(outcome))

    with reply:
        services.controller.shut_down(asked.node_id, asked.broker_epoch, done)


def _encoded(outcome: list[TopicPartition] | KafkaError) -> bytes:
    from kbroker.metadata.controller.shutdown_messages import encode_remaining

    if isinstance(outcome, KafkaError):
        return encode_remaining(outcome.code, ())
    return encode_remaining(ErrorCode.NONE, outcome)


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    return _encoded(KafkaError(code))
