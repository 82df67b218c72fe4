"""The first page: what the report is of, its alarms, and one figure of each section.

Made last, of the sections that are there already: its words are their first sentences and its cells
are theirs, so it cannot say anything else than they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from spark_jobs.report_model import Cell, Section, Table
from spark_jobs.sections.cells import moment, span, words
from spark_jobs.sections.inputs import Inputs

KEY: Final = "overview"
TITLE: Final = "At a glance"


class Headline(NamedTuple):
    """A figure worth the first page: of a column of a section's table the worst, and its name."""

    what: str
    section: str
    table: str
    column: str
    about: tuple[str, ...]  # columns that say what it is of
    worst: Literal["least", "most"] = "most"


HEADLINES: Final = (
    Headline("longest silence before the end", "silence", "Brokers", "silent", ("broker",)),
    Headline("messages taken a second, most", "traffic", "By broker", "messages/s", ("broker",)),
    Headline("bytes taken a second, most", "traffic", "By broker", "in", ("broker",)),
    Headline("handlers idle, least", "traffic", "By broker", "handlers idle, least", ("broker",),
             "least"),
    Headline("produce requests that failed, most", "inside",
             "Failed requests, and what followers fetched", "of all produced", ("broker",)),
    Headline("hottest partition's share", "hot", "The 10 hottest partitions", "share of all",
             ("topic", "partition")),
    Headline("first disk to be full, h", "forecast", "By broker and log directory", "full in, h",
             ("broker", "directory"), "least"),
    Headline("kbroker / Kafka, CPU, highest", "brokers", "kbroker / Apache Kafka",
             "CPU us/request x", ("work",)),
    Headline("kbroker / Kafka, p99, highest", "brokers", "kbroker / Apache Kafka", "p99 x",
             ("work",)),
    Headline("acks=-1 / acks=1, p99, highest", "latency", "acks=-1 against acks=1", "p99 x",
             ("broker",)),
    Headline("lag of the pipeline, records, most", "pipeline", "Queries", "lag at the end",
             ("query",)),
)  # fmt: skip


def section(inputs: Inputs, sections: Sequence[Section]) -> Section:
    alarms = [one for part in sections for one in part.findings if one.severity == "alarm"]
    said = [
        f"Samples from {moment(inputs.since_ms)} to {moment(inputs.until_ms)} UTC"
        f" ({span(inputs.until_ms - inputs.since_ms)})"
        + (
            f", measurements from {moment(inputs.results_since_ms)} on."
            if inputs.results_since_ms != inputs.since_ms
            else "."
        ),
        f"{len(alarms)} alarm{'s' if len(alarms) != 1 else ''}." if alarms else "No alarm.",
    ]
    said += [f"{one.title}: {one.words[0]}" for one in sections if one.words and _says(one)]
    if without := [one.title for one in sections if not _says(one)]:
        said.append(f"Without data in this span: {', '.join(without)}.")
    rows = [row for headline in HEADLINES if (row := _row(headline, sections)) is not None]
    tables = [Table("Figures", ("what", "figure", "of"), tuple(rows))] if rows else []
    return Section(KEY, TITLE, tuple(said), tuple(tables))


def _says(one: Section) -> bool:
    return bool(one.tables or one.plots or one.findings)


def _row(headline: Headline, sections: Sequence[Section]) -> tuple[Cell, ...] | None:
    for one in sections:
        for table in one.tables:
            if (one.key, table.title) == (headline.section, headline.table):
                return _worst(headline, table)
    return None


def _worst(headline: Headline, table: Table) -> tuple[Cell, ...] | None:
    """The line of the worst value; the first of those that are equal."""
    column = table.columns.index(headline.column)
    known = [(value, row) for row in table.rows if (value := row[column].value) is not None]
    if not known:
        return None
    pick = max if headline.worst == "most" else min
    _, row = pick(known, key=lambda one: one[0])
    between = "-" if "partition" in headline.about else " "
    of = between.join(
        f"broker {text}" if name == "broker" and text.isdecimal() else text
        for name in headline.about
        for text in (row[table.columns.index(name)].text,)
    )
    return words(headline.what), row[column], words(of)
