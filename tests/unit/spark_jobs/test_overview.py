"""The first page's three sentences, of sections that are plain data."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest

from spark_jobs.report_model import Cell, Finding, Section, Severity, Table
from spark_jobs.sections import overview
from spark_jobs.sections.inputs import Inputs

HOUR_MS = 3_600_000


def glance(*sections: Section, results_since_ms: int = 0) -> Section:
    inputs = SimpleNamespace(since_ms=0, until_ms=HOUR_MS, results_since_ms=results_since_ms)
    return overview.section(cast(Inputs, inputs), sections)


def of(key: str, title: str, about: Mapping[str, str], figures: Mapping[str, float]) -> Section:
    """A section with a table of one line."""
    cells = (
        *(Cell(text) for text in about.values()),
        *(Cell(f"{figure:g}", figure) for figure in figures.values()),
    )
    return Section(key, key.title(), ("Said.",), (Table(title, (*about, *figures), (cells,)),))


def test_a_report_of_nothing() -> None:
    found = glance(Section("hot", "Hot partitions", ("No data.",)))
    assert found.words == (
        "1 h of samples up to 1970-01-01 01:00:00 UTC: no alarm.",
        "No sample has a figure of the brokers' work.",
        "Nothing was measured; without data: Hot partitions.",
    )
    assert found.tables == ()


def test_each_sentence_has_the_figures_of_the_sections() -> None:
    found = glance(
        of("hot", "The 10 hottest partitions", {"topic": "orders", "partition": "0"},
           {"share of all": 40}),
        of("transactions", "Outcomes, and what they held", {"broker": "2"},
           {"of all": 8, "held longest": 75}),
        of("share-groups", "Records of share groups, by their partitions' leaders",
           {"broker": "1"}, {"given up": 3}),
        of("latency", "acks=-1 against acks=1", {"broker": "kbroker"}, {"p99 x": 1.5}),
        results_since_ms=1,
    )  # fmt: skip
    assert found.words == (
        "1 h of samples up to 1970-01-01 01:00:00 UTC, measurements from 1970-01-01 00:00:00 on:"
        " no alarm.",
        "8 of the transactions of broker 2 were aborted; consumers of committed records waited for"
        " 75 at the most (broker 2); share groups gave 3 records up (broker 1); the hottest"
        " partition, orders-0, took 40 of all messages.",
        "P99 of acks=-1 by that of acks=1 is 1.5 at the most (kbroker).",
    )
    assert [row[0].text for row in found.tables[0].rows] == [
        "transactions aborted, most", "last stable offset held, longest",
        "records that share groups gave up, most", "hottest partition's share",
        "acks=-1 / acks=1, p99, highest",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("findings", "said"),
    [
        ([("alarm", "Broker 2 is silent.")], "1 alarm; it is: Broker 2 is silent."),
        (
            [("warning", "A rule fires"), ("alarm", "No data"), ("alarm", "A disk is full")],
            "2 alarms, 1 warning; first: No data.",
        ),
        ([("warning", "A rule fires"), ("unknown", "?")], "no alarm, 1 warning."),
    ],
)
def test_the_first_sentence_names_the_first_alarm(
    findings: list[tuple[Severity, str]], said: str
) -> None:
    made = tuple(Finding(what, severity=severity) for severity, what in findings)
    found = glance(Section("silence", "Silence", ("Said.",), findings=made))
    assert found.words[0].endswith(f" UTC: {said}")


def test_a_text_of_a_record_stays_as_it_is() -> None:
    about = {"topic": "{of}{0}", "partition": "0"}
    found = glance(of("hot", "The 10 hottest partitions", about, {"share of all": 40}))
    assert "the hottest partition, {of}{0}-0, took" in found.words[1].lower()
