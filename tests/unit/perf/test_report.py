"""Bars and tables over made-up blocks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perf import report
from perf.bars import bars
from perf.brokers import BrokerError, KbrokerBroker
from perf.cells import Block
from perf.compare import Outcome, Plan
from perf.histogram import Histogram
from perf.idle import IdleResult
from perf.measured import add_outcome
from perf.paired import paired
from perf.process import Guard

MACHINE = {"model": "test", "cpus": 2, "kernel": "0", "commit": "0", "when": "now", "network": "x"}


def block(
    cell: str,
    broker: str,
    cpu_us: float,
    p50_us: float = 100,
    rate: float = 1000,
    *,
    round: int = 0,
    others: float = 0.0,
) -> Block:
    count = int(rate)
    return Block(
        cell=cell,
        broker=broker,
        requests=count,
        records=count,
        bytes=count * 200,
        wall_s=1.0,
        broker_cpu_s=cpu_us * count / 1e6,
        own_cpu_s=1e-6 * count,
        latency=Histogram.of([int(p50_us * 1e3)] * count),
        end_to_end=Histogram.empty(),
        verified_batches=0,
        guard=Guard(others, 0.0),
        round=round,
    )


def blocks(cell: str, broker: str, *cpu_us: float, others: float = 0.0) -> list[Block]:
    """One of each round."""
    return [
        block(cell, broker, one, round=number, others=others) for number, one in enumerate(cpu_us)
    ]


def outcome_of(cells: dict[str, dict[str, list[Block]]]) -> Outcome:
    return Outcome(Plan(), dict(MACHINE), blocks=cells)


def verdict_of(outcome: Outcome, what: str) -> str:
    (found,) = [bar for bar in bars(outcome) if what in bar.what]
    return found.verdict


CELL, TITLE = "p-100-1x5", "100 B, 1 conn, 5 in flight"


def cpu_bar(ours: list[Block], theirs: list[Block] | None = None) -> tuple[Outcome, str]:
    """The bar 0.4 of Kafka's 100 us for each request."""
    theirs = theirs or blocks(CELL, "kafka", *[100] * 7)
    outcome = outcome_of({CELL: {"kafka": theirs, "kbroker": ours}})
    return outcome, verdict_of(outcome, TITLE)


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ((10, 10, 12, 10, 10, 11), "pass, surely"),
        ((50, 50, 60, 50, 50, 55), "FAIL"),
        ((10, 12, 60, 10, 10, 11), "no result: the bar lies within the interval"),
        ((10, 10, 10, 10, 10), "no result: 5 of 6 rounds needed"),
        ((10,), "no result: 1 of 6 rounds needed"),
        ((90,), "no result: 1 of 6 rounds needed"),
    ],
)
def test_cpu_bar(ours: tuple[float, ...], verdict: str) -> None:
    assert cpu_bar(blocks(CELL, "kbroker", *ours))[1] == verdict


def test_noisy_blocks_pass_no_bar() -> None:
    noisy = blocks(CELL, "kbroker", *[10] * 7, others=0.5)
    said = "no result: 0 of 6 rounds needed (7 noisy left out: something else ran)"
    assert cpu_bar(noisy)[1] == said


def test_single_values_pass_no_bar() -> None:
    outcome = outcome_of({})
    outcome.memory_idle = {"kbroker": 50 << 20}
    outcome.idle = {"kbroker": [IdleResult("kbroker", 10_000, 265.0, 1.0, 0.0, 100, 100, True)]}
    for bar in ("resident memory, idle", "user space of an idle connection", "active client"):
        assert verdict_of(outcome, bar) == "no result: 1 of 6 values needed"


@pytest.mark.parametrize(
    ("again", "said"),
    [
        ([10] * 7, "pass, surely"),
        ([12] * 7, "the null test failed: kbroker's cpu_us_per_request in p-100-1x5 differs from"
                   " itself, 0.83 [0.83, 0.83]"),
        ([10, 8, 12, 10, 10, 13, 10], "differs from itself by up to 1.30"),
    ],
)  # fmt: skip
def test_a_null_test_that_failed_takes_the_bars_beside_it(again: list[float], said: str) -> None:
    outcome, _ = cpu_bar(blocks(CELL, "kbroker", *[10] * 7))
    seconds = blocks(CELL, "kbroker", *again)
    outcome.null = {
        CELL: {"kbroker": list(zip(outcome.blocks[CELL]["kbroker"], seconds, strict=True))}
    }
    assert verdict_of(outcome, TITLE).endswith(said)
    # Of its kind of work, it is beside cells that have none of their own.
    other = "p-1k-1x5"
    outcome.blocks[other] = {
        name: blocks(other, name, *[cpu] * 7) for name, cpu in (("kafka", 100), ("kbroker", 10))
    }
    assert verdict_of(outcome, "1 KB, 1 conn, 5 in flight").endswith(said)


