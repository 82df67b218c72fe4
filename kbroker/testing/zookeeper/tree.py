"""The nodes of a ZooKeeper that is kept in memory, and what a transaction makes of them.

Place in the flow: `server.py` serves one to the brokers of a `Cluster` by ZooKeeper's protocol; the
simulator gives one to simulated brokers. Operations and errors are those of the metadata store
(kbroker/metadata/store/base.py), so a tree knows nothing of bytes on a wire.

A transaction happens whole or not at all and takes the next zxid. Its caller gets the changes
in their order, and notifies the clients: there are no watches here, no clock and no thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kbroker.metadata.store.base import (
    BadVersionError,
    Check,
    Create,
    Delete,
    EphemeralParentError,
    EventType,
    MultiError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Set,
    StoreError,
    parent_of,
)

# CREATED, CHANGED or DELETED, and the node; what its parent's children are follows from that.
Changes = list[tuple[EventType, str]]
_PERSISTENT = 0


@dataclass(slots=True)
class Znode:
    """A node; `created`, `changed` and `children_changed` are the last such transactions' zxids."""

    data: bytes
    owner: int  # the session of an ephemeral node, 0 for a persistent one
    created: int
    changed: int
    children_changed: int
    version: int = 0
    children_version: int = 0
    children: set[str] = field(default_factory=set)


class Tree:
    """All nodes by their paths; '/' is always there."""

    def __init__(self) -> None:
        self.zxid = 0
        self._nodes = {"/": Znode(b"", _PERSISTENT, 0, 0, 0)}
        self._owned: dict[int, set[str]] = {}  # ephemeral nodes, by session
        self._undo: list[Callable[[], None]] = []

    def find(self, path: str) -> Znode | None:
        return self._nodes.get(path)

    def node(self, path: str) -> Znode:
        """Raises NoNodeError."""
        found = self._nodes.get(path)
        if found is None:
            raise NoNodeError(path)
        return found

    def multi(self, session_id: int, operations: Sequence[Operation]) -> tuple[list[int], Changes]:
        """The versions that `MetadataStore.multi` answers with, and the changes in their order.

        Raises MultiError, and nothing has changed.
        """
        versions: list[int] = []
        changes: Changes = []
        self.zxid += 1
        self._undo.clear()
        for index, operation in enumerate(operations):
            try:
                versions.append(self._apply(session_id, operation, changes))
            except StoreError as error:
                while self._undo:
                    self._undo.pop()()
                raise MultiError(index, error) from None
        return versions, changes

    def end(self, session_id: int) -> Changes:
        """The session is over: its ephemeral nodes vanish, in the order of their paths."""
        changes: Changes = []
        owned = sorted(self._owned.get(session_id, ()))
        if owned:
            self.zxid += 1
        for path in owned:
            self._delete(path, self._nodes[path], changes)
        self._undo.clear()
        return changes

    def _apply(self, session_id: int, operation: Operation, changes: Changes) -> int:
        if isinstance(operation, Create):
            return self._create(session_id, operation, changes)
        path = operation.path
        node = self.node(path)
        if operation.version is not None and operation.version != node.version:
            raise BadVersionError(path, f"expected {operation.version}, found {node.version}")
        match operation:
            case Check():
                return node.version
            case Set():
                return self._set(node, operation, changes)
            case Delete():
                if node.children:
                    raise NotEmptyError(path)
                self._delete(path, node, changes)
                return -1

    def _create(self, session_id: int, operation: Create, changes: Changes) -> int:
        path, parent = operation.path, self.node(parent_of(operation.path))
        if operation.sequential:
            path += f"{parent.children_version:010d}"
        if path in self._nodes:
            raise NodeExistsError(path)
        if parent.owner != _PERSISTENT:
            raise EphemeralParentError(path)
        owner = session_id if operation.ephemeral else _PERSISTENT
        node = Znode(operation.data, owner, self.zxid, self.zxid, self.zxid)
        self._put(path, node)
        self._undo.append(lambda: self._take(path, node))
        self._count_change(parent)
        changes.append((EventType.CREATED, path))
        return 0

    def _set(self, node: Znode, operation: Set, changes: Changes) -> int:
        before = node.data, node.changed, node.version

        def back() -> None:
            node.data, node.changed, node.version = before

        node.data, node.changed, node.version = operation.data, self.zxid, node.version + 1
        self._undo.append(back)
        changes.append((EventType.CHANGED, operation.path))
        return node.version

    def _delete(self, path: str, node: Znode, changes: Changes) -> None:
        self._take(path, node)
        self._undo.append(lambda: self._put(path, node))
        self._count_change(self._nodes[parent_of(path)])
        changes.append((EventType.DELETED, path))

    def _count_change(self, parent: Znode) -> None:
        before = parent.children_version, parent.children_changed

        def back() -> None:
            parent.children_version, parent.children_changed = before

        parent.children_version, parent.children_changed = before[0] + 1, self.zxid
        self._undo.append(back)

    def _put(self, path: str, node: Znode) -> None:
        self._nodes[path] = node
        self._nodes[parent_of(path)].children.add(path.rpartition("/")[2])
        if node.owner != _PERSISTENT:
            self._owned.setdefault(node.owner, set()).add(path)

    def _take(self, path: str, node: Znode) -> None:
        del self._nodes[path]
        self._nodes[parent_of(path)].children.discard(path.rpartition("/")[2])
        if node.owner != _PERSISTENT:
            owned = self._owned[node.owner]
            owned.discard(path)
            if not owned:
                del self._owned[node.owner]
