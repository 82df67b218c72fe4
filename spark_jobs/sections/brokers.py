"""Apache Kafka beside kbroker: every piece of work that both did, round by round.

A ratio is kbroker over Kafka of one round, whose blocks ran one after the other on one machine;
the table has the median of the quiet rounds with its interval, judged as perf judges its own
(paired.py). A ratio without a result says why.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

from spark_jobs.report_model import Cell, Plot, Section, Series, Table
from spark_jobs.sections.blocks import (
    BLOCKS_MAX,
    CPU,
    CPU_OWN,
    IDENTITY,
    MEGABYTES,
    P50,
    P99,
    REQUESTS,
    Block,
    Measure,
    grouped,
)
from spark_jobs.sections.cells import brief, figure, number, words
from spark_jobs.sections.inputs import Inputs
from spark_jobs.sections.paired import (
    NOTE,
    Beside,
    NullTests,
    Versus,
    cell,
    count_of,
    pairs,
    reasons,
    versus,
    which,
)

KEY: Final = "brokers"
TITLE: Final = "Apache Kafka and kbroker"
OURS: Final = "kbroker"
THEIRS: Final = "kafka"
MEASURES: Final = (CPU, CPU_OWN, REQUESTS, MEGABYTES, P50, P99)
SHORT: Final = tuple(measure.name.partition(",")[0] for measure in MEASURES)
ROWS_MAX: Final = 200
PLOT_CELLS_MAX: Final = 40

Line = tuple[Block, Beside, list["Versus | None"]]


def section(inputs: Inputs, blocks: list[Block]) -> Section:
    lines = [
        (found.first, found, [versus(found, measure) for measure in MEASURES])
        for found in compared(blocks)
    ]
    if not lines:
        return Section(KEY, TITLE, (
            "No work that both brokers did in one run in this span: `kbroker perf compare"
            " --results-bootstrap HOST:PORT` measures and publishes it.",
        ))  # fmt: skip
    return Section(
        KEY, TITLE, _words(lines, len(blocks)),
        (_ratios(inputs, lines), _medians(inputs, lines)), _plots(lines),
    )  # fmt: skip


def compared(blocks: Sequence[Block]) -> list[Beside]:
    """By kind of work and version of kbroker: pairs of our block and Kafka's in the same round."""
    found = []
    null = NullTests(blocks)
    firsts = [block for block in blocks if not block.again]
    for many in grouped(firsts, (*IDENTITY, "acks")).values():
        ours = [block for block in many if block["broker"] == OURS]
        theirs = [block for block in many if block["broker"] == THEIRS]
        beside = pairs(ours, theirs)
        if beside:
            own = null.of(ours[0], (OURS, THEIRS))
            found.append(Beside(beside, own))
    return found


def _words(lines: list[Line], blocks: int) -> tuple[str, ...]:
    said = []
    for at, measure in enumerate(MEASURES):
        found = [line[2][at] for line in lines if line[2][at] is not None]
        verdicts = [one.verdict for one in found if one is not None]
        if not found:
            continue
        counts = {
            "better": verdicts.count("good"), "worse": verdicts.count("bad"),
            "without result": verdicts.count("open"),
        }  # fmt: skip
        listed = ", ".join(f"{word} in {count}" for word, count in counts.items() if count)
        said.append(f"{measure.name}, {_kinds(len(found))} of work: kbroker is {listed}.")
    machines = sorted({brief(line[0]["machine"]) for line in lines})
    said.append(f"Measured on {'; '.join(machines)}.")
    versions = {line[0]["kbroker_version"] for line in lines}
    if len(versions) > 1:
        said.append(f"{len(versions)} versions of kbroker, each in lines of its own.")
    if blocks > BLOCKS_MAX:
        said.append(f"Only the newest {BLOCKS_MAX:,} blocks of the span were looked at.")
    return tuple(said)


def _kinds(count: int) -> str:
    return f"{count} kind{'' if count == 1 else 's'}"


