"""The creation of a topic in which a coordinator keeps state, on the brokers that there are.

Where fewer brokers live than the topic is to have replicas, it gets as many replicas as there are
brokers, with a warning. Any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from kbroker.coordinator.runtime.topic_creation import TopicCreation

if TYPE_CHECKING:
    from kbroker.coordinator.runtime.topic_creation import Controller
    from kbroker.metadata.controller.decisions import NewTopic


class Settings(Protocol):
    """The broker's configuration."""

    def __getitem__(self, name: str, /) -> Any: ...


class StateTopicCreation:
    """Has the topic created when a client needs it."""

    __slots__ = ("_creation", "_factor_key", "_new_topic")

    def __init__(
        self,
        logger: logging.Logger,
        without: str,
        new_topic: Callable[[Settings, int], NewTopic],
        factor_key: str,
    ) -> None:
        """`without`: as of TopicCreation. `new_topic`: the topic on so many live brokers.
        `factor_key`: the setting of its replication factor."""
        self._creation: Final = TopicCreation(logger, without)
        self._new_topic: Final = new_topic
        self._factor_key: Final = factor_key

    def ensure(self, controller: Controller, config: Settings, brokers: int) -> None:
        """Returns at once. Several callers cause one creation."""
        self._creation.begin(controller, lambda: self._topic(config, brokers))

    def _topic(self, config: Settings, brokers: int) -> NewTopic:
        topic = self._new_topic(config, brokers)
        if brokers < config[self._factor_key]:
            self._creation.lines.write(
                logging.WARNING,
                "few brokers",
                "%s is created with %d replicas, not with the %d of %s: no more brokers live; add"
                " replicas by a reassignment when they do",
                topic.name,
                max(1, brokers),
                config[self._factor_key],
                self._factor_key,
            )
        return topic
