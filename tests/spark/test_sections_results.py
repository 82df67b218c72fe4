"""Sections of perf's results, compared with perf's own histogram and statistics."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from perf.histogram import Histogram
from perf.stats import estimate
from spark_jobs.sections import (
    blocks,
    brokers,
    figures,
    latency,
    paired,
    percentiles,
    pipelining,
    studies,
)
from spark_jobs.sections.blocks import CPU, P99
from tests.spark import landed
from tests.spark.landed import NOON_MS, RUN

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

SEED = 20_251_125
OTHER_RUN = str(uuid.UUID(int=2))


class Writer:
    """Blocks as perf publishes them, and the histograms they came from."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.histograms: list[tuple[dict[str, Any], Histogram]] = []
        self._random = random.Random(SEED)

    def common(self, **fields: Any) -> dict[str, Any]:
        sequence = len(self.rows)
        return {"schema_version": 1, "run_id": RUN, "sequence": sequence, "machine": "2 x test",
                "event_time_ms": NOON_MS + sequence * 1000, "kbroker_version": "1",
                "study": "compare", **fields}  # fmt: skip

    def block(self, scale_ns: float = 1e6, **fields: Any) -> None:
        """Durations around `scale_ns`; a hundredth are ten times as long."""
        values = [
            max(1, int(self._random.gauss(scale_ns, scale_ns / 5) * (10 if n % 100 == 0 else 1)))
            for n in range(300)
        ]
        histogram = Histogram.of(values)
        row = self.common(**{
            "kind": "block", "cell": "p-1k", "broker": "kbroker", "round": 0, "acks": 1,
            "size_bytes": 1000, "batch_bytes": 0, "in_flight": 5, "connections": 4,
            "partitions": 4, "codec": "none", "path": "plain", "work": "produce", "rate": 0.0,
            "requests": 1000, "records": 1000, "bytes": 10**6, "wall_s": 1.0,
            "broker_cpu_s": 0.1, "own_cpu_s": 0.1, "others_cpu": 0.0, "steal": 0.0, "quiet": True,
            "measure": "request", **fields,
        })  # fmt: skip
        row |= {"buckets": histogram.to_buckets(), "min_ns": int(histogram.min),
                "max_ns": int(histogram.max), "sum_ns": int(histogram.sum)}  # fmt: skip
        self.rows.append(row)
        self.histograms.append((row, histogram))

    def merged(self, **fields: Any) -> Histogram:
        return Histogram.merge(
            h for row, h in self.histograms
            if all(row[name] == value for name, value in fields.items())
        )  # fmt: skip


def compared() -> Writer:
    """Both brokers in seven rounds, acks 1 and -1; one pair of another cell; one noisy cell."""
    write = Writer()
    for round_ in range(7):
        for acks, slower in ((1, 1.0), (-1, 3.0)):
            write.block(1e6 * slower, round=round_, acks=acks, broker_cpu_s=0.10 + round_ / 1000)
            write.block(2e6 * slower, round=round_, acks=acks, broker="kafka",
                        broker_cpu_s=0.20 + round_ / 1000)  # fmt: skip
        for broker in ("kbroker", "kafka"):
            write.block(round=round_, cell="p-noisy", broker=broker, size_bytes=100, quiet=False)
    for broker in ("kbroker", "kafka"):
        write.block(cell="p-once", broker=broker, size_bytes=10)
    # A run of its own without a partner: Kafka alone.
    write.block(run_id=OTHER_RUN, broker="kafka", cell="p-alone", size_bytes=7)
    return write


@pytest.fixture(scope="module")
def written() -> Writer:
    return compared()


@pytest.fixture(scope="module")
def found(spark: Any, written: Writer) -> Any:
    return landed.inputs(spark, results=written.rows)


@pytest.fixture(scope="module")
def measured(found: Any) -> list[blocks.Block]:
    return blocks.blocks(found.results)


# -- percentiles


def test_percentiles_are_those_of_one_histogram_of_all_values(found: Any, written: Writer) -> None:
    groups = latency.groups(found, ("broker", "acks"))
    assert len(groups) == 4
    for group in groups:
        oracle = written.merged(broker=group["broker"], acks=group["acks"])
        assert group["total"] == oracle.total
        for percent in percentiles.PERCENTS:
            assert group[percentiles.name_of(percent)] == oracle.percentile(percent)


