"""The order of a run's files: sessions first, tests that are alone last, both kinds all along."""

from __future__ import annotations

from pathlib import PurePosixPath

from tests.support import order
from tests.support.source_tree import relative, source_files

FILES = [
    relative(path).removeprefix("tests/")
    for path in source_files("tests", suffixes=(".py",))
    if path.name.startswith("test_")
]
ALONE = "fuzz/test_run.py"


def test_each_file_with_a_time_is_there() -> None:
    assert not order.SECONDS.keys() - set(FILES)


def test_sessions_are_first_and_tests_that_are_alone_last() -> None:
    found = order.places(FILES, {ALONE})
    assert found.keys() == set(FILES)
    first = {file for file, (part, _) in found.items() if part == 0}
    assert first == {file for file in FILES if order.has_a_session(file)}
    assert {PurePosixPath(file).parts[0] for file in first} == {"clients", "spark"}
    assert [file for file, (part, _) in found.items() if part == 2] == [ALONE]


def test_each_part_of_a_run_has_both_kinds_as_the_whole_has() -> None:
    found = order.places(FILES, {ALONE})
    between = sorted((f for f in FILES if found[f][0] == 1), key=found.__getitem__)
    whole = sum(map(order.seconds, between))
    computing = sum(order.seconds(file) for file in between if order.computes(file)) / whole
    longest = max(order.SECONDS.values())
    so_far = computed = 0.0
    for file in between:
        so_far += order.seconds(file)
        computed += order.seconds(file) if order.computes(file) else 0.0
        assert abs(computed - computing * so_far) <= longest, file


def test_the_longest_of_a_kind_come_first() -> None:
    found = order.places(FILES, {ALONE})
    for kind in (True, False):
        files = [f for f in FILES if found[f][0] == 1 and order.computes(f) == kind]
        lengths = [order.seconds(file) for file in sorted(files, key=found.__getitem__)]
        assert lengths == sorted(lengths, reverse=True)
