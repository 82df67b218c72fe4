"""Share state of a broker: nothing of it is imported or kept before a share group needs it.

    controller's thread  -> before, follow   the coordinator is made when the image has the state
                                             topic with a replica here
    handlers             -> coordinator, create_topic
    handlers             -> service          the share-partitions that this broker leads
    handlers             -> latest_offsets   for the lag of groups, here or at other brokers
    handlers             -> call_soon        for work that follows from answers
    leaders, groups      -> persister        asks coordinators, here or at other brokers
    leaders              -> dead letters     writes copies to their topics, here or at other brokers

`start` and `stop` come in their steps of the broker's life. A lock is between them and the
controller's thread: what is made after `start` is started at once, after `stop` it is not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kbroker.failures import Failures
from kbroker.limits import TASK_RETRY_MS
from kbroker.metadata.features import SHARE_VERSION
from kbroker.metadata.image import SHARE_STATE_TOPIC, ImageDelta
from kbroker.net._wrapped_request import WrappedRequest
from kbroker.peer.own_login import own_login
from kbroker.server.share_service import ShareServiceOnDemand

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.cluster.broker_links import Submit
    from kbroker.cluster.dead_letter_topics import DeadLetterTopics
    from kbroker.cluster.latest_offsets import LatestOffsets
    from kbroker.cluster.share_state import Parts, ShareStates
    from kbroker.config import BrokerConfig
    from kbroker.coordinator.runtime.state_topic import StateTopicCreation
    from kbroker.coordinator.share.coordinator import ShareCoordinator
    from kbroker.coordinator.share.persister import StatePersister
    from kbroker.engine._hot import HotPath
    from kbroker.engine._shares import HotShares
    from kbroker.errors import ErrorCode
    from kbroker.handlers.services import ColdRequest, Services
    from kbroker.metadata.controller import Controller
    from kbroker.metadata.image import ClusterImage, TopicImage
    from kbroker.own_thread import OwnThread
    from kbroker.purgatory.purgatory import Purgatory
    from kbroker.purgatory.timer import Timer
    from kbroker.replica.manager import ReplicaManager
    from kbroker.scheduler import Scheduler
    from kbroker.security.client_login import ClientLogin
    from kbroker.types import TopicPartition


class OnWorker(Protocol):
    """Has it done by a thread that may wait for the log of this partition. `of_group`: as of
    `LogWorkers.put`."""

    def __call__(
        self, place: TopicPartition, call: Callable[[], object], *, of_group: bool = ...
    ) -> object: ...


class Given(NamedTuple):
    """What the broker has for it; what is called for is there once handlers run."""

    config: Callable[[], BrokerConfig]
    clock: Clock
    timer: Timer
    replicas: Callable[[], ReplicaManager]
    hot: HotPath
    controller: Callable[[], Controller]
    services: Callable[[], Services | None]
    submit: Submit
    scheduler: Scheduler
    on_worker: OnWorker
    waiting: Purgatory  # share fetches


class ShareGroupsOnDemand:
    """See the head of this file."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._node_id = given.config().node_id
        self.failures: Final = Failures("share state")
        self._lock = threading.Lock()
        self._made: ShareStates | None = None
        self._persister: StatePersister | None = None
        self._latest_offsets: LatestOffsets | None = None
        self._shares: HotShares | None = None
        self._is_started = self._is_stopped = self._tries_again = False
        self._creation: StateTopicCreation | None = None
        self.service: Final = ShareServiceOnDemand(
            given.config, given.clock, given.timer, given.hot, self._image,
            lambda: self.persister, self.failures, given.waiting, self._dead_letter_topics,
        )  # fmt: skip

    def _login(self) -> ClientLogin | None:
        return own_login(self._given.config())

    def _image(self) -> ClusterImage:
        return self._given.controller().image

    # --- handlers ---------------------------------------------------------------------------------

    @property
    def coordinator(self) -> ShareCoordinator | None:
        made = self._made
        return None if made is None else made.coordinator

    @property
    def made(self) -> ShareStates | None:
        """None: this broker has coordinated nothing yet."""
        return self._made

    def create_topic(self, controller: Any, config: BrokerConfig, brokers: int) -> None:
        from kbroker.coordinator.share.state_topic import creation

        with self._lock:
            if self._creation is None:
                self._creation = creation()
        self._creation.ensure(controller, config, brokers)

    def _create_topic(self) -> None:
        from kbroker.handlers.topic_creation import topic_creator

        given, services = self._given, self._given.services()
        if services is not None:
            brokers = max(1, len(self._image().brokers))
            self.create_topic(topic_creator(services), given.config(), brokers)

    @property
    def persister(self) -> StatePersister:
        """Made at the first use."""
        with self._lock:
            if self._persister is None:
                self._persister = self._make_persister()
            return self._persister

    @property
    def waiting(self) -> int:
        """Questions to coordinators that are not answered."""
        persister = self._persister
        return 0 if persister is None else persister.waiting

    def on_worker(self, place: TopicPartition, call: Callable[[], object]) -> None:
        """For a step of a group."""
        self._given.on_worker(place, call, of_group=True)

    def _make_persister(self) -> StatePersister:
        from kbroker.cluster.share_coordinators import ShareCoordinators
        from kbroker.coordinator.runtime._shard_table import partition_for
        from kbroker.coordinator.share.persister import StatePersister

        given = self._given
        coordinators = ShareCoordinators(
            self._node_id, self._image, partition_for, lambda: self.coordinator,
            self._create_topic, given.submit, self.failures, login=self._login,
        )  # fmt: skip
        return StatePersister(coordinators, given.clock, given.timer.call_later, self.failures)

    def _dead_letter_topics(self) -> DeadLetterTopics:
        from kbroker.cluster.dead_letter_topics import DeadLetterTopics, TopicsCreation

        given = self._given

        def create(topic: str) -> None:
            from kbroker.handlers.topic_creation import topic_creator

            services = given.services()
            if services is not None:
                creation.begin(topic_creator(services), topic)

        creation = TopicsCreation()
        return DeadLetterTopics(
            self._image, given.config, create, given.submit, self.failures, login=self._login
        )

    def latest_offsets(
        self,
        places: Iterable[TopicPartition],
        done: Callable[[Mapping[TopicPartition, int | ErrorCode]], None],
    ) -> None:
        with self._lock:
            if self._latest_offsets is None:
                from kbroker.cluster.latest_offsets import LatestOffsets

                given = self._given
                self._latest_offsets = LatestOffsets(
                    given.services, given.submit, self.failures, login=self._login
                )
            asked = self._latest_offsets
        asked.ask(places, done)

    @property
    def _hot_shares(self) -> HotShares:
        with self._lock:
            if self._shares is None:
                from kbroker.engine._shares import HotShares

                self._shares = HotShares(self._given.hot)
            return self._shares

    def call_soon(self, call: Callable[[], object]) -> None:
        self._hot_shares.call_soon(lambda _: call())

    def has_left(self, request: ColdRequest) -> bool:
        """False where another broker has forwarded it: that is not known."""
        return isinstance(request, WrappedRequest) and self._hot_shares.has_left(request)

    # --- the controller's thread ------------------------------------------------------------------

    def before(self, delta: ImageDelta) -> None:
        if self._made is not None:
            self._made.before(delta)

    def follow(self, image: ClusterImage, delta: ImageDelta) -> None:
        if self._made is None:
            self._begin(image)
        else:
            self._made.follow(image, delta)

    def _begin(self, image: ClusterImage) -> None:
        """Make the coordinator if the image needs it. A late import or start may fail, for want of
        descriptors, memory or threads: it is tried again, and no topic goes offline for it."""
        topic = image.topic(SHARE_STATE_TOPIC)
        if topic is None or not image.features.level(SHARE_VERSION):
            return
        if not any(self._node_id in each.replicas for each in topic.partitions):
            return
        try:
            self._make(image, topic)
        except Exception as error:
            self.failures.note("beginning to serve share state", error)
            if not self._tries_again:
                self._tries_again = True
                in_step = partial(self._given.controller().in_step, self._try_again)
                self._given.timer.call_later(TASK_RETRY_MS, in_step)

    def _try_again(self) -> None:
        self._tries_again = False
        if self._made is None:
            self._begin(self._image())

    def show(self, image: ClusterImage) -> None:
        """This is the published image now."""
        if self._made is None:
            self._begin(image)  # its feature may have been raised
        if self._made is not None:
            self._made.show(image)
        self.service.show(image)

    def _make(self, image: ClusterImage, topic: TopicImage) -> None:
        from kbroker.cluster.share_state import ShareStates

        made = ShareStates(self._parts(), image)
        # Where it failed before, the topic came with an earlier image.
        made.follow(image, ImageDelta(created=(topic,)))
        with self._lock:
            if self._is_started and not self._is_stopped:
                made.start(self._given.scheduler)
            self._made = made

    def _parts(self) -> Parts:
        from kbroker.cluster.share_state import Parts

        given = self._given
        return Parts(
            given.config,
            given.clock,
            given.timer.call_later,
            lambda call: given.controller().in_step(call),
            lambda topic, index: given.replicas().partition(topic, index),
            given.hot,
            given.on_worker,
            self._delete_records,
            self.failures,
        )

    def _delete_records(self, place: TopicPartition, offset: int) -> None:
        self._given.replicas().delete_records({place: offset})

    # --- the broker's life ------------------------------------------------------------------------

    def start(self) -> None:
        with self._lock:
            self._is_started = True
            if self._made is not None:
                self._made.start(self._given.scheduler)

    def stop(self) -> None:
        self._given.waiting.close()
        with self._lock:
            self._is_stopped = True
            made = self._made
        if made is not None:
            made.stop()  # which waits for a thread, perhaps one that has a callback for us

    @property
    def threads(self) -> Iterator[OwnThread]:
        """Of the loader, if there is one."""
        if self._made is not None:
            yield self._made.loader.thread
