"""The metadata store of a broker without a cluster: one SQLite file, no other process.

Place in the flow: implements `base.MetadataStore`. A tree is opened by one process at a time (the
directory lock); within it any number of sessions may share the tree, which is how tests let two
controllers compete. `EmbeddedStore.open` gives the first session, `new_session` further ones; the
last one to close closes the file. Sessions do not time out, since no process can be cut off from a
file; `expire` ends one the hard way.

Durability: write-ahead log with synchronous=FULL, so a commit is one fsync (0.2 ms on the machine
it was measured on, milliseconds on a slow disk) and survives a power cut, not only kill -9. With
NORMAL the last commits could vanish with the power, and a producer id block or a leader epoch that
was already handed out would be handed out again; metadata writes are rare enough to pay for that.
A crash leaves at most the write-ahead log, which the next open replays, and the ephemeral nodes of
dead sessions, which the next open removes.

A tree that was exported is marked (`mark_exported`), and no broker opens it while it is: it goes on
in ZooKeeper, and two of them would hand out the same producer ids and epochs. The mark is a schema
of its own, so that a kbroker that does not know it refuses the file as well.

Locks: `_Tree.lock` serialises all use of the one connection; below it only the watch registry's.
SQLite runs without the GIL. No callback is called under either lock.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from kbroker.errors import DataDirectoryError
from kbroker.metadata.formats import Format, check
from kbroker.metadata.store.base import (
    BadVersionError,
    Check,
    Create,
    EphemeralParentError,
    EventType,
    MetadataStore,
    MultiError,
    Node,
    NodeExistsError,
    NoNodeError,
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
    parent_of,
)
from kbroker.metadata.store.directory_lock import DirectoryLock
from kbroker.metadata.store.watches import WatchRegistry

log = logging.getLogger("kbroker.metadata")

DATABASE_FILE: Final = "metadata.db"
_MODE: Final = 0o600
LOCK_FILE: Final = "metadata.lock"

_APPLICATION_ID: Final = 0x6B62726B  # "kbrk", so that a stranger's database is not mistaken
_SCHEMA_VERSION: Final = 2
# Nodes had other names and contents, and did not say when they were created.
_OLD_SCHEMA_VERSION: Final = 1
# As the one of today, with the table `exported` of one row.
_EXPORTED_SCHEMA_VERSION: Final = 3
# As the one of today, with the table `format` of one row: the number of `metadata/formats.py`, and
# the kbroker that raised it. One that is exported too has both tables and the schema before.
_NUMBERED_SCHEMA_VERSION: Final = 4
_SCHEMAS: Final = (
    _OLD_SCHEMA_VERSION,
    _SCHEMA_VERSION,
    _EXPORTED_SCHEMA_VERSION,
    _NUMBERED_SCHEMA_VERSION,
)
# The root is the row ('', ''); a child of the root has parent '/'.
_SCHEMA: Final = """
CREATE TABLE node (
    parent TEXT NOT NULL,
    name TEXT NOT NULL,
    data BLOB NOT NULL,
    version INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    created INTEGER NOT NULL,
    PRIMARY KEY (parent, name)
) WITHOUT ROWID;
CREATE INDEX ephemeral ON node (owner) WHERE owner <> 0;
CREATE TABLE session (last_id INTEGER NOT NULL);
CREATE TABLE creation (last INTEGER NOT NULL);
INSERT INTO session VALUES (0);
INSERT INTO creation VALUES (0);
INSERT INTO node VALUES ('', '', X'', 0, 0, 0);
"""

_Change = tuple[EventType, str]


class Exported(NamedTuple):
    """When a tree was exported (ISO 8601), to which file, and what is in that; in which import of
    it this broker has gone on, if it has."""

    at: str
    file: str
    sha256: str
    import_id: str | None = None


class EmbeddedStore(MetadataStore):
    """One session on a tree in a SQLite file."""

    def __init__(self, tree: _Tree) -> None:
        self._tree = tree
        self._watches = WatchRegistry()
        self._session_id = tree.attach(self)

    @classmethod
    def open(cls, directory: Path | str, *, exported_too: bool = False) -> EmbeddedStore:
        """Open or create the store in this directory; raises DataDirectoryError, and for one that
        was exported unless the caller is not going to use it."""
        return cls(_Tree(Path(directory), exported_too))

    def new_session(self) -> EmbeddedStore:
        """Another session on the same tree; its ephemeral nodes and watches are its own."""
        return EmbeddedStore(self._tree)

    def expire(self) -> None:
        """End this session as a lost one: ephemeral nodes vanish, EXPIRED is delivered."""
        if self._tree.detach(self):
            self._watches.session_event(SessionEvent.EXPIRED)

    def close(self) -> None:
        self._tree.detach(self)
        self._watches.close()

    @property
    def exported(self) -> Exported | None:
        """That this tree was exported, if it was."""
        return self._tree.exported()

    def mark_exported(self, exported: Exported | None) -> None:
        """No broker opens it from now on; None: they may again."""
        self._tree.mark_exported(exported)

    @property
    def format(self) -> int:
        """The number of this tree's format."""
        return self._tree.format()

    def raise_format(self, number: int, written_by: str) -> None:
        """No kbroker opens it from now on that does not know formats up to this number."""
        self._tree.raise_format(number, written_by)

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def watches(self) -> WatchRegistry:
        return self._watches

    def get(self, path: str) -> Node:
        check_path(path)
        return self._tree.get(self, path)

    def exists(self, path: str) -> bool:
        try:
            self.get(path)
        except NoNodeError:
            return False
        return True

    def children(self, path: str) -> list[str]:
        return list(self.children_data(path))

    def children_data(self, path: str) -> dict[str, Node]:
        check_path(path)
        return self._tree.children_data(self, path)

    def get_many(self, paths: Sequence[str]) -> dict[str, Node]:
        for path in paths:
            check_path(path)
        return self._tree.get_many(self, paths)

    def multi(self, operations: Sequence[Operation]) -> list[int]:
        check_operations(operations)
        return self._tree.multi(self, operations)

    def watch(
        self, path: str, kind: WatchKind, callback: WatchCallback, *, persistent: bool = False
    ) -> Watch:
        check_path(path)
        return self._tree.watch(self, path, kind, callback, persistent)

    def on_session_event(self, callback: SessionCallback) -> None:
        self._watches.on_session_event(callback)


