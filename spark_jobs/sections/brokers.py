"""Apache Kafka beside kbroker: every piece of work that both did, round by round.

A ratio is kbroker over Kafka of one round, whose blocks ran one after the other on one machine;
what is shown is the median of the rounds with its bootstrap interval (perf.stats). An interval with
1 in it, fewer than three pairs, or a noisy machine decide nothing, and the table says which.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

from spark_jobs.report_model import Cell, Plot, Section, Series, Table
from spark_jobs.sections.blocks import (
    BLOCKS_MAX,
    CPU,
    IDENTITY,
    MEGABYTES,
    P50,
    P99,
    PAIRS_MIN,
    REQUESTS,
    Block,
    Measure,
    Versus,
    believed,
    count_of,
    grouped,
    pairs,
    versus,
    which,
)
from spark_jobs.sections.cells import brief, figure, number, words
from spark_jobs.sections.inputs import Inputs

KEY: Final = "brokers"
TITLE: Final = "Apache Kafka and kbroker"
OURS: Final = "kbroker"
THEIRS: Final = "kafka"
MEASURES: Final = (CPU, REQUESTS, MEGABYTES, P50, P99)
ROWS_MAX: Final = 200
PLOT_CELLS_MAX: Final = 40

Pairs = list[tuple[Block, Block]]
Line = tuple[Block, Pairs, list["Versus | None"]]


def section(inputs: Inputs, blocks: list[Block]) -> Section:
    lines = [
        (found[0][0], found, [versus(found, measure) for measure in MEASURES])
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


def compared(blocks: Sequence[Block]) -> list[Pairs]:
    """By kind of work: pairs of our block and Kafka's in the same round."""
    found = []
    names = tuple(name for name in IDENTITY if name != "kbroker_version")
    for many in grouped(blocks, (*names, "acks")).values():
        ours = [block for block in many if block["broker"] == OURS]
        theirs = [block for block in many if block["broker"] == THEIRS]
        beside = pairs(ours, theirs)
        if beside:
            found.append(believed(beside))
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
            "undecided": verdicts.count("open"),
        }  # fmt: skip
        told = ", ".join(f"{word} in {count}" for word, count in counts.items() if count)
        said.append(f"{measure.name}, {_kinds(len(found))} of work: kbroker is {told}.")
    machines = sorted({brief(line[0]["machine"]) for line in lines})
    said.append(f"Measured on {'; '.join(machines)}.")
    if blocks > BLOCKS_MAX:
        said.append(f"Only the newest {BLOCKS_MAX:,} blocks of the span were looked at.")
    return tuple(said)


def _kinds(count: int) -> str:
    return f"{count} kind{'' if count == 1 else 's'}"


def _name(block: Block) -> str:
    return f"{brief(block['study'])} {brief(block['cell'])}"


def _names(lines: list[Line]) -> list[str]:
    """Of each kind of work: study and cell, with what tells equal names apart."""
    plain = [_name(line[0]) for line in lines]
    apart = ("acks", "size_bytes", "in_flight", "connections", "batch_bytes", "linger_ms", "mode",
             "knob", "knob_value", "measure", "machine")  # fmt: skip
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
        behind = inputs.rows("results", count_of(found), which(found))
        noisy = len({id(b) for pair in found for b in pair if b.noisy})
        cells: list[Cell] = [words(name), figure(len(found), behind), figure(noisy, behind)]
        for one in ratios:
            cells.append(
                words("-") if one is None
                else figure(one.estimate.median, behind, one.text, one.verdict)
            )  # fmt: skip
        open_ = [one.why_open for one in ratios if one is not None and one.why_open]
        cells.append(words(open_[0] if len(open_) == len(ratios) else "" if not open_ else "some"))
        rows.append(tuple(cells))
    return Table(
        "kbroker / Apache Kafka",
        ("work", "rounds", "noisy blocks", *(f"{m.name.partition(',')[0]} x" for m in MEASURES),
         "undecided"),
        tuple(rows),
        "Median ratio [95 % bootstrap interval] over the rounds; below 1 is better for CPU and"
        f" latency, above 1 for throughput. {PAIRS_MIN} pairs from a quiet machine for a verdict;"
        " where there are so many, the rounds of a noisy one are left out.",
    )  # fmt: skip


def _medians(inputs: Inputs, lines: list[Line]) -> Table:
    """What each broker did: medians over its blocks, with how far they spread."""
    rows = []
    for (_, found, _), name in list(zip(lines, _names(lines), strict=True))[:ROWS_MAX]:
        for side, broker in ((0, OURS), (1, THEIRS)):
            mine = list({id(pair[side]): pair[side] for pair in found}.values())
            alone = [(block, block) for block in mine]
            behind = inputs.rows("results", count_of(alone), which(alone))
            values = [_spread(mine, measure) for measure in MEASURES]
            rows.append((
                words(name), words(broker),
                *(words("-") if value is None else figure(value[0], behind, value[1])
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
    shown = lines[:PLOT_CELLS_MAX]
    names = _names(lines)[:PLOT_CELLS_MAX]
    made = []
    for measure, title in ((CPU, "CPU for each request"), (REQUESTS, "Requests a second"),
                           (P99, "p99")):  # fmt: skip
        at = MEASURES.index(measure)
        have = [
            (name, one.estimate) for line, name in zip(shown, names, strict=True)
            if (one := line[2][at]) is not None
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
