"""What the blocks of the latency study say to the document's questions. Pure functions.

Every comparison is of medians (p50) from send() to the consumer, pooled over the conditions of one
*way of sending*: paced without linger, paced with linger, flat out. Each way gets its verdict
(perf.judge), with the null test of the same way; the sentence lists where the answer is yes, where
it is the opposite, and where there is no result. Nothing is said that does not stand in the ratios.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from perf.judge import Verdict
from perf.studies.conclusion import Conclusion
from perf.studies.conditions import MODES, RATE, Condition, is_null
from perf.studies.measured import END_TO_END, Measured
from perf.studies.study import Outcome
from perf.studies.verdict import ROUNDS_MIN, Rounds, pool

FROM_DUE, ACKNOWLEDGED = "from-due", "acknowledged"  # what else a block times
HELD_MIN = 0.98  # of the intended records: less, and the rate was not held
EXPLAINED = 1.25  # linger explains times within this factor of its prediction
PACED, LINGERING, FLAT = "paced without linger", "paced with linger", "flat out"
WAYS = (PACED, LINGERING, FLAT)


def p50_us(one: Measured) -> float:
    return one.percentile_us(END_TO_END, 50)


def p99_us(one: Measured) -> float:
    return one.percentile_us(END_TO_END, 99)


def way_of(condition: Condition) -> str:
    if condition.load == "flat-out":
        return FLAT
    return LINGERING if condition.linger_ms else PACED


class Study:
    """The outcome by broker and condition."""

    def __init__(
        self,
        outcome: Outcome,
        conditions: Sequence[Condition],
        brokers: Sequence[str],
        replicas: int = 1,
    ) -> None:
        self.outcome = outcome
        self.replicas = replicas
        self.brokers = tuple(brokers)
        self.conditions = tuple(conditions)
        self.plain = tuple(one for one in conditions if not one.knob)

    def rounds(self, broker: str, condition: Condition) -> Rounds:
        return self.outcome.of(condition.key(broker))

    def median(
        self, broker: str, condition: Condition, metric: Callable[[Measured], float]
    ) -> float:
        """Over the rounds; NaN where there is no block."""
        found = [metric(one) for one in self.rounds(broker, condition).values()]
        return statistics.median(found) if found else float("nan")

    def null(
        self, brokers: Iterable[str], way: str, modes: Iterable[str]
    ) -> list[tuple[Measured, Measured]]:
        """The null test's pairs of the same way of sending."""
        wanted = set(modes)
        keys = [
            condition.key(broker)
            for broker in brokers
            for condition in self.plain
            if is_null(condition) and way_of(condition) == way and condition.mode in wanted
        ]
        return self.outcome.null_pairs(keys)

    def swapped(
        self, broker: str, way: str, mode: str, change: Callable[[Condition], Condition]
    ) -> list[tuple[Rounds, Rounds]]:
        """(changed, as it is) of every condition of a way and mode that was measured both ways."""
        found = []
        for one in self.plain:
            if way_of(one) == way and one.mode == mode and change(one) != one:
                ours, theirs = self.rounds(broker, change(one)), self.rounds(broker, one)
                if ours and theirs:
                    found.append((ours, theirs))
        return found


def answers(study: Study) -> list[Conclusion]:
    """Every question of the study, broker by broker, then between the brokers."""
    found = []
    for broker in study.brokers:
        found += [acks_zero(study, broker, other) for other in (1, -1)]
        found.append(async_against_sync(study, broker))
        if study.replicas > 1:
            found.append(followers(study, broker))
        found += [linger(study, broker), queue(study, broker)]
        found += other_settings(study, broker)
    if {"kbroker", "kafka"} <= set(study.brokers):
        found.append(between(study))
    if study.replicas == 1:
        found += NOT_REPLICATED
    return found


NOT_REPLICATED: Final = (
    Conclusion(
        "The document's own case: async, three replicas, acks=-1",
        "No result: it needs replication, --replicas 3; with one replica the broker answers acks=-1"
        " as soon as acks=1.",
        False,
        {},
        {"acks": -1, "mode": "async"},
    ),
    Conclusion(
        "What does replica.fetch.max.bytes change?",
        "No result: it bounds what a follower fetches, and so needs replication as well.",
        False,
        {},
        {"knob": "replica.fetch.max.bytes"},
    ),
)


