"""What a study concludes: a question, an answer in a sentence, and the ratios that it follows from.

Data that every study ends in, whichever way it got there: printed, in the JSON, published as the
verdict rows of perf/results_table.py. `decided` is False where the blocks do not bear an answer;
the sentence then says "no result" and why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perf.judge import Verdict
from perf.measurement import Figure
from perf.studies.study import Dim, Outcome

if TYPE_CHECKING:
    from perf.results import Results


@dataclass(frozen=True)
class Conclusion:
    """One verdict row. `dims`: what of the study it is about (results_table.DIMENSIONS)."""

    question: str
    answer: str
    decided: bool
    evidence: Mapping[str, Any]
    dims: Mapping[str, Dim] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "question": self.question,
            "answer": self.answer,
            "decided": self.decided,
            "evidence": dict(self.evidence),
            "dims": dict(self.dims),
        }


def from_verdicts(
    question: str, verdicts: Mapping[str, Verdict], dims: Mapping[str, Dim]
) -> Conclusion:
    """An answer that lists each metric's ratio; decided if one of them is."""
    return Conclusion(
        question,
        _sentence(verdicts),
        any(verdict.decided for verdict in verdicts.values()),
        {name: verdict.to_json() for name, verdict in verdicts.items()},
        dims,
    )


def _sentence(verdicts: Mapping[str, Verdict]) -> str:
    """Every metric's words; one reason for all is said once."""
    reasons = {verdict.reason for verdict in verdicts.values()}
    if len(reasons) == 1 and not any(verdict.ratio.values for verdict in verdicts.values()):
        return f"no result ({reasons.pop()})"
    return "; ".join(f"{name} {verdict.words()}" for name, verdict in verdicts.items())


def publish(
    outcome: Outcome,
    conclusions: Iterable[Conclusion],
    results: Results,
    figures: Iterable[Figure] = (),
) -> None:
    """Every block, those of null tests too, then figures and conclusions, as the topic's records.

    A block that timed several things is one record with its counts, and one more for each further
    histogram, so that nothing is counted twice.
    """
    for point in outcome.points:
        nothing: dict[str, bool] = {}
        again = [
            (number, second, {"again": True})
            for number, (_, second) in sorted(outcome.null.get(point.key, {}).items())
        ]
        first = [(number, one, nothing) for number, one in sorted(outcome.of(point.key).items())]
        for number, one, null_test in [*first, *again]:
            counts: dict[str, Any] = {
                "requests": one.requests,
                "records": one.records,
                "bytes": one.bytes,
                "wall_s": one.wall_s,
                "broker_cpu_s": one.broker_cpu_s,
                "own_cpu_s": one.own_cpu_s,
            }
            about = {
                **point.dims,
                **null_test,
                "round": number,
                "others_cpu": one.guard.others,
                "steal": one.guard.steal,
                "quiet": one.quiet,
                "event_time_ms": one.ended_at_ms or None,
            }
            for measure, histogram in one.histograms.items():
                results.block(latency=histogram, measure=measure, **{**about, **counts})
                counts = {}
    for figure in figures:
        results.figure(figure.name, figure.value, figure.unit, **figure.dims)
    for conclusion in conclusions:
        results.verdict(
            conclusion.question,
            conclusion.answer,
            decided=conclusion.decided,
            evidence=conclusion.evidence,
            **conclusion.dims,
        )
