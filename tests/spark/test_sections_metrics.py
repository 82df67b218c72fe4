"""Sections of the broker's samples: hot partitions, the forecast, alerts."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kbroker.metrics.alerts import FORECAST_HOURS_MIN
from spark_jobs.sections import alerts, forecast, hot, replication, silence
from spark_jobs.sections.alert_rules import NOT_IN_SAMPLES, RULES, documented, for_ms, rules
from tests.spark import landed
from tests.spark.landed import HOUR_MS, NOON_MS, sample

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

GB = 1_000_000_000


# -- hot partitions


def messages(topic: str, partition: int, *counts: int) -> list[dict[str, Any]]:
    return [
        sample("PartitionMessages", NOON_MS + 15_000 * n, topic=topic, partition=partition,
               message_count=count, bytes_in=100 * count)
        for n, count in enumerate(counts)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def hot_inputs(spark: Any) -> Any:
    rows = [row for p in range(12) for row in messages("orders", p, 10, 10 + p)]
    rows += messages("orders", 12, 5000, 4000)
    rows += messages("__kbroker_metrics", 0, 300)
    rows += messages("it's ${x} \\ 'quoted'", 0, 200)
    rows += [sample("BrokerTraffic", NOON_MS, messages_in=10**9, bytes_in=10**12)]
    return landed.inputs(spark, metrics=rows)


def test_the_documents_sql_says_the_same(spark: Any, hot_inputs: Any) -> None:
    section = hot.section(hot_inputs)
    found = [tuple(row) for row in spark.sql(hot.DOCUMENT_SQL).collect()]
    mine = [(row[0].text, int(row[1].text), int(row[2].value)) for row in section.tables[0].rows]
    assert sorted(found) == sorted(mine) and len(mine) == 10
    assert [row[2] for row in found] == [row[2] for row in mine]


def test_shares_skew_and_own_topics(hot_inputs: Any) -> None:
    section = hot.section(hot_inputs)
    first = section.tables[0].rows[0]
    all_messages = 12 * 20 + 66 + 9000 + 300 + 200
    assert [cell.text for cell in first[:2]] == ["orders", "12"]
    assert first[2].value == 9000
    assert first[3].value == pytest.approx(9000 / all_messages)
    median = 26  # of 20..31 and 9000
    assert first[4].value == pytest.approx(9000 / median)
    assert first[4].verdict == "bad"
    whose = {row[0].text: row[-1].text for row in section.tables[0].rows}
    assert whose["__kbroker_metrics"] == "the pipeline's own"
    assert whose["orders"] == "a user's"
    topics = {row[0].text: row for row in section.tables[1].rows}
    assert topics["orders"][1].value == 13
    assert topics["orders"][4].value == pytest.approx(9000 / median)
    assert any("__kbroker_metrics-0" in word for word in section.words)
    assert landed.check_rows(hot_inputs, section) >= 13


def test_nothing_was_written(spark: Any) -> None:
    section = hot.section(landed.inputs(spark))
    assert "No partition took a message" in section.words[0]
    assert section.tables == ()


# -- several brokers


def copying(broker: int, at: int, lag_bytes: int, seconds: float | None) -> list[dict[str, Any]]:
    return [
        sample("Replicas", at, broker, partition_count=9, leader_count=3, under_replicated=0,
               under_min_isr=0, replica_fetcher_bytes=15_000, replication_bytes_out=30_000,
               replica_lag=lag_bytes // 100, replica_lag_bytes=lag_bytes, catch_up_s=seconds,
               isr_shrinks=1, isr_expands=0),
        sample("Controller", at, broker, active_controller=int(broker == 2),
               offline_partitions=5 * (broker == 2), leader_elections=2 * (broker == 2),
               unclean_elections=0, controller_queue=0),
    ]  # fmt: skip


def test_several_brokers_are_distinguished(spark: Any) -> None:
    rows = [
        row for n in range(3) for at in (NOON_MS + 15_000 * n,)
        for row in (*copying(1, at, 0, 0.0), *copying(2, at, 5_000 - n, 90.0 - n))
    ] + copying(2, NOON_MS + 45_000, 7_000, None)  # fmt: skip
    inputs = landed.inputs(spark, metrics=rows)
    section = replication.section(inputs, LISTENED)
    assert section.words == (
        "2 brokers copied 105 kB from each other; 8 partitions got another leader, 0 of them one"
        " who may lack records.",
        "Up to 5 partitions had no leader.",
        "Controller: broker 2.",
    )
    titles = section.tables[0].columns
    row_of = {row[0].text: dict(zip(titles, row, strict=True)) for row in section.tables[0].rows}
    assert row_of["1"]["from leaders"].value == 1_000
    assert (row_of["1"]["lag in bytes, most"].value, row_of["2"]["lag in bytes, most"].value) == (
        0, 7_000,
    )  # fmt: skip
    assert row_of["2"]["to catch up, longest"].value == 90
    assert (row_of["1"]["left in-sync sets"].value, row_of["2"]["leaders elected"].value) == (3, 8)
    assert [row_of[each]["offline partitions, most"].verdict for each in "12"] == ["", "bad"]
    assert "Lag of replicas" in {plot.title for plot in section.plots}
    assert landed.check_rows(inputs, section) == 4  # two brokers, two kinds
    alone = landed.inputs(spark, metrics=copying(1, NOON_MS, 0, 0.0))
    assert replication.section(alone, LISTENED).tables == ()


# -- the forecast

LISTENED = silence.Listened(NOON_MS, 0)


def directory(
    at_ms: int, log: int, free: int = 100 * GB, name: str = "/data", broker: int = 1
) -> dict[str, Any]:
    return sample("LogDirectory", at_ms, broker, directory=name, free_bytes=free,
                  total_bytes=200 * GB, log_bytes=log)  # fmt: skip


def over(hours: float, growth: int, **of: Any) -> list[dict[str, Any]]:
    """Samples every half hour that grow evenly by `growth` bytes in all, ending at noon."""
    steps = max(1, int(hours * 2))
    return [
        directory(NOON_MS - int(hours * HOUR_MS * (1 - n / steps)), 50 * GB + growth * n // steps,
                  **of)
        for n in range(steps + 1)
    ]  # fmt: skip


def test_the_documents_formula(spark: Any) -> None:
    rows = (
        over(24, 24 * GB)
        + over(24, -GB, name="/old", free=150 * GB)
        + over(24, GB, broker=2, free=90 * GB)
    )
    found = landed.inputs(spark, metrics=rows)
    section = forecast.section(found, LISTENED)
    by_name = {(row[0].text, row[1].text): row for row in section.tables[0].rows}
    # 100 GB free, 1 GB an hour, 0.8 of it
    assert by_name["1", "/data"][2].value == pytest.approx(80)
    assert by_name["2", "/data"][2].value == pytest.approx(90 * 24 * 0.8)
    assert by_name["1", "/old"][2].value is None
    assert by_name["1", "/old"][6].text == "not growing"
    assert section.tables[0].rows[0][1].text == "/data"  # the soonest first
    assert section.findings == ()  # 80 h are more than 72
    assert landed.check_rows(found, section) >= 3


@pytest.mark.parametrize(
    ("free", "alarm"), [(89 * GB, True), (91 * GB, False)], ids=["71.2 h", "72.8 h"]
)
def test_the_alarm_is_below_72_hours(spark: Any, free: int, alarm: bool) -> None:
    section = forecast.section(landed.inputs(spark, metrics=over(24, 24 * GB, free=free)), LISTENED)
    assert FORECAST_HOURS_MIN == 72
    assert bool(section.findings) is alarm
    assert section.tables[0].rows[0][2].verdict == ("bad" if alarm else "good")


def test_less_than_a_day_is_scaled_and_called_an_estimate(spark: Any) -> None:
    section = forecast.section(landed.inputs(spark, metrics=over(6, 12 * GB)), LISTENED)
    row = section.tables[0].rows[0]
    assert row[2].value == pytest.approx(100 / 2 * 0.8)  # 2 GB an hour
    assert row[6].text == "estimate from 6 h"
    (alarm,) = section.findings
    assert "broker 1 /data is full in 40 h" in alarm.what
    assert alarm.what.endswith(", as of 2025-11-25 12:00:00 UTC")  # a day before the report's end
    assert alarm.since_ms == NOON_MS - 5.5 * HOUR_MS  # when growth was known


def test_since_when_a_disk_is_filling(spark: Any) -> None:
    """It grew slowly, then fast; and hours ago as fast for a while."""
    gb = (50, 50.1, 53, 53, 53, 53, 53, 53.1, 53.2, 70, 80)  # at each hour, 100 free
    rows = [directory(NOON_MS - (10 - n) * HOUR_MS, int(used * GB), free=100 * GB)
            for n, used in enumerate(gb)]  # fmt: skip
    found = landed.inputs(spark, metrics=rows, until_ms=NOON_MS + HOUR_MS // 4)
    (alarm,) = forecast.section(found, LISTENED).findings
    assert alarm.since_ms == NOON_MS - HOUR_MS and "as of" not in alarm.what


def test_a_directory_that_is_gone_fills_nothing(spark: Any) -> None:
    filling = over(24, 24 * GB, free=10 * GB, name="/lost")
    rows = filling[:-2] + over(24, GB, name="/data")
    section = forecast.section(landed.inputs(spark, metrics=rows), LISTENED)
    lines = {row[1].text: row for row in section.tables[0].rows}
    assert section.findings == ()
    assert (lines["/lost"][2].value, lines["/lost"][2].verdict) == (None, "open")
    assert lines["/lost"][6].text == "gone: its broker's newest samples lack it"
    assert lines["/data"][8].text == "-"
    assert section.words[0].startswith("The first to be full is broker 1 /data")


def test_one_burst_is_no_alarm(spark: Any) -> None:
    burst = [directory(NOON_MS, 0), directory(NOON_MS + 60_000, 50 * GB)]
    section = forecast.section(landed.inputs(spark, metrics=burst), LISTENED)
    assert section.tables[0].rows[0][2].verdict == "open"
    assert section.findings == ()
    assert any("too few samples" in word for word in section.words)


def test_one_sample_says_so(spark: Any) -> None:
    section = forecast.section(landed.inputs(spark, metrics=[directory(NOON_MS, 1)]), LISTENED)
    (row,) = section.tables[0].rows
    assert (row[2].verdict, row[6].text) == ("open", "one sample only")
    assert section.words[0] == "Not known: one sample only."


def test_growth_is_of_a_day_in_a_report_of_an_hour(spark: Any) -> None:
    """The span has an hour; 24 GB came in the day before its end."""
    whole = landed.inputs(spark, metrics=over(24, 24 * GB))
    hour = landed.inputs(spark, metrics=over(1, GB), day=whole.metrics)
    section, wanted = forecast.section(hour, LISTENED), forecast.section(whole, LISTENED)
    assert section.tables == wanted.tables
    assert section.tables[0].rows[0][6].text == "from a day"


def test_directories_of_one_file_system_fill_it_together(spark: Any) -> None:
    """100 GB are free once: 1 GB an hour in each of two directories is 40 h, not twice 80."""
    rows = over(24, 24 * GB, name="/a") + over(24, 24 * GB, name="/b")
    rows += over(24, 24 * GB, name="/c", free=100 * GB + 65_000_000)  # another, as large
    rows += over(24, 24 * GB, name="/a", broker=2)
    found = landed.inputs(spark, metrics=rows)
    section = forecast.section(found, LISTENED)
    hours = {(row[0].text, row[1].text): (row[2].value, row[8].text)
             for row in section.tables[0].rows}  # fmt: skip
    assert hours == {
        ("1", "/a"): (pytest.approx(40), "/b"), ("1", "/b"): (pytest.approx(40), "/a"),
        ("1", "/c"): (pytest.approx(80, rel=0.01), "-"), ("2", "/a"): (pytest.approx(80), "-"),
    }  # fmt: skip
    (alarm,) = section.findings  # of each file system one; the others have more than 72 h
    assert alarm.what.startswith("broker 1 /a, /b is full in 40 h")
    landed.check_rows(found, section)
    forecasts = alerts.signals(found, silence.listen(found)).where("signal = 'forecast'").collect()
    last = {(row.broker_id, row.entity): row.value for row in forecasts if row.at_ms == NOON_MS}
    assert {place: round(value) for place, value in last.items()} == {
        (1, "/a"): 40, (1, "/b"): 40, (1, "/c"): 80, (2, "/a"): 80,
    }  # fmt: skip


# -- alerts


def test_every_rule_has_its_counterpart_or_a_reason() -> None:
    assert {rule.name for rule in RULES} | set(NOT_IN_SAMPLES) == set(documented())
    assert not {rule.name for rule in RULES} & set(NOT_IN_SAMPLES)
    assert all(NOT_IN_SAMPLES.values())


@pytest.mark.parametrize("disk", ["ssd", "hdd"])
def test_thresholds_are_those_of_the_rules(disk: Any) -> None:
    own = documented(disk)
    for rule in rules(disk):
        if rule.name == "KbrokerDown":  # up == 0 for 3m: as long a silence
            assert rule.threshold * 60_000 == for_ms(own[rule.name].for_)
            continue
        expr = own[rule.name].expr
        limits = re.findall(r"([<>]) ([0-9.]+)", expr)
        assert (rule.than, float(rule.threshold)) in [(t, float(n)) for t, n in limits], expr


def every_15_s(minutes: float, make: Any, *, from_ms: int = NOON_MS) -> list[dict[str, Any]]:
    """Samples that `make` fills; the last after so many minutes."""
    return [make(from_ms + 15_000 * n) for n in range(int(minutes * 4) + 1)]


def replicas(broker: int, under: int) -> Any:
    return lambda at: sample("Replicas", at, broker, under_replicated=under, under_min_isr=0)


def threads(broker: int, idle: float) -> Any:
    return lambda at: sample("Threads", at, broker, handler_idle=idle, network_idle=0.9)


def request(broker: int, kind: str, part: str, le: float, count: int = 100) -> Any:
    buckets = [{"le": 1.0, "count": 50}, {"le": le, "count": count}]
    return lambda at: sample("RequestTime", at, broker, request=kind, part=part, count=count,
                             buckets=buckets)  # fmt: skip


# Each a broker of its own, so that one evaluation answers for all.
(HELD, SHORT, BROKEN, APART, LOW, MIDDLING, SLOW, RARE, WAITING, FETCHING, FULL, GROWING, SILENT,
 LAGGING) = range(1, 15)  # fmt: skip


def resources(at: int) -> list[dict[str, Any]]:
    def disk(device: str, gb: int) -> dict[str, Any]:
        return {**sample("Disk", at, FULL, device=device, read_bytes=gb * GB, written_bytes=GB),
                "interval_ms": 30_000}  # fmt: skip

    return [
        sample("Process", at, FULL, resident_bytes=8 * GB, memory_limit_bytes=10 * GB),
        disk("sda", 15), disk("sdb", 1),
        sample("LogDirectory", at, FULL, directory="/d", free_bytes=GB, total_bytes=100 * GB,
               log_bytes=GB),
    ]  # fmt: skip


def group(name: str, *lags: int, members: int = 2) -> list[dict[str, Any]]:
    """Lags of a group every half minute."""
    return [sample("GroupLag", NOON_MS + n * 30_000, LAGGING, consumer_group=name, topic="orders",
                   lag=lag, members=members) for n, lag in enumerate(lags)]  # fmt: skip


def groups() -> list[dict[str, Any]]:
    """One falls back, one has a large lag and catches up, one keeps its lag; one has no reader,
    one has none for ten minutes."""
    return [*group("falls back", *range(2_000, 8_000, 100)), *group("same", *[5_000] * 60),
            *group("catches up", *range(60_000, 0, -1_000)),
            *group("left", *[7] * 40, members=0),
            *group("restarts", *[9] * 21, members=0), *group("restarts", *[9] * 60)[21:],
            ]  # fmt: skip


def situations() -> list[dict[str, Any]]:
    rows = every_15_s(5, replicas(HELD, 3)) + every_15_s(4.75, replicas(SHORT, 3))
    broken = every_15_s(8, replicas(BROKEN, 1))
    broken[16]["under_replicated"] = 0
    rows += broken + every_15_s(4, replicas(APART, 1))
    rows += every_15_s(4, replicas(APART, 1), from_ms=NOON_MS + 10 * 60_000)
    low = every_15_s(30, threads(LOW, 0.15))
    low[10]["handler_idle"] = 0.01
    rows += low + every_15_s(30, threads(MIDDLING, 0.3)) + every_15_s(12, threads(SILENT, 1.0))
    rows += every_15_s(10, request(SLOW, "Produce", "TotalTimeMs", 250.0))
    # One value of 2,200 in each minute is slow: its p99 is not.
    rare = every_15_s(10, request(RARE, "Produce", "TotalTimeMs", 2.0, 500))
    for row in rare[::4]:
        row["buckets"] = [*row["buckets"], {"le": 900.0, "count": 1}]
    rows += rare + every_15_s(10, request(WAITING, "FetchConsumer", "RemoteTimeMs", 500.0))
    rows += every_15_s(10, request(FETCHING, "FetchConsumer", "LocalTimeMs", 120.0))
    rows += every_15_s(10, request(FETCHING, "FetchConsumer", "ResponseSendTimeMs", 130.0))
    for at in range(NOON_MS, NOON_MS + 11 * 60_000, 30_000):
        rows += resources(at)
    rows += groups()
    return rows + [directory(NOON_MS + n * 30_000, GB + n * GB, broker=GROWING) for n in range(120)]


@pytest.fixture(scope="module")
def fired(spark: Any) -> dict[str, dict[int, list[Any]]]:
    """By rule and broker: the lines of the table."""
    found = landed.inputs(spark, metrics=situations())
    section = alerts.section(found, silence.listen(found))
    assert landed.check_rows(found, section) > 10
    by_rule: dict[str, dict[int, list[Any]]] = {name: {} for name in documented()}
    for row in section.tables[0].rows:
        by_rule[row[0].text].setdefault(int(row[2].text), []).append(row)
    return by_rule


Fired = dict[str, dict[int, list[Any]]]


def test_a_condition_fires_when_it_held_as_long_as_the_rule_says(fired: Fired) -> None:
    assert set(fired["HighUnderReplicatedPartitions"]) == {HELD}
    (row,) = fired["HighUnderReplicatedPartitions"][HELD]
    times = [cell.text for cell in row[4:7]]
    assert times == ["2025-11-25 12:00:00", "2025-11-25 12:05:00", "5 min"]
    assert row[7].value == 3
    assert SHORT in fired["KbrokerUnderReplicatedPartitions"]  # a minute is enough for this one
    assert fired["KbrokerUnderMinIsr"] == {}


def test_one_good_sample_or_silence_begins_anew(fired: Fired) -> None:
    stricter = fired["KbrokerUnderReplicatedPartitions"]
    assert len(stricter[BROKEN]) == 2 and len(stricter[APART]) == 2
    assert [row[6].text for row in stricter[BROKEN]] == ["3 min 45 s", "3 min 45 s"]


def test_idle_by_broker_with_the_worst(fired: Fired) -> None:
    assert set(fired["LowRequestHandlerIdle"]) == {LOW}
    assert fired["LowRequestHandlerIdle"][LOW][0][7].value == pytest.approx(0.01)
    assert set(fired["KbrokerRequestHandlersBusy"]) == {LOW, MIDDLING}
    assert fired["LowNetworkProcessorIdle"] == {}


def test_latency_is_the_p99_of_each_minutes_merged_histogram(fired: Fired) -> None:
    assert set(fired["HighProduceLatencyP99"]) == {SLOW}
    assert fired["HighProduceLatencyP99"][SLOW][0][7].value == 250


def test_fetch_leaves_out_waiting_for_records(fired: Fired) -> None:
    assert set(fired["HighFetchLatencyP99"]) == {FETCHING}
    assert fired["HighFetchLatencyP99"][FETCHING][0][7].value == 250


def test_resources(fired: Fired) -> None:
    assert fired["HighMemoryUsage"][FULL][0][7].value == pytest.approx(0.8)
    assert [row[3].text for row in fired["HighDiskThroughput"][FULL]] == ["sda"]
    assert fired["HighDiskThroughput"][FULL][0][7].value == pytest.approx(16 * GB / 30)
    assert fired["KbrokerDiskSpaceLow"][FULL][0][3].text == "/d"


def test_a_group_that_falls_back(fired: Fired) -> None:
    """From its second sample on; the least of the 15 minutes before its last one is 4,900."""
    (row,) = fired["KbrokerConsumerLagGrows"][LAGGING]
    assert (row[3].text, row[6].text) == ("falls back in orders", "29 min")
    assert row[7].value == 4_900


def test_a_group_without_readers(fired: Fired) -> None:
    """After fifteen minutes; one without members for ten is left alone."""
    (row,) = fired["KbrokerGroupWithoutMembers"][LAGGING]
    assert (row[3].text, row[7].value) == ("left in orders", 7)


def test_full_soon(fired: Fired) -> None:
    assert set(fired["LogDirectoryFullSoon"]) == {GROWING}  # the other does not grow
    (row,) = fired["LogDirectoryFullSoon"][GROWING]
    assert row[7].value == pytest.approx(100 / 120 * 0.8, rel=0.01)


def test_full_soon_in_a_report_of_an_hour(spark: Any) -> None:
    """30 GB came in a day and none in the hour that is reported: 61 h at the day's growth."""
    hour = [directory(NOON_MS - n * 5 * 60_000, 50 * GB) for n in range(13)]
    day = landed.inputs(spark, metrics=[*hour, directory(NOON_MS - 24 * HOUR_MS, 20 * GB)])
    found = landed.inputs(spark, metrics=hour, day=day.metrics, since_ms=NOON_MS - HOUR_MS)
    section = alerts.section(found, silence.listen(found))
    assert [row[0].text for row in section.tables[0].rows] == ["LogDirectoryFullSoon"]
    last = section.tables[0].rows[0][7]
    assert last.value == pytest.approx(100 / 30 * 23 * 0.8, rel=0.01)  # at the hour's begin
    assert last.rows is not None and last.rows.count == 13
    landed.check_rows(found, section)


