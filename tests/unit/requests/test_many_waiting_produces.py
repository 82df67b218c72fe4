"""What a crowd of waiting produces costs those who come and go beside it: no walk along it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.support.record_batches import build_batch
from tests.unit.net.harness import Client, Rig, Topic, eventually
from tests.unit.requests.following import BATCH, LONG_MS, follow, nothing_waits, replicated
from tests.unit.requests.wire import produce_frame, produced_in

# Each past all of the others takes ten times as long at least.
CPU_S_MAX = 2.0
VERSIONS = (9, 10)  # by turns, so that each is a request of its own and no part of a train


@contextmanager
def quick() -> Iterator[None]:
    """What this process does within takes little time of its processors."""
    before = time.process_time()
    yield
    assert time.process_time() - before < CPU_S_MAX


def crowded_rig(make_rig: Callable[..., Rig]) -> tuple[Rig, Topic]:
    rig = make_rig(
        pipelined_requests_max=65_536,
        pipelined_bytes_max=1 << 30,
        pipelined_total_bytes_max=1 << 30,
    )
    return rig, replicated(rig)


def frame_of(topic: Topic, version: int, batch: bytes, timeout_ms: int) -> bytes:
    return produce_frame(version, [(topic, {0: batch})], acks=-1, timeout_ms=timeout_ms)


def wait(rig: Rig, topic: Topic, timeout_ms: int, count: int) -> Client:
    """A connection with so many requests that wait, each for itself."""
    client = rig.client()
    waiting = rig.hot.statistics()["parked_now"] + count
    frames = b"".join(frame_of(topic, version, BATCH, timeout_ms) for version in VERSIONS)
    client.send(frames * (count // 2))
    rig.wait_parked(waiting)
    return client


def codes_of(client: Client, count: int, versions: tuple[int, ...] = VERSIONS) -> set[int]:
    answers = [
        produced_in(versions[number % len(versions)], client.receive())[1]
        for number in range(count)
    ]
    return {each.error for answer in answers for each in answer.values()}


def test_a_duplicate_does_not_pass_everybody_behind_the_first(make_rig: Callable[..., Rig]) -> None:
    rig, topic = crowded_rig(make_rig)
    again = build_batch([b"0"], producer_id=7, producer_epoch=0, base_sequence=0)
    repeats = rig.client()
    repeats.send(frame_of(topic, 9, again, LONG_MS))
    rig.wait_parked(1)
    crowd = wait(rig, topic, LONG_MS, 30_000)
    with quick():
        read = rig.total("requests") + 30_000
        repeats.send(frame_of(topic, 9, again, LONG_MS) * 30_000)
        eventually(lambda: rig.total("requests") == read, "they are read")
        repeats.all_delivered()
        served = rig.client()
        served.send(frame_of(topic, 9, b"", LONG_MS))
        served.receive()
    assert topic.logs[0].log_end_offset == 1 + 2 * 30_000
    follow(rig, topic.logs[0])
    assert codes_of(crowd, 30_000) == {0}
    assert codes_of(repeats, 30_001, (9,)) == {0}
    nothing_waits(rig)
