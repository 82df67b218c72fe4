"""Local files as the ledger needs them: created whole, never overwritten."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from spark_jobs.files import LocalFiles, join


@pytest.fixture
def files() -> LocalFiles:
    return LocalFiles()


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_all_ways_to_write_a_path(files: LocalFiles, tmp_path: Path, form: str) -> None:
    uri = form.format(tmp_path)
    assert files.qualify(uri) == f"file://{tmp_path}"
    assert files.create(join(uri, "a", "b.json"), b"text")
    assert (tmp_path / "a/b.json").read_bytes() == b"text"
    assert files.read(join(uri, "a", "b.json")) == b"text"


def test_a_relative_path_is_made_absolute(
    files: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert files.qualify("tables/") == f"file://{tmp_path}/tables"


def test_create_never_overwrites(files: LocalFiles, tmp_path: Path) -> None:
    uri = str(tmp_path / "name")
    assert files.create(uri, b"first")
    assert not files.create(uri, b"second")
    assert files.read(uri) == b"first"
    assert os.listdir(tmp_path) == ["name"], "nothing is left of the second"


def test_of_many_at_once_one_wins_and_is_seen_whole(files: LocalFiles, tmp_path: Path) -> None:
    uri, size = str(tmp_path / "name"), 1 << 20
    won: list[int] = []
    torn: list[bytes] = []
    done = threading.Event()

    def write(byte: int) -> None:
        if files.create(uri, bytes([byte]) * size):
            won.append(byte)

    def watch() -> None:
        while not done.is_set():
            if files.exists(uri):
                data = files.read(uri)
                if len(data) != size or len(set(data)) != 1:
                    torn.append(data)

    watcher = threading.Thread(target=watch)
    watcher.start()
    writers = [threading.Thread(target=write, args=(byte,)) for byte in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    done.set()
    watcher.join()
    assert len(won) == 1
    assert files.read(uri)[:1] == bytes(won)
    assert torn == []


def test_entries(files: LocalFiles, tmp_path: Path) -> None:
    assert files.entries(str(tmp_path / "none")) == []
    (tmp_path / "b").mkdir()
    (tmp_path / "a").write_bytes(b"123")
    found = files.entries(str(tmp_path))
    assert [(entry.name, entry.is_directory) for entry in found] == [("a", False), ("b", True)]
    assert found[0].size == 3
    assert found[0].modified_ms == (tmp_path / "a").stat().st_mtime_ns // 1_000_000


def test_delete(files: LocalFiles, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep/link").symlink_to(outside)
    files.delete(str(tree))
    files.delete(str(tree))
    assert not tree.exists()
    assert (outside / "kept").exists(), "a link is removed, not what it points at"
    files.delete(str(outside / "kept"))
    assert not (outside / "kept").exists()


def test_a_missing_file_cannot_be_read(files: LocalFiles, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.read(str(tmp_path / "none"))
    assert not files.exists(str(tmp_path / "none"))


def test_sync_takes_a_tree(files: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "unit/deep").mkdir(parents=True)
    (tmp_path / "unit/deep/part").write_bytes(b"x")
    files.sync(str(tmp_path / "unit"))