class _Tree:
    """The file, its lock and its sessions; shared by the sessions, closed with the last."""

    def __init__(self, directory: Path, exported_too: bool) -> None:
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataDirectoryError(
                f"cannot create {directory}: {error.strerror}",
                "give the broker a data directory that it may write to",
            ) from error
        self.lock = threading.Lock()
        self._sessions: dict[EmbeddedStore, int] = {}
        self._directory_lock = DirectoryLock(directory / LOCK_FILE)
        path = directory / DATABASE_FILE
        try:
            self._connection = _open_database(path, exported_too)
        except sqlite3.Error as error:
            self._directory_lock.release()
            raise DataDirectoryError(
                f"cannot open the metadata store {path}: {error}",
                "make room on its disk"
                if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
                else "restore the file from a copy, or use another data directory",
            ) from error
        except BaseException:
            self._directory_lock.release()
            raise

    def attach(self, session: EmbeddedStore) -> int:
        """Register a session under a number that was never used before."""
        with self.lock:
            with _Transaction(self._connection) as execute:
                execute("UPDATE session SET last_id = last_id + 1")
                session_id = int(execute("SELECT last_id FROM session").fetchone()[0])
            self._sessions[session] = session_id
        return session_id

    def detach(self, session: EmbeddedStore) -> bool:
        """End a session, its ephemeral nodes first; False if it had ended already."""
        with self.lock:
            session_id = self._sessions.pop(session, None)
            if session_id is None:
                return False
            try:
                with _Transaction(self._connection) as execute:
                    changes = _delete_ephemerals(execute, session_id)
                self._publish_locked(changes)
            finally:
                if not self._sessions:
                    self._connection.close()
                    self._directory_lock.release()
        return True

    def get(self, session: EmbeddedStore, path: str) -> Node:
        with self.lock:
            self._require_locked(session)
            return self._read_locked(path)

    def children_data(self, session: EmbeddedStore, path: str) -> dict[str, Node]:
        with self.lock:
            self._require_locked(session)
            self._read_locked(path)
            try:
                rows = self._connection.execute(
                    "SELECT name, data, version, owner, created FROM node"
                    " WHERE parent = ? ORDER BY name",
                    (path,),
                ).fetchall()
            except sqlite3.Error as error:
                raise StoreUnavailableError(path, str(error)) from error
        return {name: Node(*rest) for name, *rest in rows}

    def get_many(self, session: EmbeddedStore, paths: Sequence[str]) -> dict[str, Node]:
        with self.lock:
            self._require_locked(session)
            found: dict[str, Node] = {}
            for path in paths:
                try:
                    found[path] = self._read_locked(path)
                except NoNodeError:
                    pass
        return found

    def multi(self, session: EmbeddedStore, operations: Sequence[Operation]) -> list[int]:
        with self.lock:
            session_id = self._require_locked(session)
            versions: list[int] = []
            changes: list[_Change] = []
            with _Transaction(self._connection) as execute:
                if any(isinstance(each, Create) for each in operations):
                    execute("UPDATE creation SET last = last + 1")
                for index, operation in enumerate(operations):
                    try:
                        versions.append(_apply(execute, operation, session_id, changes))
                    except StoreError as error:
                        raise MultiError(index, error) from None
            self._publish_locked(changes)
        return versions

    def exported(self) -> Exported | None:
        with self.lock:
            return _exported(self._connection)

    def mark_exported(self, exported: Exported | None) -> None:
        with self.lock, _Transaction(self._connection) as execute:
            execute("DROP TABLE IF EXISTS exported")
            if exported is not None:
                execute("CREATE TABLE exported (at TEXT, file TEXT, sha256 TEXT, import_id TEXT)")
                execute("INSERT INTO exported VALUES (?, ?, ?, ?)", exported)
            _set_schema_version(self._connection)

    def format(self) -> int:
        with self.lock:
            return _format(self._connection)[0]

    def raise_format(self, number: int, written_by: str) -> None:
        with self.lock, _Transaction(self._connection) as execute:
            if number > _format(self._connection)[0]:
                execute("DROP TABLE IF EXISTS format")
                execute("CREATE TABLE format (number INTEGER NOT NULL, written_by TEXT NOT NULL)")
                execute("INSERT INTO format VALUES (?, ?)", (number, written_by))
                _set_schema_version(self._connection)

    def watch(
        self,
        session: EmbeddedStore,
        path: str,
        kind: WatchKind,
        callback: WatchCallback,
        persistent: bool,
    ) -> Watch:
        with self.lock:
            self._require_locked(session)
            if kind is WatchKind.CHILDREN:
                self._read_locked(path)
            return session.watches.arm(path, kind, callback, persistent)

    def _require_locked(self, session: EmbeddedStore) -> int:
        session_id = self._sessions.get(session)
        if session_id is None:
            raise SessionExpiredError("", "this session has ended")
        return session_id

    def _read_locked(self, path: str) -> Node:
        try:
            row = self._connection.execute(_SELECT, _key(path)).fetchone()
        except sqlite3.Error as error:
            raise StoreUnavailableError(path, str(error)) from error
        if row is None:
            raise NoNodeError(path)
        return Node(*row)

    def _publish_locked(self, changes: list[_Change]) -> None:
        for session in self._sessions:
            session.watches.changed(changes)


