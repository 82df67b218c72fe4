"""Channels over a transport that is as awkward as TLS may be: `testing/_masked_transport.pyx`."""

from __future__ import annotations

import os
import random
import select
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbroker.testing._masked_transport import MaskedTransport
from tests.support.record_batches import build_batch
from tests.unit.engine.wire import Ask, fetch, fetch_frame, fetched_in, produce_one
from tests.unit.net.harness import Gate, Rig, Topic, cold_frame, eventually
from tests.unit.net.masked import MASK, MaskedClient, masked

MakeRig = Callable[..., Rig]
SHAPE = ("record_bytes", "move_bytes", "says_late", "opens", "final_bytes")  # of the transport


class Masked:
    """A rig whose listener has the masked transport."""

    def __init__(self, make_rig: MakeRig, *, acks_every: int = 0, **options: Any) -> None:
        shape = {key: options.pop(key) for key in SHAPE if key in options}
        self.transport = MaskedTransport(acks_every=acks_every, **shape)
        self.rig = make_rig(listener={"transport": self.transport}, **options)
        self._acks = bool(acks_every)

    def client(self, **options: Any) -> MaskedClient:
        return self.rig.connected(MaskedClient(self.rig.port, **({"acks": self._acks} | options)))

    def closes(self, reason: str) -> int:
        return self.rig.server.closes()[reason]


def fill(topic: Topic, count: int, size: int) -> bytes:
    batches = [build_batch([bytes([at]) * size]) for at in range(count)]
    for batch in batches:
        topic.logs[0].append(batch)
    found = topic.logs[0].read(0, 1 << 30)
    assert isinstance(found, bytes)
    return found


@pytest.mark.parametrize("acks_every", [0, 1, 3])
@pytest.mark.parametrize("move_bytes", [1, 3, 700, 1 << 20])
def test_frames_cut_anywhere(make_rig: MakeRig, move_bytes: int, acks_every: int) -> None:
    over = Masked(make_rig, move_bytes=move_bytes, acks_every=acks_every)
    dice = random.Random(move_bytes * 10 + acks_every)
    bodies = [dice.randbytes(dice.choice((0, 1, 100, 5_000, 9_000))) for _ in range(20)]
    stream = b"".join(cold_frame(body, i) for i, body in enumerate(bodies))
    client = over.client()
    answers: list[tuple[int, bytes]] = []
    while stream:
        cut = dice.choice((1, 3, 4, 5, 1_000, 40_000))
        client.send(stream[:cut])
        stream = stream[cut:]
        while len(answers) < over.rig.total("responses"):
            answers.append(client.receive_cold())
    while len(answers) < len(bodies):
        answers.append(client.receive_cold())
    assert answers == list(enumerate(bodies))
    assert over.transport.changed == 0


def test_bytes_that_no_event_announces_are_read(make_rig: MakeRig) -> None:
    over = Masked(make_rig, move_bytes=11)
    client = over.client()
    client.socket.sendall(masked(b"".join(cold_frame(b"%d" % i, i) for i in range(500)), 16_000))
    assert [client.receive_cold() for _ in range(500)] == [(i, b"%d" % i) for i in range(500)]


def test_a_frame_that_comes_with_the_handshake_is_answered(make_rig: MakeRig) -> None:
    over = Masked(make_rig)
    client = over.client(handshake=False)
    client.socket.sendall(b"HELO" + bytes([MASK]) + masked(cold_frame(b"early", 4)))
    assert client.socket.recv(4) == b"OLEH"
    assert client.receive_cold() == (4, b"early")


def test_a_handshake_in_single_bytes(make_rig: MakeRig) -> None:
    over = Masked(make_rig)
    client = over.client(handshake=False)
    for byte in b"HELO":
        client.socket.sendall(bytes([byte]))
        client.all_delivered()
    assert client.socket.recv(4) == b"OLEH"
    client.socket.sendall(bytes([MASK]))
    client.send(cold_frame(b"x", 1))
    assert client.receive_cold() == (1, b"x")


