"""The bounded request queue: full means that a connection waits, and no other."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kbroker._net import WrappedRequest
from tests.support.record_batches import build_batch
from tests.unit.engine.wire import produce_frame, produced_in
from tests.unit.net.harness import DEADLINE_S, Rig, cold_frame, eventually


class Blocked:
    """A dispatch that stays inside the first request until the test lets it go."""

    def __init__(self) -> None:
        self.inside = threading.Event()
        self.go_on = threading.Event()
        self.order: list[bytes] = []

    def __call__(self, request: WrappedRequest) -> None:
        self.inside.set()
        assert self.go_on.wait(DEADLINE_S)
        self.order.append(request.body)
        request.respond(request.body)


@pytest.mark.parametrize("queued_requests_max", [1, 2])
@pytest.mark.parametrize("processors", [1, 2])
def test_everything_is_answered_though_the_queue_is_full(
    make_rig: Callable[..., Rig], queued_requests_max: int, processors: int
) -> None:
    blocked = Blocked()
    rig = make_rig(queued_requests_max=queued_requests_max, processors=processors, dispatch=blocked)
    clients = [rig.client() for _ in range(10)]
    for number, client in enumerate(clients):
        client.send(b"".join(cold_frame(b"%d-%d" % (number, i), i) for i in range(5)))
    assert blocked.inside.wait(DEADLINE_S)
    eventually(
        lambda: rig.server.statistics()["queued_requests"] == queued_requests_max, "a full queue"
    )
    # One is in service, the queue is full, the others stand with their connections.
    late = rig.client()
    late.send(cold_frame(b"late", 7))
    eventually(lambda: rig.total("connections") == 11, "the network thread takes connections")
    blocked.go_on.set()
    for number, client in enumerate(clients):
        for i in range(5):
            assert client.receive_cold() == (i, b"%d-%d" % (number, i))
    assert late.receive_cold() == (7, b"late")
    assert rig.server.statistics()["queued_requests_peak"] == queued_requests_max


def test_answers_leave_while_the_queue_is_full(make_rig: Callable[..., Rig]) -> None:
    held: list[WrappedRequest] = []
    blocked = Blocked()

    def dispatch(request: WrappedRequest) -> None:
        if request.body == b"answer me later":
            held.append(request)
        else:
            blocked(request)

    rig = make_rig(queued_requests_max=1, dispatch=dispatch)
    first = rig.client()
    first.send(cold_frame(b"answer me later"))
    eventually(lambda: held, "held")
    others = [rig.client() for _ in range(4)]
    for client in others:
        client.send(cold_frame(b"x"))
    assert blocked.inside.wait(DEADLINE_S)
    eventually(lambda: rig.total("requests") == 5, "all are received")
    held.pop().respond(b"now")
    assert first.receive_cold() == (1, b"now")
    blocked.go_on.set()
    assert [client.receive_cold() for client in others] == [(1, b"x")] * 4


def test_a_connection_that_ends_while_its_request_has_no_room(
    make_rig: Callable[..., Rig],
) -> None:
    blocked = Blocked()
    rig = make_rig(queued_requests_max=1, dispatch=blocked)
    clients = [rig.client() for _ in range(6)]
    for client in clients:
        client.send(cold_frame(b"x"))
    assert blocked.inside.wait(DEADLINE_S)
    eventually(lambda: rig.total("requests") == 6, "all are received")
    for client in clients[1:5]:
        client.reset()
    eventually(lambda: rig.total("connections") == 2, "four are gone")
    blocked.go_on.set()
    answered = [client.receive_cold() for client in (clients[0], clients[5])]
    assert answered == [(1, b"x")] * 2


def test_the_byte_bound_lets_a_large_request_in_alone(make_rig: Callable[..., Rig]) -> None:
    blocked = Blocked()
    rig = make_rig(queued_bytes_max=10_000, dispatch=blocked)
    clients = [rig.client() for _ in range(6)]
    clients[0].send(cold_frame(b"first"))
    assert blocked.inside.wait(DEADLINE_S)
    for client in clients[1:]:
        client.send(cold_frame(b"y" * 50_000))
    eventually(lambda: rig.total("requests") == 6, "all are received")
    eventually(lambda: rig.server.statistics()["queued_requests"] == 1, "one has room")
    blocked.go_on.set()
    assert clients[0].receive_cold() == (1, b"first")
    for client in clients[1:]:
        assert client.receive_cold() == (1, b"y" * 50_000)
    assert rig.server.statistics()["queued_bytes"] == 0


def test_a_train_has_room_where_a_request_has(make_rig: Callable[..., Rig]) -> None:
    """It would wait without an end where others' requests take each place that is free."""
    blocked = Blocked()
    rig = make_rig(queued_requests_max=4, handlers=1, dispatch=blocked)
    topic = rig.create("t")
    clients = [rig.client() for _ in range(5)]
    clients[0].send(cold_frame(b"first"))
    assert blocked.inside.wait(DEADLINE_S)
    for client in clients[1:4]:
        client.send(cold_frame(b"y"))
    eventually(lambda: rig.server.statistics()["queued_requests"] == 3, "three wait")
    frames = [produce_frame(9, [(topic, {0: build_batch()})], correlation_id=i) for i in range(10)]
    clients[4].send(b"".join(frames))
    eventually(lambda: rig.server.statistics()["queued_requests"] > 4, "the train is queued")
    blocked.go_on.set()
    for i in range(10):
        assert produced_in(9, clients[4].receive())[0] == i


def test_a_train_longer_than_the_queue_goes_through(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(queued_requests_max=1)
    topic = rig.create("t")
    clients = [rig.client() for _ in range(4)]
    for client in clients:
        client.send(
            b"".join(
                produce_frame(9, [(topic, {0: build_batch()})], correlation_id=i)
                for i in range(100)
            )
        )
    offsets = set()
    for client in clients:
        for i in range(100):
            correlation_id, answer = produced_in(9, client.receive())
            assert correlation_id == i
            offsets |= {result.base_offset for result in answer.values()}
    assert offsets == set(range(400))


def test_a_slow_cold_request_does_not_hold_the_others_up(make_rig: Callable[..., Rig]) -> None:
    blocked = Blocked()
    rig = make_rig(handlers=2)
    topic = rig.create("t")
    slow, fast = rig.client(), rig.client()
    rig.dispatch = blocked
    slow.send(cold_frame(b"slow"))
    assert blocked.inside.wait(DEADLINE_S)
    for i in range(50):
        fast.send(produce_frame(9, [(topic, {0: build_batch()})], correlation_id=i))
        assert produced_in(9, fast.receive())[0] == i
    blocked.go_on.set()
    assert slow.receive_cold() == (1, b"slow")


def test_a_request_that_raises_whatever_it_is_ends_its_own_connection(
    make_rig: Callable[..., Rig],
) -> None:
    def dispatch(request: WrappedRequest) -> None:
        if request.body == b"kills":
            raise SystemExit("of this test")
        request.respond(request.body)

    rig = make_rig(dispatch=dispatch)
    client = rig.client()
    client.send(cold_frame(b"kills"))
    assert client.ended()  # a lost answer is not waited for
    other = rig.client()
    other.send(cold_frame(b"asks", 7))
    assert other.receive_cold() == (7, b"asks")
    assert rig.pool.failures.count == 1
