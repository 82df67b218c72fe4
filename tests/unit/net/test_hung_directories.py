"""A data directory of which one log hangs: what its other logs cost, and what waits for its end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.support.record_batches import build_batch
from tests.support.standing_disk import StandingDisk, standing
from tests.unit.log.two_directories import TOPIC_ID, Two
from tests.unit.net.harness import Client, Rig, Topic, eventually
from tests.unit.net.test_hung_files import ask_old, index_of, of_many_segments
from tests.unit.net.test_taker_role import assert_served
from tests.unit.requests.wire import fetched_in, produce_frame, produced_in

HANDLERS = 8


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


def serve_until_set_aside(rig: Rig, client: Client, topic: Topic) -> None:
    """A directory has its mark when its write has taken too long."""

    def is_set_aside() -> bool:
        before = set_aside(rig)
        assert_served(client, topic, 1)
        return set_aside(rig) > before

    eventually(is_set_aside, "a request is set aside")


def held_handlers(rig: Rig) -> list[int]:
    """Of those that serve, who is at a file that hangs."""
    handlers = rig.hot.statistics()["handlers"]
    return [at for at, it in enumerate(handlers) if it["serving"] and rig.hot.is_held(at)]


def hang_all(rig: Rig, disk: StandingDisk, topics: list[Topic]) -> list[Client]:
    """A produce to each, one after the other; each hangs, or is set aside."""
    clients = [rig.client() for _ in topics]
    for at, (client, topic) in enumerate(zip(clients, topics, strict=True)):
        before = set_aside(rig)
        send_batch(client, topic)
        eventually(
            lambda at=at, before=before: disk.stands(at) or set_aside(rig) > before,
            "the request is taken",
        )
    return clients


def test_a_directory_that_hangs_leaves_handlers_to_the_others(make_rig: Callable[..., Rig]) -> None:
    """It has as many logs as there are handlers, and none of them was slow before."""
    rig = make_rig(handlers=HANDLERS)
    names = [f"hung{number}" for number in range(HANDLERS)]
    hung = [rig.create(name) for name in names]
    healthy = rig.create("healthy", directory=rig.directory / "other")
    other = rig.client()
    with standing(*map(write_of, names)) as disk:
        clients = hang_all(rig, disk, hung)
        assert set_aside(rig) > 0
        assert_served(other, healthy)
        assert not any(client.has_bytes() for client in clients)
        for at in range(len(hung)):
            disk.go_on(at)
        for client in clients:
            assert_answered(client)
    before = set_aside(rig)
    assert_served(other, hung[-1])  # the mark is gone
    assert_served(other, healthy)
    assert set_aside(rig) == before


def test_one_log_that_hangs_keeps_no_other_log_of_its_directory_waiting(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig(handlers=HANDLERS)
    hung, fine = rig.create("hung"), rig.create("fine")
    waiting, other = rig.client(), rig.client()
    with standing(write_of("hung")) as disk:
        send_batch(waiting, hung)
        disk.wait()
        serve_until_set_aside(rig, other, fine)
        assert_served(other, fine)
        assert not waiting.has_bytes()  # it hangs still
        disk.go_on()
        assert_answered(waiting)


def test_a_log_that_is_moved_has_the_mark_of_its_new_directory(
    make_rig: Callable[..., Rig], tmp_path: Path
) -> None:
    rig, two = make_rig(handlers=HANDLERS), Two(tmp_path / "two")
    two.append()
    hung, moved = rig.create("hung", directory=two.first), Topic("words", TOPIC_ID, [two.log])
    rig.table.publish([("words", TOPIC_ID.bytes, False, [two.log])], [])
    waiting, other = rig.client(), rig.client()
    with standing(write_of("hung")) as disk:
        send_batch(waiting, hung)
        disk.wait()
        serve_until_set_aside(rig, other, moved)
        two.move(two.second)
        before = set_aside(rig)
        assert_served(other, moved)
        assert set_aside(rig) == before
        disk.go_on()
        assert_answered(waiting)
    rig.table.publish([], [TOPIC_ID.bytes])
    two.close()


def test_what_waits_for_a_write_is_looked_at_again_when_that_is_over(
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


def test_handlers_that_were_taken_away_while_they_hang_have_no_place_at_files(
    make_rig: Callable[..., Rig],
) -> None:
    """Half of the handlers hang, and just these are taken away: the others may be at files."""
    rig = make_rig(handlers=HANDLERS)
    names = [f"hung{number}" for number in range(HANDLERS // 2)]
    hung, fine = [of_many_segments(rig, name) for name in names], of_many_segments(rig, "fine")
    readers, other = [rig.client() for _ in hung], rig.client()
    with standing(*map(index_of, names), index_of("fine")) as disk:
        for at, (reader, each) in enumerate(zip(readers, hung, strict=True)):
            ask_old(reader, each)
            disk.wait(at)
        rig.pool.resize(HANDLERS // 2)
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
    rig.pool.resize(HANDLERS)
    assert_served(other, fine)
