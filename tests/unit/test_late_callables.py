"""Nothing is given a callable after it was made: what is to be called is handed in when it is made.

A callable that is assigned to another object's attribute is an arrow upwards which no import and no
signature shows; a test that makes that object gets a default without a word. So a part takes its
listener as an argument (a protocol, or a callable), and keeps it.

By shape: in Python a lambda, a `partial`, a function of the module or a method of the own class
that is assigned to an attribute of anything but `self`, by `=`, in a tuple or by `setattr`; in
Cython a function of the unit or a method.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.source_tree import logical_lines, nodes, relative, source_files

QUOTES: Final = "'\""
# (file, the place that is assigned to): why it may be so.
ALLOWED: Final = {
    ("kbroker/engine/waiting/_parked.pyx", "context.request_channel.on_left"): "in C: ADR 45",
    ("kbroker/server/handler_pool.py", "hot.watch_deadline"): "the pool needs it: ADR 45",
    ("kbroker/testing/_schedule.pyx", "lock_schedule"): "a debug build's, for a test",
    ("kbroker/log/engine/_file_operations.pyx", "files"): "the table of system calls itself",
    ("kbroker/replica/_snapshot.pyx", "old.retired.release"): "how what is retired is freed",
    ("kbroker/replica/_topic_table.pyx", "old.retired.release"): "how what is retired is freed",
    ("kbroker/testing/_file_faults.pyx", "files"): "the system calls, for a test",
    ("kbroker/testing/_file_faults.pyx", "sends"): "the system calls, for a test",
}  # fmt: skip
FILES: Final = source_files("kbroker", suffixes=(".py", ".pyx"))


def late_in_python(text: str) -> Iterator[tuple[int, str]]:
    """Line and place of each such assignment."""
    tree = ast.parse(text)
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for scope, methods in _scopes(tree):
        for node in scope:
            for place, value in _assigned(node):
                if _is_callable(value, functions, methods) and not re.fullmatch(
                    r"(self|cls)\.\w+", place
                ):
                    yield node.lineno, place


Assignment = ast.Assign | ast.AnnAssign | ast.Call


def _assigned(node: Assignment) -> Iterator[tuple[str, ast.expr]]:
    """Attributes that the node assigns to, and what."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _pairs(target, value)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield from _pairs(target, value)
        case ast.Call(args=[on, name, value]) if _is_setattr(node.func):
            yield f"{ast.unparse(on)}.{ast.unparse(name).strip(QUOTES)}", value


def _is_setattr(called: ast.expr) -> bool:
    """The built-in one, not a method of that name."""
    return ast.unparse(called) in ("setattr", "builtins.setattr", "object.__setattr__")


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    match target, value:
        case ast.Attribute(), _:
            yield ast.unparse(target), value
        case (
            (ast.Tuple(elts=targets) | ast.List(elts=targets)),
            (ast.Tuple(elts=values) | ast.List(elts=values)),
        ) if len(targets) == len(values):
            for one, each in zip(targets, values, strict=True):
                yield from _pairs(one, each)


def _scopes(tree: ast.Module) -> Iterator[tuple[list[Assignment], set[str]]]:
    """The assignments of each class with the names of its methods, and those outside of classes."""
    everything = nodes(tree)
    classes = [node for node in everything if isinstance(node, ast.ClassDef)]
    inside: set[Assignment] = set()
    for each in classes:
        methods = {
            node.name
            for node in each.body
            if isinstance(node, ast.FunctionDef)
            and not any(ast.unparse(it) == "property" for it in node.decorator_list)
        }
        found = [node for node in nodes(each) if isinstance(node, Assignment)]
        inside.update(found)
        yield found, methods
    yield (
        [node for node in everything if isinstance(node, Assignment) and node not in inside],
        set(),
    )


