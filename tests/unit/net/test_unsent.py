"""Answers that wait in memory for clients that do not read: counted together, and bounded."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from kbroker._net import UNREAD
from tests.support.record_batches import build_batch
from tests.system.process_facts import thread_names
from tests.unit.engine.following import codes, follow, replicated, send
from tests.unit.engine.wire import Ask, fetch_frame
from tests.unit.net.harness import Client, Gate, Rig, cold_frame, eventually

MB = 1 << 20
# More than the buffers of both sockets take, with 100 KB for each side.
LONG = 4 * MB


def unsent(rig: Rig) -> int:
    return rig.server.statistics()["unsent_bytes"]


def served(neighbour: Client, gate: Gate | None = None) -> None:
    """Twice: whatever came before has been looked at by then."""
    for _ in range(2):
        neighbour.send(cold_frame())
        if gate is not None:
            gate.wait_for(1)
            assert gate.release() == 1
        neighbour.receive_cold()


def long_answers(rig: Rig) -> None:
    rig.dispatch = lambda request: request.respond(b"x" * LONG)


def test_unread_answers_are_counted_until_the_client_reads_them(rig: Rig) -> None:
    long_answers(rig)
    client = rig.client(receive_bytes=4096)
    client.send(cold_frame())
    eventually(lambda: unsent(rig) > LONG, "the answer is counted, whole")
    assert len(client.receive()) == LONG + 4
    eventually(lambda: unsent(rig) == 0, "it has left")


def test_it_is_forgotten_with_its_connection(rig: Rig) -> None:
    long_answers(rig)
    client = rig.client(receive_bytes=4096)
    client.send(cold_frame())
    eventually(lambda: unsent(rig) > LONG, "the answer is counted")
    client.reset()
    eventually(lambda: unsent(rig) == 0, "it is freed")


def test_an_answer_that_its_socket_takes_at_once_is_never_counted(rig: Rig) -> None:
    """Nor is a range of a file, of which only the head is in memory."""
    topic = rig.create("t")
    client = rig.client()
    for _ in range(20):
        client.send(cold_frame(b"y" * 10_000))
        client.receive_cold()
        assert unsent(rig) == 0
    batch = build_batch([b"z" * 900_000])
    for _ in range(8):
        assert topic.logs[0].append(batch).error == 0
    deaf = rig.client(receive_bytes=4096)
    deaf.send(fetch_frame(11, [Ask(topic, max_bytes=2 * LONG)]))
    eventually(deaf.has_bytes, "the fetch is answered")
    served(rig.client())
    assert unsent(rig) < 10_000


@pytest.mark.parametrize("processors", [1, 3])
def test_beyond_the_bound_those_are_closed_that_took_nothing_for_longest(
    make_rig: Callable[..., Rig], processors: int
) -> None:
    """Whichever network thread has them; a client that reads is served on."""
    rig = make_rig(unsent_bytes_max=4 * LONG, processors=processors)
    long_answers(rig)
    deaf: list[Client] = []
    for count in range(1, 12):
        deaf.append(rig.client(receive_bytes=4096))
        deaf[-1].send(cold_frame())
        eventually(
            lambda count=count: (
                unsent(rig) > min(count, 3) * LONG
                and rig.total("unread_closed") == max(0, count - 3)
            ),
            "the bound is kept to",
        )
    assert unsent(rig) <= 4 * LONG
    assert rig.server.closes()[UNREAD] == 8
    for left in deaf[-3:]:
        assert len(left.receive()) == LONG + 4


@pytest.mark.parametrize("processors", [1, 2])
def test_a_client_that_reads_a_long_answer_is_not_closed_for_short_ones(
    make_rig: Callable[..., Rig], processors: int
) -> None:
    """Though it has most: that would be so each time that it comes again."""
    rig = make_rig(unsent_bytes_max=2 * LONG, processors=processors)
    sizes = {b"long": LONG, b"short": MB}
    rig.dispatch = lambda request: request.respond(b"x" * sizes[request.body])
    for count in range(1, 8):
        rig.client(receive_bytes=4096).send(cold_frame(b"short"))
        eventually(lambda count=count: unsent(rig) > count * MB, "it waits")
    for _ in range(3):
        reader = rig.client()
        reader.send(cold_frame(b"long"))
        assert len(reader.receive()) == LONG + 4
    assert rig.total("unread_closed") >= 3


def test_an_answer_alone_may_be_longer_than_the_bound(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(unsent_bytes_max=MB, processors=2)
    long_answers(rig)
    reader = rig.client(receive_bytes=4096)
    reader.send(cold_frame())
    eventually(lambda: unsent(rig) > LONG, "it waits")
    assert len(reader.receive()) == LONG + 4
    eventually(lambda: unsent(rig) == 0, "it has left")
    deaf = rig.client(receive_bytes=4096)
    deaf.send(cold_frame())
    eventually(lambda: unsent(rig) > LONG, "it waits")
    reader.send(cold_frame())
    eventually(lambda: rig.total("unread_closed") == 1, "beside another it goes")
    assert len(reader.receive()) == LONG + 4


def test_a_network_thread_that_has_ended_is_not_waited_for(make_rig: Callable[..., Rig]) -> None:
    """What it had was unread for longer than any that the others have."""
    rig = make_rig(unsent_bytes_max=3 * LONG, processors=2)
    long_answers(rig)
    for count in (1, 2):
        rig.client(receive_bytes=4096).send(cold_frame())
        eventually(lambda count=count: unsent(rig) > count * LONG, "one on each thread")
    for client in rig.clients:
        client.reset()
    eventually(lambda: unsent(rig) == 0, "they are gone")
    rig.server.resize(1)
    eventually(lambda: "network-1" not in thread_names(os.getpid()), "its thread ends")
    for _ in range(3):
        rig.client(receive_bytes=4096).send(cold_frame())
    eventually(lambda: rig.total("unread_closed") == 1, "the bound is kept to")


def test_answers_after_one_that_waits_are_counted_too(make_rig: Callable[..., Rig]) -> None:
    """A pipelined channel is read on while a produce waits for its followers: up to half the
    bound, then not before these have left."""
    gate = Gate()
    rig = make_rig(unsent_bytes_max=3 * LONG, dispatch=gate)
    topic = replicated(rig)
    client = rig.client(receive_bytes=4096)
    send(client, topic)
    rig.wait_parked(1)
    for count in (1, 2):
        client.send(cold_frame())
        gate.wait_for(1)
        gate.held.pop().respond(b"x" * LONG)
        eventually(lambda count=count: unsent(rig) > count * LONG, "it is counted")
    client.send(cold_frame(b"y"))
    client.all_delivered()
    served(rig.client(), gate)
    assert not gate.held, "nothing is read any more"
    follow(rig, topic.logs[0])
    assert codes(client) == [0]
    for _ in range(2):
        assert len(client.receive()) == LONG + 4
    gate.wait_for(1)
    gate.release()
    assert client.receive_cold() == (1, b"y")
    assert unsent(rig) == 0
