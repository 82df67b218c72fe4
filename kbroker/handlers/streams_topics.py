"""Creation of the topics that belong to applications of Kafka Streams.

Place in the flow: a heartbeat of a streams group has found repartition topics or changelogs
missing. The handler answers at once that they are, and asks the controller to create them with the
partitions that the group has found; a later heartbeat finds them. A creation that has failed is in
the answers for a while, and is tried again by the next heartbeat.

Names under way are remembered until the controller has answered, so many members cause one
creation. One lock, a leaf, around what is remembered; the controller is called without it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode
from kbroker.log_lines import LogLines

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.coordinator.streams_group.images import InternalTopic
    from kbroker.handlers.auto_topics import Noted
    from kbroker.handlers.mutations import Charge
    from kbroker.handlers.topic_creation import TopicCreator
    from kbroker.metadata.controller.decisions import NewTopic, TopicResult

lines: Final = LogLines(logging.getLogger("kbroker.groups"))

# Names under way, and failures remembered, at once. Full: a member asks again anyway.
CREATIONS_MAX: Final = 1_000
_DONE: Final = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


class StreamsTopics:
    """The names whose creation is under way, and those that could not be created lately."""

    __slots__ = ("_failures", "_lock", "_under_way")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: set[str] = set()
        self._failures: dict[str, tuple[int, str]] = {}  # until when, monotonic ms; why

    def create(
        self,
        creator: TopicCreator,
        topics: Iterable[InternalTopic],
        clock: Clock,
        keep_ms: int,
        noted: Noted | None = None,
        charge: Charge | None = None,
    ) -> None:
        """Have these created; returns at once. Failures are kept for `keep_ms`. `noted` gets what
        becomes of those that are not under way, and `charge` is asked for them."""
        with self._lock:
            room = CREATIONS_MAX - len(self._under_way)
            wanted = [each for each in topics if each.name not in self._under_way][: max(0, room)]
            names = [each.name for each in wanted]
            self._under_way.update(names)
        if not wanted:
            return
        try:
            done = partial(self._created, names, clock, keep_ms, noted)
            creator.create_topics([_new_topic(each) for each in wanted], False, done, charge)
        except BaseException:
            self._forget(names)
            raise

    def failures(self, names: Iterable[str], now_ms: int) -> dict[str, str]:
        """Why some of these could not be created lately."""
        with self._lock:
            found = ((name, self._failures.get(name)) for name in names)
            return {name: each[1] for name, each in found if each is not None and each[0] > now_ms}

    def _created(
        self,
        names: list[str],
        clock: Clock,
        keep_ms: int,
        noted: Noted | None,
        results: Sequence[TopicResult],
    ) -> None:
        now_ms = clock.monotonic_ms()
        failed = [each for each in results if each.error not in _DONE]
        with self._lock:
            self._under_way.difference_update(names)
            for name in names:
                self._failures.pop(name, None)
            if len(self._failures) + len(failed) > CREATIONS_MAX:
                self._failures.clear()
            for each in failed[:CREATIONS_MAX]:
                words = each.message or each.error.name
                self._failures[each.name or ""] = now_ms + keep_ms, words
        if noted is not None:
            noted(results)
        for each in failed:
            lines.write(
                logging.WARNING,
                f"not created {each.error.name}",
                "topic %s of a streams group was not created: %s %s",
                each.name,
                each.error.name,
                each.message or "",
            )

    def _forget(self, names: Iterable[str]) -> None:
        with self._lock:
            self._under_way.difference_update(names)


def _new_topic(topic: InternalTopic) -> NewTopic:
    from kbroker.metadata.controller.decisions import USE_DEFAULT, NewTopic

    return NewTopic(
        topic.name, topic.partitions, topic.replication_factor or USE_DEFAULT,
        configs=dict(topic.configs),
    )  # fmt: skip
