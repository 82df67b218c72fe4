"""Measurements of a log, made up: which of them count, and what bars say of them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from perf.brokers.kafka import KafkaBroker
from perf.brokers.kbroker import KbrokerBroker
from perf.cells import CellError
from perf.cluster.paced import Latency
from perf.log import cleaning, fsync, recovery, start
from perf.log.cleaning import Cleaned
from perf.log.fsync import FsyncPlan, Synced
from perf.log.recovery import Recovered, RecoveryPlan
from perf.log.rounds import BRIEF_SESSION, new_broker, order
from perf.log.start import Started, StartPlan
from perf.measurement import Measurement, beside_kafka
from tests.unit.perf.test_report import MACHINE

BOTH = ("kbroker", "kafka")


def verdicts(measured: Measurement) -> list[str]:
    """Of each bar; its lines can be printed and kept."""
    assert measured.text(MACHINE, 1.0)
    json.dumps(measured.to_json(MACHINE, 1.0), allow_nan=False)
    return [bar.verdict for bar in measured.bars]


# --- Rounds ---------------------------------------------------------------------------------------


def test_the_order_turns_round() -> None:
    assert [order(BOTH, number)[0] for number in range(3)] == ["kbroker", "kafka", "kbroker"]


def test_a_killed_broker_waits_for_no_session(tmp_path: Path) -> None:
    kafka = new_broker("kafka", tmp_path / "a", ("x=1",), killed=True)
    assert isinstance(kafka, KafkaBroker)
    (tmp_path / "a" / "data").mkdir(parents=True)
    (tmp_path / "a" / "data" / "meta.properties").touch()  # formatted
    kafka.prepare()
    lines = (tmp_path / "a" / "server.properties").read_text().splitlines()
    assert {"x=1", *BRIEF_SESSION} <= {*lines}
    assert len({line.partition("=")[0] for line in lines}) == len(lines)  # nothing else says it
    ours = new_broker("kbroker", tmp_path / "b", ("x=1",), killed=True)
    assert isinstance(ours, KbrokerBroker)
    assert ours.command()[-2:] == ["--override", "x=1"]


# --- Recovery -------------------------------------------------------------------------------------


def recovered(
    broker: str, number: int, start_s: float, empty_s: float = 0.5, partitions: int = 1
) -> Recovered:
    return Recovered(
        broker, number, partitions, 5_000_000_000, start_s, empty_s, 1.0, 1 << 20, 0, True
    )


def recoveries(ours_s: float, theirs_s: float) -> list[Recovered]:
    return [
        recovered(broker, number, start_s, empty_s)
        for number in range(7)
        for broker, start_s, empty_s in (("kbroker", ours_s, 0.5), ("kafka", theirs_s, 2.0))
    ]


def measured(found: Sequence[Recovered]) -> list[str]:
    return verdicts(recovery.report(found, RecoveryPlan().to_json()))


def test_a_recovery_is_the_extra_time_of_a_start() -> None:
    one = recovered("kbroker", 0, 3.0)
    assert one.seconds == 2.5
    assert one.megabytes_per_s == 2000
    assert recovered("kbroker", 0, 0.5).megabytes_per_s is None


def test_recoveries_are_judged_by_round() -> None:
    assert measured(recoveries(1.5, 6.0)) == ["pass, surely", "pass, surely"]
    # The start of a JVM helps the whole, and hides nothing of the recovery.
    assert measured(recoveries(3.0, 6.0)) == ["FAIL", "pass, surely"]
    assert (
        measured([one for one in recoveries(1.0, 6.0) if one.broker == "kbroker"])
        == ["not measured"] * 2
    )
    few = [replace(one, quiet=one.round > 2) for one in recoveries(1.0, 6.0)]
    assert measured(few)[0].startswith("no result: 4 of 6 rounds needed (3 noisy")


def test_a_recovery_that_drowned_in_the_noise_has_no_ratio() -> None:
    found = recoveries(1.0, 6.0)
    found[0] = replace(found[0], start_s=0.4)
    value = recovery.bars(found)[0].value
    assert value is not None
    assert len(value.values) == 6
    assert measured([replace(one, start_s=one.empty_s) for one in found])[0].startswith(
        "no result: 0"
    )


def test_numbers_of_partitions_are_apart() -> None:
    found = recoveries(1.0, 6.0)
    found += [replace(one, partitions=100) for one in recoveries(4.0, 6.0)]
    said = recovery.report(found, RecoveryPlan().to_json())
    assert verdicts(said)[::2] == ["pass, surely", "FAIL"]
    assert [row[:2] for row in said.rows] == [
        ["kbroker", "1"], ["kafka", "1"], ["kbroker", "100"], ["kafka", "100"],
    ]  # fmt: skip


def test_removed_and_cold_logs_are_reported() -> None:
    found = recoveries(1.0, 6.0)
    found[3] = replace(found[3], from_disk_bytes=100_000_000)
    remarks = recovery.report(found, RecoveryPlan().to_json()).remarks
    assert ".kafka_cleanshutdown and recovery-point-offset-checkpoint removed" in remarks[0]
    assert remarks[1:] == ["1 of 14 recoveries read more than 1 % from the disk"]


def test_both_brokers_get_the_same_whole_batches_and_settings() -> None:
    plan = RecoveryPlan(gigabytes=5, partitions=(1, 100), threads=3)
    assert plan.body.records == 16
    for partitions in plan.partitions:
        assert 4.99e9 < plan.bytes(partitions) <= 5e9
    assert RecoveryPlan(gigabytes=0.001).bytes(1000) == 1000 * len(plan.body.data)
    assert "num.recovery.threads.per.data.dir=3" in plan.settings
    assert set(plan.to_json()) == {"brokers", "rounds", "gigabytes", "partitions", "threads"}


def test_a_broker_that_has_not_read_its_logs_has_not_recovered() -> None:
    recovery.check_read("kafka", 10, 10)
    with pytest.raises(CellError, match="that is no recovery"):
        recovery.check_read("kafka", 9, 10)


# --- Start ----------------------------------------------------------------------------------------


def started(broker: str, number: int, ready_s: float, each: int) -> Started:
    empty = 40 << 20
    resident = empty + each * 10_000
    return Started(
        broker, number, 10_000, ready_s, 1.0, 0.3, 1.0, resident, empty, resident, empty, True
    )


def test_starts_and_memory_are_kbroker_s_own() -> None:
    plan = dict(StartPlan().__dict__)
    found = [
        started(broker, number, ready_s, each)
        for number in range(7)
        for broker, ready_s, each in (("kbroker", 1.0, 5_000), ("kafka", 20.0, 50_000))
    ]
    assert found[0].bytes_each == found[0].held_bytes_each == 5_000
    assert verdicts(start.report(found, plan)) == ["pass, surely", "pass, surely"]
    large = [replace(one, resident_bytes=one.resident_bytes * 10) for one in found]
    assert verdicts(start.report(large, plan)) == ["pass, surely", "FAIL"]
    loud = [replace(one, quiet=False, ready_s=9.0) for one in found]
    assert verdicts(start.report(loud, plan)) == [
        "no result: 0 of 6 values needed (7 noisy left out: something else ran)", "pass, surely",
    ]  # fmt: skip
    theirs = [replace(one, held_bytes=None) for one in found if one.broker == "kafka"]
    assert verdicts(start.report(theirs, plan)) == ["not measured"] * 2
    assert theirs[0].held_bytes_each is None


# --- fsync ----------------------------------------------------------------------------------------


def synced(broker: str, number: int, rate: float, partitions: int = 16) -> Synced:
    return Synced(broker, number, partitions, rate, 900.0, 2_000.0, 50.0, 0.5, True)


@pytest.mark.parametrize(
    ("ours", "verdict"), [(5_000.0, "pass, surely"), (3_000.0, "FAIL"), (0.5, "FAIL")]
)
def test_twice_the_requests_are_half_the_time(ours: float, verdict: str) -> None:
    found = [
        synced(broker, number, rate, partitions)
        for number in range(7)
        for partitions in (16, 1)
        for broker, rate in (("kbroker", ours), ("kafka", 2_000.0))
    ]
    said = fsync.report(found, dict(FsyncPlan().__dict__))
    assert verdicts(said) == [verdict] * 2
    assert said.remarks == [fsync.INVERSE]
    uncounted = [replace(one, flushes_per_request=None) for one in found]
    assert fsync.report(uncounted, {}).remarks[-1] == fsync.NO_DISK


def test_the_cell_syncs_each_batch_of_one_record() -> None:
    cell = FsyncPlan().cell(1)
    assert dict(cell.configs) == {"flush.messages": "1"}
    assert (cell.size, cell.batch_bytes, cell.acks) == (1_000, 0, 1)
    assert (cell.connections, cell.in_flight, cell.partitions) == (16, 1, 1)


def test_flushes_of_the_disk_below(tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    disk = tmp_path / f"{os.major(device)}:{os.minor(device)}"
    assert fsync.disk_flushes(tmp_path, tmp_path) is None
    disk.mkdir()
    (disk / "stat").write_text(" ".join(map(str, range(17))))
    assert fsync.disk_flushes(tmp_path, tmp_path) == 15
    (disk / "stat").write_text("1 2 3")
    assert fsync.disk_flushes(tmp_path, tmp_path) is None


# --- Cleaning -------------------------------------------------------------------------------------


def cleaned(broker: str, number: int, cpu_s: float, beside_us: float) -> Cleaned:
    alone, beside = Latency(100, 50.0, 100.0), Latency(100, 60.0, beside_us)
    return Cleaned(broker, number, 9.0, cpu_s, 1 << 20, 2 << 30, 1 << 30, alone, beside, True)


def test_cleanings_are_judged_by_round() -> None:
    found = [
        cleaned(broker, number, cpu_s, 120.0)
        for number in range(7)
        for broker, cpu_s in (("kbroker", 4.0), ("kafka", 10.0))
    ]
    assert verdicts(cleaning.report(found, {})) == ["pass, surely", "pass, surely"]
    loud = [replace(one, quiet=one.round > 2) for one in found]
    assert len(beside_kafka(loud, lambda one: one.cpu_s).quiet) == 4
    assert all(said.startswith("no result: 4 of 6") for said in verdicts(cleaning.report(loud, {})))
