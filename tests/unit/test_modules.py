"""The compiled modules: each can be loaded."""

from __future__ import annotations

import importlib

import pytest

from tests.support.source_tree import relative, source_files

MODULES = [
    relative(path).removesuffix(".pyx").replace("/", ".")
    for path in source_files("kbroker", "perf", suffixes=(".pyx",))
]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_can_be_imported(name: str) -> None:
    """A function that no library has, such as a macro that Python's limited API lacks, is found
    when the module is loaded, which for some is at the first request that needs them."""
    importlib.import_module(name)
