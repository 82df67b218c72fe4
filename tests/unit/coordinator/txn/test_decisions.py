"""What is written for a transactional id: epochs, producer ids, times; fences and retries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import pytest

from kbroker.coordinator.txn import decisions
from kbroker.coordinator.txn.decisions import Decision
from kbroker.coordinator.txn.image import (
    NO_EPOCH,
    NO_PAIR,
    NO_PRODUCER_ID,
    NO_TIME,
    Limits,
    Pair,
    TransactionImage,
    completed,
    created,
    marker_version,
    require_sound,
)
from kbroker.coordinator.txn.states import PREPARED, Do, State
from kbroker.errors import ErrorCode, InvariantError
from kbroker.types import TopicPartition

ORDERS: Final = frozenset({TopicPartition("orders", 0)})
MORE: Final = frozenset({TopicPartition("orders", 1), TopicPartition("bills", 0)})
ID, FRESH = 7, 100
T0, T1, T2 = 1_000, 2_000, 3_000
TIMEOUT: Final = 60_000
LAST_EPOCH: Final = 32_766  # that a client gets
TV1, TV2 = 0, 2


def empty(epoch: int = 0, **more: object) -> TransactionImage:
    return created(ID, TIMEOUT, T0)._replace(epoch=epoch, **more)  # type: ignore[arg-type]


def ongoing(epoch: int = 0, client_version: int = TV2) -> TransactionImage:
    return written(decisions.add(empty(epoch), Pair(ID, epoch), ORDERS, client_version, T1))


def written(decision: Decision) -> TransactionImage:
    assert decision.image is not None, decision
    return require_sound(decision.image)


def ended(image: TransactionImage, version: int = TV2) -> TransactionImage:
    return completed(written(decisions.end(image, image.pair, version, T2, committed=True)), T2)


# --- InitProducerId -------------------------------------------------------------------------------


def test_the_first_record_of_an_id() -> None:
    assert decisions.init(None, NO_PAIR, TIMEOUT, TV2, T0).needs_producer_id
    decision = decisions.init(None, NO_PAIR, TIMEOUT, TV2, T0, fresh_id=ID)
    assert decision.answer == Pair(ID, 0)
    assert decision.image == TransactionImage(
        ID, 0, TIMEOUT, State.EMPTY, T0, NO_TIME, frozenset(), previous_producer_id=ID
    )


def test_a_client_without_a_pair_raises_the_epoch_and_ends_retries() -> None:
    image = empty(3, last_epoch=2)
    decision = decisions.init(image, NO_PAIR, 5_000, TV2, T1)
    assert decision.answer == Pair(ID, 4)
    after = written(decision)
    assert (after.last_epoch, after.timeout_ms, after.start_ms) == (NO_EPOCH, 5_000, NO_TIME)


def test_a_client_with_its_pair_may_repeat_the_request() -> None:
    first = decisions.init(empty(3), Pair(ID, 3), TIMEOUT, TV2, T1)
    again = decisions.init(first.image, Pair(ID, 3), TIMEOUT, TV2, T2)
    assert first.answer == again.answer == Pair(ID, 4)
    assert again.do is Do.REPEAT
    # An epoch that is older than that is another producer's.
    late = decisions.init(again.image, Pair(ID, 2), TIMEOUT, TV2, T2)
    assert late.code is ErrorCode.PRODUCER_FENCED


def test_where_the_epochs_are_used_up_a_new_producer_id_begins() -> None:
    image = empty(LAST_EPOCH)
    for pair in (NO_PAIR, Pair(ID, LAST_EPOCH)):
        assert decisions.init(image, pair, TIMEOUT, TV2, T1).needs_producer_id
        decision = decisions.init(image, pair, TIMEOUT, TV2, T1, fresh_id=FRESH)
        assert decision.answer == Pair(FRESH, 0)
        assert written(decision).previous_producer_id == ID


def test_the_request_for_a_new_producer_id_may_be_repeated() -> None:
    pair = Pair(ID, LAST_EPOCH)
    after = decisions.init(empty(LAST_EPOCH), pair, TIMEOUT, TV2, T1, fresh_id=FRESH).image
    again = decisions.init(after, pair, TIMEOUT, TV2, T2)
    assert (again.do, again.answer) == (Do.REPEAT, Pair(FRESH, 0))
    # After a failover the last epoch is unknown.
    assert after is not None
    loaded = after._replace(last_epoch=NO_EPOCH)
    assert decisions.init(loaded, pair, TIMEOUT, TV2, T2).code is ErrorCode.PRODUCER_FENCED


def test_an_older_epoch_does_not_begin_a_new_producer_id() -> None:
    late = decisions.init(empty(LAST_EPOCH), Pair(ID, 9), TIMEOUT, TV2, T1, fresh_id=FRESH)
    assert late.code is ErrorCode.PRODUCER_FENCED


# --- fences ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [TV1, TV2])
def test_another_producer_fences_the_one_that_has_a_transaction(version: int) -> None:
    """Two epochs in all: one by the abort, one by the request that succeeds."""
    decision = decisions.init(ongoing(3), NO_PAIR, TIMEOUT, version, T2)
    assert (decision.do, decision.code) == (Do.FENCE, ErrorCode.CONCURRENT_TRANSACTIONS)
    image = written(decision)
    assert (image.state, image.epoch, image.partitions) == (State.PREPARE_ABORT, 4, ORDERS)
    after = completed(image, T2)
    later = decisions.init(after, NO_PAIR, TIMEOUT, version, T2)
    assert later.answer == Pair(ID, 5)
    # The one that was fenced comes back after that, or before.
    for pair in (Pair(ID, 3), Pair(ID, 2)):
        refused = decisions.init(later.image, pair, TIMEOUT, version, T2)
        assert refused.code is ErrorCode.PRODUCER_FENCED
    assert decisions.init(after, Pair(ID, 2), TIMEOUT, version, T2).code == 90
    back = decisions.init(after, Pair(ID, 3), TIMEOUT, version, T2)
    assert back.answer == (Pair(ID, 4) if version == TV2 else NO_PAIR)


def test_a_fence_that_could_not_be_written_raises_the_epoch_once() -> None:
    raised = ongoing(4)
    image = written(decisions.init(raised, NO_PAIR, TIMEOUT, TV1, T2, fence_failed=True))
    assert image.epoch == 4


def test_below_version_2_a_fence_uses_the_last_epoch_and_no_client_gets_it() -> None:
    image = written(decisions.init(ongoing(LAST_EPOCH), NO_PAIR, TIMEOUT, TV1, T2))
    assert (image.epoch, image.next_producer_id) == (LAST_EPOCH + 1, NO_PRODUCER_ID)
    after = completed(image, T2)
    assert decisions.init(after, NO_PAIR, TIMEOUT, TV1, T2, fresh_id=FRESH).answer.epoch == 0
    fenced = Pair(ID, LAST_EPOCH)
    assert decisions.init(after, fenced, TIMEOUT, TV1, T2).code is ErrorCode.PRODUCER_FENCED
    # The level was raised meanwhile.
    answer = decisions.end(after, fenced, TV2, T2, committed=False)
    assert (answer.code, answer.answer) == (ErrorCode.PRODUCER_FENCED, NO_PAIR)


def test_from_version_2_on_a_fence_begins_a_new_producer_id_where_the_epochs_are_used_up() -> None:
    """The client whose transaction timed out goes on with it, by an abort or by InitProducerId."""
    assert decisions.time_out(ongoing(LAST_EPOCH), TV2, T2).needs_producer_id
    image = written(decisions.time_out(ongoing(LAST_EPOCH), TV2, T2, fresh_id=FRESH))
    assert (image.pair, image.next_producer_id) == (Pair(ID, LAST_EPOCH + 1), FRESH)
    after = completed(image, T2)
    fenced = Pair(ID, LAST_EPOCH)
    assert decisions.end(after, fenced, TV2, T2, committed=False).answer == Pair(FRESH, 0)
    assert decisions.end(after, fenced, TV2, T2, committed=True).code == 48
    again = decisions.init(after, fenced, TIMEOUT, TV2, T2)
    assert (again.do, again.answer) == (Do.REPEAT, Pair(FRESH, 0))
    assert decisions.init(after, NO_PAIR, TIMEOUT, TV2, T2).answer == Pair(FRESH, 1)


def test_a_repeated_request_gets_a_new_producer_id_instead_of_the_last_epoch() -> None:
    image = empty(LAST_EPOCH + 1, last_epoch=LAST_EPOCH)
    for _ in range(2):  # the response may be lost again
        decision = decisions.init(image, Pair(ID, LAST_EPOCH), TIMEOUT, TV2, T1, fresh_id=FRESH)
        assert decision.answer == Pair(FRESH, 0)
        image = written(decision)


LIMITS: Final = Limits(4)
BEFORE: Final = ID - 1


def near_the_limit() -> Iterator[TransactionImage]:
    for state in (each for each in State if each >= 0):
        for epoch in range(LIMITS.epoch_max + 1):
            for previous in (ID, BEFORE):
                for last in (NO_EPOCH, epoch - 1, LIMITS.epoch_max - 1):
                    yield empty(epoch)._replace(
                        state=state, last_epoch=last, previous_producer_id=previous,
                        partitions=frozenset() if state is State.EMPTY else ORDERS,
                    )  # fmt: skip


class Asked(NamedTuple):
    """A request to an id. `is_told`: the client goes on with the pair of the answer."""

    ask: Callable[..., Decision]
    is_told: bool = False
    is_fenced: bool = False  # the records have the epoch before that of the id


def added(image: TransactionImage, pair: Pair, version: int, fresh_id: int | None) -> Decision:
    return decisions.add(image, pair, MORE, version, T2)


def requests(image: TransactionImage, version: int) -> Iterator[Asked]:
    def ask(decide: Callable[..., Decision], *how: Any, **more: Any) -> Callable[..., Decision]:
        return partial(decide, image, *how, T2, limits=LIMITS, **more)

    pairs = [
        Pair(producer_id, epoch)
        for producer_id in (ID, BEFORE)
        for epoch in range(LIMITS.epoch_max + 1)
    ]
    for pair in (NO_PAIR, *pairs):
        yield Asked(ask(decisions.init, pair, TIMEOUT, version), is_told=True)
    for pair in pairs:
        yield Asked(partial(added, image, pair, version))
        for committed in (True, False):
            yield Asked(ask(decisions.end, pair, version, committed=committed), version == TV2)
    for failed in (True, False):
        yield Asked(ask(decisions.time_out, version, fence_failed=failed), is_fenced=failed)


@pytest.mark.parametrize("version", [TV1, TV2])
def test_near_the_limit_every_request_leads_to_values_that_a_record_may_have(version: int) -> None:
    """And to markers that a partition takes, which has records of the epoch before."""
    outcomes = 0
    for image in near_the_limit():
        for each in requests(image, version):
            decision = each.ask(fresh_id=None)
            if decision.needs_producer_id:
                decision = each.ask(fresh_id=FRESH)
            assert not decision.needs_producer_id
            if each.is_told:
                assert decision.answer.epoch < LIMITS.epoch_max, (image, decision)
            after = decision.image
            if after is None:
                continue
            require_sound(after, LIMITS)
            if after.state not in PREPARED:
                continue
            outcomes += 1
            of_records = image.epoch - each.is_fenced
            above = marker_version(after, LIMITS) == TV2
            assert after.epoch >= of_records + above, (image, decision)
            over = require_sound(completed(after, T2), LIMITS)
            assert version == TV1 or over.epoch < LIMITS.epoch_max, (image, decision)
    assert outcomes > 100


def test_a_timeout_counts_from_the_first_partition() -> None:
    image = ongoing(3)
    assert not decisions.is_late(image, T1 + TIMEOUT)
    assert decisions.is_late(image, T1 + TIMEOUT + 1)
    more = written(decisions.add(image, image.pair, MORE, TV2, T2))
    assert more.start_ms == T1
    decision = decisions.time_out(more, TV2, T2)
    after = written(decision)
    assert (after.state, after.epoch, after.start_ms) == (State.PREPARE_ABORT, 4, T1)
    assert not decisions.is_late(after, 10 * TIMEOUT)


@pytest.mark.parametrize(
    ("committed", "code"), [(True, ErrorCode.INVALID_TXN_STATE), (False, ErrorCode.NONE)]
)
def test_after_a_timeout_the_client_may_abort_and_not_commit(
    committed: bool, code: ErrorCode
) -> None:
    """A commit that is answered with success would be lost."""
    after = completed(written(decisions.time_out(ongoing(3), TV2, T2)), T2)
    decision = decisions.end(after, Pair(ID, 3), TV2, T2, committed=committed)
    assert decision.code is code
    assert decision.answer == (NO_PAIR if committed else Pair(ID, 4))
    assert decisions.end(after, Pair(ID, 3), TV1, T2, committed=committed).code == 90


# --- partitions -----------------------------------------------------------------------------------


def test_partitions_add_up_and_the_first_begin_the_transaction() -> None:
    image = ongoing(3, TV1)
    assert (image.start_ms, image.client_version) == (T1, TV1)
    decision = decisions.add(image, image.pair, ORDERS | MORE, TV2, T2)
    after = written(decision)
    assert (after.partitions, after.start_ms, after.client_version) == (ORDERS | MORE, T1, TV2)
    known = decisions.add(after, image.pair, MORE, TV2, T2)
    assert (known.do, known.image) == (Do.ANSWER, None)


def test_the_next_transaction_begins_with_its_own_partitions() -> None:
    after = ended(ongoing(3), TV1)
    assert (after.state, after.partitions, after.start_ms) == (
        State.COMPLETE_COMMIT, frozenset(), T1,
    )  # fmt: skip
    begun = written(decisions.add(after, after.pair, MORE, TV1, T2))
    assert (begun.partitions, begun.start_ms) == (MORE, T2)


@pytest.mark.parametrize(
    ("image", "pair", "code"),
    [
        (None, Pair(ID, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ongoing(3), Pair(8, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ongoing(3), Pair(ID, 2), ErrorCode.PRODUCER_FENCED),
        (ongoing(3)._replace(state=State.PREPARE_ABORT), Pair(ID, 3), 51),
        (ongoing(3), Pair(ID, 3), ErrorCode.NONE),
        (empty(3), Pair(ID, 3), ErrorCode.NONE),
    ],
)
def test_producers_that_may_write(image: TransactionImage | None, pair: Pair, code: int) -> None:
    assert decisions.verify(image, pair) == code


# --- EndTxn ---------------------------------------------------------------------------------------


def test_by_endtxn_5_the_marker_has_the_raised_epoch() -> None:
    decision = decisions.end(ongoing(3), Pair(ID, 3), TV2, T2, committed=True)
    image = written(decision)
    assert (image.state, image.epoch, decision.answer) == (State.PREPARE_COMMIT, 4, Pair(ID, 4))
    after = completed(image, T2)
    assert (after.state, after.epoch, after.start_ms) == (State.COMPLETE_COMMIT, 4, T1)


def test_before_endtxn_5_the_epoch_stays() -> None:
    decision = decisions.end(ongoing(3, TV1), Pair(ID, 3), TV1, T2, committed=False)
    image = written(decision)
    assert (image.state, image.epoch, image.client_version) == (State.PREPARE_ABORT, 3, TV1)
    assert completed(image, T2).epoch == 3


def test_a_client_that_added_by_version_3_and_ends_by_version_5_raises_the_epoch() -> None:
    after = ended(ongoing(3, TV1), TV2)
    assert (after.epoch, after.client_version) == (4, TV2)


def test_where_the_epochs_are_used_up_an_outcome_begins_a_new_producer_id() -> None:
    image = ongoing(LAST_EPOCH)
    pair = Pair(ID, LAST_EPOCH)
    assert decisions.end(image, pair, TV2, T2, committed=True).needs_producer_id
    decision = decisions.end(image, pair, TV2, T2, committed=True, fresh_id=FRESH)
    outcome = written(decision)
    assert decision.answer == Pair(FRESH, 0)
    assert (outcome.pair, outcome.next_producer_id) == (Pair(ID, LAST_EPOCH + 1), FRESH)
    # A retry before the markers are there, and after.
    assert decisions.end(outcome, pair, TV2, T2, committed=True).code == 51
    after = completed(outcome, T2)
    assert (after.pair, after.previous_producer_id) == (Pair(FRESH, 0), ID)
    again = decisions.end(after, pair, TV2, T2, committed=True)
    assert (again.do, again.answer) == (Do.ANSWER, Pair(FRESH, 0))
    assert decisions.end(after, pair, TV2, T2, committed=False).code == 48
    late = decisions.end(after, Pair(ID, LAST_EPOCH - 1), TV2, T2, committed=True)
    assert late.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_before_endtxn_5_no_outcome_needs_a_new_producer_id() -> None:
    image = ongoing(LAST_EPOCH)
    assert ended(image, TV1).pair == Pair(ID, LAST_EPOCH)


@pytest.mark.parametrize("state", [State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT])
def test_an_abort_of_nothing_raises_the_epoch_and_begins_with_itself(state: State) -> None:
    image = empty(3)._replace(state=state, start_ms=T0)
    decision = decisions.end(image, Pair(ID, 3), TV2, T2, committed=False)
    after = written(decision)
    assert (after.epoch, after.start_ms, after.partitions) == (4, T2, frozenset())


def test_a_limit_of_three_epochs() -> None:
    """As the simulation uses it: 0 and 1 are for clients, 2 is used up."""
    limits = Limits(3)
    image = empty(1)
    assert decisions.init(image, NO_PAIR, TIMEOUT, TV2, T1, limits=limits).answer == Pair(ID, 2)
    assert decisions.init(empty(2), NO_PAIR, TIMEOUT, TV2, T1, limits=limits).needs_producer_id


def test_an_image_that_no_record_may_have() -> None:
    with pytest.raises(InvariantError):
        require_sound(empty(-1))
    with pytest.raises(InvariantError):
        require_sound(empty(LAST_EPOCH + 2))


def test_the_epoch_before_is_a_retry_only_after_an_outcome_that_has_raised_it() -> None:
    """Else it is that of a producer which another one has replaced (history 518 of those with
    transactions); an abort of it was answered with the pair of the other."""
    image = written(decisions.init(empty(), NO_PAIR, TIMEOUT, TV1, T1))
    begun = written(decisions.add(image, image.pair, ORDERS, TV1, T1))
    by_old = written(decisions.end(begun, begun.pair, TV1, T2, committed=False))
    fenced = decisions.end(completed(by_old, T2), Pair(ID, 0), TV2, T2, committed=False)
    assert (fenced.code, fenced.answer) == (ErrorCode.PRODUCER_FENCED, NO_PAIR)
