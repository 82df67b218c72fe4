"""The first page: three sentences, and one figure of each section.

The sentences are whether all is well, what the brokers did, and what was measured. Made last, of
the sections that are there already: their cells are its cells and their findings its alarms, so it
cannot say anything else than they do.
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
    """A figure worth the first page: of a column of a section's table the worst, and its name.

    `clause`: the same within a sentence, with {figure} and {of}; empty: in the table alone.
    """

    what: str
    section: str
    table: str
    column: str
    about: tuple[str, ...]  # columns that say what it is of
    clause: str = ""
    worst: Literal["least", "most"] = "most"
    is_measured: bool = False  # by perf; else sampled by brokers


HEADLINES: Final = (
    Headline("longest silence before the end", "silence", "Brokers", "silent", ("broker",)),
    Headline("messages taken a second, most", "traffic", "By broker", "messages/s", ("broker",),
             "{of} took most messages, {figure} a second"),
    Headline("bytes taken a second, most", "traffic", "By broker", "in", ("broker",)),
    Headline("handlers idle, least", "traffic", "By broker", "handlers idle, least", ("broker",),
             "handlers were idle for {figure} at the least ({of})", worst="least"),
    Headline("produce requests that failed, most", "inside",
             "Failed requests, and what followers fetched", "of all produced", ("broker",),
             "{figure} of the produces to {of} failed"),
    Headline("transactions aborted, most", "transactions", "Outcomes, and what they held", "of all",
             ("broker",), "{figure} of the transactions of {of} were aborted"),
    Headline("last stable offset held, longest", "transactions", "Outcomes, and what they held",
             "held longest", ("broker",),
             "consumers of committed records waited for {figure} at the most ({of})"),
    Headline("records that share groups gave up, most", "share-groups",
             "Records of share groups, by their partitions' leaders", "given up", ("broker",),
             "share groups gave {figure} records up ({of})"),
    Headline("hottest partition's share", "hot", "The 10 hottest partitions", "share of all",
             ("topic", "partition"),
             "the hottest partition, {of}, took {figure} of all messages"),
    Headline("first disk to be full, h", "forecast", "By broker and log directory", "full in, h",
             ("broker", "directory"), "the first disk is full in {figure} h ({of})",
             worst="least"),
    Headline("kbroker / Kafka, CPU, highest", "brokers", "kbroker / Apache Kafka",
             "CPU us/request x", ("work",),
             "CPU of kbroker by Apache Kafka's is {figure} at the most ({of})", is_measured=True),
    Headline("kbroker / Kafka, p99, highest", "brokers", "kbroker / Apache Kafka", "p99 x",
             ("work",), "the p99 of kbroker by Apache Kafka's is {figure} at the most ({of})",
             is_measured=True),
    Headline("acks=-1 / acks=1, p99, highest", "latency", "acks=-1 against acks=1", "p99 x",
             ("broker",), "p99 of acks=-1 by that of acks=1 is {figure} at the most ({of})",
             is_measured=True),
    Headline("lag of the pipeline, records, most", "pipeline", "Queries", "lag at the end",
             ("query",)),
)  # fmt: skip


def section(inputs: Inputs, sections: Sequence[Section]) -> Section:
    rows = [(each, row) for each in HEADLINES if (row := _row(each, sections)) is not None]
    did, measured = (
        "; ".join(
            each.clause.format(figure=figure.text, of=of.text)
            for each, (_, figure, of) in rows
            if each.clause and each.is_measured is is_measured
        )
        for is_measured in (False, True)
    )
    without = ", ".join(one.title for one in sections if not _says(one))
    said = (
        _is_it_well(inputs, sections),
        _sentence(did or "no sample has a figure of the brokers' work"),
        _sentence(
            (measured or "nothing was measured") + (f"; without data: {without}" if without else "")
        ),
    )
    tables = [Table("Figures", ("what", "figure", "of"), tuple(row for _, row in rows))]
    return Section(KEY, TITLE, said, tuple(tables) if rows else ())


def _sentence(clauses: str) -> str:
    return f"{clauses[0].upper()}{clauses[1:]}."


def _is_it_well(inputs: Inputs, sections: Sequence[Section]) -> str:
    """What the report is of, and its alarms."""
    of = f"{span(inputs.until_ms - inputs.since_ms)} of samples up to {moment(inputs.until_ms)} UTC"
    if inputs.results_since_ms != inputs.since_ms:
        of += f", measurements from {moment(inputs.results_since_ms)} on"
    found = [one for part in sections for one in part.findings]
    alarms = [one for one in found if one.severity == "alarm"]
    warnings = sum(one.severity == "warning" for one in found)
    said = f"{len(alarms)} alarm{'s' if len(alarms) != 1 else ''}" if alarms else "no alarm"
    if warnings:
        said += f", {warnings} warning{'s' if warnings != 1 else ''}"
    if alarms:
        said += f"; {'first' if len(alarms) > 1 else 'it is'}: {alarms[0].what.rstrip('.')}"
    return f"{of}: {said}."


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
