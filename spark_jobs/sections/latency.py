"""Latency: percentiles by acks, size and requests in flight, and acks=-1 against acks=1.

The percentiles are of merged histograms: all blocks of a group add their counts, then the
percentile is taken (perf.histogram's rule, which a test holds this against). A group is one kind of
work; what differs between the groups becomes a column, what does not is said once in the note.

acks=-1 is held against acks=1 only where everything else is equal, block by block of one round, as
a ratio with its interval, judged as perf judges its own (paired.py). Different runs, as two
commands with another setting are, saw different machines and are not compared.
"""

from __future__ import annotations

from typing import Any, Final

from spark_jobs.report_model import Cell, Plot, Section, Series, Table
from spark_jobs.sections import percentiles
from spark_jobs.sections.blocks import (
    IDENTITY,
    P50,
    P99,
    REQUESTS,
    Block,
    clipped,
    grouped,
)
from spark_jobs.sections.cells import brief, figure, number, same, words
from spark_jobs.sections.inputs import Inputs, collected, common, differing
from spark_jobs.sections.paired import (
    NOTE,
    Beside,
    NullTests,
    cell,
    count_of,
    pairs,
    reasons,
    versus,
    which,
)

KEY: Final = "latency"
TITLE: Final = "Latency"
# Columns of the first table; the second has every difference that there is.
BY: Final = ("broker", "kbroker_version", "measure", "acks", "size_bytes", "in_flight")
NAMES: Final = {
    "size_bytes": "size, B", "in_flight": "in flight", "batch_bytes": "batch, B",
    "linger_ms": "linger, ms", "knob_value": "value", "kbroker_version": "version",
    "rate": "rate, 1/s", "round_trip_us": "round trip, us",
}  # fmt: skip
ROWS_MAX: Final = 300
PLOT_GROUPS_MAX: Final = 40
PERCENTILES: Final = tuple(map(percentiles.name_of, percentiles.PERCENTS))
COLUMNS: Final = ("p50, ms", "p95, ms", "p99, ms", "p99.9, ms")

Group = dict[str, Any]


def section(inputs: Inputs, blocks: list[Block]) -> Section:
    by_work = (*IDENTITY, "broker", "acks")
    fine = groups(inputs, by_work)
    if not fine:
        return Section(KEY, TITLE, (
            "No measured blocks in this span: `kbroker perf compare` (or `produce`, `consume`,"
            " `e2e`) publishes them with `--results-bootstrap HOST:PORT`.",
        ))  # fmt: skip
    coarse = groups(inputs, BY)
    compared = acks_pairs(blocks)
    said = [
        f"{number(sum(g['total'] for g in coarse))} durations of"
        f" {sum(g['blocks'] for g in coarse):,} blocks, merged by their buckets: no percentile here"
        " is an average of percentiles.",
        _acks_words(compared),
    ]
    tables = [
        _table(inputs, "By acks, size and requests in flight", coarse, BY,
               "Different work may share a line here; the next table tells it apart."),
        _table(inputs, "Every kind of work", fine, ("broker", *_without_broker(by_work)), ""),
    ]  # fmt: skip
    if compared:
        tables.append(_acks_table(inputs, compared))
    return Section(KEY, TITLE, tuple(said), tuple(tables), _plots(coarse))


def groups(inputs: Inputs, by: tuple[str, ...], where: str = "true") -> list[Group]:
    """Merged histograms of the blocks by these columns, percentiles in ns."""
    frame = inputs.results.where("kind = 'block' AND size(buckets) > 0").where(where)
    found = percentiles.merged(frame, by, ends=("min_ns", "max_ns"))
    places = [f"{percentiles.middle(name)} AS {name}" for name in PERCENTILES]
    rows = collected(
        found.selectExpr(*by, "least", "most", "blocks", "total", *places).where("total > 0")
    )
    for row in rows:
        for name in PERCENTILES:
            row[name] = clipped(row[name], row["least"], row["most"])
    return sorted(rows, key=lambda row: _order(row, by))


def _order(row: Group, by: tuple[str, ...]) -> list[tuple[bool, Any]]:
    """Nulls last; numbers by size."""
    return [(row[name] is None, "" if row[name] is None else row[name]) for name in by]


def _without_broker(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name != "broker")


def _table(inputs: Inputs, title: str, found: list[Group], by: tuple[str, ...], note: str) -> Table:
    columns = [n for n in by if n in differing(found, by) or n in ("broker", "acks")]
    once = {n: v for n, v in common(found, by).items() if n not in columns}
    rows = []
    for group in found[:ROWS_MAX]:
        who = same({name: group[name] for name in by})
        source = inputs.rows(
            "results", group["blocks"], "kind = 'block' AND size(buckets) > 0", who
        )
        cells: list[Cell] = [words(shown_value(name, group[name])) for name in columns]
        cells += [figure(group["blocks"], source), figure(group["total"], source)]
        for name in PERCENTILES:
            value = None if group[name] is None else group[name] / 1e6
            cells.append(figure(value, source))
        rows.append(tuple(cells))
    said = [f"In all lines: {', '.join(f'{k} {shown_value(k, v)}' for k, v in once.items())}."]
    if len(found) > ROWS_MAX:
        said.append(f"{len(found) - ROWS_MAX:,} more lines are in the table `results`.")
    head = [NAMES.get(name, name) for name in columns]
    text = " ".join([note, *(said if once else said[1:])]).strip()
    return Table(title, (*head, "blocks", "durations", *COLUMNS), tuple(rows), text)


