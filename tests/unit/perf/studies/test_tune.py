"""The knobs, the effects that follow from made-up blocks, and the study on one knob."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kbroker.config import BROKER_KEYS, BrokerConfig
from kbroker.config.documents import BROKER_VALUES
from kbroker.config.effects import load
from perf.brokers import LimitBroker
from perf.cluster.as_one_broker import ClusterAsBroker
from perf.histogram import Histogram
from perf.process import Guard
from perf.studies import tune
from perf.studies.conclusion import publish
from perf.studies.knobs import NOT_TRIED, idle, knobs
from perf.studies.measured import REQUEST, Measured
from perf.studies.servers import Servers
from perf.studies.study import Outcome, Point, StudyError
from perf.studies.tune import DEFAULTS, KAFKA, TWIN, Plan, configured, key_of, points, server_of
from perf.studies.tune_answers import (
    Effect,
    conclusions,
    effects,
    effects_file,
    report,
    short,
)
from tests.support import zookeeper

MACHINE = {
    "cpus": 2, "model": "Processor", "kernel": "6", "python": "3.11", "commit": "c",
    "when": "2026-11-22T00:00:00Z",
}  # fmt: skip


def _measured(speed: float, cpu: float, *, others: float = 0.0) -> Measured:
    """Ten seconds at `speed` times 1,000 records a second and `cpu` times 10 us each."""
    records = int(10_000 * speed)
    latency = Histogram.of([int(1e6 / speed)] * 100)
    return Measured(
        records, records, records * 1000, 10.0, records * cpu * 1e-5, 0.1, Guard(others, 0.0),
        {REQUEST: latency},
    )  # fmt: skip


def _outcome(plan: Plan, of: Callable[[Point], Measured]) -> Outcome:
    made = points(plan)
    outcome = Outcome("tune", tuple(made), 7, MACHINE)
    for point in made:
        outcome.blocks[point.key] = {number: of(point) for number in range(7)}
    return outcome


def _lz4_costs(point: Point) -> Measured:
    slow = point.dims["knob"] == "compression.type" and point.dims["knob_value"] == "lz4"
    return _measured(0.25, 8.0) if slow else _measured(1.0, 1.0)


def test_each_key_of_the_tuning_document_is_tried_or_said_to_be_idle() -> None:
    named = {row.key for row in BROKER_VALUES if row.document == "004"}
    assert named <= {knob.key for knob in knobs()} | {one.key for one in idle()}


def test_a_key_that_has_an_effect_must_be_tried() -> None:
    for key in NOT_TRIED.keys() - {"auto.leader.rebalance.enable"}:
        assert not BROKER_KEYS[key].supported, f"try {key} in knobs.py"
    for knob in knobs():
        assert BROKER_KEYS[knob.key].supported


def test_replication_is_tried_on_clusters_of_two() -> None:
    (knob,) = [knob for knob in knobs(cpus=32) if knob.brokers == 2]
    assert (knob.key, knob.document, knob.default) == ("num.replica.fetchers", "8", "1")
    assert {cell.replicas for cell in knob.cells} == {2}
    names = [server_of(knob, value) for value in ("1", TWIN, "8")]
    assert names == [(DEFAULTS, 2), (TWIN, 2), ("num.replica.fetchers", "8")]
    made = points(Plan((knob.name,)))
    assert {(one.dims["replicas"], one.dims["acks"]) for one in made} == {(2, -1)}


def test_values_are_allowed_and_the_default_is_among_them() -> None:
    for knob in knobs(cpus=8):
        assert knob.default in knob.values and knob.default not in knob.tried()
        assert len(knob.tried()) >= 3
        assert not knob.document or knob.document in knob.values
    (threads,) = [knob for knob in knobs(cpus=8) if knob.name == "num.network.threads"]
    assert threads.document == "16"


def test_flushing_is_tried_by_number_and_by_time() -> None:
    found = {knob.key: knob for knob in knobs() if "flush" in knob.key}
    assert set(found) == {row.key for row in BROKER_VALUES if "flush" in row.key}
    by_number = found["log.flush.interval.messages"]
    assert configured(by_number.cells[0], by_number, "1").configs == (("flush.messages", "1"),)
    assert server_of(by_number, "1") == DEFAULTS
    for knob in found.values():
        for value in knob.tried() if knob.how == "broker" else ():
            config = BrokerConfig.load(None, {}, [f"{knob.key}={value}", *knob.also])
            assert config["log.initial.task.delay.ms"] == 0
            assert config["log.flush.scheduler.interval.ms"] <= int(value)


def test_flushing_is_tried_in_apache_kafka_beside() -> None:
    made = [point for point in points(Plan(kafka=True)) if point.dims["broker"] == "kafka"]
    assert [p.dims["knob_value"] for p in made] == ["never", TWIN, "1", "100", "10000"]
    (knob,) = [knob for knob in Plan(kafka=True).knobs() if knob.broker == "kafka"]
    assert configured(knob.cells[0], knob, "never").configs == ()
    assert configured(knob.cells[0], knob, "100").configs == (("flush.messages", "100"),)
    assert {server_of(knob, value) for value in (TWIN, *knob.values)} == {KAFKA}


def test_every_group_has_its_default_and_a_twin() -> None:
    plan = Plan()
    made = points(plan)
    assert len({point.key for point in made}) == len(made)
    for group in {point.group for point in made}:
        members = [point for point in made if point.group == group]
        assert sum(bool(point.dims["baseline"]) for point in members) == 1
        assert [p.dims["knob_value"] for p in members].count(TWIN) == 1
    by_value = {p.dims["knob_value"]: p.dims for p in made if "@producer" in p.key}
    assert by_value["zstd"]["codec"] == "zstd" and by_value["none"]["codec"] == "none"


def test_an_effect_is_reported_and_its_absence_is_bounded() -> None:
    plan = Plan()
    outcome = _outcome(plan, _lz4_costs)
    found = {(one.knob.name, one.value, one.cell.key): one for one in effects(outcome, plan)}
    lz4 = found["compression.type", "lz4", "produce-text-16k"]
    assert lz4.words() == "records/s x0.25, p99 x4.00, CPU x8.00"
    gzip = found["compression.type", "gzip", "produce-text-16k"]
    assert gzip.measured and not gzip.decided
    assert gzip.words() == "no effect found: records/s within 0%, p99 within 0%, CPU within 0%"
    # What a fixed rate holds still is no effect.
    paced = found["num.io.threads", "2", "produce-1k-paced"]
    assert set(paced.verdicts) == {"p99", "CPU"}
    answers = {one.question: one for one in conclusions(outcome, plan)}
    said = answers["What does compression.type=lz4 (the document's value) change against producer?"]
    assert said.decided and said.answer == lz4.words()
    assert answers["What does auto.leader.rebalance.enable change?"].answer.startswith("gives a")
    text = "\n".join(report(outcome, plan).text)
    assert "x0.25" in text and "the default" in text and "gives a broker back" in text
    json.dumps(report(outcome, plan).json, allow_nan=False)


def test_the_difference_of_two_equal_brokers_is_no_effect() -> None:
    """The twin is half as fast: then nothing below a factor of two is an effect."""

    def of(point: Point) -> Measured:
        value = point.dims["knob_value"]
        return _measured({TWIN: 0.5, "1": 0.6, "16": 0.1}.get(str(value), 1.0), 1.0)

    plan = Plan(names=("num.io.threads",))
    found = {
        (one.value, one.cell.key): one.verdicts["p99"] for one in effects(_outcome(plan, of), plan)
    }
    assert not found["1", "produce-1k-x16"].decided
    assert short(found["1", "produce-1k-x16"]) == "within x2.0"
    (knob,) = plan.knobs()
    alone = Effect(knob, "1", knob.cells[0], {"p99": found["1", "produce-1k-x16"]})
    assert alone.words() == "cannot be decided here: p99 within x2.0"
    assert found["16", "produce-1k-x16"].decided


def test_doctor_can_read_the_file_that_it_is_given(tmp_path: Path) -> None:
    plan = Plan()
    file = tmp_path / "effects.json"
    file.write_text(json.dumps(effects_file(_outcome(plan, _lz4_costs), plan)))
    found = load(str(file))
    assert found is not None and found.machine == "2 x Processor" and found.date == "2026-11-22"
    lines = {knob.name: knob.line(knob.default) for knob in found.knobs}
    assert lines["compression.type"].startswith("lz4 instead of producer: records/s x0.25")
    assert lines["auto.leader.rebalance.enable"].startswith("gives a broker back")
    assert "no effect found" in lines["log.index.interval.bytes"]


def test_a_noisy_run_is_not_published() -> None:
    plan = Plan()
    outcome = _outcome(plan, lambda _point: _measured(1.0, 1.0, others=0.5))
    assert {one.words() for one in effects(outcome, plan)} == {"no result"}
    with pytest.raises(StudyError, match="0 of"):
        effects_file(outcome, plan)
    with pytest.raises(StudyError, match="whole run"):
        part = Plan(names=("num.io.threads",))
        effects_file(_outcome(part, _lz4_costs), part)


def test_a_void_value_is_listed_and_is_no_result() -> None:
    plan = Plan(names=("num.io.threads",))
    outcome = _outcome(plan, _lz4_costs)
    (knob,) = plan.knobs()
    del outcome.blocks[key_of(knob, "16", knob.cells[0])]
    assert "void" in "\n".join(report(outcome, plan).text)
    (lost,) = [
        one for one in effects(outcome, plan) if one.value == "16" and one.cell == knob.cells[0]
    ]
    assert lost.words() == "no result"


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
    plan = Plan(names=("num.io.threads",))
    outcome = _outcome(plan, _lz4_costs)
    first = outcome.points[0].key
    outcome.null[first] = {number: (one, one) for number, one in outcome.of(first).items()}
    results = _Results()
    found = conclusions(outcome, plan)
    publish(outcome, found, results)  # type: ignore[arg-type]
    again = [block for block in results.blocks if block.get("again")]
    assert len(results.blocks) == (len(outcome.points) + 1) * 7
    assert len(again) == (1 + len({point.group for point in outcome.points})) * 7
    assert {block["round"] for block in results.blocks} == set(range(7))
    assert [one["question"] for one in results.verdicts] == [one.question for one in found]


def test_a_block_that_timed_two_things_counts_its_requests_once() -> None:
    plan = Plan(names=("num.io.threads",))
    outcome = _outcome(plan, _lz4_costs)
    key = outcome.points[0].key
    once = outcome.blocks[key][0]
    both = {REQUEST: once.histograms[REQUEST], "end-to-end": once.histograms[REQUEST]}
    outcome.blocks = {key: {0: replace(once, histograms=both)}}
    results = _Results()
    publish(outcome, [], results)  # type: ignore[arg-type]
    assert [block.get("requests") for block in results.blocks] == [once.requests, None]
    assert [block["measure"] for block in results.blocks] == ["request", "end-to-end"]


def test_servers_that_cannot_start_leave_nothing(tmp_path: Path) -> None:
    (tmp_path / "second").write_text("a file where the directory should be")
    with pytest.raises(OSError), Servers(seconds=1, warm_s=0) as servers:
        try:
            for name in ("first", "second"):
                servers.add(name, LimitBroker(tmp_path / name))
        finally:
            assert len(servers) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["second"]


@pytest.mark.slow
@pytest.mark.java
def test_a_value_is_given_to_every_broker_of_its_cluster(tmp_path: Path) -> None:
    zookeeper.required()
    (knob,) = [knob for knob in knobs() if knob.brokers == 2]
    with Servers(seconds=0.1, warm_s=0.02) as servers:
        servers.add("its own", tune._server(2, tmp_path / "two", (f"{knob.key}=2",)))
        with servers.turn("its own") as bench:
            assert bench.run(knob.cells[0]).requests > 0
            assert isinstance(bench.broker, ClusterAsBroker)
    assert not (tmp_path / "two").exists()
