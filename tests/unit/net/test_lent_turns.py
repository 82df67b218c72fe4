"""A network thread that sleeps lends its turn: short answers leave without it, and nothing else is
forgotten meanwhile.

A handler that has to wait in the midst of a run waits before it writes, so that the events
meanwhile are in order. Which thread sends an answer cannot be seen outside, so a figure says it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kbroker._state import State
from kbroker.testing.file_faults import FileFaults
from tests.support.record_batches import build_batch
from tests.unit.engine.following import follow, nothing_waits, replicated, send
from tests.unit.engine.wire import (
    Ask,
    fetch_frame,
    produce_frame,
    produce_one,
    produced_in,
)
from tests.unit.net.harness import DEADLINE_S, Rig, Topic, eventually
from tests.unit.net.test_state_times import WAIT_S, pause, state_s

VERSION = 9
PRODUCES = 100


class Gate:
    """Where a handler waits before it writes, once it is closed, until the test lets it go."""

    def __init__(self) -> None:
        self.is_closed = False
        self.inside = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, operation: str, path: str) -> None:
        if self.is_closed and operation == "write" and path.endswith(".log"):
            self.inside.set()
            assert self.go_on.wait(DEADLINE_S)

    def close(self) -> None:
        self.inside.clear()
        self.go_on.clear()
        self.is_closed = True

    def open(self) -> None:
        self.is_closed = False
        self.go_on.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    with FileFaults(before=gate):
        yield gate
        gate.open()


def frame(topic: Topic, correlation_id: int = 1, value: bytes = b"v") -> bytes:
    return produce_frame(
        VERSION, [(topic, {0: build_batch([value])})], correlation_id=correlation_id
    )


def answered(payload: bytes) -> int:
    correlation_id, partitions = produced_in(VERSION, payload)
    assert [produced.error for produced in partitions.values()] == [0]
    return correlation_id


def test_answers_leave_while_the_network_thread_sleeps(rig: Rig) -> None:
    client, topic = rig.client(), rig.create("t")

    def lent() -> bool:
        assert produce_one(client, topic, build_batch()).error == 0
        return rig.total("turns_lent") > 20

    eventually(lent)
    eventually(lambda: topic.logs[0].log_end_offset == rig.total("responses"))


def test_bytes_that_came_while_it_was_answered_are_read_at_once(rig: Rig, gate: Gate) -> None:
    """The socket says once that there are bytes, and its channel is not read at that moment. Who
    left that to the thread's next look would wait for the rest of its sleep, 300 ms."""
    client, topic = rig.client(), rig.create("t")
    took_s = []
    first = rig.total("turns_lent")
    for _ in range(5):
        gate.close()
        client.send(frame(topic, 1))
        assert gate.inside.wait(DEADLINE_S)
        client.send(frame(topic, 2))
        eventually(lambda: waiting(rig) == 1)
        since_s = time.monotonic()
        gate.open()
        assert [answered(client.receive()), answered(client.receive())] == [1, 2]
        took_s.append(time.monotonic() - since_s)
    assert min(took_s) < 0.2
    assert rig.total("turns_lent") > first


def waiting(rig: Rig) -> int:
    """Channels that are not read and have bytes."""
    return sum(
        listener["waiting"]
        for processor in rig.server.statistics()["processors"]
        for listener in processor["listeners"].values()
    )


def test_a_peer_that_has_gone_meanwhile(rig: Rig, gate: Gate) -> None:
    client, topic = rig.client(), rig.create("t")
    gate.close()
    client.send(frame(topic))
    assert gate.inside.wait(DEADLINE_S)
    client.reset()
    eventually(lambda: rig.total("connections") == 0)
    gate.open()
    eventually(lambda: rig.total("live_requests") == 0)
    other = rig.client()
    assert produce_one(other, topic, build_batch()).base_offset == 1