def test_a_broker_that_falls_silent_is_down(fired: Fired) -> None:
    """To when the topics were last read, which GROWING's samples tell: 59.5 minutes."""
    assert set(fired["KbrokerDown"]) == {SILENT, LOW, MIDDLING}
    (row,) = fired["KbrokerDown"][SILENT]
    assert (row[6].text, row[7].value) == ("47 min 30 s", 47.5)


def test_an_alert_that_lasts_to_the_end_is_reported_after_any_others(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is sampled half as often as threads; three times before something else fired."""
    monkeypatch.setattr(alerts, "SHOWN_MAX", 2)
    step = 5 * 60_000
    rows = [
        sample("Replicas", NOON_MS + n * step, under_replicated=under, under_min_isr=0)
        for n, under in enumerate((1, 1, 0, 1, 1, 0, 1, 1, 0, 0, 0, 0))
    ]
    rows += [sample("Process", NOON_MS + n * step, resident_bytes=8 * GB,
                    memory_limit_bytes=10 * GB) for n in range(0, 11, 2)]  # fmt: skip
    for row in rows:
        row["interval_ms"] = step
    found = landed.inputs(spark, metrics=rows)
    section = alerts.section(found, silence.listen(found))
    (holds,) = section.findings
    assert holds.what == "broker 1: 80 % of the memory limit is used (HighMemoryUsage)"
    assert section.words[0].startswith("more than 2 alerts")


def test_no_samples_are_no_data(spark: Any) -> None:
    found = landed.inputs(spark)
    section = alerts.section(found, silence.listen(found))
    assert section.words[0] == f"No data: none of {len(RULES)} rules has samples to judge by."
    assert len(section.tables[1].rows) == len(documented())
    assert {row[3].text for row in section.tables[1].rows} == {"no data", "not evaluated"}