def test_the_null_band_widens_a_bar() -> None:
    outcome, verdict = cpu_bar(blocks(CELL, "kbroker", *[36] * 7))
    assert verdict == "pass, surely"
    again = blocks(CELL, "kbroker", *[36, 31, 41, 36, 36, 36, 36])
    outcome.null = {
        CELL: {"kbroker": list(zip(outcome.blocks[CELL]["kbroker"], again, strict=True))}
    }
    said = "no result: the bar lies within the interval and the null test's 1.16"
    assert verdict_of(outcome, TITLE) == said


def test_a_void_block_leaves_a_hole_in_its_round() -> None:
    """The machine is ten times as slow in the second half: both see it, round by round."""
    slow = [1, 1, 1, 1, 10, 10, 10]
    ours = blocks(CELL, "kbroker", *(10 * by for by in slow))
    theirs = blocks(CELL, "kafka", *(100 * by for by in slow))
    del theirs[0]  # void
    outcome, verdict = cpu_bar(ours, theirs)
    found = paired(outcome, CELL, "cpu_us_per_request", "kbroker", "kafka")
    assert found is not None and found.ratio.values == pytest.approx((0.1,) * 6)
    assert verdict == "pass, surely"
    written = _Written()
    add_outcome(written, outcome)  # type: ignore[arg-type]
    assert written.rounds == {"kbroker": [0, 1, 2, 3, 4, 5, 6], "kafka": [1, 2, 3, 4, 5, 6]}


class _Written:
    """What was published, as far as a test looks at it."""

    def __init__(self) -> None:
        self.rounds: dict[str, list[int]] = {}
        self.again: list[tuple[str, int]] = []

    def block(self, one: Block, _cell: object, *, round: int, again: bool = False) -> None:
        if again:
            self.again.append((one.broker, round))
        else:
            self.rounds.setdefault(one.broker, []).append(round)

    def figure(self, *_words: object, **_fields: object) -> None:
        pass


def test_the_second_block_of_a_null_test_is_published_as_one() -> None:
    outcome, _ = cpu_bar(blocks(CELL, "kbroker", *[10] * 3))
    pairs = [(one, one) for one in outcome.blocks[CELL]["kbroker"][1:]]
    outcome.null = {CELL: {"kbroker": pairs}}
    written = _Written()
    add_outcome(written, outcome)  # type: ignore[arg-type]
    assert written.again == [("kbroker", 1), ("kbroker", 2)]
    assert written.rounds["kbroker"] == [0, 1, 2]


def test_check_does_not_take_no_result_for_a_pass() -> None:
    outcome, _ = cpu_bar(blocks(CELL, "kbroker", 10))
    assert [bar.fine for bar in bars(outcome) if TITLE in bar.what] == [False]
    assert {bar.fine for bar in bars(outcome_of({}))} == {True}


def test_a_figure_that_was_not_measured_does_not_pass() -> None:
    assert {bar.verdict for bar in bars(outcome_of({}))} == {"not measured"}


def test_latency_bar_is_taken_above_the_limit() -> None:
    cell = "p-100-1x1"
    outcome = outcome_of(
        {
            cell: {
                "limit": [block(cell, "limit", 1, p50_us=50)],
                "kafka": [block(cell, "kafka", 1, p50_us=90)],
                "kbroker": [block(cell, "kbroker", 1, p50_us=60)],
            }
        }
    )
    (bar,) = [b for b in bars(outcome) if "1 conn, 1 in flight" in b.what]
    assert bar.value is not None
    assert bar.value.median == pytest.approx(0.25, abs=0.03)  # (60 - 50) / (90 - 50)


def test_remarks_name_the_reasons_to_distrust_a_figure() -> None:
    cell = "f-1m"
    limits = [block(cell, "limit", 1, rate=rate) for rate in (1000, 1500)]
    dear = block(cell, "kbroker", 1.5)
    outcome = outcome_of({cell: {"limit": limits, "kbroker": [dear]}})
    outcome.machine["network"] = "shared, bbr"
    said = "\n".join(report.remarks(outcome))
    assert "the limit itself moved (1,000 to 1,500/s)" in said
    assert "the generator costs 0.67 of the CPU of kbroker" in said
    assert "it paces" in said


def test_json_and_text_of_a_whole_outcome() -> None:
    cell = "p-1k-4x5"
    by_broker = {
        name: blocks(cell, name, *[cpu] * 7)
        for name, cpu in (("limit", 4), ("kafka", 40), ("kbroker", 9))
    }
    outcome = outcome_of({cell: by_broker})
    outcome.null = {cell: {"kafka": [(one, one) for one in by_broker["kafka"]]}}
    data = json.loads(json.dumps(report.to_json(outcome)))
    found = data["cells"][cell]["ratios"]["kbroker/kafka"]["cpu_us_per_request"]
    assert found["median"] == pytest.approx(9 / 40)
    assert all(test["passed"] for test in data["null_tests"])
    text = report.to_text(outcome)
    assert "0.225 [0.225, 0.225]" in text and "pass, surely" in text


def test_a_baseline_that_was_not_built_says_so(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="make build"):
        KbrokerBroker(tmp_path / "broker", checkout=tmp_path)
