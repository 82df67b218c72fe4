"""What a crowd of waiting produces costs those who come and go beside it: no walk along it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kbroker.engine._hot import HotPath
from kbroker.engine.waiting._parked import bucket_of
from kbroker.errors import ErrorCode
from tests.support.alone import slowness
from tests.support.record_batches import build_batch
from tests.unit.engine.following import BATCH, LONG_MS, follow, nothing_waits, replicated
from tests.unit.engine.wire import produce_frame, produced_in
from tests.unit.net.harness import Client, Rig, Topic, eventually

# Each past all of the others takes ten times as long at least.
CPU_S_MAX = 2.0
# Their ticks are minutes wide: everything of a test has the same.
WAIT_MS, LONGEST_MS = 1 << 26, 2**31 - 1
VERSIONS = (9, 10)  # by turns, so that each is a request of its own and no part of a train


@contextmanager
def quick() -> Iterator[None]:
    """What this process does within takes little time of its processors."""
    before = time.process_time()
    yield
    assert time.process_time() - before < CPU_S_MAX * slowness()


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


def tick_of(wait_ms: int, now_ms: int) -> int:
    """As the hot path has it: long waits share ticks, the longer the wider."""
    width = 1
    while wait_ms >= width * 4 * 256:
        width *= 2
    return -(-((now_ms + wait_ms) // 4 + 1) // width) * width


def waits_of_one_bucket() -> tuple[int, int]:
    """Of two deadlines that share a bucket, and will for a minute: the near one first."""
    now_ms = time.monotonic_ns() // 1_000_000
    for near_ms in range(WAIT_MS, LONGEST_MS // 4, 1 << 18):
        for far_ms in (LONGEST_MS, LONGEST_MS // 2):
            ticks = [tick_of(near_ms, now_ms), tick_of(far_ms, now_ms)]
            later = [tick_of(near_ms, now_ms + 60_000), tick_of(far_ms, now_ms + 60_000)]
            if ticks == later and len(set(map(bucket_of, ticks))) == 1:
                return near_ms, far_ms
    raise AssertionError("no two waits share a bucket")


def test_a_deadline_looks_once_at_those_that_wait_longer(make_rig: Callable[..., Rig]) -> None:
    rig, topic = crowded_rig(make_rig)
    near_ms, far_ms = waits_of_one_bucket()
    due = wait(rig, topic, near_ms, 20_000)
    longer = wait(rig, topic, far_ms, 30_000)  # they stand before those that are due
    near, far = sorted(set(rig.ticks))
    assert bucket_of(near) == bucket_of(far)
    assert HotPath.tick_deadline_ms(near) < HotPath.tick_deadline_ms(far)
    with quick():
        rig.hot.expire(near)
    assert codes_of(due, 20_000) == {ErrorCode.REQUEST_TIMED_OUT}
    assert not longer.has_bytes()
    figures = rig.hot.statistics()
    assert (figures["parked_now"], figures["parked_produces_expired"]) == (30_000, 20_000)
    longer.close()
    rig.wait_parked(0)
    nothing_waits(rig)


def test_a_duplicate_does_not_pass_all_after_the_first(make_rig: Callable[..., Rig]) -> None:
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
