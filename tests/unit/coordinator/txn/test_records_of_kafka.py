"""`__transaction_state` as Apache Kafka 4.3.0 has written it: read, and written the same."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from kbroker.coordinator.txn._images import encode_value
from kbroker.coordinator.txn.records import (
    decode_key,
    decode_value,
    encode_key,
    value_version,
)
from kbroker.coordinator.txn.states import State
from kbroker.errors import ErrorCode
from tests.support.kafka_transactions import LEVELS, state_log
from tests.support.record_batches import ParsedBatch, parse_batches
from tests.unit.coordinator.txn.test_store import NODE, Node

# Of a batch's header: what depends on the moment of the append.
_MOMENTS: Final = ("base_timestamp_ms", "max_timestamp_ms", "crc")


def batches(level: int) -> list[ParsedBatch]:
    return parse_batches(state_log(level))


@pytest.mark.parametrize("level", LEVELS)
def test_each_record(level: int) -> None:
    states = set()
    for batch in batches(level):
        (record,) = batch.records
        assert record.key is not None and record.value is not None
        assert encode_key(decode_key(record.key)) == record.key
        image = decode_value(record.value)
        states.add(image.state)
        again = encode_value(image, value_version(level))
        # In Apache Kafka the partitions are in a hash table's order.
        assert again == record.value or len(image.partitions) > 1
        assert sorted(again) == sorted(record.value)
        assert decode_value(again) == image
    assert states == {each for each in State if each >= 0}


def test_epochs_at_each_level() -> None:
    """Only from level 2 on a record says by which version its client ended."""
    raised = {level: set[int]() for level in LEVELS}
    for level in LEVELS:
        for batch in batches(level):
            raised[level].add(decode_value(batch.records[0].value or b"").client_version)
    assert (raised[0], raised[1], raised[2]) == ({0}, {0}, {0, 2})


@pytest.mark.parametrize("level", LEVELS)
def test_each_batch(level: int, tmp_path: Path) -> None:
    """Header and record, but for the time of the append."""
    node = Node(tmp_path)
    node.lead(NODE)
    for number, theirs in enumerate(batches(level)):
        (record,) = theirs.records
        code = node.table.append(0, [(record.key or b"", record.value)])
        assert code == ErrorCode.NONE
        ours = parse_batches(node.open[0].read(number, to_log_end=True))[0]
        for name in ParsedBatch.__dataclass_fields__:
            if name not in (*_MOMENTS, "records"):
                assert getattr(ours, name) == getattr(theirs, name), name
        (mine,) = ours.records
        assert (mine.key, mine.value, mine.headers) == (record.key, record.value, record.headers)
    node.stop()
