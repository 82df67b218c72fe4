"""A broker's registration: the ephemeral node that says that it is alive, and where.

Place in the flow: the controller's thread registers at start, and in each new session. ZooKeeper
keeps the node of a broker that was killed until its session times out. The node names the locks of
its data directories (`DataDirectory.lock_name`). A broker that finds a registration under its id
and holds one of these locks has the proof that the process that made it is dead: it replaces the
registration at once, and /controller with it, if that process was the controller. Without the proof
(a copy of the data directory, another machine, a registration that names no locks) the other broker
may be alive: the session is left to end, and if it does not, two brokers have one id and this one
does not start (`Controller._start`).

A registration says as well whether this start is **lossy**: its logs may lack records that the
broker acknowledged before. The controller that takes account of it notes the broker epoch
(`MetadataNodes.note_losses`), since the next one would take the broker for one that has just
started. And it says how the broker speaks to others (`peer_versions.py`), which a broker looks at
that comes later. A broker that does not know what its cluster writes withdraws its registration:
after it the formats and the levels of features are checked again (`Session.check`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

from kbroker.clock import Clock
from kbroker.errors import ConfigError, DataDirectoryError, UserError
from kbroker.metadata.controller import records
from kbroker.metadata.controller.peer_versions import check_others, with_versions
from kbroker.metadata.controller.skeleton import ensure_skeleton
from kbroker.metadata.image import NO_BROKER_EPOCH, BrokerImage, ClusterImage, new_uuid
from kbroker.metadata.store.base import (
    BadVersionError,
    Create,
    Delete,
    MetadataStore,
    MultiError,
    Node,
    NodeExistsError,
    NoNodeError,
    NotAllowedError,
    Operation,
    StoreError,
    StoreUnavailableError,
)
from kbroker.types import uuid_text

log = logging.getLogger("kbroker.controller")

# A server of ZooKeeper looks at its sessions once in a tick, by default two seconds.
SESSION_END_MS: Final = 2_000

Locks = Callable[[], Collection[str]]
Check = Callable[[MetadataStore], None]


def serves_all(store: MetadataStore) -> None:
    """Whatever the cluster writes."""


class Registration:
    """Of this start of our broker, in the session with the store that there is now.

    It is lossy until a controller has taken account of it. That is then written down here, too, for
    the start after this one. On the controller's thread, but for `epoch`, which any thread may
    read.
    """

    def __init__(
        self,
        broker: BrokerImage,
        locks: Locks,
        clock: Clock,
        session_timeout_ms: int | None,
        known: Callable[[], None],
        check: Check = serves_all,
    ) -> None:
        """`session_timeout_ms` is None where no other broker has a session. `known` is called once
        a controller has taken account of a lossy start; OSError if that cannot be written down.
        Where there are others, `note_image` comes again by itself then, else with every image."""
        self.broker = broker
        self.epoch = NO_BROKER_EPOCH  # before there is one, and after the end of its session
        self._path = records.broker_path(broker.node_id)
        self._locks = locks
        self._clock = clock
        self._session_timeout_ms = session_timeout_ms
        self._known = known
        self._check = check
        self._is_noted = not broker.lossy
        self._comes_again = False

    def add_settings(self, settings: Mapping[str, str]) -> None:
        """Those that the broker registers with, too."""
        self.broker = replace(
            self.broker, settings=(*self.broker.settings, *sorted(settings.items()))
        )

    def make(self, store: MetadataStore) -> None:
        now_ms = self._clock.wall_ms()
        self.epoch = register(store, self.broker, self._locks(), now_ms, self._check)

    def is_there(self, store: MetadataStore) -> bool:
        """Whether the one in the store is this."""
        try:
            return store.get(self._path).created == self.epoch
        except NoNodeError:
            return False

    def is_anothers(self, store: MetadataStore) -> bool:
        """Whether another process has the id, as far as the store can be asked, and it cannot be
        proved dead: no other process can register in its place."""
        try:
            node = store.get(self._path)
        except StoreError:
            return False
        return node.created != self.epoch and not _is_of_the_dead(self._path, node, self._locks())

    def remove(self, store: MetadataStore) -> None:
        """This, and no other one."""
        if self.is_there(store):
            store.delete(self._path)

    def wait_until_ms(self, store: MetadataStore, until_ms: int | None) -> int | None:
        """Until when a start waits for the end of another's session (None at first: it begins to
        wait). None: it goes on, since the id is free or the time is over."""
        if self._session_timeout_ms is None:
            return None
        now_ms = self._clock.monotonic_ms()
        try:
            if _is_of_the_dead(self._path, store.get(self._path), self._locks()):
                return None
        except NoNodeError:
            return None
        except StoreUnavailableError:
            if until_ms is None:
                raise
            # Away for a while: it may be back before the time is over.
        if until_ms is None:
            wait_ms = self._session_timeout_ms + SESSION_END_MS
            until_ms = now_ms + wait_ms
            log.warning(
                "node.id %d is registered, and it cannot be proved that the process that did it is"
                " dead: waiting for the end of its session, %d ms at most",
                self.broker.node_id, wait_ms,
            )  # fmt: skip
        return until_ms if now_ms < until_ms else None

    def note_image(self, image: ClusterImage, *, again: bool = False) -> bool:
        """This is an image that a controller has decided on. If that has taken account of this
        start, we do not register as lossy from then on. False if it could not be noted: as long as
        it is not, a crash of our process alone counts as a loss of the records acknowledged since.
        Then it is to come `again`, once, whatever images come until that."""
        self._comes_again = self._comes_again and not again
        seen = image.brokers.get(self.broker.node_id)
        if self._is_noted or seen is None or seen.epoch != self.epoch or seen.lossy:
            return True
        self.broker = replace(self.broker, lossy=False)
        if self._comes_again:
            return True
        try:
            self._known()
        except OSError as error:
            log.warning("it cannot be noted that this lossy start is known, and again: %s", error)
            self._comes_again = self._session_timeout_ms is not None
            return False
        self._is_noted = True
        return True


def cluster_of(store: MetadataStore, cluster_id: str | None) -> str:
    """The id of the cluster in the store, which is made if there was none. DataDirectoryError if
    the data directories are another's, of this id."""
    known = ensure_skeleton(store, cluster_id or uuid_text(new_uuid()))
    if cluster_id not in (None, known):
        raise DataDirectoryError(
            f"the metadata store belongs to cluster {known}, not to {cluster_id}",
            "use the data directory and the store of one cluster together",
        )
    return known


