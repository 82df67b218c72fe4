"""The chapters of a report: each takes the tables of a span and gives one Section.

`everything` makes them all. A section that fails does not take the others with it: it becomes a
section that says so in a line, and the caller learns which. The order is the page's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from spark_jobs.report_model import Section
    from spark_jobs.sections.inputs import Inputs

Say = Callable[[str], None]
ERROR_CHARS_MAX: Final = 300


class Made(NamedTuple):
    """The sections, and the keys of those that could not be made."""

    sections: tuple[Section, ...]
    failed: tuple[str, ...]


def everything(
    inputs: Inputs,
    say: Say = lambda line: None,
    *,
    disk: Literal["ssd", "hdd"] = "ssd",
) -> Made:
    """All sections, the overview first. `say` is called with each title before it is made."""
    from spark_jobs.sections import (
        alerts,
        blocks,
        brokers,
        figures,
        forecast,
        history,
        hot,
        inside,
        latency,
        overview,
        pipeline,
        pipelining,
        replication,
        share_groups,
        silence,
        stages,
        studies,
        traffic,
        transactions,
    )

    measured: list[blocks.Block] = []

    def of_blocks(make: Callable[[Inputs, list[blocks.Block]], Section]) -> Section:
        if not measured:
            measured.extend(blocks.blocks(inputs.results))
        return make(inputs, measured)

    @functools.cache
    def listened() -> silence.Listened:
        return silence.listen(inputs)

    makers: tuple[tuple[str, str, Callable[[], Section]], ...] = (
        (silence.KEY, silence.TITLE, lambda: silence.section(inputs, listened())),
        (brokers.KEY, brokers.TITLE, lambda: of_blocks(brokers.section)),
        (latency.KEY, latency.TITLE, lambda: of_blocks(latency.section)),
        (studies.KEY, studies.TITLE, lambda: of_blocks(studies.section)),
        (pipelining.KEY, pipelining.TITLE, lambda: of_blocks(pipelining.section)),
        (figures.KEY, figures.TITLE, lambda: figures.section(inputs)),
        (traffic.KEY, traffic.TITLE, lambda: traffic.section(inputs, listened())),
        (replication.KEY, replication.TITLE, lambda: replication.section(inputs, listened())),
        (transactions.KEY, transactions.TITLE, lambda: transactions.section(inputs, listened())),
        (share_groups.KEY, share_groups.TITLE, lambda: share_groups.section(inputs, listened())),
        (stages.KEY, stages.TITLE, lambda: stages.section(inputs, listened())),
        (inside.KEY, inside.TITLE, lambda: inside.section(inputs, listened())),
        (history.KEY, history.TITLE, lambda: history.section(inputs)),
        (hot.KEY, hot.TITLE, lambda: hot.section(inputs)),
        (forecast.KEY, forecast.TITLE, lambda: forecast.section(inputs, listened())),
        (alerts.KEY, alerts.TITLE, lambda: alerts.section(inputs, listened(), disk)),
        (pipeline.KEY, pipeline.TITLE, lambda: pipeline.section(inputs)),
    )
    made, failed = [], []
    for key, title, make in makers:
        say(title)
        try:
            made.append(make())
        except Exception as error:
            failed.append(key)
            made.append(_failed(key, title, error))
    first = overview.section(inputs, made)
    return Made((first, *made), tuple(failed))


def _failed(key: str, title: str, error: Exception) -> Section:
    """In the place of a section that could not be made."""
    from spark_jobs.report_model import Finding, Section

    what = f"{title} could not be made: {_line(error)}"
    return Section(key, title, (), findings=(Finding(what, severity="unknown"),))


def _line(error: Exception) -> str:
    """One line of it: Spark's run over pages."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text[:ERROR_CHARS_MAX]
