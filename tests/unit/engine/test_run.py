"""The order in which a run is served: what may take long comes last."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from kbroker._net import WrappedRequest
from kbroker.testing.file_faults import FileFaults
from tests.support.record_batches import Record, build_batch
from tests.unit.engine.wire import produce_frame, produced_in
from tests.unit.net.harness import DEADLINE_S, Rig, cold_frame, eventually

SMALL = build_batch([b"small"])
TRIES = 20


Batches = dict[int, bytes]  # by partition


def noise(size: int) -> bytes:
    """Bytes that do not shrink."""
    return random.Random(1).randbytes(size)


@pytest.mark.parametrize(("value", "last"), [(noise(60_000), True), (noise(2_000), False)])
def test_a_produce_with_much_to_unpack_is_the_last_of_its_run(
    make_rig: Callable[..., Rig], value: bytes, last: bool
) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def dispatch(request: WrappedRequest) -> None:
        inside.set()
        assert go_on.wait(DEADLINE_S)
        request.respond(request.body)

    rig = make_rig(handlers=1, dispatch=dispatch)
    topic = rig.create("t")
    packed = build_batch([Record(value)], codec="gzip")
    assert (len(packed) >= 16 << 10) is last
    holder, dear, cheap = rig.client(), rig.client(), rig.client()
    holder.send(cold_frame(b"x"))
    assert inside.wait(DEADLINE_S)
    for number, (client, batch) in enumerate(((dear, packed), (cheap, SMALL)), start=1):
        client.send(produce_frame(9, [(topic, {0: batch})]))
        eventually(lambda n=number: rig.server.statistics()["queued_requests"] == n, "it is queued")
    go_on.set()
    assert holder.receive_cold() == (1, b"x")
    offsets = [
        next(iter(produced_in(9, client.receive())[1].values())).base_offset
        for client in (dear, cheap)
    ]
    assert offsets == ([1, 0] if last else [0, 1])


def served_in_one_run(
    make_rig: Callable[..., Rig], *frames: Batches, offsets: list[int], writes: int
) -> None:
    """Each frame on a connection of its own, queued in this order while the one handler is in
    Python: it gets this offset in partition 0, with so many writes to its log. A handler that loses
    its processor in between is one that takes long, and writes once more: so in one of some tries.
    """
    for number in range(TRIES):
        found, written = tried_in_one_run(make_rig, f"t{number}", frames)
        assert found == offsets
        assert written >= writes
        if written == writes:
            return
    raise AssertionError(f"more than {writes} writes in each of {TRIES} tries")


def tried_in_one_run(
    make_rig: Callable[..., Rig], name: str, frames: tuple[Batches, ...]
) -> tuple[list[int], int]:
    inside, go_on = threading.Event(), threading.Event()
    written: list[str] = []

    def dispatch(request: WrappedRequest) -> None:
        inside.set()
        assert go_on.wait(DEADLINE_S)
        request.respond(request.body)

    def count(operation: str, path: str) -> None:
        if operation == "write" and path.endswith(f"/{name}-0/00000000000000000000.log"):
            written.append(path)

    rig = make_rig(handlers=1, dispatch=dispatch)
    topic = rig.create(name, partitions=2)
    holder, *clients = (rig.client() for _ in range(1 + len(frames)))
    holder.send(cold_frame(b"x"))
    assert inside.wait(DEADLINE_S)
    for number, (client, batches) in enumerate(zip(clients, frames, strict=True), start=1):
        client.send(produce_frame(9, [(topic, batches)]))
        eventually(lambda n=number: rig.server.statistics()["queued_requests"] == n, "it is queued")
    with FileFaults(before=count):
        go_on.set()
        offsets = [produced_in(9, client.receive())[1][name, 0].base_offset for client in clients]
    return offsets, len(written)


def test_small_batches_with_much_to_unpack_are_one_append(make_rig: Callable[..., Rig]) -> None:
    """Large ones are alone: requests beside a bomb wait for it."""
    large = build_batch([Record(noise(60_000))], codec="gzip")
    part = build_batch([Record(noise(9_000))], codec="gzip")
    assert len(part) < 16 << 10 <= 2 * len(part)
    two = {0: part, 1: part}
    frames = {0: large}, two, two, {0: SMALL}
    served_in_one_run(make_rig, *frames, offsets=[3, 1, 2, 0], writes=3)


def test_validated_batches_do_not_wait_for_those_that_take_long(
    make_rig: Callable[..., Rig],
) -> None:
    """Two of these take ten milliseconds and more to unpack. How long the first of them takes
    that was not known before, so earlier batches are appended with it; the second is by itself."""
    slow = build_batch([Record(bytes(10_000_000))], codec="gzip")
    part = build_batch([Record(noise(9_000))], codec="gzip")
    assert len(slow) < 16 << 10 <= 2 * len(slow)
    two = {0: slow, 1: slow}
    frames = {0: part, 1: part}, two, two
    served_in_one_run(make_rig, *frames, offsets=[0, 1, 2], writes=2)