def test_many_handshakes_at_once_all_end(make_rig: MakeRig) -> None:
    over = Masked(make_rig, connections_max=1000)
    clients = [over.client(handshake=False) for _ in range(100)]
    for client in clients:
        client.socket.sendall(b"HELO" + bytes([MASK]) + masked(cold_frame(b"x", 1)))
    for client in clients:
        assert client.socket.recv(4) == b"OLEH"
        assert client.receive_cold() == (1, b"x")


def begun(over: Masked, count: int) -> tuple[list[MaskedClient], int]:
    """Connections that have sent nothing, and the steps of handshakes until then."""
    before = over.transport.steps + count
    clients = [over.client(handshake=False) for _ in range(count)]
    eventually(lambda: over.transport.steps == before)  # one each, for which there were no bytes
    return clients, before


def test_an_open_connection_is_served_before_handshakes_go_on(make_rig: MakeRig) -> None:
    """Also if these came first. Only the step that is under way is waited for."""
    over = Masked(make_rig, connections_max=1000)
    served = over.client()
    served.send(cold_frame(b"x", 1))
    served.receive_cold()
    clients, before = begun(over, 30)
    over.transport.hold(before)
    try:
        clients[0].socket.sendall(b"HELO")
        eventually(lambda: over.transport.steps == before + 1)
        for client in clients[1:]:
            client.socket.sendall(b"HELO")
            client.all_delivered()
        served.send(cold_frame(b"y", 2))
        served.all_delivered()
    finally:
        over.transport.hold(-1)
    assert served.receive_cold() == (2, b"y")
    assert over.transport.steps_at_receive == before + 1
    assert all(client.socket.recv(4) == b"OLEH" for client in clients)


def test_a_handshake_that_was_answered_goes_on_before_others_begin(make_rig: MakeRig) -> None:
    """Else it is the oldest by then, and closed where too many come, with all that it has cost."""
    over = Masked(make_rig, connections_max=1000)
    (first, *others), before = begun(over, 4)
    first.socket.sendall(b"HELO")
    assert first.socket.recv(4) == b"OLEH"
    over.transport.hold(before + 1)
    try:
        others[0].socket.sendall(b"HELO")
        eventually(lambda: over.transport.steps == before + 2)
        for client in others[1:]:
            client.socket.sendall(b"HELO")
            client.all_delivered()
        first.socket.sendall(bytes([MASK]) + masked(cold_frame(b"x", 1)))
        first.all_delivered()
        for steps, answered in ((3, 1), (4, 2)):
            over.transport.hold(before + steps)
            eventually(lambda: over.transport.steps == before + steps + 1)  # noqa: B023
            readable, _, _ = select.select([each.socket for each in others], [], [], 0)
            assert readable == [each.socket for each in others[:answered]]
    finally:
        over.transport.hold(-1)
    assert first.receive_cold() == (1, b"x")
    assert all(client.socket.recv(4) == b"OLEH" for client in others)


@pytest.mark.parametrize(("pieces", "is_before"), [(2, True), (20, False)])
def test_an_answer_in_pieces_goes_on_before_others_begin(
    make_rig: MakeRig, pieces: int, is_before: bool
) -> None:
    """As a chain of certificates comes; but a client is not first for ever by one byte after the
    other."""
    over = Masked(make_rig, connections_max=1000, final_bytes=pieces)
    (first, after, *others), _ = begun(over, 5)
    for each in (first, after):  # the first one's step is over when the one after it has begun
        each.socket.sendall(b"HELO")
        assert each.socket.recv(4) == b"OLEH"
    for _ in range(pieces - 1):
        before = over.transport.steps
        first.socket.sendall(b"-")
        eventually(lambda: over.transport.steps == before + 1)  # noqa: B023
    before = over.transport.steps
    over.transport.hold(before)
    try:
        others[0].socket.sendall(b"HELO")
        eventually(lambda: over.transport.steps == before + 1)
        for client in others[1:]:
            client.socket.sendall(b"HELO")
            client.all_delivered()
        first.socket.sendall(bytes([MASK]) + masked(cold_frame(b"x", 1)))
        first.all_delivered()
        over.transport.hold(before + 2)
        eventually(lambda: over.transport.steps == before + 3)
        readable, _, _ = select.select([each.socket for each in others], [], [], 0)
        assert readable == [each.socket for each in others[: 1 if is_before else 2]]
    finally:
        over.transport.hold(-1)
    assert first.receive_cold() == (1, b"x")
    assert all(client.socket.recv(4) == b"OLEH" for client in others)


