"""Transactions on the page: outcomes, whose were aborted, and what held consumers."""

from __future__ import annotations

from typing import Any

import pytest

from spark_jobs.report_model import Section
from spark_jobs.sections import transactions
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


def is_open(minute: int, name: str, producer: int, **client: str) -> Row:
    return sample("OpenTransaction", NOON_MS + minute * MINUTE_MS, 2, transactional_id=name,
                  producer_id=producer, producer_epoch=1, transaction_state="Ongoing", open_s=20.0,
                  timeout_ms=60_000, transaction_partitions=1, **client)  # fmt: skip


@pytest.fixture(scope="module")
def found(spark: Any) -> tuple[Any, Section]:
    cashier = {"client_id": "cashier", "client_host": "10.1.2.3"}
    rows = [
        outcomes(0, 1, 90, 5), outcomes(1, 1, 0, 3, transactions_timed_out=2, stable_age_s=75.0,
                                        stable_lag=8),
        outcomes(1, 2, 0, 0, hanging_aborted=1, stable_age_s=30.0, stable_lag=900),
        aborted(0, "pay", 5, **cashier), aborted(1, "pay", 1, 1), aborted(1, "bill", 2, 1),
        held(0, 0, 9, 15.0, 3), held(1, 0, 9, 75.0, 8), held(1, 1, 4, 30.0, 900),
        is_open(0, "pay", 9), is_open(1, "pay", 9, **cashier), is_open(1, "other", 7),
    ]  # fmt: skip
    inputs = landed.inputs(spark, metrics=rows, since_ms=NOON_MS, until_ms=NOON_MS + 3 * MINUTE_MS)
    return inputs, transactions.section(inputs, Listened(inputs.until_ms, 15_000, NOON_MS))


def test_each_figure_and_its_rows(found: tuple[Any, Section]) -> None:
    inputs, section = found
    assert section.words == (
        "90 transactions were committed and 8 aborted (8.16 %), 2 of them because they were open"
        " for too long.",
        "Of 2 transactional ids with aborted ones pay has most: 6.",
        "Consumers of committed records waited longest in orders-0: 1 min 15 s, for pay.",
        "Hanging transactions that leaders ended: 1.",
    )
    by_broker, by_id, held_ones = section.tables
    assert [[cell.text for cell in row] for row in by_broker.rows] == [
        ["1", "90", "8", "8.16 %", "2", "0", "1 min 15 s", "8"],
        ["2", "0", "0", "-", "0", "1", "30 s", "900"],
    ]
    assert [[cell.text for cell in row[:5]] for row in by_id.rows] == [
        ["pay", "6", "1", "cashier", "10.1.2.3"], ["bill", "2", "1", "-", "-"]
    ]  # fmt: skip
    assert [[cell.text for cell in row[:9]] for row in held_ones.rows] == [
        ["orders", "0", "9", "pay", "cashier", "10.1.2.3", "Ongoing", "1 min 15 s", "8"],
        ["orders", "1", "4", "-", "-", "-", "-", "30 s", "900"],
    ]
    assert [plot.title for plot in section.plots] == [
        "Aborted transactions", "Last stable offset held for"
    ]  # fmt: skip
    assert landed.check_rows(inputs, section) >= 6


def test_no_transactions_and_no_samples(spark: Any) -> None:
    inputs = landed.inputs(spark, metrics=[outcomes(0, 1, 0, 0)])
    section = transactions.section(inputs, Listened(inputs.until_ms, 15_000, NOON_MS))
    assert section.words == ("No transaction ended.",) and section.plots == ()
    section = transactions.section(landed.inputs(spark), Listened(NOON_MS, 0))
    assert section.words[0].startswith("No data") and section.tables == ()
