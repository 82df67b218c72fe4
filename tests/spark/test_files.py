"""The ledger's file operations through Hadoop do what those on local files do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.files import Files, HadoopFiles, LocalFiles, files_of, join
from spark_jobs.ledger import Ledger
from tests.unit.spark_jobs.test_ledger import batch, folded_away

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(params=["hadoop", "local"])
def files(spark: SparkSession, request: pytest.FixtureRequest) -> Files:
    return HadoopFiles(spark) if request.param == "hadoop" else LocalFiles()


def test_operations(files: Files, tmp_path: Path) -> None:
    uri = files.qualify(f"file:{tmp_path}/")
    assert uri == f"file://{tmp_path}"
    name = join(uri, "deep", "name.json")
    assert files.entries(join(uri, "deep")) == []
    with pytest.raises(FileNotFoundError):
        files.read(name)
    assert files.create(name, b"first\xff\x00")
    assert not files.create(name, b"second")
    assert files.read(name) == b"first\xff\x00"
    assert files.exists(name)
    (entry,) = (entry for entry in files.entries(join(uri, "deep")) if entry.name[0] != ".")
    assert (entry.name, entry.size, entry.is_directory) == ("name.json", 7, False)
    assert entry.modified_ms == (tmp_path / "deep/name.json").stat().st_mtime_ns // 1_000_000
    left = [found for found in os.listdir(tmp_path / "deep") if found.endswith(".tmp")]
    assert left == []
    files.delete(join(uri, "deep"))
    files.delete(join(uri, "deep"))
    assert not files.exists(join(uri, "deep"))


def test_a_ledger_works_on_either(files: Files, tmp_path: Path) -> None:
    one, two = Ledger(files, str(tmp_path / "t")), Ledger(files, str(tmp_path / "t"))
    assert one.commit(batch(0, 0, 4))
    assert not two.commit(batch(0, 0, 4))
    assert two.commit(batch(1, 4, 5))
    folded_away(one)
    assert Ledger(LocalFiles(), str(tmp_path / "t")).state() == two.state()


def test_trouble_is_one_line(spark: SparkSession) -> None:
    with pytest.raises(OSError, match="nowhere") as raised:
        HadoopFiles(spark).read("nowhere://host/file")
    assert "\n" not in str(raised.value)


def test_local_uris_need_no_hadoop(spark: SparkSession, tmp_path: Path) -> None:
    assert isinstance(files_of(spark, str(tmp_path)), LocalFiles)
    assert isinstance(files_of(spark, f"file://{tmp_path}"), LocalFiles)
