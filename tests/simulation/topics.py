"""Topics that operators create and delete while faults happen, beside those that clients use.

The rules: a broker removes the logs of a topic once the store has the deletion, and not before. At
the end all brokers have the topics that exist, and no other. The outcome of a request that is
answered with an error is unknown, so each topic has a name of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode
from kbroker.metadata.controller import NewTopic, TopicResult, records
from kbroker.metadata.store.base import NoNodeError

if TYPE_CHECKING:
    from kbroker.metadata.image import TopicImage
    from tests.simulation.broker import Running
    from tests.simulation.cluster import Cluster


class Topics:
    """See the head of this file."""

    def __init__(self, cluster: Cluster, replicas: tuple[int, ...]) -> None:
        self._cluster = cluster
        self._replicas = replicas
        self._last = 0
        self._made: list[str] = []

    def make(self) -> None:
        self._last += 1
        name = f"d{self._last}"

        def done(results: list[TopicResult]) -> None:
            if results[0].error is ErrorCode.NONE:
                self._made.append(name)

        topic = NewTopic(name, assignments={0: self._replicas})
        for running in self._cluster.controllers():
            running.controller.create_topics([topic], False, done)

    def delete(self) -> None:
        """The one that has been there longest."""
        if self._made:
            name = self._made.pop(0)
            for running in self._cluster.controllers():
                running.controller.delete_topics([name], lambda results: None)

    def removed(self, running: Running, topic: TopicImage) -> None:
        """A broker has removed its logs."""
        path = records.topic_path(topic.name)
        try:
            node = self._cluster.ensemble.tree.node(path)
        except NoNodeError:
            return
        if records.decode_topic(path, node.data).topic_id == topic.topic_id:
            detail = f"those of {topic.name} at broker {running.node_id}"
            self._cluster.safety.fail("logs go with their topic", detail)

    def unsettled(self) -> str:
        """A broker whose topics are not those of the store; empty: none."""
        there = {*self._cluster.ensemble.tree.node(records.TOPICS).children}
        for running in self._cluster.all_running():
            if {*running.controller.image.topics} != there:
                return f"broker {running.node_id} does not know which topics exist"
        return ""
