"""The ZooKeeper of a cluster under test: what the store's contract tests do not reach.

Those run on it too (tests/unit/metadata/store, `zookeeper-in-memory`); here are its tree beside a
plain dictionary, bytes that are no frame, and sessions that send nothing.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.errors import ConfigError
from kbroker.metadata.store.base import (
    Check,
    Create,
    Delete,
    EventType,
    MultiError,
    NodeExistsError,
    NoNodeError,
    Operation,
    SessionEvent,
    Set,
    StoreUnavailableError,
    WatchKind,
    parent_of,
)
from kbroker.metadata.store.zookeeper import ZooKeeperStore
from kbroker.metadata.store.zookeeper_settings import ZooKeeperSettings
from kbroker.testing.zookeeper import frames
from kbroker.testing.zookeeper.frames import FrameError, NotServedError, Reader
from kbroker.testing.zookeeper.server import ZooKeeperServer
from kbroker.testing.zookeeper.tree import Tree
from tests.unit.metadata.store.harness import Inbox

TIMEOUT_S = 10
PATHS = ("/a", "/b", "/a/x", "/a/y", "/a/x/z")


@pytest.fixture
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as made:
        yield made


def opened(server: ZooKeeperServer, session_ms: int = 10_000) -> ZooKeeperStore:
    settings = ZooKeeperSettings((server.connect,), "", session_ms, 10_000)
    return ZooKeeperStore.open(settings, random.Random(1))


def test_a_zookeeper_that_is_too_old_is_one_line(
    server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before 3.6 it did not read many nodes at once."""

    def unknown(reader: Reader) -> list[str]:
        raise NotServedError

    monkeypatch.setattr(Reader, "reads", unknown)
    with pytest.raises(ConfigError, match="is older than 3"):
        opened(server)


# --- the tree -------------------------------------------------------------------------------------

operations = st.one_of(
    st.builds(Create, st.sampled_from(PATHS), st.binary(max_size=3), st.booleans(), st.just(False)),
    st.builds(Set, st.sampled_from(PATHS), st.binary(max_size=3), st.none() | st.integers(0, 2)),
    st.builds(Delete, st.sampled_from(PATHS), st.none() | st.integers(0, 2)),
    st.builds(Check, st.sampled_from(PATHS), st.integers(0, 2)),
)


def everything(tree: Tree) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for path in ("/", *PATHS):
        node = tree.find(path)
        if node is not None:
            found[path] = (
                *(node.data, node.owner, node.created, node.changed, node.children_changed),
                *(node.version, node.children_version, frozenset(node.children)),
            )
    return found


@given(st.lists(st.tuples(st.integers(1, 2), st.lists(operations, max_size=5)), max_size=12))
def test_a_transaction_happens_whole_or_not_at_all(
    transactions: list[tuple[int, list[Operation]]],
) -> None:
    tree = Tree()
    known: set[str] = {"/"}
    for session_id, parts in transactions:
        before = everything(tree)
        try:
            versions, changes = tree.multi(session_id, parts)
        except MultiError as error:
            assert everything(tree) == before
            assert 0 <= error.index < len(parts)
            continue
        assert len(versions) == len(parts)
        for type_, path in changes:
            assert (path in known) is (type_ is not EventType.CREATED)
            known ^= {path} if type_ is not EventType.CHANGED else set()
        after = everything(tree)
        assert after.keys() == known
        for part in parts:
            node = tree.find(part.path)
            if node is not None and isinstance(part, Create | Set):
                assert node.changed == tree.zxid
        for path, each in after.items():
            assert each[-1] == {p.rpartition("/")[2] for p in known - {"/"} if parent_of(p) == path}
    for session_id in (1, 2):
        mine = sorted(path for path, each in everything(tree).items() if each[1] == session_id)
        assert [path for _, path in tree.end(session_id)] == mine
        assert tree.end(session_id) == []