def test_connections_that_end_while_others_shake_hands(make_rig: MakeRig) -> None:
    over = Masked(make_rig, connections_max=1000)
    clients, before = begun(over, 20)
    over.transport.hold(before)
    try:
        clients[0].socket.sendall(b"HELO")
        eventually(lambda: over.transport.steps == before + 1)
        for client in clients[1:]:
            client.socket.sendall(b"HELO")
            client.all_delivered()
        over.transport.hold(before + 1)  # all others wait for the next one
        eventually(lambda: over.transport.steps == before + 2)
        for client in clients[1::2]:
            client.reset()
    finally:
        over.transport.hold(-1)
    assert all(client.socket.recv(4) == b"OLEH" for client in clients[::2])
    eventually(lambda: over.transport.closed == 10)
    assert over.rig.total("connections") == 10


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"HELP"])
def test_a_handshake_that_fails_closes_and_is_counted(make_rig: MakeRig, sent: bytes) -> None:
    over = Masked(make_rig)
    client = over.client(handshake=False)
    client.socket.sendall(sent)
    assert client.ended()
    eventually(lambda: over.closes("a handshake that failed") == 1)
    eventually(lambda: over.transport.closed == 1)


def test_a_transport_that_does_not_open_is_counted(make_rig: MakeRig) -> None:
    over = Masked(make_rig, opens=False)
    assert over.client(handshake=False).ended()
    assert over.closes("no memory for a connection, or a transport that did not open") == 1
    assert over.rig.total("connections") == 0


@pytest.mark.parametrize("sent", [b"", b"HE", b"HELO"])
def test_a_handshake_has_its_time(make_rig: MakeRig, sent: bytes) -> None:
    over = Masked(make_rig, opening_ms_max=100)
    served = over.client()
    late = over.client(handshake=False)
    late.socket.sendall(sent)
    if sent == b"HELO":
        assert late.socket.recv(4) == b"OLEH"
    assert late.socket.recv(1) == b""
    assert over.closes("a handshake or an authentication that took too long") == 1
    served.send(cold_frame(b"x", 1))
    assert served.receive_cold() == (1, b"x")


@pytest.mark.parametrize("sent", [b"", b"HE", b"HELO"])
def test_an_end_in_the_midst_of_a_handshake(make_rig: MakeRig, sent: bytes) -> None:
    over = Masked(make_rig)
    client = over.client(handshake=False)
    client.socket.sendall(sent)
    client.end_sending()
    assert client.socket.recv(5) == (b"OLEH" if sent == b"HELO" else b"")
    eventually(lambda: over.transport.closed == 1)


def test_a_handshake_that_does_not_go_on_ends_with_the_idle(make_rig: MakeRig) -> None:
    over = Masked(make_rig, idle_ms_max=50)
    client = over.client(handshake=False)
    client.socket.sendall(b"HEL")
    assert client.ended()
    eventually(lambda: over.transport.closed == 1)


def test_nothing_is_read_as_a_request_before_the_handshake_is_complete(make_rig: MakeRig) -> None:
    gate = Gate()
    over = Masked(make_rig, dispatch=gate)
    client = over.client(handshake=False)
    client.socket.sendall(b"HELO")
    assert client.socket.recv(4) == b"OLEH"
    client.socket.sendall(bytes([MASK]))
    client.send(cold_frame(b"x", 1))
    gate.wait_for(1)
    assert over.rig.total("requests") == 1
    gate.release()
    assert client.receive_cold() == (1, b"x")


def test_a_client_without_the_transport_gets_no_answer(make_rig: MakeRig) -> None:
    over = Masked(make_rig)
    client = over.rig.client()
    client.send(cold_frame(b"plain", 1))
    assert client.ended()
    assert over.rig.total("requests") == 0


# --- sending -------------------------------------------------------------------------------------


