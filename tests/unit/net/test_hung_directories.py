"""Requests that wait for a write that hangs: what becomes of them when it is over."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.support.record_batches import build_batch
from tests.support.standing_disk import standing
from tests.unit.engine.wire import fetched_in, produce_frame, produced_in
from tests.unit.net.harness import Client, Rig, Topic, eventually
from tests.unit.net.test_hung_files import ask_old, index_of, of_many_segments
from tests.unit.net.test_taker_role import assert_served

HANDLERS = 8
# A log counts as slow for eight times as long as its slow write took. After a write of half a
# second, a test on a busy machine has four seconds to send the next request.
SLOW_WRITE_S = 0.5


def write_of(name: str) -> tuple[str, str]:
    return "write", f"{name}-0/{0:020}.log"


def send_batch(client: Client, topic: Topic) -> None:
    client.send(produce_frame(9, [(topic, {0: build_batch()})]))


def assert_answered(client: Client) -> None:
    (result,) = produced_in(9, client.receive())[1].values()
    assert result.error == 0


def set_aside(rig: Rig) -> int:
    found: int = rig.server.statistics()["requests_set_aside"]
    return found


def held_handlers(rig: Rig) -> list[int]:
    """Of those that serve, who is at a file that hangs."""
    handlers = rig.hot.statistics()["handlers"]
    return [at for at, it in enumerate(handlers) if it["serving"] and rig.hot.is_held(at)]


def test_requests_that_wait_for_a_write_are_looked_at_again_when_that_is_over(
    make_rig: Callable[..., Rig],
) -> None:
    """Handlers hang elsewhere, as many as may: a request to the log has no turn among them."""
    rig = make_rig(handlers=4)
    hung = [of_many_segments(rig, name) for name in ("one", "two")]
    topic = rig.create("slow", directory=rig.directory / "other")
    readers, writer, waiting = [rig.client() for _ in hung], rig.client(), rig.client()
    with standing(index_of("one"), index_of("two"), write_of("slow")) as disk:
        for at, (reader, each) in enumerate(zip(readers, hung, strict=True)):
            ask_old(reader, each)
            disk.wait(at)
        send_batch(writer, topic)
        disk.wait(2)
        send_batch(waiting, topic)
        eventually(lambda: set_aside(rig) == 3, "it waits for the write")
        disk.go_on(2)
        assert_answered(writer)
        assert_answered(waiting)
        assert not any(reader.has_bytes() for reader in readers)  # they hang still
        disk.go_on(0)
        disk.go_on(1)
        for reader in readers:
            assert fetched_in(12, reader.receive()).only.error == 0


# 32 handlers may be at files, however many there are: those that were taken away are none of them.
@pytest.mark.parametrize("handlers", [HANDLERS, 64])
def test_handlers_that_were_taken_away_while_they_hang_have_no_place_at_files(
    make_rig: Callable[..., Rig], handlers: int
) -> None:
    """Half of the handlers hang, and just these are taken away: the others may be at files."""
    rig = make_rig(handlers=handlers)
    names = [f"hung{number}" for number in range(handlers // 2)]
    hung, fine = [of_many_segments(rig, name) for name in names], of_many_segments(rig, "fine")
    readers, other = [rig.client() for _ in hung], rig.client()
    with standing(*map(index_of, names), index_of("fine")) as disk:
        for at, (reader, each) in enumerate(zip(readers, hung, strict=True)):
            ask_old(reader, each)
            disk.wait(at)
        rig.pool.resize(handlers // 2)
        assert held_handlers(rig) == []
        ask_old(other, fine)
        disk.wait(len(hung))  # a handler has gone there
        disk.go_on(len(hung))
        assert fetched_in(12, other.receive()).only.error == 0
        assert not any(reader.has_bytes() for reader in readers)
        for at in range(len(hung)):
            disk.go_on(at)
        for reader in readers:
            assert fetched_in(12, reader.receive()).only.error == 0
    rig.pool.resize(handlers)
    assert_served(other, fine)


def test_a_handler_that_is_back_from_a_write_finds_its_requests(
    make_rig: Callable[..., Rig],
) -> None:
    """Another handler sets a request aside for it before it has slept since."""
    rig = make_rig(handlers=2)
    slow, healthy = rig.create("slow"), rig.create("healthy", directory=rig.directory / "other")
    first, second = rig.client(), rig.client()
    with standing(write_of("slow"), write_of("healthy")) as disk:
        send_batch(first, slow)
        disk.wait(0)
        slow_from_s = time.monotonic()
        send_batch(second, healthy)
        disk.wait(1)  # the second handler has this, and sleeps after the first one
        eventually(lambda: time.monotonic() - slow_from_s > SLOW_WRITE_S)
        disk.go_on(0)
        assert_answered(first)
        disk.go_on(1)
        assert_answered(second)
    before = set_aside(rig)
    assert_served(first, slow, 1)
    assert set_aside(rig) > before
    assert_served(second, healthy)
