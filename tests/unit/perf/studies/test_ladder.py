"""The ladder's answers over made-up blocks, and the study itself on the smallest of plans."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from perf import cells
from perf.histogram import Histogram
from perf.process import Guard
from perf.studies import ladder
from perf.studies.conclusion import Conclusion, publish
from perf.studies.ladder import (
    BAD_LINE,
    FLUSHED,
    QUICK,
    SLOW,
    Plan,
    cell_of,
    key_of,
    points,
    server_of,
    start,
)
from perf.studies.ladder_answers import conclusions, report
from perf.studies.measured import REQUEST, Measured
from perf.studies.servers import Servers
from perf.studies.slow_client import slow_client
from perf.studies.study import Outcome
from tests.unit.perf.fake import FakeBroker

# Requests a second by rung; what a ladder without surprises would say.
MACHINE = {
    "cpus": 2, "model": "made up", "kernel": "6", "python": "3.11", "commit": "c", "when": "2026",
}  # fmt: skip
RATES = {"loop": 100, "threads": 20, "selector": 400, "pool": 300, "selectors": 300}


def _measured(rate: float, *, others: float = 0.0) -> Measured:
    latency = Histogram.of([int(1e9 / rate)] * 100)
    requests = int(rate * 10)
    return Measured(
        requests, requests, requests * 1000, 10.0, 1.0, 0.1, Guard(others, 0.0), {REQUEST: latency}
    )


def _outcome(rates: Mapping[str, float], plan: Plan, *, others: float = 0.0) -> Outcome:
    """Seven rounds in which every server does what it does, give or take 1 %."""
    made = points(plan)
    outcome = Outcome("ladder", tuple(made), 7, MACHINE)
    for point in made:
        rate = rates.get(str(point.dims["broker"]), 1000)
        outcome.blocks[point.key] = {
            n: _measured(rate * (1 + (n - 3) / 100), others=others) for n in range(7)
        }
        if point.null:
            outcome.null[point.key] = {n: (_measured(rate), _measured(rate)) for n in range(7)}
    return outcome


def _about(found: list[Conclusion], question: str) -> Conclusion:
    (one,) = [one for one in found if question in one.question]
    return one


def test_every_rung_is_measured_and_kbroker_where_it_does_the_same_work() -> None:
    found = points(Plan())
    assert len({point.key for point in found}) == len(found) == 7 + 6 + 7
    assert {p.dims["broker"] for p in found if p.group == SLOW} == {*RATES, "kbroker"}
    assert {"kbroker", "limit"} <= {p.dims["broker"] for p in found if p.group == BAD_LINE}
    beside = [p for p in points(Plan(kafka=True)) if p.dims["broker"] == "kafka"]
    assert [p.group for p in beside] == [QUICK, SLOW, BAD_LINE]


def test_each_server_is_told_in_one_way_to_wait_for_the_disk() -> None:
    for name in Plan(kafka=True).brokers(SLOW):
        started_so, topic_says_so = server_of(SLOW, name)[1], cell_of(SLOW, name).configs == FLUSHED
        assert started_so is (name in RATES) and topic_says_so is not started_so
        for work in (QUICK, BAD_LINE):
            assert not server_of(work, name)[1] and not cell_of(work, name).configs


def test_the_answers_follow_from_the_ratios() -> None:
    plan = Plan()
    found = conclusions(_outcome(RATES, plan), plan)
    best = _about(found, "When requests are quick: which rung")
    assert best.decided and best.dims == {"cell": QUICK, "broker": "selector"}
    assert best.answer.startswith("one selector: 1.33 times")
    step = _about(found, "When requests are quick: what does a thread for each request change")
    assert step.decided and step.answer.startswith("requests/s 0.20 times (0.20 to 0.20, n=7)")
    equal = _about(found, "When each request waits for the disk: what does many selectors")
    assert not equal.decided and "no difference shown" in equal.answer
    ours = _about(found, "When requests are quick: what does kbroker change against many")
    assert "requests/s 3.33 times" in ours.answer
    slow = _about(found, "When each request waits for the disk: what does kbroker change against")
    assert "requests/s 3.33 times" in slow.answer


def test_two_rungs_that_are_equal_share_the_first_place() -> None:
    plan = Plan(designs=("loop", "pool", "selectors"))
    found = conclusions(_outcome(RATES, plan), plan)
    best = _about(found, "When requests are quick: which rung")
    assert not best.decided
    assert best.answer.startswith("no result between one selector and a pool of handlers and many")


def test_a_noisy_machine_decides_nothing() -> None:
    plan = Plan()
    outcome = _outcome(RATES, plan, others=0.5)
    assert not any(one.decided for one in conclusions(outcome, plan))
    assert all("no result" in one.answer for one in conclusions(outcome, plan))
    assert "no result" in "\n".join(report(outcome, plan).text)


def test_a_rung_whose_blocks_are_void_is_shown_as_void() -> None:
    plan = Plan()
    outcome = _outcome(RATES, plan)
    del outcome.blocks[key_of(SLOW, "threads")]
    text = "\n".join(report(outcome, plan).text)
    assert "void" in text
    json.dumps(report(outcome, plan).json, allow_nan=False)


def test_the_page() -> None:
    plan = Plan(kafka=True)
    text = report(_outcome(RATES, plan), plan).page
    assert "| one selector | 400 |" in text
    assert text.count("| kafka | 1,000 |") == 3


class _Results:
    """Notes what it is given."""

    def __init__(self) -> None:
        self.blocks: list[dict[str, object]] = []
        self.verdicts: list[dict[str, object]] = []

    def block(self, **fields: object) -> None:
        self.blocks.append(fields)

    def verdict(self, question: str, answer: str, **fields: object) -> None:
        self.verdicts.append({"question": question, "answer": answer, **fields})


def test_each_block_and_conclusion_is_published_once() -> None:
    plan = Plan()
    outcome = _outcome(RATES, plan)
    results = _Results()
    found = conclusions(outcome, plan)
    publish(outcome, found, results)  # type: ignore[arg-type]
    again = [block for block in results.blocks if block.get("again")]
    assert len(results.blocks) - len(again) == 20 * 7
    ends = {plan.designs[0], plan.designs[-1]}
    assert len(again) == len(ladder.CELLS) * 2 * 7 and {block["broker"] for block in again} == ends
    assert {block["round"] for block in results.blocks} == set(range(7))
    assert sum(int(str(b["requests"])) for b in results.blocks if b["broker"] == "loop") > 0
    assert [one["question"] for one in results.verdicts] == [one.question for one in found]


def test_a_block_that_timed_two_things_counts_its_requests_once() -> None:
    plan = Plan(designs=("loop",))
    outcome = _outcome(RATES, plan)
    key = key_of(QUICK, "loop")
    once = outcome.blocks[key][0]
    both = {REQUEST: once.histograms[REQUEST], "end-to-end": once.histograms[REQUEST]}
    outcome.blocks, outcome.null = {key: {0: replace(once, histograms=both)}}, {}
    results = _Results()
    publish(outcome, [], results)  # type: ignore[arg-type]
    assert [block.get("requests") for block in results.blocks] == [once.requests, None]
    assert [block["measure"] for block in results.blocks] == ["request", "end-to-end"]


def test_a_slow_client_that_is_dropped_says_so() -> None:
    with (
        FakeBroker(lambda _number, _frame: None) as broker,
        slow_client("127.0.0.1", broker.port) as client,
    ):
        for thread in threading.enumerate():
            if thread.name == "slow-client":
                thread.join()
    assert "closed" in client.failure and client.answers == 0


@pytest.mark.slow
@pytest.mark.alone  # a machine that is busy with other things leaves a short window empty
def test_the_whole_study_on_one_rung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "TOUCH_BYTES_FIRST", 1 << 20)  # these blocks write little
    plan = Plan(("selector",), rounds=1, seconds=0.2, warm_s=0.05, directory=tmp_path)
    said: list[str] = []
    outcome = ladder.run(plan, said.append, tmp_path / "journal")
    assert not outcome.faults, outcome.faults
    assert set(outcome.blocks) == {point.key for point in points(plan)}
    for one in outcome.of(key_of(BAD_LINE, "selector")).values():
        assert one.figures["slow_answers"] > 0
    assert any("[1/" in line and "left" in line for line in said)
    assert len(report(outcome, plan).text) > 15
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]  # all servers' data are gone


def test_servers_that_cannot_start_leave_nothing(tmp_path: Path) -> None:
    (tmp_path / "selector").write_text("a file where the directory should be")
    plan = Plan(("loop", "selector"), directory=tmp_path)
    with pytest.raises(OSError), Servers(seconds=1, warm_s=0) as servers:
        try:
            start(plan, servers, tmp_path, lambda _text: None)
        finally:
            assert len(servers) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["selector"]
