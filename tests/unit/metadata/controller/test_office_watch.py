"""A controller whose event hangs gives up its office, and another broker decides."""

from __future__ import annotations

from pathlib import Path

from kbroker.clock import NS_PER_MS, ManualClock
from kbroker.metadata.controller.office_watch import AGAIN_MS, OfficeWatch
from kbroker.metadata.store.base import StoreUnavailableError
from tests.unit.metadata.controller.harness import WAIT_S, eventually
from tests.unit.metadata.controller.test_others_first import cluster_with_hanging_logs

MAX_MS = 5_000


def test_an_event_that_takes_too_long_ends_the_term_once_a_minute() -> None:
    clock, given_up = ManualClock(), [0]

    def give_up() -> None:
        given_up[0] += 1
        raise StoreUnavailableError("", "injected")

    began_ns = clock.monotonic_ns()
    event: list[tuple[str, int] | None] = [("BrokersChanged", began_ns)]
    watch = OfficeWatch(lambda: event[0], give_up, clock)
    clock.advance(MAX_MS)
    watch.look(MAX_MS)
    assert given_up == [0]
    clock.advance(1)
    watch.look(MAX_MS)
    assert given_up == [1]
    clock.advance(AGAIN_MS - 1)
    watch.look(MAX_MS)
    assert given_up == [1]
    clock.advance(1)
    watch.look(MAX_MS)
    assert given_up == [2]
    event[0] = None
    clock.advance(2 * AGAIN_MS)
    watch.look(MAX_MS)
    event[0] = ("InStep", clock.monotonic_ns() - NS_PER_MS)
    watch.look(MAX_MS)
    assert given_up == [2]


def test_another_broker_is_elected_while_the_controllers_thread_hangs(tmp_path: Path) -> None:
    cluster, _, logs = cluster_with_hanging_logs(tmp_path)
    try:
        cluster.make(3, 2, 1)
        one = cluster.controller
        epoch, registered = (
            one.controller.statistics().controller_epoch,
            one.controller.broker_epoch,
        )
        cluster.brokers.pop(3).stop()
        assert logs.hang.wait(WAIT_S)
        watch = OfficeWatch(
            one.controller.event_in_office, one.controller.give_up_office, one.clock
        )
        one.clock.advance(MAX_MS + 1)
        watch.look(MAX_MS)
        assert [each.controller.offices_given_up for each in (one, cluster.brokers[2])] == [1, 0]
        two = cluster.brokers[2]
        eventually(lambda: two.controller.active)
        assert two.controller.statistics().controller_epoch == epoch + 1
        eventually(lambda: two.image.topics["t"].partitions[0].leader == 2)

        logs.go_on.set()
        eventually(lambda: not one.controller.active and one.image.controller_id == 2)
        assert one.controller.broker_epoch == registered
        eventually(lambda: one.image.topics["t"].partitions[0].leader == 2)
    finally:
        logs.go_on.set()
        for broker in cluster.brokers.values():
            broker.stop()
