"""Every command with arguments that are wrong in every way ends in a line and a status.

No broker answers here: what is asked for is read before one is looked for, or the command ends with
the line that none is there.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from kbroker.cli import main as entry
from kbroker.cli.commands import root
from kbroker.cli.main import main
from kbroker.cli.numbers import INT_MAX, INT_MIN, LONG_MAX, number_of, unsigned_of
from tests.unit.peer.fake_broker import FakeBroker

NO_BROKER: Final = "127.0.0.1:1"
DIGITS: Final = "9" * 5000  # more than `int` takes
HOSTILE: Final = (
    "", "-1", "nan", "1e999", "\u0663", DIGITS, f"-{DIGITS}", f"a:{DIGITS}", f"a/0/{DIGITS}",
    f"a={DIGITS}", f"a:0-{DIGITS}", "\udcff", "a=\udcff", "\x1b[2J\x07\n", "x" * 40_000, "a..b",
    "directory", "missing/file", "empty", "bytes", "deep", "[::1", ",", "=",
)  # fmt: skip
USER: Final = ("--alter", "--entity-type", "users", "--entity-name", "u", "--add-config")
# A broker; the harness, which has tests of its own; and 30 s for a broker that comes.
LEFT_OUT: Final = frozenset({("start",), ("perf",), ("health", "--wait")})


def commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    def below(
        command: click.Command, path: tuple[str, ...]
    ) -> Iterator[tuple[tuple[str, ...], click.Command]]:
        if not isinstance(command, click.Group):
            yield path, command
            return
        context = click.Context(command)
        for name in command.list_commands(context):
            each = command.get_command(context, name)
            assert each is not None
            yield from below(each, (*path, name))

    yield from (each for each in below(root(), ()) if each[0] not in LEFT_OUT)


def given(param: click.Parameter, value: str) -> list[str]:
    if isinstance(param, click.Argument):
        return [value]
    is_flag = isinstance(param, click.Option) and param.is_flag
    return [param.opts[-1]] if is_flag else [param.opts[-1], value]


def lines(path: tuple[str, ...], command: click.Command) -> Iterator[list[str]]:
    """Each parameter with each of the values, beside the ones that the command needs."""
    for param in command.params:
        if (*path, *param.opts[-1:]) in LEFT_OUT:
            continue
        others = [each for each in command.params if each.required and each is not param]
        needed = [word for each in others for word in given(each, "short")]
        first = isinstance(param, click.Argument) and param is command.params[0]
        for value in HOSTILE:
            words = given(param, value)
            yield [*path, *words, *needed] if first else [*path, *needed, *words]


@pytest.mark.parametrize(
    ("path", "command"), [pytest.param(*each, id=" ".join(each[0])) for each in commands()]
)
def test_a_command_ends_in_one_line(
    path: tuple[str, ...],
    command: click.Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KBROKER_BOOTSTRAP", NO_BROKER)
    (tmp_path / "directory").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "bytes").write_bytes(b'\xff\xfe\0"\n\0')
    (tmp_path / "deep").write_text("[" * 100_000)
    for words in lines(path, command):
        if path[0].startswith("kafka-") and "--bootstrap-server" not in words:
            words += ["--bootstrap-server", NO_BROKER]
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(open(os.devnull, "rb")))  # noqa: SIM115
        status = main(words)
        output = capfd.readouterr()
        assert 0 <= status <= 6, words
        assert status == 0 or output.err or output.out, words
        assert "Traceback" not in output.err and "\x1b" not in output.err, words


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as fake:
        fake.add_topic("a")
        yield fake


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        (["kafka-consumer-groups", "--list", "--timeout", DIGITS], 0, "of option timeout"),
        (["kafka-configs", *USER, f"SCRAM-SHA-256=[iterations={DIGITS},password=x]"],
         1, "For input string"),
        (["kafka-configs", *USER, "SCRAM-SHA-256=[iterations=16385,password=x]"],
         1, "Iterations 16385 is more than the maximum 16384 allowed for SCRAM-SHA-256"),
        (["kafka-get-offsets", "--time", DIGITS], 1, "Malformed time argument"),
        (["kafka-get-offsets", "--partitions", DIGITS], 1, "--partitions expects"),
        (["kafka-get-offsets", "--topic-partitions", f"a:{DIGITS}"], 1, "For input string"),
    ],
)  # fmt: skip
def test_numbers_that_are_too_large(
    broker: FakeBroker,
    words: list[str],
    status: int,
    line: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*words, "--bootstrap-server", broker.bootstrap]) == status
    output = capsys.readouterr()
    said = (output.out + output.err).strip()
    assert line in said and "\n" not in said


def test_a_word_that_is_not_utf_8_may_be_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a\udcff"
    assert main(["dump-log", str(file)]) == 2
    assert capsys.readouterr().err.endswith("is not in UTF-8 -> check the shell's encoding\n")
    file.touch()
    main(["dump-log", str(file)])
    assert "is not in UTF-8" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(36, "File name too long", "x"), "error: x: File name too long\n"),
        (PermissionError(13, "Permission denied", "/y\x1b"), "error: /y\\x1b: Permission denied\n"),
    ],
)
def test_errors_of_files(
    error: OSError, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: list[str]) -> int:
        raise error

    monkeypatch.setattr(entry, "_run", fail)
    assert main(["topic", "list"]) == 1
    assert capsys.readouterr().err == line
    with pytest.raises(OSError):
        main(["start"])  # what a broker did not expect is no mistake of its user


@pytest.mark.parametrize(
    ("how", "status", "errors"),
    [
        (">/dev/full", 1, b"error: No space left on device\n"),
        (">&-", 0, b""),
        ("2>&-", 0, b""),
        ("| true", 1, b""),
    ],
)
@pytest.mark.parametrize("words", ["--help", "version -o json", "generate completion bash"])
def test_output_that_cannot_be_written(words: str, how: str, status: int, errors: bytes) -> None:
    line = f"set -o pipefail; {sys.executable} -m kbroker {words} {how}"
    ran = subprocess.run(["bash", "-c", line], capture_output=True, timeout=60)
    if how == "| true" and ran.returncode == 0:
        return  # it had written all before its reader ended
    assert (ran.returncode, ran.stderr) == (status, errors)


def test_an_encoding_without_the_character(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    words = ["kafka-consumer-groups", "--validate-regex", "é"]
    ran = subprocess.run(
        [sys.executable, "-m", "kbroker", *words],
        capture_output=True, env=environment, timeout=60, check=True,
    )  # fmt: skip
    assert b"`\\xe9` is valid" in ran.stdout


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("-7", -7), ("+7", 7), ("00000000000000000000000007", 7), (str(INT_MAX), INT_MAX),
     (str(INT_MIN), INT_MIN), (str(INT_MAX + 1), None), ("", None), ("-", None), ("+", None),
     ("1 ", None), ("1\n", None), ("\u0663", None), ("1_0", None), (DIGITS, None)],
)  # fmt: skip
def test_numbers(text: str, number: int | None) -> None:
    assert number_of(text, INT_MIN, INT_MAX) == number
    unsigned = number if text[:1].isdigit() else None
    assert unsigned_of(text, INT_MAX) == unsigned


def test_numbers_of_64_bits() -> None:
    assert unsigned_of(str(LONG_MAX), LONG_MAX) == LONG_MAX
    assert unsigned_of(str(LONG_MAX + 1), LONG_MAX) is None
