from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.errors import DataDirectoryError
from kbroker.metadata.meta_properties import FILE_NAME, MetaProperties, ensure, load


def test_a_new_directory_is_claimed_and_stays_claimed(tmp_path: Path) -> None:
    assert load(tmp_path) is None
    made = ensure(tmp_path, "4L6g3nShT-eMCtK--X86sw", 0)
    assert load(tmp_path) == made == ensure(tmp_path, "4L6g3nShT-eMCtK--X86sw", 0)
    assert len(made.directory_id) == 22
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_files_of_apache_kafka_are_understood(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(
        "#\n#Thu Nov 20 10:00:00 UTC 2025\ncluster.id=abc\\=\\:d\nversion=1\n"
        "directory.id=JwQ\nnode.id=7\n"
    )
    assert load(tmp_path) == MetaProperties("abc=:d", 7, "JwQ")
    (tmp_path / FILE_NAME).write_text("version=0\r\nbroker.id = 3\r\ncluster.id = old\r\n")
    assert load(tmp_path) == MetaProperties("old", 3, "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("version=2\nnode.id=1\ncluster.id=x", "version '2'"),
        ("version=1\ncluster.id=x", "node.id"),
        ("version=1\nnode.id=-1\ncluster.id=x", "node.id"),
        ("version=1\nnode.id=1", "cluster.id"),
        ("\x00" * 70_000, "more than"),
        ("\x00\xff garbage", "node.id"),
    ],
)
def test_files_that_cannot_be_read_are_named(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / FILE_NAME).write_text(text, encoding="latin-1")
    with pytest.raises(DataDirectoryError, match=reason) as raised:
        load(tmp_path)
    assert str(tmp_path / FILE_NAME) in raised.value.message


def test_another_clusters_or_brokers_directory_is_refused(tmp_path: Path) -> None:
    ensure(tmp_path, "ours", 1)
    with pytest.raises(DataDirectoryError, match="belongs to cluster ours"):
        ensure(tmp_path, "theirs", 1)
    with pytest.raises(DataDirectoryError, match=r"belongs to node.id 1.*set node.id=1"):
        ensure(tmp_path, "ours", 2)


def test_a_directory_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataDirectoryError, match="cannot write"):
        ensure(tmp_path / "none", "c", 1)
    (tmp_path / FILE_NAME).mkdir()
    with pytest.raises(DataDirectoryError, match="cannot read"):
        load(tmp_path)
