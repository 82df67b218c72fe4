"""The contract of the metadata store: a small tree of versioned nodes that survives its users.

Place in the flow: only the controller (and, at start and stop, the server) talks to a store;
handlers read the published `ClusterImage` and never wait for one. `embedded.py` implements the
contract on SQLite for one broker process, `zookeeper.py` on an ensemble for several.

What every implementation promises, and what its contract tests check:

- A node is at most `NODE_BYTES_MAX` bytes with a version: 0 when created, one more per `set`. A
  node that is deleted and created again starts at 0, so a version alone is no identity across that;
  `created` is one: it grows with every `multi` that creates, of any client.
- A method returns after its effect is durable, and raises without any effect; the one exception is
  `StoreUnavailableError`, whose outcome is unknown: read again before deciding anything. What a
  session reads after such an error is decided: a write that it does not show will not come later.
- `multi` is all or nothing, also across a crash.
- One object is one session. Ephemeral nodes vanish when the session ends: by `close`, by expiry, or
  because its process died. They have no children. A session that was lost never comes back, and no
  other takes its place unseen: `new_session` begins the next one, under another `session_id`.
- Watches and session events arrive one at a time on the session's own callback thread, never on the
  thread that caused them and never under a lock of the store, so a callback may use the store. An
  event says "look again", nothing more: arm first, then read, and no change is missed. Changes
  while the session is cut off are notified when it is back, if they left another state than before.

Any thread may call any method. Paths are absolute, of non-empty segments; '/' always exists.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple

# A networked ensemble refuses frames of one megabyte by default, so a node and the sum of one
# `multi` (see `Operation.size_bytes`) stay below that with room for framing.
NODE_BYTES_MAX: Final = 512 * 1024
MULTI_BYTES_MAX: Final = 768 * 1024
# Counted for an operation beside its path and data. On the wire it has a header and lengths, a
# creation an ACL (64 bytes together), and ZooKeeper's chroot is put before each path.
OPERATION_BYTES: Final = 128
CHROOT_BYTES_MAX: Final = 100
# Deepest path in use is five segments; topic names have at most 249 characters.
PATH_CHARS_MAX: Final = 1024

_PERSISTENT_OWNER: Final = 0
# Characters that ZooKeeper has in no path (PathUtils.validatePath): control characters, private
# ones, those that are two chars of Java, and Unicode's "specials" with U+FFFD.
_REFUSED: Final = re.compile(r"[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")


class StoreError(Exception):
    """Base of everything a store raises; `path` is the node it is about, if one is."""

    def __init__(self, path: str = "", detail: str = "") -> None:
        super().__init__(path, detail)
        self.path = path
        self.detail = detail

    def __str__(self) -> str:
        return ": ".join(part for part in (type(self).__name__, self.path, self.detail) if part)


class NoNodeError(StoreError):
    """The node, or the parent of the node to create, does not exist."""


class NodeExistsError(StoreError):
    """The node to create exists."""


class BadVersionError(StoreError):
    """The node's version is not the expected one: another client wrote in between."""


class NotEmptyError(StoreError):
    """The node to delete has children."""


class EphemeralParentError(StoreError):
    """The parent of the node to create is ephemeral, and those have no children."""


class SessionExpiredError(StoreError):
    """The session is over, its ephemeral nodes are gone; this object will not work again."""


class NotAllowedError(StoreError):
    """The store does not let this session do that: another credential, or another ACL."""


class StoreUnavailableError(StoreError):
    """The store could not be reached or could not write; whether it did is unknown."""


class MultiError(StoreError):
    """A `multi` had no effect because the operation at `index` failed with `cause`."""

    def __init__(self, index: int, cause: StoreError) -> None:
        super().__init__(cause.path, f"operation {index}: {cause}")
        self.index = index
        self.cause = cause


class Node(NamedTuple):
    """What `get` sees of one node at one moment."""

    data: bytes
    version: int
    owner: int = _PERSISTENT_OWNER  # session id of an ephemeral node, 0 for a persistent one
    created: int = 0  # which `multi` of all that there were created it

    @property
    def ephemeral(self) -> bool:
        return self.owner != _PERSISTENT_OWNER


class Create(NamedTuple):
    """Create a node under an existing parent.

    `sequential`: the store appends ten digits to the path, a greater number than it gave to the
    parent's children before.
    """

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False

    @property
    def size_bytes(self) -> int:
        return OPERATION_BYTES + len(self.path) + len(self.data)


class Set(NamedTuple):
    """Replace a node's data if it still has `version`; None means whatever version it has."""

    path: str
    data: bytes
    version: int | None = None

    @property
    def size_bytes(self) -> int:
        return OPERATION_BYTES + len(self.path) + len(self.data)


class Delete(NamedTuple):
    """Delete a childless node if it still has `version`; None means whatever version it has."""

    path: str
    version: int | None = None

    @property
    def size_bytes(self) -> int:
        return OPERATION_BYTES + len(self.path)


class Check(NamedTuple):
    """Do nothing, but fail the `multi` unless the node has `version`: the fence of a writer."""

    path: str
    version: int

    @property
    def size_bytes(self) -> int:
        return OPERATION_BYTES + len(self.path)


Operation = Create | Set | Delete | Check


class WatchKind(Enum):
    """DATA: the node is created, changed or deleted. CHILDREN: it gains or loses a child."""

    DATA = "data"
    CHILDREN = "children"


