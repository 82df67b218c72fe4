"""One broker: the only place that builds objects across packages, and the order they come up in.

    limits -> identity -> metadata store -> listeners bound -> timer -> admin port bound -> logs
    -> controller (partitions opened) -> request handlers -> network threads -> first image (in a
    cluster) -> ready file -> scheduler -> groups loaded -> control loop -> readiness

`Broker(...).start()` and `.stop()` walk that list down and up; `run` is what `kbroker start` calls:
it starts a broker, waits for a signal, stops it and returns the exit status. Stopping the network
closes the listening sockets, answers what is parked, sends what is on its way, and joins the C
threads, before anything below it goes. What may well fail, such as a port in use, comes before
the logs, and a start that fails before there are network threads leaves them as they were.

The main thread starts and stops. After the start the garbage collector's generations are frozen,
and a switch interval of half a millisecond bounds what a cold request waits for the GIL.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from kbroker import limits
from kbroker._net import WrappedRequest
from kbroker.clock import Clock, SystemClock
from kbroker.config.admin_listeners import ADMIN, ADMIN_LISTENERS
from kbroker.config.key import ConfigSource
from kbroker.config.listeners import format_address
from kbroker.config.topic import edit_topic_list, validate_topic_overrides
from kbroker.coordinator.groups import Groups
from kbroker.engine.waiting.deadlines import FetchDeadlines
from kbroker.errors import InvariantError, UserError
from kbroker.failures import Failures
from kbroker.handlers.delayed import Purgatories
from kbroker.handlers.produce import ColdProduce
from kbroker.handlers.registry import REGISTRY
from kbroker.handlers.reply import failures as request_failures
from kbroker.handlers.services import Services
from kbroker.log.log_lanes import LogLanes
from kbroker.log.manager import LogManager
from kbroker.log.opening.data_directory import lock_names
from kbroker.log.opening.recovery import Recovery
from kbroker.log.upkeep.lane import ThreadLane
from kbroker.metadata.controller import Controller, ProducerIdManager
from kbroker.metadata.controller.parts import Listeners, Rules, Session
from kbroker.metadata.store.zookeeper_settings import CONNECT
from kbroker.observe.health import Health
from kbroker.observe.live_objects import live_objects
from kbroker.observe.readiness import RUNNING, STOPPING, Readiness
from kbroker.peer.loop_on_demand import LoopOnDemand
from kbroker.purgatory.purgatory import Purgatory
from kbroker.purgatory.timer import Timer
from kbroker.replica._topic_table import TopicTable
from kbroker.replica.held_replicas import HeldReplicas
from kbroker.replica.log_tasks import LogTasks
from kbroker.replica.manager import ReplicaManager
from kbroker.replica.metadata_publisher import MetadataPublisher
from kbroker.scheduler import Scheduler
from kbroker.server import sockets
from kbroker.server.admin_port import AdminPort, AdminSocket, HttpServer, Run, reachable
from kbroker.server.advertised import Advertised, secrets_of
from kbroker.server.authorizer import Access
from kbroker.server.boot import boot_id
from kbroker.server.closes import ClosedConnections
from kbroker.server.directories import Directories
from kbroker.server.dynamic_config import DynamicConfig
from kbroker.server.formats import Formats
from kbroker.server.handler_pool import HandlerPool
from kbroker.server.late_steps import LateSteps
from kbroker.server.lifecycle import Lifecycle, Step, nothing
from kbroker.server.metadata_store import check_of, open_store
from kbroker.server.observation import Observation
from kbroker.server.open_files import raise_open_file_limit
from kbroker.server.quotas import Quotas
from kbroker.server.ready import announce, remove_ready_file
from kbroker.server.sasl_listeners import with_sasl
from kbroker.server.share_groups import Given as GivenToShare
from kbroker.server.share_groups import ShareGroupsOnDemand
from kbroker.server.tls_listeners import TlsListeners
from kbroker.server.transactions import Given, TransactionsOnDemand
from kbroker.types import ApiKey, TopicPartition

if TYPE_CHECKING:
    from ssl import SSLContext

    from kbroker.cluster.cluster_member import ClusterMember
    from kbroker.config import BrokerConfig
    from kbroker.metadata.image import ClusterImage, ImageDelta
    from kbroker.metrics.model import Figures
    from kbroker.observe.observer import Parts
    from kbroker.own_thread import OwnThread
    from kbroker.replica._replica import Replica
    from kbroker.server.metadata_store import Store

logger: Final = logging.getLogger("kbroker.server")

T = TypeVar("T")
# Imports the HTTP side and returns it: handed down, since server does not know admin.
Dispatch = Callable[[WrappedRequest], None]
ServeAdmin = Callable[["Broker", Sequence[AdminSocket], Run], HttpServer]

MOVE_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"


class Broker:
    """Everything of one node. Build, `start`, `stop`; not to be started twice."""

    _make_transactions: ClassVar[type[TransactionsOnDemand]] = TransactionsOnDemand
    _watchdog: Scheduler | None = None
    _store: Store | None = None
    _services: Services | None = None

    def __init__(
        self,
        config: BrokerConfig,
        data_dir: Path,
        ready_file: Path | None = None,
        serve_admin: ServeAdmin | None = None,
        before_logs: Callable[[], None] = nothing,
        clock: Clock | None = None,
    ) -> None:
        self._dynamic = DynamicConfig(config, self._settings_lag, lambda c: self._tls.judge(c))
        self._data_dir, self._ready_file = data_dir, ready_file
        self._clock: Clock = clock if clock is not None else SystemClock()
        self.bootstrap = ("", 0)
        self._advertised = Advertised(config.listeners)
        self._bound, self._tls = dict[str, list[tuple[str, int]]](), TlsListeners(self._dynamic)
        self._server, self._table = sockets.socket_server(config), TopicTable()
        self._quotas = Quotas(config, self._server)
        self._replication_failures = Failures("replication")
        self._publisher = MetadataPublisher(self._table, config.listeners.names)
        self._loop, self._timer = LoopOnDemand(), Timer(self._clock)
        self._purgatories = Purgatories.on(self._timer)
        self._hot = sockets.hot_path(config, self._server, self._table)
        self._groups = Groups(
            lambda: self.config, self._clock, self._timer, self._replica_of, self._hot,
            in_step=lambda call: self._running_controller().in_step(call),
            share=lambda: self._share,
        )  # fmt: skip
        self._hot.serve_groups(self._groups.table)
        self._deadlines = FetchDeadlines(self._hot, Purgatory("Fetch", self._timer), SystemClock())
        self._scheduler = Scheduler(self._clock)
        self._late = LateSteps(self._scheduler)
        log_dirs = [Path(directory) for directory in config.log_dirs]
        self._directories = Directories(log_dirs, data_dir, config.node_id)
        self._held = HeldReplicas(self._hot.wake)
        self._logs = LogManager(
            log_dirs, boot_id=boot_id(), listener=self._held, config=lambda: self.config,
            recovery_threads=config["num.recovery.threads.per.data.dir"],
            segment_delete_delay_ms=config["log.segment.delete.delay.ms"],
            move_bytes_per_second=lambda: float(self.config[MOVE_RATE]),
        )  # fmt: skip
        self._lanes = LogLanes(self._logs, self._clock, ThreadLane, self._logs_ready)
        self._member = self._join_cluster(config)
        self._replicas = self._hold_replicas(config)
        self._transactions = self._serve_transactions()
        self._share = self._serve_share_groups()
        self._log_tasks = LogTasks(
            self._logs, self._replicas.replicas, self._hot.wake, self._clock, lambda: self.config,
            self._logs_ready, self._member.repair if self._member else None,
        )  # fmt: skip
        self._cluster_id: str | None = None
        self._controller: Controller | None = None
        self._handlers: HandlerPool | None = None
        self.observation = Observation(
            self._observed, lambda: self.config, self._clock, self._scheduler, self.own_address
        )
        self._publisher.changed = self.observation.impaired.follow
        self._served, self._serve_admin, self._before_logs = False, serve_admin, before_logs
        self._admin = AdminPort(self._serve_http, self._loop.submit)
        self._handler_failures = Failures("request handlers")
        parts = (
            self._groups.coordinator.failures, self._transactions.failures, self._share.failures,
            self._handler_failures, request_failures, self._admin.failures,
            self._replication_failures, self._late.failures,
        )  # fmt: skip
        self.health = Health(self._own_threads, parts)
        informed = self._member.informed if self._member else None
        self.readiness = Readiness(config.log_dirs, self.health.dead, informed, self._failing)
        self.readiness.certificates = self._tls.validities
        self._lifecycle = Lifecycle(self._steps())

    def _join_cluster(self, config: BrokerConfig) -> ClusterMember | None:
        if not config[CONNECT]:
            return None
        # Imported for a cluster: a broker without one is small.
        from kbroker.cluster.cluster_member import ClusterMember

        member = ClusterMember(
            config, self._clock, self._loop.submit, self._timer.call_later, self._lanes,
            lambda: self._replicas, self._running_controller, self._hot.wake,
            self._replication_failures,
        )  # fmt: skip
        self._dynamic.add("the replication", member.replication.follow_config)
        return member

    def _hold_replicas(self, config: BrokerConfig) -> ReplicaManager:
        lead = self._member.replication.lead if self._member else None
        return ReplicaManager(
            config, config.node_id, self._logs, self._table, self._held, lead, self._lanes,
        )  # fmt: skip

    def _serve_transactions(self) -> TransactionsOnDemand:
        return self._make_transactions(Given(
            lambda: self.config, self._clock, self._timer.call_later, self._replica_of, self._hot,
            self._running_controller, lambda: self._services, self._loop.submit, self._scheduler,
            self._member.links if self._member else None, self._hot,
        ))  # fmt: skip

    def _serve_share_groups(self) -> ShareGroupsOnDemand:
        return ShareGroupsOnDemand(GivenToShare(
            lambda: self.config, self._clock, self._timer, lambda: self._replicas,
            self._hot, self._running_controller, lambda: self._services, self._loop.submit,
            self._scheduler, self._transactions.on_worker, self._purgatories.share_fetch,
        ))  # fmt: skip

    def _logs_ready(self, names: Sequence[TopicPartition]) -> None:
        self._running_controller().logs_ready(names)

    def _replica_of(self, topic: str, index: int) -> Replica | None:
        return self._replicas.partition(topic, index)

    def _running_controller(self) -> Controller:
        if self._controller is None:
            raise UserError("the controller is not there")
        return self._controller

    def _steps(self) -> list[Step]:
        """In the order in which they come up."""
        member, observation, late = self._member, self.observation, self._late.step
        self._access = Access(self.config, self._clock, self._running_controller, self._scheduler)
        return [
            Step("authorizer", self._access.make, self._access.stop),
            Step("open-file limit", raise_open_file_limit),
            Step("cluster identity", self._read_identity),
            Step("metadata store", self._open_store, self._close_store),
            Step("listeners", self._bind, self._server.stop_accepting),
            Step("timer", self._timer.start, self._timer.stop),
            Step("control loop", stop=self._loop.stop),
            Step("admin port", self._start_admin, self._admin.stop),
            Step("end in order", self._before_logs),
            Step("logs", self._start_logs, self._stop_logs),
            Step("controller", self._start_controller, self._stop_controller),
            Step("data directories", self._claim_directories),
            Step("request handlers", self._start_handlers, self._stop_handlers),
            Step("network threads", self._start_network, self._stop_network),
            Step("first image", member.await_image if member else nothing),
            Step("scheduler", self._start_scheduler, self._scheduler.stop),
            Step("ready file", self._announce, self._withdraw),
            # From here on the broker serves: what is short for a moment does not end it.
            late("groups", lambda: self._groups.start(self._scheduler), self._groups.stop),
            late("transactions", self._transactions.start, self._transactions.stop),
            late("share groups", self._share.start, self._share.stop),
            late("observer", observation.schedule, observation.stop),
            late("warm-up", self._warm_up),
            late("metrics topic", observation.start_metrics_topic, observation.stop_metrics_topic),
            Step("leadership", stop=member.shutdown.run if member else nothing),
            Step("readiness", stop=self._readiness_ends),
        ]

    @property
    def config(self) -> BrokerConfig:
        """The configuration as it holds now, with the values set at run time."""
        return self._dynamic.config

    def live_objects(self) -> dict[str, int]:
        """How many C objects of each kind there are; see live_objects.py."""
        return live_objects(self._server)

    def start(self) -> bool:
        """Returns when the broker accepts requests, False if it does not since its start was given
        up; UserError when a person must mend something."""
        return self._lifecycle.start()

    def give_up_start(self) -> None:
        """If it is not ready, its start goes no further. Takes no lock: for signal handlers."""
        if self.readiness.phase != RUNNING:
            if self._member is not None:
                self._member.give_up_start()
            self._lifecycle.give_up()

    @property
    def has_offline_logs(self) -> bool:
        """Whether a log that should be here could not be opened, or not yet."""
        return self._replicas.any_offline

    def stop(self) -> bool:
        """True when every step ended as it should."""
        return not self._lifecycle.stop()

    def keep_watched(self, alive: Callable[[], None], period_ms: int) -> None:
        """From now on calls `alive` once a period, as long as the broker moves."""
        from kbroker.server.watchdog import Watchdog

        def turns() -> dict[str, int]:
            network = self._server.statistics()["processors"]
            return {each["name"]: each["turns"] for each in network if each["serving"]}

        dog = Watchdog(turns, self._loop.submit, self.health.dead, alive)
        self._watchdog = Scheduler(self._clock, "kbroker-watchdog")  # the other may hang at a disk
        self._watchdog.schedule("watchdog", dog.look, max(period_ms, limits.WATCHDOG_PERIOD_MS_MIN))
        self._watchdog.start()

    def reload(self) -> None:
        """Reads store and files of TLS again, in the background; tries offline partitions again."""
        self._tls.look_soon()
        if self._controller is not None:
            self._controller.reload()

    # --- steps, in their order --------------------------------------------------------------------

    def _open_store(self) -> None:
        self._store = open_store(self.config, self._data_dir, self._cluster_id)
        self._formats = Formats(self._directories.in_use, self._session, self._scheduler)
        for name, reaction in (
            ("the network", self._network_follows),
            ("the request handlers", self._handlers_follow),
            ("the logs", self._logs_follow),
            ("the hot path", lambda before, now: sockets.hot_path_follows(self._hot, now)),
            ("TLS", self._tls.follow),
        ):
            self._dynamic.add(name, reaction)
        try:
            self._dynamic.load(self._store)
        except BaseException:
            self._store.close()
            raise

    def _close_store(self) -> None:
        if self._store is not None:
            self._store.close()

    def _read_identity(self) -> None:
        """What the data directories say they belong to, before anything in them is touched."""
        self._cluster_id = self._directories.identify()

    def _bind(self) -> None:
        self._bound = sockets.listen_all(self._server, self.config, self._tls.transport_of)
        self.bootstrap = self._bound[self.config.listeners.names[0]][0]

    def _session(self) -> Store:
        if self._store is None:
            raise UserError("the metadata store is not open")
        return self._store

    def _start_controller(self) -> None:
        lossy = self._logs.lossy or self._directories.lack_logs
        session = Session(
            store=self._session(), clock=self._clock, cluster_id=self._cluster_id,
            broker=self._advertised.broker(self._dynamic.started, self._bound, lossy=lossy),
            locks=lambda: lock_names(self._logs.usable), new_epochs_at_start=not self._logs.clean,
            renew=self._next_session if self._member else None, secrets=secrets_of(self.config),
            check=check_of(self.config),
        )  # fmt: skip
        rules = Rules(
            config=self.config, validate_configs=validate_topic_overrides, configs=self._dynamic,
            edit_list=edit_topic_list, elections=self._dynamic.election_rules,
        )  # fmt: skip
        listeners = Listeners(
            apply=self._apply, show=self._show, follow=self._dynamic.follow,
            removing=self._replicas.removing, start_is_known=self._logs.remember_boot,
            transport=self._member.links if self._member else None, once=self._scheduler.once,
        )  # fmt: skip
        self._controller = Controller(session, rules, listeners)
        self._controller.start()

    def _next_session(self) -> Store:
        """In place of one that is over; on the controller's thread."""
        self._session().close()
        self._store = self._session().new_session()
        self._directories.say_again(self._store)
        return self._store

    def _claim_directories(self) -> None:
        self._directories.claim(self._session(), self._running_controller().image.cluster_id)
        self._formats.raise_at_start()
        if self._member is not None:
            self._member.compare_settings(self._session())

    def _show(self, image: ClusterImage) -> None:
        for part in (self._access.show, self._formats.follow, self._quotas.follow):
            part(image)
        for coordinators in (self._groups, self._transactions, self._share):
            coordinators.show(image)
        show = self._publisher.show
        show(image) if self._member is None else self._member.follow(image, show)

    def _apply(self, image: ClusterImage, delta: ImageDelta) -> list[TopicPartition]:
        if self._member is not None:
            self._member.replication.before(image, delta)
        for coordinators in (self._groups, self._transactions, self._share):
            coordinators.before(delta)
        offline = self._replicas.apply(image, delta)
        if self._member is not None:
            self._member.applied(image)
        for coordinators in (self._groups, self._transactions, self._share):
            coordinators.follow(image, delta)
        return offline

    def _stop_controller(self) -> None:
        if self._controller is not None:
            self._controller.stop()
        if self._member is not None:
            self._member.stop()

    def _start_handlers(self) -> None:
        controller = self._running_controller()
        services = self._services = Services(
            config=self.config, clock=self._clock, controller=controller, replicas=self._replicas,
            producer_ids=ProducerIdManager(controller.allocate_producer_ids), wake=self._hot.wake,
            transactions=self._transactions, await_low_watermark=self._hot.await_low_watermark,
            await_followers=self._hot.await_followers, purgatories=self._purgatories,
            advertised=self._advertised, verify_offsets=self._transactions.verify_offsets,
            cluster_id=controller.image.cluster_id, node_id=self.config.node_id,
            peers=self._member.links if self._member else None, offsets=self._groups.table,
            groups=self._groups.coordinator, marker_written=self._groups.marker_written,
            consumer_groups=self._groups.consumer_groups, share_groups=self._groups.share_groups,
            streams_groups=self._groups.streams_groups, quotas=self._quotas.clients,
            authorizer=self._access.authorizer, audit=self._access.audit, share=self._share,
            share_service=self._share.service.get,
        )  # fmt: skip
        listeners = self.config.listeners
        self._hot.advertise(
            self.config.node_id, self._advertised.by_listener(listeners.names),
            self.config["auto.create.topics.enable"],
            listeners.names.index(listeners.inter_broker_name) if self._member else -1,
        )  # fmt: skip
        cold_produce = ColdProduce(self._hot, self._deadlines.watch)
        registry = REGISTRY.with_hot(ApiKey.PRODUCE, cold_produce.handle, None)
        dispatch = self._access.check(self._hot, lambda each: registry.dispatch(services, each))
        dispatch = self._dispatcher(dispatch)
        if self._member is not None:
            dispatch = self._member.first_image.held(dispatch)
        dispatch = with_sasl(
            dispatch, registry, services, self._session, self._dynamic, self._timer.call_later
        )
        self._handlers = HandlerPool(
            self._hot, self.config["num.io.threads"], self._tls.before(dispatch),
            self._deadlines.watch, self._handler_failures, verify=self._transactions.verify,
        )  # fmt: skip
        self._handlers.start()

    def _dispatcher(self, dispatch: Dispatch) -> Dispatch:
        """What handlers call for a request that needs Python; `kbroker.testing` has its own."""
        return dispatch

    def _failing(self) -> dict[str, str]:
        """What was to be done once and is tried again, with why; any thread."""
        lag = {f"settings of {name}": "cannot follow them" for name in self._dynamic.lagging}
        lag |= self._member.failing if self._member else {}
        return {f"task {name}": why for name, why in self._scheduler.failing().items()} | lag

    def _settings_lag(self) -> None:
        self._scheduler.once("settings", self._settings_again, limits.TASK_RETRY_MS)

    def _settings_again(self) -> None:
        self._running_controller().in_step(self._dynamic.try_again)

    # --- settings at run time, on the controller's thread -----------------------------------------

    def _network_follows(self, before: BrokerConfig, now: BrokerConfig) -> None:
        sockets.bound_connections(self._server, now)
        try:
            self._server.resize(now["num.network.threads"])
        finally:
            self._hot.cover_processors()  # those that are new, be they fewer than asked for

    def _handlers_follow(self, before: BrokerConfig, now: BrokerConfig) -> None:
        if self._services is not None:
            self._services.config = now
        if self._handlers is not None:
            self._handlers.resize(now["num.io.threads"])

    def _logs_follow(self, before: BrokerConfig, now: BrokerConfig) -> None:
        self._logs.recovery_threads = now["num.recovery.threads.per.data.dir"]
        self._logs.removals.delay_ms = now["log.segment.delete.delay.ms"]
        self._log_tasks.follow()
        topics = () if self._controller is None else self._controller.image.topics.values()
        self._replicas.follow_config(now, topics)

    def _start_network(self) -> None:
        self._served = True
        self._server.start()

    def _start_logs(self) -> None:
        absence = self._directories.look(self._session(), shared=self._member is not None)
        self.readiness.follow_directories(
            absence.unused, self._logs.failed_directories, self._logs.recoveries.left_in
        )
        self._logs.start(absence, self._directories.foreign, recover=Recovery.begin)
        if not self._logs.recoveries.wait(limits.LOG_RECOVERY_WAIT_MS):
            logger.info("partitions come online one by one, as their logs are recovered")

    def _stop_logs(self) -> None:
        self._log_tasks.stop()
        # Before there is a network thread no client has written anything.
        self._logs.stop(as_found=not self._served, hanging=self._lanes.stop())

    def _stop_handlers(self) -> None:
        self._server.close_queue()
        if self._handlers is not None:
            self._handlers.join()

    def _stop_network(self) -> None:
        if self._member is not None:
            self._member.first_image.let_go()  # a start that was given up has not waited for it
        self._server.stop_accepting()
        self._hot.close_parked()
        self._server.stop()

    def _announce(self) -> None:
        self.readiness.phase = RUNNING
        announce(self._ready_file, self.config, self.bootstrap, self._admin.url)

    def _withdraw(self) -> None:
        if self._ready_file is not None:
            remove_ready_file(self._ready_file)

    def _start_scheduler(self) -> None:
        self._log_tasks.schedule(self._scheduler)
        if self._member is not None:
            self._member.schedule(self._scheduler)
        closes = ClosedConnections(self._server.closes)
        self._scheduler.schedule("closed-connections", closes.tell, limits.LOG_LINE_PERIOD_MS)
        self._tls.schedule(self._scheduler, self.config["ssl.reload.interval.ms"])
        self._scheduler.start()

    def _observed(self) -> Parts:
        from kbroker.observe.observer import Parts

        return Parts(
            server=self._server, hot=self._hot, scheduler=self._scheduler, readiness=self.readiness,
            replicas=self._replicas.replicas, log_tasks=self._log_tasks,
            log_dirs=tuple(str(Path(path)) for path in self.config.log_dirs),
            node_id=self.config.node_id, groups=self._groups, health=self.health,
            purgatories=self._purgatories, controller=lambda: self._controller,
            replication=self._member.replication if self._member else None,
            transactions=self._transactions, certificates=self._tls.expiries,
            services=lambda: self._services, share=self._share,
        )  # fmt: skip

    def _warm_up(self) -> None:
        # asyncio and uvloop are imported here, after the ready line.
        from kbroker.peer.control_loop import give_back_memory_of_start

        self._loop.submit(give_back_memory_of_start())

    def own_address(self, listener: str = "") -> str:
        host, port = self._bound[listener or self.config.listeners.inter_broker_name][0]
        return format_address(reachable(host), port)

    def _readiness_ends(self) -> None:
        """Before anything goes down: the readiness page says so, no further scrape begins."""
        self.readiness.phase = STOPPING
        if self._watchdog is not None:
            self._watchdog.stop()

    def _own_threads(self) -> Iterable[OwnThread | None]:
        """Those that there are now; any thread may call it."""
        yield from (self._timer.thread, self._scheduler.thread, self._access.thread)
        yield self._watchdog.thread if self._watchdog is not None else None
        yield from (*self._groups.threads, *self._transactions.threads, *self._share.threads)
        yield None if self._store is None else self._store.watches.thread
        yield None if self._controller is None else self._controller.thread
        yield from (self._loop.thread, self.observation.metrics_thread)
        yield from (*self._log_tasks.threads, *self._lanes.threads, *self._admin.threads)
        yield from () if self._member is None else self._member.threads
        yield from () if self._handlers is None else self._handlers.threads

    # --- figures, from any thread -----------------------------------------------------------------

    @property
    def metric_dialects(self) -> Collection[str]:
        dialects: tuple[str, ...] = self.config["metrics.dialects"]
        return dialects

    def figures(self, *, every_partition: bool | None = None) -> Figures:
        """What was measured just now; parts that are not up yet are left out."""
        return self.observation.figures(every_partition=every_partition)

    # --- the admin port ---------------------------------------------------------------------------

    def _start_admin(self) -> None:
        if self._serve_admin is None:
            return
        if self.config.has_https:
            self._tls.open_admin(self.config.security_of(ADMIN))
        by_default = self.config.source(ADMIN_LISTENERS) is ConfigSource.DEFAULT_CONFIG
        self._admin.bind(self.config.admin_listeners, may_be_taken=by_default)
        self._admin.start()

    def admin_context(self) -> SSLContext:
        """Of TLS, for the next connection of the admin port."""
        return self._tls.admin_context()

    def _serve_http(self, sockets: Sequence[AdminSocket]) -> HttpServer:
        if self._serve_admin is None:
            raise InvariantError("there is nothing to serve the admin port with")
        return self._serve_admin(self, sockets, self._admin.run)
