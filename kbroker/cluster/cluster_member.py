"""The parts of a broker that it has in a cluster alone.

    links           the way to the other brokers
    replication     what it fetches from them, who follows what it leads
    shutdown        before it stops, others lead what it leads
    rebalance       leadership goes back to the preferred replicas
    first image     no client is answered, and it is not ready, before it has the cluster's metadata
    repair          damage that the scrub finds is fetched from the other replicas
    watch           a thread that touches no disk: who is in sync, logs that fail, an event of the
                    controller that takes too long

Imported where `zookeeper.connect` is set. `server/broker.py` builds one and says in which step of
the start and the stop each of its methods has its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from kbroker.cluster.agreed_settings import warn_of_differences
from kbroker.cluster.broker_links import BrokerLinks
from kbroker.cluster.controlled_shutdown import ControlledShutdown
from kbroker.cluster.first_image import FirstImage
from kbroker.cluster.leader_rebalance import LeaderRebalance
from kbroker.cluster.replication import Replication
from kbroker.errors import MetadataStoreError, UserError
from kbroker.metadata.controller.office_watch import OFFICE_LOOK_MS, OfficeWatch
from kbroker.metadata.image import NO_CONTROLLER
from kbroker.peer.loop_on_demand import LoopOnDemand
from kbroker.peer.own_login import own_login
from kbroker.scheduler import Scheduler

if TYPE_CHECKING:
    from uuid import UUID

    from kbroker.clock import Clock
    from kbroker.config import BrokerConfig
    from kbroker.failures import Failures
    from kbroker.log.log_lanes import LogLanes
    from kbroker.log.upkeep.scrubber import Repair
    from kbroker.metadata.controller import Controller
    from kbroker.metadata.image import ClusterImage
    from kbroker.metadata.store.base import MetadataStore
    from kbroker.own_thread import OwnThread
    from kbroker.purgatory.timer import CallLater
    from kbroker.replica._replica import Replica
    from kbroker.replica.fetcher_manager import Submit
    from kbroker.replica.manager import ReplicaManager
    from kbroker.types import TopicPartition

WAIT_KEY: Final = "initial.broker.registration.timeout.ms"
EVENT_MAX_KEY: Final = "controller.event.max.ms"
# How soon what a new leader has not on the disk is flushed, where nothing is appended to it.
FLUSH_LOOK_MS: Final = 500


class ClusterMember:
    """See the head of this file."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        submit: Submit,
        call_later: CallLater,
        logs: LogLanes,
        replicas: Callable[[], ReplicaManager],
        controller: Callable[[], Controller],
        wake: Callable[[Replica], None],
        failures: Failures,
    ) -> None:
        """`replicas` and `controller` are asked for when there are images to follow."""
        self._config = config
        self._clock = clock
        self._logs = logs
        self._replicas = replicas
        self._looked_for_strays = False
        self._controller = controller
        self.links = BrokerLinks(
            submit, call_later, lambda: controller().image.controller_id, failures,
            lambda: own_login(config),
        )  # fmt: skip
        self._loops: list[LoopOnDemand] = []
        self.replication = Replication(
            config, clock, self.links, submit, replicas, controller, wake, failures,
            loops=self._fetcher_loop,
        )  # fmt: skip
        self._watch = Scheduler(clock, "kbroker-watch")
        self.first_image = FirstImage(failures, config.listeners.inter_broker_name)
        self.shutdown = ControlledShutdown(config, clock, self.links, controller)
        self._rebalance = LeaderRebalance(controller)

    def give_up_start(self) -> None:
        """It waits for nothing any more. Takes no lock: for signal handlers."""
        self.first_image.given_up = True
        with suppress(UserError):  # the controller is not there yet
            self._controller().start_given_up = True

    def schedule(self, scheduler: Scheduler) -> None:
        """What is looked at every so often; the `scheduler` may hang at a disk."""
        self._rebalance.schedule(scheduler, self._config)
        scheduler.schedule("due-flushes", self._replicas().flush_due, FLUSH_LOOK_MS)
        self.replication.schedule(self._watch)
        controller = self._controller()
        office = OfficeWatch(controller.event_in_office, controller.give_up_office, self._clock)
        max_ms = self._config[EVENT_MAX_KEY]
        self._watch.schedule("controller-event", lambda: office.look(max_ms), OFFICE_LOOK_MS)
        self._watch.start()

    def stop(self) -> None:
        """After the controller's thread, which follows every image that it still takes."""
        self._watch.stop()
        self.replication.stop()

    @property
    def threads(self) -> Iterable[OwnThread]:
        """Those that there are now."""
        yield self._watch.thread
        yield from (each.thread for each in self._loops if each.thread is not None)

    @property
    def failing(self) -> dict[str, str]:
        """What is tried again, by name, with why; any thread."""
        why = self.replication.fetchers.failing
        return {"following other brokers": why} if why else {}

    def _fetcher_loop(self) -> LoopOnDemand:
        self._loops = [
            each for each in self._loops if each.thread is None or each.thread.is_alive()
        ]
        loop = LoopOnDemand("kbroker-fetcher")
        self._loops.append(loop)
        return loop

    def applied(self, image: ClusterImage) -> None:
        """Its logs are open, and it is not published yet."""
        if not self._looked_for_strays:
            self._looked_for_strays = True
            self._logs.set_aside_strays(partial(_is_on, image, self._config.node_id))

    def compare_settings(self, store: MetadataStore) -> None:
        """With those of the brokers that are registered beside this one."""
        warn_of_differences(store, self._config.node_id)

    def shows(self) -> bool:
        """Whether an image that is published now may be seen: not the empty one of a start."""
        return self.first_image.has_come or self._controller().informed

    def follow(self, image: ClusterImage, publish: Callable[[ClusterImage], None]) -> None:
        """The controller's thread has another image, which is published if it `shows`. That is
        looked at once: another thread may take the office from this controller meanwhile.

        A broker that ends before its first image asks a controller, too: it must learn of the next.
        """
        is_published = self.shows()
        if is_published:
            publish(image)
        self.links.followed()
        self.shutdown.followed()
        if is_published:
            self.replication.follow(image)
            self.first_image.came()

    def informed(self) -> bool:
        """Whether this broker is registered and has had the metadata since; for readiness."""
        return self.first_image.has_come and self._controller().informed

    def repair(self) -> Repair:
        """For the scrub; imported with it."""
        from kbroker.peer.link import open_link
        from kbroker.replica.batch_repair import BatchRepair

        return BatchRepair(
            self._config.node_id,
            lambda name: self._replicas().partition(*name),
            lambda: self._controller().image,
            self._clock,
            partial(open_link, login=own_login(self._config)),
        )

    def await_image(self) -> None:
        """MetadataStoreError, which ends the start, if no metadata comes."""
        timeout_ms = self._config[WAIT_KEY]
        if self.first_image.wait(timeout_ms) or self.first_image.given_up:
            return
        controller_id = self._controller().image.controller_id
        if controller_id == NO_CONTROLLER:
            raise MetadataStoreError(
                f"there was no controller for {timeout_ms} ms",
                f"see why the other brokers are none, or raise {WAIT_KEY}",
            )
        raise MetadataStoreError(
            f"broker {controller_id}, the controller, did not say what holds for {timeout_ms} ms",
            "let it reach this broker's inter.broker.listener.name at the address that is"
            f" advertised, or raise {WAIT_KEY}",
        )


def _is_on(image: ClusterImage, node_id: int, name: TopicPartition, topic_id: UUID) -> bool:
    """Whether this broker holds a replica of that partition."""
    topic = image.topic_by_id(topic_id)
    if topic is None or topic.name != name.topic or name.partition >= len(topic.partitions):
        return False
    return node_id in topic.partitions[name.partition].replicas
