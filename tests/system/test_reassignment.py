"""Partitions move between brokers under load, and not when that is taken back (KIP-455).

Apache Kafka's own tool moves them, too, with a throttle, which sets what each broker is to have.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest

from kbroker.cli.main import main
from kbroker.errors import ErrorCode
from kbroker.peer.client import Client
from kbroker.peer.config_messages import BROKER_RESOURCE, TOPIC_RESOURCE, Resource
from kbroker.peer.placement_messages import ReassignedPartition
from kbroker.testing import Cluster
from kbroker.testing.inspection import wait_until
from kbroker.types import TopicPartition
from tests.clients.agents.tools import Tools

pytestmark = [pytest.mark.client, pytest.mark.timeout(240)]

TOPIC = "orders"
NAME = TopicPartition(TOPIC, 0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # Brokers are cut from each other and killed, and never from ZooKeeper: what a machine that is
    # full of other work does to a session, or to a follower, is not what is looked at here.
    settings = {
        "min.insync.replicas": 2,
        "zookeeper.session.timeout.ms": 6_000,
        "replica.lag.time.max.ms": 10_000,
        "auto.leader.rebalance.enable": False,
    }
    with Cluster(4, settings, topics={TOPIC: 1}) as made:
        yield made


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    cluster.heal()
    with Client(cluster.bootstrap) as made:
        yield made


def placed(client: Client) -> tuple[int, ...]:
    (partition,) = client.metadata([TOPIC]).topics[TOPIC].partitions
    return partition.replicas


def cluster_knows(cluster: Cluster, target: list[int]) -> None:
    def known() -> bool:
        described = [each.partitions(TOPIC)[0] for each in cluster.brokers.values()]
        return all(each.replicas == tuple(target) for each in described)

    wait_until(known, "all brokers know")


def moves(cluster: Cluster) -> list[dict[TopicPartition, ReassignedPartition]]:
    """What is on its way to other brokers, as each of them knows it."""
    described = []
    for each in cluster.brokers.values():
        with Client(each.bootstrap) as asking:
            described.append(asking.reassignments())
    return described


def away_from(client: Client) -> int:
    """The broker that holds no replica."""
    (other,) = {1, 2, 3, 4} - {*placed(client)}
    return other


def log_of(cluster: Cluster, broker_id: int) -> Path:
    return cluster.brokers[broker_id].data_dir / f"{TOPIC}-0"


def held_up(cluster: Cluster, client: Client) -> int:
    """The broker that holds no replica, and cannot fetch one: its leader is out of its reach."""
    absent = cluster.brokers[away_from(client)]
    while cluster.controller() in (absent, cluster.leader(TOPIC, 0)):  # which all are to reach
        cluster.controller().restart()
        cluster.wait_in_sync(TOPIC)
    cluster.cut(absent, cluster.leader(TOPIC, 0), zookeeper=False)
    return absent.broker_id


@contextmanager
def written(cluster: Cluster) -> Iterator[list[bytes]]:
    """Numbers by an idempotent producer while the block runs; those that were acknowledged."""
    acknowledged: list[bytes] = []
    failed: list[object] = []
    ends = threading.Event()
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 1}
    )

    def note(error: object, message: confluent_kafka.Message) -> None:
        if error is not None:
            failed.append(error)
        else:
            acknowledged.append(message.value() or b"")

    def write() -> None:
        number = 0
        while not ends.is_set():
            producer.produce(TOPIC, b"%d" % number, partition=0, on_delivery=note)
            producer.poll(0.002)
            number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        wait_until(lambda: len(acknowledged) > 100, "records are acknowledged")
        before = len(acknowledged)
        yield acknowledged
        wait_until(lambda: len(acknowledged) > before + 100, "more records are acknowledged")
    finally:
        ends.set()
        thread.join()
    assert producer.flush(60) == 0
    assert not failed


def test_all_replicas_move_under_load_and_nothing_is_lost(cluster: Cluster, client: Client) -> None:
    held = placed(client)
    target = [away_from(client), *reversed(held[1:])]
    with written(cluster) as acknowledged:
        (result,) = client.reassign({NAME: target})
        assert result.error is ErrorCode.NONE
        wait_until(lambda: not client.reassignments(), "nothing moves")
    wait_until(lambda: placed(client) == tuple(target), "all brokers know")
    wait_until(lambda: not log_of(cluster, held[0]).exists(), "who lost it has no log of it")
    cluster.wait_in_sync(TOPIC)
    stored = [each.value for each in cluster.records(TOPIC, 0)]
    assert [value for value in stored if value in {*acknowledged}] == acknowledged
    assert len(stored) == len({*stored})
    cluster.move_leader(TOPIC, 0, cluster.brokers[target[0]])  # which has all of it
    assert [each.value for each in cluster.records(TOPIC, 0)] == stored


def test_a_waiting_reassignment_is_listed_and_can_be_cancelled(
    cluster: Cluster, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    held = placed(client)
    absent = held_up(cluster, client)
    target = ",".join(map(str, [absent, *held[1:]]))
    at = ("-b", cluster.brokers[held[0]].bootstrap)
    assert main(["partition", "move", TOPIC, "--to", target, *at]) == 0
    assert capsys.readouterr().out == f"orders-0: on its way to {target}\n"
    wait_until(lambda: all(moves(cluster)), "all brokers know")  # any of them is asked from here on
    (moving,) = client.reassignments().values()
    replicas = (absent, *held[1:], held[0])
    assert tuple(moving) == (replicas, (absent,), (held[0],))
    assert main(["partition", "list", *at]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == [
        "orders-0", ",".join(map(str, replicas)), str(absent), str(held[0]),
    ]  # fmt: skip
    main(["health", *at])  # whose status is also that of the disks, which others fill
    assert ", each with all its replicas, 1 on the way to other brokers" in capsys.readouterr().out
    assert main(["partition", "cancel", TOPIC, *at]) == 0
    assert capsys.readouterr().out == "orders-0: stays where it was\n"
    wait_until(lambda: not any(moves(cluster)), "nothing moves")
    wait_until(lambda: {*placed(client)} == {*held}, "all brokers know")
    cluster.mend()
    wait_until(lambda: not log_of(cluster, absent).exists(), "nothing of it is left there")
    assert main(["partition", "cancel", TOPIC, *at]) == 1
    assert "NO_REASSIGNMENT_IN_PROGRESS" in capsys.readouterr().err


def test_it_ends_though_controller_and_leader_are_killed_on_the_way(
    cluster: Cluster, client: Client
) -> None:
    held = placed(client)
    absent = held_up(cluster, client)
    target = [absent, *held[:2]]
    with written(cluster):
        client.reassign({NAME: target})
        for killed in {cluster.controller().broker_id, cluster.leader(TOPIC, 0).broker_id}:
            if killed != absent:
                cluster.kill(killed)
        cluster.heal()
        wait_until(lambda: not client.reassignments(), "nothing moves")
    wait_until(lambda: placed(client) == tuple(target), "all brokers know")
    cluster.wait_in_sync(TOPIC)


def test_fewer_replicas_and_more_again(cluster: Cluster, client: Client) -> None:
    one = placed(client)[0]
    client.reassign({NAME: [one]})
    wait_until(lambda: placed(client) == (one,), "all brokers know")
    with written(cluster):  # min.insync.replicas is 2, and there is one
        pass
    target = (one, *(each for each in (1, 2, 3, 4) if each != one))[:3]
    decides = cluster.controller().bootstrap  # and knows it first; others know a moment later
    words = ("--to", ",".join(map(str, target)), "--wait", "-b", decides)
    assert main(["partition", "move", f"{TOPIC}:0", *words]) == 0
    with Client(decides) as asking:
        assert asking.reassignments() == {}
    wait_until(lambda: placed(client) == target, "all brokers know")


def test_refusals(cluster: Cluster, client: Client) -> None:
    unknown = TopicPartition("no-topic", 0)
    results = client.reassign({NAME: [1, 1], unknown: [1], TopicPartition(TOPIC, 7): None})
    assert {each.partition: each.error for each in results} == {
        NAME: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        TopicPartition(TOPIC, 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    for target in ([], [1, 9]):
        (result,) = client.reassign({NAME: target})
        assert result.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_every_broker_takes_settings_of_its_own(cluster: Cluster, client: Client) -> None:
    """Whichever of them is the controller."""
    for broker_id in cluster.brokers:
        resource = Resource(BROKER_RESOURCE, str(broker_id))
        rate = {"leader.replication.throttled.rate": str(1000 + broker_id)}
        (result,) = client.alter_configs([resource], rate, [])
        assert result.error is ErrorCode.NONE, result
    for broker_id in cluster.brokers:
        resource = Resource(BROKER_RESOURCE, str(broker_id))

        def described(
            resource: Resource = resource,
        ) -> list[str | None]:  # nothing before it counts
            return [each.value for each in client.configs(resource, list(rate))]

        wait_until(lambda t=described, b=broker_id: t() == [str(1000 + b)], "it is set")
        client.alter_configs([resource], {}, list(rate))


def throttled(client: Client) -> list[str]:
    """The topic's settings that hold replicas back, as one of the brokers knows them."""
    found = client.topic_configs(TOPIC)
    return [each.name for each in found if "throttled" in each.name and each.value]


