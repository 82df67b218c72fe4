"""A tool of Apache Kafka and ours with its options, at one broker.

Each call is run by both. Lines on standard output and exit statuses are to be equal, and of an
error without output our last line is to be one of the original's on standard error.
"""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple
from uuid import uuid4

from kbroker.cli.main import main
from tests.clients.agents.tools import Tools

TIMEOUT_S = 60
ID = re.compile(r"TopicId: \S{22}")
EXCEPTION = re.compile(r"(?:[a-z]+\.)+[\w.]*(?:Exception|Error): ")


class Ended(NamedTuple):
    status: int
    output: str
    trouble: str


class Pair:
    """The original and ours. TOPIC in an argument becomes a name of that side's own. The trouble of
    the result is the original's. `within`: ours runs in this process, which is faster; it has no
    standard input then. `unordered`: the original prints lines in the order of its JVM."""

    def __init__(
        self,
        tools: Tools,
        bootstrap: str,
        tool: str,
        command: str,
        *,
        within: bool = False,
        unordered: bool = False,
    ) -> None:
        self._tools, self._bootstrap = tools, bootstrap
        self._tool, self._command = tool, command
        self._within, self._unordered = within, unordered
        self._name = uuid4().hex[:10]

    def names(self) -> tuple[str, str]:
        """Of the same length, and with the same place in an alphabet."""
        return f"t{self._name}-theirs", f"t{self._name}-oursss"

    def both(
        self,
        *arguments: str,
        bootstrap: bool = True,
        stdin: bytes = b"",
        alone: bool = False,
        output_of: Mapping[str, str] | None = None,
    ) -> Ended:
        """The end of both; AssertionError: they differ. `alone`: the original is not run.
        `output_of`: expressions for texts that are new in each call, and their replacements."""
        theirs, ours = self.names()
        where = ("--bootstrap-server", self._bootstrap) if bootstrap else ()
        second = self._own([*where, *(each.replace("TOPIC", ours) for each in arguments)], stdin)
        if alone:
            return second
        first = self._original(
            [*where, *(each.replace("TOPIC", theirs) for each in arguments)], stdin
        )
        patterns = output_of or {}
        assert self._plain(second, patterns) == self._plain(first, patterns), (first, second)
        if first.status and not first.output:
            assert self._lines(second)[-1] in self._lines(first), (first, second)
        return first

    def theirs(self, *arguments: str) -> Ended:
        """The original by itself."""
        return self._original(["--bootstrap-server", self._bootstrap, *arguments], b"")

    def each(
        self, lines: str, *, status: int | None = None, login: tuple[str, str] | None = None
    ) -> str:
        """Every line of arguments, one after the other; what the original printed in all."""
        printed = ""
        for line in lines.strip().splitlines():
            ended = self.both(*(login or ()), *shlex.split(line))
            assert status in (None, ended.status), (line, ended)
            printed += ended.output
        return printed

    def _original(self, arguments: list[str], stdin: bytes) -> Ended:
        ran = self._tools.attempt(self._tool, *arguments, stdin=stdin)
        return Ended(ran.returncode, ran.stdout.decode(), ran.stderr.decode())

    def _own(self, arguments: list[str], stdin: bytes) -> Ended:
        if self._within:
            output, trouble = io.StringIO(), io.StringIO()
            with redirect_stdout(output), redirect_stderr(trouble):
                status = main([self._command, *arguments])
            return Ended(status, output.getvalue(), trouble.getvalue())
        ran = subprocess.run(
            [sys.executable, "-m", "kbroker", self._command, *arguments],
            input=stdin, capture_output=True, timeout=TIMEOUT_S,
        )  # fmt: skip
        return Ended(ran.returncode, ran.stdout.decode(), ran.stderr.decode())

    def _plain(self, ended: Ended, patterns: Mapping[str, str]) -> tuple[int, str]:
        text = ID.sub("TopicId: ID", self._common(ended.output))
        for pattern, put in patterns.items():
            text = re.sub(pattern, put, text)
        if self._unordered:
            text = "\n".join(sorted(line.strip() for line in text.splitlines()))
        return ended.status, text

    def _lines(self, ended: Ended) -> list[list[str]]:
        """The words of each, sorted: the original prints some sets in the order of its JVM."""
        lines = EXCEPTION.sub("", self._common(ended.trouble)).replace(",", " ").splitlines()
        return [sorted(line.split()) for line in lines if line.strip()]

    def _common(self, text: str) -> str:
        for name in self.names():
            text = text.replace(name, "TOPIC")
        return text
