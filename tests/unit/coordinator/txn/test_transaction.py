"""Transactional ids in memory: nothing of an image is lost, C finds them by name, one is small."""

from __future__ import annotations

import sys
from typing import Final

import pytest

from kbroker.coordinator.txn._ids import ENTRY_BYTES, Transaction, TransactionalIds
from kbroker.coordinator.txn.image import TransactionImage
from kbroker.coordinator.txn.states import State
from kbroker.types import TopicPartition

IDLE: Final = TransactionImage(
    2**31, 4, 60_000, State.COMPLETE_COMMIT, 1_700_000_000_123, 1_700_000_000_000,
    previous_producer_id=2**31, client_version=2,
)  # fmt: skip
# Of an entry of a dictionary: hash, key and value, and its share of the places that are free.
DICT_ENTRY_BYTES: Final = 24 * 2 + 8


def test_an_image_comes_back_as_it_was() -> None:
    image = IDLE._replace(
        state=State.ONGOING,
        partitions=frozenset(TopicPartition(name, n) for name in ("b", "a", "ü") for n in (7, 0)),
        previous_producer_id=5, next_producer_id=6, last_epoch=3,
    )  # fmt: skip
    transaction = Transaction(image, 1)
    assert transaction.image == image
    transaction.become(IDLE)
    assert transaction.image == IDLE
    assert transaction.state is State.COMPLETE_COMMIT
    assert Transaction(None, 1).image is None
    assert Transaction(None, 1).state is None


@pytest.mark.parametrize(
    "changed", [{"epoch": 2**15}, {"timeout_ms": 2**31}, {"client_version": -(2**15) - 1}]
)
def test_an_image_that_no_record_has_is_refused(changed: dict[str, int]) -> None:
    with pytest.raises(OverflowError):
        Transaction(IDLE._replace(**changed), 1)


def test_a_claim_is_one_callers() -> None:
    transaction = Transaction(IDLE, 1)
    assert transaction.claim()
    assert not transaction.claim()
    transaction.pending = False
    assert transaction.claim()


def test_ids_by_name() -> None:
    ids = TransactionalIds()
    one, other, third = (Transaction(IDLE, term) for term in range(3))
    ids.put("a", one)
    ids.put("ü", other)
    assert ids.get("a") is one
    assert ids.get("b") is None
    ids.put("a", third)
    assert ids.items() == [("ü", other), ("a", third)]
    ids.put("b", one)  # it has been put elsewhere
    for name in ("a", "b", "ü", "none"):
        ids.drop(name)
    assert len(ids) == 0


def test_many_ids_come_and_go() -> None:
    ids = TransactionalIds()
    for number in range(1_000):
        ids.put(f"id {number}", Transaction(IDLE, number))
    for number in range(0, 1_000, 2):
        ids.drop(f"id {number}")
    found = {name: transaction.term for name, transaction in ids.items()}
    assert found == {f"id {number}": number for number in range(1, 1_000, 2)}


def test_an_idle_id_has_400_bytes_at_most() -> None:
    """An id of 30 characters."""
    size = sys.getsizeof(Transaction(IDLE, 1_000)) + ENTRY_BYTES + sys.getsizeof("i" * 30)
    assert size + DICT_ENTRY_BYTES <= 400
