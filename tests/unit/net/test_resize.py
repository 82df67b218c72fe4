"""Network threads and request handlers come and go under load, and no answer is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kbroker._net import WrappedRequest
from kbroker.own_thread import OwnThread
from tests.unit.net.harness import Client, Gate, Rig, cold_frame, eventually

IN_FLIGHT = 20


def serving(rig: Rig) -> list[bool]:
    return [p["serving"] for p in rig.server.statistics()["processors"]]


def connections(rig: Rig) -> list[int]:
    return [p["connections"] for p in rig.server.statistics()["processors"]]


def connected(rig: Rig, count: int) -> list[Client]:
    """So many clients, each of which has been served once."""
    clients = [rig.client() for _ in range(count)]
    for number, client in enumerate(clients):
        client.send(cold_frame(b"hello", number))
        assert client.receive_cold() == (number, b"hello")
    return clients


def staying(clients: list[Client], gone: int) -> list[Client]:
    """Those without an end, once so many have one: the last may be on its way to them."""
    eventually(lambda: sum(client.has_bytes() for client in clients) >= gone, "they are notified")
    notified = [client for client in clients if client.has_bytes()]
    assert len(notified) == gone
    assert all(client.ended() for client in notified)
    return [client for client in clients if client not in notified]


def whole_turn(rig: Rig, index: int) -> None:
    """Until a network thread has seen what was there before: after a poll comes a turn."""

    def idle_ns() -> int:
        found: int = rig.server.statistics()["processors"][index]["idle_ns"]
        return found

    for _ in range(2):
        before = idle_ns()
        eventually(lambda before=before: idle_ns() > before, "a turn")


def test_more_network_threads_take_connections(rig: Rig) -> None:
    old = connected(rig, 2)
    rig.server.resize(3)
    assert serving(rig) == [True] * 3
    connected(rig, 6)
    assert connections(rig) == [4, 2, 2]
    old[0].send(cold_frame(b"still here"))
    assert old[0].receive_cold() == (1, b"still here")


def test_connections_of_a_removed_thread_are_closed_and_no_others(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig(processors=3)
    clients = connected(rig, 6)
    rig.server.resize(1)
    assert serving(rig) == [True, False, False]
    eventually(lambda: connections(rig) == [2, 0, 0], "connections of threads that are gone")
    for client in staying(clients, gone=4):
        client.send(cold_frame(b"stays"))
        assert client.receive_cold() == (1, b"stays")
    connected(rig, 3)
    assert connections(rig) == [5, 0, 0]


def test_requests_in_service_are_answered_in_order_and_then_it_ends(
    make_rig: Callable[..., Rig],
) -> None:
    gate = Gate()
    rig = make_rig(processors=2, handlers=4, dispatch=gate)
    clients = [rig.client(), rig.client()]
    for number, client in enumerate(clients):
        client.send(cold_frame(b"waits", number))
    gate.wait_for(2)
    # Python's requests are one at a time on a connection: this one is not taken any more.
    for client in clients:
        client.send(cold_frame(b"after it", 9))
        client.all_delivered()
    rig.server.resize(1)
    whole_turn(rig, 1)  # until then it may take one more request, and would wait for it
    assert sum(connections(rig)) == 2, "closed under a request"
    gate.release()
    for number, client in enumerate(clients):
        assert client.receive_cold() == (number, b"waits")
    eventually(lambda: sum(connections(rig)) == 1)
    gate.wait_for(1)
    gate.release()
    outcomes = sorted(client.read(4 + 4 + len(b"after it")) for client in clients)
    assert [len(outcome) for outcome in outcomes] == [0, 16]


def test_a_long_answer_leaves_whole(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(processors=2)
    long = bytes(8 << 20)
    rig.dispatch = lambda request: request.respond(long)
    clients = [rig.client(receive_bytes=4096) for _ in range(2)]
    for client in clients:
        client.send(cold_frame())
    eventually(lambda: all(p["sent_bytes"] for p in rig.server.statistics()["processors"]))
    rig.server.resize(1)
    for client in clients:
        assert client.receive_cold() == (1, long)
    eventually(lambda: sum(connections(rig)) == 1)


def test_one_that_is_gone_comes_back_with_its_figures(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(processors=2)
    clients = connected(rig, 4)
    for _ in range(3):
        before = rig.total("requests")
        rig.server.resize(1)
        eventually(lambda: sum(connections(rig)[1:]) == 0)
        gone = len(clients) - connections(rig)[0]
        clients = staying(clients, gone)
        assert rig.total("requests") == before
        rig.server.resize(2)
        assert serving(rig).count(True) == 2
        clients += connected(rig, 4)
        assert rig.total("requests") == before + 4
    assert len(serving(rig)) <= 5  # a thread that was not at its end yet has had its place taken


def test_the_end_does_not_wait_for_one_that_is_going(make_rig: Callable[..., Rig]) -> None:
    gate = Gate()
    rig = make_rig(processors=2, handlers=2, dispatch=gate)
    clients = [rig.client(), rig.client()]
    for client in clients:
        client.send(cold_frame(b"last"))
    gate.wait_for(2)
    rig.server.resize(1)
    gate.release()
    rig.stop()
    for client in clients:
        assert client.receive_cold() == (1, b"last")
        assert client.ended()


@pytest.mark.parametrize("count", [0, -1, 65])
def test_a_number_that_cannot_be(rig: Rig, count: int) -> None:
    with pytest.raises(ValueError, match="1 to 64"):
        rig.server.resize(count)


def test_bounds_of_connections_hold_for_new_connections(rig: Rig) -> None:
    old = connected(rig, 3)
    rig.server.bound_connections(1000, 2, {})
    assert rig.client().ended()
    rig.server.bound_connections(4, 1000, {})
    connected(rig, 1)
    assert rig.client().ended()
    rig.server.bound_connections(1000, 0, {"127.0.0.1": 5})
    connected(rig, 1)
    assert rig.client().ended()
    rig.server.bound_connections(1000, 1000, {})
    connected(rig, 4)
    old[0].send(cold_frame(b"untouched"))
    assert old[0].receive_cold() == (1, b"untouched")


class Load:
    """Clients that always have requests in flight, and connect again when they are closed."""

    def __init__(self, rig: Rig, clients: int) -> None:
        self.rig = rig
        self.ending = threading.Event()
        self.lock = threading.Lock()
        self.answered: set[bytes] = set()
        self.received: set[bytes] = set()
        self.reconnects = 0
        self.mistakes: list[str] = []
        rig.dispatch = self._answer
        self.threads = [
            threading.Thread(target=self._run, args=(number,)) for number in range(clients)
        ]
        for thread in self.threads:
            thread.start()

    def _answer(self, request: WrappedRequest) -> None:
        body = request.body
        with self.lock:
            self.answered.add(body)
        request.respond(body)

    def _run(self, number: int) -> None:
        sent = 0
        while not self.ending.is_set():
            client = Client(self.rig.port)
            first = sent
            try:
                for _ in range(IN_FLIGHT):
                    client.send(cold_frame(b"%d-%d" % (number, sent), sent))
                    sent += 1
                expected = first
                while prefix := client.read(4):
                    payload = client.read(int.from_bytes(prefix, "big"))
                    if payload[4:] != b"%d-%d" % (number, expected):
                        self.mistakes.append(f"{payload!r} in place of {number}-{expected}")
                        return
                    with self.lock:
                        self.received.add(payload[4:])
                    expected += 1
                    if self.ending.is_set() and expected == sent:
                        return
                    if not self.ending.is_set():
                        client.send(cold_frame(b"%d-%d" % (number, sent), sent))
                        sent += 1
            except (BrokenPipeError, ConnectionResetError):
                # Sent after the end of the stream. Answers have been read, or are lost.
                self._drain(client)
            finally:
                client.close()
            self.reconnects += 1

    def _drain(self, client: Client) -> None:
        try:
            while prefix := client.read(4):
                payload = client.read(int.from_bytes(prefix, "big"))
                with self.lock:
                    self.received.add(payload[4:])
        except OSError:
            pass

    def end(self) -> None:
        self.ending.set()
        for thread in self.threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self.threads)


def test_nothing_that_was_answered_is_lost_under_load(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(processors=2, handlers=2)
    load = Load(rig, clients=6)
    for network, handlers in ((4, 4), (1, 1), (3, 6), (2, 2), (1, 3), (4, 1), (1, 2)):
        before = len(load.received)
        rig.server.resize(network)
        rig.pool.resize(handlers)
        eventually(lambda before=before: len(load.received) > before + 300, "the load goes on")
        assert serving(rig).count(True) == network
        assert rig.pool.size == handlers
    load.end()
    assert load.mistakes == []
    assert load.reconnects > 0
    assert load.answered - load.received == set()
    eventually(lambda: rig.total("connections") == 0)


def test_handlers_come_and_go(make_rig: Callable[..., Rig]) -> None:
    gate = Gate()
    rig = make_rig(handlers=2, dispatch=gate)

    def named() -> set[str]:
        return {t.name for t in threading.enumerate() if t.name.startswith("kafka-request-handler")}

    alive = named()
    rig.pool.resize(5)
    assert len(named() - alive) == 5 - 2
    rig.pool.resize(1)
    eventually(lambda: len(named()) == len(alive) - 1, "handlers that are gone")
    handlers = rig.hot.statistics()["handlers"]
    assert [handler["serving"] for handler in handlers] == [True] + [False] * 4
    rig.pool.resize(4)
    assert len(rig.hot.statistics()["handlers"]) == 5, "the places of the others were taken"
    rig.dispatch = lambda request: request.respond(request.body)
    connected(rig, 3)
    rig.stop()
    rig.pool.resize(9)
    assert rig.pool.size == 4


def test_handlers_that_cannot_be_started_are_not_counted(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else requests are left to handlers that do not exist."""
    rig = make_rig(handlers=1)
    starts: list[OwnThread] = []
    start = OwnThread.start

    def second_fails(thread: OwnThread) -> None:
        starts.append(thread)
        if len(starts) == 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    def serving_handlers() -> int:
        return sum(each["serving"] for each in rig.hot.statistics()["handlers"])

    with monkeypatch.context() as patched:
        patched.setattr(OwnThread, "start", second_fails)
        with pytest.raises(RuntimeError, match="can't start"):
            rig.pool.resize(4)
    assert rig.pool.size == serving_handlers() == 2
    rig.pool.resize(4)
    assert rig.pool.size == serving_handlers() == 4
    connected(rig, 3)
