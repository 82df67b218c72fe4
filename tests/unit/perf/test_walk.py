"""`make walk`: calls noted in a process, compiled and Python, and the walk that they make."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.generated_part import replaced
from perf.walk import report, tree
from perf.walk.__main__ import KEPT, PAGE
from perf.walk.kinds import KEYS
from perf.walk.trace import Call, Function, Trace, plain_name, unit_of
from perf.walk.walk import paths_of, walk_of
from tests.support.source_tree import ROOT

# -- names


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("__pyx_f_7kbroker_3net_8_channel_channel_turn", "channel_turn"),
        ("__pyx_f_7kbroker_3net_8_channel__close_if_done.part.0", "_close_if_done"),
        ("__pyx_f_7kbroker_3net_8_channel_9Processor_run", "Processor.run"),
        ("__pyx_pw_7kbroker_3net_8_channel_9Processor_11wake", "Processor.wake"),
        ("__pyx_f_7kbroker_3net_12_muted_waits_note_waits", "_muted_waits.note_waits"),
        ("__pyx_f_7kbroker_11_lock_order_lock_ranked", "_lock_order.lock_ranked"),
        ("kb_store_int", "kb_store_int"),
    ],
)
def test_functions_are_named_as_in_the_source(symbol: str, name: str) -> None:
    assert plain_name(symbol, "net._channel") == name


def test_a_unit_is_named_for_its_file() -> None:
    assert unit_of("/a/kbroker/net/_channel.cpython-311-x86_64-linux-gnu.so") == "net._channel"
    assert unit_of("/usr/lib/libc.so.6") is None and unit_of("[stack]") is None


# -- a process

_ONE_C = """
extern void two(void);
static void helped(void) {}
void one(void) { helped(); two(); helped(); }
"""
_TWO_C = "void two(void) {}\n"
_MAIN = """
import ctypes, sys, threading
from pathlib import Path
from kbroker import words

here = Path(__file__).parent
ctypes.CDLL(str(here / "two.x-y.so"), mode=ctypes.RTLD_GLOBAL)
one = ctypes.CDLL(str(here / "one.x-y.so")).one
print("ready", flush=True)
for line in sys.stdin:
    thread = threading.Thread(target=words.served, args=(one,), name="server")
    thread.start()
    thread.join()
    print("done", flush=True)
"""
_WORDS = """
def served(one):
    one()
    helper()

def helper():
    sorted([2, 1], key=lambda each: each)
"""


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[tuple[Trace, subprocess.Popen[str]]]:
    """A program that is called kbroker, with two compiled units and two of Python."""
    package = tmp_path / "sources" / "kbroker"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(_MAIN)
    (package / "words.py").write_text(_WORDS)
    for name, text in (("two", _TWO_C), ("one", _ONE_C)):
        (tmp_path / f"{name}.c").write_text(text)
        library = package / f"{name}.x-y.so"
        source = tmp_path / f"{name}.c"
        command = [tree.compiler(), *tree.CFLAGS, "-O2", "-shared", "-fPIC", "-o", library, source]
        subprocess.run(command, check=True)
    with Trace(tmp_path / "trace") as trace:
        variables = trace.variables(package.parent, tree.tracer(tmp_path))
        with subprocess.Popen(
            [sys.executable, "-m", "perf.walk.traced"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, cwd=tmp_path,
            env={**os.environ, **variables, "PYTHONPATH": f"{package.parent}:{ROOT}"},
        ) as process:  # fmt: skip
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield trace, process
            assert process.stdin is not None
            process.stdin.close()


def test_calls_are_noted_while_they_are_recorded(
    traced: tuple[Trace, subprocess.Popen[str]],
) -> None:
    trace, process = traced

    def ask() -> None:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"

    for _ in range(2):
        calls = trace.record(ask, process.pid)
        ask()  # not recorded
        assert [(call.function.unit, call.function.name) for call in calls] == [
            ("words", "served"), ("one", "one"), ("one", "helped"), ("two", "two"),
            ("one", "helped"), ("words", "helper"), ("words", "helper.<locals>.<lambda>"),
            ("words", "helper.<locals>.<lambda>"),
        ]  # fmt: skip
        callers = [call.caller and call.caller.unit for call in calls]
        assert callers == [None, "words", "one", "one", "one", "words", "words", "words"]
        assert [call.function.compiled for call in calls[:2]] == [False, True]
        assert len({call.thread for call in calls}) == 1
    walk = walk_of("go", "Go", [calls])
    assert [unit.name for unit in walk.units] == ["words", "one", "two"]
    assert walk.paths == (("words", "one", "two", "one", "words"),)


# -- walks


def call(unit: str, caller: str | None = None, thread: str = "a") -> Call:
    below = Function(caller, "f", True) if caller else None
    return Call(Function(unit, "f", True), below, thread)


FORTH_AND_BACK = [
    call("x"), call("y", "x"), call("z", "y"), call("x", "x"), call("y", "x"), call("y", "y"),
    call("w", "x"),
]  # fmt: skip


def test_a_path_has_the_returns_that_something_follows() -> None:
    assert paths_of(FORTH_AND_BACK) == [("x", "y", "z", "x", "y", "x", "w")]
    other = [call("x"), call("q", thread="b"), call("y", "x"), call("r", "q", thread="b")]
    assert paths_of(other) == [("x", "y"), ("q", "r")]


def test_a_walk_counts_units_steps_and_steps_back() -> None:
    walk = walk_of("k", "K", [FORTH_AND_BACK])
    assert (len(walk.units), walk.steps, walk.back) == (4, 6, 3)
    assert walk.pairs == [("x", "y", 3)]
    assert [unit.calls for unit in walk.units] == [2, 3, 1, 1]


def test_units_that_ran_only_some_of_the_times_are_listed_apart() -> None:
    timer = [call("clock", thread="timer"), call("x", "clock", "timer")]
    short, long = FORTH_AND_BACK[:3], [*FORTH_AND_BACK[:3], call("y", "x")]
    walk = walk_of("k", "K", [[*short, *timer], long, [*timer, *short]])
    assert [unit.name for unit in walk.units] == ["x", "y", "z"] and walk.beside == ("clock",)
    assert walk.paths == (("x", "y", "z"),), "of the median time, without what the timer calls"


def test_walks_are_reported() -> None:
    data = report.to_json([walk_of("k", "K", [FORTH_AND_BACK])], {"commit": "abc", "when": "now"})
    data = json.loads(report.written(data))
    text = report.to_text(data)
    assert " 2 y" in text and "x and y: 3 steps" in text
    assert text.splitlines()[-1].split() == ["K", "4", "4", "0", "1", "6", "3"]
    page = report.to_page(report.kept(data))
    assert page.startswith("Commit abc, now.") and "| K | 4 | 4 | 0 | 1 | 6 | 3 |" in page
    assert "**K**: `x`, `y`, `z`, `w`." in page


def test_the_page_is_drawn_from_the_walks_that_are_kept() -> None:
    data = json.loads(KEPT.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    assert replaced(page, report.BEGIN, report.to_page(data)) == page
    assert [walk["key"] for walk in data["walks"]] == [*KEYS]


@pytest.mark.parametrize(("key", "units_max"), [("produce", 26), ("fetch", 22), ("commit", 28)])
def test_a_hot_request_crosses_few_units(key: str, units_max: int) -> None:
    """As `make walk ARGS=--write` kept it last."""
    kept = json.loads(KEPT.read_text())
    (walk,) = (walk for walk in kept["walks"] if walk["key"] == key)
    assert len(walk["units"]) <= units_max
