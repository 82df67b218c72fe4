"""What watches the transactions that are open in this broker's partitions, put together.

Imported when the image has the state topic: before that no producer has a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kbroker.cluster.open_transactions import OpenTransactions
from kbroker.cluster.transaction_inquiry import TransactionInquiry
from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.image import OFFSETS_TOPIC
from kbroker.peer.own_login import own_login
from kbroker.replica._open_transactions import abort, open_transactions
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.coordinator.txn.coordinator import TransactionCoordinator
    from kbroker.handlers.services import Services
    from kbroker.log.engine._results import MarkerAppended
    from kbroker.replica._open_transactions import OpenTransaction
    from kbroker.replica._replica import Replica
    from kbroker.server.transactions import Given


def watched(
    given: Given, own: Callable[[], TransactionCoordinator | None], services: Callable[[], Services]
) -> OpenTransactions:
    """`own`: this broker's coordinator, if it has one."""
    node_id = given.config().node_id

    def led() -> Iterator[tuple[TopicPartition, Replica]]:
        for topic in given.controller().image.topics.values():
            for partition in topic.partitions:
                if partition.leader == node_id:
                    replica = given.replica_of(topic.name, partition.index)
                    if replica is not None:
                        yield TopicPartition(topic.name, partition.index), replica

    def end(name: TopicPartition, transaction: OpenTransaction) -> MarkerAppended:
        replica = given.replica_of(*name)
        if replica is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        appended = abort(replica, transaction, given.clock.wall_ms())
        if appended.error is ErrorCode.NONE:
            its = services()
            if name.topic == OFFSETS_TOPIC:
                its.marker_written(name.partition, transaction.producer_id, False, appended.offset)
            its.wake(replica)
        return appended

    inquiry = TransactionInquiry(
        node_id, lambda: given.controller().image, partition_for, own, given.submit,
        login=lambda: own_login(given.config()),
    )  # fmt: skip
    return OpenTransactions(given.config, given.clock, led, open_transactions, inquiry.ask, end)
