"""What only the store on ZooKeeper has: lines that are cut, users, TLS, and servers that die."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest
from kazoo.client import KazooClient

from kbroker.errors import ConfigError, MetadataStoreError
from kbroker.metadata.store.base import (
    BadVersionError,
    EventType,
    NotAllowedError,
    SessionEvent,
    SessionExpiredError,
    StoreUnavailableError,
    WatchEvent,
    WatchKind,
    parent_of,
)
from kbroker.metadata.store.watches import THREAD_NAME
from kbroker.metadata.store.zookeeper import END_THREAD_NAME, ZooKeeperStore
from kbroker.metadata.store.zookeeper_settings import (
    DIGEST,
    SASL,
    Tls,
    ZooKeeperSettings,
    parse_connect,
)
from kbroker.testing.inspection import wait_until
from lab.ports import free_port
from tests.support.line import Line
from tests.support.own_things import collected_by_hand
from tests.support.zookeeper import PASSWORD, USER, ZooKeeper, connect_to, ensemble
from tests.unit.metadata.store.harness import WAIT_S, Inbox, expire

PACE_S = 0.01  # of a writer: more would only make the node longer, and its reads dearer

Open = Callable[..., ZooKeeperStore]


@pytest.fixture
def settings(zookeeper: ZooKeeper) -> ZooKeeperSettings:
    return ZooKeeperSettings((zookeeper.connect,), zookeeper.chroot(), 10_000, 30_000)


@pytest.fixture
def opened(settings: ZooKeeperSettings) -> Iterator[Open]:
    """Opens sessions with the test's own tree, and closes them."""
    stores: list[ZooKeeperStore] = []

    def open_(**changed: object) -> ZooKeeperStore:
        stores.append(ZooKeeperStore.open(replace(settings, **changed), random.Random(1)))
        return stores[-1]

    yield open_
    for store in stores:
        store.close()


@pytest.fixture
def line(zookeeper: ZooKeeper) -> Iterator[Line]:
    with Line(zookeeper.connect) as made:
        yield made


# --- a line that is cut ---------------------------------------------------------------------------


@pytest.mark.java
def test_cut_off_nothing_is_promised_and_back_everything_is_as_it_was(
    opened: Open, line: Line
) -> None:
    ours = opened(hosts=(line.address,))
    events: Inbox[SessionEvent] = Inbox()
    ours.on_session_event(events)
    ours.create("/mine", ephemeral=True)
    session_id = ours.session_id
    line.cut()
    assert events.wait_for(1) == [SessionEvent.SUSPENDED]
    for call in (
        lambda: ours.get("/mine"),
        lambda: ours.create("/late"),
        lambda: ours.watch("/mine", WatchKind.DATA, lambda _: None),
    ):
        with pytest.raises(StoreUnavailableError):
            call()
    line.mend()
    assert events.wait_for(2)[1] is SessionEvent.CONNECTED
    assert (ours.session_id, ours.get("/mine").owner) == (session_id, session_id)
    assert not ours.exists("/late")
    assert ours.watches.watch_count == 0  # a watch that was refused is none


@pytest.mark.java
def test_a_write_whose_answer_was_lost_is_said_to_be_unknown_and_can_be_read_again(
    opened: Open, line: Line
) -> None:
    ours, other = opened(hosts=(line.address,)), opened()
    events: Inbox[SessionEvent] = Inbox()
    ours.on_session_event(events)
    created: Inbox[WatchEvent] = Inbox()
    other.watch("/done", WatchKind.DATA, created)
    line.swallow_answers()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ours.create, "/done", b"x")
        created.wait_for(1)
        line.cut()
        with pytest.raises(StoreUnavailableError):
            asked.result(WAIT_S)
    line.mend()
    events.wait_until(lambda received: SessionEvent.CONNECTED in received)
    assert ours.get("/done").data == b"x"


