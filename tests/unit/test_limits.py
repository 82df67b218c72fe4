"""limits.py: the relations between bounds that other code relies on."""

from __future__ import annotations

from kbroker import limits
from tests.support.source_tree import enum_members, relative, source_files


def test_every_bound_is_a_positive_number() -> None:
    bounds = {name: value for name, value in vars(limits).items() if name.isupper()}
    assert len(bounds) > 20
    assert all(type(v) in (int, float) and v > 0 for v in bounds.values())


def test_a_train_fits_into_a_run() -> None:
    assert limits.TRAIN_FRAMES_MAX <= limits.RUN_REQUESTS_MAX
    assert limits.TRAIN_BYTES_MAX <= limits.RUN_BYTES_MAX


def test_a_topics_directory_fits_a_file_name() -> None:
    assert limits.TOPIC_NAME_CHARS_MAX + len("-99999") <= 255


def test_what_c_keeps_as_well_is_the_same() -> None:
    """By name: one file has them, with their values."""
    of_c = {
        (relative(path), name): value
        for path in source_files("kbroker", suffixes=(".pyx", ".pxd"))
        for name, value in enum_members(path)
        if hasattr(limits, name)
    }
    assert {file for file, _ in of_c} == {"kbroker/core/_limits.pxd"}
    assert of_c == {(file, name): getattr(limits, name) for file, name in of_c}
