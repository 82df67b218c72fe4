"""One broker of a simulated cluster: the parts of a real one, without sockets and threads.

`Broker` is the machine: a node id, a directory. `Running` is one start of it: the real controller
(its events one by one, on the loop), replication with its fetchers and in-sync sets, replica and
log manager, the group coordinator with its loader (a piece at a time), wired as
`kbroker/server/broker.py` does; the handlers between brokers and of groups are the real ones, too.
Before a leader asks for an in-sync set, its controller thread may be interrupted: handlers,
fetchers and other brokers go on for a moment. The links, the scheduler and most of the request
layer (`requests.py`) are simulated.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kbroker.cluster.cluster_member import FLUSH_LOOK_MS
from kbroker.cluster.replication import Replication
from kbroker.config import BrokerConfig, edit_topic_list, validate_topic_overrides
from kbroker.coordinator.groups import Groups
from kbroker.coordinator.runtime.loader import Loader
from kbroker.failures import Failures
from kbroker.handlers import envelope
from kbroker.handlers.delayed import Purgatories
from kbroker.handlers.forwarding import CLIENT_ID
from kbroker.log.manager import LogManager
from kbroker.log.opening.data_directory import CLEAN_SHUTDOWN_FILE
from kbroker.log.opening.recovery import Recovery
from kbroker.metadata.controller import Controller
from kbroker.metadata.controller.events import Start
from kbroker.metadata.controller.image_updates import (
    SHUTDOWN_KEY,
    SHUTDOWN_VERSION,
)
from kbroker.metadata.controller.office_watch import OFFICE_LOOK_MS, OfficeWatch
from kbroker.metadata.controller.parts import Listeners, Rules
from kbroker.metadata.controller.parts import Session as ControllerSession
from kbroker.metadata.controller.producer_ids import ProducerIdManager
from kbroker.metadata.features import supported
from kbroker.metadata.image import BrokerImage, ClusterImage, ImageDelta, PartitionImage
from kbroker.protocol.messages import controlled_shutdown
from kbroker.replica._replica import Replica
from kbroker.replica._topic_table import TopicTable
from kbroker.replica.held_replicas import HeldReplicas
from kbroker.replica.in_sync import InSyncSets
from kbroker.replica.manager import ReplicaManager
from kbroker.server.dynamic_config import DynamicConfig
from kbroker.server.formats import check_cluster
from kbroker.types import ApiKey, TopicPartition
from tests.simulation import handlers
from tests.simulation.group_parts import CallsLater, SteppedLoader, shift_to
from tests.simulation.lanes import played_lanes
from tests.simulation.links import PORT, Link, Links, host_of
from tests.simulation.loop import (
    BACKGROUND,
    GROUPS,
    WATCH,
    LoopClock,
    Process,
    StepLoop,
)
from tests.simulation.network import Answer, Lost
from tests.simulation.producer_ids import BLOCK_SIZE
from tests.simulation.requests import Fetches, Produces
from tests.simulation.shares import BrokerShares, Connections
from tests.simulation.stepped_events import SteppedEvents
from tests.simulation.stepped_timer import SteppedTimer
from tests.simulation.store import Session
from tests.simulation.transactions import BrokerTransactions

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.scheduler import Scheduler

LAG_MS = 1_500  # replica.lag.time.max.ms
# As long as an event of the controller may take, before another is elected.
EVENT_MAX_MS = 1_500
Started = Callable[[Exception | None], None]
INTERRUPTED_MS = (1, 10, 100, 400)
RECOVERY_PAUSES_MS = (1, 100, 1_000, 10_000)


class Running:
    """One start of a broker, or of a copy of one, whose logs no client reads."""

    authorizer = quotas = None  # every client may do everything, and as much as it likes

    def __init__(self, cluster: Cluster, broker: Broker, *, is_copy: bool = False) -> None:
        self.is_copy = is_copy
        self.cluster = cluster
        self.broker = broker
        self.node_id = broker.node_id
        self.loop: StepLoop = cluster.loop
        self.clock = LoopClock(cluster.loop)
        self.process = Process(cluster.loop)
        self.scheduler = cluster.scheduler
        if self.scheduler is not None:
            self.process.on_thread = partial(self.scheduler.run, self.process)
            self.scheduler.nodes[self.process] = self.node_id
        self.session = cluster.ensemble.begin_session(self.process, self.node_id)
        self.failures = Failures(f"broker {self.node_id}", logging.getLogger("simulation"))
        self.fetches, self.produces = Fetches(self), Produces(self)
        self.await_low_watermark = self.produces.await_low_watermark
        self.await_followers = self.produces.await_followers
        self.purgatories = Purgatories.on(SteppedTimer(self.process, self.clock))
        # As the controller said it, by the replica's partition.
        self.states: dict[TopicPartition, PartitionImage] = {}
        self._led_since: dict[TopicPartition, int] = {}
        boot_id = f"{self.node_id}-{cluster.boots[self.node_id]}"
        self.held = HeldReplicas(self.wake)
        self.logs = LogManager(
            [broker.directory], boot_id=boot_id, clock=self.clock, listener=self.held
        )
        self.informed = False
        self.disk_failed = False  # at some time since this start
        self.fetchers_hang_until_ms = 0.0
        self.links = self.peers = Links(self)
        self._replication = Replication(
            broker.config,
            self.clock,
            self.links,
            self._submit,
            lambda: self.replicas,
            lambda: self.controller,
            self.wake,
            self.failures,
            partial(Link, self),
            random.Random(cluster.dice.random()),
            self._new_loop if self.scheduler is not None else None,
        )
        if self.scheduler is None:
            self._let_others_go_on(self._replication._in_sync)
        else:
            self._say_who_leads(self._replication._in_sync, self.scheduler)
        self.replicas = ReplicaManager(
            broker.config, self.node_id, self.logs, TopicTable(), self.held, self._lead,
            None if self.scheduler is None else played_lanes(self.scheduler, self.logs),
        )  # fmt: skip
        self._groups = Groups(
            lambda: broker.config,
            self.clock,
            CallsLater(self.process),
            lambda topic, index: self.replicas.partition(topic, index),
            SimpleNamespace(wake=self.wake, await_followers=self.produces.await_followers),
            partial(SteppedLoader, self.process, random.Random(cluster.dice.random())),
            beside=self._beside,
            share=lambda: self.share,
        )
        self.at_pieces(self._groups.loader)
        self.config = broker.config
        self.groups, self.offsets = self._groups.coordinator, self._groups.table
        self.offsets.set_clock_shift_ms(shift_to(self.clock))
        self.transactions = BrokerTransactions(self)
        self.verify_offsets = self.transactions.verify_offsets
        self.marker_written = self._groups.marker_written
        self.share_groups, self.connections = self._groups.share_groups, Connections()
        self.share = BrokerShares(self)
        self.share_service = self.share.service.get
        self.controller: Controller
        self.producer_ids: ProducerIdManager
        self.events: SteppedEvents

    def _let_others_go_on(self, sets: InSyncSets) -> None:
        """At times, between the leader's look at its followers and its request for a new set."""
        dice = random.Random(f"between {self.node_id} {self.clock.monotonic_ns()}")

        def wait_for(led: Any, wanted: Any, brokers: Any) -> dict[int, int]:
            if dice.randrange(2):
                self.events.interrupt(lambda: self.loop.run_on(dice.choice(INTERRUPTED_MS)))
            asked = type(sets)._wait_for(sets, led, wanted, brokers)
            self.cluster.safety.asks_for(led.replica, {*asked}.difference(led.partition.isr))
            return asked

        sets._wait_for = wait_for  # type: ignore[method-assign, assignment]

    # --- life -------------------------------------------------------------------------------------

    def start(self, done: Started) -> None:
        """Raises an error that comes before the registration; `done` gets a later one, or None: the
        broker runs. In between, it may wait for the end of another process's session."""
        self.logs.start(recover=self._recover)
        dice, dynamic = random.Random(self.cluster.dice.random()), DynamicConfig(self.broker.config)

        dynamic.add("the logs", self._logs_follow)

        def make_loop(*how: Any) -> SteppedEvents:
            self.events = SteppedEvents(self.process, dice, *how)
            return self.events

        session = ControllerSession(
            store=self.session,
            broker=BrokerImage(
                self.node_id,
                host_of(self.node_id),
                PORT,
                lossy=self.logs.lossy,
                envelope_version=envelope.VERSION,
                features=supported(unstable=self.cluster.has_shares),
            ),
            clock=self.clock,
            locks=lambda: [self.broker.directory.name],
            cluster_id=self.cluster.cluster_id,
            new_epochs_at_start=not self.logs.clean,
            renew=self._next_session,
            check=partial(check_cluster, unstable=self.cluster.has_shares),
            loop=make_loop,
        )
        rules = Rules(
            config=self.broker.config,
            validate_configs=validate_topic_overrides,
            edit_list=edit_topic_list,
            configs=dynamic,
            elections=dynamic.election_rules,
            new_id=lambda: UUID(int=dice.getrandbits(128)),
        )
        listeners = Listeners(
            apply=self._apply,
            show=self._show,
            follow=dynamic.follow,
            start_is_known=self.logs.remember_boot,
            transport=self.links,
            dice=dice,
        )
        self.controller = Controller(session, rules, listeners)

        allocate = self.controller.allocate_producer_ids
        self.producer_ids = ProducerIdManager(allocate, BLOCK_SIZE)

        def started() -> None:
            self._replication.schedule(self)
            self.transactions.start()
            self.share.start()
            self.schedule("due-flushes", self._flush_due, FLUSH_LOOK_MS)
            office = OfficeWatch(
                self.controller.event_in_office, self.controller.give_up_office, self.clock
            )
            self.schedule("controller-event", lambda: office.look(EVENT_MAX_MS), OFFICE_LOOK_MS)
            done(None)

        self.events.start()
        self.events.post(Start(started, done))

    def _recover(self, recovery: Recovery, threads: int) -> None:
        """Log by log, at times that the dice give, while other logs are served."""
        dice = random.Random(self.cluster.dice.random())

        def pause_ms() -> int:
            """With more logs, all must be recovered within the time in which service returns."""
            drawn = dice.choice(RECOVERY_PAUSES_MS)
            return min(drawn, RECOVERY_PAUSES_MS[-2]) if self.cluster.states else drawn

        def turn() -> None:
            more = recovery.step()
            if ready := self.logs.recoveries.take_ready():
                self.controller.logs_ready(ready)
            if more:
                self.process.later(pause_ms(), turn, BACKGROUND)

        while not dice.randrange(2) and recovery.step():
            pass  # before anything is served
        self.process.later(pause_ms(), turn, BACKGROUND)

    def schedule(self, name: str, work: Callable[[], object], period_ms: int) -> None:
        """As the scheduler does."""

        def turn() -> None:
            work()
            self.process.later(period_ms, turn, WATCH)

        self.process.later(period_ms, turn, WATCH)

    def hand_over(self, then: Callable[[], None]) -> None:
        """Request a controlled shutdown once. The stop goes on after any answer."""
        controller = self.controller
        image = controller.image
        broker = image.brokers.get(image.controller_id)
        if controller.active:
            controller.shut_down(self.node_id, controller.broker_epoch, lambda remaining: then())
        elif broker is None:
            then()
        else:
            asked = controlled_shutdown.Request(
                broker_id=self.node_id, broker_epoch=controller.broker_epoch
            ).encode(SHUTDOWN_VERSION)
            self.links.forward(broker, SHUTDOWN_KEY, SHUTDOWN_VERSION, asked, lambda answer: then())

    def end(self, *, clean: bool) -> None:
        """`clean`: a stop, where the session ends at once. Else a kill: only the kernel acts after
        it, and files are closed as they are."""
        if not self.end_threads():
            return
        self._groups.loader.stop()
        self.transactions.end(clean=clean)
        self.share.end(clean=clean)
        if clean:
            self.groups.close()
            self.controller.stop()
            self.events.finish()
        if not self.is_copy:
            self.cluster.safety.ended(self)
        self.process.die()
        self.produces.close()
        self._replication.stop()
        if clean:
            self.logs.stop()
            self.session.close()
        else:
            self.logs.stop(as_found=True)
            # A running broker has no such file: it removes the file before it writes to a log.
            (self.broker.directory / CLEAN_SHUTDOWN_FILE).unlink(missing_ok=True)
            for session in self.cluster.ensemble.sessions_of(self.process):
                session.cut_off()

    def end_threads(self) -> bool:
        """The threads complete their current work. False: they wait for each other for good."""
        self.process.on_thread = None
        return self.scheduler is None or self.scheduler.end(self.process)

    def _flush_due(self) -> None:
        def flush() -> None:
            for _ in self.replicas.flush_due():
                pass

        self.process.work(flush, BACKGROUND)

    def checkpoint(self) -> None:
        """A round of the background work."""
        self.process.work(self._checkpoint, BACKGROUND)

    def retain(self, name: TopicPartition, size_bytes: int) -> None:
        """Of one log, and a round of the background work after it."""
        self.process.work(partial(self._retain, name, size_bytes), BACKGROUND)

    def _retain(self, name: TopicPartition, size_bytes: int) -> None:
        replica = self.replicas.partition(*name)
        if replica is not None:
            if replica.apply_retention(-1, size_bytes, self.clock.wall_ms()) >= 0:
                self.wake(replica)
            self._checkpoint()

    def _checkpoint(self) -> None:
        for work in (self.logs.checkpoint, self.logs.checkpoint_recovery_points):
            for _ in work():
                pass

    @property
    def failures_count(self) -> int:
        parts = self.controller.thread, self.groups, self._groups.loader.thread
        counts = (part.failures.count for part in parts)
        of_both = self.transactions.failures_count + self.share.failures_count
        return self.failures.count + of_both + sum(counts)

    def advertised(self, request: Any) -> tuple[str, int]:
        return host_of(self.node_id), PORT

    def _beside(self, job: Callable[[], object]) -> bool:
        """A moment later, as on a thread of its own."""
        self.process.later(1, job, GROUPS)
        return True

    def _submit(self, work: Coroutine[Any, Any, None]) -> Any:
        return self.loop.create_task(work)

    def _new_loop(self) -> Any:
        assert self.scheduler is not None
        return self.scheduler.new_loop(self.process, "fetchers")

    def _logs_follow(self, before: BrokerConfig, config: BrokerConfig) -> None:
        self.replicas.follow_config(config, self.controller.image.topics.values())

    # --- the controller's word --------------------------------------------------------------------

    def _apply(self, image: ClusterImage, delta: ImageDelta) -> list[TopicPartition]:
        self._replication.before(image, delta)
        self._groups.before(delta)
        self.transactions.before(delta)
        self.share.before(delta)
        offline = self.replicas.apply(image, delta)
        for topic in delta.deleted:
            for partition in topic.partitions:
                self._led_since.pop(TopicPartition(topic.name, partition.index), None)
            self.cluster.safety.removed(self, topic)
            self.cluster.topics.removed(self, topic)
        self._groups.follow(image, delta)
        self.transactions.follow(image, delta)
        self.share.follow(image, delta)
        for topic in (*delta.created, *delta.changed):
            for partition in topic.partitions:
                self.wake_name(TopicPartition(topic.name, partition.index))
        return offline

    def _show(self, image: ClusterImage) -> None:
        """Not the empty one of a start."""
        self.informed = self.informed or self.controller.informed
        self.links.followed()
        if self.informed:
            self._replication.follow(image)
            self.share.show(image)

    def _next_session(self) -> Session:
        self.session.close()
        self.session = self.session.new_session()
        return self.session

    def _lead(self, replica: Replica, partition: PartitionImage) -> None:
        name = replica.name
        if partition.leader == self.node_id:
            self._led_since.setdefault(name, partition.leader_epoch)
        else:
            self._led_since.pop(name, None)
        self.states[name] = partition
        if not self.is_copy and self.scheduler is None:
            # New settings may have moved a high watermark, of a leader that leads no more now.
            self.cluster.safety.look()
        self._replication.lead(replica, partition)
        if not self.is_copy and self.scheduler is None:
            self.cluster.safety.led(self, replica, partition)

    def _say_who_leads(self, sets: InSyncSets, scheduler: Scheduler) -> None:
        """In the same step in which a replica gets its leadership, at once or late."""
        apply = sets._apply

        def applied(replica: Replica, partition: PartitionImage, *how: Any) -> bool:
            with scheduler.still():
                is_applied = apply(replica, partition, *how)
                if is_applied and not self.is_copy:
                    self.cluster.safety.led(self, replica, partition)
            return is_applied

        def wait_for(led: Any, wanted: Any, brokers: Any) -> dict[int, int]:
            asked = type(sets)._wait_for(sets, led, wanted, brokers)
            self.cluster.safety.asks_for(led.replica, {*asked}.difference(led.partition.isr))
            return asked

        sets._apply = applied  # type: ignore[method-assign, assignment]
        sets._wait_for = wait_for  # type: ignore[method-assign, assignment]

    @property
    def fetches_slowly(self) -> bool:
        return self.broker.slow_until_ms > self.process.now_ms

    def load_slowly(self, for_ms: int) -> None:
        of_both = *self.transactions.loaders(), *self.share.loaders()
        for loader in (self._groups.loader, *of_both):
            assert isinstance(loader, SteppedLoader)
            loader.slow_until_ms = self.process.now_ms + for_ms

    def at_pieces(self, loader: Loader) -> None:
        """Faults may happen at each."""
        assert isinstance(loader, SteppedLoader)
        loader.at_piece = partial(self.cluster.fault_points.happens, "loading", self.node_id)

    @property
    def leads_any(self) -> bool:
        return bool(self._led_since)

    def leads(self, name: TopicPartition) -> bool:
        return name in self._led_since

    def led_since(self, name: TopicPartition) -> int:
        return self._led_since.get(name, -1)

    def in_sync_count(self, name: TopicPartition) -> int:
        return len(self.states[name].isr)

    def wake(self, replica: Replica) -> None:
        self.produces.wake(replica)  # it may be none any more that is found by its name
        self.fetches.wake(replica.name)

    def wake_name(self, name: TopicPartition) -> None:
        replica = self.replicas.partition(*name)
        if replica is not None:
            self.wake(replica)

    # --- requests ---------------------------------------------------------------------------------

    def request(
        self, target: int, api_key: ApiKey, version: int, body: bytes,
        done: Callable[[bytes | Lost], None],
    ) -> None:  # fmt: skip
        self.cluster.network.request(
            self.process, (self.node_id, target),
            lambda running, answer: running.serve(api_key, version, body, answer, CLIENT_ID), done,
        )  # fmt: skip

    def serve(
        self, api_key: ApiKey, version: int, body: bytes, answer: Answer,
        client_id: str = "simulated", after: Callable[[], None] = lambda: None,
        connection_id: str = "simulated",
    ) -> None:  # fmt: skip
        """`after` is called when the handler has come back, which may have answered or not."""
        if api_key is ApiKey.FETCH:
            self.fetches.serve(body, answer)
            return

        def call() -> None:
            handlers.serve(self, api_key, version, body, answer, client_id, connection_id)
            after()

        self.process.work(call, GROUPS if api_key in handlers.OF_GROUPS else "")


class Broker:
    """The machine, which outlives a start of the broker."""

    def __init__(self, node_id: int, directory: Path, config: BrokerConfig) -> None:
        self.node_id = node_id
        self.directory = directory
        self.config = config
        self.running: Running | None = None
        self.starting: Running | None = None
        self.isolated = 0  # from the store, so many times at once
        self.slow_until_ms = 0.0
