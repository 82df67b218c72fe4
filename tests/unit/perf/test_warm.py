"""Warming, by kind of request; what of a process is its compiler's and collector's; live memory."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from perf.brokers import kafka
from perf.brokers.attached import AttachedBroker
from perf.cells import BY_KEY, CELLS, GROUP_CELLS, Block, Cell
from perf.process import ThreadWatch
from perf.warm import BLOCKS_MAX, FLAT_BLOCKS, WARM_REQUESTS, Kind, flat, kinds, until_flat
from perf.warm import CELLS as WARM_CELLS
from tests.unit.perf.test_report import block


def cost(us: float, *, compiling: float = 0.0, requests: int = 1000) -> Block:
    one = block("p-100-1x5", "kafka", us, rate=requests)
    return replace(one, compiler_cpu_s=one.broker_cpu_s * compiling)


def test_every_cell_has_a_cell_that_warms_its_kind() -> None:
    every = kinds(cell.key for cell in CELLS)
    assert set(every) == set(WARM_CELLS)
    for kind, key in WARM_CELLS.items():
        assert kinds([key]) == [kind]
        assert not BY_KEY[key].rate, "no rate holds warming back"


def test_a_produce_warms_no_fetch() -> None:
    """All of the 200,000 used to be Produce 7, where that was quickest."""
    asked: list[str] = []

    def run(cell: Cell) -> Block:
        asked.append(cell.key)
        return cost(1000 / len(asked), requests=50_000)

    for kind in kinds(["p-1k-4x5", "f-1m", "e2e-java-200"]):
        done = until_flat(run, BY_KEY[WARM_CELLS[kind]], WARM_REQUESTS)
        assert done.requests >= WARM_REQUESTS and done.enough
    assert [asked.count(key) for key in ("p-100-16x5", "f-16k", "j-100-16x5", "jf-16k")] == [4] * 4
    assert kinds(["e2e-200"]) == [Kind("produce", "plain"), Kind("fetch", "plain")]


def test_a_load_with_steady_cost_is_warm_unless_it_still_compiles() -> None:
    assert not flat([cost(10)] * (FLAT_BLOCKS - 1))
    assert flat([cost(900), *[cost(10)] * FLAT_BLOCKS])
    assert not flat([cost(10), cost(12), cost(10)])
    assert not flat([cost(900, compiling=0.4)] * FLAT_BLOCKS), "interpreted, and compiling"


def test_a_system_that_never_gets_warm_is_reported() -> None:
    costs = iter(range(1, BLOCKS_MAX + 2))
    done = until_flat(lambda _cell: cost(next(costs), requests=1), BY_KEY["f-16k"], WARM_REQUESTS)
    assert (done.requests, done.flat, done.enough) == (BLOCKS_MAX, False, False)


def test_the_limit_is_not_asked_for_groups() -> None:
    assert {kind.work for kind in kinds(GROUP_CELLS)} == {"heartbeat", "commit"}


def test_the_share_of_some_threads() -> None:
    """A thread that spins under the compiler's name, beside one that does not."""
    ready, done = threading.Event(), threading.Event()

    def spin() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("C2 CompilerThre")
        ready.set()
        while not done.is_set():
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        ready.wait()
        watch = ThreadWatch(os.getpid(), {"compiler": ("C1 ", "C2 "), "collector": ("G1 ",)})
        until = time.thread_time() + 0.3  # many turns of the two
        while time.thread_time() < until:
            pass
        shares = watch.shares()
    finally:
        done.set()
        thread.join()
    assert 0.2 < shares["compiler"] < 0.8 and shares["collector"] == 0
    assert ThreadWatch(os.getpid(), {}).shares() == {}


def test_cpu_is_reported_with_and_without_the_runtime() -> None:
    one = replace(block("f-16k", "kafka", 100), compiler_cpu_s=0.03, collector_cpu_s=0.01)
    assert one.cpu_us_per_request == pytest.approx(100)
    assert one.cpu_us_without_runtime == pytest.approx(60)


def test_live_bytes_of_a_heap() -> None:
    text = "num  #instances  #bytes\n   1:  7  8  [B (java.base)\nTotal     100864     5898216\n"
    assert kafka._live_bytes(text) == 5898216
    for damaged in ("", "error: no such process\n", "x\ny\n"):
        assert kafka._live_bytes(damaged) is None


def test_without_jcmd_nothing_is_said_of_a_heap(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert kafka.KafkaBroker(tmp_path).held_bytes() is None


def test_resident_memory_of_a_jvm_that_is_not_ours_is_not_taken_for_its_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = AttachedBroker("127.0.0.1", 1, os.getpid())
    assert own.held_bytes()
    monkeypatch.setattr(Path, "read_text", lambda _path: "java\n")
    assert own.held_bytes() is None
