"""The entry point: statuses, one-line errors, lazy imports."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kbroker.cli import main as entry
from kbroker.cli.commands import VERBS, LazyGroup, Verb, root
from kbroker.cli.main import main
from kbroker.cli.version import VERSION
from kbroker.errors import AddressInUse, ErrorCode, InvariantError, KafkaError

ROOT = Path(__file__).parents[3]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out.startswith(f"kbroker {VERSION} ")
    assert main(["version", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == VERSION
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"kbroker {VERSION}\n"


def test_version_is_the_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        (["strat"], 2, "error: no command 'strat', did you mean start? -> see kbroker --help"),
        (["zzz"], 2, "error: no command 'zzz' -> see kbroker --help"),
        (["version", "--nope"], 2, "error: No such option"),
        (["config", "explain"], 2, "error: Missing argument 'KEY'."),
        (["start", "--port", "65536"], 2, "error: Invalid value for '--port'"),
        (["start", "--port"], 2, "error: Option '--port' requires an argument."),
        (["start", "/no/such/file"], 3, "error: KB1002 cannot read /no/such/file"),
        (["start", "--override", "x"], 2, "error: KB1001 --override 'x' is no setting"),
        (["start", "--override", "node.id=-1"], 3, "error: KB1002 node.id='-1'"),
    ],
)
def test_trouble_is_one_line_and_a_status(
    words: list[str], status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(line)
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (AddressInUse("port 1 is taken", "use another"), 4, "port 1 is taken -> use another"),
        (KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "no\nname"), 1, "no name"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_exceptions_become_statuses(
    error: BaseException,
    status: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(words: list[str]) -> int:
        raise error

    monkeypatch.setattr(entry, "_run", fail)
    assert main([]) == status
    err = capsys.readouterr().err
    assert line in err
    assert err.count("\n") == (1 if line else 0)


def test_the_impossible_is_not_dressed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(words: list[str]) -> int:
        raise InvariantError("broken")

    monkeypatch.setattr(entry, "_run", fail)
    with pytest.raises(InvariantError):
        main([])


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())  # long ones are wrapped
    for name, verb in VERBS.items():
        assert f"{name} {verb.help}" in out
    assert main([]) == 2  # no verb: the help, as an error


@pytest.mark.parametrize("name", ["start", "config", "perf", "version"])
def test_verbs_can_be_loaded(name: str) -> None:
    group = root()
    command = group.get_command(group.make_context("kbroker", ["version"]), name)
    assert command is not None
    assert command.name == name


def test_a_module_without_command_is_a_defect() -> None:
    group = LazyGroup("x", verbs={"bad": Verb("json", "No command there.")})
    with pytest.raises(InvariantError):
        group.get_command(group.make_context("x", ["bad"], resilient_parsing=True), "bad")


def test_perf_hands_its_words_over(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    class Harness:
        @staticmethod
        def main(words: list[str]) -> int:
            seen.append(words)
            return 7

    monkeypatch.setitem(sys.modules, "perf.cli", Harness)  # type: ignore[arg-type]
    assert main(["perf", "compare", "--help", "-x", "1"]) == 7
    assert seen == [["compare", "--help", "-x", "1"]]


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("perf", "pip install 'kbroker[perf]'"),
        ("numpy", "pip install 'kbroker[perf]'"),
        ("perf._load", "make build"),
    ],
)
def test_perf_without_its_dependencies(
    name: str, fix: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(_: str) -> object:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("kbroker.cli.perf.importlib.import_module", missing)
    assert main(["perf", "compare"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{name} is missing" in line and fix in line


def _modules_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint('\\n'.join(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


@pytest.mark.parametrize("word", ["version", "--version"])
def test_version_imports_no_broker(word: str) -> None:
    modules = _modules_after(f"from kbroker.cli.main import main\nassert main([{word!r}]) == 0")
    assert "click" in modules
    slow = {"kbroker.config", "kio", "numpy", "asyncio", "importlib.metadata"}
    assert modules & slow == set()


def test_start_imports_nothing_slow_before_the_broker() -> None:
    modules = _modules_after(
        "from kbroker.cli.start_arguments import parse_plain\n"
        "from kbroker.cli.start import build_config\n"
        "import kbroker.cli.main\n"
        "build_config(parse_plain(['--port', '0', '--data-dir', '/tmp/x']))"
    )
    assert "kbroker.config.broker" in modules
    slow = {"click", "kio", "numpy", "asyncio", "dataclasses", "json", "logging"}
    assert modules & slow == set()


def test_a_command_that_asks_a_broker_imports_nothing_slow() -> None:
    """A command has 150 ms in all; an event loop or the schema library would take a third of it."""
    modules = _modules_after(
        "from kbroker.cli.main import main\n"
        "for words in (['topic', 'list'], ['group', 'list'], ['group', 'describe', 'g'],\n"
        "              ['group', 'reset', 'g', '-t', 't', '--to-latest'], ['offsets'],\n"
        "              ['consume', 't'], ['consume', 't', '-G', 'g'], ['health'], ['logdirs'],\n"
        "              ['config', 'get', '-t', 't'], ['top', '-n', '1']):\n"
        "    assert main([*words, '-b', '127.0.0.1:1']) in (1, 2), words"
    )
    assert "kbroker.peer.groups" in modules
    slow = {"asyncio", "kio", "numpy", "ssl", "rich", "prometheus_client", "tempfile", "http"}
    assert modules & slow == set()


def test_python_m_kbroker() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kbroker", "version"], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert VERSION in done.stdout
