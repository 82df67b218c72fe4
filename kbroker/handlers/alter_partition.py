"""AlterPartition (56): another broker wants other in-sync sets for partitions that it leads.

Between the brokers of a cluster only (`registry.py`). The controller's thread decides and answers.
Any handler thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbroker.handlers.services import ColdRequest, Services
    from kbroker.metadata.controller.in_sync_messages import InSyncAnswer
    from kbroker.metadata.controller.partition_states import InSyncChange
    from kbroker.metadata.image import PartitionImage


def handle(services: Services, request: ColdRequest) -> None:
    from kbroker.metadata.controller.in_sync_messages import decode_asked  # a cluster's

    asked = decode_asked(request.body)
    reply = Reply(request, failure)

    def done(results: list[PartitionImage | KafkaError]) -> None:
        reply.send(lambda: _encoded(asked.changes, results))

    with reply:
        services.controller.alter_in_sync(asked.leader, asked.broker_epoch, asked.changes, done)


def _encoded(
    changes: Sequence[InSyncChange], results: Sequence[PartitionImage | KafkaError]
) -> bytes:
    from kbroker.metadata.controller.in_sync_messages import encode_answers

    answers = [answer_of(*each) for each in zip(changes, results, strict=True)]
    # An error of the request is every partition's: the broker is not the controller, or not known.
    return encode_answers(ErrorCode.NONE, answers)


def answer_of(change: InSyncChange, result: PartitionImage | KafkaError) -> InSyncAnswer:
    from kbroker.metadata.controller.in_sync_messages import InSyncAnswer

    if isinstance(result, KafkaError):
        return InSyncAnswer(change.topic_id, change.partition, result.code)
    return InSyncAnswer(
        change.topic_id,
        change.partition,
        ErrorCode.NONE,
        result.leader,
        result.leader_epoch,
        result.isr,
        result.partition_epoch,
    )


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    from kbroker.metadata.controller.in_sync_messages import encode_answers

    return encode_answers(code, ())
