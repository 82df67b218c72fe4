"""What fetch sessions may hold, one and all together, and what they cost."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from kbroker.errors import ErrorCode
from kbroker.types import ApiKey
from tests.unit.net.harness import Client, Rig, framed

PARTITIONS_MAX = 100_000  # of one session
BYTES_MAX = 128 << 20  # of all


def many(
    indexes: Sequence[int], session: tuple[int, int], *, name: str = "none", forget: bool = False
) -> bytes:
    """Fetch v7 of these partitions of a topic that is not there: nothing but their names counts."""
    named = struct.pack(">h", len(name)) + name.encode()
    body = struct.pack(">hhih", ApiKey.FETCH, 7, 1, -1)
    body += struct.pack(">iiiibii", -1, 0, 0, 1 << 20, 0, *session)
    entries = b"".join(struct.pack(">iqqi", index, 0, -1, 1 << 20) for index in indexes)
    topic = struct.pack(">i", 1) + named + struct.pack(">i", len(indexes)) + entries
    left = struct.pack(">i", 1) + named + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
    nothing = struct.pack(">i", 0)
    return framed(body + (nothing + left if forget else topic + nothing))


def ask_many(client: Client, indexes: Sequence[int], session: tuple[int, int], **how: Any) -> Any:
    """(error, session id) of its answer."""
    client.send(many(indexes, session, **how))
    return struct.unpack_from(">hi", client.receive(), 8)


def figures(rig: Rig) -> tuple[int, int]:
    found = rig.hot.statistics()
    return found["fetch_sessions"], found["fetch_session_partitions"]


def test_the_gauges_follow_the_sessions(rig: Rig) -> None:
    client = rig.client()
    assert figures(rig) == (0, 0)
    _, first = ask_many(client, range(1000), (0, 0))
    held = rig.hot.statistics()["fetch_session_bytes"]
    assert figures(rig) == (1, 1000) and 100_000 < held < 250_000
    assert ask_many(client, range(500, 3000), (first, 1)) == (0, first)
    assert figures(rig) == (1, 3000)
    assert ask_many(client, range(10, 4000), (first, 2), forget=True) == (0, first)
    assert figures(rig) == (1, 10)
    assert rig.hot.statistics()["fetch_session_bytes"] < held / 20, "what is forgotten is freed"
    _, second = ask_many(client, range(5), (0, 0))
    assert figures(rig) == (2, 15)
    for session in (first, second):
        ask_many(client, [0], (session, -1))
    assert figures(rig) == (0, 0)
    assert rig.hot.statistics()["fetch_session_bytes"] == 0


def test_the_index_of_sessions_counts_as_they_do(rig: Rig) -> None:
    client = rig.client()
    held = [0]
    sessions: list[int] = []
    for _ in range(14):
        sessions.append(ask_many(client, [0], (0, 0))[1])
        held.append(rig.hot.statistics()["fetch_session_bytes"])
    more = [now - before for before, now in pairwise(held)]
    index_bytes = 16 * 8  # its first places, which double for the thirteenth session
    assert more == [more[1] + index_bytes * (number in (0, 12)) for number in range(14)]
    for session in sessions:
        ask_many(client, [0], (session, -1))
    assert rig.hot.statistics()["fetch_session_bytes"] == 0


def test_a_session_that_grows_too_large_ends(rig: Rig) -> None:
    client = rig.client()
    _, session = ask_many(client, range(PARTITIONS_MAX), (0, 0))
    assert session > 0
    assert ask_many(client, [7], (session, 1)) == (0, session), "one that it has"
    error, _ = ask_many(client, [PARTITIONS_MAX], (session, 2))
    assert error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert figures(rig) == (0, 0)
    assert rig.hot.statistics()["fetch_session_bytes"] == 0


def test_without_room_for_all_a_client_is_served_without_a_session(rig: Rig) -> None:
    client = rig.client()
    long_name = "n" * 249
    given = []
    while (session := ask_many(client, range(PARTITIONS_MAX), (0, 0), name=long_name))[1]:
        assert session[0] == 0
        given.append(session[1])
        assert rig.hot.statistics()["fetch_session_bytes"] <= BYTES_MAX
    assert session == (0, 0), "served, as by a broker that keeps no sessions"
    assert len(given) == BYTES_MAX // (PARTITIONS_MAX * (128 + 249))
    small = [ask_many(client, range(10), (0, 0))[1] for _ in range(3)]
    assert all(small), "what is small still fits"
    ask_many(client, [0], (given[0], -1))
    assert ask_many(client, range(PARTITIONS_MAX), (0, 0), name=long_name)[1], "room again"


def test_a_client_that_grows_where_there_is_no_room_loses_its_session(rig: Rig) -> None:
    client = rig.client()
    _, session = ask_many(client, range(10), (0, 0))
    while ask_many(client, range(PARTITIONS_MAX), (0, 0), name="n" * 249)[1]:
        pass
    error, _ = ask_many(client, range(PARTITIONS_MAX), (session, 1), name="m" * 249)
    assert error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert ask_many(client, [], (session, 2))[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_stale_session_gives_way_to_bytes(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(hot={"session_slots_max": 100, "session_eviction_ms_min": 0})
    client = rig.client()
    given = [ask_many(client, range(PARTITIONS_MAX), (0, 0), name="n" * 249)[1] for _ in range(6)]
    assert all(given)
    assert rig.hot.statistics()["fetch_session_bytes"] <= BYTES_MAX
    assert ask_many(client, [], (given[0], 1))[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert ask_many(client, [], (given[-1], 1))[0] == 0


def cpu_s(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


@pytest.mark.parametrize(
    "indexes",
    [range(8, 30_008), range(0, 30_000 << 16, 1 << 16)],
    ids=["it begins small", "indexes that would share a place"],
)
def test_a_session_grows_at_a_constant_price(rig: Rig, indexes: range) -> None:
    # Measured beside the same partitions in order and at once. The square of their number would be
    # more than a hundred times as much.
    client = rig.client()
    plain = min(cpu_s(lambda: ask_many(client, range(30_000), (0, 0))) for _ in range(3))

    def grow() -> None:
        _, session = ask_many(client, range(8), (0, 0))
        ask_many(client, indexes, (session, 1))

    assert min(cpu_s(grow) for _ in range(3)) < 5 * plain