def test_percentiles_of_each_block(measured: list[blocks.Block], written: Writer) -> None:
    oracles = {row["sequence"]: histogram for row, histogram in written.histograms}
    assert len(measured) == len(oracles)
    for block in measured:
        for percent in percentiles.PERCENTS:
            oracle = oracles[block["sequence"]].percentile(percent)
            assert block[percentiles.name_of(percent)] == oracle


def test_small_and_large_values(spark: Any) -> None:
    values = [0, 1, 127, 128, 255, 256, 257, 1 << 20, (1 << 40) + 12345]
    for wanted in ([values], [[value] for value in values]):
        rows = []
        for number, part in enumerate(wanted):
            histogram = Histogram.of(part)
            rows.append({"kind": "block", "sequence": number, "run_id": RUN,
                         "buckets": histogram.to_buckets(), "min_ns": int(histogram.min),
                         "max_ns": int(histogram.max)})  # fmt: skip
        (group,) = latency.groups(landed.inputs(spark, results=rows), ("kind",))
        oracle = Histogram.of(values)
        assert group["total"] == len(values) and group["blocks"] == len(wanted)
        for percent in percentiles.PERCENTS:
            assert group[percentiles.name_of(percent)] == oracle.percentile(percent)


def test_buckets_that_cannot_be_do_not_count(spark: Any) -> None:
    spoiled = [
        {"le": None, "count": 5}, {"le": float("nan"), "count": 5}, {"le": 7.0, "count": -1},
        {"le": 7.0, "count": (1 << 63) - 1}, {"le": 1e300, "count": None}, {"le": 9.0, "count": 2},
    ]  # fmt: skip
    rows = [{"kind": "block", "sequence": 0, "run_id": RUN, "buckets": spoiled},
            {"kind": "block", "sequence": 1, "run_id": RUN, "buckets": [{"le": 1e300, "count": 1}]},
            {"kind": "block", "sequence": 2, "run_id": RUN, "buckets": []},
            {"kind": "block", "sequence": 3, "run_id": RUN}]  # fmt: skip
    given = landed.inputs(spark, results=rows)
    (group,) = latency.groups(given, ("kind",))
    assert (group["total"], group["blocks"], group["p50"]) == (3, 2, 9.0)
    assert len(blocks.blocks(given.results)) == 4


