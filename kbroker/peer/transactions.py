"""Transactions from outside: list and describe transactional ids, and partitions' producers.

Every broker is asked for the ids that it coordinates, so that no coordinator has to be found first:
looking for one would create the state topic where there is none. Owner: the client's thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer import transaction_messages as messages
from kbroker.peer.transaction_messages import (
    DescribedProducers,
    DescribedTransaction,
    Filter,
    ListedTransaction,
)
from kbroker.types import ApiKey, TopicPartition

if TYPE_CHECKING:
    from kbroker.peer.client import Client

STATE_TOPIC: Final = "__transaction_state"
_PREPARED: Final = ("PrepareCommit", "PrepareAbort")
ONGOING: Final = "Ongoing"
# In these a producer may have data that no marker has ended.
OPEN_STATES: Final = (ONGOING, *_PREPARED)
ALL: Final = Filter()


class Listed(NamedTuple):
    """A transactional id and the broker that coordinates it."""

    coordinator: int
    transaction: ListedTransaction


class Described(NamedTuple):
    coordinator: int
    transaction: DescribedTransaction


class Transactions:
    """What may be asked about the transactions of a client's cluster."""

    def __init__(self, client: Client) -> None:
        self._cluster: Final = client.cluster

    def list_transactions(self, wanted: Filter = ALL) -> list[Listed]:
        """The ids of every broker; a broker that still loads is waited for."""
        found = self._cluster.listed_everywhere(
            ApiKey.LIST_TRANSACTIONS,
            lambda version: messages.encode_list_transactions(version, wanted),
            messages.decode_list_transactions,
        )
        listed = [Listed(*each) for each in found]
        return sorted(listed, key=lambda each: each.transaction.transactional_id)

    def describe(self, transactional_ids: Sequence[str]) -> dict[str, Described]:
        """By id. One that does not exist has the error TRANSACTIONAL_ID_NOT_FOUND."""
        if not transactional_ids:
            return {}

        def attempt() -> dict[str, Described]:
            answers = self._cluster.everywhere(
                ApiKey.DESCRIBE_TRANSACTIONS,
                lambda version: messages.encode_describe_transactions(version, transactional_ids),
                messages.decode_describe_transactions,
            )
            found: dict[str, Described] = {}
            refusal: KafkaError | None = None
            for node_id, described in answers.items():
                if isinstance(described, KafkaError):
                    refusal = described
                    continue
                for each in described:
                    if each.error is ErrorCode.NOT_COORDINATOR:
                        continue
                    if each.error.retriable:
                        refusal = KafkaError(each.error, each.transactional_id)
                    else:
                        found[each.transactional_id] = Described(node_id, each)
            lacking = [each for each in transactional_ids if each not in found]
            if lacking and self._has_state_topic():
                raise refusal or KafkaError(ErrorCode.NOT_COORDINATOR, lacking[0])
            return found | {each: _unknown(each) for each in lacking}

        return self._cluster.retrying(attempt)

    def _has_state_topic(self) -> bool:
        topic = self._cluster.metadata([STATE_TOPIC]).topics.get(STATE_TOPIC)
        return topic is not None and topic.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, DescribedProducers]:
        """The producers of each partition, as its leader remembers them. A partition without a
        leader raises when the client's time is over."""
        return self._cluster.until_answered(dict.fromkeys(partitions), self.producers_now)

    def producers_now(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, DescribedProducers]:
        """The same, asked once: a partition whose leader does not answer is left out."""
        asked: dict[TopicPartition, Any] = dict.fromkeys(partitions)
        return self._cluster.ask_leaders(
            asked,
            ApiKey.DESCRIBE_PRODUCERS,
            messages.encode_describe_producers,
            messages.decode_describe_producers,
        )


def _unknown(transactional_id: str) -> Described:
    error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    none = messages.NO_TRANSACTION
    return Described(-1, DescribedTransaction(error, transactional_id, "", 0, none, -1, -1, ()))