def test_a_failed_operation_is_named_with_its_error() -> None:
    tree = Tree()
    with pytest.raises(MultiError) as failed:
        tree.multi(1, [Create("/a"), Create("/a/x"), Create("/a")])
    assert (failed.value.index, type(failed.value.cause)) == (2, NodeExistsError)
    with pytest.raises(NoNodeError):
        tree.node("/a")


# --- bytes ----------------------------------------------------------------------------------------


@given(st.binary(max_size=40))
def test_a_frame_that_is_none_is_refused_and_nothing_else_happens(payload: bytes) -> None:
    for read in (Reader.hello, Reader.operations, Reader.text, lambda r: r.operation(1)):
        try:
            read(Reader(payload))
        except (FrameError, NotServedError):
            pass


@pytest.mark.parametrize(
    "head", [struct.pack(">i", 0), struct.pack(">i", -1), struct.pack(">i", 2 << 20), b"\xff" * 4]
)
def test_a_frame_of_an_impossible_size_ends_its_connection_only(
    server: ZooKeeperServer, head: bytes
) -> None:
    store = opened(server)
    host, port = server.connect.split(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as rude:
        rude.sendall(head)
        assert rude.recv(1) == b""
    store.create("/a", b"as ever")
    assert store.get("/a").data == b"as ever"
    store.close()


@pytest.mark.parametrize("ask", [0, 6, 15, 100, 101, 102, 1_000, -10])
def test_an_operation_that_is_not_served_is_refused_and_the_session_goes_on(
    server: ZooKeeperServer, ask: int
) -> None:
    host, port = server.connect.split(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as client:
        stream = client.makefile("rb")

        def answered(payload: bytes) -> bytes:
            client.sendall(frames.framed(payload))
            (size,) = struct.unpack(">i", stream.read(4))
            return stream.read(size)

        answered(struct.pack(">iqiqi", 0, 0, 10_000, 0, 0))
        assert struct.unpack_from(">iqi", answered(struct.pack(">ii", 7, ask)))[::2] == (7, -6)
        assert struct.unpack_from(">iqi", answered(struct.pack(">ii", -2, 11)))[::2] == (-2, 0)


# --- sessions -------------------------------------------------------------------------------------


def test_a_silent_session_expires_with_its_nodes(
    server: ZooKeeperServer,
) -> None:
    host, port = server.connect.split(":")
    watching = opened(server)
    gone: Inbox[object] = Inbox()
    with socket.create_connection((host, int(port)), TIMEOUT_S) as silent:
        hello = struct.pack(">iqiqi", 0, 0, 100, 0, 0)
        made = struct.pack(">ii", 1, 1) + frames.text("/mine") + frames.data(b"")
        made += struct.pack(">ii", 0, 1)  # no rights, ephemeral
        silent.sendall(frames.framed(hello) + frames.framed(made))
        silent.recv(1)
        watching.watch("/", WatchKind.CHILDREN, gone, persistent=True)
        while silent.recv(4096):
            pass  # until the server ends it
    assert not watching.exists("/mine")
    assert len(server.sessions()) == 1
    watching.close()
    assert server.sessions() == []


def test_while_none_is_served_no_session_expires(server: ZooKeeperServer) -> None:
    store = opened(server, 10_000)
    events: Inbox[SessionEvent] = Inbox()
    store.on_session_event(events)
    store.create("/mine", ephemeral=True)
    session = store.session_id
    server.lose()
    assert events.wait_for(1) == [SessionEvent.SUSPENDED]
    with pytest.raises(StoreUnavailableError):
        store.get("/mine")
    server.come_back()
    assert events.wait_for(2)[1] is SessionEvent.CONNECTED
    assert store.get("/mine").owner == session
    server.expire(session)
    assert events.wait_until(lambda answered: SessionEvent.EXPIRED in answered)
    assert server.data_of("/mine") is None
    store.close()
