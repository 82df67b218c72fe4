"""The product has no code without a caller: left-over code is removed, not kept.

By name: a function, method, class or constant of kbroker, lab, perf and spark_jobs has a caller
when its name is used anywhere in them, as a name, an attribute, or a word of a text without blanks
(a thing that is looked up by its name, "module:function"). Tests are no callers, but of
`kbroker/testing`, which is there for them. Of Cython, functions, methods, enumerators and
declarations of C are looked at, by lines; a declaration is no use. The compiler warns of the same
for static code in one unit.

A decorator that is not Python's own hands its function to a library (click, pytest, atexit).
"""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.source_tree import ROOT, blanked, logical_lines, nodes, relative, source_files

PRODUCT: Final = ("kbroker", "lab", "perf", "spark_jobs")
FOR_TESTS: Final = "kbroker/testing/"
# (file or folder, names, who calls them then).
ALLOWED: Final = (
    # Those above call what they know the name of.
    ("kbroker/peer/connection.py", "pause_writing|resume_writing|buffer_updated",
     "asyncio, of a protocol"),
    ("kbroker/metadata/store/multi_read.py", "serialize|deserialize", "kazoo, of a request"),
    ("kbroker/admin/server.py", "timeout_keep_alive_handler|main_loop", "uvicorn, of a server"),
    ("kbroker/cli/commands.py", "format_commands", "click, of a group"),
    ("kbroker/cli/manual.py", "shared_files", "release/wheels.py, for the wheel"),
    ("kbroker/testing/plugin.py", "pytest_addoption", "pytest, of a plugin"),
    ("kbroker/testing/container.py", "with_kraft|with_exposed_ports|with_bind_ports",
     "users of testcontainers"),
    ("kbroker/testing/inspected.py", r"_do_\w+", "its own table, by the order's name"),
    ("kbroker/testing/_plants.pyx", r"_[a-z]\w+|has_\w+|plant",
     "its own table, by the plant's name; tests"),
    ("spark_jobs/html/plots.py", "set_locs", "matplotlib, of a formatter"),
    ("spark_jobs/kbroker_source.py",
     "initialOffset|prepareForTriggerAvailableNow|getDefaultReadLimit|reportLatestOffset"
     "|streamReader", "pyspark, of a data source"),
    # How a test sees, or moves, what it tests.
    ("kbroker/testing/_masked_transport.pyx", "MaskedTransport", "tests of transports"),
    ("kbroker/net/_sessions.pyx", "references", "tests"),
    ("kbroker/clock.py", "ManualClock|set_wall_ms|wait_for_sleepers", "tests"),
    ("kbroker/metadata/store/", "watch_count", "tests of several controllers"),
    ("kbroker/peer/network_client.py", "connection_delay_ms", "tests"),
    ("kbroker/_state.pyx", "push|head_ready", "tests of the ring of slots"),
    ("kbroker/core/_lock_order.pyx", "order_allows", "tests"),
    ("kbroker/engine/worker/_worker_mode.pyx", "may_of", "tests"),
    ("kbroker/protocol/_wire.pyx", "unsigned_varint", "tests"),
    ("kbroker/replica/_replica.pyx", "note_fetch", "tests"),
    ("kbroker/testing/_file_faults.pyx", "read_now", "tests"),
    # Tables of another project's numbers, whole.
    ("kbroker/testing/_file_faults.pyx", "RENAME|MKDIR", "bits, in the order of OPERATIONS"),
)  # fmt: skip
PYTHONS_OWN: Final = frozenset(
    ("property", "staticmethod", "classmethod", "cached_property", "cache", "lru_cache",
     "contextmanager", "dataclass", "final", "overload", "override", "setter", "total_ordering")
)  # fmt: skip
WORD: Final = re.compile(r"[A-Za-z_]\w*")


class Defined(NamedTuple):
    file: str
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.name}"


def is_allowed(defined: Defined) -> bool:
    return any(
        defined.file.startswith(place) and re.fullmatch(names, defined.name)
        for place, names, _ in ALLOWED
    )


# --- Python ---------------------------------------------------------------------------------------


