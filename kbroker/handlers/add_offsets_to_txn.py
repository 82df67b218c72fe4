"""AddOffsetsToTxn (25): the partition of a group's offsets goes into a transaction.

Any handler thread; the answer comes when it is in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.coordinator.txn.image import Pair
from kbroker.errors import ErrorCode
from kbroker.handlers.transactions import coordinator_of, fencing_error, remembering
from kbroker.metadata.image import OFFSETS_TOPIC
from kbroker.protocol import messages
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.add_offsets_to_txn import Request

_FENCED_SINCE: Final = 2
_CLIENT_VERSION: Final = 0


def handle(services: Services, call: Call[Request]) -> None:
    request = call.message
    topic = services.controller.image.topic(OFFSETS_TOPIC)
    count = services.config["offsets.topic.num.partitions"]
    if topic is not None:
        count = len(topic.partitions)
    place = TopicPartition(OFFSETS_TOPIC, partition_for(request.group_id, count))

    def answer(code: ErrorCode) -> None:
        code = fencing_error(code, call.version, _FENCED_SINCE)
        call.answer(messages.add_offsets_to_txn.Response(error_code=code))

    coordinator = coordinator_of(services)
    coordinator.add_partitions(
        request.transactional_id,
        Pair(request.producer_id, request.producer_epoch),
        frozenset({place}),
        _CLIENT_VERSION,
        remembering(coordinator, request.transactional_id, call, answer),
    )
