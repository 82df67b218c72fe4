"""Document 000's experiment: its plan, what its blocks check, and the networks that it makes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lab.jars import Jars
from perf import cli
from perf.cells import CellError
from perf.pipelining import java_producer, picture
from perf.pipelining.bars import bars, matrix
from perf.pipelining.plan import (
    ALL,
    KAFKA,
    MIDDLE_US,
    PIPELINED,
    SECTIONS,
    SLOTS,
    STOCK,
    SYSTEMS,
    Plan,
    conditions,
    makers,
    points,
    took_about_s,
)
from perf.pipelining.two_networks import FAR_HOST, NetworkError, TwoNetworks, echo
from perf.results_table import DIMENSIONS
from perf.studies.study import Outcome, StudyError, slots
from tests.support import requirements
from tests.unit.perf.studies.fake import measured

# -- the plan


def test_every_cell_has_a_key_of_its_own_and_columns_of_the_table() -> None:
    every = points(Plan())
    assert len({point.key for point in every}) == len(every)
    columns = {field.name for field in DIMENSIONS}
    assert all(set(point.dims) <= columns for point in every)
    assert {str(point.dims["cell"]).partition(":")[0] for point in every} == set(SECTIONS)
    for one in {str(point.dims["cell"]): point for point in every if not point.dims["baseline"]}:
        same = sum(point.dims["cell"] == one for point in every)
        assert same == (len(SLOTS) if one.startswith("slots") else len(SYSTEMS))


def test_compared_cells_are_measured_in_one_group() -> None:
    groups = {one.key: one.group for one in conditions(Plan())}
    for in_flight in (5, 200):
        ours = matrix(PIPELINED, MIDDLE_US, ALL, in_flight)
        for other in (KAFKA, STOCK):
            assert groups[ours.key] == groups[matrix(other, MIDDLE_US, ALL, in_flight).key]


def test_the_follower_is_killed_in_the_first_round_alone() -> None:
    plan = Plan(sections=("killed", "java"), rounds=3)
    rounds = [slot.round for slot in slots(points(plan), 3) if slot.point.key.startswith("killed")]
    assert rounds == [0] * 6


def test_only_the_servers_that_a_section_needs_are_started() -> None:
    assert Plan(sections=("slots",), slots=(16, 64)).started == ("pipelined-16", "pipelined-64")
    assert Plan(sections=("matrix",), systems=(STOCK,)).started == (STOCK,)
    assert Plan(sections=("killed",)).started == ()  # each of its runs has a cluster of its own
    assert Plan(sections=("killed", "slots"), slots=(16,)).started == ("pipelined-16",)
    assert set(Plan().started) == set(makers(Plan().slots))


def test_the_time_that_it_takes_has_the_turns_of_its_closed_loops() -> None:
    """2,000 requests that are served one by one, 5 ms each, to warm and again to drain."""
    plan = Plan(sections=("matrix",), systems=(STOCK,), round_trips_us=(5000,), in_flight=(2000,))
    assert took_about_s(plan) > plan.rounds * 2 * 2000 * 0.005
    assert took_about_s(Plan(sections=("java",))) > 7 * 3 * 15  # as they took
    null = replace(plan, systems=(PIPELINED,), round_trips_us=(MIDDLE_US,), in_flight=(5,))
    once = replace(null, in_flight=(6,))
    assert took_about_s(null) > took_about_s(once) + plan.rounds  # a null test is one more block


# -- the bars


def _outcome(megabytes: dict[str, float]) -> Outcome:
    """Six rounds in which each of these moved so much at 0.5 ms with five in flight."""
    plan = Plan(sections=("matrix",))
    outcome = Outcome("pipelining", tuple(points(plan)), 6, {})
    for system, rate in megabytes.items():
        one = replace(measured(100), bytes=int(rate * 1e6), wall_s=1.0)
        key = matrix(system, MIDDLE_US, ALL, 5).key
        outcome.blocks[key] = dict.fromkeys(range(6), one)
    return outcome


@pytest.mark.parametrize(
    ("ours", "against_kafka", "against_stock"),
    [
        (40.0, "pass, surely", "pass, surely"),
        (30.0, "FAIL", "pass, surely"),
        (20.0, "FAIL", "FAIL"),
    ],
)
def test_a_bar_is_how_many_times_as_much(
    ours: float, against_kafka: str, against_stock: str
) -> None:
    found = bars(_outcome({KAFKA: 10.0, STOCK: 10.0, PIPELINED: ours}))
    assert [bar.verdict for bar in found[:2]] == [against_kafka, against_stock]
    assert {bar.verdict for bar in found[2:]} == {"not measured"}


# -- the picture


def test_the_picture_has_a_bar_for_each_system_and_cell() -> None:
    plan = Plan.quick(rounds=6)
    outcome = _outcome({KAFKA: 10.0, STOCK: 11.0, PIPELINED: 40.0})
    outcome.machine = {"when": "2026-11-25 10:00", "cpus": 2, "model": "<made up>", "commit": "c"}
    svg = picture.drawn(outcome, plan)
    root = ElementTree.fromstring(svg)
    bars = [each for each in root.iter() if each.tag.endswith("rect") and len(each)]
    assert [each.get("class") for each in bars] == [KAFKA, STOCK, PIPELINED]
    lengths = [float(each.get("width", 0)) for each in bars]
    assert lengths[2] == pytest.approx(4 * lengths[0], rel=0.01)
    assert svg == picture.drawn(outcome, plan)


def test_a_study_without_the_first_table_has_no_picture() -> None:
    with pytest.raises(StudyError, match="the first table"):
        picture.drawn(_outcome({}), Plan(sections=("java",)))


# -- the Java producer


def test_the_java_producer_s_last_words_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = (
        "4000 records sent, 812.5 records/sec (7.93 MB/sec), 3.0 ms avg latency, 90.0 ms max "
        "latency, 2 ms 50th, 5 ms 95th, 9 ms 99th, 11 ms 99.9th.\n"
        "8000 steady state records sent, 2500.0 records/sec (24.41 MB/sec), 3.0 ms avg latency, "
        "90.0 ms max latency, 2 ms 50th, 5 ms 95th, 19 ms 99th, 21 ms 99.9th.\n"
    )
    _java(tmp_path, monkeypatch, f"cat <<'END'\n{said}END")
    found = java_producer.run("localhost:9", "t")
    assert (found.records_per_s, found.p99_ms, found.records) == (2500.0, 19.0, 12_000)
    assert found.seconds == pytest.approx(4.8) and found.cpu_s >= 0
    _java(tmp_path, monkeypatch, f"cat <<'END'\n{said.replace('2500.0', '0.0')}END")
    with pytest.raises(CellError, match="no record acknowledged"):
        java_producer.run("localhost:9", "t")
    _java(tmp_path, monkeypatch, "echo no broker; exit 3")
    with pytest.raises(CellError, match="ended with 3: no broker"):
        java_producer.run("localhost:9", "t")


def _java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str) -> None:
    fake = tmp_path / "java"
    fake.write_text(f"#!/bin/sh\n{does}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(java_producer, "KAFKA", Jars("none", ()))


# -- the command line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--round-trips", "500,x"], "whole numbers, with commas"),
        (["--round-trips", "0"], "from 1 to 1,000,000"),
        (["--in-flight", "5,5"], "each once"),
        (["--slots", "65537"], "from 1 to 65,536"),
        (["--systems", "redpanda"], "redpanda: there are kafka, stock, pipelined"),
        (["--sections", "matrix,matrix"], "each once"),
    ],
)
def test_an_unknown_section_is_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["pipelining", *arguments]) == 2
    assert says in capsys.readouterr().err


# -- two networks


def test_without_the_right_to_make_them_it_names_its_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("perf.network.enter_new", refuse)
    with pytest.raises(NetworkError, match="run it as root"), TwoNetworks():
        pass


@pytest.fixture
def networks() -> TwoNetworks:
    if os.geteuid() != 0 or not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        requirements.skip_on_this_machine("two networks need root and tun")
    return TwoNetworks()


def test_a_round_trip_takes_the_requested_time(networks: TwoNetworks) -> None:
    before = os.readlink("/proc/thread-self/ns/net")
    with networks:
        for asked_s in (0.005, 0.0, 0.01):
            networks.set_round_trip(asked_s)
            assert networks.round_trip_s() >= asked_s
        assert os.readlink("/proc/thread-self/ns/net") != before
    assert os.readlink("/proc/thread-self/ns/net") == before


def test_a_busy_line_takes_a_new_round_trip_before_the_next_packet(networks: TwoNetworks) -> None:
    """One that had packets to carry at every turn did not look for it until they were gone."""
    with networks, networks.far.entered(), socket.create_server((FAR_HOST, 0)) as server:
        far_end = threading.Thread(target=echo, args=(server,), daemon=True)
        far_end.start()
        with networks.near.entered(), socket.create_connection(server.getsockname(), 5.0) as near:
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for asked_s in (0.005, 0.0, 0.01, 0.0, 0.02):
                networks.set_round_trip(asked_s)
                began = time.perf_counter()
                near.sendall(b"x")
                near.recv(1)
                assert time.perf_counter() - began >= asked_s
                for _ in range(0 if asked_s else 100):
                    near.sendall(b"x")
                    near.recv(1)
        far_end.join()


def test_a_server_in_the_far_network_is_reached_over_the_line(
    networks: TwoNetworks,
) -> None:
    """And only there: its address is none of the near side's."""
    serve = (
        "import socket\n"
        f"server = socket.create_server(('{FAR_HOST}', 0))\n"
        "print(server.getsockname()[1], flush=True)\n"
        "server.accept()[0].sendall(b'x' * 1_000_000)\n"
    )
    with networks:
        networks.set_round_trip(0.01)
        with networks.far.entered():
            far = subprocess.Popen([sys.executable, "-c", serve], stdout=subprocess.PIPE)
        with far:
            assert far.stdout is not None
            port = int(far.stdout.readline())
            assert _received(port) == 1_000_000
        for each in (networks.near, networks.far):
            assert "TCPToZeroWindowAdv" in each.tcp_counters()


def _received(port: int) -> int:
    received = 0
    with socket.create_connection((FAR_HOST, port), 10) as near:
        while data := near.recv(1 << 16):
            received += len(data)
    return received


def test_its_end_takes_the_line_with_it(networks: TwoNetworks) -> None:
    with networks:
        pid = networks.line_pid
        assert Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(NetworkError, match="has ended"):
        networks.set_round_trip(0.0)
