"""Transactions on the page: outcomes, whose were aborted, and what held consumers; and what became
of the records of share groups."""

from __future__ import annotations

from typing import Any

import pytest

from spark_jobs.report_model import Section
from spark_jobs.sections import share_groups, transactions
from spark_jobs.sections.silence import Listened
from tests.spark import landed
from tests.spark.landed import NOON_MS, Row, sample

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

MINUTE_MS = 60_000


def outcomes(minute: int, broker: int, committed: int, aborted: int, **fields: Any) -> Row:
    counts = {"transactions_committed": committed, "transactions_aborted": aborted,
              "transactions_timed_out": 0, "hanging_aborted": 0, "late_partitions": 0,
              "stable_age_s": 0.0, "stable_lag": 0}  # fmt: skip
    return sample("Transactions", NOON_MS + minute * MINUTE_MS, broker, **counts | fields)


def aborted(minute: int, name: str, count: int, late: int = 0, **client: str) -> Row:
    return sample("AbortedTransactions", NOON_MS + minute * MINUTE_MS, transactional_id=name,
                  transactions_aborted=count, transactions_timed_out=late, **client)  # fmt: skip


def held(minute: int, partition: int, producer: int, seconds: float, waiting: int) -> Row:
    return sample("LastStableOffset", NOON_MS + minute * MINUTE_MS, topic="orders",
                  partition=partition, producer_id=producer, producer_epoch=1, open_s=seconds,
                  last_stable_offset=52, waiting_records=waiting)  # fmt: skip


def is_open(minute: int, name: str, producer: int, seconds: float = 20.0, **client: str) -> Row:
    return sample("OpenTransaction", NOON_MS + minute * MINUTE_MS, 2, transactional_id=name,
                  producer_id=producer, producer_epoch=1, transaction_state="Ongoing",
                  open_s=seconds, timeout_ms=60_000, transaction_partitions=1,
                  **client)  # fmt: skip


def shared(minute: int, broker: int, **counts: int) -> Row:
    return sample("ShareGroups", NOON_MS + minute * MINUTE_MS, broker, **counts)


def in_flight(minute: int, broker: int, group: str, count: int) -> Row:
    return sample("ShareInFlight", NOON_MS + minute * MINUTE_MS, broker, share_group=group,
                  topic="jobs", share_in_flight=count)  # fmt: skip


@pytest.fixture(scope="module")
def found(spark: Any) -> tuple[Any, Section]:
    cashier = {"client_id": "cashier", "client_host": "10.1.2.3"}
    rows = [
        outcomes(0, 1, 90, 5), outcomes(1, 1, 0, 3, transactions_timed_out=2, stable_age_s=75.0,
                                        stable_lag=8),
        outcomes(1, 2, 0, 0, hanging_aborted=1, stable_age_s=30.0, stable_lag=900),
        aborted(0, "pay", 5, **cashier), aborted(1, "pay", 1, 1), aborted(1, "bill", 2, 1),
        held(0, 0, 9, 15.0, 3), held(1, 0, 9, 75.0, 8), held(1, 1, 4, 30.0, 900),
        is_open(0, "pay", 9), is_open(1, "pay", 9, 80.0, **cashier), is_open(1, "other", 7),
        shared(0, 1, share_acquired=900, share_accepted=800, share_released=90,
               share_in_flight=10, share_sessions=3, share_partitions=2),
        shared(1, 1, share_acquired=100, share_accepted=100, share_rejected=4),
        shared(1, 2, share_acquired=50, share_locks_ended=6, share_used_up=2, share_in_flight=7),
        in_flight(0, 1, "workers", 10), in_flight(1, 1, "workers", 0), in_flight(1, 2, "late", 7),
    ]  # fmt: skip
    inputs = landed.inputs(spark, metrics=rows, since_ms=NOON_MS, until_ms=NOON_MS + 3 * MINUTE_MS)
    return inputs, transactions.section(inputs, Listened(inputs.until_ms, 15_000, NOON_MS))


