"""The project's own source as data, for the tests that read it: files, logical lines, imports.

Python is read with `ast`. Cython has no such reader in the standard library, so `.pyx` and `.pxd`
are read by lines: comments and strings are blanked (their line breaks stay), then lines that a
bracket or a backslash continues are joined. That is enough for imports, for the head of a function
and for where its body ends, which is all that is asked.
"""

from __future__ import annotations

import ast
import functools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

_STRINGS_AND_COMMENTS: Final = re.compile(
    r'"""(?:\\.|.)*?"""'
    r"|'''(?:\\.|.)*?'''"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n])*'"
    r"|\#[^\n]*",
    re.DOTALL,
)
_FUNCTION_HEAD: Final = re.compile(r"^(?:async\s+def|def|cdef|cpdef)\b.*\(.*:$", re.DOTALL)
_NOT_A_FUNCTION: Final = re.compile(r"^cdef\s+(?:extern|struct|union|enum|packed|public|class)\b")


@dataclass(frozen=True)
class LogicalLine:
    first: int  # line numbers, from 1
    last: int
    indent: int
    text: str


@dataclass(frozen=True)
class Function:
    name: str
    first: int
    last: int

    @property
    def lines(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True)
class Import:
    """One name asked for: `from module import name`, or `import module` with no name."""

    line: int
    module: str
    name: str


def source_files(*folders: str, suffixes: tuple[str, ...]) -> list[Path]:
    """Files below the folders, sorted; nothing hidden and nothing built."""
    return sorted(path for folder in folders for path in _files(folder) if path.suffix in suffixes)


@functools.cache  # a dozen modules ask as they are imported, in each process of a run
def _files(folder: str) -> tuple[Path, ...]:
    found: list[Path] = []
    for inside, folders, names in os.walk(ROOT / folder):
        folders[:] = [each for each in folders if not each.startswith((".", "__pycache__"))]
        found += [Path(inside, name) for name in names if not name.startswith(".")]
    return tuple(found)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def module_name(path: Path) -> str:
    """`kbroker/net/_frames.pxd` is kbroker.net._frames, `__init__` is its package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache  # each rule about the sources reads all of them
def blanked(text: str) -> str:
    """The text with each string as an empty one and without comments, on the same lines."""

    def empty(match: re.Match[str]) -> str:
        found = match[0]
        return ("" if found[0] == "#" else '""') + "\n" * found.count("\n")

    return _STRINGS_AND_COMMENTS.sub(empty, text)


def logical_lines(text: str) -> Iterator[LogicalLine]:
    """Cython's (or Python's) statements by line; text as it is in the file."""
    pending: list[str] = []
    first = depth = 0
    for number, line in enumerate(blanked(text).split("\n"), start=1):
        if not pending:
            if not line.strip():
                continue
            first = number
        continued = line.rstrip().endswith("\\")
        pending.append(line.rstrip().rstrip("\\"))
        depth += sum(line.count(c) for c in "([{") - sum(line.count(c) for c in ")]}")
        if depth <= 0 and not continued:
            indent = len(pending[0]) - len(pending[0].lstrip())
            joined = " ".join(part.strip() for part in pending).strip()
            yield LogicalLine(first, number, indent, joined)
            pending, depth = [], 0


def functions(path: Path) -> list[Function]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return [
            Function(node.name, node.lineno, node.end_lineno or node.lineno)
            for node in statements(ast.parse(text))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
    return list(cython_functions(text))


def nodes(tree: ast.AST) -> list[ast.AST]:
    """What `ast.walk` yields, in another order and in half of the time."""
    found: list[ast.AST] = [tree]
    for node in found:  # it grows meanwhile
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                found += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST) and value._fields:
                found.append(value)
    return found


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """All of them, however deep; expressions, which have none, are most of a tree."""
    found = list(tree.body)
    for each in found:  # it grows meanwhile
        yield each
        for inner in ("body", "orelse", "finalbody"):
            found += getattr(each, inner, ())
        for part in (*getattr(each, "handlers", ()), *getattr(each, "cases", ())):
            found += part.body


def cython_functions(text: str) -> Iterator[Function]:
    lines = list(logical_lines(text))
    for index, head in enumerate(lines):
        if not _FUNCTION_HEAD.match(head.text) or _NOT_A_FUNCTION.match(head.text):
            continue
        last = head.last
        for line in lines[index + 1 :]:
            if line.indent <= head.indent:
                break
            last = line.last
        name = head.text.partition("(")[0].split()[-1].lstrip("*")
        yield Function(name, head.first, last)


@functools.cache
def imports(path: Path) -> tuple[Import, ...]:
    """Everything a file imports or cimports, anywhere in it, relative ones made absolute."""
    text = path.read_text(encoding="utf-8")
    module = module_name(path)
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    found = python_imports(text) if path.suffix == ".py" else cython_imports(text)
    return tuple(Import(i.line, absolute(i.module, package), i.name) for i in found)


def absolute(module: str, package: str) -> str:
    dots = len(module) - len(module.lstrip("."))
    if not dots:
        return module
    parts = package.split(".")
    base = parts[: len(parts) - dots + 1]
    return ".".join([*base, *filter(None, [module[dots:]])])


def python_imports(text: str) -> Iterator[Import]:
    tree = ast.parse(text)
    for node in ast.walk(tree) if _IMPORT_CALL.search(text) else statements(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, "")
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                yield Import(node.lineno, module, alias.name)
        elif isinstance(node, ast.Call) and _is_import_call(node.func):
            argument = node.args[0] if node.args else None
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield Import(node.lineno, argument.value, "")


_IMPORT_CALL: Final = re.compile(r"\b(?:import_module|__import__)\b")


def _is_import_call(function: ast.expr) -> bool:
    return (isinstance(function, ast.Name) and function.id in ("import_module", "__import__")) or (
        isinstance(function, ast.Attribute) and function.attr == "import_module"
    )


_FROM: Final = re.compile(r"from\s+(\.*[\w.]*)\s*c?import\s+(.*)$")
_IMPORT: Final = re.compile(r"c?import\s+(.*)$")


def cython_imports(text: str) -> Iterator[Import]:
    for line in logical_lines(text):
        for statement in line.text.split(";"):
            if match := _FROM.match(statement.strip()):
                for name in _names(match[2]):
                    yield Import(line.first, match[1], name)
            elif match := _IMPORT.match(statement.strip()):
                for name in _names(match[1]):
                    yield Import(line.first, name, "")


def _names(listed: str) -> Iterator[str]:
    """`(a, b as c, )` names a and b."""
    for item in listed.strip("() ").split(","):
        if item.strip():
            yield item.split()[0]


_ENUM_MEMBER: Final = re.compile(r"([A-Z][A-Z0-9_]*) = ([-+*<() 0-9a-fA-Fx]+)$")


def enum_members(path: Path) -> Iterator[tuple[str, int]]:
    """Names and numbers of a unit's enums; those that are made of other names are left out."""
    inside: int | None = None
    for line in logical_lines(path.read_text(encoding="utf-8")):
        if inside is not None and line.indent <= inside:
            inside = None
        if re.match(r"(cdef |ctypedef )?enum\b.*:$", line.text):
            inside = line.indent
        elif inside is not None and (member := _ENUM_MEMBER.match(line.text)):
            yield member[1], _number(ast.parse(member[2], mode="eval").body)


def _number(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand)
    if isinstance(node, ast.BinOp):
        left, right = _number(node.left), _number(node.right)
        if isinstance(node.op, ast.LShift):
            return left << right
        return left * right if isinstance(node.op, ast.Mult) else left + right
    raise ValueError(ast.unparse(node))
