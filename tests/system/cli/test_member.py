"""Our client as a member of a group: beside another client, expelled, interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import confluent_kafka
import pytest

from kbroker.cli.main import main
from kbroker.clock import NS_PER_MS, SystemClock
from kbroker.errors import ErrorCode
from kbroker.peer import member_messages
from kbroker.peer.client import Client
from kbroker.peer.group_consumer import (
    COMMIT_INTERVAL_MS,
    HEARTBEAT_INTERVAL_MS,
    GroupConsumer,
)
from kbroker.peer.groups import Groups
from kbroker.peer.producer import Producer
from kbroker.protocol.record_batch import Record
from kbroker.types import ApiKey, TopicPartition
from tests.support import servers
from tests.system.cli.conftest import Document, MakeTopic, Run
from tests.system.cli.test_group import SECONDS_MAX, committed, consumer, states, wait_until


class AheadClock(SystemClock):
    """The machine's time, and what a test has put it forward by: waits are as long as they are."""

    __slots__ = ("_ahead_ns",)

    def __init__(self) -> None:
        self._ahead_ns = 0

    def advance(self, ms: int) -> None:
        self._ahead_ns += ms * NS_PER_MS

    def monotonic_ns(self) -> int:
        return super().monotonic_ns() + self._ahead_ns

    def wait_until(self, condition: threading.Condition, deadline_ns: int | None) -> None:
        ours_ns = None if deadline_ns is None else deadline_ns - self._ahead_ns
        super().wait_until(condition, ours_ns)


@pytest.fixture
def clock() -> AheadClock:
    return AheadClock()


@pytest.fixture
def turned(bootstrap: str, clock: AheadClock) -> Iterator[Client]:
    """A client whose time the test turns: what is due by the clock is done when it says so."""
    with Client(bootstrap, clock=clock) as client:
        yield client


def member_of(client: Client, group: str, topic: str, **options: str) -> GroupConsumer:
    return GroupConsumer(client, group, topic, lambda new: dict.fromkeys(new, 0), **options)


def read(member: GroupConsumer) -> None:
    """One poll, and positions moved past its records."""
    for where, result in member.poll().fetched.items():
        if result.records:
            member.positions[where] = result.high_watermark


def remove(client: Client, group: str, member: GroupConsumer) -> None:
    """As an administrator does it, without the member's knowledge."""
    error = Groups(client).at_coordinator(
        group,
        ApiKey.LEAVE_GROUP,
        lambda version: member_messages.encode_leave_group(version, group, member.member),
        member_messages.decode_leave_group,
    )
    assert error is ErrorCode.NONE


def test_commits_when_it_is_due_and_when_it_leaves(
    client: Client, turned: Client, clock: AheadClock, make_topic: MakeTopic, name: str
) -> None:
    topic = make_topic(1, records=5)
    member = member_of(turned, name, topic)
    read(member)
    assert committed(client, name) == []
    clock.advance(COMMIT_INTERVAL_MS)
    read(member)
    assert committed(client, name) == [5]
    member.positions[TopicPartition(topic, 0)] = 3
    member.close()
    assert committed(client, name) == [3]
    assert not Groups(client).describe(name).members
    member.close()  # once more does nothing


@pytest.mark.parametrize("due_ms", [HEARTBEAT_INTERVAL_MS, COMMIT_INTERVAL_MS])
def test_an_expelled_member_joins_anew(
    client: Client,
    turned: Client,
    clock: AheadClock,
    make_topic: MakeTopic,
    name: str,
    due_ms: int,
) -> None:
    """It learns of it from a heartbeat or a commit; what it had not committed is read again."""
    topic = make_topic(1, records=5)
    member = member_of(turned, name, topic)
    read(member)
    before = member.member.member_id
    remove(client, name, member)
    clock.advance(due_ms)
    for _ in range(2):
        read(member)
    assert member.member.member_id not in ("", before)
    assert Groups(client).describe(name).state == "Stable"
    assert member.positions == {TopicPartition(topic, 0): 5}
    assert committed(client, name) == []
    member.close()
    assert committed(client, name) == [5]