def test_percentiles_take_one_pass(found: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """One scan whatever the number of percentiles, no join, no Python worker."""
    by = ("broker", "acks", "size_bytes", "in_flight")
    percentiles.merged(found.results, by, ends=("min_ns", "max_ns")).explain("formatted")
    plan = capsys.readouterr().out.split("\n\n")[0]
    assert plan.count("Scan") == 1
    assert plan.count("Generate") == 1
    assert "Join" not in plan and "Python" not in plan and "Union" not in plan


# -- sections


def test_latency(found: Any, measured: list[blocks.Block], written: Writer) -> None:
    section = latency.section(found, measured)
    coarse, fine, acks = section.tables
    assert coarse.columns[:4] == ("broker", "acks", "size, B", "blocks")
    row = next(
        r for r in coarse.rows if [c.text for c in r[:3]] == ["kbroker", "-1 (all)", "1,000"]
    )
    oracle = written.merged(broker="kbroker", acks=-1)
    assert row[6].value == oracle.percentile(95) / 1e6
    assert row[3].value == 7
    assert len(fine.rows) == 9
    assert len(acks.rows) == 2  # kbroker and Kafka, everything else equal
    ours = next(r for r in acks.rows if r[0].text == "kbroker")
    pairs = [
        (h.percentile(99), g.percentile(99))
        for a, h in written.histograms for b, g in written.histograms
        if (a["acks"], b["acks"]) == (-1, 1) and a["broker"] == b["broker"] == "kbroker"
        and a["cell"] == b["cell"] == "p-1k" and a["round"] == b["round"]
    ]  # fmt: skip
    oracle_ratio = estimate([a / b for a, b in pairs])
    at = acks.columns.index("p99 x")
    assert ours[at].value == pytest.approx(oracle_ratio.median) and len(pairs) == 7
    assert ours[at].verdict == "bad" and "p99" not in ours[at + 2].text
    assert "higher in 2, lower in 0, without result in 0 of 2" in section.words[1]
    assert landed.check_rows(found, section) > 10


def test_five_pairs_give_no_verdict(spark: Any) -> None:
    write = Writer()
    for round_ in range(5):
        for acks in (1, -1):
            write.block(1e6 * (1 if acks == 1 else 5), round=round_, acks=acks)
    found = landed.inputs(spark, results=write.rows)
    section = latency.section(found, blocks.blocks(found.results))
    (row,) = section.tables[2].rows
    assert row[-1].text == "5 of 6 rounds needed"
    assert {cell.verdict for cell in row} <= {"", "open"}
    assert "no result on any of 1" in section.words[1]


def test_brokers(found: Any, measured: list[blocks.Block]) -> None:
    section = brokers.section(found, measured)
    ratios, both = section.tables
    by_work = {row[0].text.partition(" (")[0]: row for row in ratios.rows}
    assert set(by_work) == {"compare p-1k", "compare p-noisy", "compare p-once"}
    assert len(ratios.rows) == 4  # p-1k with acks 1 and -1
    cpu, p99 = ratios.columns.index("CPU us/request x"), ratios.columns.index("p99 x")
    good = by_work["compare p-1k"]
    assert good[cpu].value == pytest.approx(0.103 / 0.203, rel=0.01)
    assert (good[cpu].verdict, good[p99].verdict) == ("good", "good")
    noisy = by_work["compare p-noisy"]
    assert (noisy[1].value, noisy[2].value, noisy[cpu].text) == (0, 7, "-")
    assert noisy[-1].text == "0 of 6 rounds needed (7 noisy left out: something else ran)"
    assert by_work["compare p-once"][-1].text == "1 of 6 rounds needed"
    assert by_work["compare p-once"][cpu].verdict == "open"
    assert len(both.rows) == 8
    assert {plot.kind for plot in section.plots} == {"intervals"}
    assert landed.check_rows(found, section) >= 8


def test_the_null_test_is_read_from_the_topic(spark: Any) -> None:
    write = Writer()
    for round_ in range(6):
        write.block(round=round_, broker_cpu_s=0.10)
        write.block(round=round_, broker_cpu_s=0.12, again=True)
        write.block(round=round_, broker_cpu_s=0.11, broker="kafka")
    found = landed.inputs(spark, results=write.rows)
    section = brokers.section(found, blocks.blocks(found.results))
    (row,) = section.tables[0].rows
    assert "CPU us/request: within the null test's 1.20" in row[-1].text
    landed.check_rows(found, section)


def test_an_interval_with_1_in_it_decides_nothing(spark: Any) -> None:
    write = Writer()
    for round_, cpu in enumerate((0.09, 0.11, 0.1, 0.1, 0.1, 0.1)):
        write.block(round=round_, broker_cpu_s=cpu)
        write.block(round=round_, broker_cpu_s=0.1, broker="kafka")
    found = landed.inputs(spark, results=write.rows)
    (beside,) = brokers.compared(blocks.blocks(found.results))
    one = paired.versus(beside, CPU)
    assert one is not None
    assert (one.verdict, one.why_open) == ("open", "no difference found")


def test_rounds_of_a_noisy_machine_are_left_out_where_enough_are_left(spark: Any) -> None:
    write = Writer()
    for round_ in range(6):
        write.block(round=round_, broker_cpu_s=0.1)
        write.block(round=round_, broker_cpu_s=0.2, broker="kafka")
    write.block(round=6, broker_cpu_s=9.0, quiet=False)
    write.block(round=6, broker_cpu_s=0.2, broker="kafka")
    found = landed.inputs(spark, results=write.rows)
    section = brokers.section(found, blocks.blocks(found.results))
    (row,) = section.tables[0].rows
    cpu = row[section.tables[0].columns.index("CPU us/request x")]
    assert (row[1].value, row[2].value) == (6, 1)
    assert (cpu.value, cpu.verdict) == (pytest.approx(0.5), "good")
    assert row[1].rows is not None and row[1].rows.count == 14, "those that are left out, too"
    landed.check_rows(found, section)


def test_versions_of_the_broker_are_not_pooled(spark: Any) -> None:
    """A week's report: the version of Monday is not the version of Friday."""
    write = Writer()
    for version, cpu in (("1", 0.1), ("2", 0.3)):
        for round_ in range(6):
            for broker, cpu_s in (("kbroker", cpu), ("kafka", 0.2)):
                write.block(run_id=str(uuid.UUID(int=int(version))), kbroker_version=version,
                            round=round_, broker=broker, broker_cpu_s=cpu_s)  # fmt: skip
    found = landed.inputs(spark, results=write.rows)
    measured = blocks.blocks(found.results)
    section = brokers.section(found, measured)
    ratios = section.tables[0]
    cpu = ratios.columns.index("CPU us/request x")
    ratio_of = {row[0].text.partition("kbroker_version ")[2]: row[cpu].value for row in ratios.rows}
    assert ratio_of == {"1)": pytest.approx(0.5), "2)": pytest.approx(1.5)}
    assert "2 versions of kbroker, each in lines of its own." in section.words
    coarse = latency.section(found, measured).tables[0]
    assert "version" in coarse.columns and len(coarse.rows) == 4
    landed.check_rows(found, section)


def test_a_rate_that_was_set_is_no_throughput(spark: Any) -> None:
    write = Writer()
    for round_ in range(6):
        write.block(1e6, round=round_, rate=1000.0, requests=1000)
        write.block(2e6, round=round_, rate=1000.0, requests=1001, broker="kafka")
    found = landed.inputs(spark, results=write.rows)
    section = brokers.section(found, blocks.blocks(found.results))
    (row,), columns = section.tables[0].rows, section.tables[0].columns
    by_column = dict(zip(columns, row, strict=True))
    assert by_column["requests/s x"].text == by_column["MB/s x"].text == "-"
    assert by_column["p99 x"].verdict == "good"


def test_years_of_runs_are_one_short_predicate(spark: Any) -> None:
    """A night's run each, all with the same numbers: what finds their rows must not be cut off."""
    write = Writer()
    for night in range(3):
        for round_ in range(3):
            for broker in ("kbroker", "kafka"):
                write.block(run_id=str(uuid.UUID(int=night)), round=round_, broker=broker,
                            sequence=len(write.rows) % 6)  # fmt: skip
    found = landed.inputs(spark, results=write.rows)
    section = brokers.section(found, blocks.blocks(found.results))
    source = section.tables[0].rows[0][1].rows
    assert source is not None and (source.count, source.where.count("sequence IN")) == (18, 1)
    landed.check_rows(found, section)


def test_no_measurements(spark: Any) -> None:
    found = landed.inputs(spark)
    for make in (latency.section, brokers.section, studies.section, pipelining.section):
        section = make(found, [])
        assert section.tables == () and "--results-bootstrap" in section.words[0]


# -- studies


def by_design(write: Writer, run: str) -> None:
    for round_ in range(6):
        for number, design in enumerate(("one loop", "a thread per request", "many selectors")):
            for cell in ("quick", "slow"):
                write.block(1e6 / (number + 1), run_id=run, study="pipelining", broker=design,
                            cell=cell, round=round_, baseline=number == 0,
                            records=1000 * (number + 1))  # fmt: skip
    verdict = {"kind": "verdict", "study": "pipelining", "run_id": run}
    write.rows.append(write.common(**verdict, question="Which is fastest on slow work?",
                                   answer="many selectors, 3.00 times", decided=True,
                                   evidence="{}", cell="slow"))  # fmt: skip
    write.rows.append(write.common(**verdict, question="And on quick work?",
                                   answer="no result (noisy)", decided=False,
                                   evidence="{}", cell="quick"))  # fmt: skip


def test_the_newest_run_of_a_study_counts(spark: Any) -> None:
    write = Writer()
    by_design(write, OTHER_RUN)
    by_design(write, RUN)
    found = landed.inputs(spark, results=write.rows)
    section = studies.section(found, blocks.blocks(found.results))
    answers, against, figures = section.tables
    assert [row[-1].text for row in answers.rows] == ["decided", "no result"]
    assert "1 of 2 questions decided" in section.words[0]
    assert "Which is fastest on slow work? many selectors, 3.00 times" in section.words
    at = against.columns.index("records/s x")
    by_place = {(row[0].text, row[1].text): row for row in against.rows}
    assert by_place["slow", "many selectors"][at].value == pytest.approx(3)
    assert by_place["slow", "many selectors"][at].verdict == "good"
    assert set(place[1] for place in by_place) == {"a thread per request", "many selectors"}
    assert len(figures.rows) == 6
    assert all(row[2].value == 6 for row in figures.rows)  # blocks of one run
    assert landed.check_rows(found, section) >= 10
    assert {plot.kind for plot in section.plots} == {"bars"}


def test_latency_study_over_linger_and_tune_by_knob(spark: Any) -> None:
    write = Writer()
    for round_ in range(3):
        for linger in (0, 5, 100):
            for acks in (0, 1):
                write.block(1e6 * (1 + linger), study="latency-study", round=round_, acks=acks,
                            mode="async", linger_ms=linger, measure="end-to-end")  # fmt: skip
        for value, slower in (("3", 1.0), ("8", 2.0)):
            tried = {"knob": "num.network.threads", "knob_value": value}
            write.block(1e6 * slower, study="tune", run_id=OTHER_RUN, round=round_,
                        baseline=value == "3", **tried)  # fmt: skip
    for study, run in (("latency-study", RUN), ("tune", OTHER_RUN)):
        write.rows.append(write.common(kind="verdict", study=study, run_id=run, question="Is it?",
                                       answer="yes", decided=True, evidence="{}"))  # fmt: skip
    found = landed.inputs(spark, results=write.rows)
    measured = blocks.blocks(found.results)
    section = studies.section(found, measured)
    lines = [plot for plot in section.plots if plot.kind == "line"]
    assert [series.x for series in lines[0].series] == [(0.0, 5.0, 100.0)] * 2
    effect = next(plot for plot in section.plots if plot.title.startswith("tune: p99"))
    assert effect.series[0].x == ("num.network.threads=8",)
    assert effect.series[0].y[0] == pytest.approx(2, rel=0.2) and effect.reference == 1
    assert landed.check_rows(found, section) > 5
    tuned = [one for one in measured if one["study"] == "tune"]
    (beside,) = studies.ratios(tuned)
    one = paired.versus(beside, P99)
    assert one is not None and one.pairs == 3


# -- the experiment of acks=-1


def experiment(write: Writer, run: str) -> None:
    """Two rounds of the document's table and the diagnosis, as `kbroker perf pipelining` does."""
    for round_, noise in enumerate((0.0, 2.0)):
        for system, waits, megabytes in (
            ("kafka", 300.0, 8), ("stock", 200.0, 10), ("pipelined", 20.0, 100),
        ):  # fmt: skip
            of = {"study": "pipelining", "run_id": run, "round": round_, "knob_value": system,
                  "knob": "channel.pipelining", "in_flight": 200, "round_trip_us": 500}  # fmt: skip
            for cell, acks, replicas, moved in (
                ("matrix: acks=-1", -1, 2, megabytes), ("matrix: acks=1", 1, 2, 110),
                ("matrix: RF 1", 1, 1, 115), ("diagnosis: acks=-1", -1, 2, megabytes),
                ("diagnosis: acks=1", 1, 2, 110),
            ):  # fmt: skip
                place = {**of, "cell": cell, "acks": acks, "replicas": replicas}
                write.block(waits * 1e6, **place, bytes=moved * 10**6)
                said = {"zero windows": 50 + noise, "requests in flight, reached": 199.0}
                if cell.startswith("diagnosis"):
                    said |= {"produce p99 by the broker's clock": 2_000.0,
                             "produce p99.9 by the broker's clock": 3_000.0,
                             "fetched by the follower": 109.0,
                             "a fetch of the follower": 250_000.0}  # fmt: skip
                for name, value in said.items() if acks == -1 or "diagnosis" in cell else ():
                    write.rows.append(write.common(
                        **{"kind": "figure", "name": name, "value": value, "unit": "x", **place}
                    ))  # fmt: skip


def test_the_document_s_figures_are_drawn_of_the_newest_run(spark: Any) -> None:
    write = Writer()
    experiment(write, OTHER_RUN)
    experiment(write, RUN)
    found = landed.inputs(spark, results=write.rows)
    section = pipelining.section(found, blocks.blocks(found.results))
    assert [plot.title.partition(":")[0] for plot in section.plots] == [
        f"Figure {number}" for number in (1, 4, 5, 6, 7, 8)
    ]
    drawn = {
        (plot.title[:8], series.name): dict(zip(series.x, series.y, strict=True))
        for plot in section.plots
        for series in plot.series
    }
    assert drawn["Figure 1", "Apache Kafka"] == {
        "acks=-1, 200 in flight": 8.0, "acks=1, 200 in flight": 110.0,
        "RF 1, 200 in flight": 115.0,
    }  # fmt: skip
    kafka = "Apache Kafka, 200 in flight"
    assert drawn["Figure 4", "by the broker's clock"][kafka] == 2.0
    assert drawn["Figure 4", "by the producer's"][kafka] > 300
    assert drawn["Figure 6", "fetched by the follower"]["kbroker, stock"] == 109.0
    assert drawn["Figure 8", "Apache Kafka"] == {"200 in flight": 51.0}  # of two rounds
    assert section.words[0] == (
        "acks=-1, 200 in flight, MB/s: Apache Kafka 8, kbroker, stock 10, kbroker, pipelined 100;"
        " pipelined that is 0.91 of its own acks=1."
    )
    assert "2 ms by the broker's clock" in section.words[1]
    assert len(section.tables[0].rows) == 15
    assert landed.check_rows(found, section) > 50


def test_a_run_of_other_sections_draws_its_own(spark: Any) -> None:
    """And what is no run of ours, or lacks its dimensions, breaks nothing."""
    write = Writer()
    write.block(study="pipelining", cell="java: acks=-1", knob_value="kafka")
    found = landed.inputs(spark, results=write.rows)
    section = pipelining.section(found, blocks.blocks(found.results))
    assert (section.plots, section.tables[0].rows) == ((), ())
    assert section.words == ("The run has neither the document's table nor its diagnosis.",)
    write.block(study="pipelining", cell="matrix", in_flight=None, knob_value=None, acks=None)
    found = landed.inputs(spark, results=write.rows)
    section = pipelining.section(found, blocks.blocks(found.results))
    assert len(section.tables[0].rows) == 1


# -- single figures


def test_single_figures_of_the_newest_run_with_their_units(spark: Any) -> None:
    write = Writer()

    def publish(name: str, value: float | None, unit: str, **fields: Any) -> None:
        write.rows.append(write.common(
            **{"kind": "figure", "name": name, "value": value, "unit": unit, **fields}
        ))  # fmt: skip

    publish("start, empty directory", 9.0, "s", study="start", broker="kbroker", run_id=OTHER_RUN)
    for round_, value in enumerate((0.31, 0.25, 0.28)):
        publish("start, empty directory", value, "s", study="start", broker="kbroker", round=round_)
    publish("start, empty directory", 2.5, "s", study="start", broker="kafka", round=0)
    publish("start, empty directory", None, "s", study="start", broker="kafka", round=1)
    publish("idle connection, user space", 1736.0, "B", study="idle", broker="kbroker")
    publish("waits for the broker", 0.126, "of task time", study="spark", broker="kbroker")
    write.block()  # is none
    found = landed.inputs(spark, results=write.rows)
    section = figures.section(found)
    assert [(table.title, table.columns) for table in section.tables] == [
        ("idle", ("what", "broker", "figure")),
        ("start", ("what", "broker", "figure", "lowest", "highest", "rounds")),
        ("spark", ("what", "broker", "figure")),
    ]
    texts = [[cell.text for cell in row[1:]] for table in section.tables for row in table.rows]
    assert texts == [
        ["kbroker", "1.74 kB"],
        ["kbroker", "0.28 s", "0.25 s", "0.31 s", "3"],
        ["kafka", "2.5 s", "-", "-", "1"],
        ["kbroker", "12.6 % of task time"],
    ]
    assert section.tables[1].rows[0][2].value == 0.28
    assert landed.check_rows(found, section) == 4
