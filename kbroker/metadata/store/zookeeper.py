"""The metadata store of several brokers: Apache ZooKeeper, spoken to by kazoo.

Place in the flow: implements `base.MetadataStore`. `ZooKeeperStore.open` connects, makes the chroot
if it is missing and is one session until `close` or expiry; kazoo would begin another by itself,
which is stopped here, so that nothing is ever done in a session that was not asked for.

Cut off (SUSPENDED) every call is refused at once with StoreUnavailableError; one that was under way
has an unknown outcome and the same error. The next call waits for a `sync` first (`_settle`), which
comes after everything that the ensemble was still doing for us: so what is read then is decided. A
call on its way in the very moment of the cut waits until the session is back or over.

Watches of ZooKeeper fire once. One that stays is armed again before its event is delivered, and
what is there then is kept (`_Seen`): so a reader after an event misses nothing, and a session
that was cut off compares when it is back.

Threads: kazoo has three of its own. One reads and writes the connection; it calls `_state_changed`,
which notes, hands over and returns. One runs watches (`_fired`, `_arm_all_again`), and may wait for
an answer. Neither runs a callback of our user: those run on `kbroker-store-events` (watches.py).
Locks: `_lock` is for the table of watches, below it only the registry's; nothing is asked of kazoo
under it. `_ending` is held while kazoo ends, by the thread that ends it. The dice spread the
brokers over the servers, and their attempts to reconnect.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from kazoo import exceptions as trouble
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import CloseInstance
from kazoo.protocol.states import Callback, KazooState, KeeperState, WatchedEvent, ZnodeStat
from kazoo.protocol.states import EventType as KazooEvent
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from kbroker.errors import ConfigError, MetadataStoreError
from kbroker.metadata.store.base import (
    BadVersionError,
    Check,
    Create,
    Delete,
    EphemeralParentError,
    EventType,
    MetadataStore,
    MultiError,
    Node,
    NodeExistsError,
    NoNodeError,
    NotAllowedError,
    NotEmptyError,
    Operation,
    SessionCallback,
    SessionEvent,
    SessionExpiredError,
    Set,
    StoreError,
    StoreUnavailableError,
    Watch,
    WatchCallback,
    WatchKind,
    check_operations,
    check_path,
)
from kbroker.metadata.store.multi_read import MultiRead
from kbroker.metadata.store.watches import WatchRegistry
from kbroker.metadata.store.zookeeper_settings import SASL, ZooKeeperSettings
from kbroker.own_thread import OwnThread

log = logging.getLogger("kbroker.zookeeper")

END_THREAD_NAME: Final = "kbroker-store-end"
# Nodes of one request; of so many the paths fit into what a server takes.
_READS_AT_ONCE_MAX: Final = 128
# Such requests that are in flight together.
_REQUESTS_MAX: Final = 8
# Passwords, and what is made of them: with zookeeper.set.acl their writer alone reads these nodes
# and those below them, as in Apache Kafka 3.9.
_SECRET: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens", "/kbroker/sasl")
_RECONNECT_DELAY_S: Final = (0.05, 0.15)
_RECONNECT_DELAY_MAX_S: Final = 2
_ANY_VERSION: Final = -1
# A version that no node has: ZooKeeper takes -1 for any version, and counts in 32 bits.
_NO_VERSION: Final = -2
_VERSION_MAX: Final = 2**31 - 1
_SESSION_ID_BITS: Final = 2**64 - 1  # kazoo's are signed

_ERRORS: Final[tuple[tuple[type[Exception], type[StoreError]], ...]] = (
    (trouble.NoNodeError, NoNodeError),
    (trouble.NodeExistsError, NodeExistsError),
    (trouble.BadVersionError, BadVersionError),
    (trouble.NotEmptyError, NotEmptyError),
    (trouble.NoChildrenForEphemeralsError, EphemeralParentError),
    (trouble.NoAuthError, NotAllowedError),
    (trouble.InvalidACLError, NotAllowedError),
)
# Of a transaction: an operation that was fine, before or after the one that was not.
_NOT_THE_CAUSE: Final = (trouble.RolledBackError, trouble.RuntimeInconsistency)


class _Seen(NamedTuple):
    """Which node it was and its last change, when a watch was armed; None where it was not."""

    created: int
    changed: int
    first_version: bool


class _Arm:
    """A path that ZooKeeper watches for us. One object for each kind and path, whose `fired` kazoo
    keeps in a set: arming it again adds nothing."""

    def __init__(
        self, kind: WatchKind, path: str, fired: Callable[[_Arm, WatchedEvent], None]
    ) -> None:
        self.kind = kind
        self.path = path
        self.known = False  # whether `seen` was delivered to the watchers, or could be read
        self.seen: _Seen | None = None
        self._fired = fired

    def fired(self, event: WatchedEvent) -> None:
        self._fired(self, event)


class ZooKeeperStore(MetadataStore):
    """One session with an ensemble."""

    def __init__(self, settings: ZooKeeperSettings, dice: random.Random) -> None:
        """Use `open`."""
        self._settings = settings
        self._dice = dice
        self._watches = WatchRegistry()
        self._lock = threading.Lock()
        self._arms: dict[tuple[WatchKind, str], _Arm] = {}
        self._suspended = False
        self._loss = self._settled = object()  # the last lost answer, and the last that was settled
        self._expired = False
        self._closed = False
        self._session_id = 0
        self._refused = False  # by name and password
        self._over = threading.Event()  # kazoo is in no session
        self._ending = threading.Lock()
        self._ended = False
        self._end = OwnThread(END_THREAD_NAME, self._end_client)
        self._client = _client(settings, dice)
        self._client.add_listener(self._state_changed)

    @classmethod
    def open(cls, settings: ZooKeeperSettings, dice: random.Random | None = None) -> ZooKeeperStore:
        """A new session; MetadataStoreError if no server answers, ConfigError if we may not."""
        store = cls(settings, dice or random.Random())
        try:
            store._connect()
        except BaseException:
            store.close()
            raise
        return store

    def new_session(self) -> ZooKeeperStore:
        return ZooKeeperStore.open(self._settings, self._dice)

    def close(self) -> None:
        self._closed = True
        self._watches.close()
        self._end_client()
        self._end.await_end()

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def watches(self) -> WatchRegistry:
        return self._watches

    # --- calls ------------------------------------------------------------------------------------

    def get(self, path: str) -> Node:
        check_path(path)
        data, stat = self._ask(path, lambda: self._client.get_async(self._full(path)))
        return _node(data, stat)

    def exists(self, path: str) -> bool:
        check_path(path)
        return self._ask(path, lambda: self._client.exists_async(self._full(path))) is not None

    def children(self, path: str) -> list[str]:
        check_path(path)
        return sorted(self._ask(path, lambda: self._client.get_children_async(self._full(path))))

    def children_data(self, path: str) -> dict[str, Node]:
        # Other programs write as well: a name that no path of ours has is one all the same.
        paths = {f"{path.rstrip('/')}/{name}": name for name in self.children(path)}
        return {paths[each]: node for each, node in self._get_many(list(paths)).items()}

    def get_many(self, paths: Sequence[str]) -> dict[str, Node]:
        for path in paths:
            check_path(path)
        return self._get_many(paths)

    def _get_many(self, paths: Sequence[str]) -> dict[str, Node]:
        nodes: dict[str, Node] = {}
        asked: deque[tuple[Sequence[str], Any]] = deque()
        for begin in range(0, len(paths), _READS_AT_ONCE_MAX):
            some = paths[begin : begin + _READS_AT_ONCE_MAX]
            asked.append((some, self._send(some[0], partial(self._read_async, some))))
            if len(asked) == _REQUESTS_MAX:
                nodes.update(self._nodes(*asked.popleft()))
        for each in asked:
            nodes.update(self._nodes(*each))
        return nodes

    def multi(self, operations: Sequence[Operation]) -> list[int]:
        check_operations(operations)
        if not operations:
            return []
        transaction = self._client.transaction()
        for operation in operations:
            self._add(transaction, operation)
        results = self._ask("", transaction.commit_async)
        for index, result in enumerate(results):
            if isinstance(result, Exception) and not isinstance(result, _NOT_THE_CAUSE):
                raise MultiError(index, self._error(operations[index].path, result))
        return [_version(*each) for each in zip(operations, results, strict=True)]

    def watch(
        self, path: str, kind: WatchKind, callback: WatchCallback, *, persistent: bool = False
    ) -> Watch:
        check_path(path)
        watch = self._watches.arm(path, kind, callback, persistent)  # first: what comes is for it
        try:
            with self._lock:
                arm = self._arms.setdefault((kind, path), _Arm(kind, path, self._fired))
            seen = self._look(arm)
            if seen is None and kind is WatchKind.CHILDREN:
                raise NoNodeError(path)
            with self._lock:
                if not arm.known:  # otherwise others wait for a change of `seen`
                    arm.known, arm.seen = True, seen
        except BaseException:
            watch.cancel()
            raise
        return watch

    def on_session_event(self, callback: SessionCallback) -> None:
        self._watches.on_session_event(callback)

    # --- asking kazoo -----------------------------------------------------------------------------

    def _full(self, path: str) -> str:
        return (self._settings.chroot + path).rstrip("/") or "/"

    def _read_async(self, paths: Sequence[str]) -> Any:
        answer = self._client.handler.async_result()
        self._client._call(MultiRead([self._full(path) for path in paths]), answer)
        return answer

    def _nodes(self, paths: Sequence[str], asked: Any) -> Iterator[tuple[str, Node]]:
        """Those that are there; the others never were, or have gone meanwhile."""
        for path, found in zip(paths, self._answer(paths[0], asked), strict=True):
            if isinstance(found, trouble.NoNodeError):
                continue
            if isinstance(found, Exception):
                raise self._error(path, found) from found
            yield path, _node(*found)

    def _ask(self, path: str, call: Callable[[], Any]) -> Any:
        return self._answer(path, self._send(path, call))

    def _send(self, path: str, call: Callable[[], Any]) -> Any:
        if self._expired or self._closed:
            raise SessionExpiredError("", "this session has ended")
        if self._suspended:
            raise StoreUnavailableError(path, f"cut off from ZooKeeper at {self._settings}")
        self._settle(path)
        return call()

    def _settle(self, path: str) -> None:
        """After a lost answer: wait until the ensemble has done that operation, or never will."""
        loss = self._loss
        if loss is self._settled:
            return
        try:
            self._client.sync_async(self._full("/")).get()
        except Exception as error:
            raise self._error(path, error) from error
        self._settled = loss  # another that came meanwhile is another object

    def _answer(self, path: str, asked: Any) -> Any:
        try:
            answer = asked.get()
        except Exception as error:
            raise self._error(path, error) from error
        if self._expired:
            # It may have been done, or in the session that kazoo began in place of ours.
            raise StoreUnavailableError(path, "the session ended meanwhile")
        return answer

    def _error(self, path: str, error: Exception) -> StoreError:
        for theirs, ours in _ERRORS:
            if isinstance(error, theirs):
                return ours(path)
        if isinstance(error, trouble.SessionExpiredError) and self._expired:
            return SessionExpiredError(path, "this session has ended")
        self._loss = object()
        return StoreUnavailableError(path, f"{type(error).__name__} {error}".strip())

    def _add(self, transaction: Any, operation: Operation) -> None:
        path = self._full(operation.path)
        match operation:
            case Create():
                how = operation.ephemeral, operation.sequential
                transaction.create(path, operation.data, self._acl(operation.path), *how)
            case Set():
                transaction.set_data(path, operation.data, _expected(operation.version))
            case Delete():
                transaction.delete(path, _expected(operation.version))
            case Check():
                transaction.check(path, _expected(operation.version))

    def _acl(self, path: str) -> list[Any]:
        """Who may do what with a new node."""
        if not self._settings.set_acl:
            return [*OPEN_ACL_UNSAFE]
        if any(path == each or path.startswith(f"{each}/") for each in _SECRET):
            return [*CREATOR_ALL_ACL]
        return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]

    # --- watches, on kazoo's thread for them ------------------------------------------------------

    def _look(self, arm: _Arm) -> _Seen | None:
        """Arm it at the server, and what is there."""
        path, client = self._full(arm.path), self._client
        if arm.kind is WatchKind.DATA:
            stat = self._ask(arm.path, lambda: client.exists_async(path, watch=arm.fired))
            return None if stat is None else _Seen(stat.czxid, stat.mzxid, stat.version == 0)
        try:
            _, stat = self._ask(
                arm.path,
                lambda: client.get_children_async(path, watch=arm.fired, include_data=True),
            )
        except NoNodeError:
            return None
        return _Seen(stat.czxid, stat.cversion, False)

    def _fired(self, arm: _Arm, event: WatchedEvent) -> None:
        if event.type == KazooEvent.NONE:
            return  # cut off; `_arm_all_again` follows when the session is back
        if not self._watches.is_watched(arm.kind, arm.path, persistently=True):
            with self._lock:
                arm.known = False
            self._deliver(arm, _EVENT_TYPES[event.type])
            return
        try:
            self._look_and_deliver(arm, certain=True)
        except StoreError as error:
            self._failed_to_arm(arm, error)

    def _look_and_deliver(self, arm: _Arm, *, certain: bool) -> None:
        """Arm it again, then deliver the change; `certain`: something has changed."""
        seen = self._look(arm)
        with self._lock:
            before, changed = arm.seen, certain or not arm.known or seen != arm.seen
            arm.known, arm.seen = True, seen
        if changed:
            self._deliver(arm, _what_happened(arm.kind, before, seen))

    def _deliver(self, arm: _Arm, type_: EventType) -> None:
        last = arm.kind is WatchKind.CHILDREN and type_ is EventType.DELETED
        self._watches.fire(arm.kind, arm.path, type_, last=last)
        with self._lock:
            if not self._watches.is_watched(arm.kind, arm.path):
                self._arms.pop((arm.kind, arm.path), None)

    def _failed_to_arm(self, arm: _Arm, error: StoreError) -> None:
        with self._lock:
            arm.known = False  # so its watchers are notified when the session is back
        if isinstance(error, StoreUnavailableError | SessionExpiredError):
            return
        log.error("%s is not watched any more: %s", arm.path, error)
        self._deliver(arm, EventType.CHANGED)

    def _arm_all_again(self) -> None:
        """The session is back: what was watched is armed again, and compared."""
        for kind, path in self._watches.watched():
            with self._lock:
                arm = self._arms.setdefault((kind, path), _Arm(kind, path, self._fired))
            try:
                self._look_and_deliver(arm, certain=False)
            except (StoreUnavailableError, SessionExpiredError):
                return  # gone again, or for good
            except StoreError as error:
                self._failed_to_arm(arm, error)

    # --- the session, on kazoo's thread of the connection -----------------------------------------

    def _state_changed(self, state: str) -> None:
        """Must not wait: the connection does nothing meanwhile."""
        if state == KazooState.LOST:
            self._refused |= self._client.client_state == KeeperState.AUTH_FAILED
            self._over.set()
        if self._closed or self._expired or self._session_id == 0:
            return  # ours to end, or not begun
        if state == KazooState.SUSPENDED:
            self._suspended = True
            log.warning("cut off from ZooKeeper at %s, reconnecting", self._settings)
            self._watches.session_event(SessionEvent.SUSPENDED)
        elif state == KazooState.CONNECTED:
            self._suspended = False
            log.info("connected to ZooKeeper at %s again", self._settings)
            self._watches.session_event(SessionEvent.CONNECTED)
            self._client.handler.dispatch_callback(Callback("watch", self._arm_all_again, ()))
        else:
            self._expired = True
            log.error("the session with ZooKeeper at %s is over", self._settings)
            self._watches.session_event(SessionEvent.EXPIRED)
            self._end.start()  # kazoo would begin a new one

    def _connect(self) -> None:
        settings = self._settings
        try:
            self._client.start(settings.connection_timeout_ms / 1000)
            self._session_id = self._client.client_id[0] & _SESSION_ID_BITS
            self._ensure_chroot()
        except (KazooTimeoutError, StoreUnavailableError, SessionExpiredError) as error:
            if self._refused:
                raise ConfigError(
                    f"ZooKeeper at {settings} refuses the user {settings.username!r}",
                    "set zookeeper.auth.username and zookeeper.auth.password to one it knows",
                ) from error
            raise MetadataStoreError(
                f"no ZooKeeper answers at {settings} in {settings.connection_timeout_ms} ms",
                "start it, or set zookeeper.connect to where it is",
            ) from error

    def _ensure_chroot(self) -> None:
        try:
            chroot = self._settings.chroot
            missing: list[str] = []
            while chroot and self._client.exists(chroot) is None:
                missing.append(chroot)
                chroot = chroot.rpartition("/")[0]
            for path in reversed(missing):
                try:
                    self._client.create(path, acl=self._acl("/"))
                except trouble.NodeExistsError:
                    pass  # another broker was faster
            # A client that may not log in learns it from the first answer.
            (root,) = self._read_async(["/"]).get()
            if isinstance(root, Exception):
                raise root
        except trouble.UnimplementedError:
            raise ConfigError(
                f"ZooKeeper at {self._settings} is older than 3.6", "bring it up to date"
            ) from None
        except (trouble.NoAuthError, NotAllowedError):
            raise ConfigError(
                f"{self._settings.chroot} is not in ZooKeeper, and this broker may not create it",
                "create it with zkCli.sh, or log in as a user who may (zookeeper.auth.scheme)",
            ) from None
        except Exception as error:  # bytes that are no answer, too
            raise self._error("/", error) from error

    def _end_client(self) -> None:
        """End the session at the server, if it is there, then kazoo's threads; once."""
        with self._ending:
            if self._ended:
                return
            self._ended = True
            try:
                if self._session_id and not self._suspended and not self._expired:
                    # What kazoo's `stop` sends is the same, but it does not wait for the answer,
                    # and until then our ephemeral nodes are there.
                    self._client._call(CloseInstance, None)
                    self._over.wait(self._settings.session_timeout_ms / 1000)
                self._client.stop()
                self._client.close()
            except Exception as error:
                log.warning("the connection to ZooKeeper did not end well: %s", error)


