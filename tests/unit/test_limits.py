"""limits.py: numbers, how they relate, and that C has no others."""

from __future__ import annotations

import re

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


def test_c_has_them_from_here() -> None:
    """Of what this build was made, in a header; and in no unit by another value."""
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
