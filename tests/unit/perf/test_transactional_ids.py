"""What perf asks of transactional ids, and the small parts of its measurements of transactions."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.protocol import messages
from perf.cells import CellError
from perf.client import ClientError
from perf.sendfiles import Sendfiles
from perf.transactions import ids
from perf.transactions.copiers import Copied, Progress
from perf.transactions.warming import BLOCKS_MAX, until_flat
from perf.wire import Reader

NAMES = [f"name-{number}" for number in range(200)]


class FakeClient:
    """Answers with this body."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def ask(self, api_key: int, version: int, body: bytes) -> Reader:
        return Reader(self._body, flexible=True)


def described(*codes: int) -> Any:
    table = messages.describe_transactions
    states = [
        table.TransactionState(
            error_code=code, transactional_id=f"id-{number}", transaction_state="Ongoing",
            topics=[table.TopicData(topic="t", partitions=[1, 2])],
        )
        for number, code in enumerate(codes)
    ]  # fmt: skip
    return FakeClient(table.Response(transaction_states=states).encode(0))


def test_partitions_of_ids_are_those_of_brokers() -> None:
    assert [ids.partition_of(name) for name in NAMES] == [partition_for(name, 50) for name in NAMES]
    chosen = ids.one_of_each(NAMES, 7)
    assert sorted(partition_for(name, 7) for name in chosen) == list(range(7))


def test_states_of_ids() -> None:
    assert ids.states(described(0, 0), ()) == {"id-0": "Ongoing", "id-1": "Ongoing"}
    assert ids.served(described(0, 0), ())
    assert not ids.served(described(0, 14), ())
    with pytest.raises(ClientError, match=r"id-1.*105"):  # it is lost
        ids.served(described(0, 105), ())


def test_ids_in_a_state_are_counted() -> None:
    table = messages.list_transactions
    found = table.Response(error_code=0, unknown_state_filters=["no"])
    found.transaction_states = [
        table.TransactionState(transactional_id="x", producer_id=1, transaction_state="Empty")
    ] * 3
    body = found.encode(0)
    client: Any = FakeClient(body)
    assert ids.listed(client, ["PrepareCommit"]) == 3


def test_calls_of_sendfile_are_counted() -> None:
    found = Sendfiles()
    found.take(
        "12 sendfile(9, 8, [0] => [16000], 16400) = 16000\n"
        "12 sendfile(9, 8, [16000], 400 <unfinished ...>\n"
        "13 sendfile(10, 8, [0], 400) = -1 EAGAIN (Resource temporarily unavailable)\n"
        "12 <... sendfile resumed> => [16400]) = 400\n"
        "+++ exited with 0 +++\n"
    )
    assert found == Sendfiles(2, 16_400)


def test_warming_ends_when_three_blocks_take_the_same_time() -> None:
    times = iter([9.0, 5.0, 4.0, 4.1, 4.05])
    assert until_flat(lambda: next(times)) == (5, "flat")
    doubling = iter(range(1, 100))
    assert until_flat(lambda: 2.0 ** next(doubling)) == (BLOCKS_MAX, "NOT FLAT")


def test_the_first_records_of_a_copy_are_not_timed() -> None:
    copied = Copied([Progress(0.0, 0), Progress(10.0, 30), Progress(12.0, 50)])
    assert copied.seconds_each(25) == 0.1
    with pytest.raises(CellError, match="one transaction"):
        Copied([Progress(0.0, 50)]).seconds_each(25)