@pytest.mark.java
def test_changes_while_cut_off_are_notified_once_and_others_are_not(
    opened: Open, line: Line
) -> None:
    ours, other = opened(hosts=(line.address,)), opened()
    for path in ("/changed", "/deleted", "/same", "/replaced", "/parent"):
        other.create(path)
    received: Inbox[WatchEvent] = Inbox()
    events: Inbox[SessionEvent] = Inbox()
    for path in ("/changed", "/deleted", "/same", "/replaced", "/created"):
        ours.watch(path, WatchKind.DATA, received, persistent=True)
    ours.watch("/parent", WatchKind.CHILDREN, received)
    ours.on_session_event(events)
    line.cut()
    events.wait_for(1)
    other.set("/changed", b"x")
    other.delete("/deleted")
    other.delete("/replaced")
    for path in ("/replaced", "/created", "/parent/child"):
        other.create(path)
    line.mend()
    expected = {
        WatchEvent(EventType.CHANGED, "/changed"),
        WatchEvent(EventType.DELETED, "/deleted"),
        WatchEvent(EventType.CREATED, "/replaced"),
        WatchEvent(EventType.CREATED, "/created"),
        WatchEvent(EventType.CHILDREN, "/parent"),
    }
    assert set(received.wait_for(len(expected))) == expected
    other.set("/same", b"x")  # they are armed again
    other.create("/deleted")
    expected |= {
        WatchEvent(EventType.CHANGED, "/same"),
        WatchEvent(EventType.CREATED, "/deleted"),
    }
    assert set(received.wait_for(len(expected))) == expected
    assert len(received.items) == len(expected)


@pytest.mark.java
@pytest.mark.parametrize("seed", range(3))
def test_no_update_is_lost_however_the_line_fails(opened: Open, line: Line, seed: int) -> None:
    """A reader that looks only when notified ends with the last value, whatever was cut when."""
    dice = random.Random(seed)
    ours, other = opened(hosts=(line.address,)), opened()
    other.create("/value", b"0")
    last, seen = 120, threading.Event()

    def look(_: object) -> None:
        try:
            if int(ours.get("/value").data) == last:
                seen.set()
        except StoreUnavailableError:
            pass  # notified again when it is back

    ours.watch("/value", WatchKind.DATA, look, persistent=True)
    ours.on_session_event(lambda event: look(event) if event is SessionEvent.CONNECTED else None)
    for value in range(1, last + 1):
        other.set("/value", b"%d" % value)
        if dice.random() < 0.05:
            line.cut()
        if dice.random() < 0.2:
            line.mend()
    line.mend()
    assert seen.wait(WAIT_S)


@pytest.mark.java
def test_an_expired_session_is_over_even_though_its_client_would_begin_another(
    zookeeper: ZooKeeper, opened: Open
) -> None:
    ours, other = opened(), opened()
    fired: Inbox[WatchEvent] = Inbox()
    ours.create("/mine", ephemeral=True)
    ours.watch("/theirs", WatchKind.DATA, fired, persistent=True)
    expire(zookeeper.connect, ours)
    assert not other.exists("/mine")
    ours._end.await_end()
    assert not ours._client.connected
    other.create("/theirs")
    with pytest.raises(SessionExpiredError):
        ours.create("/mine", ephemeral=True)
    assert fired.items == []


# --- who may, and over what -----------------------------------------------------------------------


@pytest.mark.java
@pytest.mark.parametrize("scheme", [DIGEST, SASL])
def test_nodes_of_a_user_are_read_by_all_and_written_by_it_alone(
    opened: Open, settings: ZooKeeperSettings, scheme: str
) -> None:
    ours = opened(scheme=scheme, username=USER, password=PASSWORD, set_acl=True)
    ours.create("/node", b"x")
    stranger = opened()
    assert stranger.get("/node").data == b"x"
    for call in (
        lambda: stranger.set("/node", b"y"),
        lambda: stranger.create("/other"),
    ):
        with pytest.raises(NotAllowedError):
            call()
    ours.set("/node", b"y")
    with pytest.raises(ConfigError, match="may not create it"):
        opened(chroot=f"{settings.chroot}/below")