@pytest.mark.java
@pytest.mark.slow
def test_apache_kafkas_tool_moves_them(cluster: Cluster, client: Client, tmp_path: Path) -> None:
    tools = Tools()
    held = placed(client)
    target = [away_from(client), *held[:2]]
    plan = tmp_path / "plan.json"
    moves = [{"topic": TOPIC, "partition": 0, "replicas": target}]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))

    def run(*arguments: str) -> str:
        at = ("--bootstrap-server", cluster.bootstrap)
        ran = tools.attempt("reassign.ReassignPartitionsCommand", *at, *arguments)
        assert ran.returncode == 0, ran.stderr.decode() + ran.stdout.decode()
        return ran.stdout.decode()

    try:
        plan_of = ("--reassignment-json-file", str(plan))
        described = run(*plan_of, "--execute", "--throttle", "50000000")
        assert "Successfully started partition reassignment for orders-0" in described
        wait_until(lambda: not client.reassignments(), "nothing moves")
        cluster_knows(cluster, target)  # any of them may be asked
        described = run(*plan_of, "--verify")
        assert "Reassignment of partition orders-0 is completed." in described
        assert "Clearing topic-level throttles on topic orders" in described
    finally:
        tools.close()
    wait_until(lambda: not throttled(client), "no broker knows of a throttle")


