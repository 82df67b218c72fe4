"""A transactional id in memory: nothing of its image is lost, and an idle one is small."""

from __future__ import annotations

import sys
from typing import Final

from kbroker.coordinator.txn.image import TransactionImage
from kbroker.coordinator.txn.records import decode_value, encode_value
from kbroker.coordinator.txn.states import State
from kbroker.coordinator.txn.transaction import Transaction
from kbroker.types import TopicPartition

IDLE: Final = TransactionImage(
    2**31, 4, 60_000, State.COMPLETE_COMMIT, 1_700_000_000_123, 1_700_000_000_000,
    previous_producer_id=2**31, client_version=2,
)  # fmt: skip
# Of an entry of a dictionary: hash, key and value, and its share of the places that are free.
ENTRY_BYTES: Final = 24 * 2 + 8


def test_an_image_comes_back_as_it_was() -> None:
    image = IDLE._replace(
        state=State.ONGOING, partitions=frozenset({TopicPartition("a", 1)}),
        previous_producer_id=5, next_producer_id=6, last_epoch=3,
    )  # fmt: skip
    assert Transaction(image, 1).image == image
    assert Transaction(None, 1).image is None


def test_an_idle_id_has_400_bytes_at_most() -> None:
    """An id of 30 characters, loaded from the log; the state topic's term is shared."""
    transaction = Transaction(decode_value(encode_value(IDLE, 1)), term=1_000)
    own: dict[int, object] = {}
    for name in Transaction.__slots__:
        value = getattr(transaction, name)
        shared = value is None or isinstance(value, (State, frozenset))
        shared |= name in ("term", "_timeout_ms")
        if not shared and not (isinstance(value, int) and -5 <= value <= 256):
            own[id(value)] = value
    size = sum(map(sys.getsizeof, own.values())) + sys.getsizeof("i" * 30)
    assert size + sys.getsizeof(transaction) + ENTRY_BYTES <= 400


def test_timeouts_that_repeat_are_one_object() -> None:
    one, other = (Transaction(decode_value(encode_value(IDLE, 1)), 1) for _ in range(2))
    assert one._timeout_ms is other._timeout_ms
