"""No handler keeps the role of taker in Python: while one is there, the others serve.

A handler that returns to Python without giving the role up leaves the queue without a taker: pushes
wake no handler, because one seems to take. Each way back to Python is stopped here in the middle,
with one handler left to prove that the queue is served; a lost role shows as an answer that never
comes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from kbroker._net import WrappedRequest
from kbroker.engine import _hot
from kbroker.types import ApiKey
from tests.support.record_batches import build_batch
from tests.unit.engine.wire import Ask, fetch_frame, produce_frame, produce_one, produced_in
from tests.unit.net.harness import (
    COLD_KEY,
    DEADLINE_S,
    Client,
    FailsOnce,
    Rig,
    Topic,
    cold_frame,
    eventually,
)


class Stopped:
    """Where one handler waits in Python until the test lets it go."""

    def __init__(self) -> None:
        self.inside = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, *_: object) -> None:
        self.inside.set()
        assert self.go_on.wait(DEADLINE_S)


@pytest.fixture
def stopped() -> Stopped:
    return Stopped()


def assert_served(client: Client, topic: Topic, times: int = 20) -> None:
    """One request after the other: each needs the queue to be taken from again."""
    for _ in range(times):
        assert produce_one(client, topic, build_batch()).error == 0


def test_a_handler_that_is_in_python_with_a_cold_request(
    make_rig: Callable[..., Rig], stopped: Stopped
) -> None:
    def dispatch(request: WrappedRequest) -> None:
        stopped()
        request.respond(request.body)

    rig = make_rig(handlers=2, dispatch=dispatch)
    topic = rig.create("t")
    slow, other = rig.client(), rig.client()
    slow.send(cold_frame(b"x"))
    assert stopped.inside.wait(DEADLINE_S)
    assert_served(other, topic)
    stopped.go_on.set()
    assert slow.receive_cold() == (1, b"x")


def test_a_handler_that_is_in_python_with_a_produce_to_unpack(
    make_rig: Callable[..., Rig], stopped: Stopped
) -> None:
    """The request was hot: it was planned in a run, with the role held, and then passed on."""

    def dispatch(request: WrappedRequest) -> None:
        stopped()
        rig.hot.produce_checked(request, {}, {}, {0: 87})

    rig = make_rig(handlers=2, dispatch=dispatch)
    topic, repacked = rig.create("t"), rig.create("repacked", stored_codec=3)
    slow, other = rig.client(), rig.client()
    slow.send(produce_frame(9, [(repacked, {0: build_batch()})]))
    assert stopped.inside.wait(DEADLINE_S)
    assert_served(other, topic)
    stopped.go_on.set()
    (result,) = produced_in(9, slow.receive())[1].values()
    assert result.error == 87


def test_a_handler_that_is_in_python_with_a_deadline(
    make_rig: Callable[..., Rig], stopped: Stopped
) -> None:
    """A fetch parked: its deadline goes to the timer through Python."""
    rig = make_rig(handlers=2)
    rig.pool._watch_deadline = stopped
    topic, silent = rig.create("t"), rig.create("silent")
    reader, other = rig.client(), rig.client()
    reader.send(fetch_frame(12, [Ask(silent)], max_wait_ms=600_000))
    assert stopped.inside.wait(DEADLINE_S)
    assert_served(other, topic)
    stopped.go_on.set()


def test_requests_while_all_handlers_are_in_python_are_served_after_it(
    make_rig: Callable[..., Rig], stopped: Stopped
) -> None:
    def dispatch(request: WrappedRequest) -> None:
        stopped()
        request.respond(request.body)

    rig = make_rig(handlers=1, dispatch=dispatch)
    topic = rig.create("t")
    slow = [rig.client(), rig.client()]
    for client in slow:
        client.send(cold_frame(b"x"))
    assert stopped.inside.wait(DEADLINE_S)
    waiting = [rig.client() for _ in range(10)]
    for client in waiting:
        client.send(produce_frame(9, [(topic, {0: build_batch()})]))
    eventually(lambda: rig.server.statistics()["queued_requests"] == 11, "they wait")
    stopped.go_on.set()
    for client in waiting:
        assert produced_in(9, client.receive())[0] == 1
    for client in slow:
        assert client.receive_cold() == (1, b"x")


def test_one_handler_stays_for_requests_without_python(
    make_rig: Callable[..., Rig], stopped: Stopped
) -> None:
    """However many requests need Python, straight from the queue or after a run."""
    order: list[int] = []

    def dispatch(request: WrappedRequest) -> None:
        stopped()
        order.append(request.api_key)
        if request.api_key == ApiKey.PRODUCE:
            rig.hot.produce_checked(request, {}, {}, {0: 87})
        else:
            request.respond(request.body)

    rig = make_rig(handlers=2, dispatch=dispatch)
    topic, repacked = rig.create("t"), rig.create("repacked", stored_codec=3)
    cold, to_unpack, other = [rig.client() for _ in range(3)], rig.client(), rig.client()
    cold[0].send(cold_frame(b"x"))
    assert stopped.inside.wait(DEADLINE_S)
    cold[1].send(cold_frame(b"y"))
    eventually(lambda: rig.server.statistics()["queued_requests"] == 1, "it waits")
    to_unpack.send(produce_frame(9, [(repacked, {0: build_batch()})]))
    eventually(lambda: rig.server.statistics()["queued_requests"] == 2, "it waits, too")
    cold[2].send(cold_frame(b"z"))
    assert_served(other, topic)
    assert rig.server.statistics()["queued_requests"] == 3
    stopped.go_on.set()
    (result,) = produced_in(9, to_unpack.receive())[1].values()
    assert result.error == 87
    assert [client.receive_cold()[1] for client in cold] == [b"x", b"y", b"z"]
    assert order == [COLD_KEY, COLD_KEY, ApiKey.PRODUCE, COLD_KEY]


def test_a_handler_that_is_taken_away_while_it_is_in_python_leaves_its_place_there(
    make_rig: Callable[..., Rig], stopped: Stopped
) -> None:
    def dispatch(request: WrappedRequest) -> None:
        if request.body == b"slow":
            stopped()
        request.respond(request.body)

    rig = make_rig(handlers=1, dispatch=dispatch)
    slow, other = rig.client(), rig.client()
    slow.send(cold_frame(b"slow"))
    assert stopped.inside.wait(DEADLINE_S)
    rig.pool.resize(0)
    rig.pool.resize(1)
    other.send(cold_frame(b"x"))
    assert other.receive_cold() == (1, b"x")
    stopped.go_on.set()
    assert slow.receive_cold() == (1, b"slow")


def test_sleepers_whose_time_runs_out_just_when_work_comes(make_rig: Callable[..., Rig]) -> None:
    """Handlers look up every 300 ms. Requests are sent around that moment, when a handler may be
    waking by itself while it is given the role; once such a role was lost, and the broker mute."""
    rig = make_rig(handlers=1)
    topic = rig.create("t")
    client = rig.client()
    pause = threading.Event()
    for step in range(8):
        pause.wait(0.2985 + step * 0.0003)
        assert_served(client, topic, 1)


def test_a_slow_file_is_not_left_by_a_handler_that_goes_to_python(
    make_rig: Callable[..., Rig],
) -> None:
    """It was woken for the file, which no other serves then; and Python has room just now."""
    entered: list[WrappedRequest] = []
    go_on = threading.Event()

    def dispatch(request: WrappedRequest) -> None:
        entered.append(request)
        assert go_on.wait(DEADLINE_S)
        request.respond(request.body)

    rig = make_rig(handlers=2, dispatch=dispatch)
    topic = rig.create("t", segment_bytes=1 << 30)
    for _ in range(16):
        topic.logs[0].append(build_batch([bytes(1 << 19)]))
    reader = rig.client(receive_bytes=4096)
    first, second = rig.client(), rig.client()
    reader.send(fetch_frame(12, [Ask(topic, max_bytes=8 << 20)], max_bytes=8 << 20))
    eventually(lambda: rig.total("sent_bytes") > 0, "the answer begins")
    first.send(cold_frame(b"a"))
    eventually(lambda: len(entered) == 1, "one is in Python")
    second.send(cold_frame(b"b"))
    eventually(lambda: rig.server.statistics()["queued_requests"] == 1, "the other waits for it")
    eventually(rig.silent_for_a_second)  # what is read next may not be in memory: it is set aside
    rig.hot.add_worker()  # there is room in Python, without a notice
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(reader.receive)
        eventually(lambda: len(entered) == 2, "both are in Python")
        rig.pool.resize(0)  # neither comes back to a file that it has left
        rig.pool.resize(1)
        go_on.set()
        assert len(answer.result(DEADLINE_S)) > 4 << 20
    assert first.receive_cold() == (1, b"a") and second.receive_cold() == (1, b"b")


def test_requests_that_python_has_no_memory_for_end_with_their_connections(
    make_rig: Callable[..., Rig], stopped: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All requests that C had for it, and not only the first: they would wait for ever."""

    def dispatch(request: WrappedRequest) -> None:
        stopped()
        request.respond(request.body)

    rig = make_rig(handlers=1, dispatch=dispatch)
    repacked = rig.create("repacked", stored_codec=3)
    busy = rig.client()
    busy.send(cold_frame(b"first"))
    assert stopped.inside.wait(DEADLINE_S)
    clients = [rig.client() for _ in range(3)]
    for client in clients:
        client.send(produce_frame(9, [(repacked, {0: build_batch()})]))
    eventually(lambda: rig.server.statistics()["queued_requests"] == 3, "one run of them")
    fails = FailsOnce(lambda reason: "cold")
    monkeypatch.setattr(_hot, "_REASONS", fails)
    stopped.go_on.set()
    assert busy.receive_cold() == (1, b"first")
    assert all(client.ended() for client in clients) and fails.failed
    busy.send(cold_frame(b"later", 2))
    assert busy.receive_cold() == (2, b"later")