def test_a_static_member_keeps_its_place(
    client: Client, bootstrap: str, turned: Client, make_topic: MakeTopic, name: str
) -> None:
    topic = make_topic(1, records=5)
    first = member_of(turned, name, topic, instance_id="one")
    read(first)
    first.close()
    (place,) = Groups(client).describe(name).members
    assert (place.instance_id, committed(client, name)) == ("one", [5])
    with Client(bootstrap) as other:
        again = member_of(other, name, topic, instance_id="one")
        read(again)
        assert again.positions == {TopicPartition(topic, 0): 5}
        assert again.member.generation == first.member.generation, "there was no rebalance"


def test_a_commit_outside_of_the_log_goes_on_inside(
    run: Run, client: Client, make_topic: MakeTopic, name: str
) -> None:
    topic = make_topic(1, records=10)
    Groups(client).commit(name, {TopicPartition(topic, 0): 2})
    assert run("topic", "trim-prefix", topic, "--before", "6")[0] == 0
    status, out, err = run("consume", topic, "-G", name, "-e", "-f", "%s ")
    assert (status, out) == (0, "6 7 8 9 ")
    assert err == f"warning: {topic}-0 has no offset 2, on from 6\n"


def test_beside_another_client(
    document: Document, make_topic: MakeTopic, name: str, bootstrap: str
) -> None:
    """librdkafka leads first, then we do; each reads the other's bytes."""
    topic = make_topic(4)
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": name,
        "partition.assignment.strategy": "range",
        "session.timeout.ms": 10_000,
        "heartbeat.interval.ms": 500,
    }

    def shares() -> list[int]:
        (described,) = document("group", "describe", name)
        return sorted(len(member["partitions"]) for member in described["members"])

    def settled(wanted: list[int]) -> bool:
        if other is not None:
            other.poll(0.05)
        return states(document, name) == "Stable" and shares() == wanted

    with ExitStack() as stack:
        second = confluent_kafka.Consumer(settings)
        other: confluent_kafka.Consumer | None = second
        second.subscribe([topic])
        wait_until(lambda: settled([4]))
        stack.enter_context(consumer(bootstrap, topic, "-G", name))
        wait_until(lambda: settled([2, 2]))
        second.close()
        other = None
        wait_until(lambda: settled([4]))
        other = second = confluent_kafka.Consumer(settings)
        second.subscribe([topic])
        wait_until(lambda: settled([2, 2]))
        other.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_member_commits_and_leaves(
    document: Document,
    client: Client,
    make_topic: MakeTopic,
    name: str,
    bootstrap: str,
    number: signal.Signals,
) -> None:
    topic = make_topic(1, records=5)
    words = ["consume", topic, "-G", name, "--from-beginning", "-f", "%s ", "-b", bootstrap]
    # With output unbuffered, the signal may come between a write and the note that it was made.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    with subprocess.Popen(
        [sys.executable, "-m", "kbroker", *words], stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(10) == b"0 1 2 3 4 "
        process.send_signal(number)
        assert process.wait(SECONDS_MAX) == 130
    assert committed(client, name) == [5]
    assert states(document, name) == "Empty"


@pytest.mark.skipif(
    "KBROKER_TEST_BOOTSTRAP" in os.environ, reason="kills a broker, which must be its own"
)
def test_a_member_outlives_its_broker(name: str) -> None:
    """kill -9 between two records: the member goes on by itself, with the unread records."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    with servers.make() as broker, ExitStack() as stack:
        at = ["-b", broker.bootstrap]
        assert main(["topic", "create", name, "-p", "1", *at]) == 0
        words = ["consume", name, "-G", name, "--from-beginning", "-f", "%s ", *at]
        process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", "kbroker", *words], stdout=subprocess.PIPE, env=environment
            )
        )
        stack.callback(process.kill)
        assert process.stdout is not None
        for number in range(3):
            with Client(broker.bootstrap) as client:
                Producer(client, name).send([Record(None, b"%d" % number)])
            assert process.stdout.read(2) == b"%d " % number
            if number < 2:
                broker.kill9()
                broker.start()
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS_MAX) == 130
        with Client(broker.bootstrap) as client:
            assert committed(client, name) == [3]
