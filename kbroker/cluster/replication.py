"""Replication in a broker of a cluster: what it fetches from others, who follows what it leads.

Place in the flow: the controller's images. Before one is applied, `before` ends the fetching of
every partition whose leader it changes, so that no word of an earlier leader arrives later; `lead`
gives each replica its leader and the replicas that its high watermark waits for; when the image is
published, `follow` begins to fetch from the new leaders. All of it on the controller's thread, and
so is every look at the in-sync sets; the controller's answer to that comes back to this thread.
It waits for no disk: what a log that is being changed for long is to follow, it follows when that
is over (`in_sync.py`), and fetchers leave it (`fetcher_manager.py`). Logs that fail are looked for
on the thread that watches, which reports them to the controller.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.failures import Failures
from kbroker.handlers.forwarding import CLIENT_ID
from kbroker.log_lines import LogLines, first_few
from kbroker.metadata.controller.image_updates import IN_SYNC_KEY, IN_SYNC_VERSION
from kbroker.metadata.controller.in_sync_messages import errors_of, request_of
from kbroker.peer.address import Address
from kbroker.protocol import messages
from kbroker.protocol.wire import ProtocolError
from kbroker.replica.failing_logs import FailingLogs, Trouble
from kbroker.replica.fetcher import Us
from kbroker.replica.fetcher_manager import FetcherManager, Leader
from kbroker.replica.fetcher_settings import fetcher_settings, leader_links
from kbroker.replica.in_sync import InSyncSets, Outcome
from kbroker.replica.throttled_replicas import RATE as THROTTLED_RATE
from kbroker.replica.throttled_replicas import is_throttled
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kbroker.clock import Clock
    from kbroker.cluster.broker_links import BrokerLinks
    from kbroker.config import BrokerConfig
    from kbroker.metadata.controller import Controller
    from kbroker.metadata.controller.partition_states import InSyncChange
    from kbroker.metadata.image import (
        BrokerImage,
        ClusterImage,
        ImageDelta,
        PartitionImage,
        TopicImage,
    )
    from kbroker.replica._replica import Replica
    from kbroker.replica.fetcher_manager import Loop, Submit
    from kbroker.replica.fetcher_settings import Link
    from kbroker.replica.manager import ReplicaManager
    from kbroker.scheduler import Scheduler

logger: Final = logging.getLogger("kbroker.replica")
lines: Final = LogLines(logger)

# How soon who has caught up may join; Kafka's followers are looked at with each fetch.
LOOK_PERIOD_MS: Final = 100
# How soon the controller is notified of a log that fails.
LOGS_LOOK_PERIOD_MS: Final = 500


class Replication:
    """See the head of this file."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        links: BrokerLinks,
        submit: Submit,
        replicas: Callable[[], ReplicaManager],
        controller: Callable[[], Controller],
        wake: Callable[[Replica], None],
        failures: Failures,
        connect: Callable[[Address], Link] | None = None,
        dice: random.Random | None = None,
        loops: Callable[[], Loop] | None = None,
    ) -> None:
        """`replicas` and `controller` are asked for when there are images to follow; `connect` is
        another way to leaders than sockets, `dice` are for the pauses before one is asked again;
        `loops` makes the loops on which fetchers live, instead of `submit`'s."""
        self._node_id = config.node_id
        self._links = links
        self._replicas = replicas
        self._controller = controller
        self._in_sync = InSyncSets(
            config.node_id,
            self._ask,
            wake,
            clock,
            config["replica.lag.time.max.ms"],
            lambda name: self.fetchers.changes(name),
        )
        self.fetchers = FetcherManager(
            Us(config.node_id, lambda: self._controller().broker_epoch),
            submit,
            connect or leader_links(config, CLIENT_ID),
            lambda name: self._replicas().partition(*name),
            fetcher_settings(config),
            clock,
            dice or random.Random(),
            failures,
            wake,
            self._is_throttled,
            loops,
            lambda logs: self._replicas().keep_starts(logs),
        )
        self.fetchers.throttle.bytes_per_s = config[THROTTLED_RATE]
        self._brokers: Mapping[int, BrokerImage] = {}
        self._followed: dict[TopicPartition, Leader] = {}
        self._touched: dict[str, None] = {}  # topics, in order, since an image was published
        self._look_waits = False  # for its turn on the controller's thread
        self._logs = FailingLogs(config.node_id, clock)
        self._trouble = Trouble()  # as it was reported to the controller

    # --- images, on the controller's thread -------------------------------------------------------

    def lead(self, replica: Replica, partition: PartitionImage) -> None:
        """What the controller says of a partition that is here, to its replica."""
        self._in_sync.lead(replica, partition)

    def before(self, image: ClusterImage, delta: ImageDelta) -> None:
        """This is to be applied."""
        self._in_sync.know(image)
        # By their ids: a topic that was deleted long ago may have left its name to another.
        gone = {topic.topic_id for topic in delta.deleted}
        ended = [
            name for name, leader in self._followed.items() if gone and leader.topic_id in gone
        ]
        for topic in (*delta.created, *delta.changed):
            self._touched[topic.name] = None
            for partition in topic.partitions:
                leader = self._followed.get(name := TopicPartition(topic.name, partition.index))
                stays = self._node_id in partition.replicas
                if leader is not None and not (stays and _is_led_by(partition, leader)):
                    ended.append(name)
        for name in ended:
            self._followed.pop(name, None)
        if ended:
            self.fetchers.remove(ended)
        if gone:
            self._in_sync.forget(gone)

    def follow(self, image: ClusterImage) -> None:
        """This is published."""
        names: Iterable[str] = image.topics if image.brokers is not self._brokers else self._touched
        self._brokers = image.brokers
        changes: dict[TopicPartition, Leader | None] = {}
        for name in names:
            topic = image.topics.get(name)
            if topic is None:
                continue
            for partition in topic.partitions:
                leader = self._leader_of(image, topic, partition)
                key = TopicPartition(name, partition.index)
                if leader != self._followed.get(key):
                    changes[key] = leader
        self._touched.clear()
        for key, leader in changes.items():
            if leader is None:
                del self._followed[key]
            else:
                self._followed[key] = leader
        if changes:
            self.fetchers.follow(changes)

    def _leader_of(
        self, image: ClusterImage, topic: TopicImage, partition: PartitionImage
    ) -> Leader | None:
        """Of a partition that is here, and led by another broker that can be reached."""
        broker = image.brokers.get(partition.leader)
        if broker is None or broker.node_id == self._node_id or broker.port < 0:
            return None
        if self._replicas().partition(topic.name, partition.index) is None:
            return None
        address = Address(broker.host, broker.port)
        return Leader(topic.topic_id, broker.node_id, address, partition.leader_epoch)

    def in_sync_changes(self) -> tuple[int, int]:
        """How often in-sync sets of partitions led here have shrunk, and grown; from any thread."""
        return self._in_sync.shrinks, self._in_sync.expands

    def follow_config(self, _: BrokerConfig, now: BrokerConfig) -> None:
        """Settings were changed while the broker runs."""
        self.fetchers.throttle.bytes_per_s = now[THROTTLED_RATE]
        self.fetchers.resize(now["num.replica.fetchers"])

    def _is_throttled(self, name: TopicPartition) -> bool:
        topic = self._controller().image.topics.get(name.topic)
        return is_throttled(topic, name.partition, self._node_id)

    def stop(self) -> None:
        """On return no log is changed by a fetcher any more."""
        self.fetchers.stop()

    def schedule(self, scheduler: Scheduler) -> None:
        scheduler.schedule("in-sync-replicas", self._look, LOOK_PERIOD_MS)
        scheduler.schedule("failing-logs", self._look_at_logs, LOGS_LOOK_PERIOD_MS)

    # --- logs that fail ---------------------------------------------------------------------------

    def _look_at_logs(self) -> None:
        controller = self._controller()
        trouble = self._logs.look(self._replicas().replicas(), controller.image)
        if trouble == self._trouble:
            return
        if trouble.failing - self._trouble.failing:
            logger.error(
                "others are to lead %s: the logs here cannot be written; make room on the disk or"
                " mend it, and start this broker again for those that are offline",
                first_few([str(name) for name in sorted(trouble.failing)]),
            )
        if trouble.refusing - self._trouble.refusing:
            logger.warning(
                "others are to lead %s, if they have more room: log.dir.min.free.bytes",
                first_few([str(name) for name in sorted(trouble.refusing)]),
            )
        self._trouble = trouble
        controller.logs_fail(trouble.failing, trouble.refusing)

    # --- in-sync sets -----------------------------------------------------------------------------

    def _look(self) -> None:
        if self._look_waits:
            return  # the controller's thread is busy, with thousands of logs or a slow store
        self._look_waits = True
        try:
            self._controller().in_step(self._look_now)
        except BaseException:  # the next one is not to wait for this
            self._look_waits = False
            raise

    def _look_now(self) -> None:
        self._look_waits = False
        self._in_sync.look(self._controller().image.brokers)
        self.fetchers.look()
        self._replicas().reclaim()

    def _ask(self, changes: Sequence[InSyncChange], done: Callable[[Outcome], None]) -> None:
        controller = self._controller()

        def settle(outcome: Outcome) -> None:
            if outcome is not None and any(_is_unknown(each) for each in outcome):
                controller.doubt_registration()
            done(outcome)

        if controller.active:
            controller.alter_in_sync(self._node_id, controller.broker_epoch, changes, settle)
            return
        image = controller.image
        broker = image.brokers.get(image.controller_id)
        if broker is None or broker.node_id == self._node_id:
            settle([KafkaError(ErrorCode.NOT_CONTROLLER) for _ in changes])
            return
        request = request_of(self._node_id, controller.broker_epoch, changes)
        body = request.encode(IN_SYNC_VERSION)

        def answered(answer: bytes | KafkaError) -> None:
            outcome = _outcome(changes, answer)
            controller.in_step(lambda: settle(outcome))

        self._links.forward(broker, IN_SYNC_KEY, IN_SYNC_VERSION, body, answered)


