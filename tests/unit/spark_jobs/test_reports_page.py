"""docs/reports.md says commands that the jobs take, and codes that they end with."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from spark_jobs import errors, maintain, report, rows, stream
from tests.support.source_tree import ROOT

PAGE = (ROOT / "docs" / "reports.md").read_text()
PARSERS: dict[str, Callable[[list[str]], Any]] = {
    "stream": stream.arguments,
    "report": report.arguments,
    "maintain": maintain.arguments,
    "rows": rows.arguments,
}
_JOB = re.compile(r"spark_jobs[./](\w+)(?:\.py)?( .*)")


def commands() -> Iterator[tuple[str, list[str]]]:
    """Job and words of each whole command of a code block or of code in a line."""
    text = PAGE.replace("\\\n", " ")
    blocks = re.findall(r"```(.*?)```", text, re.DOTALL)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    for line in (line for block in [*blocks, *inline] for line in block.splitlines()):
        found = _JOB.search(line)
        if found and found[1] in PARSERS and "..." not in line:
            yield found[1], shlex.split(found[2].split(")")[0], comments=True)


COMMANDS = list(commands())


def test_the_page_has_commands_of_every_job() -> None:
    assert {job for job, _ in COMMANDS} == set(PARSERS)


@pytest.mark.parametrize(("job", "words"), COMMANDS, ids=lambda value: " ".join(value)[:60])
def test_a_command_is_taken(job: str, words: list[str]) -> None:
    PARSERS[job](words)


def test_options_that_are_described_exist(capsys: pytest.CaptureFixture[str]) -> None:
    known = set()
    for parse in PARSERS.values():
        with pytest.raises(SystemExit):
            parse(["--help"])
        known |= set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
    described = set(re.findall(r"^\| `(--[a-z-]+)", PAGE, re.MULTILINE))
    assert len(described) >= 5
    assert described <= known


def test_exit_codes_are_those_of_the_jobs() -> None:
    section = PAGE.partition("## Exit codes")[2].partition("\n## ")[0]
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)}
    named = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert codes == named | {0}
