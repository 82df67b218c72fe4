"""A broker's registration: the ephemeral node that says it is alive, where, and with which disks.

Place in the flow: the controller's thread registers at start, the server adds the directories once
they have ids. ZooKeeper keeps the node of a broker that was killed until its session times out. A
broker that finds one under its id looks at the directories in it: whoever has locked one of them
is what that process was before, and takes its place; /controller goes with it, if it was that too.
Otherwise two brokers have one id, and the second does not start.
"""

from __future__ import annotations

from collections.abc import Collection

from kbroker.errors import DataDirectoryError
from kbroker.metadata.controller import records
from kbroker.metadata.image import BrokerImage
from kbroker.metadata.store.base import (
    BadVersionError,
    Create,
    Delete,
    MetadataStore,
    MultiError,
    Node,
    NodeExistsError,
    NoNodeError,
    Operation,
)


def register(
    store: MetadataStore, broker: BrokerImage, directories: Collection[str], now_ms: int
) -> int:
    """The broker epoch of this incarnation: larger than that of every one before it.

    `directories` are the ids of those that this process has locked. DataDirectoryError where
    another broker has the id.
    """
    path = records.broker_path(broker.node_id)
    data = records.encode_broker(broker, now_ms, directories)
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
    node = store.get(path)
    if records.decode_broker_directories(path, node.data) != frozenset(directories):
        store.set(path, records.with_directories(path, node.data, directories), node.version)


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
