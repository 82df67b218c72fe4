"""In which partitions producers have transactions that are not over, as the coordinator has it."""

from __future__ import annotations

from kbroker.coordinator.txn.image import Partitions, created
from kbroker.coordinator.txn.states import State
from kbroker.errors import ErrorCode
from tests.unit.coordinator.txn.world import BILLS, ORDERS, World


def unfinished(world: World, *producer_ids: int) -> list[tuple[int, Partitions | None]]:
    pieces = world.coordinator.unfinished(frozenset(producer_ids))
    return [each for piece in pieces for each in piece]


def test_in_which_partitions_a_producer_has_an_unfinished_transaction() -> None:
    """While a write is under way that may add a partition, it may be any."""
    world = World()
    pair = world.pair()
    its = pair.producer_id
    assert unfinished(world, its) == []
    world.log.holds = True
    world.add(pair)
    assert unfinished(world, its) == [(its, None)]
    world.log.release()
    assert unfinished(world, its) == [(its, frozenset({ORDERS}))]
    world.add(pair, BILLS)
    assert unfinished(world, its) == [(its, None)]
    world.log.release(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert unfinished(world, its) == [(its, frozenset({ORDERS}))]
    world.markers.holds = True
    world.end(pair)
    assert unfinished(world, its) == [(its, None)]
    world.log.release()
    assert unfinished(world, its, 5) == [(its, frozenset({ORDERS}))]  # until all have their marker
    world.markers.write()  # Complete is being written
    assert unfinished(world, its) == [(its, frozenset({ORDERS}))]
    world.log.release()
    assert unfinished(world, its) == []
    world.log.holds = False
    world.add(pair)
    assert unfinished(world, its + 1) == []


def test_an_id_whose_first_record_is_being_written_has_no_transaction() -> None:
    world = World()
    world.log.holds = True
    world.init()
    assert unfinished(world, *range(2_000)) == []


def test_very_many_ids_are_looked_at_in_pieces() -> None:
    world = World()
    image = created(5, 60_000, 0)._replace(state=State.ONGOING, partitions=frozenset({ORDERS}))
    world.coordinator.load({f"id-{number}": image for number in range(10_000)}, 1)
    pieces = list(world.coordinator.unfinished(frozenset({5})))
    assert max(map(len, pieces)) <= 250 and sum(map(len, pieces)) == 10_000
