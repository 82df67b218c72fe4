"""Which offsets a batch has, by its checkpoint's own logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_jobs.files import LocalFiles
from spark_jobs.ledger import LedgerDamaged
from spark_jobs.sink import Checkpoint

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{"a":"b"}}'


def checkpoint(place: Path, **logs: str) -> Checkpoint:
    """`logs`: o3 is the offset log of batch 3, s is the source's note."""
    for name, text in logs.items():
        path = place / ("sources/0/0" if name == "s" else f"offsets/{name[1:]}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Checkpoint(LocalFiles(), str(place))


def log(ends: dict[int, int], topic: str = "t") -> str:
    return f"v1\n{METADATA}\n{json.dumps({topic: {str(p): end for p, end in ends.items()}})}"


def note(ends: dict[int, int]) -> str:
    return f"v1\n{json.dumps({'t': {str(p): end for p, end in ends.items()}})}"


def test_a_batch_goes_from_the_one_before(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, o3=log({0: 5, 1: 2}), o4=log({0: 9, 1: 2, 2: 3}))
    assert found.ranges(4, "t", {2: 1}) == {0: (5, 9), 1: (2, 2), 2: (1, 3)}
    assert found.ranges(4, "t", {}) == {0: (5, 9), 1: (2, 2), 2: (0, 3)}


def test_the_first_batch_goes_from_where_the_source_began(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, s=note({0: 4}), o0=log({0: 9}))
    assert found.ranges(0, "t", {0: 7}) == {0: (4, 9)}


def test_the_first_batch_of_a_source_without_notes_goes_from_the_tables_end(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, o0=log({0: 9, 1: 1}))
    assert found.ranges(0, "t", {0: 7}) == {0: (7, 9), 1: (0, 1)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v1\n",
        f"v1\n{METADATA}\n-",
        "v1\n{\n",
        log({0: 1}, topic="other"),
        'v1\n{"t":{"0":"x"}}',
    ],
)
def test_a_damaged_log_is_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(LedgerDamaged, match="new checkpoint") as raised:
        checkpoint(tmp_path, o0=text).ranges(0, "t", {})
    assert "\n" not in str(raised.value)


def test_a_query_has_an_id(tmp_path: Path) -> None:
    found = checkpoint(tmp_path)
    (tmp_path / "metadata").write_text('{"id":"abc"}')
    assert found.query_id() == "abc"
    (tmp_path / "metadata").write_text('{"id":"changed"}')
    assert found.query_id() == "abc"


@pytest.mark.parametrize("text", ["", "[]", "{}", "{"])
def test_a_checkpoint_without_an_id_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "metadata").write_text(text)
    with pytest.raises(LedgerDamaged, match="new checkpoint"):
        checkpoint(tmp_path).query_id()
