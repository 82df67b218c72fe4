"""The compiled core keeps its promise: a `nogil` function never takes the GIL, and says so.

Two readings. The generated C of every hot unit (a `.pyx` whose name begins with `_`) holds no
function that acquires the GIL, be it through `with gil` or because Cython had to: a raise in a
`noexcept` function, an error check after a call whose failure value is ambiguous. And in the
source, every `nogil` function says what happens to an exception: `noexcept`, or an `except` value
that tells failure from success without asking the interpreter.

The C is read where the build has left it; what is missing or older than its source is translated
into a temporary folder first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from Cython.Compiler.Main import CompilationOptions, default_options
from Cython.Compiler.Main import compile as translate

from tests.support.source_tree import ROOT, logical_lines, relative, source_files

# The calls that Cython writes where a function that runs without the GIL takes it.
TAKES_THE_GIL: Final = re.compile(
    r"\b(?:__Pyx_)?PyGILState_Ensure\s*\(|\b__Pyx_ErrOccurredWithGIL\s*\("
)
# unit -> functions that may, each with the reason. A callback that Python registered would stand
# here; the request path has none.
MAY_TAKE_THE_GIL: Final[dict[str, dict[str, str]]] = {
    "kbroker/testing/_file_faults.pyx": {"decide": "tells a test that watches each operation"},
    "kbroker/testing/_schedule.pyx": dict.fromkeys(
        ("pass_place", "lock", "unlocked", "wait", "wake", "now_ns", "pause"),
        "a debug build's, under a test that decides which thread runs",
    ),
}

UNITS: Final = [
    path for path in source_files("kbroker", suffixes=(".pyx",)) if path.name.startswith("_")
]
SOURCES: Final = source_files("kbroker", "perf", suffixes=(".pyx", ".pxd"))

_C_FUNCTION: Final = re.compile(
    r"^[^\s#/{}][^;{}]*?\b(__pyx_(?:f|pf|pw)_\w+)\([^;{}]*\)\s*\{", re.MULTILINE
)


def c_functions(text: str) -> dict[str, str]:
    """Bodies of the functions that Cython made of ours, by C name, without comments and macros.

    Its own helpers are left out: what matters is who calls them.
    """
    found: dict[str, str] = {}
    for match in _C_FUNCTION.finditer(text):
        end = text.find("\n}\n", match.end())
        body = text[match.end() : end if end >= 0 else len(text)]
        found[match[1]] = "\n".join(
            line for line in body.split("\n") if not line.lstrip().startswith(("#", "*", "/*"))
        )
    return found


def takers(bodies: Mapping[str, str]) -> list[str]:
    """Of `c_functions`."""
    return [name for name, body in bodies.items() if TAKES_THE_GIL.search(body)]


def undecided(text: str) -> list[tuple[int, str]]:
    """Heads of nogil functions (and of pointers to such) without noexcept or an except value."""
    found = []
    extern_indent: int | None = None
    for line in logical_lines(text):
        if extern_indent is not None and line.indent > extern_indent:
            continue  # declarations of C functions: C does not raise
        extern_indent = None
        if re.match(r"cdef\s+extern\b", line.text):
            extern_indent = line.indent
            continue
        head = re.match(r"(?!with\b)(.*\))([^()]*)\bnogil\b\s*:?", line.text)
        if head and not re.search(r"\bnoexcept\b|\bexcept\s*\??\s*-?\w", head[2]):
            found.append((line.first, line.text))
    return found


def translated(path: Path, c_file: Path, module: str) -> bool:
    """Have Cython write the C of a unit; False when it finds an error."""
    options = CompilationOptions(
        default_options,
        include_path=[str(ROOT)],
        output_file=str(c_file),
        compiler_directives={"language_level": 3, "cdivision": True},
    )
    return not translate(str(path), options, full_module_name=module).num_errors


def generated(unit: Path, folder: Path) -> str:
    """The C of a unit, made now if the build has not left a current one."""
    c_file = unit.with_suffix(".c")
    if not c_file.exists() or c_file.stat().st_mtime < unit.stat().st_mtime:
        c_file = folder / "unit.c"
        module = relative(unit).removesuffix(".pyx").replace("/", ".")
        if not translated(unit, c_file, module):
            pytest.fail(f"{relative(unit)} does not translate", pytrace=False)
    return c_file.read_text("utf-8")


def test_there_are_units_to_read() -> None:
    assert {"kbroker/_state.pyx", "kbroker/_net.pyx"} <= {relative(path) for path in UNITS}


@pytest.mark.parametrize("unit", UNITS, ids=relative)
def test_no_function_takes_the_gil(unit: Path, tmp_path: Path) -> None:
    bodies = c_functions(generated(unit, tmp_path))
    assert bodies, f"no function found in the C of {relative(unit)}"
    allowed = MAY_TAKE_THE_GIL.get(relative(unit), {})
    wrong = [name for name in takers(bodies) if not name.endswith(tuple(allowed) or "\0")]
    assert not wrong, f"{relative(unit)}: these take the GIL: {', '.join(wrong)}"


def test_every_nogil_function_declares_its_exceptions() -> None:
    wrong = [
        f"{relative(path)}:{number}: {head}"
        for path in SOURCES
        for number, head in undecided(path.read_text("utf-8"))
    ]
    assert not wrong, "noexcept, or an except value:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("head", "decided"),
    [
        ("cdef int f(int a) nogil:", False),
        ("cdef int f(int a) noexcept nogil:", True),
        ("cdef int f(int a) except -1 nogil:", True),
        ("cdef int f(int a) except? -1 nogil:", True),
        ("cdef int f(int a) except * nogil:", False),
        ("cdef void f(\n    int a,\n    int b) nogil", False),
        ("ctypedef int (*step)(void* a) nogil", False),
        ("ctypedef int (*step)(void* a) noexcept nogil", True),
        ("cdef struct Transport:\n    int (*send)(int fd) nogil", False),
        ("with nogil:", True),
        ("cdef extern from 'a.h' nogil:\n    int f(int a)\n    int g() nogil", True),
    ],
)
def test_the_reading_of_heads(head: str, decided: bool) -> None:
    assert (not undecided(head + "\n")) is decided


WITHIN_NOGIL: Final = """\
cdef void quiet(int* p) noexcept nogil:
    p[0] += 1

cdef void takes(int* p) noexcept nogil:
    with gil:
        print(p[0])

cdef void raises(int* p) noexcept nogil:
    if p == NULL:
        raise ValueError("null")

cdef int ambiguous(int* p) except? -1 nogil:
    return p[0]

cdef void asks(int* p) noexcept nogil:
    ambiguous(p)

def face():
    cdef int p = 0
    with nogil:
        quiet(&p)
"""


def test_a_taker_is_found(tmp_path: Path) -> None:
    """The reading is checked on a unit that does everything wrong: Cython's C may change shape."""
    source, c_file = tmp_path / "wrong.pyx", tmp_path / "wrong.c"
    source.write_text(WITHIN_NOGIL)
    assert translated(source, c_file, "wrong")
    found = takers(c_functions(c_file.read_text("utf-8")))
    assert {name.removeprefix("__pyx_f_5wrong_") for name in found} == {"takes", "raises", "asks"}