def test_each_figure_and_its_rows(found: tuple[Any, Section]) -> None:
    inputs, section = found
    assert section.words == (
        "90 transactions were committed and 8 aborted (8.16 %), 2 of them because they were open"
        " for too long.",
        "Of 2 transactional ids with aborted ones pay has most: 6.",
        "pay had one open for longest: 1 min 20 s.",
        "Consumers of committed records waited longest in orders-0: 1 min 15 s, for pay.",
        "Hanging transactions that leaders ended: 1.",
    )
    by_broker, by_id, open_ones, held_ones = section.tables
    assert [[cell.text for cell in row] for row in by_broker.rows] == [
        ["1", "90", "8", "8.16 %", "2", "0", "1 min 15 s", "8"],
        ["2", "0", "0", "-", "0", "1", "30 s", "900"],
    ]
    assert [[cell.text for cell in row[:5]] for row in by_id.rows] == [
        ["pay", "6", "1", "cashier", "10.1.2.3"], ["bill", "2", "1", "-", "-"]
    ]  # fmt: skip
    assert [[cell.text for cell in row[:7]] for row in open_ones.rows] == [
        ["pay", "9", "cashier", "10.1.2.3", "Ongoing", "1", "1 min 20 s"],
        ["other", "7", "-", "-", "Ongoing", "1", "20 s"],
    ]
    assert [[cell.text for cell in row[:9]] for row in held_ones.rows] == [
        ["orders", "0", "9", "pay", "cashier", "10.1.2.3", "Ongoing", "1 min 15 s", "8"],
        ["orders", "1", "4", "-", "-", "-", "-", "30 s", "900"],
    ]
    assert [plot.title for plot in section.plots] == [
        "Aborted transactions", "Last stable offset held for"
    ]  # fmt: skip
    assert landed.check_rows(inputs, section) >= 8


def test_records_of_share_groups_and_their_rows(found: tuple[Any, Section]) -> None:
    inputs, _ = found
    section = share_groups.section(inputs, Listened(inputs.until_ms, 15_000, NOON_MS))
    assert section.words == (
        "Members of share groups got 1,050 records: 900 were accepted, 90 released and 4 rejected.",
        "6 were not acknowledged before their lock ended.",
        "2 were given up, since they had been delivered as often as their group allows.",
        "workers held most at once, 10 records of jobs.",
    )
    by_broker, by_group = section.tables
    assert [[cell.text for cell in row] for row in by_broker.rows] == [
        ["1", "1,000", "900", "90", "4", "0", "0", "10", "3", "2"],
        ["2", "50", "0", "0", "0", "6", "2", "7", "-", "-"],
    ]
    assert [cell.verdict for cell in by_broker.rows[1][5:7]] == ["open", "bad"]
    assert [[cell.text for cell in row[:3]] for row in by_group.rows] == [
        ["workers", "jobs", "10"], ["late", "jobs", "7"]
    ]  # fmt: skip
    assert [plot.title for plot in section.plots] == [
        "Records handed out to share groups", "Records that share groups hold"
    ]  # fmt: skip
    assert landed.check_rows(inputs, section) >= 4


def test_no_transactions_and_no_samples(spark: Any) -> None:
    listened = Listened(NOON_MS + MINUTE_MS, 15_000, NOON_MS)
    inputs = landed.inputs(spark, metrics=[outcomes(0, 1, 0, 0), shared(0, 1, share_acquired=0)])
    section = transactions.section(inputs, listened)
    assert section.words == ("No transaction ended.",) and section.plots == ()
    section = share_groups.section(inputs, listened)
    assert section.words == ("No share group read anything.",) and section.tables == ()
    nothing = landed.inputs(spark)
    for each in (transactions, share_groups):
        section = each.section(nothing, Listened(NOON_MS, 0))
        assert section.words[0].startswith("No data") and section.tables == ()
