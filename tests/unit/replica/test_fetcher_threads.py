"""The same on a real loop in a thread of its own, over sockets, with the controller in another."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.clock import SystemClock
from kbroker.config import BrokerConfig
from kbroker.failures import Failures
from kbroker.peer.address import Address
from kbroker.peer.control_loop import ControlLoop
from kbroker.peer.loop_on_demand import LoopOnDemand
from kbroker.protocol.wire import Writer
from kbroker.replica.fetcher import Us
from kbroker.replica.fetcher_manager import FetcherManager, Leader
from kbroker.replica.fetcher_settings import fetcher_settings, leader_links
from kbroker.types import ApiKey, TopicPartition
from tests.support.fetched_cluster import Cluster, Node, records_of
from tests.support.standing_disk import standing
from tests.unit.net.harness import DEADLINE_S, eventually

PARTITIONS = 8


class Listener:
    """A leader's answers on a socket."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.address = Address("127.0.0.1", 0)
        self.connections = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = Address("127.0.0.1", self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
                api_key, correlation_id = int.from_bytes(frame[:2]), frame[4:8]
                body = frame[10 + int.from_bytes(frame[8:10]) + 1 :]
                if api_key == ApiKey.API_VERSIONS:
                    answer = _versions()
                else:
                    answer = b"\0" + await self._node.answer(ApiKey(api_key), body)
                size = len(correlation_id) + len(answer)
                writer.write(size.to_bytes(4) + correlation_id + answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
        finally:
            self.connections -= 1


def _versions() -> bytes:
    writer = Writer(flexible=True)
    writer.int16(0)
    writer.array(0)
    writer.int32(0)
    writer.tags()
    return writer.getvalue()


@pytest.fixture
def control() -> Iterator[ControlLoop]:
    loop = ControlLoop()
    loop.start()
    yield loop
    loop.stop()
    assert not loop.thread.is_alive() and loop.thread.failures.count == 0


def test_partitions_are_fetched_over_sockets(tmp_path: Path, control: ControlLoop) -> None:
    async def running() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    loop = control.submit(running()).result(DEADLINE_S)
    cluster = Cluster(tmp_path, loop, random.Random(1))  # type: ignore[arg-type]
    leader, names = cluster.nodes[1], [cluster.create("words", at) for at in range(PARTITIONS)]
    listener = Listener(leader)
    control.submit(listener.start()).result(DEADLINE_S)
    config = BrokerConfig.load(overrides=["num.replica.fetchers=3"])
    failures = Failures("fetchers", logging.getLogger("tests"))
    follower = cluster.nodes[2].replicas
    manager = FetcherManager(
        Us(2, lambda: 7),
        control.submit,
        leader_links(config, "broker-2-fetcher"),
        follower.get,
        fetcher_settings(config),
        SystemClock(),
        random.Random(2),
        failures,
        lambda _: None,
    )

    def lead(name: TopicPartition, epoch: int) -> None:
        replica = leader.replicas[name]
        replica.set_leadership(1, True, epoch, 2, {2: True})
        leader.leading[name] = True
        follower[name].set_leadership(1, False, epoch, 2)
        where = Leader(cluster.topic_ids["words"], 1, listener.address, epoch)
        manager.follow({name: where})
        cluster.leaders[name] = 1

    for epoch in range(3):
        for number, name in enumerate(names):
            lead(name, epoch)
            cluster_append(cluster, name, b"%d" % number, control)
    eventually(lambda: all(cluster.caught_up(name) for name in names))
    figures = manager.statistics()
    assert (figures.fetchers, figures.partitions, figures.failed) == (3, PARTITIONS, [])
    manager.stop()
    for name in names:
        assert records_of(follower[name]) == records_of(leader.replicas[name])
        assert [record.epoch for record in records_of(follower[name])] == [0, 1, 2]
    eventually(lambda: manager.statistics().fetchers == listener.connections == 0)
    assert failures.count == 0
    for node in cluster.nodes.values():
        for replica in node.replicas.values():
            replica.close()


def test_a_log_that_hangs_keeps_no_other_from_its_leader(
    tmp_path: Path, control: ControlLoop
) -> None:
    async def running() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    loop = control.submit(running()).result(DEADLINE_S)
    cluster = Cluster(tmp_path, loop, random.Random(1))  # type: ignore[arg-type]
    leader, names = cluster.nodes[1], [cluster.create("words", at) for at in range(PARTITIONS)]
    listener = Listener(leader)
    control.submit(listener.start()).result(DEADLINE_S)
    follower = cluster.nodes[2].replicas
    manager = FetcherManager(
        Us(2, lambda: 7),
        control.submit,
        leader_links(BrokerConfig.load(), "broker-2-fetcher"),
        follower.get,
        fetcher_settings(BrokerConfig.load()),
        SystemClock(),
        random.Random(2),
        Failures("fetchers", logging.getLogger("tests")),
        lambda _: None,
        loops=lambda: LoopOnDemand("kbroker-fetcher"),
    )
    for name in names:
        leader.replicas[name].set_leadership(1, True, 0, 2, {2: True})
        leader.leading[name] = True
        follower[name].set_leadership(1, False, 0, 2)
        cluster.leaders[name] = 1
    where = Leader(cluster.topic_ids["words"], 1, listener.address, 0)
    hung, others = names[0], names[1:]
    file = f"{follower[hung].path.parent.name}/{follower[hung].path.name}/{0:020}.log"
    with standing(("write", file)) as disk:
        manager.follow(dict.fromkeys(names, where))
        cluster_append(cluster, hung, b"v", control)
        disk.wait()
        for name in others:
            cluster_append(cluster, name, b"v", control)

        def caught_up() -> bool:
            manager.look()
            return all(cluster.caught_up(name) for name in others)

        eventually(caught_up)
        assert not cluster.caught_up(hung)
        manager.follow({hung: None})  # this broker is to lead it, say
        assert manager.changes(hung)
        manager.follow({hung: where})
        disk.go_on()
    cluster_append(cluster, hung, b"w", control)
    eventually(lambda: cluster.caught_up(hung) and not manager.changes(hung))
    assert records_of(follower[hung]) == records_of(leader.replicas[hung])
    manager.look()
    manager.stop()
    eventually(lambda: listener.connections == 0)
    for node in cluster.nodes.values():
        for replica in node.replicas.values():
            replica.close()


def cluster_append(
    cluster: Cluster, name: TopicPartition, value: bytes, control: ControlLoop
) -> None:
    async def append() -> None:
        cluster.append(name, value, 1)

    control.submit(append()).result(DEADLINE_S)