def test_a_throttled_replica_comes_no_faster(cluster: Cluster, client: Client) -> None:
    """With settings made while the brokers run, as kafka-reassign-partitions.sh makes them."""
    held, absent = placed(client), away_from(client)
    with written(cluster):
        pass
    log_bytes = sum(each.stat().st_size for each in log_of(cluster, held[0]).glob("*.log"))
    rate = log_bytes // 4
    broker, topic = Resource(BROKER_RESOURCE, str(absent)), Resource(TOPIC_RESOURCE, TOPIC)
    rates = {"follower.replication.throttled.rate": str(rate)}
    replicas = {"follower.replication.throttled.replicas": f"0:{absent}"}
    (done,) = client.alter_configs([broker], rates, ())
    assert done.error is ErrorCode.NONE
    (done,) = client.alter_configs([topic], replicas, ())
    assert done.error is ErrorCode.NONE
    began = time.monotonic()
    client.reassign({NAME: [*held, absent]})
    # The broker that is asked may not know yet that anything moves.
    wait_until(lambda: absent in placed(client) and not client.reassignments(), "it is there")
    took_s = time.monotonic() - began
    client.alter_configs([broker], {}, [*rates])
    client.alter_configs([topic], {}, [*replicas])
    client.reassign({NAME: held})
    wait_until(lambda: not client.reassignments(), "nothing moves")
    assert took_s > 1  # of four; a second's worth comes at once, and the last piece whole