def _sentence(verdicts: Mapping[str, Verdict], more: str, less: str) -> str:
    """Which ways say what: "Slower: flat out, 3.1 times (...). No result: ..."."""
    parts = []
    for word, direction in ((more, "more"), (less, "less"), ("No result", "")):
        said = [
            f"{way} {one.seen()}" for way, one in verdicts.items() if one.direction == direction
        ]
        if said:
            parts.append(f"{word}: {'; '.join(said)}.")
    return " ".join(parts)


def _headline(verdicts: Mapping[str, Verdict]) -> str:
    """Yes, no, or what else the verdicts carry; "" where none is decided."""
    directions = {one.direction for one in verdicts.values() if one.decided}
    if directions == {"more"}:
        return "Yes." if all(one.decided for one in verdicts.values()) else "Yes, in part."
    if directions == {"less"}:
        return "No."
    return "It depends." if directions else ""


def _decided(verdicts: Mapping[str, Verdict]) -> bool:
    return any(one.decided for one in verdicts.values())


def _json(verdicts: Mapping[str, Verdict]) -> dict[str, Any]:
    return {way: one.to_json() for way, one in verdicts.items()}


def acks_zero(study: Study, broker: str, other: int) -> Conclusion:
    question = f"Is acks=0 slower end to end than acks={other}?"
    return _of_acks(study, broker, question, 0, other)


def followers(study: Study, broker: str) -> Conclusion:
    """Where acks=-1 waits for others: the document's own case is among these."""
    question = f"With {study.replicas} replicas, is acks=-1 slower end to end than acks=1?"
    return _of_acks(study, broker, question, -1, 1)


def _of_acks(study: Study, broker: str, question: str, ours: int, theirs: int) -> Conclusion:
    """One value of acks against another, everything else the same."""

    def changed(one: Condition) -> Condition:
        return replace(one, acks=ours) if one.acks == theirs else one

    verdicts = {
        f"{way}, {mode}": pool(cells, p50_us, null=study.null([broker], way, [mode]))
        for way in WAYS
        for mode in MODES
        if (cells := study.swapped(broker, way, mode, changed))
    }
    return Conclusion(
        question,
        f"{_headline(verdicts)} {_sentence(verdicts, 'Slower', 'Faster')}".lstrip(),
        _decided(verdicts),
        _json(verdicts),
        {"broker": broker},
    )


def async_against_sync(study: Study, broker: str) -> Conclusion:
    """Is async slower end to end than sync?"""
    verdicts = {
        way: pool(cells, p50_us, null=study.null([broker], way, MODES))
        for way in WAYS
        if (cells := study.swapped(broker, way, "sync", lambda one: replace(one, mode="async")))
    }
    return Conclusion(
        "Is async slower end to end than sync?",
        f"{_headline(verdicts)} {_sentence(verdicts, 'Slower', 'Faster')}".lstrip()
        + _not_held(study, broker),
        _decided(verdicts),
        _json(verdicts),
        {"broker": broker},
    )


def _not_held(study: Study, broker: str) -> str:
    """Where sync did not keep its schedule, in a sentence; "" if nowhere."""
    rates: dict[int, float] = {}
    for one in study.plain:
        if way_of(one) == LINGERING and one.mode == "sync" and one.acks == 1:
            held = study.median(broker, one, lambda block: block.figures.get("held", 1.0))
            if held < HELD_MIN:
                rates[one.linger_ms] = held * one.rate
    if not rates:
        return ""
    listed = ", ".join(f"{rates[ms]:,.0f}/s with linger {ms}" for ms in sorted(rates))
    return (
        f" With linger, sync did not hold {RATE:,.0f}/s (acks=1: {listed}): each record waits "
        "alone for all of it, and from when it was due it is ever later."
    )


# --- where the time goes ------------------------------------------------------------------------


def predicted_us(study: Study, broker: str, condition: Condition) -> float:
    """p50 of the same without linger, and what its median record waits for linger."""
    bare = study.median(broker, replace(condition, linger_ms=0), p50_us)
    return bare + condition.wait_ms * 1000


