"""MetadataPublisher: keeps the C answers to Metadata in step with the published image.

Place in the flow: the controller publishes an image as one reference, and then calls `show` with
it, on its own thread, before it answers the request for the change. So Metadata from C has images
that Python's handlers see already, a moment later at most, never one that they do not: a client
that got the answer for a topic finds it everywhere.

`show` compares with the image before, topic by topic, by identity: an image shares the topics that
did not change. Long work is cut up for the GIL: the comparison is plain Python, and partitions
go over in steps. If anything fails, the C view is taken away and Python answers until the next
image: slower, never wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kbroker.replica._topic_table import ViewRow

if TYPE_CHECKING:
    from kbroker.metadata.image import ClusterImage, TopicImage
    from kbroker.replica._topic_table import TopicTable

Changed = Callable[[Sequence["TopicImage"], Sequence[str]], object]

logger: Final = logging.getLogger("kbroker.replica")

# Partitions handed to C in one go: about a tenth of a millisecond.
PARTITIONS_PER_STEP: Final = 500


class MetadataPublisher:
    """The one who fills a TopicTable's Metadata side; on the controller's thread."""

    def __init__(self, table: TopicTable, listeners: Sequence[str] = ("PLAINTEXT",)) -> None:
        """`listeners`: names of this broker's, as its server counts them."""
        self._table = table
        self._listeners = tuple(listeners)
        self._topics: Mapping[str, TopicImage] = {}
        # Called with the topics whose partitions have changed, and the names of those removed.
        self.changed: Changed = lambda changed, removed: None

    def show(self, image: ClusterImage) -> None:
        """Have Metadata show this image; never raises."""
        try:
            self._show(image)
        except Exception:
            logger.exception("Metadata is answered by Python until the next change")
            self._topics = {}
            self._table.hide()
        else:
            self._topics = image.topics

    def _show(self, image: ClusterImage) -> None:
        before, after = self._topics, image.topics
        removed = [name for name in before if name not in after]
        touched = [topic for name, topic in after.items() if before.get(name) is not topic]
        fresh = [topic for topic in touched if _looks_new(before.get(topic.name), topic)]
        fresh.sort(key=lambda topic: topic.name)
        brokers = [
            (node_id, [broker.address_on(name) for name in self._listeners], broker.rack)
            for node_id, broker in sorted(image.brokers.items())
        ]
        self._table.show([_row(topic) for topic in fresh], removed, brokers, image.cluster_id)
        try:
            self.changed(fresh, removed)
        except Exception:
            logger.exception("what is wrong with partitions is not known until they change again")


def _looks_new(known: TopicImage | None, topic: TopicImage) -> bool:
    """Whether Metadata would show anything else than before; it shows no configuration."""
    return (
        known is None
        or known.partitions is not topic.partitions
        or known.topic_id != topic.topic_id
    )


def _row(topic: TopicImage) -> ViewRow:
    partitions = topic.partitions
    row = ViewRow(topic.name, topic.topic_id.bytes, topic.internal, len(partitions))
    for begin in range(0, len(partitions), PARTITIONS_PER_STEP):
        row.fill(partitions[begin : begin + PARTITIONS_PER_STEP])
    return row