def python_definitions(tree: ast.Module, file: str) -> Iterator[Defined]:
    """Functions, classes and constants of a module, methods of its classes."""
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                if not _handed_on(node):
                    yield Defined(file, node.lineno, node.name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield Defined(file, node.lineno, name)
        members = node.body if isinstance(node, ast.ClassDef) else []
        methods = [m for m in members if isinstance(m, ast.FunctionDef | ast.AsyncFunctionDef)]
        for method in methods:
            if not _handed_on(method):
                yield Defined(file, method.lineno, method.name)


def _handed_on(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    called = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
    names = [each.attr if isinstance(each, ast.Attribute) else each.id for each in called
             if isinstance(each, ast.Attribute | ast.Name)]  # fmt: skip
    return any(name not in PYTHONS_OWN for name in names)


def python_uses(tree: ast.Module) -> Iterator[str]:
    for node in nodes(tree):
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                yield node.id
        elif isinstance(node, ast.Attribute):
            if isinstance(node.ctx, ast.Load):
                yield node.attr
        elif isinstance(node, ast.Constant):
            value = node.value
            if isinstance(value, str) and " " not in value:
                yield from WORD.findall(value)


# --- Cython ---------------------------------------------------------------------------------------

_EXTERN: Final = re.compile(r"cdef\s+extern\b")
_ENUM: Final = re.compile(r"(?:cdef|cpdef|ctypedef)\s+enum\b")
_HEAD: Final = re.compile(r"(?:cdef|cpdef|def)\s+[^=(]*?(\w+)\s*\(")
_DECLARED: Final = re.compile(r"[^=(]*?(\w+)\s*\(")


def cython_definitions(text: str, file: str) -> Iterator[Defined]:
    """A head, a declaration and an enumerator; a `cdef` with a value is none of them."""
    inside, depth = "", -1
    for line in logical_lines(text):
        if inside and line.indent <= depth:
            inside = ""
        if _EXTERN.match(line.text) or _ENUM.match(line.text):
            inside, depth = ("extern" if _EXTERN.match(line.text) else "enum"), line.indent
            continue
        if inside == "enum":
            found = [WORD.match(item.strip()) for item in line.text.split(",")]
            names = [each[0] for each in found if each]
        elif inside or line.text.endswith(":") or file.endswith(".pxd"):
            head = (_DECLARED if inside else _HEAD).match(line.text)
            names = [head[1]] if head else []
        else:
            names = []
        yield from (Defined(file, line.first, name) for name in names)


# --- both -----------------------------------------------------------------------------------------


def without_a_caller(defined: list[Defined], uses: Counter[str]) -> list[Defined]:
    return [
        each for each in defined if not uses[each.name] and not re.fullmatch("__.*__", each.name)
    ]


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def words(path: Path) -> list[str]:
    return WORD.findall(blanked(read(path)))


@functools.cache
def in_python() -> tuple[list[Defined], Counter[str]]:
    """What is defined, and what is used. Most of the time is for parsing: once for each file."""
    defined: list[Defined] = []
    uses: Counter[str] = Counter()
    for path in source_files(*PRODUCT, suffixes=(".py",)):
        tree = ast.parse(read(path))
        defined += python_definitions(tree, relative(path))
        uses.update(python_uses(tree))
    return defined, uses


@functools.cache
def python_without_a_caller() -> list[Defined]:
    defined, uses = in_python()
    uses = uses.copy()
    compiled = source_files(*PRODUCT, suffixes=(".pyx", ".pxd"))
    uses.update(word for path in compiled for word in words(path))
    uses.update(WORD.findall(read(ROOT / "pyproject.toml")))
    tests = Counter(
        name
        for path in source_files("tests", "docs", suffixes=(".py", ".md"))
        if path != Path(__file__)
        for name in WORD.findall(read(path))
    )
    theirs = [each for each in defined if each.file.startswith(FOR_TESTS)]
    ours = [each for each in defined if not each.file.startswith(FOR_TESTS)]
    return without_a_caller(ours, uses) + without_a_caller(theirs, uses + tests)


@functools.cache
def cython_without_a_caller() -> list[Defined]:
    files = source_files("kbroker", "perf", suffixes=(".pyx", ".pxd"))
    defined = [each for path in files for each in cython_definitions(read(path), relative(path))]
    uses = Counter(word for path in files for word in words(path))
    uses.subtract(Counter(each.name for each in defined))
    uses.update(in_python()[1])
    return without_a_caller(defined, +uses)


def test_every_python_name_has_a_caller() -> None:
    assert [str(each) for each in python_without_a_caller() if not is_allowed(each)] == []


def test_every_cython_name_has_a_caller() -> None:
    assert [str(each) for each in cython_without_a_caller() if not is_allowed(each)] == []


def test_every_exception_is_needed() -> None:
    """Each name is still there, and the product does not call it."""
    left = python_without_a_caller() + cython_without_a_caller()
    needless = [
        f"{place}: {name}"
        for place, names, _ in ALLOWED
        for name in names.split("|")
        if not any(each.file.startswith(place) and re.fullmatch(name, each.name) for each in left)
    ]
    assert needless == []


def test_lines_that_are_read_as_a_definition() -> None:
    python = (
        "A = 1\nB: int = 2\n\n@click\ndef c(): ...\n\n"
        "class D:\n    x = 1\n    @property\n    def e(self): ...\n"
    )
    assert [each.name for each in python_definitions(ast.parse(python), "m.py")] == [
        "A",
        "B",
        "D",
        "e",
    ]
    used = set(python_uses(ast.parse('x = a.b\ny: int = "k:f"\n"no use of g"\n')))
    assert used == {"a", "b", "int", "k", "f"}
    cython = (
        "cdef extern from 'x.h' nogil:\n    enum:\n        ONE\n    int two(int a)\n\n"
        "cdef enum:\n    THREE = 3  # three\n    FOUR\n\n"
        "cdef inline Part* five(int a) noexcept nogil:\n    cdef int b = six(a)\n\n"
        "def seven(\n    a,\n):\n    return a\n"
    )
    found = [each.name for each in cython_definitions(cython, "m.pyx")]
    assert found == ["two", "THREE", "FOUR", "five", "seven"]