def linger(study: Study, broker: str) -> Conclusion:
    """Does linger explain the times of records sent with a linger?"""
    question = "Where does the time of a paced record come from?"
    logs: dict[str, Verdict] = {}
    shares: list[float] = []
    for mode in MODES:
        cells = []
        for one in study.plain:
            if way_of(one) != LINGERING or one.mode != mode:
                continue
            predicted = predicted_us(study, broker, one)
            if not predicted > 0:
                continue
            found = study.rounds(broker, one)
            cells.append((found, {number: _constant(block, predicted)
                                  for number, block in found.items()}))  # fmt: skip
            bare = study.median(broker, replace(one, linger_ms=0), p50_us)
            shares.append(1 - bare / predicted)
        if cells:
            logs[mode] = pool(cells, p50_us)
    usable = {mode: one for mode, one in logs.items() if one.rounds >= ROUNDS_MIN}
    if not usable or not shares:
        return Conclusion(
            question,
            "No result: too few usable rounds with linger.",
            False,
            _json(logs),
            {"broker": broker},
        )
    explained = all(
        one.ratio.low >= 1 / EXPLAINED and one.ratio.high <= EXPLAINED for one in usable.values()
    )
    listed = "; ".join(f"{mode} {one.numbers()}" for mode, one in usable.items())
    head = "From linger. " if explained else "Not from linger alone. "
    words = (
        f"{head}With linger, p50 against what linger predicts (p50 without it, and what the median "
        "record of a batch waits until linger is over or the batch full; sync: all of linger): "
        f"{listed}. That wait is {min(shares):.0%} to {max(shares):.0%} of the prediction."
    )
    return Conclusion(question, words, True, {**_json(logs), "shares": shares}, {"broker": broker})


def _constant(block: Measured, us: float) -> Measured:
    """A block in place of a prediction: as quiet as the one that it is held against."""
    from perf.histogram import Histogram

    return replace(block, histograms={END_TO_END: Histogram.of([int(us * 1000)])})


def queue(study: Study, broker: str) -> Conclusion:
    """How much of a flat-out record's time passes before its acknowledgement?"""
    question = "Where does the time of a record sent flat out come from?"
    listed, evidence = [], {}
    for one in study.plain:
        if one.load != "flat-out":
            continue
        quiet = [block for block in study.rounds(broker, one).values() if block.quiet]
        if len(quiet) < ROUNDS_MIN:
            continue
        whole = statistics.median(map(p50_us, quiet))
        before = statistics.median(block.percentile_us(ACKNOWLEDGED, 50) for block in quiet)
        rate = statistics.median(block.records_per_s for block in quiet)
        if not (whole > 0 and before >= 0):
            continue
        evidence[one.cell] = {"p50_us": whole, "acknowledged_p50_us": before, "records_s": rate}
        if one.batch_bytes == 16 << 10:
            name = "written to the socket" if one.acks == 0 else "acknowledged"
            listed.append(
                f"{one.mode}, acks={one.acks}: {_ms(whole)} in all, {name} after {_ms(before)}"
            )
    if not listed:
        return Conclusion(
            question, "No result: too few quiet rounds flat out.", False, {}, {"broker": broker}
        )
    return Conclusion(
        question,
        "The time before the acknowledgement is the client's queue and one request, the time "
        f"after it the sockets and the consumer. p50 at 16 KB: {'; '.join(listed)}.",
        True,
        evidence,
        {"broker": broker},
    )


def _ms(us: float) -> str:
    return f"{us / 1000:,.1f} ms" if us < 100_000 else f"{us / 1000:,.0f} ms"


def other_settings(study: Study, broker: str) -> list[Conclusion]:
    """Each other key of the document against the same without it."""
    found = []
    for one in study.conditions:
        if not one.knob:
            continue
        base = replace(one, knob="", knob_value="", producer={}, consumer={}, servers={})
        way = way_of(one)
        cells = [(study.rounds(broker, one), study.rounds(broker, base))]
        null = study.null([broker], way, ["async"])
        verdicts = {"p50": pool(cells, p50_us, null=null)}
        if way == FLAT:  # else the schedule decides
            verdicts["records/s"] = pool(cells, lambda block: block.records_per_s, null=null)
        found.append(
            Conclusion(
                f"What does {one.knob} = {one.knob_value} change, {way}, acks={one.acks}?",
                _sentence(verdicts, "More", "Less"),
                _decided(verdicts),
                _json(verdicts),
                {"knob": one.knob, "knob_value": one.knob_value, "broker": broker},
            )
        )
    return found


def between(study: Study) -> Conclusion:
    """kbroker against Apache Kafka, by the way of sending."""
    verdicts: dict[str, Verdict] = {}
    for way in WAYS:
        cells = [
            (study.rounds("kbroker", one), study.rounds("kafka", one))
            for one in study.plain
            if way_of(one) == way
        ]
        null = study.null(("kbroker", "kafka"), way, MODES)
        for name, metric in (("p50", p50_us), ("p99", p99_us)):
            verdicts[f"{way}, {name}"] = pool(cells, metric, null=null)
    return Conclusion(
        "How long does it take through kbroker, against Apache Kafka?",
        _sentence(verdicts, "Longer", "Shorter"),
        _decided(verdicts),
        _json(verdicts),
    )