def register(
    store: MetadataStore,
    broker: BrokerImage,
    locks: Collection[str],
    now_ms: int,
    check: Check = serves_all,
) -> int:
    """The broker epoch of this incarnation: larger than that of every one before it.

    `locks` are the names of those that this process holds. DataDirectoryError where another broker
    has the id, MetadataStoreError where another has no version in common with it, or what `check`
    raises.
    """
    _check_cluster(store, broker, check)  # no other broker sees one that cannot join
    epoch = _be_there(store, broker, locks, now_ms)
    try:
        # After the registration: of two that come at once one at least sees the other. So it is
        # with a level of a feature, which the controller raises if the registered brokers have it.
        _check_cluster(store, broker, check)
    except UserError:
        store.delete(records.broker_path(broker.node_id))
        raise
    return epoch


def _check_cluster(store: MetadataStore, broker: BrokerImage, check: Check) -> None:
    check_others(store, broker.node_id)
    check(store)


def _be_there(
    store: MetadataStore, broker: BrokerImage, locks: Collection[str], now_ms: int
) -> int:
    path = records.broker_path(broker.node_id)
    data = with_versions(records.encode_broker(broker, now_ms, locks))
    while True:
        try:
            store.create(path, data, ephemeral=True)
            return store.get(path).created
        except NodeExistsError:
            pass
        try:
            _replace(store, path, data, locks)
            return store.get(path).created
        except NoNodeError:
            continue  # its session has just ended


def start_trouble(error: Exception) -> Exception:
    """The error of a broker that cannot register, or take part in an election."""
    cause = error.cause if isinstance(error, MultiError) else error
    if isinstance(cause, NotAllowedError):
        return ConfigError(
            f"ZooKeeper does not let this broker write {cause.path} below the path of"
            " zookeeper.connect",
            "log in as a user who may (zookeeper.auth.scheme), or change the ACL with zkCli.sh",
        )
    if isinstance(error, StoreError):
        return DataDirectoryError(f"the metadata store cannot be used: {error}")
    return error


def _is_of_the_dead(path: str, node: Node, locks: Collection[str]) -> bool:
    """Whether the process that made this registration is dead: it held a lock that we hold now."""
    return not records.decode_broker_locks(path, node.data).isdisjoint(locks)


def _replace(store: MetadataStore, path: str, data: bytes, locks: Collection[str]) -> None:
    dead = store.get(path)
    if not _is_of_the_dead(path, dead, locks):
        raise DataDirectoryError(
            f"node.id {path.rpartition('/')[2]} is in use: another broker is registered under it in"
            f" {records.BROKER_IDS}, and its session with ZooKeeper goes on",
            "stop that broker if it runs from a copy of this data directory, else give every broker"
            " its own node.id",
        )
    operations: list[Operation] = [
        Delete(path, dead.version),
        Create(path, data, ephemeral=True),
    ]
    office = _office_of(store, dead)
    if office is not None:
        operations.append(Delete(records.CONTROLLER, office.version))
    try:
        store.multi(operations)
    except MultiError as error:
        if isinstance(error.cause, NoNodeError | BadVersionError):
            raise NoNodeError(path, "gone meanwhile") from None
        raise error.cause from None


def _office_of(store: MetadataStore, broker: Node) -> Node | None:
    """/controller, if it is of the same session."""
    try:
        office = store.get(records.CONTROLLER)
    except NoNodeError:
        return None
    return office if office.owner == broker.owner else None
