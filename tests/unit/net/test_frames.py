"""Frames out of a socket's bytes: however they arrive, and what is not a frame."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable

import pytest

from kbroker import limits
from kbroker._net import WrappedRequest
from kbroker.protocol.versions import FLEXIBLE_SINCE
from kbroker.protocol.wire import encode_unsigned_varint
from tests.system import process_facts
from tests.unit.net.harness import COLD_KEY, Gate, Rig, cold_frame, eventually, framed, header

REQUEST_BYTES_MAX = 1 << 20


def test_a_frame_in_one_read_is_answered_with_its_correlation_id(rig: Rig) -> None:
    client = rig.client()
    client.send(cold_frame(b"hello", 77))
    assert client.receive_cold() == (77, b"hello")


def test_a_frame_in_reads_of_one_byte(rig: Rig) -> None:
    client = rig.client()
    for byte in cold_frame(b"slowly", 3):
        client.send(bytes([byte]))
        client.all_delivered()
    assert client.receive_cold() == (3, b"slowly")
    assert rig.total("requests") == 1


def test_many_frames_in_one_write_are_answered_in_order(rig: Rig) -> None:
    client = rig.client()
    client.send(b"".join(cold_frame(b"%d" % i, i) for i in range(200)))
    assert [client.receive_cold() for _ in range(200)] == [(i, b"%d" % i) for i in range(200)]


@pytest.mark.parametrize("seed", range(4))
def test_frames_cut_anywhere(rig: Rig, seed: int) -> None:
    dice = random.Random(seed)
    bodies = [dice.randbytes(dice.choice((0, 1, 100, 5_000, 70_000))) for _ in range(30)]
    stream = b"".join(cold_frame(body, i) for i, body in enumerate(bodies))
    client = rig.client()
    answers: list[tuple[int, bytes]] = []
    while stream:
        cut = dice.choice((1, 3, 4, 5, 1_000, 40_000))
        client.send(stream[:cut])
        stream = stream[cut:]
        # What has been answered is taken, or both sides would wait for each other.
        while len(answers) < rig.total("responses"):
            answers.append(client.receive_cold())
    while len(answers) < len(bodies):
        answers.append(client.receive_cold())
    assert answers == list(enumerate(bodies)), f"seed {seed}"


def test_frames_of_many_connections_share_a_chunk_and_stay_apart(rig: Rig) -> None:
    clients = [rig.client() for _ in range(40)]
    halves = [cold_frame(b"%d" % i * 300, i) for i in range(40)]
    for client, frame in zip(clients, halves, strict=True):
        client.send(frame[: len(frame) // 2])
    for client, frame in reversed(list(zip(clients, halves, strict=True))):
        client.send(frame[len(frame) // 2 :])
    for i, client in enumerate(clients):
        assert client.receive_cold() == (i, b"%d" % i * 300)


@pytest.mark.parametrize("size", [-1, -(1 << 31), 0, 7, REQUEST_BYTES_MAX + 1, (1 << 31) - 1])
def test_a_size_that_no_request_can_have_closes_without_an_answer(
    make_rig: Callable[..., Rig], size: int
) -> None:
    rig = make_rig(request_bytes_max=REQUEST_BYTES_MAX)
    client = rig.client()
    client.send(struct.pack(">i", size) + b"\0" * 20)
    assert client.ended()
    assert rig.total("protocol_errors") == 1
    assert rig.total("requests") == 0


def test_the_largest_size_is_taken(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(request_bytes_max=REQUEST_BYTES_MAX)
    client = rig.client()
    body = b"x" * (REQUEST_BYTES_MAX - len(header(16, 0)))
    client.send(cold_frame(body))
    assert client.receive_cold() == (1, body)


def test_frames_before_a_bad_size_are_answered(rig: Rig) -> None:
    client = rig.client()
    client.send(cold_frame(b"good", 5) + struct.pack(">i", -1))
    assert client.receive_cold() == (5, b"good")
    assert client.ended()


@pytest.mark.parametrize("length", [8, 9])
def test_a_header_without_a_client_id_closes(rig: Rig, length: int) -> None:
    client = rig.client()
    client.send(framed(header(16, 0)[:length]))
    assert client.ended()


@pytest.mark.parametrize("client_length", [1, 32_767])
def test_a_client_id_longer_than_the_frame_closes(rig: Rig, client_length: int) -> None:
    client = rig.client()
    client.send(framed(struct.pack(">hhih", 16, 0, 1, client_length)))
    assert client.ended()


@pytest.mark.parametrize("count", [limits.TAGGED_FIELDS_MAX, limits.TAGGED_FIELDS_MAX + 1])
def test_a_header_with_more_tagged_fields_than_are_read_closes(rig: Rig, count: int) -> None:
    """In C as in Python, so that it does not matter which of them has the request."""
    version = FLEXIBLE_SINCE[COLD_KEY]
    tags = encode_unsigned_varint(count) + b"\x01\x00" * count
    client = rig.client()
    client.send(framed(header(COLD_KEY, version)[:-1] + tags + b"body"))
    if count <= limits.TAGGED_FIELDS_MAX:
        assert client.receive_cold() == (1, b"\0body")  # its header has tagged fields, too
    else:
        assert client.ended()


def test_announced_bytes_cost_no_memory(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(request_bytes_max=100 << 20)
    rig.client().send(cold_frame(b"warm"))
    before = process_facts.resident_bytes(os.getpid())
    announced = struct.pack(">i", 100 << 20) + header(16, 0)
    clients = [rig.client() for _ in range(50)]
    for client in clients:
        client.send(announced)
    eventually(lambda: rig.total("received_bytes") >= 50 * len(announced), "received")
    grown = process_facts.resident_bytes(os.getpid()) - before
    assert grown < 16 << 20, f"{grown} bytes for 5 GB announced"


def test_a_slow_peers_part_of_a_frame_survives_the_move_to_a_chunk_of_its_own(
    rig: Rig,
) -> None:
    # A connection that is silent for a second gives the shared chunk back: more than a small
    # chunk must move along with it. The processor looks again with every turn.
    body = random.Random(1).randbytes(200_000)
    frame = cold_frame(body, 9)
    slow, other = rig.client(), rig.client()
    slow.send(frame[:150_000])
    eventually(lambda: rig.total("received_bytes") >= 150_000, "received")
    until = eventually(rig.silent_for_a_second, "a second of silence")
    assert until
    for i in range(20):
        other.send(cold_frame(b"x" * 30_000, i))
        assert other.receive_cold() == (i, b"x" * 30_000)
    slow.send(frame[150_000:])
    assert slow.receive_cold() == (9, body)


def test_bytes_after_a_frame_in_service_survive_the_move(make_rig: Callable[..., Rig]) -> None:
    gate = Gate()
    rig = make_rig(dispatch=gate)
    client = rig.client()
    bodies = [random.Random(i).randbytes(20_000) for i in range(10)]
    client.send(b"".join(cold_frame(body, i) for i, body in enumerate(bodies)))
    gate.wait_for(1)
    assert eventually(rig.silent_for_a_second, "a second of silence")
    rig.dispatch = lambda request: request.respond(request.body)
    gate.release()
    assert [client.receive_cold() for _ in bodies] == list(enumerate(bodies))


def test_a_cold_request_that_waits_holds_no_chunk(rig: Rig) -> None:
    """Its frame is in a receive chunk that others fill up."""
    waiting: list[WrappedRequest] = []
    rig.dispatch = lambda r: r.respond(b"") if len(r.body) > 100 else waiting.append(r)
    filler, clients = rig.client(), [rig.client() for _ in range(200)]
    filler.send(cold_frame(bytes(60_000)))
    filler.receive_cold()
    before = process_facts.resident_bytes(os.getpid())
    for number, client in enumerate(clients):
        client.send(cold_frame(b"waits"))
        eventually(lambda expected=number + 1: len(waiting) == expected)
        for _ in range(4):
            filler.send(cold_frame(bytes(60_000)))
            filler.receive_cold()
    assert process_facts.resident_bytes(os.getpid()) - before < 20 << 20
    for request in waiting:
        request.respond(b"")
    for client in clients:
        assert client.receive_cold() == (1, b"")


@pytest.mark.parametrize("seed", range(2))
def test_large_frames_and_small_ones_after_each_other(rig: Rig, seed: int) -> None:
    # The head of a frame is received apart where the one before did not fit a shared chunk.
    dice = random.Random(seed)
    sizes = [300_000, 1 << 20, 1_048_700, 10, 5_000, 1 << 20, 262_100, 1_300_000, 3_000_000, 0]
    dice.shuffle(sizes)
    client = rig.client()
    for number, size in enumerate(sizes):
        body = dice.randbytes(size)
        frame = cold_frame(body, number)
        cut = dice.choice((0, 3, 4_096, 4_100, len(frame)))
        client.send(frame[:cut])
        client.all_delivered()
        client.send(frame[cut:])
        assert client.receive_cold() == (number, body), f"seed {seed}, {size} bytes"


@pytest.mark.parametrize("api_key", [-1, -1000, -1001, -(1 << 15), (1 << 15) - 1])
@pytest.mark.parametrize("closes", [False, True], ids=["answered", "closed"])
def test_a_key_that_no_api_has_is_a_request_like_others(
    make_rig: Callable[..., Rig], api_key: int, closes: bool
) -> None:
    seen: list[tuple[int, bool]] = []

    def dispatch(request: WrappedRequest) -> None:
        seen.append((request.api_key, request.authenticates))
        if closes and request.api_key == api_key:
            request.close_connection()
        else:
            request.respond(request.body)

    rig = make_rig(dispatch=dispatch)
    client = rig.client()
    client.send(framed(struct.pack(">hhi", api_key, 0, 5) + b"\0\4test" + b"body"))
    if closes:
        assert client.ended()
    else:
        assert client.receive_cold() == (5, b"body")
    other = rig.client()
    other.send(cold_frame(b"after it", 6))
    assert other.receive_cold() == (6, b"after it")
    assert seen == [(api_key, False), (COLD_KEY, False)]


def test_every_key_is_answered_in_its_turn(rig: Rig) -> None:
    client = rig.client()
    keys = range(-(1 << 15), 1 << 15)
    at_once = 1024
    for first in range(0, len(keys), at_once):
        client.send(
            b"".join(
                framed(struct.pack(">hhi", keys[at], 0, at) + b"\0\4test\0")
                for at in range(first, first + at_once)
            )
        )
        answered = [client.receive_cold()[0] for _ in range(at_once)]
        assert answered == list(range(first, first + at_once))
