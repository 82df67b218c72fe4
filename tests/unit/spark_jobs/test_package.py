"""The archive for executors, alone on a path."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import kbroker
from spark_jobs import package
from tests.support.source_tree import ROOT

# Modules that need a broker's client, and so kbroker itself, and those imported only with pyspark.
NOT_ALONE = ("spark_jobs.kbroker_source",)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("package") / "jobs.zip"
    assert package.write(out) > 10
    return out


def run(path: list[Path], code: str, cwd: Path) -> str:
    """What a Python prints that has only this on its path, and what is installed."""
    installed = sysconfig.get_paths()["purelib"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(
        [*map(str, path), installed])}  # fmt: skip
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def modules(archive: Path) -> list[str]:
    with zipfile.ZipFile(archive) as opened:
        names = [name for name in opened.namelist() if name.endswith(".py")]
    return [name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in names]


def test_every_module_in_it_is_importable_from_it_alone(archive: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    pytest.importorskip("matplotlib")
    wanted = [name for name in modules(archive) if name not in NOT_ALONE]
    code = (
        f"import importlib, sys\nfor name in {wanted!r}: importlib.import_module(name)\n"
        "print({m.__file__.partition('.zip')[0] for n, m in sys.modules.items()"
        " if n.partition('.')[0] in ('kbroker', 'perf', 'spark_jobs')})"
    )
    assert run([archive], code, tmp_path) == repr({str(archive).removesuffix(".zip")})


def test_tables_are_read_from_it(archive: Path, tmp_path: Path) -> None:
    code = (
        "import kbroker, spark_jobs.schema as s, importlib.resources as r\n"
        "print(kbroker.__version__, len(s.TABLES),"
        " r.files('spark_jobs.html').joinpath('report.html.j2').is_file())"
    )
    assert run([archive], code, tmp_path) == f"{kbroker.__version__} 3 True"


def test_it_does_not_hide_installed_modules(archive: Path, tmp_path: Path) -> None:
    code = (
        "import kbroker.errors, kbroker.types, perf.batch\n"
        "print(kbroker.errors.__file__, kbroker.types.__file__)"
    )
    inside, outside = run([archive, ROOT], code, tmp_path).split()
    assert inside == f"{archive}/kbroker/errors.py"
    assert outside == str(ROOT / "kbroker" / "types.py")


def test_without_kbroker_our_source_names_the_fix_in_a_line(archive: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    code = (
        "import sys; sys.modules['kbroker.peer.client'] = None\n"
        "try: import spark_jobs.kbroker_source\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    line = run([archive], code, tmp_path)
    assert line.startswith("SourceError --source kbroker needs kbroker installed on ")
    assert "pip install kbroker there (driver and every worker)" in line and "\n" not in line


def test_the_same_sources_make_the_same_bytes(archive: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.zip"
    package.write(again)
    assert again.read_bytes() == archive.read_bytes()


def test_the_command_prints_the_file_it_made_or_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert package.main([str(tmp_path / "jobs.zip")]) == 0
    assert "files" in capsys.readouterr().out
    assert package.main([str(tmp_path / "nowhere" / "jobs.zip")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["jobs.zip"]
