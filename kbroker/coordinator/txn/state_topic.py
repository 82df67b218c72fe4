"""`__transaction_state`: what the topic is, and its creation.

A transactional id belongs to one partition, found by the hash of the id; the leader of that
partition is the id's coordinator. The topic is created when the first client asks for a
coordinator, which is answered COORDINATOR_NOT_AVAILABLE and asks again. Its number of partitions is
the topic's own from then on, whatever the configuration says later: with another number every id
would have another place.

Where fewer brokers live than `transaction.state.log.replication.factor`, it gets as many replicas
as there are brokers, and a `min.insync.replicas` of no more than that, with a warning.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from kbroker.errors import ErrorCode
from kbroker.log_lines import LogLines
from kbroker.metadata.controller.decisions import NewTopic
from kbroker.metadata.image import TRANSACTIONS_TOPIC

if TYPE_CHECKING:
    from kbroker.coordinator.txn.seams import Settings
    from kbroker.metadata.controller.decisions import TopicResult

logger: Final = logging.getLogger("kbroker.transactions")

REPLICATION_FACTOR: Final = "transaction.state.log.replication.factor"


class Controller(Protocol):
    def create_topics(
        self,
        specs: Sequence[NewTopic],
        validate_only: bool,
        done: Callable[[Sequence[TopicResult]], None],
    ) -> None: ...


def new_topic(config: Settings, brokers: int) -> NewTopic:
    """The topic as its first client gets it, on so many live brokers."""
    factor = max(1, min(config["transaction.state.log.replication.factor"], brokers))
    return NewTopic(
        TRANSACTIONS_TOPIC,
        partitions=config["transaction.state.log.num.partitions"],
        replication_factor=factor,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(min(config["transaction.state.log.min.isr"], factor)),
            "segment.bytes": str(config["transaction.state.log.segment.bytes"]),
            "unclean.leader.election.enable": "false",
        },
    )


class StateTopicCreation:
    """Has the topic created when a client needs it."""

    __slots__ = ("_lines", "_lock", "_under_way")

    def __init__(self) -> None:
        self._lines = LogLines(logger)  # clients ask many times a second until it is there
        self._lock = threading.Lock()
        self._under_way = False

    def ensure(self, controller: Controller, config: Settings, brokers: int) -> None:
        """Returns at once. Several callers cause one creation."""
        with self._lock:
            if self._under_way:
                return
            self._under_way = True
        try:
            if brokers < config[REPLICATION_FACTOR]:
                self._lines.write(
                    logging.WARNING,
                    "few brokers",
                    "%s is created with %d replicas, not with the %d of %s: no more brokers live;"
                    " add replicas by a reassignment when they do",
                    TRANSACTIONS_TOPIC,
                    max(1, brokers),
                    config[REPLICATION_FACTOR],
                    REPLICATION_FACTOR,
                )
            controller.create_topics([new_topic(config, brokers)], False, self._created)
        except BaseException:
            self._end()
            raise

    def _created(self, results: Sequence[TopicResult]) -> None:
        self._end()
        for result in results:
            if result.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self._lines.write(
                    logging.WARNING,
                    f"not created {result.error.name}",
                    "%s cannot be created yet, so no transactional id has a coordinator: %s %s",
                    TRANSACTIONS_TOPIC,
                    result.error.name,
                    result.message or "",
                )

    def _end(self) -> None:
        with self._lock:
            self._under_way = False
