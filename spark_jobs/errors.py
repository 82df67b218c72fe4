"""Expected trouble of a job: one line that says what, why and what to do, and an exit code.

Scripts and service managers rely on the codes; docs/reports.md lists them.
"""

from __future__ import annotations

import re
from typing import Final

from kbroker.errors import UserError

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_LOSS: Final = 4  # records that were to be landed are gone
EXIT_LOCKED: Final = 5  # another job lands the same topic into the same tables
EXIT_ALARM: Final = 10  # a report's

_LINE_MAX: Final = 300
# The end of a traceback of Python, in the text that Spark makes of it.
_PYTHON: Final = re.compile(
    r"^(?:[a-z_]\w*(?:\.\w+)*\.)?[A-Z]\w*(?:Error|Exception): (.+)$", re.MULTILINE
)
# The cause at the bottom of one of Java's: its last line of this kind.
_CAUSE: Final = re.compile(r"^Caused by: (?:[\w.$]+\.)?(.+)$", re.MULTILINE)


class JobError(UserError):
    """`message` is the line; `exit_code` what the process ends with."""

    def __init__(self, message: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class LostRange(JobError):
    """Records between what has landed and what the topic still holds are gone."""

    def __init__(self, message: str) -> None:
        super().__init__(message, EXIT_LOSS)


class Locked(JobError):
    """Another job is at the same work."""

    def __init__(self, message: str) -> None:
        super().__init__(message, EXIT_LOCKED)


def first_line(error: object) -> str:
    """The most telling line of an exception that came through Spark."""
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename or '?'}: {error.strerror}"
    else:
        text = str(error).strip()
    raised = _PYTHON.findall(text) if "Traceback (most recent call last)" in text else []
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling "):
        lines[0] = lines[1].removeprefix(": ")
    line = raised[-1] if raised else lines[0] if lines else type(error).__name__
    for mark in ("terminated with exception: ", "org.apache.spark.SparkException: "):
        line = line.rsplit(mark, 1)[-1]
    causes = [] if raised else [cause for cause in _CAUSE.findall(text) if cause not in line]
    if not causes:
        return _cut(line, _LINE_MAX)
    cause = _cut(causes[-1], _LINE_MAX // 2)
    return f"{_cut(line, _LINE_MAX - len(cause) - 2)}: {cause}"


def _cut(line: str, most: int) -> str:
    return line if len(line) <= most else f"{line[: most - 3]}..."
