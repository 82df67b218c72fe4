"""The creation of a coordinator's topic when its first client needs it.

Clients are answered COORDINATOR_NOT_AVAILABLE and ask again, many times a second, until it is
there: several of them cause one creation, and few lines. Lock: one flag's, a leaf. Any thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from kbroker.errors import ErrorCode
from kbroker.log_lines import LogLines

if TYPE_CHECKING:
    from kbroker.metadata.controller.decisions import NewTopic, TopicResult


class Controller(Protocol):
    def create_topics(
        self,
        specs: Sequence[NewTopic],
        validate_only: bool,
        done: Callable[[Sequence[TopicResult]], None],
    ) -> None: ...


class TopicCreation:
    """See the head of this file."""

    __slots__ = ("_lock", "_under_way", "_without", "lines")

    def __init__(self, logger: logging.Logger, without: str) -> None:
        """`without`: the line's words about what does not work until the topic is there, with %s
        for the error."""
        self.lines = LogLines(logger)
        self._without = without
        self._lock = threading.Lock()
        self._under_way = False

    def begin(self, controller: Controller, topic: Callable[[], NewTopic]) -> None:
        """Returns at once. `topic` describes the topic; it is not called while one is created."""
        with self._lock:
            if self._under_way:
                return
            self._under_way = True
        try:
            controller.create_topics([topic()], False, self._created)
        except BaseException:
            self._end()
            raise

    def _created(self, results: Sequence[TopicResult]) -> None:
        self._end()
        for result in results:
            if result.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self.lines.write(
                    logging.WARNING,
                    f"not created {result.error.name}",
                    self._without,
                    f"{result.error.name} {result.message or ''}",
                )

    def _end(self) -> None:
        with self._lock:
            self._under_way = False
