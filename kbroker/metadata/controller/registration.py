"""A broker's registration: the ephemeral node that says it is alive, where, and with which disks.

Place in the flow: the controller's thread registers at start, the server adds the directories once
they have ids. ZooKeeper keeps the node of a broker that was killed until its session times out. A
broker that finds one under its id looks at the directories in it: whoever has locked one of them
is what that process was before, and takes its place; /controller goes with it, if it was that too.
Otherwise two brokers have one id, and the second does not start.

A registration says as well whether this start is **lossy**: its logs may be shorter than what the
broker acknowledged before. The controller that takes account of it notes the broker epoch
(`MetadataNodes.note_losses`), since the next one would take the broker for one that has just
started. And it says how the broker speaks to others (`peer_versions.py`), which a broker looks at
that comes later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace

from kbroker.errors import ConfigError, DataDirectoryError, MetadataStoreError
from kbroker.metadata.controller import records
from kbroker.metadata.controller.peer_versions import check_others, with_versions
from kbroker.metadata.image import BrokerImage, ClusterImage
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
)

log = logging.getLogger("kbroker.controller")


class Incarnation:
    """This start of our broker, as it registers: lossy, until a controller has heard that. Then
    that is written down here, too, for the start after this one."""

    def __init__(
        self, broker: BrokerImage, known: Callable[[], None], *, is_retried: bool = True
    ) -> None:
        """`known` is called once a controller has heard of a lossy start; OSError if that cannot be
        written down. `is_retried`: then `heard` comes again by itself, else with every image."""
        self.broker = broker
        self._known = known
        self._is_retried = is_retried
        self._is_noted = not broker.lossy
        self._comes_again = False

    def heard(self, broker_epoch: int, image: ClusterImage, *, again: bool = False) -> bool:
        """This is an image that a controller has decided on. If that has taken account of this
        start, we do not register as lossy from then on. False if it could not be noted: as long as
        it is not, a crash of our process alone counts as a loss of what we have acknowledged since.
        Then it is to come `again`, once, whatever images come until that."""
        self._comes_again = self._comes_again and not again
        seen = image.brokers.get(self.broker.node_id)
        if self._is_noted or seen is None or seen.epoch != broker_epoch or seen.lossy:
            return True
        self.broker = replace(self.broker, lossy=False)
        if self._comes_again:
            return True
        try:
            self._known()
        except OSError as error:
            log.warning("it cannot be noted that this lossy start is known, and again: %s", error)
            self._comes_again = self._is_retried
            return False
        self._is_noted = True
        return True


def register(
    store: MetadataStore, broker: BrokerImage, directories: Collection[str], now_ms: int
) -> int:
    """The broker epoch of this incarnation: larger than that of every one before it.

    `directories` are the ids of those that this process has locked. DataDirectoryError where
    another broker has the id, MetadataStoreError where one is there with whom it cannot speak.
    """
    epoch = _be_there(store, broker, directories, now_ms)
    try:
        # Behind the registration: of two that come at once one at least sees the other.
        check_others(store, broker.node_id)
    except MetadataStoreError:
        store.delete(records.broker_path(broker.node_id))
        raise
    return epoch


def _be_there(
    store: MetadataStore, broker: BrokerImage, directories: Collection[str], now_ms: int
) -> int:
    path = records.broker_path(broker.node_id)
    data = with_versions(records.encode_broker(broker, now_ms, directories))
    while True:
        try:
            store.create(path, data, ephemeral=True)
            return store.get(path).created
        except NodeExistsError:
            pass
        try:
            _replace(store, path, data, directories)
            return store.get(path).created
        except NoNodeError:
            continue  # its session has just ended


def add_directories(store: MetadataStore, node_id: int, directories: Collection[str]) -> None:
    """Say in our registration which directories we have, now that all have ids."""
    path = records.broker_path(node_id)
    while True:
        node = store.get(path)
        data = records.with_directories(path, node.data, directories)
        if data == node.data:
            return
        try:
            store.set(path, data, node.version)
        except BadVersionError:
            continue  # our other thread has registered anew
        return


def start_trouble(error: Exception) -> Exception:
    """What somebody is told whose broker cannot register, or stand for election."""
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


def _replace(store: MetadataStore, path: str, data: bytes, directories: Collection[str]) -> None:
    dead = store.get(path)
    if records.decode_broker_directories(path, dead.data).isdisjoint(directories):
        raise DataDirectoryError(
            f"a broker with node.id {path.rpartition('/')[2]} is registered already",
            "give every broker its own node.id; one that was killed before its first start was"
            " over is gone after zookeeper.session.timeout.ms",
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