def _is_callable(value: ast.expr, functions: set[str], methods: set[str]) -> bool:
    match value:
        case ast.Lambda() | ast.Call(func=ast.Name(id="partial") | ast.Attribute(attr="partial")):
            return True
        case ast.Name(id=name):
            return name in functions
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return name in methods
        case ast.IfExp(body=one, orelse=other):
            return _is_callable(one, functions, methods) or _is_callable(other, functions, methods)
        case ast.BoolOp(values=values):
            return any(_is_callable(each, functions, methods) for each in values)
    return False


_DEFINED: Final = re.compile(r"(?:cdef|cpdef|def)\s+[^=(]*?(\w+)\s*\(.*:$")
_ASSIGNED: Final = re.compile(r"([a-z_]\w*(?:\.\w+)+) = &?(self\.)?(\w+)$")


def late_in_cython(text: str) -> Iterator[tuple[int, str]]:
    lines = list(logical_lines(text))
    defined = {
        (match[1], line.indent > 0) for line in lines if (match := _DEFINED.match(line.text))
    }
    for line in lines:
        match = _ASSIGNED.match(line.text)
        if (
            match
            and (match[3], match[2] is not None) in defined
            and match[1].split(".")[0] != "self"
        ):
            yield line.first, match[1]


def late(path: Path) -> Iterator[tuple[int, str]]:
    text = path.read_text("utf-8")
    return late_in_python(text) if path.suffix == ".py" else late_in_cython(text)


def is_allowed(file: str, place: str) -> bool:
    return (file, place) in ALLOWED or (file, place.partition(".")[0]) in ALLOWED


def test_no_callable_is_set_late() -> None:
    found = [(relative(path), *each) for path in FILES for each in late(path)]
    wrong = [f"{file}:{at}: {place}" for file, at, place in found if not is_allowed(file, place)]
    assert not wrong, "hand it in where the object is made:\n" + "\n".join(wrong)
    used = {(file, place) for file, _, place in found}
    used |= {(file, place.partition(".")[0]) for file, place in used}
    assert ALLOWED.keys() <= used, "not needed any more"


@pytest.mark.parametrize(
    "line",
    [
        "logs.changed = self.changed",
        "self.logs.changed = self.changed",
        "it.log.changed = lambda: None",
        "logs.moves.rate = partial(float, 1)",
        "logs.changed = helper",
        "logs.changed = self.changed if logs else None",
        "logs.moves.rate = functools.partial(float, 1)",
        "logs.size, logs.changed = 1, self.changed",
        "setattr(logs, 'changed', self.changed)",
        "object.__setattr__(logs, 'changed', helper)",
        "[setattr(each, 'changed', lambda: None) for each in logs]",
    ],
)
def test_a_late_callable_is_found(line: str) -> None:
    text = (
        "def helper():\n    pass\n\nclass Part:\n    def changed(self):\n        pass\n"
        f"    def take(self, logs):\n        {line}\n"
    )
    assert [at for at, _ in late_in_python(text)] == [8]


@pytest.mark.parametrize(
    "line", ["self.changed = self.other", "self._on = lambda: None", "logs.size = self.size",
             "changed = helper", "setattr(self, 'changed', helper)", "setattr(logs, 'size', 1)",
             "self.size, self._on = 1, lambda: None"],
)  # fmt: skip
def test_an_attribute_that_is_no_callable_is_left_alone(line: str) -> None:
    text = f"def helper():\n    pass\n\nclass Part:\n    def take(self, logs):\n        {line}\n"
    assert not list(late_in_python(text))


def test_those_of_cython_are_found() -> None:
    text = (
        "cdef void _left(void* context) noexcept nogil:\n    pass\n"
        "cdef class Path:\n    def wake(self):\n        pass\n"
        "    def take(self, groups):\n        groups.wake = self.wake\n"
        "        groups.count = self.n\n"
        "cdef void attach(Channel* channel) noexcept nogil:\n    channel.on_left = _left\n"
    )
    assert list(late_in_cython(text)) == [(7, "groups.wake"), (10, "channel.on_left")]
