"""The compiled faces at the top of the package keep the names of the design (ADR 7)."""

from __future__ import annotations

import importlib
from typing import Final

import pytest

from tests.support.source_tree import ROOT

FACES: Final = ("_log", "_net", "_state")
PACKAGE: Final = ROOT / "kbroker"


@pytest.mark.parametrize("name", FACES)
def test_a_face_is_a_unit_at_the_top_of_the_package(name: str) -> None:
    for suffix in (".pyx", ".pxd", ".pyi"):
        assert (PACKAGE / name).with_suffix(suffix).is_file()
    module = importlib.import_module(f"kbroker.{name}")
    assert module.__file__ is not None
    assert module.__file__.startswith(str(PACKAGE / f"{name}."))
    assert module.__file__.endswith(".so")


def test_no_other_unit_is_at_the_top() -> None:
    units = {path.stem for suffix in ("pyx", "pxd") for path in PACKAGE.glob(f"*.{suffix}")}
    assert units == set(FACES)
    assert not (PACKAGE / "native").exists()
