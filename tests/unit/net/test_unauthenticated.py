"""Connections that have not authenticated: how many there may be, and for how long."""

from __future__ import annotations

import select
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kbroker._net import WrappedRequest
from kbroker.security.session import ANONYMOUS
from tests.support.certificates import Authority, Certificate
from tests.unit.net.harness import Client, Gate, Rig, cold_frame, echo, eventually, framed
from tests.unit.net.over_tls import MakeRig, Over, tls_context
from tests.unit.net.test_authenticating_channels import ALICE, LATE, Authenticator

CROWDED = (
    "one of them where more than kbroker.max.unauthenticated.connections had not authenticated;"
    " raise it if these were clients of yours"
)
ALONE = ("unshare", "--user", "--map-root-user", "--net")
KEY = 0x5DEECE66D1CE4E5B  # of the draws
AUTHENTICATES = {"authenticates": True, "principal": ANONYMOUS}


def refused(rig: Rig) -> int:
    return sum(each["refused"] for each in rig.server.statistics()["acceptors"])


def is_ended(client: Client) -> bool:
    with suppress(ConnectionResetError):
        return client.socket.recv(1) == b""
    return True


def silent(rig: Rig, count: int) -> list[Client]:
    before = rig.total("connections")
    made = [rig.client() for _ in range(count)]
    eventually(lambda: rig.total("connections") == before + count)
    return made


def test_those_of_one_address_are_bounded(
    make_rig: MakeRig, authority: Authority, broker: Certificate
) -> None:
    over = Over(make_rig, authority, tls_context(broker), opening_per_ip_max=3)
    served = [over.client() for _ in range(5)]  # those that are open do not count
    for at, client in enumerate(served):  # after an answer the server has their handshakes
        client.send(cold_frame(b"x", at))
        assert client.receive_cold() == (at, b"x")
    waiting = silent(over.rig, 3)
    assert is_ended(over.plain())
    assert refused(over.rig) == 1
    waiting.pop().reset()
    eventually(lambda: over.rig.total("connections") == 7)
    served.append(over.client())
    for at, client in enumerate(served):
        client.send(cold_frame(b"x", at))
        assert client.receive_cold() == (at, b"x")
    assert over.rig.server.closes()[CROWDED] == 0


def closed_by(rig: Rig, waiting: list[Client], host: str) -> int:
    """Which of those that wait is closed for one that comes from `host`, and waits then, too."""
    waiting.append(rig.client(host=host))
    watched = {client.socket: at for at, client in enumerate(waiting)}
    ended, _, _ = select.select(watched, [], [], 60)
    (at,) = (watched[each] for each in ended)
    assert is_ended(waiting[at])
    waiting.pop(at).reset()
    return at


def test_of_all_one_at_random_gives_way(make_rig: MakeRig) -> None:
    """The oldest is the nearest to the end of its login: where that one is closed, and more come
    within the time of a login than may wait, none gets in."""
    rig = make_rig(
        dispatch=Authenticator(), opening_max=8, processors=1, listener=AUTHENTICATES, draw_key=KEY
    )
    waiting = silent(rig, 8)
    closed = [closed_by(rig, waiting, "127.0.0.1") for _ in range(200)]
    assert set(closed) == set(range(8))  # any of them, but not the one that came
    assert max(map(closed.count, range(8))) < 50
    assert rig.server.closes()[CROWDED] == 200
    waiting[0].send(framed(b"let me in"))
    assert waiting[0].receive() == b"welcome"
    closed_before = rig.server.closes()[CROWDED]
    silent(rig, 1)  # there is room for one
    assert rig.server.closes()[CROWDED] == closed_before


def test_an_address_with_few_keeps_its_place_in_a_crowd(make_rig: MakeRig) -> None:
    rig = make_rig(
        dispatch=Authenticator(), opening_max=20, processors=1, listener=AUTHENTICATES, draw_key=KEY
    )
    slow = rig.client(host="127.0.0.2")
    eventually(lambda: rig.total("connections") == 1)
    waiting = silent(rig, 19)
    for _ in range(100):
        closed_by(rig, waiting, "127.0.0.1")
    slow.send(framed(b"let me in"))
    assert slow.receive() == b"welcome"


def test_an_address_with_many_is_not_kept_out_of_a_crowd(make_rig: MakeRig) -> None:
    """Many clients with one address, and others with an address each: two are drawn, not all."""
    rig = make_rig(
        dispatch=Authenticator(), opening_max=20, processors=1, listener=AUTHENTICATES, draw_key=KEY
    )
    waiting = [rig.client(host=f"127.0.1.{1 + at}") for at in range(16)]
    waiting += [rig.client(host="127.0.0.2") for _ in range(4)]
    eventually(lambda: rig.total("connections") == 20)
    ours = set(waiting[16:])
    for at in range(10):
        closed_by(rig, waiting, f"127.0.2.{1 + at}")
    assert len(ours.intersection(waiting)) >= 2


