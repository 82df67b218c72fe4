"""Which tests share a process, or the end of a run, and that no others do."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.source_tree import relative, source_files
from tests.support.together import FIRST, scope_of

# A fixture that is the session, or is made of it.
ASKS_FOR_IT = re.compile(r"\b(?:spark: (?:Any|SparkSession)|landing: Landing)\b")
MARKS_ONE = re.compile(r"^\s*@pytest\.mark\.alone\b", re.MULTILINE)


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


def test_a_file_with_a_test_that_is_alone_has_no_others() -> None:
    """They are the last of a run, one by one: others beside them would wait for each in turn."""
    files = source_files("tests", suffixes=(".py",))
    marked = [relative(path) for path in files if MARKS_ONE.search(path.read_text("utf-8"))]
    assert not marked, "give them a file of their own, with a `pytestmark`"
