"""Tests that share a Spark session share a process; no others do."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.source_tree import relative, source_files
from tests.support.together import FIRST, scope_of

# A fixture that is the session, or is made of it.
ASKS_FOR_IT = re.compile(r"\b(?:spark: (?:Any|SparkSession)|landing: Landing)\b")


def test_two_processes_have_the_sessions() -> None:
    files = [
        path
        for path in source_files("tests", suffixes=(".py",))
        if path.name[:5] == "test_" and path != Path(__file__)
    ]
    sharing = {path.stem: scope_of(relative(path)) for path in files
               if scope_of(relative(path)) != relative(path)}  # fmt: skip
    asking = {path.stem for path in files if ASKS_FOR_IT.search(path.read_text("utf-8"))}
    assert asking == set(sharing)
    assert len(set(sharing.values())) == 2 and sharing.keys() >= FIRST