@pytest.mark.skipif(
    subprocess.run([*ALONE, "true"], check=False, capture_output=True).returncode != 0,
    reason="needs a network namespace (unshare)",
)
def test_those_of_a_network_of_ipv6_are_bounded(tmp_path: Path) -> None:
    """A host has 2^64 addresses."""
    child = [sys.executable, "-m", "tests.unit.net.one_network_child", str(tmp_path)]
    subprocess.run([*ALONE, *child], check=True, timeout=300)


def test_counts_are_given_back(make_rig: MakeRig) -> None:
    """However a connection ends: by its peer, by us, after it was opened or before."""
    rig = make_rig(
        dispatch=Authenticator(), opening_per_ip_max=4, opening_max=4, listener=AUTHENTICATES
    )
    for round_ in range(12):
        clients = silent(rig, 4)
        for client, sent in zip(clients, (b"", b"let me in", b"no", b"first"), strict=True):
            if sent:
                client.send(framed(sent))
                client.receive()
        for client in clients:
            client.reset()
        eventually(lambda: rig.total("connections") == 0)
        assert refused(rig) == 0, round_
    assert is_ended((silent(rig, 4), rig.client())[1])
    assert refused(rig) == 1


def test_all_of_an_authentication_has_one_time(make_rig: Callable[..., Rig]) -> None:
    """A client that answers each time, and never comes to an end."""
    rig = make_rig(dispatch=echo, opening_ms_max=200, listener=AUTHENTICATES)
    client = rig.client()

    def is_closed() -> bool:
        with suppress(ConnectionError, AssertionError, OSError):
            client.send(framed(b"first"))
            client.receive()
        return rig.total("connections") == 0

    eventually(is_closed)
    assert rig.server.closes()[LATE] == 1


def test_time_with_a_handler_is_not_the_client_s(make_rig: MakeRig) -> None:
    """Nor is it when the answer has been sent, and the next frame comes."""
    gate = Gate()
    rig = make_rig(dispatch=gate, opening_ms_max=1_500, listener=AUTHENTICATES)
    client = rig.client()
    for token in (b"first", b"second"):
        client.send(framed(token))
        gate.wait_for(1)
        eventually(rig.silent_for_a_second)  # longer than a client has
        gate.release()
        assert client.receive() == token
    client.send(framed(b"third"))
    gate.wait_for(1)
    gate.held.pop().open_channel(b"welcome", ALICE)
    assert client.receive() == b"welcome"
    assert rig.server.closes()[LATE] == 0


def test_time_with_handlers_has_an_end(make_rig: MakeRig) -> None:
    """Of a client that sends its frames ahead a handler always has one."""
    count, handler_s = 2_000, 0.01
    answered = 0

    def slow(request: WrappedRequest) -> None:
        nonlocal answered
        answered += 1
        threading.Event().wait(handler_s)
        request.respond(request.body)

    rig = make_rig(dispatch=slow, opening_ms_max=100, listener=AUTHENTICATES)
    client = rig.client()
    client.send(framed(b"again") * count)
    eventually(lambda: rig.server.closes()[LATE] == 1)
    assert answered < count // 4


def test_a_client_that_takes_no_answer_has_no_more_time(make_rig: MakeRig) -> None:
    rig = make_rig(
        dispatch=lambda request: request.respond(bytes(64 << 20)),
        opening_ms_max=100,
        listener=AUTHENTICATES,
    )
    client = rig.client()
    client.send(framed(b"first"))
    eventually(lambda: rig.server.closes()[LATE] == 1)


PART, WHOLE = 64 << 10, 400 << 10
TOO_MANY_BYTES = (
    "long frames of more clients at a time than may send them before they have authenticated"
)


def test_their_bytes_are_bounded_together(make_rig: MakeRig) -> None:
    """Long frames that do not become whole; short ones of others come in any case."""
    rig = make_rig(
        dispatch=Authenticator(), opening_bytes_max=3 * PART, listener=AUTHENTICATES, processors=1
    )
    clients = silent(rig, 6)
    for client in clients:
        with suppress(ConnectionError):
            client.socket.sendall(WHOLE.to_bytes(4, "big") + bytes(PART))
    eventually(lambda: rig.total("connections") < 6)
    quick = rig.client()
    quick.send(framed(b"let me in"))
    assert quick.receive() == b"welcome"
    assert 1 <= rig.server.closes()[TOO_MANY_BYTES] < 6
    for client in clients:
        client.reset()
    eventually(lambda: rig.total("connections") == 1)
    last = silent(rig, 1)[0]  # what they had is given back
    last.socket.sendall(WHOLE.to_bytes(4, "big") + bytes(PART))
    quick.send(cold_frame(b"x", 1))
    assert quick.receive_cold() == (1, b"x")
    assert rig.total("connections") == 2


def test_a_plain_listener_has_no_such_bound(make_rig: MakeRig) -> None:
    rig = make_rig(opening_per_ip_max=1, opening_max=1)
    for client in silent(rig, 5):
        client.send(cold_frame(b"x", 1))
        assert client.receive_cold() == (1, b"x")