@pytest.mark.parametrize("acks_every", [0, 2])
def test_produce_and_fetch(make_rig: MakeRig, acks_every: int) -> None:
    over = Masked(make_rig, acks_every=acks_every)
    topic = over.rig.create("t")
    client = over.client()
    batches = [build_batch([b"%d" % at * 1000]) for at in range(5)]
    assert [produce_one(client, topic, batch).error for batch in batches] == [0] * 5
    found = topic.logs[0].read(0, 1 << 30)
    assert fetch(client, 12, [Ask(topic)]).only.records == found
    assert over.transport.changed == 0


@pytest.mark.parametrize("inline", [0, 1 << 30], ids=["ranges", "in memory"])
@pytest.mark.parametrize("record_bytes", [100, 16_384])
def test_ranges_of_files_go_through_it(make_rig: MakeRig, record_bytes: int, inline: int) -> None:
    over = Masked(make_rig, record_bytes=record_bytes, hot={"inline_range_bytes": inline})
    topic = over.rig.create("t")
    wanted = fill(topic, 40, 20_000)
    answer = fetch(over.client(), 12, [Ask(topic, max_bytes=50 << 20)])
    assert answer.only.records == wanted


def test_ranges_that_are_not_in_memory_are_read_ahead(make_rig: MakeRig) -> None:
    over = Masked(make_rig, hot={"inline_range_bytes": 0})
    topic = over.rig.create("t")
    wanted = fill(topic, 60, 50_000)
    (path,) = over.rig.directory.glob("t-0/*.log")
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)
    answer = fetch(over.client(), 12, [Ask(topic, max_bytes=50 << 20)])
    assert answer.only.records == wanted


