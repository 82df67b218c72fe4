"""AlterPartition (56): another broker wants other in-sync sets for partitions that it leads.

Between the brokers of a cluster only (`registry.py`). The controller's thread decides and answers.
Any handler thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.errors import KafkaError
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.metadata.image import PartitionImage
    from kbroker.protocol.messages.alter_partition import Request


def handle(services: Services, call: Call[Request]) -> None:
    from kbroker.metadata.controller.in_sync_messages import (  # a cluster's
        changes_of,
        response_of,
    )

    request = call.message
    changes = changes_of(request)

    def done(results: list[PartitionImage | KafkaError]) -> None:
        call.answer(response_of(changes, results))

    services.controller.alter_in_sync(request.broker_id, request.broker_epoch, changes, done)