def test_a_peer_that_has_gone_wakes_the_thread_once(
    make_rig: Callable[..., Rig], gate: Gate
) -> None:
    """Its channel stays for as long as its request is with a handler, and is no news any more."""
    rig = make_rig(handlers=2)
    topics = [rig.create("held"), rig.create("t")]
    held, client = rig.client(), rig.client()
    gate.close()
    held.send(frame(topics[0]))
    assert gate.inside.wait(DEADLINE_S)
    gate.is_closed = False
    held.reset()
    eventually(lambda: rig.total("connections") == 1)

    def wakes_once() -> bool:  # where the machine has other work, not in each round
        lent, slept = rig.total("turns_lent"), sleeps_of_network_thread()
        for _ in range(PRODUCES):
            assert produce_one(client, topics[1], build_batch()).error == 0
        lent, slept = rig.total("turns_lent") - lent, sleeps_of_network_thread() - slept
        return lent > PRODUCES / 2 and slept < PRODUCES + lent / 2

    assert any(wakes_once() for _ in range(20))


def sleeps_of_network_thread() -> int:
    (sleeps,) = eventually(lambda: one_only(sleeps_of_network_threads()), "one such thread")
    return sleeps


def one_only(found: list[int]) -> list[int] | None:
    """Of a test before this one there may still be the entry of a thread that has ended."""
    return found if len(found) == 1 else None


def sleeps_of_network_threads() -> list[int]:
    found = []
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            if (thread / "comm").read_text().startswith("network-"):
                status = (thread / "status").read_text().splitlines()
                (line,) = [each for each in status if each.startswith("voluntary_ctxt_switches")]
                found.append(int(line.split()[1]))
    return found


def test_a_peer_that_ends_after_its_request_has_its_answer_and_the_end(
    rig: Rig, gate: Gate
) -> None:
    client, topic = rig.client(), rig.create("t")
    gate.close()
    client.send(frame(topic))
    assert gate.inside.wait(DEADLINE_S)
    client.end_sending()
    gate.open()
    assert answered(client.receive()) == 1
    assert client.ended()


def test_long_answers_are_left_to_the_network_thread(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    client, topic = rig.client(), rig.create("t")
    for _ in range(3):
        assert produce_one(client, topic, build_batch([bytes(200_000)])).error == 0
    lent = rig.total("turns_lent")
    for _ in range(20):
        client.send(fetch_frame(12, [Ask(topic)]))
        assert len(client.receive()) > 600_000
    assert rig.total("turns_lent") == lent


def test_the_time_until_a_produce_waits_is_counted(rig: Rig, gate: Gate) -> None:
    """The clock is read in the turn in which a produce begins to wait, not in the thread's own."""
    topic = replicated(rig)
    client = rig.client()
    gate.close()
    send(client, topic)
    assert gate.inside.wait(DEADLINE_S)
    pause()
    gate.open()
    rig.wait_parked(1)
    eventually(lambda: state_s(rig)["Produce", State.MUTED_AND_RESPONSE_PENDING] >= 0.9 * WAIT_S)
    follow(rig, topic.logs[0])
    client.receive()
    nothing_waits(rig)


def test_many_connections_and_handlers_lose_no_answer(make_rig: Callable[..., Rig]) -> None:
    """One network thread that sleeps, is woken and lends its turn in every order."""
    rig = make_rig(handlers=8)
    topics = [rig.create(f"t{number}") for number in range(4)]
    rounds = 150
    failed: list[BaseException] = []

    def load(number: int) -> None:
        try:
            client = rig.client()
            topic = topics[number % len(topics)]
            for at in range(rounds):
                some = 1 + (number + at) % 5
                client.send(b"".join(frame(topic, n, bytes(64 << at % 8)) for n in range(some)))
                assert [answered(client.receive()) for _ in range(some)] == list(range(some))
                if at % 50 == 49:
                    client.close()
                    client = rig.client()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=load, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    sent = sum(1 + (number + at) % 5 for number in range(12) for at in range(rounds))
    assert sum(topic.logs[0].log_end_offset for topic in topics) == sent
    eventually(lambda: rig.total("responses") == sent)
    assert rig.total("turns_lent") > 0
