"""Files that hang for good, and what is left for everything else."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from kbroker._net import WrappedRequest
from tests.support.record_batches import build_batch, parse_batches
from tests.support.standing_disk import standing
from tests.unit.engine.wire import Ask, fetch_frame, fetched_in, produce_frame, produced_in
from tests.unit.net.harness import DEADLINE_S, Client, Rig, Topic, cold_frame, eventually
from tests.unit.net.test_taker_role import Stopped, assert_served

SETTINGS = {"segment_bytes": 6_000, "index_interval_bytes": 100}
COUNT = 200
OLD = 20  # in a segment that is full


def of_many_segments(rig: Rig, name: str) -> Topic:
    topic = rig.create(name, **SETTINGS)
    for number in range(COUNT):
        topic.logs[0].append(build_batch([b"%06d" % number]))
    return topic


def index_of(name: str) -> tuple[str, str]:
    return "open", f"{name}-0/{0:020}.index"


def ask_old(client: Client, topic: Topic) -> None:
    client.send(fetch_frame(12, [Ask(topic, 0, OLD)]))


def test_python_and_slow_files_leave_a_handler_together(make_rig: Callable[..., Rig]) -> None:
    """As many as may be in Python, and as many as may stand at files, are all that there are."""
    stopped = Stopped()

    def dispatch(request: WrappedRequest) -> None:
        stopped()
        request.respond(request.body)

    rig = make_rig(handlers=4, dispatch=dispatch)
    hung = [of_many_segments(rig, name) for name in ("one", "two")]
    healthy = rig.create("healthy")
    cold, waiting, other = (
        [rig.client() for _ in range(4)],
        [rig.client() for _ in hung],
        rig.client(),
    )
    with standing(index_of("one"), index_of("two")) as disk:
        ask_old(waiting[0], hung[0])
        disk.wait(0)
        for client in cold:
            client.send(cold_frame(b"x"))
        assert stopped.inside.wait(DEADLINE_S)
        ask_old(waiting[1], hung[1])
        eventually(lambda: rig.server.statistics()["requests_set_aside"] == 2)
        assert_served(other, healthy)
        assert not waiting[0].has_bytes()  # it hangs still
        stopped.go_on.set()
        for client in cold:
            assert client.receive_cold()[1] == b"x"
        disk.wait(1)  # which has its turn when Python has less
        disk.go_on(0)
        disk.go_on(1)
        for client in waiting:
            assert fetched_in(12, client.receive()).only.error == 0


def test_a_file_that_hangs_keeps_no_other_from_handlers_that_are_busy(
    make_rig: Callable[..., Rig],
) -> None:
    """The queue is never empty: two clients ask again as soon as they are answered."""
    rig = make_rig(handlers=4)
    hung, fine = of_many_segments(rig, "hung"), of_many_segments(rig, "fine")
    busy = rig.create("busy")
    waiting, reader = rig.client(), rig.client()
    many = [rig.client() for _ in range(8)]
    frame = produce_frame(9, [(busy, {0: build_batch([bytes(200_000)])})])
    with standing(index_of("hung")) as disk:
        ask_old(waiting, hung)
        disk.wait()
        for client in many:
            client.send(frame)
        ask_old(reader, fine)
        while not reader.has_bytes():
            for client in many:
                if client.has_bytes():
                    client.receive()
                    client.send(frame)
        records = fetched_in(12, reader.receive()).only.records or b""
        assert parse_batches(records)[0].base_offset == OLD
        assert not waiting.has_bytes()  # it hangs still
        disk.go_on()
        waiting.receive()
    for client in many:
        assert produced_in(9, client.receive())[0] == 1


@pytest.mark.parametrize("what", ["roll", "close"])
def test_a_closed_connection_does_not_wait_for_a_log_that_hangs(
    make_rig: Callable[..., Rig], what: str
) -> None:
    """The one handler ends the waits of clients that have left, in its turn between two runs."""
    rig = make_rig(handlers=1)
    hung, other = rig.create("hung", segment_bytes=2_000), rig.create("other")
    log, batch = hung.logs[0], build_batch([bytes(900)])
    log.append(batch)
    end = log.append(batch).last_offset + 1
    begins = {"roll": lambda: log.append(batch), "close": log.log.abandon}[what]
    place = f"{end:020}.log" if what == "roll" else f"{0:020}.index"
    clients = [rig.client(), rig.client()]
    for client, topic, offset in zip(clients, (hung, other), (end, 0), strict=True):
        client.send(fetch_frame(12, [Ask(topic, 0, offset)], max_wait_ms=600_000))
    rig.wait_parked(2)
    with standing(("open", place)) as disk:
        disk.begin(begins)
        for client in clients:
            client.socket.shutdown(socket.SHUT_WR)  # and reads on
            assert fetched_in(12, disk.soon(client.receive)).only.records in (None, b"")
        disk.go_on()
    assert rig.hot.statistics()["parked_now"] == 0