def shown_value(name: str, value: Any) -> str:
    """A dimension's value as the tables have it."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return number(value)
    if name == "acks":
        return {-1: "-1 (all)"}.get(value, str(value))
    return f"{value:,}" if isinstance(value, int) else brief(value)


def _plots(coarse: list[Group]) -> tuple[Plot, ...]:
    """p50 and p99 of each line of the first table, by the measure."""
    made = []
    for measure in dict.fromkeys(group["measure"] for group in coarse):
        mine = [group for group in coarse if group["measure"] == measure][:PLOT_GROUPS_MAX]
        apart = [name for name in differing(mine, BY) if name != "broker"]
        series = []
        for broker in dict.fromkeys(group["broker"] for group in mine):
            its = [group for group in mine if group["broker"] == broker]
            x = tuple(_label(group, apart) for group in its)
            for name in ("p50", "p99"):
                y = tuple(float("nan") if g[name] is None else g[name] / 1e6 for g in its)
                series.append(Series(f"{brief(broker)} {name}", x, y))
        title = f"Latency, {brief(measure)}"
        made.append(Plot(title, "bars", "work", "ms", tuple(series), log_y=True))
    return tuple(made)


def _label(group: Group, apart: list[str]) -> str:
    parts = [_TOLD[name].format(shown_value(name, group[name])) for name in apart
            if group[name] is not None]  # fmt: skip
    return ", ".join(parts) or "all"


_TOLD: Final = {
    "kbroker_version": "{}",
    "measure": "{}",
    "acks": "acks {}",
    "size_bytes": "{} B",
    "in_flight": "{} in flight",
}


# -- acks


def acks_pairs(blocks: list[Block]) -> list[Beside]:
    """Every work that was done with acks -1 and 1 in the same rounds of the same runs.

    Everything but acks is equal, or everything but acks and the cell's name.
    """
    null = NullTests(blocks)
    names = tuple(name for name in IDENTITY if name != "cell")
    found = []
    firsts = [block for block in blocks if not block.again]
    for many in grouped(firsts, (*names, "broker")).values():
        by_acks = grouped(many, ("acks", "cell"))
        ones = [(name, its) for (acks, name), its in by_acks.items() if acks == 1]
        for (acks, name), ours in by_acks.items():
            if acks != -1:
                continue
            ones.sort(key=lambda one: one[0] != name)  # of the same name, if it has a round
            beside = next((both for _, its in ones if (both := pairs(ours, its))), ())
            if beside:
                own = null.of(ours[0], (ours[0]["broker"],), apart=("cell",))
                found.append(Beside(beside, own))
    return found


def _acks_words(compared: list[Beside]) -> str:
    if not compared:
        return (
            "acks=-1 and acks=1 were not measured on the same work in one run, so they are not"
            " compared."
        )
    ratios = [versus(found, P99) for found in compared]
    decided = [one for one in ratios if one is not None and one.decided]
    if not decided:
        return (
            f"acks=-1 against acks=1: no result on any of {len(compared)} kinds of work; the table"
            " says why."
        )
    slower = sum(one.estimate.median > 1 for one in decided)
    return (
        f"acks=-1 against acks=1, p99 on identical work: higher in {slower}, lower in"
        f" {len(decided) - slower}, without result in {len(compared) - len(decided)} of"
        f" {len(compared)} kinds of work."
    )


def _acks_table(inputs: Inputs, compared: list[Beside]) -> Table:
    names = ("broker", *(name for name in IDENTITY if name != "cell"))
    firsts = [found.first.row for found in compared]
    columns = [n for n in names if n in differing(firsts, names) or n == "broker"]
    rows = []
    for found in compared[:ROWS_MAX]:
        first = found.first
        who = same({name: first[name] for name in names})
        every = inputs.rows(
            "results", count_of(found.every), "kind = 'block'", who, which(found.every)
        )
        ratios = [versus(found, measure) for measure in (P50, P99, REQUESTS)]
        cells = [words(shown_value(name, first[name])) for name in columns]
        cells += [figure(len(found.quiet), every), *(cell(one, every) for one in ratios)]
        cells.append(words(reasons(ratios, ("p50", "p99", "requests/s"))))
        rows.append(tuple(cells))
    head = [NAMES.get(name, name) for name in columns]
    return Table(
        "acks=-1 against acks=1",
        (*head, "quiet rounds", "p50 x", "p99 x", "requests/s x", "no result"),
        tuple(rows),
        f"-1 / 1. {NOTE}",
    )