def _name(block: Block) -> str:
    return f"{brief(block['study'])} {brief(block['cell'])}"


def _names(lines: list[Line]) -> list[str]:
    """Of each kind of work: study and cell, with the columns that distinguish equal names."""
    plain = [_name(line[0]) for line in lines]
    apart = ("acks", "size_bytes", "in_flight", "connections", "batch_bytes", "linger_ms", "mode",
             "knob", "knob_value", "measure", "machine", "kbroker_version")  # fmt: skip
    names = []
    for line, name in zip(lines, plain, strict=True):
        same_name = [other[0] for other, its in zip(lines, plain, strict=True) if its == name]
        differ = [n for n in apart if len({block[n] for block in same_name}) > 1]
        more = ", ".join(f"{n} {brief(line[0][n])}" for n in differ)
        names.append(f"{name} ({more})" if more else name)
    return names


def _ratios(inputs: Inputs, lines: list[Line]) -> Table:
    rows = []
    for (_, found, ratios), name in list(zip(lines, _names(lines), strict=True))[:ROWS_MAX]:
        source = inputs.rows("results", count_of(found.every), which(found.every))
        left_out = len(found.every) - len(found.quiet)
        cells: list[Cell] = [
            words(name), figure(len(found.quiet), source), figure(left_out, source),
        ]  # fmt: skip
        cells += [cell(one, source) for one in ratios]
        cells.append(words(reasons(ratios, SHORT)))
        rows.append(tuple(cells))
    return Table(
        "kbroker / Apache Kafka",
        ("work", "quiet rounds", "left out", *(f"{name} x" for name in SHORT), "no result"),
        tuple(rows),
        f"{NOTE} Below 1 is better for CPU and latency, above 1 for throughput.",
    )  # fmt: skip


def _medians(inputs: Inputs, lines: list[Line]) -> Table:
    """What each broker did: medians over its blocks, with how far they spread."""
    rows = []
    for (_, found, _), name in list(zip(lines, _names(lines), strict=True))[:ROWS_MAX]:
        for side, broker in ((0, OURS), (1, THEIRS)):
            mine = [pair[side] for pair in found.every]
            alone = [(block, block) for block in mine]
            source = inputs.rows("results", count_of(alone), which(alone))
            values = [_spread(mine, measure) for measure in MEASURES]
            rows.append((
                words(name), words(broker),
                *(words("-") if value is None else figure(value[0], source, value[1])
                  for value in values),
            ))  # fmt: skip
    return Table(
        "Both brokers", ("work", "broker", *(measure.name for measure in MEASURES)), tuple(rows),
        "Medians over the blocks (lowest to highest).",
    )  # fmt: skip


def _spread(blocks: list[Block], measure: Measure) -> tuple[float, str] | None:
    values = [value for block in blocks if (value := measure.of(block)) is not None]
    if not values:
        return None
    middle = statistics.median(values)
    return middle, f"{number(middle)} ({number(min(values))} to {number(max(values))})"


def _plots(lines: list[Line]) -> tuple[Plot, ...]:
    drawn = lines[:PLOT_CELLS_MAX]
    names = _names(lines)[:PLOT_CELLS_MAX]
    made = []
    for measure, title in ((CPU, "CPU for each request"), (REQUESTS, "Requests a second"),
                           (P99, "p99")):  # fmt: skip
        at = MEASURES.index(measure)
        have = [
            (name, one.estimate) for line, name in zip(drawn, names, strict=True)
            if (one := line[2][at]) is not None and one.pairs
        ]  # fmt: skip
        if not have:
            continue
        series = Series(
            "kbroker / Kafka",
            tuple(name for name, _ in have),
            tuple(one.median for _, one in have),
            tuple(one.low for _, one in have),
            tuple(one.high for _, one in have),
        )
        made.append(Plot(f"{title}: kbroker / Kafka", "intervals", "work", "ratio", (series,),
                         reference=1.0))  # fmt: skip
    return tuple(made)
