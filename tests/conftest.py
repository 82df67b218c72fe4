"""What every test gets: no silent skips in CI, and a broker's log with every failure beside it.

- KBROKER_REQUIRE=all turns a skip into a failure, except for reasons that no set-up can remove
  (tests/support/requirements.py).
- The project's own pytest plugin, which puts the log and the last requests of each broker that runs
  at that moment beside a failure.
- Examples of hypothesis have no deadline: on a busy machine one that is quick takes a second.
- Nothing that a test's connections have caused may outlive them (tests/support/nothing_stays.py).
- The header names the programs that the client tests found.
- Where pytest-xdist hands whole files to processes, those that share a Spark session go together
  (tests/support/together.py); tests/support/order.py says in which order files begin.
- A test that was run again, and how it failed the first time, stand at the end of the run.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from kbroker.testing import process
from lab.jars import KAFKA
from tests.support import nothing_stays, requirements
from tests.support.alone import Room

pytest_plugins = [
    "kbroker.testing.plugin",
    "tests.support.killed_calls",
    "tests.support.spark_session",
    "tests.support.zookeeper",
]
collect_ignore = ["sample_project"]  # a project of its own: tests/system/test_wheel.py runs it

ROOM = pytest.StashKey[Room]()

process.watchers.append(nothing_stays.WATCHER)

hypothesis.settings.register_profile("kbroker", deadline=None)
hypothesis.settings.load_profile("kbroker")


def pytest_report_header() -> list[str]:
    found = {name: shutil.which(name) or "missing" for name in ("kcat", "java")}
    found["jars"] = str(KAFKA.directory) if KAFKA.present() else "missing"
    found["required"] = os.environ.get("KBROKER_REQUIRE", "what is here")
    return ["client tests: " + ", ".join(f"{key} {value}" for key, value in found.items())]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The tests stay as long as the process: no garbage collection looks at them, then or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if in_a_process_of_several(config):
        from tests.support import order

        names = {item.path: _below_tests(item.path) for item in items}
        alone = {names[item.path] for item in items if is_alone(item)}
        places = order.places(names.values(), alone)
        items.sort(key=lambda item: places[names[item.path]])


def _below_tests(path: Path) -> str:
    return path.relative_to(Path(__file__).parent).as_posix()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.support.together import Together

    return Together(config, log)


def in_a_process_of_several(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")  # pytest-xdist's


def is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


def pytest_sessionstart(session: pytest.Session) -> None:
    # A process that is started in the background ignores it, and so do its children: they would
    # stay.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if in_a_process_of_several(session.config):
        run = session.config.workerinput["testrunuid"]  # type: ignore[attr-defined]
        session.config.stash[ROOM] = Room(run)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if ROOM in session.config.stash:
        session.config.stash[ROOM].close()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Outside of the timeout's clock: waiting for the others is no part of the test."""
    room = item.config.stash.get(ROOM, None)
    if room is None:
        return (yield)
    with room.inside(is_alone(item)):
        return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    again = terminalreporter.stats.get("rerun", [])
    if not again:
        return
    passed = {report.nodeid for report in terminalreporter.stats.get("passed", [])}
    green = sum(report.nodeid in passed for report in again)
    terminalreporter.section(f"{len(again)} run again, {green} of them green then")
    for report in again:
        terminalreporter.line(f"{report.nodeid}\n{report.longreprtext}")
        for title, text in report.sections:
            terminalreporter.line(f"--- {title} ---\n{text}")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    nothing_stays.look_at_all()
    nothing_stays.look_at_levels()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        _fail_a_forbidden_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped:
        _fail_a_forbidden_skip(report)
    return report


def _fail_a_forbidden_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not requirements.everything_required():
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not requirements.may_skip(reason):
        report.outcome = "failed"
        report.longrepr = f"KBROKER_REQUIRE=all, and this was skipped: {reason}"
