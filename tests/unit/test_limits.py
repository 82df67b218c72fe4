"""limits.py: numbers, how they relate, and that C has no others."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kbroker import limits
from tests.support.source_tree import ROOT, enum_members, relative, source_files

SOURCE = (ROOT / "kbroker" / "limits.py").read_text()


def test_every_bound_is_a_positive_number() -> None:
    bounds = {
        name: value for name, value in vars(limits).items() if name[0] != "_" and name.isupper()
    }
    assert len(bounds) > 20
    assert all(type(v) in (int, float) and v > 0 for v in bounds.values())


@pytest.mark.parametrize(
    ("name", "value"),
    [("TRAIN_FRAMES_MAX", "65"), ("TOPIC_NAME_CHARS_MAX", "250"), ("PROCESSORS_MAX", "65")],
)
def test_bounds_that_contradict_are_not_imported(name: str, value: str) -> None:
    changed, count = re.subn(rf"(?m)^({name}: Final = ).*$", rf"\g<1>{value}", SOURCE)
    assert count == 1
    with pytest.raises(ValueError, match=r"^bounds of limits\.py contradict: "):
        exec(compile(changed, "limits.py", "exec"), {"__name__": "limits"})


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two units, of which one was built."""
    core = tmp_path / "kbroker" / "core"
    (core / "native").mkdir(parents=True)
    shutil.copy(ROOT / "setup.py", tmp_path)
    (core / "_limits.pxd").write_text("cdef extern:\n    enum:\n        ITEMS_MAX\n")
    (core.parent / "limits.py").write_text("ITEMS_MAX = 8\n")
    for name in ("_one.pyx", "_two.pyx", "_two.cpython-311-x86_64-linux-gnu.so"):
        (core / name).write_text("")
    (core / "native" / "bounds.h").write_text("ITEMS_MAX = 7,")
    return tmp_path


def set_up(tree: Path, units: str) -> tuple[int, str, str]:
    """Its status, its last words, and the header then; nothing is compiled."""
    ended = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "--version"],
        cwd=tree, env={**os.environ, "KBROKER_UNITS": units}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    header = tree / "kbroker" / "core" / "native" / "bounds.h"
    return ended.returncode, ended.stderr, header.read_text()


def test_other_bounds_are_of_all_units(tree: Path) -> None:
    with (tree / "kbroker" / "core" / "native" / "bounds.h").open() as before:
        status, said, header = set_up(tree, "kbroker/core/_one.pyx")
        assert (status, header) == (1, "ITEMS_MAX = 7,")
        assert "limits.py has changed: build all units" in said
        status, said, header = set_up(tree, "kbroker/**/*.pyx")
        assert (status, "ITEMS_MAX = 8," in header) == (0, True), said
        assert before.read() == "ITEMS_MAX = 7,", "the header was not put in place as a whole"
    assert os.listdir(tree / "kbroker" / "core" / "native") == ["bounds.h"]
    assert set_up(tree, "kbroker/core/_one.pyx")[0] == 0


def test_c_has_them_from_here() -> None:
    """The values of this build, in a header; and in no unit by another value."""
    header = (ROOT / "kbroker" / "core" / "native" / "bounds.h").read_text()
    of_c = {name: int(value) for name, value in re.findall(r"(\w+) = (\d+),", header)}
    assert len(of_c) > 10
    assert of_c == {name: getattr(limits, name) for name in of_c}
    again = {
        (relative(path), name)
        for path in source_files("kbroker", suffixes=(".pyx", ".pxd"))
        for name, _ in enum_members(path)
        if hasattr(limits, name)
    }
    assert again == set()
