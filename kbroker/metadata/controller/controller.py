"""The controller: the one writer of the cluster's metadata.

Place in the flow: handlers on any thread ask for a change and give a callback; the thread
`kbroker-controller` takes one request after the other, decides (`decisions.py`, pure), writes to
the store (`nodes.py`, fenced by the election's epoch), propagates to the replica manager (`apply`),
publishes the new image as one reference, and calls back. So a topic is visible in the image only
when its log is open, and a callback only ever sees an image that contains its change. Handlers read
`image` and never wait for any of this. Changes of topics are in `topic_changes.py`; here
are the queue, the office and the reading of the store.

`apply(image, delta)` runs on the controller thread and must be idempotent (see `ImageDelta`). If it
raises, the topics of the delta are applied one by one. Where one fails its configuration is
restored; logs that do not open are offline, and new ones of a broker without a cluster taken back.

Crash rules: a change is in the store before anything else happens, so after a kill -9 the next
start finds it whole and finishes it, whether or not it was answered. When the outcome of a write
is unknown, the request fails with KAFKA_STORAGE_ERROR and the store is read again at once.

Bounds: CONTROLLER_EVENTS_MAX requests wait; the next one is answered REQUEST_TIMED_OUT, on the
caller's own thread, NOT_CONTROLLER where this broker is none or stops. No lock but the queue's.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode, InvariantError, KafkaError, UserError
from kbroker.limits import CONTROLLER_EVENTS_MAX
from kbroker.metadata.controller import records
from kbroker.metadata.controller.access_changes import (
    ACCESS_EVENTS,
    NOTICE_EVENTS,
    AccessChanges,
    NoticeEvent,
)
from kbroker.metadata.controller.asking import Asking, abandoned, no_caller, not_controller
from kbroker.metadata.controller.config_changes import ConfigChanges
from kbroker.metadata.controller.election import Election
from kbroker.metadata.controller.events import (
    AllocateProducerIds,
    AlterConfigs,
    AlterInSync,
    AlterResources,
    BrokerAnswered,
    BrokersChanged,
    ControllerChanged,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    Event,
    FollowImage,
    InStep,
    LogDirEvent,
    LogsFail,
    LogsReady,
    Reassign,
    Reload,
    SessionLost,
    ShutDown,
    Start,
    Stop,
    TellBrokerAgain,
    UnregisterBroker,
    UpdateFeatures,
)
from kbroker.metadata.controller.image_updates import ImageAnswer, ImageUpdate
from kbroker.metadata.controller.load_retry import LoadRetry
from kbroker.metadata.controller.loaded_image import delta_since, load_image
from kbroker.metadata.controller.nodes import FencedError, MetadataNodes, load_brokers
from kbroker.metadata.controller.own_logs import OwnLogs
from kbroker.metadata.controller.partition_changes import PartitionChanges
from kbroker.metadata.controller.parts import Listeners, Rules, Session
from kbroker.metadata.controller.producer_ids import ProducerIdBlock
from kbroker.metadata.controller.propagation import Names, Propagation
from kbroker.metadata.controller.registration import (
    Registration,
    cluster_of,
    start_trouble,
)
from kbroker.metadata.controller.statistics import ControllerStatistics
from kbroker.metadata.controller.topic_changes import TopicChanges, forget_deletions
from kbroker.metadata.controller.unregistration import unregister
from kbroker.metadata.image import NO_BROKER_EPOCH, BrokerImage, ClusterImage
from kbroker.metadata.store.base import (
    NoNodeError,
    SessionEvent,
    SessionExpiredError,
    StoreError,
    StoreUnavailableError,
    WatchKind,
)
from kbroker.own_thread import OwnThread

if TYPE_CHECKING:
    from kbroker.metadata.controller.broker_channels import BrokerChannels
    from kbroker.metadata.controller.image_follower import ImageFollower

log = logging.getLogger("kbroker.controller")

THREAD_NAME: Final = "kbroker-controller"

Answer = Callable[[], None]
# Handled while the store is away or cannot be read as well. Without the first of these no broker
# would be notified again; the last two end an office that is another broker's by now.
_NEEDS_NO_LOAD: Final = (
    Stop, BrokerAnswered, TellBrokerAgain, InStep, SessionLost, LogsReady, ControllerChanged,
    FollowImage,
)  # fmt: skip
# After these errors an event of the session comes.
_SESSION_SAYS: Final = (StoreUnavailableError, SessionExpiredError)
# Before what the store did not take is tried again: a session, a word to the controller.
STORE_RETRY_MS: Final = 1_000


class Controller(Asking):
    """See the head of this file. `start` once, then ask from any thread, then `stop`."""

    def __init__(self, session: Session, rules: Rules, listeners: Listeners) -> None:
        """See parts.py."""
        ours, clock, transport = session.broker, session.clock, listeners.transport
        self._store, self._node_id, self._clock = session.store, ours.node_id, clock
        session_ms = None if transport is None else rules.config["zookeeper.session.timeout.ms"]
        self._registration = Registration(
            ours, session.locks, clock, session_ms, listeners.start_is_known, session.check
        )
        self.start_given_up = False  # set by a signal handler, which takes no lock
        self._cluster_id, self._secrets = session.cluster_id, session.secrets
        self._new_epochs = session.new_epochs_at_start
        self._election = Election(session.store, ours.node_id, clock)
        self._loop = session.loop(
            THREAD_NAME, self._handle, CONTROLLER_EVENTS_MAX, abandoned, clock
        )
        self._propagation = Propagation(
            listeners.apply, listeners.show, listeners.follow, self.thread.failures, ours.node_id,
            self._announce, listeners.removing, in_cluster=transport is not None,
        )  # fmt: skip
        self._new_session, self._transport = session.renew, transport
        again = partial(self._notify, InStep(no_caller)), partial(self._notify, ControllerChanged())
        give_up = None if transport is None else self.give_up_office
        self._loads = LoadRetry(clock, listeners.later, *again, give_up)
        self._channels: BrokerChannels | None = None
        self._follower: ImageFollower | None = None
        if transport is not None:  # imported here: a broker without a cluster is to stay small
            from kbroker.metadata.controller.broker_channels import channels_of
            from kbroker.metadata.controller.image_follower import ImageFollower

            self._follower = ImageFollower(
                self._propagation, lambda: self._election.last_epoch(), self._notify
            )
            self._channels = channels_of(ours.node_id, transport, self._notify, listeners.dice)
        self._configs = ConfigChanges(self._propagation, rules.configs)
        self._access = AccessChanges(
            self._propagation, clock, rules.config, has_notices=transport is not None
        )
        self._partitions = PartitionChanges(self._propagation, rules.elections, ours.node_id)
        self._changes = TopicChanges(
            self._partitions, rules.config, rules.validate_configs, rules.edit_list, rules.new_id
        )
        self._own_logs = OwnLogs(self._propagation, self._partitions, ours.node_id, self._try_again)
        self._nodes: MetadataNodes | None = None  # None: another broker is the controller
        self._stale = False  # the store may hold more than the image: read it again
        self._trouble_said = ""  # why this broker cannot register, as its log says
        # The brokers as a controller knew them last; None: no controller has sent them, and we were
        # none.
        self._known: Mapping[int, BrokerImage] | None = None
        self._events_handled = self._events_failed = 0

    # --- any thread -------------------------------------------------------------------------------

    @property
    def image(self) -> ClusterImage:
        """The cluster as published last; one reference read."""
        return self._propagation.image

    @property
    def active(self) -> bool:  # whether this broker is the controller
        return self._nodes is not None

    @property
    def informed(self) -> bool:
        """Whether a controller has said what holds since this broker was registered, or it is it:
        what is published then is no empty cluster."""
        return self.active or (self._follower is not None and self._follower.follows)

    def start(self) -> None:
        """Register this broker, stand for election, load and apply; returns when all is visible.
        DataDirectoryError for a damaged or foreign store or a node id in use: the thread has ended
        then, and closing the store drops what was registered."""
        ready = threading.Event()
        failures: list[Exception] = []

        def failed(error: Exception) -> None:
            failures.append(error)
            ready.set()

        self._loop.start()
        self._loop.post(Start(ready.set, failed))
        ready.wait()
        if failures:
            self._loop.stop()
            raise failures[0]

    def stop(self) -> None:
        """Handle what is queued, leave office, end the thread. The store stays open."""
        self._loop.stop(Stop())

    @property
    def broker_epoch(self) -> int:  # of its registration; NO_BROKER_EPOCH before there is one
        return self._registration.epoch

    def doubt_registration(self) -> None:
        """The controller has answered that it does not know this broker as it is registered."""
        self.in_step(partial(self._doubt, self.broker_epoch))

    def logs_fail(self, names: Names, refusing: Names = ()) -> None:
        """This broker should not lead these partitions, whose logs are open, and no others than
        these and those that did not open; nor what is `refusing` producers, if another can."""
        self._propagation.logs_fail(names, refusing)
        self._notify(LogsFail())

    def statistics(self) -> ControllerStatistics:
        office = self.active, self._election.epoch
        counts = self._events_handled, self._events_failed
        elections = self._partitions.elections
        return ControllerStatistics.of(self.image, self._loop, office, counts, elections)

    def _post(self, event: Event) -> None:
        if not self._loop.post(event):
            full = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The controller's queue is full.")
            stopping = not_controller("this broker is stopping")
            event.fail(stopping if self._loop.stopping else full)

    @property
    def thread(self) -> OwnThread:
        return self._loop.thread

    # --- the controller thread --------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        """Decide, then answer exactly once, whatever happens."""
        self._events_handled += 1
        answer: Answer
        try:
            if self._stale and self._nodes is not None and not isinstance(event, _NEEDS_NO_LOAD):
                self._load()
            answer = self._decide(event)
        except Exception as error:
            self._events_failed += 1
            if isinstance(event, Start):
                self._nodes = None
                answer = partial(event.failed, start_trouble(error))
            else:
                answer = partial(event.fail, self._trouble(event, error))
                if isinstance(event, ControllerChanged) and not isinstance(error, _SESSION_SAYS):
                    self._try_again(event)
        try:
            if self._stale and self._nodes is not None:
                self._load()  # before the answer, so that who asks again finds the truth
        except Exception as error:
            self._trouble(None, error)
            if self._nodes is not None:
                self._loads.failed(error)
        try:
            self._send_to_brokers()
        except Exception as error:
            self.thread.failures.note("telling the other brokers", error)
        try:
            answer()
        except Exception as error:
            self.thread.failures.note(f"the callback of {type(event).__name__}", error)

    def _decide(self, event: Event) -> Answer:
        match event:
            case CreateTopics():
                return partial(event.done, self._changes.create_topics(self._office(), event))
            case CreatePartitions():
                return partial(event.done, self._changes.create_partitions(self._office(), event))
            case DeleteTopics():
                return partial(event.done, self._changes.delete_topics(self._office(), event))
            case AlterConfigs() | AlterResources():
                return self._alter(self._office(), event)
            case AlterInSync():
                return partial(event.done, self._partitions.alter_in_sync(self._office(), event))
            case ShutDown():
                return partial(event.done, self._partitions.shut_down(self._office(), event))
            case ElectLeaders():
                return partial(event.done, self._partitions.elect_leaders(self._office(), event))
            case Reassign():
                return partial(event.done, self._partitions.reassign(self._office(), event))
            case UnregisterBroker():
                unregister(self._office(), self._partitions, self._alter, self.image, event.node_id)
                return partial(event.done, None)
            case UpdateFeatures(updates, validate_only, done):
                from kbroker.metadata.controller.feature_changes import update_features

                update_features(self._office(), self._propagation, updates, validate_only)
                return partial(done, None)
            case event if isinstance(event, ACCESS_EVENTS):
                return self._access.handle(self._office(), event)
            case event if isinstance(event, NOTICE_EVENTS):
                self._follow_notices(event)
            case AllocateProducerIds():
                first = self._office().take_producer_ids(self._node_id, event.ids)
                return partial(event.done, ProducerIdBlock(first, event.ids))
            case FollowImage():
                return partial(event.done, self._followed(event.update))
            case InStep():
                return event.call
            case BrokerAnswered():
                self._note_answer(event)
            case TellBrokerAgain():
                if self._channels is not None:
                    self._channels.retry(event.sent)
            case Start():
                return self._start(event)
            case ControllerChanged():
                self._controller_changed()
            case BrokersChanged():
                self._brokers_changed()
            case Reload():
                if self._nodes is not None:
                    self._load()
                    log.info("topics and settings were read again")
            case LogsFail():
                self._own_logs.fail(self._nodes, self._store)
            case LogsReady():
                self._own_logs.ready(event.names, self._nodes, self._store, stale=self._stale)
            case LogDirEvent():
                if self._channels and self._nodes and self._nodes.take_log_dir_events():
                    self._channels.ask_all()
            case SessionLost():
                self._session_lost(event.session_id)
            case Stop():
                self._leave()
            case _:
                raise InvariantError(f"unknown event {event!r}")
        return no_caller

    def _follow_notices(self, event: NoticeEvent) -> None:
        if (nodes := self._nodes) is None:
            if self._follower is not None and not self._follower.follows:
                self._show_brokers()
        elif not self._access.notices_came(nodes, event):
            self._load()

    def _alter(self, nodes: MetadataNodes, event: AlterConfigs | AlterResources) -> Answer:
        if not event.validate_only:
            self._partitions.settings_change(nodes, event.changes)
        if isinstance(event, AlterConfigs):
            answer: Answer = partial(event.done, self._changes.alter_configs(nodes, event))
        else:
            altered = self._configs.alter(nodes, event.changes, event.validate_only)
            answer = partial(event.done, altered)
        self._partitions.settings_changed(nodes, event.changes)
        return answer

    # --- office -----------------------------------------------------------------------------------

    def _start(self, event: Start) -> Answer:
        if self.start_given_up:
            return event.started  # the stop comes next
        if event.until_ms is None:
            self._cluster_id = cluster_of(self._store, self._cluster_id)
            self._registration.add_settings(self._secrets(self._cluster_id))
        until_ms = self._registration.wait_until_ms(self._store, event.until_ms)
        if until_ms is not None:
            self._try_again(event._replace(until_ms=until_ms))
            return no_caller
        self._register()
        self._run_for_office()
        self._new_epochs = False
        return event.started

    def _register(self) -> None:
        """In the session that there is now, whose events are all handled from here on."""
        store, session_id = self._store, self._store.session_id
        self._election = Election(store, self._node_id, self._clock)
        store.on_session_event(partial(self._on_session_event, session_id))
        self._registration.make(store)
        # Armed before standing for election, so that no loss of office goes unseen, nor a broker
        # that comes or goes after the brokers were read.
        watched: tuple[tuple[str, WatchKind, Event], ...] = (
            (records.CONTROLLER, WatchKind.DATA, ControllerChanged()),
            (records.BROKER_IDS, WatchKind.CHILDREN, BrokersChanged()),
            (records.LOG_DIR_EVENTS, WatchKind.CHILDREN, LogDirEvent()),
            *((folder, WatchKind.CHILDREN, event) for folder, event in self._access.watched),
        )
        for path, kind, event in watched:
            store.watch(path, kind, partial(self._notify, event), persistent=True)

    def _session_lost(self, session_id: int) -> None:
        """Others may lead our partitions by now. So we serve no partition as a leader until we are
        registered again and the controller has sent us its image, or we are the controller."""
        if session_id != self._store.session_id:
            return  # there has been another since
        self._leave_office("the session with the metadata store is over")
        if self._new_session is None:
            return
        if self._trouble_said and self._registration.is_anothers(self._store):
            self._try_again(SessionLost(session_id))
            return
        try:
            self._lead_nothing()
            self._store = self._new_session()
            self._register()
        except Exception as error:
            if not isinstance(error, StoreError | UserError):
                self.thread.failures.note("the registration", error)
            if (trouble := str(error)) != self._trouble_said:
                log.error(
                    "broker %d is not registered, and tries again: %s", self._node_id, trouble
                )
            self._trouble_said = trouble
            self._try_again(SessionLost(self._store.session_id))
            return
        self._trouble_said = ""
        log.info("broker %d is registered again, in epoch %d", self._node_id, self.broker_epoch)
        self._run_for_office()

    def _lead_nothing(self) -> None:
        """This broker is not registered, as far as it knows."""
        self._registration.epoch = NO_BROKER_EPOCH
        if self._follower is not None:
            self._follower.forget()
        self._propagation.lead_nothing()

    def _doubt(self, broker_epoch: int) -> None:
        """The store decides; as long as it is away, others may lead what this broker led."""
        if broker_epoch != self.broker_epoch:
            return  # there has been another registration since
        try:
            if not self._registration.is_there(self._store):
                self._notify(SessionLost(self._store.session_id))
        except StoreError:
            self._leave_office("the controller does not know this broker, and the store is away")
            self._lead_nothing()
            self._try_again(InStep(partial(self._doubt, NO_BROKER_EPOCH)))

    def _try_again(self, event: Event) -> None:
        if self._transport is not None:
            self._transport.later(STORE_RETRY_MS, partial(self._notify, event))

    def _run_for_office(self) -> None:
        # A broker that is not registered leads nothing, and would elect itself.
        stays_out = self.broker_epoch == NO_BROKER_EPOCH or self._loads.stands_aside
        if not stays_out and self._election.try_win():
            self._nodes = MetadataNodes(self._store, self._election.fence, self._election.epoch)
            if self._follower is not None:
                self._follower.accept_epoch(self._election.epoch)
            log.info("node %d is the controller, epoch %d", self._node_id, self._election.epoch)
            self._load()
            return
        self._nodes = None
        self._show_brokers()

    def _show_brokers(self) -> None:
        """What a broker publishes by itself that is not the controller: who that is, and, as long
        as no controller has sent its image, which other brokers there are."""
        elected = self._election.current_controller()
        image = replace(self.image, cluster_id=self._cluster_id or "", controller_id=elected)
        if self._follower is None or not self._follower.follows:
            image = image.with_brokers(load_brokers(self._store))
            image = self._access.without_controller(image, self._store)
        self._propagation.publish(image)

    def _followed(self, update: ImageUpdate) -> ImageAnswer:
        if self._follower is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "This broker is not part of a cluster.")
        if error := self._follower.refusal(update, self.broker_epoch, self._cluster_id):
            return ImageAnswer(error)
        if (epoch := update.controller_epoch) > self._follower.epoch:
            self._leave_office(f"node {update.controller_id} is, in epoch {epoch}")
        answer = self._follower.follow(update)
        if answer.error is ErrorCode.NONE:
            self._known = self.image.brokers
            self._note_start()
        return answer

    def _note_start(self, again: bool = False) -> None:
        if not self._registration.note_image(self.image, again=again):
            self._try_again(InStep(partial(self._note_start, again=True)))

    def _note_answer(self, event: BrokerAnswered) -> None:
        sent, answer = event
        if self._channels and self._nodes and self._channels.answered(sent, answer) and answer:
            self._partitions.note_closed(self._nodes, sent.node_id, answer.offline, answer.refusing)

    def _send_to_brokers(self) -> None:
        if self._nodes is None or self._stale:
            return
        self._known = self.image.brokers
        self._announce(self.image)

    def _announce(self, image: ClusterImage) -> None:
        if self._nodes is not None and self._channels is not None:
            self._channels.follow(image, self._election.epoch)

    def _brokers_changed(self) -> None:
        ours = self.broker_epoch != NO_BROKER_EPOCH and self._new_session is not None
        if ours and not self._registration.is_there(self._store):
            log.warning("this broker's registration was removed or replaced: it registers again")
            self._session_lost(self._store.session_id)
        elif self._nodes is None:
            self._show_brokers()
        else:
            self._partitions.brokers_changed(self._nodes, load_brokers(self._store))

    def _load(self) -> None:
        """Make the image what the store says, and have all listeners follow."""
        nodes, self._stale = self._office(), True  # until this has worked
        made = ClusterImage(cluster_id=self._cluster_id or "", controller_id=self._node_id)
        image, loaded = load_image(nodes, self._access, self.image, made)
        if self._follower is not None:
            self._follower.store_read()
        self._propagation.follow_settings(image)  # before we elect by them
        # Without knowledge of the earlier brokers we cannot tell which have started again since.
        anew = self._new_epochs or (self._known is None and self._channels is not None)
        known, lost = self._known or image.brokers, loaded.unreadable
        image = self._partitions.elect(nodes, image, known, new_epochs=anew, unreadable=lost)
        delta = delta_since(self.image, image, loaded)
        removed = self._partitions.catch_up(nodes, image, delta)
        forget_deletions(nodes, [each for each in removed if each in loaded.deletions])
        self._stale = False
        self._loads.worked()
        self._notify(LogDirEvent())  # one that was not taken would hide the next
        self._note_start()

    def _office(self) -> MetadataNodes:
        if self._nodes is None:
            raise not_controller("another broker is the controller")
        return self._nodes

    def _controller_changed(self) -> None:
        if self._nodes is not None and self._election.holds_office():
            return
        self._leave_office("another controller was elected, or /controller was deleted")
        if self._follower is not None and self._follower.correct():
            self._session_lost(self._store.session_id)  # so that all is sent anew
        else:
            self._run_for_office()

    def _leave_office(self, reason: str) -> None:
        if self._nodes is not None:
            log.warning("node %d is no longer the controller: %s", self._node_id, reason)
            self._nodes = None
            if self._channels is not None:
                self._channels.leave()

    def _leave(self) -> None:
        """A clean stop: the next broker need not wait for our session to expire."""
        self._registration.note_image(self.image, again=True)
        try:
            if self._nodes is not None:
                self._election.resign()
            self._registration.remove(self._store)
        except (SessionExpiredError, NoNodeError):
            pass  # already gone, which is what we want
        finally:
            self._nodes = None

    def _on_session_event(self, session_id: int, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._notify(SessionLost(session_id))
        elif event is SessionEvent.CONNECTED:
            # Calls made meanwhile have failed, and no other event has them made again.
            again = ControllerChanged, BrokersChanged, LogDirEvent, *NOTICE_EVENTS
            for notice in (each() for each in again):
                self._notify(notice)

    def _notify(self, event: Event, _: object = None) -> None:
        self._loop.post(event, urgent=True)

    def _trouble(self, event: Event | None, error: Exception) -> KafkaError:
        """The error that the caller gets; and our own reaction to it."""
        what = "reading the store" if event is None else type(event).__name__
        match error:
            case KafkaError():
                return error
            case FencedError() | SessionExpiredError():
                self._leave_office(f"{what}: {error}")
                return not_controller("this broker is no longer the controller")
            case StoreUnavailableError():
                self._stale = True
                log.error("%s: the metadata store failed: %s", what, error)
                return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata store failed.")
            case _:
                # Whatever was half done, the store is the truth: start again from there. A load
                # looks for failing logs, too: what goes wrong with that must not call for a load.
                self._stale = self._stale or not isinstance(event, LogDirEvent)
                self.thread.failures.note(what, error)
                return KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR, "The controller failed; see the broker's log."
                )