_SELECT: Final = "SELECT data, version, owner, created FROM node WHERE parent = ? AND name = ?"


class _Transaction:
    """BEGIN .. COMMIT, ROLLBACK on any exception; SQLite's errors become StoreUnavailableError."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> _Execute:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise StoreUnavailableError("", str(error)) from error
        return self._connection.execute

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: object
    ) -> None:
        if error is None:
            try:
                self._connection.execute("COMMIT")
                return
            except sqlite3.Error as failure:
                error = failure
        if self._connection.in_transaction:  # SQLite ends it by itself after some errors
            self._connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error):
            raise StoreUnavailableError("", str(error)) from error


class _Execute(Protocol):
    """`Connection.execute`, as far as it is used here."""

    def __call__(self, sql: str, parameters: tuple[Any, ...] = ..., /) -> sqlite3.Cursor: ...


def _create(path: Path) -> None:
    """A new file is for its owner alone: it has credentials of users. SQLite gives its log the same
    mode. Whatever goes wrong is said when the database is opened."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE))
    except OSError:
        pass  # most often it is there


def _open_database(path: Path, exported_too: bool) -> sqlite3.Connection:
    _create(path)
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        # Exclusive: the directory lock has settled who may be here, so no shared-memory file.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA trusted_schema = OFF")
        _check_identity(connection, path)
        exported = _exported(connection)
        if exported is not None and not exported_too:
            raise DataDirectoryError(
                f"the metadata store in {path.parent} was exported to {exported.file} at"
                f" {exported.at}, to go on in ZooKeeper",
                "set zookeeper.connect to where it was imported; if it was not, kbroker metadata"
                f" undo-export --data-dir {path.parent}",
            )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        if _is_new(connection):
            connection.executescript(
                f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA application_id = {_APPLICATION_ID};"
                f"PRAGMA user_version = {_SCHEMA_VERSION}; COMMIT;"
            )
        connection.execute("DELETE FROM node WHERE owner <> 0")  # dead sessions: the lock was free
        if _schema_version(connection) == _OLD_SCHEMA_VERSION:
            _take_over(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_new(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None


def _check_identity(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a database that is not ours, or a later version's, before anything is written."""
    if _is_new(connection):
        return
    application_id = int(connection.execute("PRAGMA application_id").fetchone()[0])
    schema_version = _schema_version(connection)
    if application_id != _APPLICATION_ID:
        raise DataDirectoryError(f"{path} is not a kbroker metadata store")
    if schema_version not in _SCHEMAS:
        raise DataDirectoryError(
            f"{path} has schema {schema_version}, this kbroker reads up to {_SCHEMAS[-1]}",
            "start the version of kbroker that wrote it, or a newer one",
        )
    number, written_by = _format(connection)
    check(Format.STORE, number, str(path), written_by)


def _schema_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _has_table(connection: sqlite3.Connection, name: str) -> bool:
    named = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return connection.execute(named, (name,)).fetchone() is not None


def _set_schema_version(connection: sqlite3.Connection) -> None:
    """The one that a kbroker refuses which does not know one of the tables."""
    version = _SCHEMA_VERSION
    if _has_table(connection, "format"):
        version = _NUMBERED_SCHEMA_VERSION
    if _has_table(connection, "exported"):
        version = _EXPORTED_SCHEMA_VERSION
    connection.execute(f"PRAGMA user_version = {version}")


def _format(connection: sqlite3.Connection) -> tuple[int, str]:
    """The number of the format, and the kbroker that raised it; 0 where it is not there."""
    if not _has_table(connection, "format"):
        return 0, ""
    number, written_by = connection.execute("SELECT number, written_by FROM format").fetchone()
    return int(number), str(written_by)


def _exported(connection: sqlite3.Connection) -> Exported | None:
    if _schema_version(connection) != _EXPORTED_SCHEMA_VERSION:
        return None
    row = connection.execute("SELECT at, file, sha256, import_id FROM exported").fetchone()
    return Exported(*row)


def _take_over(connection: sqlite3.Connection, path: Path) -> None:
    """Give an earlier kbroker's nodes their names of today: all of them, or none and it stays."""
    from kbroker.metadata.controller.old_tree import OldNode, moved  # once in a file's life

    rows = connection.execute("SELECT parent, name, data, version FROM node WHERE parent <> ''")
    old = {_path(parent, name): OldNode(data, version) for parent, name, data, version in rows}
    with _Transaction(connection) as execute:
        execute("DELETE FROM node WHERE parent <> ''")
        execute("ALTER TABLE node ADD COLUMN created INTEGER NOT NULL DEFAULT 0")
        execute("CREATE TABLE creation (last INTEGER NOT NULL)")
        execute("INSERT INTO creation VALUES (0)")
        for each, node in moved(old).items():
            execute("INSERT INTO node VALUES (?, ?, ?, ?, 0, 0)", (*_key(each), *node))
        execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
    log.info("%s was taken over from an earlier kbroker: %d nodes", path, len(old))


def _path(parent: str, name: str) -> str:
    return f"/{name}" if parent == "/" else f"{parent}/{name}"


def _key(path: str) -> tuple[str, str]:
    if path == "/":
        return "", ""
    parent, _, name = path.rpartition("/")
    return parent or "/", name


def _apply(execute: _Execute, operation: Operation, session_id: int, changes: list[_Change]) -> int:
    """Carry out one operation inside a transaction; the node's version, -1 if deleted."""
    path = operation.path
    if isinstance(operation, Create) and operation.sequential:
        execute("UPDATE creation SET last = last + 1")
        path += f"{execute('SELECT last FROM creation').fetchone()[0]:010d}"
    key = _key(path)
    row = execute(_SELECT, key).fetchone()
    if isinstance(operation, Create):
        if row is not None:
            raise NodeExistsError(path)
        parent = execute(_SELECT, _key(parent_of(path))).fetchone()
        if parent is None:
            raise NoNodeError(path, "no parent")
        if Node(*parent).ephemeral:
            raise EphemeralParentError(path)
        owner = session_id if operation.ephemeral else 0
        execute(
            "INSERT INTO node SELECT ?, ?, ?, 0, ?, last FROM creation",
            (*key, operation.data, owner),
        )
        changes.append((EventType.CREATED, path))
        return 0
    if row is None:
        raise NoNodeError(path)
    version = int(row[1])
    if operation.version is not None and operation.version != version:
        raise BadVersionError(path, f"expected {operation.version}, found {version}")
    if isinstance(operation, Set):
        execute(
            "UPDATE node SET data = ?, version = version + 1 WHERE parent = ? AND name = ?",
            (operation.data, *key),
        )
        changes.append((EventType.CHANGED, path))
        return version + 1
    if isinstance(operation, Check):
        return version
    if execute("SELECT 1 FROM node WHERE parent = ? LIMIT 1", (path,)).fetchone() is not None:
        raise NotEmptyError(path)
    execute("DELETE FROM node WHERE parent = ? AND name = ?", key)
    changes.append((EventType.DELETED, path))
    return -1


def _delete_ephemerals(execute: _Execute, session_id: int) -> list[_Change]:
    rows = execute("SELECT parent, name FROM node WHERE owner = ?", (session_id,)).fetchall()
    execute("DELETE FROM node WHERE owner = ?", (session_id,))
    return [(EventType.DELETED, _path(parent, name)) for parent, name in rows]