class EventType(Enum):
    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN = "children"


class WatchEvent(NamedTuple):
    type: EventType
    path: str


class SessionEvent(Enum):
    """SUSPENDED: cut off, outcome of recent calls unknown. CONNECTED: back, ephemerals intact.
    EXPIRED: over for good; a caller that needs a session opens a new store."""

    SUSPENDED = "suspended"
    CONNECTED = "connected"
    EXPIRED = "expired"


WatchCallback = Callable[[WatchEvent], None]
SessionCallback = Callable[[SessionEvent], None]


class Watch(ABC):
    """A handle on an armed watch."""

    @abstractmethod
    def cancel(self) -> None:
        """No callback runs or begins after this returns; one that runs is waited for.

        From a callback it does not wait, and only this one callback may still be running then. Not
        to be called with a lock that the callback may want.
        """


class MetadataStore(ABC):
    """One session with a store. The rules of all methods are at the head of this file."""

    @property
    @abstractmethod
    def session_id(self) -> int:
        """A positive number, never used again by this store; owner of our ephemeral nodes."""

    @abstractmethod
    def new_session(self) -> MetadataStore:
        """Another session with the same store, which outlives this one or follows it."""

    @abstractmethod
    def get(self, path: str) -> Node:
        """Raises NoNodeError."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether the node exists now."""

    @abstractmethod
    def children(self, path: str) -> list[str]:
        """The names (not paths) of the children, sorted. Raises NoNodeError."""

    @abstractmethod
    def children_data(self, path: str) -> dict[str, Node]:
        """Every child by name, sorted; raises NoNodeError if `path` itself does not exist.

        Not a snapshot: a networked store reads some children at a time (in flight together), so
        one that vanished meanwhile is left out and others may be of different moments.
        """

    @abstractmethod
    def get_many(self, paths: Sequence[str]) -> dict[str, Node]:
        """Those of the nodes that exist, by path; no more of a snapshot than `children_data`."""

    @abstractmethod
    def multi(self, operations: Sequence[Operation]) -> list[int]:
        """Apply all operations in order, or none; the resulting version of each node (-1: deleted).

        Raises MultiError, whose `cause` is what the single operation would have raised, and
        ValueError for more than MULTI_BYTES_MAX bytes. Later operations see earlier ones' effects.
        """

    @abstractmethod
    def watch(
        self, path: str, kind: WatchKind, callback: WatchCallback, *, persistent: bool = False
    ) -> Watch:
        """Call back after the next change (one-shot), or after every change until cancelled.

        A DATA watch may be armed on a node that does not exist; a CHILDREN watch may not
        (NoNodeError), and ends with a DELETED event when its node is deleted. A watch has at most
        one undelivered event: further changes before its delivery only update the event's type.
        Events of different watches arrive in the order of the changes. Watches end with the
        session, without an event of their own.
        """

    @abstractmethod
    def on_session_event(self, callback: SessionCallback) -> None:
        """Also call this back for every SessionEvent, in order with the watches."""

    @abstractmethod
    def close(self) -> None:
        """End the session: ephemeral nodes vanish, callbacks stop. May be called again."""

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        """Raises NodeExistsError, NoNodeError (no parent), EphemeralParentError."""
        self._single(Create(path, data, ephemeral))

    def set(self, path: str, data: bytes, version: int | None = None) -> int:
        """Replace the data; the new version. Raises NoNodeError, BadVersionError."""
        return self._single(Set(path, data, version))

    def delete(self, path: str, version: int | None = None) -> None:
        """Raises NoNodeError, BadVersionError, NotEmptyError."""
        self._single(Delete(path, version))

    def ensure(self, path: str) -> None:
        """Create the node and all parents that are missing, empty and persistent."""
        missing: list[str] = []
        while path != "/" and not self.exists(path):
            missing.append(path)
            path = parent_of(path)
        for each in reversed(missing):
            try:
                self.create(each)
            except NodeExistsError:
                pass  # another client was faster; the node is there

    def _single(self, operation: Operation) -> int:
        try:
            return self.multi([operation])[0]
        except MultiError as error:
            raise error.cause from None


def check_path(path: str) -> None:
    """ValueError unless the path is one that every implementation accepts."""
    if path == "/":
        return
    if not path.startswith("/") or path.endswith("/") or len(path) > PATH_CHARS_MAX:
        raise ValueError(f"bad store path {path!r}")
    for segment in path[1:].split("/"):
        if segment in ("", ".", "..") or _REFUSED.search(segment):
            raise ValueError(f"bad segment {segment!r} in store path {path!r}")


def parent_of(path: str) -> str:
    """The path of the parent; of a child of the root, '/'."""
    return path.rpartition("/")[0] or "/"


def check_operations(operations: Sequence[Operation]) -> None:
    """ValueError unless paths and sizes are ones that every implementation accepts."""
    total_bytes = 0
    for operation in operations:
        check_path(operation.path)
        if isinstance(operation, Create | Set) and len(operation.data) > NODE_BYTES_MAX:
            raise ValueError(f"{operation.path}: {len(operation.data)} bytes > {NODE_BYTES_MAX}")
        if operation.path == "/" and isinstance(operation, Create | Delete):
            raise ValueError("the root is neither created nor deleted")
        total_bytes += operation.size_bytes
    if total_bytes > MULTI_BYTES_MAX:
        raise ValueError(f"multi of {total_bytes} bytes > {MULTI_BYTES_MAX}")