_EVENT_TYPES: Final = {
    KazooEvent.CREATED: EventType.CREATED,
    KazooEvent.CHANGED: EventType.CHANGED,
    KazooEvent.DELETED: EventType.DELETED,
    KazooEvent.CHILD: EventType.CHILDREN,
}


def _client(settings: ZooKeeperSettings, dice: random.Random) -> KazooClient:
    hosts = list(settings.hosts)
    dice.shuffle(hosts)
    sasl = settings.scheme == SASL
    options: dict[str, Any] = {}
    if settings.tls is not None:
        tls = settings.tls
        options = {
            "use_ssl": True,
            "certfile": tls.keystore,
            "keyfile": tls.keystore,
            "keyfile_password": tls.keystore_password,
            "ca": tls.truststore,
            "check_hostname": tls.verify_host,
        }
    return KazooClient(
        ",".join(hosts),
        timeout=settings.session_timeout_ms / 1000,
        randomize_hosts=False,
        connection_retry=KazooRetry(
            max_tries=-1,
            delay=dice.uniform(*_RECONNECT_DELAY_S),
            max_jitter=0,
            max_delay=_RECONNECT_DELAY_MAX_S,
        ),
        auth_data=[("digest", f"{settings.username}:{settings.password}")]
        if settings.scheme is not None and not sasl
        else None,
        sasl_options={
            "mechanism": "DIGEST-MD5",
            "username": settings.username,
            "password": settings.password,
        }
        if sasl
        else None,
        **options,
    )


def _node(data: bytes | None, stat: ZnodeStat) -> Node:
    owner = stat.ephemeralOwner & _SESSION_ID_BITS
    return Node(data or b"", stat.version, owner, created=stat.czxid)


def _expected(version: int | None) -> int:
    if version is None:
        return _ANY_VERSION
    return version if 0 <= version <= _VERSION_MAX else _NO_VERSION


def _version(operation: Operation, result: Any) -> int:
    match operation:
        case Set():
            return int(result.version)
        case Check():
            return operation.version
        case Delete():
            return -1
    return 0


def _what_happened(kind: WatchKind, before: _Seen | None, now: _Seen | None) -> EventType:
    """The last of the changes that lead from one to the other; between equals, one that ends so."""
    if now is None:
        return EventType.DELETED
    if kind is WatchKind.CHILDREN:
        replaced = before is not None and before.created != now.created
        return EventType.DELETED if replaced else EventType.CHILDREN
    created = before is None or before.created != now.created
    return EventType.CREATED if created and now.first_version else EventType.CHANGED
