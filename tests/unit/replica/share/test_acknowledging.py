"""Acknowledgements: what a request alone shows to be wrong, what a share-partition refuses, and
that a list is accepted as a whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kbroker.errors import ErrorCode
from kbroker.replica.share import acknowledging as module
from kbroker.replica.share.acknowledging import Acknowledgement, acknowledge, check, not_done
from tests.unit.replica.share.world import (
    ACCEPT,
    GAP,
    ONE,
    OTHER,
    REJECT,
    RELEASE,
    RENEW,
    SETTINGS,
    World,
    batches,
    copy,
)

Batch = tuple[int, int, Sequence[int]]
NONE, INVALID, BAD_STATE = (
    ErrorCode.NONE,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_RECORD_STATE,
)
piece_of = module._Piece


@pytest.mark.parametrize(
    ("given", "renews", "code"),
    [
        ([], False, NONE),
        ([(0, 4, [1])], False, NONE),
        ([(0, 4, [1, 1, 0, 2, 3])], False, NONE),
        ([(0, 4, [1, 1])], False, INVALID),
        ([(0, 4, [])], False, INVALID),
        ([(0, 4, [5])], True, INVALID),
        ([(0, 4, [-1])], False, INVALID),
        ([(0, 4, [4])], False, INVALID),
        ([(0, 4, [4])], True, NONE),
        ([(4, 3, [1])], False, INVALID),
        ([(-1, 3, [1])], False, NONE),
        ([(5, 9, [1]), (0, 4, [1])], False, INVALID),
        ([(6, 7, [1]), (7, 8, [1])], False, NONE),  # found later, as in Apache Kafka
        ([(0, 2**62, [1])], False, NONE),
    ],
)
def test_check(given: list[Batch], renews: bool, code: ErrorCode) -> None:
    assert check([Acknowledgement(*batch) for batch in given], renews=renews) is code


def say(world: World, *given: Batch, owner: int = ONE) -> ErrorCode | None:
    made = [Acknowledgement(*batch) for batch in given]
    return acknowledge(world.partition, owner, made, world.settings, world.now_ms, "token").code


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ([(0, 9, [ACCEPT])], None),
        ([(0, 10, [ACCEPT])], INVALID),
        ([(20, 21, [ACCEPT])], INVALID),
        ([(0, 4, [ACCEPT]), (4, 5, [ACCEPT])], BAD_STATE),
        ([(0, 3, [ACCEPT]), (4, 5, [RELEASE]), (6, 9, [REJECT])], None),
        ([(0, 9, [ACCEPT] * 5 + [GAP] * 5)], None),
    ],
)
def test_of_ten_records(given: list[Batch], code: ErrorCode | None) -> None:
    world = World(batches(10))
    world.fetch()
    before = copy(world.partition)
    assert say(world, *given) is code
    if code is not None:
        assert copy(world.partition) == before
        assert world.partition.take_write() is None


def test_of_nothing_at_all() -> None:
    world = World(start=5)
    assert say(world, (0, 4, [ACCEPT])) is NONE
    assert say(world, (5, 6, [ACCEPT])) is BAD_STATE


@pytest.mark.parametrize(
    ("given", "least", "most"),
    [
        ([(5, 5, [ACCEPT])] * 100_000, 0, 5),  # named again and again
        ([(-100_000, 9, [ACCEPT, REJECT] * 50_005)], 10, 10),  # mostly done with
    ],
)
def test_no_more_pieces_are_made_than_the_window_has(
    given: list[Batch], least: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much a request has: the share-partition's lock is held."""
    world, made = World(batches(10)), list[int]()
    world.fetch()
    monkeypatch.setattr(module, "_Piece", lambda *piece: made.append(1) or piece_of(*piece))
    say(world, *given)
    assert least <= len(made) <= most


def test_batches_before_the_start_are_left_out() -> None:
    before, across = Acknowledgement(0, 4, [1]), Acknowledgement(3, 5, [1])
    assert not_done(World(start=5).partition, [before, across]) == [across]


def test_one_bad_batch_rolls_the_list_back() -> None:
    world = World(batches(5, 5))
    world.fetch(to=4)
    world.fetch(OTHER)
    assert say(world, (0, 4, [ACCEPT]), (5, 5, [ACCEPT])) is BAD_STATE
    assert world.state(0) == "acquired 1"
    assert say(world, (0, 4, [ACCEPT])) is None


def test_another_member_may_not_acknowledge() -> None:
    world = World(batches(5))
    world.fetch()
    assert say(world, (0, 4, [ACCEPT]), owner=OTHER) is BAD_STATE
    assert say(world, (0, 0, [RENEW]), owner=OTHER) is BAD_STATE


def test_after_its_lock_a_member_may_not_acknowledge() -> None:
    world = World(batches(5))
    world.fetch()
    world.now_ms += SETTINGS.lock_ms - 1
    assert say(world, (0, 0, [ACCEPT])) is None
    world.now_ms += 1
    assert say(world, (1, 1, [ACCEPT])) is BAD_STATE
    assert world.state(1) == "available 1"


def test_renewing_restarts_the_lock_and_writes_nothing() -> None:
    world = World(batches(5))
    world.fetch()
    world.now_ms += SETTINGS.lock_ms - 1
    assert say(world, (0, 1, [RENEW])) is NONE
    assert world.partition.take_write() is None
    world.pass_ms(1)
    assert [world.state(0), world.state(2)] == ["acquired 1", "available 1"]
    world.pass_ms(SETTINGS.lock_ms - 2)
    assert world.state(1) == "acquired 1"
    world.pass_ms(1)
    assert world.state(1) == "available 1"


def test_a_group_may_forbid_to_renew() -> None:
    world = World(batches(5), settings=SETTINGS._replace(renews=False))
    world.fetch()
    assert say(world, (0, 1, [RENEW])) is BAD_STATE


def test_renewing_beside_other_types_in_one_list() -> None:
    world = World(batches(5))
    world.fetch()
    world.now_ms += 10
    assert say(world, (0, 4, [ACCEPT, RENEW, RENEW, RELEASE, GAP])) is None
    world.write()
    assert [world.state(at) for at in range(5)] == [
        "done", "acquired 1", "acquired 1", "available 1", "archived 1",
    ]  # fmt: skip


def test_before_the_start_is_no_error() -> None:
    world = World(batches(10))
    world.fetch()
    world.partition.log_starts_at(4)
    assert say(world, (0, 3, [ACCEPT])) is NONE
    assert say(world, (2, 5, [ACCEPT, ACCEPT, RELEASE, ACCEPT])) is None
    assert [world.state(at) for at in (3, 4, 5, 6)] == [
        "done", "prepared 1", "prepared 1", "acquired 1",
    ]  # fmt: skip
    world.write()
    assert world.state(4) == "available 1"