def is_in_memory(path: Path) -> bool:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.preadv(file, [bytearray(1)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:  # of a file system that is memory
        return True
    finally:
        os.close(file)
    return True


def test_a_range_that_is_given_again_is_read_ahead_if_it_is_not_in_memory(
    make_rig: MakeRig,
) -> None:
    over = Masked(make_rig, record_bytes=16_000, acks_every=1, hot={"inline_range_bytes": 0})
    topic = over.rig.create("t")
    wanted = fill(topic, 1, 24_000)
    client = over.client(acks=False)
    client.send(fetch_frame(12, [Ask(topic)], correlation_id=5))
    head = client.read(16_000)  # one record, and the rest is offered, which waits for an ACK
    eventually(lambda: over.transport.starved == 1)
    (path,) = over.rig.directory.glob("t-0/*.log")
    stays = is_in_memory(path)
    client.acknowledge()
    (size,) = struct.unpack(">i", head[:4])
    answer = fetched_in(12, head[4:] + client.read(size - len(head) + 4))
    assert answer.only.records == wanted
    assert over.rig.server.statistics()["requests_set_aside"] == (0 if stays else 1)


@pytest.mark.parametrize("acks_every", [0, 1])
def test_a_peer_that_reads_slowly_gets_the_same_bytes(make_rig: MakeRig, acks_every: int) -> None:
    over = Masked(make_rig, record_bytes=16_000, send_buffer_bytes=8192, acks_every=acks_every)
    topic = over.rig.create("t", partitions=1)
    wanted = fill(topic, 20, 50_000)
    slow = over.client(receive_bytes=8192)
    neighbour = over.client()
    asked = fetch_frame(12, [Ask(topic, max_bytes=50 << 20)], correlation_id=5)
    slow.send(asked * 3)
    head = slow.read(4 + 30_000)
    neighbour.send(cold_frame(b"meanwhile", 1))
    assert neighbour.receive_cold() == (1, b"meanwhile")
    (size,) = struct.unpack(">i", head[:4])
    first = fetched_in(12, head[4:] + slow.read(size - 30_000))
    assert first.only.records == wanted
    for _ in range(2):
        assert fetched_in(12, slow.receive()).only.records == wanted
    assert over.transport.changed == 0
    assert (over.transport.starved > 0) is bool(acks_every)


def test_an_empty_socket_is_not_read_again(make_rig: MakeRig) -> None:
    over = Masked(make_rig, move_bytes=1 << 20)
    topic = over.rig.create("t")
    client = over.client()
    before, at = over.transport.receives, 0
    while over.rig.total("turns_lent") <= 20 or at < 100:  # how many are lent depends on the load
        assert at < 10_000
        client.send(cold_frame(b"%d" % at, at))
        assert client.receive_cold() == (at, b"%d" % at)
        assert produce_one(client, topic, build_batch([b"v"])).error == 0
        at += 1
    assert over.transport.receives - before < 2.2 * at


def test_short_answers_leave_together(make_rig: MakeRig) -> None:
    gate = Gate()
    over = Masked(make_rig, dispatch=gate, record_bytes=16_000)
    client = over.client()
    client.send(b"".join(cold_frame(b"%d" % i, i) for i in range(30)))
    for i in range(30):
        gate.wait_for(1)
        gate.release()
        assert client.receive_cold() == (i, b"%d" % i)


@pytest.mark.parametrize("says_late", [False, True])
def test_a_receive_that_wants_to_write_goes_on_when_it_can(
    make_rig: MakeRig, says_late: bool
) -> None:
    """`says_late`: there is room again before the channel knows of none."""
    over = Masked(make_rig, send_buffer_bytes=8192, says_late=says_late)
    client = over.client(receive_bytes=8192)
    for turn in range(3):
        client.update()
        client.send(b"".join(cold_frame(b"%d" % i, i) for i in range(20)))
        if not says_late:
            client.all_delivered()
        for i in range(20):
            assert client.receive_cold() == (i, b"%d" % i), f"turn {turn}"
    assert over.transport.changed == 0


def test_an_update_while_an_answer_is_on_its_way(make_rig: MakeRig) -> None:
    over = Masked(make_rig, send_buffer_bytes=8192, record_bytes=16_000)
    client = over.client(receive_bytes=8192)
    client.send(cold_frame(b"a" * 300_000, 1))
    client.update()
    client.send(cold_frame(b"b", 2))
    assert client.receive_cold() == (1, b"a" * 300_000)
    assert client.receive_cold() == (2, b"b")


# --- the end -------------------------------------------------------------------------------------


def test_the_peers_end_of_the_transport_ends_the_channel(make_rig: MakeRig) -> None:
    over = Masked(make_rig)
    client = over.client()
    client.send(cold_frame(b"last", 1))
    client.socket.sendall(b"\0\0")
    assert client.receive_cold() == (1, b"last")
    assert client.ended() and client.ended_well


def test_an_end_without_notice_ends_the_channel_after_its_answers(make_rig: MakeRig) -> None:
    gate = Gate()
    over = Masked(make_rig, dispatch=gate)
    client = over.client()
    client.send(cold_frame(b"last", 1))
    gate.wait_for(1)
    client.end_sending()
    eventually(lambda: over.rig.total("connections") == 1)
    gate.release()
    assert client.receive_cold() == (1, b"last")
    assert client.ended()


def test_a_stop_sends_answers_and_the_end(make_rig: MakeRig) -> None:
    gate = Gate()
    over = Masked(make_rig, dispatch=gate)
    idle, waiting = over.client(), over.client()
    waiting.send(cold_frame(b"x" * 5_000, 9))
    gate.wait_for(1)
    gate.release()
    over.rig.stop()
    assert waiting.receive_cold() == (9, b"x" * 5_000)
    for client in (idle, waiting):
        assert client.ended() and client.ended_well
    assert over.transport.closed == over.transport.opened == 2


def test_a_processor_that_is_taken_away_ends_its_transports(make_rig: MakeRig) -> None:
    over = Masked(make_rig, processors=2)
    clients = [over.client() for _ in range(4)]
    for i, client in enumerate(clients):
        client.send(cold_frame(b"%d" % i, i))
        assert client.receive_cold() == (i, b"%d" % i)
    over.rig.server.resize(1)
    eventually(lambda: sum(client.has_bytes() for client in clients) == 2)
    gone = [client for client in clients if client.has_bytes()]
    assert all(client.ended() and client.ended_well for client in gone)
    eventually(lambda: over.transport.closed == 2)


def test_a_reset_while_an_answer_is_on_its_way(make_rig: MakeRig) -> None:
    over = Masked(make_rig, send_buffer_bytes=8192)
    client = over.client(receive_bytes=8192)
    client.send(cold_frame(b"a" * 500_000, 1))
    client.socket.recv(1)
    client.reset()
    eventually(lambda: over.transport.closed == 1)
    assert over.rig.total("requests") == 1
