"""A stop while members wait in a group: each has an answer, and the stop does not wait for it."""

from __future__ import annotations

import struct
import time

import pytest

from kbroker.errors import ErrorCode
from kbroker.testing.plain import PlainBroker as Broker
from tests.support.alone import delay
from tests.system.test_hostile import answer, connect, eventually
from tests.system.test_outside_text import JOIN, OPTIONS, SYNC, found, join, joined, text

pytestmark = [pytest.mark.client, pytest.mark.alone]

STOP_S_MAX = 2.0  # it took four seconds, and a clean stop of an idle broker a tenth of one


@pytest.mark.parametrize("waits_in", ["JoinGroup", "SyncGroup"])
def test_a_waiting_member_is_answered_and_the_stop_is_short(waits_in: str) -> None:
    with Broker(overrides=OPTIONS) as broker:
        assert eventually(lambda: found(broker))
        code, generation, leader = joined(broker, b"g")
        assert code is ErrorCode.NONE
        if waits_in == "SyncGroup":
            with connect(broker) as second:
                second.sendall(frame(JOIN, 3, asked_join(b"")))
                again = generation
                while again == generation:  # until the second one is there, the answer is the same
                    code, again, _ = join(broker, b"g", member=leader.encode())
                    assert code is ErrorCode.NONE
                answered = answer(second)
            member = answered[-(4 + 36 + 2 + 4) :]  # the follower's id, then no members
            follower = member[member.index(b"-") - 1 : -4]
            body = text(b"g") + struct.pack(">i", again) + text(follower)
            waiting = frame(SYNC, 1, body + struct.pack(">i", 0))
        else:
            waiting = frame(JOIN, 3, asked_join(b""))
        with connect(broker) as connection:
            connection.sendall(waiting)
            connection.settimeout(0.5)
            with pytest.raises(TimeoutError):
                connection.recv(1)
            connection.settimeout(30)
            began_s = time.monotonic()
            broker.stop()
            took_s = time.monotonic() - began_s
            answered = answer(connection)
    (error,) = struct.unpack_from(">h", answered, 8)
    assert error == ErrorCode.NOT_COORDINATOR
    assert took_s < STOP_S_MAX * delay()


def asked_join(member: bytes) -> bytes:
    body = text(b"g") + struct.pack(">ii", 30_000, 20_000) + text(member) + text(b"consumer")
    return body + struct.pack(">i", 1) + text(b"range") + struct.pack(">i", 0)


def frame(key: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhi", key, version, 7) + text(b"c")
    return struct.pack(">i", len(head) + len(body)) + head + body
