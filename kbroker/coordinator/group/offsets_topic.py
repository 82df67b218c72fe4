"""`__consumer_offsets`: what the topic is, which partition a group has, and its creation.

A group belongs to one partition, found by the hash of its id; the leader of that partition is the
group's coordinator. The topic appears when the first client asks for a coordinator, which
gets COORDINATOR_NOT_AVAILABLE and tries again, as with Apache Kafka. While fewer brokers live
than it shall have replicas it is not made, and every client gets that answer (KIP-115): with fewer,
the commits of groups would go with one broker for good. Its number of partitions is the topic's own
from then on, whatever the configuration says later.

Pure but for `OffsetsTopicCreation`, which holds one flag under a leaf lock and may be called from
any thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from kbroker.errors import ErrorCode
from kbroker.log_lines import LogLines
from kbroker.metadata.controller.decisions import NewTopic
from kbroker.metadata.image import OFFSETS_TOPIC

if TYPE_CHECKING:
    from kbroker.metadata.controller.decisions import TopicResult

logger: Final = logging.getLogger("kbroker.groups")


class Controller(Protocol):
    def create_topics(
        self,
        specs: Sequence[NewTopic],
        validate_only: bool,
        done: Callable[[Sequence[TopicResult]], None],
    ) -> None: ...


class Settings(Protocol):
    """The broker's configuration, of which the keys offsets.topic.*."""

    def __getitem__(self, name: str, /) -> Any: ...


def new_topic(config: Settings) -> NewTopic:
    """The topic as its first client gets it."""
    return NewTopic(
        OFFSETS_TOPIC,
        partitions=config["offsets.topic.num.partitions"],
        replication_factor=config["offsets.topic.replication.factor"],
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config["offsets.topic.segment.bytes"]),
        },
    )


class OffsetsTopicCreation:
    """Has the topic made when a group needs it."""

    __slots__ = ("_lines", "_lock", "_under_way")

    def __init__(self) -> None:
        self._lines = LogLines(logger)  # clients ask many times a second until it is there
        self._lock = threading.Lock()
        self._under_way = False

    def ensure(self, controller: Controller, config: Settings) -> None:
        """Returns at once. Several callers cause one creation."""
        with self._lock:
            if self._under_way:
                return
            self._under_way = True
        try:
            controller.create_topics([new_topic(config)], False, self._created)
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
                    "%s cannot be created yet, so no group has a coordinator: %s %s; it needs as"
                    " many brokers as offsets.topic.replication.factor says",
                    OFFSETS_TOPIC,
                    result.error.name,
                    result.message or "",
                )

    def _end(self) -> None:
        with self._lock:
            self._under_way = False
