"""Records newest first: windows over gaps, large and damaged batches, aborted ones, and bounds."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from kbroker.compression import Codec
from kbroker.console import records as module
from kbroker.console.pages import messages
from kbroker.console.records import BATCH_RECORDS_MAX
from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.isolation import AbortedTransaction
from kbroker.peer.messages import OffsetResult
from kbroker.protocol.record_batch import Record, encode_batch
from kbroker.types import TopicPartition
from tests.unit.console.fake_log import (
    NOW_MS,
    FakeLogs,
    FakePartition,
    asked,
    column,
    facts,
    notices,
    query_of,
    records,
    table,
)


def all_pages(client: FakeLogs, query: dict[str, str], name: str = "offset") -> list[object]:
    """The column of this page and of all that its links lead to."""
    found: list[object] = []
    for _ in range(1_000):
        page = messages.make(asked(client, query))
        found += column(page, name)
        following = table(page, "messages").next_path
        if not following:
            return found
        query = query_of(following)
    raise AssertionError("the pages do not end")


@pytest.mark.parametrize("rows", [60, 500])
@pytest.mark.parametrize("order", ["newest", "oldest"])
@pytest.mark.parametrize("seed", range(4))
def test_every_record_is_on_one_page(rows: int, order: str, seed: int) -> None:
    """Logs with gaps of any size between batches, and batches that lost records of theirs."""
    rng = random.Random(seed)
    log, offset, expected = FakePartition(), rng.choice([0, 1_000_000]), []
    log.start = offset
    for _ in range(rng.randrange(1, 25)):
        offset += rng.choice([0, 0, 1, 30, 5_000, 10_000_000])
        count = rng.choice([1, 2, 90, 150])
        batch = records(offset, count, value=b"v" * rng.choice([0, 10, 1_500]))
        log.add(batch, codec=rng.choice(list(Codec)))
        expected += [each.offset for each in batch]
        offset += count
    log.end += rng.choice([0, 0, 70_000])
    client = FakeLogs([log])
    if order == "newest":
        expected.reverse()
    assert all_pages(client, {"rows": str(rows), "order": order}) == expected


def test_a_gap_costs_a_dozen_fetches() -> None:
    log = FakePartition()
    log.add(records(0, 10))
    log.add(records(40_000_000, 5))
    client = FakeLogs([log])
    page = messages.make(asked(client))
    assert column(page, "offset") == [*range(40_000_004, 39_999_999, -1), *range(9, -1, -1)]
    assert len(client.fetches) <= 14


def test_the_first_page_reads_the_end_alone() -> None:
    log = FakePartition()
    for base in range(0, 20_000, 100):
        log.add(records(base, 100, value=b"v" * 1_000))
    client = FakeLogs([log])
    page = messages.make(asked(client))
    assert column(page, "offset") == [*range(19_999, 19_949, -1)]
    assert len(client.fetches) <= 3
    looked = facts(page, "looked")
    assert looked["records_looked_at"] == 100
    assert looked["until_offset"] == 19_950


def test_a_batch_that_cannot_be_read_costs_its_row() -> None:
    log = FakePartition()
    log.add(records(0, 3))
    damaged = bytearray(encode_batch(records(3, 4), base_offset=3))
    damaged[-1] ^= 1
    log.add_bytes(3, 6, bytes(damaged))
    log.add(records(7, 2))
    page = messages.make(asked(FakeLogs([log])))
    assert column(page, "offset") == [8, 7, 3, 2, 1, 0]
    assert "offsets 3 to 6 cannot be read: batch at offset 3: CRC" in str(column(page, "value")[2])
    assert column(page, "drawn_as")[2] == "note"


def test_the_bytes_of_a_batch_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNPACKED_BYTES_MAX", 100_000)
    log = FakePartition()
    log.add(records(0, 1, value=bytes(200_000)), codec=Codec.GZIP)
    log.add(records(1, 1, value=bytes(50_000)), codec=Codec.GZIP)
    page = messages.make(asked(FakeLogs([log])))
    assert column(page, "value_bytes") == [50_000, None]
    assert "more than 100000 bytes" in str(column(page, "value")[1])


def test_a_batch_with_too_many_records_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_RECORDS_MAX", 100)
    log = FakePartition()
    log.add(records(0, 101))
    page = messages.make(asked(FakeLogs([log])))
    assert "a batch of 101 records: 100 are read at most" in str(column(page, "value")[0])
    assert BATCH_RECORDS_MAX >= 100_000  # what producers make is read


def test_a_record_that_does_not_fit_ends_its_batch() -> None:
    """The CRC is right: a client has made the batch so, or a broker of another kind."""
    rows = records(0, 3)
    data = bytearray(encode_batch(rows, base_offset=0))
    size = len(encode_batch(rows[:1])) - 61
    data[61 + 2 * size] = 126  # the third record's length
    from kbroker.protocol._crc32c import crc32c

    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    log = FakePartition()
    log.add_bytes(0, 2, bytes(data))
    page = messages.make(asked(FakeLogs([log])))
    assert column(page, "offset") == [2, 1, 0]
    assert "cannot be read: a record of 63 bytes" in str(column(page, "value")[0])


def transactions() -> FakePartition:
    """An aborted one and a committed one, side by side, and then an open one."""
    log = FakePartition()
    log.add(records(0, 2, value=b"aborted"), transactional=True, producer_id=7, producer_epoch=0)
    log.add(records(2, 2, value=b"committed"), transactional=True, producer_id=8, producer_epoch=0)
    marker = Record(b"\0\0\0\0", b"\0\0\0\0\0\0", (), NOW_MS, 4)
    log.add([marker], transactional=True, control=True, producer_id=7, producer_epoch=0)
    marker = marker._replace(key=b"\0\0\0\1", offset=5)
    log.add([marker], transactional=True, control=True, producer_id=8, producer_epoch=0)
    log.add(records(6, 1, value=b"open"), transactional=True, producer_id=7, producer_epoch=0)
    log.last_stable = 6
    log.aborted = [AbortedTransaction(7, 0)]
    return log


@pytest.mark.parametrize(
    ("isolation", "expected"),
    [
        ("read_committed", ["committed"] * 2),
        ("read_uncommitted", ["open", *["committed"] * 2, *["aborted"] * 2]),
        (
            "all",
            [
                "open",
                "commit, producer 8, epoch 0",
                "abort, producer 7, epoch 0",
                *["committed"] * 2,
                *["aborted"] * 2,
            ],
        ),
    ],
)
@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_isolation(isolation: str, expected: list[str], order: str) -> None:
    query = {"isolation": isolation, "order": order, "rows": "1"}
    found = all_pages(FakeLogs([transactions()]), query, "value")
    assert found == (expected if order == "newest" else expected[::-1])


def test_partitions_are_merged_by_time() -> None:
    logs = [FakePartition() for _ in range(3)]
    for n in range(300):
        logs[n % 3].add([Record(b"k", b"v", (), NOW_MS + n, n // 3)])
    client = FakeLogs(logs)
    times = all_pages(client, {"rows": "40"}, "timestamp_ms")
    assert times == [NOW_MS + n for n in range(299, -1, -1)]
    oldest = all_pages(client, {"rows": "40", "order": "oldest"}, "timestamp_ms")
    assert oldest == times[::-1]


def test_a_partition_without_a_leader_is_left_out_and_named() -> None:
    logs = [FakePartition(), FakePartition()]
    logs[0].add(records(0, 1))
    logs[1].leader = -1
    page = messages.make(asked(FakeLogs(logs)))
    assert column(page, "partition") == [0]
    assert "partitions without a leader are left out: 1" in notices(page)


def test_a_leader_that_moves_is_asked_again_and_not_for_ever() -> None:
    log = FakePartition()
    log.add(records(0, 1))
    client = FakeLogs([log])
    client.unanswered = 2
    assert column(messages.make(asked(client)), "offset") == [0]
    client.unanswered = 100
    with pytest.raises(KafkaError, match="t-0 has no leader now"):
        messages.make(asked(client))


def test_a_refusal_is_raised() -> None:
    log = FakePartition()
    log.add(records(0, 1))
    client = FakeLogs([log])
    client.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
        messages.make(asked(client))


def test_records_that_are_deleted_meanwhile_are_not_waited_for() -> None:
    log = FakePartition()
    log.add(records(100, 5))
    client = FakeLogs([log])
    log.start = 103
    log.batches.clear()
    log.add(records(103, 2))
    answers = client.list_offsets

    def stale(asked_at: Mapping[TopicPartition, int], **fields: int) -> object:
        """The first answer is of before the deletion."""
        client.list_offsets = answers  # type: ignore[method-assign]
        return {where: OffsetResult(ErrorCode.NONE, -1, 0) for where in asked_at}

    for order, expected in (("newest", [104, 103]), ("oldest", [103, 104])):
        client.list_offsets = stale  # type: ignore[method-assign, assignment]
        assert column(messages.make(asked(client, {"order": order})), "offset") == expected


def test_the_bytes_of_a_page_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of a megabyte are cut while they are collected."""
    log = FakePartition()
    for n in range(30):
        log.add(records(n, 1, value=b"v" * 1_000_000), codec=Codec.GZIP)
    page = messages.make(asked(FakeLogs([log]), {"rows": "30"}))
    values = [str(value) for value in column(page, "value")]
    assert len(values) == 30
    assert sum(map(len, values)) <= messages.PAGE_CHARS_MAX + 30
    assert set(column(page, "value_bytes")) == {1_000_000}


def test_a_record_with_many_headers_costs_its_row() -> None:
    """Millions of empty ones fit into a batch that a broker takes."""
    log = FakePartition()
    log.add([Record(b"k", b"v", (("", None),) * 200_000, NOW_MS, 0)], codec=Codec.GZIP)
    log.add(records(1, 1))
    page = messages.make(asked(FakeLogs([log])))
    assert column(page, "offset") == [1, 0]
    assert "200000 headers, and 10000 are read at most" in str(column(page, "value")[1])
