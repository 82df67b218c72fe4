"""The source itself, held to the project's own measures; each banned call names its replacement.

Lengths: a file 600 lines, a function 70, a line 100, so that a file holds one idea, a function fits
a screen and a diff fits beside another. Every unit opens with its contract. Each ban has a reason
in the table with the replacement; the few places that are the replacement themselves are named
there too.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.support.source_tree import (
    blanked,
    cython_functions,
    functions,
    logical_lines,
    relative,
    source_files,
)

FILE_LINES_MAX: Final = 600
FUNCTION_LINES_MAX: Final = 70
LINE_CHARS_MAX: Final = 100
CONTRACT_CHARS_MIN: Final = 40

SUFFIXES: Final = (".py", ".pyx", ".pxd")
ALL: Final = source_files(
    "kbroker", "lab", "perf", "release", "spark_jobs", "tests", suffixes=SUFFIXES
)
PRODUCT: Final = source_files("kbroker", "lab", "perf", "release", "spark_jobs", suffixes=SUFFIXES)


@dataclass(frozen=True)
class Ban:
    """A call (or word) that is not used, where, and what is used instead."""

    pattern: str
    instead: str
    folders: tuple[str, ...] = ("kbroker/",)
    except_in: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = (".py", ".pyx", ".pxd")

    def applies_to(self, name: str) -> bool:
        return (
            name.startswith(self.folders)
            and not name.startswith(self.except_in)
            and name.endswith(self.suffixes)
        )


BANS: Final = (
    Ban(
        r"\btime\.(time|time_ns|monotonic|monotonic_ns)\(|\bdatetime\.(now|utcnow|today)\(",
        "take a kbroker.clock.Clock, so that tests turn the time by hand",
        # Beside the clock itself: waits for another process, which has real time.
        except_in=("kbroker/clock.py", "kbroker/testing/"),
    ),
    Ban(
        r"\bprint\(",
        "a logger of logging.getLogger('kbroker.…'); a command prints through kbroker/cli/",
        # Scripts of their own that write a page of the documentation.
        except_in=(
            "kbroker/cli/",
            "kbroker/config/document.py",
            "kbroker/metrics/document.py",
            "kbroker/generated_part.py",
        ),
    ),
    Ban(
        r"\bsys\.exit\(",
        "raise a kbroker.errors.UserError, the command line exits with its code",
        except_in=(
            "kbroker/cli/",
            "kbroker/__main__.py",
            "kbroker/config/document.py",
            "kbroker/metrics/document.py",
            "kbroker/metadata/draw_formats.py",
            "kbroker/net/draw_channel.py",
            "kbroker/coordinator/group/draw_groups.py",
            "kbroker/coordinator/txn/draw_transactions.py",
            "kbroker/security/draw_exchange.py",
        ),
    ),
    Ban(
        r"^\s*assert\b",
        "raise kbroker.errors.InvariantError: -O removes an assert",
    ),
    Ban(
        r"\btime\.sleep\(",
        "ManualClock.advance and wait_for_sleepers, or an Event: a sleep is slow and still a race",
        folders=("tests/unit/", "tests/model/"),
    ),
    Ban(
        r"\btime\.sleep\((?!0\))",
        "Clock.wait_until on a condition, which a stop can wake",
        except_in=("kbroker/testing/",),
    ),
    Ban(r"\bthreading\.Timer\(", "kbroker.purgatory.timer.Timer: one thread for all timers"),
    Ban(
        r"\bos\._exit\(",
        "Lifecycle.stop, which closes what is open",
        except_in=("kbroker/server/signals.py",),
    ),
    Ban(r"\bpickle\.|\bmarshal\.loads\(", "a format whose bytes cannot run code: struct or json"),
    Ban(r"(?<![\w.])(eval|exec)\(", "a table of functions"),
    Ban(r"\bexcept\s*:", "except Exception: an interrupt must go through", folders=("kbroker/",)),
    Ban(r"^\s*include\s+", "cimport of a real module", suffixes=(".pyx", ".pxd")),
    Ban(r"^\s*(DEF|IF)\s", "cdef enum, or a C macro in native/", suffixes=(".pyx", ".pxd")),
    Ban(
        r"\b(TODO|FIXME|XXX|HACK)\b",
        "do it, or open an issue: a note in the code is not read",
        folders=("kbroker/", "lab/", "perf/", "spark_jobs/", "tests/"),
        except_in=("tests/unit/test_tidy.py",),
    ),
)
# Words are looked for in comments as well; calls only where they are code.
IN_COMMENTS_TOO: Final = re.compile(r"TODO")


def violations(ban: Ban, text: str) -> list[int]:
    """Numbers of the lines on which the ban is broken."""
    searched = text if IN_COMMENTS_TOO.search(ban.pattern) else blanked(text)
    if not re.search(ban.pattern, searched, re.MULTILINE):  # most files: none of their lines
        return []
    pattern = re.compile(ban.pattern)
    return [n for n, line in enumerate(searched.split("\n"), start=1) if pattern.search(line)]


def contract_of(path: Path, text: str) -> str | None:
    """The docstring a file opens with; None when there is none."""
    if path.suffix == ".py":
        return ast.get_docstring(ast.parse(text))
    match = re.match(r'(?:#[^\n]*\n|\s)*"""(.*?)"""', text, re.DOTALL)
    return match[1] if match else None


def test_there_is_something_to_read() -> None:
    assert len(ALL) > 60
    assert {path.suffix for path in ALL} == set(SUFFIXES)


def test_files_are_short() -> None:
    sizes = {relative(path): path.read_text("utf-8").count("\n") for path in ALL}
    long = [f"{name}: {size} lines" for name, size in sizes.items() if size > FILE_LINES_MAX]
    assert not long, "\n".join(long)


def test_lines_are_short() -> None:
    long = [
        f"{relative(path)}:{number}: {len(line)} characters"
        for path in ALL
        for number, line in enumerate(path.read_text("utf-8").split("\n"), start=1)
        if len(line) > LINE_CHARS_MAX
    ]
    assert not long, "\n".join(long)


def test_functions_are_short() -> None:
    long = [
        f"{relative(path)}:{function.first}: {function.name} has {function.lines} lines"
        for path in PRODUCT
        for function in functions(path)
        if function.lines > FUNCTION_LINES_MAX
    ]
    assert not long, "\n".join(long)


def test_every_unit_opens_with_its_contract() -> None:
    bare = []
    for path in PRODUCT:
        text = path.read_text("utf-8")
        if path.suffix == ".pxd" or (path.name == "__init__.py" and not text.strip()):
            continue
        contract = contract_of(path, text)
        if contract is None or len(contract.strip()) < CONTRACT_CHARS_MIN:
            bare.append(relative(path))
    assert not bare, "\n".join(bare)


def test_cython_units_set_their_language_level_on_line_1() -> None:
    without = [
        relative(path)
        for path in ALL
        if path.suffix in (".pyx", ".pxd")
        and not re.match(r"# cython: .*language_level=3", path.read_text("utf-8"))
    ]
    assert not without, "\n".join(without)


def _declares(path: Path) -> bool:
    body = ast.parse(path.read_text("utf-8")).body
    return any(not isinstance(statement, ast.Expr) for statement in body)


def test_every_stub_declares_something() -> None:
    """A unit without a Python face needs none."""
    bare = [
        relative(path)
        for path in source_files("kbroker", "perf", suffixes=(".pyi",))
        if not _declares(path)
    ]
    assert not bare, "\n".join(bare)


@pytest.mark.parametrize("ban", BANS, ids=[ban.pattern for ban in BANS])
def test_banned(ban: Ban) -> None:
    broken = [
        f"{relative(path)}:{number}: instead: {ban.instead}"
        for path in ALL
        if ban.applies_to(relative(path))
        for number in violations(ban, path.read_text("utf-8"))
    ]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    ("line", "banned"),
    [
        ("now = time.time()", True),
        ("now = time.monotonic_ns()", True),
        ("stamp = datetime.now(tz)", True),
        ("print('hello')", True),
        ("    assert size > 0, 'empty'", True),
        ("time.sleep(1)", True),
        ("time.sleep(0)", False),
        ("value = eval(text)", True),
        ("model.eval(text)", False),
        ("except:", True),
        ("except ValueError:", False),
        ("assertion = 1", False),
        ("blueprint(x)", False),
        ("# print(x), time.time()", False),
        ("message = 'print(x); time.time()'", False),
        ("# TODO: later", True),
    ],
)
def test_the_bans_themselves(line: str, banned: bool) -> None:
    bans = [ban for ban in BANS if "kbroker/" in ban.folders and ".py" in ban.suffixes]
    assert any(violations(ban, f"first = 1\n{line}\n") == [2] for ban in bans) is banned


def test_lengths_of_cython_functions_are_read_right() -> None:
    text = (
        "cdef extern from 'x.h' nogil:\n    int f(int a)\n\n"
        "cdef class Holder(Base):\n"
        "    cdef int one(self,\n                 int b) except -1:\n"
        "        # a comment\n        return 1\n\n"
        "    def two(self):\n        return {\n            1: 2,\n        }\n\n\n"
        "cdef inline Segment* three(int x) noexcept nogil:\n    return NULL\n"
        "cdef int declared(int x) noexcept nogil\n"
    )
    found = {(f.name, f.first, f.last) for f in cython_functions(text)}
    assert found == {("one", 5, 8), ("two", 10, 13), ("three", 16, 17)}


def test_logical_lines_join_continued_lines() -> None:
    text = 'a = (1,  # one (\n     2)\nb = "(" \\\n    "["\n\nif x:\n    y = 3\n'
    assert [(line.first, line.last, line.indent) for line in logical_lines(text)] == [
        (1, 2, 0),
        (3, 4, 0),
        (6, 6, 0),
        (7, 7, 4),
    ]
