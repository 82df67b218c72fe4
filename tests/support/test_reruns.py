"""A failure that may be a client library's runs once more, and is reported; ours never does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kbroker.testing import process
from tests.clients.agents.driver import AgentError
from tests.clients.conftest import a_clients_own
from tests.support.source_tree import ROOT

# A test of each kind that fails at first, as the walks of many clients are marked.
SOME = """
import pytest
from tests.clients.agents.driver import AgentError
from tests.clients.conftest import a_clients_own

seen = set()

@pytest.mark.flaky(reruns=1, condition=a_clients_own)
@pytest.mark.parametrize("error", [AgentError, AssertionError])
def test_some(error):
    if error not in seen:
        seen.add(error)
        raise error("at first")
"""


def test_a_rerun_is_counted_and_shows_how_it_failed(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_terminal_summary\n")
    (tmp_path / "test_some.py").write_text(SOME)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path),
         str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    output, _, end = run.stdout.rpartition("1 run again, 1 of them green then")
    assert output, run.stdout + run.stderr
    assert "test_some.py::test_some[AgentError]" in end and "AgentError: at first" in end
    assert "1 failed, 1 passed, 1 rerun" in end
    assert run.returncode == 1


@pytest.mark.parametrize(
    ("error", "alive", "log", "may_be"),
    [
        (AgentError("java: UnknownMemberIdException"), True, "", True),
        (AgentError("java: UnknownMemberIdException"), False, "", False),
        (AgentError("java: UnknownMemberIdException"), True, "Traceback (most recent", False),
        (AgentError("java: TimeoutException: 60000 ms"), True, "", False),
        (AgentError("kcat: Local: Message timed out"), True, "", False),
        (AgentError("java: no answer in 90.0 s"), True, "", False),
        (AgentError("java: IllegalStateException: 3 of 40 records"), True, "", False),
        (AgentError("confluent-kafka: RuntimeError: error codes [0, -192]"), True, "", False),
        (TimeoutError(), True, "", False),
        (subprocess.TimeoutExpired("client", 1), True, "", False),
        (AssertionError(), True, "", False),
        (None, True, "", False),
    ],
)
def test_failures_that_may_be_a_clients_own(
    error: BaseException | None, alive: bool, log: str, may_be: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    well = SimpleNamespace(alive=True, log_text=lambda: "")
    server = SimpleNamespace(alive=alive, log_text=lambda: log)
    monkeypatch.setattr(process, "running", lambda: (well, server))
    assert a_clients_own(error) is may_be
