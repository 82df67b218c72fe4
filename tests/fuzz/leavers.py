"""Clients that leave in the midst of waiting, and clients that let what is kept for them grow.

A process with some connections at a time, each an act: a long poll of one partition named up to
4,000 times, beside a neighbour that appends to it; a member that joins and is gone before its
group is complete; a follower that waits for the leader's assignment; a fetch session that grows;
half a frame. Each ends by a reset or an ordinary end, at any moment. Which acts there are is drawn
from the seed; how they interleave is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import random
import struct
from collections import Counter
from multiprocessing.connection import Connection
from typing import Final

from tests.fuzz.mutate import framed
from tests.fuzz.target import NEIGHBOUR

ACTORS: Final = 24
WATCHED: Final = (1, 1, 2, 30, 300, 4_000)
WAITS_MS: Final = (500, 60_000, 2**31 - 1)
SESSION_PARTITIONS: Final = 1_000  # with each of its requests
SESSION_STEPS: Final = 12
GROUPS: Final = 40
_ANSWER_S: Final = 8.0
_MAX_BYTES: Final = 1 << 20

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Leavers:
    """Started with the hostile frames, stopped after them."""

    def __init__(self, address: tuple[str, int], seed: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(address, seed, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._pipe.recv()  # they begin
        self.acts: Counter[str] = Counter()

    def stop(self) -> None:
        self._pipe.send(None)
        self.acts = self._pipe.recv()
        self._process.join()


def _run(address: tuple[str, int], seed: int, pipe: Connection) -> None:
    os.nice(5)  # as the other generators
    acts: Counter[str] = Counter()
    pipe.send(None)
    asyncio.run(_all(address, seed, pipe, acts))
    pipe.send(acts)


async def _all(address: tuple[str, int], seed: int, pipe: Connection, acts: Counter[str]) -> None:
    ends = asyncio.get_running_loop().run_in_executor(None, pipe.recv)
    actors = [
        asyncio.create_task(_actor(address, random.Random(f"{seed}-leaver-{number}"), acts, ends))
        for number in range(ACTORS)
    ]
    await ends
    for actor in actors:
        actor.cancel()
    await asyncio.gather(*actors, return_exceptions=True)


async def _actor(
    address: tuple[str, int], rng: random.Random, acts: Counter[str], ends: asyncio.Future[None]
) -> None:
    while not ends.done():
        act = rng.choice(_ACTS)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            streams = await asyncio.open_connection(*address)
            try:
                await act(streams, rng)
                acts[act.__name__.strip("_")] += 1
                await asyncio.sleep(rng.choice((0, 0, 0.01, 0.3)))
            finally:
                if rng.random() < 0.5:
                    streams[1].transport.abort()
                else:
                    streams[1].close()


async def _ask(streams: Streams, frame: bytes) -> bytes:
    # Not `wait_for`: one whose answer comes together with a cancellation forgets the latter.
    streams[1].write(frame)
    async with asyncio.timeout(_ANSWER_S):
        (size,) = struct.unpack(">i", await streams[0].readexactly(4))
        return await streams[0].readexactly(size)


# --- acts ----------------------------------------------------------------------------------------


async def _long_poll(streams: Streams, rng: random.Random) -> None:
    streams[1].write(fetch_frame(rng.choice(WATCHED), rng.choice(WAITS_MS)))


async def _two_long_polls_and_half_a_frame(streams: Streams, rng: random.Random) -> None:
    frame = fetch_frame(1, 60_000)
    streams[1].write(frame + frame[: rng.randrange(len(frame))])


async def _join(streams: Streams, rng: random.Random) -> None:
    streams[1].write(join_frame(rng.randrange(GROUPS), _session_ms(rng), b""))


async def _sync_behind_a_leader(streams: Streams, rng: random.Random) -> None:
    """Joins until it is in a generation, and waits for an assignment that may never come."""
    group = rng.randrange(GROUPS)
    answer = await _ask(streams, join_frame(group, _session_ms(rng), b""))
    error, generation = struct.unpack_from(">hi", answer, 8)
    if error != 0:
        return
    at = 14
    (length,) = struct.unpack_from(">h", answer, at)
    at += 2 + length
    (length,) = struct.unpack_from(">h", answer, at)
    at += 2 + length
    (length,) = struct.unpack_from(">h", answer, at)
    member = answer[at + 2 : at + 2 + length]
    streams[1].write(sync_frame(group, generation, member))


async def _growing_session(streams: Streams, rng: random.Random) -> None:
    answer = await _ask(streams, session_frame(0, 0, 0, 8))
    error, session = struct.unpack_from(">hi", answer, 8)
    if error or not session:
        return
    begin = 8
    for epoch in range(1, rng.randint(2, SESSION_STEPS)):
        await _ask(streams, session_frame(session, epoch, begin, SESSION_PARTITIONS))
        begin += SESSION_PARTITIONS


_ACTS: Final = (
    _long_poll, _long_poll, _two_long_polls_and_half_a_frame, _join, _sync_behind_a_leader,
    _growing_session,
)  # fmt: skip


# --- frames --------------------------------------------------------------------------------------


def _text(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def _head(key: int, version: int) -> bytes:
    return struct.pack(">hhi", key, version, 1) + _text(b"leaver")


def fetch_frame(times: int, wait_ms: int) -> bytes:
    """Fetch v4 of one partition, named so many times, from an end that is far away."""
    body = struct.pack(">iiiib", -1, wait_ms, 1 << 30, _MAX_BYTES, 0) + struct.pack(">i", 1)
    body += _text(NEIGHBOUR.encode()) + struct.pack(">i", times)
    return framed(_head(1, 4) + body + struct.pack(">iqi", 0, 0, 1 << 16) * times)


def session_frame(session: int, epoch: int, begin: int, count: int) -> bytes:
    """Fetch v7 that adds so many partitions, none of which there are but the first."""
    body = struct.pack(">iiiib", -1, 0, 1, _MAX_BYTES, 0) + struct.pack(">iii", session, epoch, 1)
    body += _text(NEIGHBOUR.encode()) + struct.pack(">i", count)
    numbers = range(begin, begin + count)
    body += b"".join(struct.pack(">iqqi", number, 0, -1, 1 << 16) for number in numbers)
    return framed(_head(1, 7) + body + struct.pack(">i", 0))


def _session_ms(rng: random.Random) -> int:
    return rng.choice((6_000, 6_000, 10_000))


def join_frame(group: int, session_ms: int, member: bytes) -> bytes:
    """JoinGroup v2: who has no id gets one and joins at once."""
    body = _text(b"left-%d" % group) + struct.pack(">ii", session_ms, session_ms) + _text(member)
    body += _text(b"consumer") + struct.pack(">i", 1) + _text(b"range") + struct.pack(">i", 0)
    return framed(_head(11, 2) + body)


def sync_frame(group: int, generation: int, member: bytes) -> bytes:
    """SyncGroup v1 of a follower: without assignments."""
    body = _text(b"left-%d" % group) + struct.pack(">i", generation) + _text(member)
    return framed(_head(14, 1) + body + struct.pack(">i", 0))