@pytest.mark.java
def test_nodes_with_passwords_are_read_by_their_writer_alone(opened: Open) -> None:
    """As in Apache Kafka 3.9: SCRAM credentials, JAAS texts, and the secret of unknown names."""
    ours = opened(scheme=DIGEST, username=USER, password=PASSWORD, set_acl=True)
    again = opened(scheme=DIGEST, username=USER, password=PASSWORD, set_acl=True)
    stranger = opened()
    for path in ("/config/users/alice", "/config/brokers/1", "/kbroker/sasl"):
        ours.ensure(parent_of(path))
        ours.create(path, b"x")
        assert again.get(path).data == b"x"
        with pytest.raises(NotAllowedError):
            stranger.get(path)
    ours.ensure("/config/topics/t")
    ours.ensure("/config/users2")
    assert stranger.get("/config/topics/t").data == stranger.get("/config/users2").data == b""


@pytest.mark.java
def test_names_that_other_programs_give(opened: Open, zookeeper: ZooKeeper) -> None:
    """Groups have any names, and Apache Kafka's tools write ACLs for them."""
    store = opened()
    store.ensure("/kafka-acl/Group")
    names = {"\u3000", "a\u00a0b", " x ", "%", "n" * 2_000}
    tool = KazooClient(hosts=zookeeper.connect + store._settings.chroot)
    tool.start()
    try:
        for name in names:
            tool.create(f"/kafka-acl/Group/{name}", b"x")
    finally:
        tool.stop()
        tool.close()
    assert set(store.children_data("/kafka-acl/Group")) == names


@pytest.mark.java
def test_a_wrong_password_is_one_line(opened: Open) -> None:
    with pytest.raises(ConfigError, match="refuses the user 'broker'"):
        opened(scheme=SASL, username=USER, password="wrong")


@pytest.mark.java
def test_tls_by_a_certificate_that_is_trusted(zookeeper: ZooKeeper, opened: Open) -> None:
    tls = Tls(truststore=str(zookeeper.certificate))
    ours = opened(hosts=(f"127.0.0.1:{zookeeper.tls_port}",), tls=tls)
    ours.create("/node", b"x")
    assert opened().get("/node").data == b"x"
    with pytest.raises(MetadataStoreError):
        opened(hosts=(f"127.0.0.1:{zookeeper.tls_port}",), tls=Tls(), connection_timeout_ms=300)


def test_no_server_there_is_one_line_and_an_exit_status_of_its_own() -> None:
    settings = ZooKeeperSettings((f"127.0.0.1:{free_port()}",), "/kafka", 10_000, 100)
    with pytest.raises(MetadataStoreError, match=r"no ZooKeeper answers at 127\.0") as raised:
        ZooKeeperStore.open(settings)
    assert raised.value.exit_code == 6


@pytest.mark.java
def test_nothing_is_left(opened: Open) -> None:
    opened().close()  # what is imported late is imported
    threads = {thread.ident for thread in threading.enumerate()}
    with collected_by_hand():
        descriptors = len(os.listdir("/proc/self/fd"))
        store = opened()
        store.watch("/", WatchKind.DATA, lambda _: None)
        store.close()
        store.close()
        # Another store of this process may connect again meanwhile; what it had goes then.
        wait_until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors, "no descriptor is left")
    left = [each.name for each in threading.enumerate() if each.ident not in threads]
    assert not left
    assert not {THREAD_NAME, END_THREAD_NAME} & {each.name for each in threading.enumerate()}


