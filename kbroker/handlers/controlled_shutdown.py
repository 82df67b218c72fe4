"""ControlledShutdown (7): another broker is about to stop, and others are to lead what it leads.

Between the brokers of a cluster only (`registry.py`). The controller's thread decides and answers.
Any handler thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError
from kbroker.protocol import messages

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.controlled_shutdown import Request
    from kbroker.types import TopicPartition


def handle(services: Services, call: Call[Request]) -> None:
    table = messages.controlled_shutdown

    def done(outcome: list[TopicPartition] | KafkaError) -> None:
        if isinstance(outcome, KafkaError):
            call.fail(outcome.code)
            return
        remaining = [
            table.RemainingPartition(topic_name=topic, partition_index=partition)
            for topic, partition in outcome
        ]
        call.answer(table.Response(error_code=ErrorCode.NONE, remaining_partitions=remaining))

    services.controller.shut_down(call.message.broker_id, call.message.broker_epoch, done)