def _is_led_by(partition: PartitionImage, leader: Leader) -> bool:
    return (leader.node_id, leader.leader_epoch) == (partition.leader, partition.leader_epoch)


def _is_unknown(result: object) -> bool:
    """Whether the controller does not know this broker as it is registered."""
    return isinstance(result, KafkaError) and result.code is ErrorCode.STALE_BROKER_EPOCH


def _outcome(changes: Sequence[InSyncChange], answer: bytes | KafkaError) -> Outcome:
    """None: it may have been done."""
    if isinstance(answer, KafkaError):
        if answer.code is ErrorCode.NOT_CONTROLLER:  # it was not sent
            return [answer for _ in changes]
        return None
    try:
        response = messages.alter_partition.Response.decode(answer, IN_SYNC_VERSION)
    except ProtocolError as malformed:
        lines.write(
            logging.WARNING, "in-sync answer", "the controller's answer is malformed: %s", malformed
        )
        return None
    error = ErrorCode.for_code(response.error_code)
    if error:
        return [KafkaError(error) for _ in changes]
    errors = errors_of(response)
    unknown = ErrorCode.UNKNOWN_SERVER_ERROR
    codes = [errors.get((each.topic_id, each.partition), unknown) for each in changes]
    return [KafkaError(code) if code else None for code in codes]