# --- what is configured ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("zk", ("zk:2181",), ""),
        ("a:1, b:2/", ("a:1", "b:2"), ""),
        ("a:1,b/kafka/east/", ("a:1", "b:2181"), "/kafka/east"),
        ("[::1]:2182/k", ("[::1]:2182",), "/k"),
        ("[::1]", ("[::1]:2181",), ""),
    ],
)
def test_connect_is_read_as_kafka_reads_it(text: str, hosts: tuple[str, ...], chroot: str) -> None:
    assert parse_connect(text) == (hosts, chroot)


@pytest.mark.parametrize(
    "text", ["", "a,,b", "a:b", "a:0", "a:70000", "a/x//y", "a/x,b/y/../z", "a/" + "x" * 100,
     "a..b", "x" * 64 + ":1", "a:" + "9" * 5000],
)  # fmt: skip
def test_an_address_that_connects_to_nothing_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect"):
        parse_connect(text)


# --- an ensemble ----------------------------------------------------------------------------------


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_three_servers_one_of_which_dies_under_writers_lose_and_double_nothing() -> None:
    """Two writers count in one node, by compare-and-set; unknown outcomes are looked up. The leader
    is killed twice: sessions live on, and the node has every count exactly once."""
    with ensemble(3) as servers:
        settings = ZooKeeperSettings(
            tuple(server.connect for server in servers), "/kbroker", 20_000, 30_000
        )
        assert connect_to(servers) in str(settings)
        # Each has a server of its own, which may lag another one's answers; but a
        # session begins there after all that was committed before it.
        stores = [ZooKeeperStore.open(settings, random.Random(0))]
        stores[0].create("/count", b"")
        stores.append(ZooKeeperStore.open(settings, random.Random(1)))
        before = [store.session_id for store in stores]
        stop = threading.Event()
        with ThreadPoolExecutor(2) as pool:
            counting = [
                pool.submit(count, store, f"{n}:".encode(), stop) for n, store in enumerate(stores)
            ]
            try:
                for _ in range(2):
                    wait_for_growth(stores[0])
                    leader = leader_of(servers)
                    leader.kill9()
                    wait_for_growth(stores[0])
                    leader.start()
            finally:
                stop.set()  # or the pool would wait for them for ever
            counted = [each.result(WAIT_S) for each in counting]
        reader = ZooKeeperStore.open(settings, random.Random(2))
        found = reader.get("/count").data.split()
        reader.close()
        assert len(found) == len(set(found)) == sum(n + (mark in found) for n, mark in counted)
        assert [store.session_id for store in stores] == before
        for store in stores:
            store.close()


def count(store: ZooKeeperStore, name: bytes, stop: threading.Event) -> tuple[int, bytes]:
    """Append `name` and a number to /count, one after the other.

    How many there are, and what would be the next: there, too, if its outcome was unknown.
    """
    done = 0
    while not stop.is_set():
        mark = name + b"%d" % done
        try:
            node = store.get("/count")
            if mark in node.data.split():
                done += 1  # the outcome was unknown, and it was done
                continue
            store.set("/count", node.data + b" " + mark, node.version)
            done += 1
            stop.wait(PACE_S)
        except BadVersionError:
            continue
        except StoreUnavailableError:
            stop.wait(0.05)
    return done, name + b"%d" % done


def leader_of(servers: list[ZooKeeper]) -> ZooKeeper:
    def leading() -> list[ZooKeeper]:
        return [server for server in servers if server.mode() == "leader"]

    return wait_until(leading, "none came to lead", WAIT_S)[0]


def settled(store: ZooKeeperStore) -> bytes:
    def found() -> list[bytes]:
        with suppress(StoreUnavailableError):
            return [store.get("/count").data]
        return []

    return wait_until(found, "/count could not be read", WAIT_S)[0]


def wait_for_growth(store: ZooKeeperStore, by: int = 40) -> None:
    def marks() -> int:
        return len(settled(store).split())

    enough = marks() + by
    wait_until(lambda: marks() >= enough, f"the writers did not write {by} marks", WAIT_S)
