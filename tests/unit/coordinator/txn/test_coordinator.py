"""The transaction coordinator: writes, fences, markers, failed writes, failover, timeouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from kbroker.coordinator.txn.image import NO_PAIR, Limits, Pair, created
from kbroker.coordinator.txn.seams import MarkerOrder, Over
from kbroker.coordinator.txn.states import State
from kbroker.errors import ErrorCode, KafkaError
from tests.unit.coordinator.txn.world import BILLS, ID, NONE, ORDERS, World

TV1, TV2 = 0, 2
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
LATER = ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_transaction_of_each_kind() -> None:
    for version, epochs in ((TV1, [0, 0]), (TV2, [1, 2])):
        world = World()
        pair = world.pair()
        for epoch in epochs:
            assert world.add(pair, ORDERS) is world.add(pair, BILLS) is NONE
            answer = world.end(pair, version=version)
            assert answer is not None and answer[0] is NONE
            assert world.markers.orders[-1].epoch == epoch
            assert world.markers.orders[-1].partitions == {ORDERS, BILLS}
            pair = answer[1] if version == TV2 else pair
        assert world.log.states() == [
            State.EMPTY,
            *[State.ONGOING, State.ONGOING, State.PREPARE_COMMIT, State.COMPLETE_COMMIT] * 2,
        ]


def test_a_client_is_answered_when_its_outcome_is_in_the_log() -> None:
    """Before the markers are written, and after they have been sent."""
    world = World()
    pair = world.pair()
    world.add(pair)
    world.log.holds = world.markers.holds = True
    assert world.end(pair) is None
    assert not world.markers.orders
    world.log.release()
    assert world.answers == [(NONE, pair)]
    assert world.state() is State.PREPARE_COMMIT
    assert world.add(pair) is CONCURRENT
    assert world.end(pair, False) == (CONCURRENT, NO_PAIR)
    world.markers.write()
    assert world.state() is State.PREPARE_COMMIT
    assert world.end(pair) == (CONCURRENT, NO_PAIR)
    world.log.release()
    assert world.state() is State.COMPLETE_COMMIT
    assert world.end(pair) == (NONE, pair)


def test_a_write_under_way_comes_before_other_checks() -> None:
    """Also before the producer's id and epoch, or a client would fence itself; but for EndTxn up
    to version 4."""
    world = World()
    pair = world.pair()
    world.log.holds = True
    assert world.add(pair) is None
    for other in (Pair(pair.producer_id + 9, 3), Pair(pair.producer_id, 3)):
        assert world.init(other) == (CONCURRENT, NO_PAIR)
        assert world.add(other) is CONCURRENT
        for committed in (True, False):
            assert world.end(other, committed, TV2) == (CONCURRENT, NO_PAIR)
            code = FENCED if other.producer_id == pair.producer_id else MAPPING
            assert world.end(other, committed) == (code, NO_PAIR)
            assert world.end(pair, committed) == (CONCURRENT, NO_PAIR)
    world.log.release()
    assert world.answers == [(NONE, NO_PAIR)]


def test_the_first_write_of_an_id_that_fails_leaves_nothing() -> None:
    world = World()
    world.log.refuses = [LATER]
    assert world.init() == (LATER, NO_PAIR)
    assert world.state() is None
    assert world.add(Pair(1_000, 0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.pair() == Pair(1_001, 0)


def test_two_requests_for_a_new_id_make_one() -> None:
    world = World()
    world.log.holds = True
    assert world.init() is None
    assert world.init() == (CONCURRENT, NO_PAIR)
    world.log.release()
    assert world.answers == [(NONE, Pair(1_000, 0))]


def test_a_write_that_fails_changes_nothing() -> None:
    world = World()
    pair = world.pair()
    world.log.refuses = [LATER]
    assert world.add(pair) is LATER
    assert world.state() is State.EMPTY
    assert world.add(pair) is NONE
    world.log.refuses = [LATER]
    assert world.end(pair, version=TV2) == (LATER, NO_PAIR)
    assert (world.state(), world.markers.orders) == (State.ONGOING, [])
    assert world.end(pair, version=TV2) == (NONE, Pair(pair.producer_id, 1))


@pytest.mark.parametrize(("level", "epochs"), [(0, [1, 1]), (2, [0, 1])])
def test_a_fence_that_is_not_written(level: int, epochs: list[int]) -> None:
    """Below level 2 it holds all the same, and is not raised again; from level 2 on it does not
    hold before it is in the log."""
    world = World(level)
    pair = world.pair()
    world.add(pair)
    world.log.refuses = [LATER]
    assert world.init() == (LATER, NO_PAIR)
    image = world.coordinator.find(ID)
    assert image is not None and (image.state, image.epoch) == (State.ONGOING, epochs[0])
    assert world.init() == (CONCURRENT, NO_PAIR)
    assert world.markers.orders[0].epoch == epochs[1]
    assert world.pair() == Pair(pair.producer_id, epochs[1] + 1)


def test_complete_is_written_until_it_is_in_the_log() -> None:
    """A log that fails once, or is about to lead in another epoch, is answered as one that is led
    elsewhere, and its term stays."""
    world = World()
    pair = world.pair()
    world.add(pair)
    world.markers.holds = True
    world.end(pair)
    world.log.refuses = [LATER, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_COORDINATOR]
    world.markers.write()
    for _ in range(3):
        assert world.state() is State.PREPARE_COMMIT
        assert world.add(pair) is CONCURRENT
        world.run_later()
    assert world.state() is State.COMPLETE_COMMIT
    assert not world.later


def test_a_later_outcome_has_a_higher_number_in_one_run() -> None:
    world = World()
    pair = world.pair()
    for _ in range(3):
        world.add(pair)
        world.end(pair)
    runs, numbers = zip(*[(each.run, each.number) for each in world.markers.orders], strict=True)
    assert len(set(runs)) == 1 and list(numbers) == sorted(set(numbers))


def test_another_coordinator_completes_the_transactions_that_it_loads() -> None:
    world = World()
    pair = world.pair()
    world.add(pair)
    world.markers.holds = True
    world.end(pair, committed=False)
    (order,) = world.markers.orders
    world.fail_over()
    again = world.markers.orders[1]
    known = order._replace(coordinator_epoch=order.coordinator_epoch + 1, run=again.run)
    assert again == known and again.run not in (0, order.run)
    assert world.log.states()[-2:] == [State.PREPARE_ABORT, State.COMPLETE_ABORT]
    assert world.add(pair) is NONE


def test_a_write_of_an_earlier_term_changes_nothing_later() -> None:
    world = World()
    pair = world.pair()
    world.log.holds = True
    assert world.add(pair) is None
    ((_, _, done),) = world.log.waiting
    world.fail_over()
    done(NONE)
    assert world.answers == [(ErrorCode.NOT_COORDINATOR, NO_PAIR)]
    assert world.state() is State.EMPTY


def test_a_retry_of_an_outcome_survives_a_failover() -> None:
    """The response was lost, and the coordinator after it."""
    world = World()
    pair = world.pair()
    world.add(pair)
    assert world.end(pair, version=TV2) == (NONE, Pair(pair.producer_id, 1))
    world.fail_over()
    assert world.end(pair, version=TV2) == (NONE, Pair(pair.producer_id, 1))
    assert world.end(pair, committed=False, version=TV2) == (
        ErrorCode.INVALID_TXN_STATE, NO_PAIR,
    )  # fmt: skip


def test_epochs_that_are_used_up_by_outcomes() -> None:
    world = World(epochs=Limits(3))
    pair = world.pair()
    found = []
    for _ in range(7):
        assert world.add(pair) is NONE
        answer = world.end(pair, version=TV2)
        assert answer is not None and answer[0] is NONE
        assert world.end(pair, version=TV2) == answer  # repeated
        pair = answer[1]
        found.append(pair)
    assert found == [
        (1_000, 1), (1_000, 2), (1_001, 0), (1_001, 1), (1_001, 2), (1_002, 0), (1_002, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("level", [0, 2])
def test_a_timeout_in_the_last_epoch_of_clients(level: int) -> None:
    world = World(level, epochs=Limits(3))
    pair = Pair(1_000, 2)
    for epoch in range(3):
        assert world.pair() == Pair(1_000, epoch)
    assert world.add(pair) is NONE
    world.pass_ms(60_001)
    world.look()
    assert world.state() is State.COMPLETE_ABORT
    assert world.markers.orders[-1].epoch == 3
    assert world.markers.orders[-1].version == 0  # the last epoch need not be above another one
    if level == 2:
        assert world.end(pair, False, TV2) == (NONE, Pair(1_001, 0))
        assert world.init(pair) == (NONE, Pair(1_001, 0))
    else:
        assert world.init(pair) == (FENCED, NO_PAIR)
        assert world.pair() == Pair(1_001, 0)


@pytest.mark.parametrize("ends", ["commit", "abort", "time out"])
def test_an_id_that_has_the_last_epoch_already_goes_on(ends: str) -> None:
    """As another broker may have written it."""
    world = World(epochs=Limits(3))
    image = created(900, 60_000, 0)._replace(epoch=3, state=State.ONGOING, start_ms=0)
    world.coordinator.load({ID: image._replace(partitions=frozenset({ORDERS}))}, world.log.term)
    if ends == "time out":
        world.pass_ms(60_001)
        world.look()
    else:
        answer = world.end(Pair(900, 3), ends == "commit", TV2)
        assert answer == (NONE, Pair(1_000, 0))
    (order,) = world.markers.orders
    assert (order.epoch, order.version) == (3, 0)
    assert world.state() in (State.COMPLETE_ABORT, State.COMPLETE_COMMIT)


def test_a_transaction_that_is_open_for_too_long_is_aborted() -> None:
    world = World()
    pair = world.pair()
    world.add(pair)
    world.pass_ms(60_000)
    world.look()
    assert world.state() is State.ONGOING
    world.pass_ms(1)
    world.look()
    assert (world.state(), world.coordinator.counts.timed_out) == (State.COMPLETE_ABORT, 1)
    world.look()
    assert world.coordinator.counts.timed_out == 1
    assert world.end(pair, version=TV2) == (ErrorCode.INVALID_TXN_STATE, NO_PAIR)
    assert world.end(pair, False, TV2) == (NONE, Pair(pair.producer_id, 1))


@pytest.mark.parametrize("by_ms", [1, 60_001, 3_600_000])
@pytest.mark.parametrize("fails_over", [False, True])
def test_a_transaction_of_the_future_has_its_timeout(by_ms: int, fails_over: bool) -> None:
    """The clock was set back, or another broker's lags. By an hour, the transaction would be open
    for an hour (history 5), or its producer would lose it while all is well."""
    world = World()
    pair = world.pair()
    world.add(pair)
    if fails_over:
        world.fail_over()
    world.clock.set_wall_ms(world.clock.wall_ms() - by_ms)
    for _ in range(3):
        world.look()
        assert world.state() is State.ONGOING
        world.pass_ms(20_000)
    assert world.state() is State.ONGOING
    world.pass_ms(20_000)
    world.look()
    assert world.state() is State.COMPLETE_ABORT


def test_each_transaction_of_the_future_has_its_own_timeout() -> None:
    world = World()
    pair = world.pair()
    for _ in range(3):
        world.add(pair)
        world.clock.set_wall_ms(world.clock.wall_ms() - 3_600_000)
        world.look()
        world.pass_ms(50_000)
        world.look()
        assert world.end(pair) == (NONE, pair)


def test_a_transaction_of_the_future_that_needs_a_producer_id_is_aborted() -> None:
    """Where the id comes after more looks it is late all the same."""
    world = World(epochs=Limits(1))
    pair = world.pair()
    world.add(pair)
    world.clock.set_wall_ms(world.clock.wall_ms() - 3_600_000)
    world.look()
    world.pass_ms(60_001)
    given: list[Callable[[int], None]] = []
    world.generate = given.append
    world.look()
    world.look()
    assert world.state() is State.ONGOING and len(given) == 2
    given[0](5)
    assert world.state() is State.COMPLETE_ABORT


def test_an_id_that_is_not_used_is_forgotten() -> None:
    world = World()
    pair = world.pair()
    for name in ("other", "third"):
        world.init(name=name)
    world.add(Pair(1_001, 0), name="other")
    world.pass_ms(604_800_000)
    world.expire()
    assert [name for name, image in world.log.records if image is None] == [ID, "third"]
    assert (world.state(), world.state("other")) == (None, State.ONGOING)
    assert world.add(pair) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.pair() == Pair(1_003, 0)


def test_an_id_whose_tombstone_fails_stays() -> None:
    world = World()
    pair = world.pair()
    world.pass_ms(604_800_000)
    world.log.refuses = [LATER]
    world.expire()
    assert world.add(pair) is NONE


def test_an_abort_of_nothing_needs_no_markers() -> None:
    world = World()
    pair = world.pair()
    assert world.end(pair, False, TV2) == (NONE, Pair(pair.producer_id, 1))
    assert (world.state(), world.markers.orders) == (State.COMPLETE_ABORT, [])


def test_producers_and_the_partitions_that_they_may_write_to() -> None:
    world = World()
    pair = world.pair()
    verify = world.coordinator.verify_partitions
    abortable = ErrorCode.TRANSACTION_ABORTABLE
    assert verify(ID, pair, [ORDERS]) == {ORDERS: abortable}
    world.add(pair)
    assert verify(ID, pair, [ORDERS, BILLS]) == {ORDERS: NONE, BILLS: abortable}
    world.log.holds = True
    world.add(pair, BILLS)  # a write under way does not count
    assert verify(ID, pair, [ORDERS]) == {ORDERS: NONE}
    assert verify("", pair, [ORDERS]) is ErrorCode.INVALID_REQUEST
    world.log.code = ErrorCode.NOT_COORDINATOR
    assert verify(ID, pair, [ORDERS]) is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_bounds(timeout_ms: int) -> None:
    assert World().init(timeout_ms=timeout_ms) == (
        ErrorCode.INVALID_TRANSACTION_TIMEOUT, NO_PAIR,
    )  # fmt: skip


def test_an_id_without_a_name() -> None:
    world = World()
    refused = ErrorCode.INVALID_REQUEST, NO_PAIR
    assert world.init(name="") == world.end(Pair(1, 0), name="") == refused
    assert world.add(Pair(1, 0), name="") is ErrorCode.INVALID_REQUEST


def test_ids_that_this_broker_does_not_coordinate() -> None:
    world = World()
    pair = world.pair()
    world.log.code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    for answer in (world.init(), world.end(pair)):
        assert answer == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NO_PAIR)
    assert world.add(pair) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.coordinator.describe(ID) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_zombie_that_comes_back() -> None:
    """Two producers of one id: the later one aborts and fences the earlier one."""
    world = World()
    zombie = world.pair()
    world.add(zombie)
    assert world.init() == (CONCURRENT, NO_PAIR)
    pair = world.pair()
    assert world.add(pair) is NONE
    assert world.add(zombie) is FENCED
    for version in (TV1, TV2):
        assert world.end(zombie, version=version) == (FENCED, NO_PAIR)
    assert world.end(pair, version=TV2) == (NONE, Pair(pair.producer_id, pair.epoch + 1))


# --- what raises ----------------------------------------------------------------------------------

UNKNOWN: Final = ErrorCode.UNKNOWN_SERVER_ERROR


def broken(*how: object, **more: object) -> None:
    raise OSError("no disk")


def test_a_log_that_raises_is_a_failed_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """No id stays pending, and a client is answered once, whether the log calls back or not."""
    world = World()
    pair = world.pair()

    def calls_back_and_raises(*how: Any) -> None:
        how[-1](LATER)
        raise OSError("no disk")

    for write, code in ((broken, UNKNOWN), (calls_back_and_raises, LATER)):
        monkeypatch.setattr(world.log, "write", write)
        assert world.add(pair) is code and not world.answers
        assert world.init(name="new") == (code, NO_PAIR)
        monkeypatch.undo()
    assert world.coordinator.failures.count == 4
    assert world.state("new") is None
    assert world.add(pair) is NONE
    world.markers.holds = True
    assert world.end(pair) == (NONE, pair)
    monkeypatch.setattr(world.log, "write", broken)
    world.markers.write()
    assert world.state() is State.PREPARE_COMMIT
    monkeypatch.undo()
    world.run_later()
    assert world.state() is State.COMPLETE_COMMIT
    world.pass_ms(604_800_000)
    monkeypatch.setattr(world.log, "forget", broken)
    world.expire()
    monkeypatch.undo()
    assert world.add(pair) is NONE


def test_an_answer_that_raises_leaves_no_id_pending() -> None:
    world = World()
    pair = world.pair()
    world.log.holds = True
    world.coordinator.add_partitions(ID, pair, frozenset({ORDERS}), 0, broken)
    with pytest.raises(OSError, match="no disk"):
        world.log.release()
    world.log.holds = False
    assert world.end(pair) == (NONE, pair)


def test_markers_that_cannot_be_sent_are_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    pair = world.pair()
    world.add(pair)
    monkeypatch.setattr(world.markers, "send", broken)
    assert world.end(pair) == (NONE, pair)
    assert world.state() is State.PREPARE_COMMIT
    monkeypatch.undo()
    world.run_later()
    assert (world.state(), len(world.markers.orders)) == (State.COMPLETE_COMMIT, 1)
    assert world.coordinator.failures.count == 1


def test_one_order_of_markers_completes_an_outcome() -> None:
    """Also where the first one was queued although it seemed to fail."""
    world = World()
    pair = world.pair()
    world.add(pair)
    queued: list[Over] = []

    def queues_and_raises(order: MarkerOrder, done: Over, *, may_wait: bool) -> None:
        queued.append(done)
        if len(queued) == 1:
            raise OSError("no disk")

    world.markers.send = queues_and_raises  # type: ignore[method-assign]
    world.end(pair)
    world.run_later()
    for done in queued * 2:
        done(True)
    assert world.log.states()[-2:] == [State.PREPARE_COMMIT, State.COMPLETE_COMMIT]


def test_a_sweep_goes_on_after_an_id_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    names = ("one", "two", "three")
    for name in names:
        found = world.init(name=name)
        assert found is not None and world.add(found[1], name=name) is NONE
    world.pass_ms(60_001)
    term_of = world.log.term_of

    def of_two(name: str) -> int:
        if name == "two":
            raise OSError("no disk")
        return term_of(name)

    monkeypatch.setattr(world.log, "term_of", of_two)
    world.look()
    aborted = State.COMPLETE_ABORT
    assert [world.state(name) for name in names] == [aborted, State.ONGOING, aborted]
    assert world.coordinator.failures.count == 1
    monkeypatch.undo()
    world.look()
    assert world.state("two") is aborted


def test_a_producer_id_that_cannot_be_asked_for() -> None:
    world = World()
    world.generate = broken
    assert world.init() == (UNKNOWN, NO_PAIR)
    world.generate = lambda done: done(KafkaError(LATER))
    assert world.init() == (LATER, NO_PAIR)


# --- loads ----------------------------------------------------------------------------------------


def test_an_outcome_that_is_loaded_is_pending_until_it_is_complete() -> None:
    world = World()
    pair = world.pair()
    world.add(pair)
    world.markers.holds = True
    world.end(pair)
    world.coordinator.load(world.log.replayed(), world.log.term)
    assert world.end(pair, False) == (CONCURRENT, NO_PAIR)
    assert world.init() == (CONCURRENT, NO_PAIR)


def test_a_load_completes_outcomes_of_its_own_term_once() -> None:
    world = World()
    pair = world.pair()
    world.add(pair)
    world.markers.holds = True
    world.end(pair)
    world.coordinator.unload(lambda name: True)
    assert not world.markers.waiting
    world.log.term, world.log.epoch = 2, 8
    world.coordinator.load(world.log.replayed(), 2)
    world.coordinator.complete_loaded([ID], 1)  # of a load that is late
    assert not world.markers.waiting
    world.coordinator.complete_loaded([ID, "unknown"], 2)
    assert world.markers.orders[-1].coordinator_epoch == 8
    world.markers.write()
    world.coordinator.complete_loaded([ID], 2)
    assert world.log.states()[-2:] == [State.PREPARE_COMMIT, State.COMPLETE_COMMIT]
    assert len(world.markers.orders) == 2


def test_no_order_of_markers_outlives_its_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition is lost while the markers of a transaction leave."""
    world = World()
    pair = world.pair()
    world.add(pair)
    world.markers.holds = True
    send = world.markers.send

    def lost_meanwhile(order: MarkerOrder, done: Over, *, may_wait: bool) -> None:
        world.coordinator.unload(lambda name: True)
        send(order, done, may_wait=may_wait)

    monkeypatch.setattr(world.markers, "send", lost_meanwhile)
    world.end(pair)
    assert world.markers.orders and not world.markers.waiting


def test_no_markers_have_the_epoch_of_another_term() -> None:
    world = World()
    pair = world.pair()
    world.add(pair)
    world.log.holds = True
    world.end(pair)
    ((_, _, done),) = world.log.waiting
    world.log.term, world.log.epoch = 2, 8
    done(NONE)
    assert not world.markers.orders
    world.coordinator.unload(lambda name: True)
    world.run_later()
    assert not world.markers.orders and not world.later
