"""Invariants of the compiled core: each site has a text of its own, and no room is without."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from kbroker.core._require import broken_invariants
from tests.support.source_tree import relative, source_files

CALL: Final = re.compile(
    r"\b(?:require(?:_\w+)?|\w+_requires|(?:take|drop)_reference"
    r"|list_(?:append|append_all|remove|remove_first)"
    r"|linked_(?:append|insert|remove)|table_remove)\("
)
TEXT: Final = re.compile(r'"([^"\n]*)"')
SITES_MIN: Final = 150
OF_CHECKS: Final = ("_require.pyx", "_require.pxd", "_list.pxd")


def sites() -> Iterator[tuple[str, str]]:
    """(file, text) of each."""
    for path in source_files("kbroker", suffixes=(".pyx", ".pxd")):
        if "/testing/" in str(path) or path.name in OF_CHECKS:
            continue
        text = path.read_text()
        for call in CALL.finditer(text):
            depth, end = 1, call.end()
            while depth:
                depth += {"(": 1, ")": -1}.get(text[end], 0)
                end += 1
            if found := TEXT.findall(text[call.end() : end]):
                yield relative(path), "".join(found)


def test_a_text_names_one_site() -> None:
    counts = Counter(text for _, text in sites())
    assert [text for text, count in counts.items() if count > 1] == []


def test_a_text_names_the_object_and_the_condition() -> None:
    assert [text for _, text in sites() if not re.match(r"[\w' -]+: \w", text)] == []


def test_there_are_sites_in_every_room_of_the_core() -> None:
    rooms = Counter(file.removeprefix("kbroker/").partition("/")[0] for file, _ in sites())
    assert sum(rooms.values()) >= SITES_MIN
    assert {"net", "engine", "log", "replica", "coordinator"} <= set(rooms)


def test_nothing_is_broken_here() -> None:
    assert broken_invariants() == {"connection": 0, "partition": 0, "process": 0, "count": 0}
