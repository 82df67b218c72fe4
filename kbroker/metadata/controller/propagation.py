"""From a decision that is in the store to the published image.

Place in the flow: the controller thread calls one of these after each write. `apply` makes the
listener (the replica manager) follow first; only then is the image published, as one reference that
any thread may read; and then `show` notifies the units that answer from a copy of it. No other
module publishes. What is decided about leaders and in-sync sets is announced before that: the other
brokers get it while the logs here follow, which on a bad disk may take long (docs/adr/0040).

When `apply` raises for several topics at once, it is not known which of them failed, so each is
applied alone, which idempotence allows; what still fails is left out and reported. Removal is the
exception: a deleted topic is gone for all clients even if its log is not, and is kept in mind here
(and as a tombstone in the store) to be removed before its name is used again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from kbroker.errors import ErrorCode, KafkaError
from kbroker.failures import Failures
from kbroker.metadata.image import (
    NO_LEADER,
    ClusterImage,
    ConfigResource,
    ImageDelta,
    PartitionImage,
    TopicImage,
    delta_between,
)
from kbroker.types import TopicPartition

log = logging.getLogger("kbroker.controller")

# A set of partitions.
Names = Collection[TopicPartition]

# Answers which partitions stay offline, of those that were read in the store.
Apply = Callable[[ClusterImage, ImageDelta], Collection[TopicPartition]]
Show = Callable[[ClusterImage], None]


def ignore_image(image: ClusterImage) -> None:
    """The default of `show` and of `follow`."""


class Propagation:
    """Holds the published image; `image` from any thread, everything else on the controller's."""

    def __init__(
        self,
        apply: Apply,
        show: Show = ignore_image,
        follow: Show = ignore_image,
        failures: Failures | None = None,
        node_id: int = NO_LEADER,
        send: Show = ignore_image,
        removing: Callable[[], Collection[UUID]] = tuple,
        *,
        in_cluster: bool = False,
    ) -> None:
        """`node_id`: the broker whose logs `apply` opens; it leads nothing that did not open.
        `send` sends an image to the other brokers that is announced. `removing` says of which
        deleted topics the logs may still be there: a disk does not answer.

        `show` gets every image right after it has been published, `follow` one whose settings of
        brokers may have changed, before anything else does; neither may raise.
        """
        self._apply = apply
        self._node_id = node_id
        # There a new log that does not open is an offline replica, as at any other broker; of a
        # broker without a cluster it is an error, and the topic is not made.
        self.in_cluster = in_cluster
        self._failures = failures or Failures("controller")
        self._follow = follow
        self._show = show
        self._send = send
        self._image = ClusterImage()
        self._announced: ClusterImage | None = None
        self._version = self._image.version  # the last one that was announced or published
        self._unremoved: dict[UUID, TopicImage] = {}  # several may have had one name
        self._removing = removing
        # Topics that the store could not be asked for: what is known of them may be old.
        self.unreadable: frozenset[str] = frozenset()
        self._offline: set[TopicPartition] = set()
        # Of those and of others that were, what the store said of the ones that this broker leads.
        self._unled: dict[TopicPartition, PartitionImage] = {}
        # Of logs that are open here: those that this broker should not lead. Set by any thread,
        # whole.
        self.failing: frozenset[TopicPartition] = frozenset()
        # And those that refuse producers, for want of room: others are to lead, if they can.
        self.refusing: frozenset[TopicPartition] = frozenset()

    @property
    def image(self) -> ClusterImage:
        return self._image

    @property
    def offline(self) -> frozenset[TopicPartition]:
        """The partitions whose logs did not open here when they were read in the store."""
        return frozenset(self._offline)

    @property
    def unusable(self) -> frozenset[TopicPartition]:
        """The partitions that are not to be led here: offline, or failing."""
        return self.failing | self._offline

    def logs_fail(self, failing: Names, refusing: Names) -> None:
        """These do now, and no others; from any thread."""
        self.failing, self.refusing = frozenset(failing), frozenset(refusing)

    def publish(self, image: ClusterImage) -> None:
        """Make this the image, under the next version, or the one under which it was announced."""
        self._image = self._next(image)
        self._version, self._announced = self._image.version, None
        self._show(self._image)

    def follow_settings(self, image: ClusterImage) -> None:
        """Be what the settings of this image say, ahead of the rest of it."""
        self._follow(self._next(image))

    def announce(self, image: ClusterImage) -> ClusterImage:
        """Send this to the other brokers, under the next version, before it is followed here. What
        comes of that, if it is another image, has a version of its own."""
        self._announced = image = image.at_version(self._version + 1)
        self._version = image.version
        self._send(image)
        return image

    def _next(self, image: ClusterImage) -> ClusterImage:
        """As it will be published."""
        return image if image is self._announced else image.at_version(self._version + 1)

    def check_readable(self, topic: str) -> None:
        """KafkaError where what is known of a topic may be older than the store."""
        if topic in self.unreadable:
            message = f"the metadata of topic '{topic}' cannot be read, see the controller's log"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)

    def create(self, topics: Sequence[TopicImage]) -> dict[str, KafkaError]:
        """Open and publish new topics; those that could not be opened, with the reason."""
        return self._one_by_one(
            topics, lambda some: self._made(some, ImageDelta(created=tuple(some)))
        )

    def change(self, topics: Sequence[TopicImage]) -> dict[str, KafkaError]:
        """Open and publish partitions that were added; topics where one could not be opened."""
        return self._one_by_one(
            topics, lambda some: self._made(some, ImageDelta(changed=tuple(some)))
        )

    def _made(self, topics: Sequence[TopicImage], delta: ImageDelta) -> ImageDelta:
        if not self.in_cluster:
            return delta
        image = self._image
        names = (TopicPartition(each.name, it.index) for each in topics for it in each.partitions)
        new = frozenset(name for name in names if image.partition(*name) is None)
        return replace(delta, from_store=True, only=new, new=new)

    def as_stored(self, names: Iterable[TopicPartition]) -> list[PartitionImage]:
        """What the store says of those of these partitions that this broker should lead and cannot:
        they are published without a leader, in the epoch in which it leads."""
        stored = {name: self._unled[name] for name in names if name in self._unled}
        return [
            state
            for name, state in stored.items()
            if replace(state, leader=NO_LEADER) == self._image.partition(*name)
        ]

    def reconfigure(self, topics: Sequence[TopicImage]) -> dict[str, KafkaError]:
        """Apply and publish new configurations; those that could not be applied."""
        return self._one_by_one(topics, lambda some: ImageDelta(reconfigured=tuple(some)))

    def configure(self, changed: Mapping[ConfigResource, Mapping[str, str]]) -> None:
        """Follow and publish new settings of resources that are not topics."""
        image = self._image.with_configs(changed)
        self._follow(self._next(image))
        self.publish(image)

    def delete(self, topics: Sequence[TopicImage]) -> list[TopicImage]:
        """Remove and unpublish; the topics that are removed for good."""
        names = {
            topic.name
            for topic in topics
            if self._image.topic_by_id(topic.topic_id) is not None  # not a namesake's
        }
        image = self._image.without_topics(names)
        removed = self._remove(image, topics)
        self._offline = {each for each in self._offline if each.topic not in names}
        self._unled = {each: it for each, it in self._unled.items() if each.topic not in names}
        self.publish(image)
        return removed

    def lead_nothing(self) -> None:
        """Publish no leader for this broker's partitions: another may lead them by now."""
        self._unled.clear()
        led = [each for each in self._image.partitions() if each.leader == self._node_id]
        if led:
            image = self._image.with_partitions([replace(each, leader=NO_LEADER) for each in led])
            changed = delta_between(self._image, image).changed
            self.catch_up(image, ImageDelta(changed=changed, from_store=True))

    def come_online(self, names: Collection[TopicPartition]) -> list[TopicPartition]:
        """Logs that were not ready when their partitions were applied are now: these are applied
        once more. Those of them that are not offline then; their logs may be open before, when
        something else had their topics applied.

        What the store says of their leader holds again, unless it has said something else since.
        """
        image = self._image
        known = {name for name in names if image.partition(*name) is not None}
        if not known:
            return []
        led: list[PartitionImage] = []
        for name in known:
            was = self._unled.pop(name, None)
            if was is not None and replace(was, leader=NO_LEADER) == image.partition(*name):
                led.append(was)
        image = image.with_partitions(led)
        topics = {name.topic: image.topics[name.topic] for name in known}
        changed = tuple(topics.values())
        self.catch_up(image, ImageDelta(changed=changed, from_store=True, only=frozenset(known)))
        return sorted(known - self._offline)

    def unremoved(self, names: Iterable[str] | None = None) -> list[TopicImage]:
        """Deleted topics, of these names or all, whose logs could not be removed yet."""
        wanted = None if names is None else frozenset(names)
        return [it for it in self._unremoved.values() if wanted is None or it.name in wanted]

    def catch_up(self, image: ClusterImage, delta: ImageDelta) -> list[TopicImage]:
        """Follow an image read from the store; of `delta.deleted`, those removed for good.

        Nothing can be taken back here: a partition whose log does not open has no leader, and
        nor has a topic that fails in another way.
        """
        self.follow_settings(image)
        removed = self._remove(image, delta.deleted)
        self._note_offline(delta.deleted, ())
        delta = replace(delta, deleted=())
        try:
            offline = self._call(image, delta)
        except Exception as error:
            self._failures.note("applying the whole image", error)
            log.error("applying the whole image failed, trying topic by topic")
        else:
            self._note_offline(delta.created + delta.changed, offline)
            self.publish(self._without_leaders(image, offline))
            return removed
        for topic in (*delta.created, *delta.changed):
            try:
                one = ImageDelta(created=(topic,), from_store=True, new=delta.new)
                offline = self._call(image, one)
            except Exception as error:
                self._failures.note("opening a topic", error)
                log.error("topic %s cannot be opened and has no leader: %s", topic.name, error)
                offline = [TopicPartition(topic.name, each.index) for each in topic.partitions]
            self._note_offline([topic], offline)
            image = self._without_leaders(image, offline)
        for topic in delta.reconfigured:
            try:
                self._call(image, ImageDelta(reconfigured=(topic,)))
            except Exception as error:
                self._failures.note("applying a topic's configuration", error)
                log.error("the configuration of topic %s was not applied: %s", topic.name, error)
        self.publish(image)
        return removed

    def _without_leaders(
        self, image: ClusterImage, offline: Collection[TopicPartition]
    ) -> ClusterImage:
        """This image, without a leader where this broker should lead and cannot, until the store
        is read again or the controller says otherwise."""
        named = ((name, image.topics[name.topic].partitions[name.partition]) for name in offline)
        led = {name: each for name, each in named if each.leader == self._node_id}
        self._unled.update(led)
        return image.with_partitions([replace(each, leader=NO_LEADER) for each in led.values()])

    def _note_offline(
        self, tried: Iterable[TopicImage], offline: Collection[TopicPartition]
    ) -> None:
        names = {topic.name for topic in tried}
        self._offline = {each for each in self._offline if each.topic not in names} | {*offline}

    def _one_by_one(
        self, topics: Sequence[TopicImage], delta_of: Callable[[Sequence[TopicImage]], ImageDelta]
    ) -> dict[str, KafkaError]:
        """All at once if that works, else each alone; the failures by name."""
        failures: dict[str, KafkaError] = {}
        image, delta = self._image.with_topics(topics), delta_of(topics)
        try:
            offline = self._call(image, delta)
        except Exception as error:
            if len(topics) == 1 and delta.new and isinstance(error, KafkaError | OSError):
                log.error("new logs of topic %s are offline here: %s", topics[0].name, error)
                self._publish_made(image, topics, self._not_open(image, topics[0], delta))
                return failures
            if len(topics) == 1:
                if not isinstance(error, KafkaError | OSError):
                    self._failures.counted()
                return {topics[0].name: _reason(topics[0], error)}
        else:
            self._publish_made(image, topics, offline)
            return failures
        for topic in topics:
            failures.update(self._one_by_one([topic], delta_of))
        return failures

    def _publish_made(
        self, image: ClusterImage, topics: Sequence[TopicImage], offline: Collection[TopicPartition]
    ) -> None:
        self._note_offline(topics, offline)
        self.publish(self._without_leaders(image, offline))

    def _not_open(
        self, image: ClusterImage, topic: TopicImage, delta: ImageDelta
    ) -> list[TopicPartition]:
        """What is offline here of a topic of which nothing that is new could be opened."""
        before = {name for name in self._offline if name.topic == topic.name}
        new = [name for name in delta.new if name.topic == topic.name]
        named = ((name, image.partition(*name)) for name in new)
        return [*before, *(name for name, it in named if it and self._node_id in it.replicas)]

    def _remove(self, image: ClusterImage, topics: Sequence[TopicImage]) -> list[TopicImage]:
        removed: list[TopicImage] = []
        if not topics:
            return removed
        for some in [topics] if len(topics) < 2 else [topics, *([topic] for topic in topics)]:
            try:
                self._call(image, ImageDelta(deleted=tuple(some)))
            except Exception as error:
                self._failures.note("removing logs", error)
                log.error("removing the logs of %s failed: %s", [each.name for each in some], error)
                continue
            removed.extend(some)
            if len(removed) == len(topics):
                break
        late = self._removing()
        removed = [topic for topic in removed if topic.topic_id not in late]
        self._unremoved |= {topic.topic_id: topic for topic in topics}
        for topic in removed:
            self._unremoved.pop(topic.topic_id, None)
        return removed

    def _call(self, image: ClusterImage, delta: ImageDelta) -> Collection[TopicPartition]:
        return self._apply(self._next(image), delta)


def _reason(topic: TopicImage, error: Exception) -> KafkaError:
    log.error("topic %s could not be applied", topic.name, exc_info=error)
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, OSError):
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"The log of topic '{topic.name}' cannot be opened: {error.strerror or error}",
        )
    return KafkaError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"The log of topic '{topic.name}' cannot be opened; see the broker's log.",
    )
