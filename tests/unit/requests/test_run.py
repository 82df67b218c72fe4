"""The order in which a run is served: what may take long comes last."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from kbroker._net import WrappedRequest
from kbroker.testing.file_faults import FileFaults
from tests.support.record_batches import Record, build_batch
from tests.unit.net.harness import DEADLINE_S, Rig, cold_frame, eventually
from tests.unit.requests.wire import produce_frame, produced_in

SMALL = build_batch([b"small"])


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


def test_small_batches_with_much_to_unpack_are_one_append(make_rig: Callable[..., Rig]) -> None:
    """Large ones are alone: who stands beside a bomb waits for it."""
    inside, go_on = threading.Event(), threading.Event()
    written: list[str] = []

    def dispatch(request: WrappedRequest) -> None:
        inside.set()
        assert go_on.wait(DEADLINE_S)
        request.respond(request.body)

    def count(operation: str, path: str) -> None:
        if operation == "write" and path.endswith(".log"):
            written.append(path)

    rig = make_rig(handlers=1, dispatch=dispatch)
    topic = rig.create("t", partitions=2)
    large = build_batch([Record(noise(60_000))], codec="gzip")
    part = build_batch([Record(noise(9_000))], codec="gzip")
    assert len(part) < 16 << 10 <= 2 * len(part)
    holder, *clients = (rig.client() for _ in range(5))
    holder.send(cold_frame(b"x"))
    assert inside.wait(DEADLINE_S)
    frames = ({0: large}, {0: part, 1: part}, {0: part, 1: part}, {0: SMALL})
    for number, (client, batches) in enumerate(zip(clients, frames, strict=True), start=1):
        client.send(produce_frame(9, [(topic, batches)]))
        eventually(lambda n=number: rig.server.statistics()["queued_requests"] == n, "it is queued")
    with FileFaults(before=count):
        go_on.set()
        offsets = [produced_in(9, client.receive())[1] for client in clients]
    assert [found["t", 0].base_offset for found in offsets] == [3, 1, 2, 0]
    assert len(written) == 4, "the small one, one for each partition of two, the large one"
